"""The reference page of all metrics: ``python -m docs.generators.metrics_page``."""

from __future__ import annotations

from slackwater.adapter.system.exposition import Family
from slackwater.adapter.system.metric_families import FAMILIES, MetricsSnapshot
from slackwater.repr.durations import BOUNDS_S

_HEAD = """# Metrics

This page is generated from the code by `python -m docs.generators.metrics_page`.

`GET /metrics` of the [ingress](settings.md#the-ingress) has them for Prometheus;
[monitor an environment](tasks/monitor.md) says how to scrape it, and what to watch.

* Labels name objects by `object_id`. `slackwater_object_info` has their names: a join
  `* on (job, instance, object_id) group_left (schema, name) slackwater_object_info` adds them.
* An object that was dropped has no series. What happens seldom has a series once it has happened.
* Counters count since the leader has begun, unless they say otherwise: another leader begins at 0.
* Histograms have the buckets {bounds} and above, in seconds.

| metric | type | labels | meaning |
|---|---|---|---|
"""


def page() -> str:
    """The page as Markdown, ending with a newline."""
    bounds = ", ".join(f"{bound:g}" for bound in BOUNDS_S)
    head = _HEAD.replace("{bounds}", bounds)
    return head + "".join(f"{_row(each)}\n" for each in FAMILIES)


def _row(family: Family[MetricsSnapshot]) -> str:
    labels = ", ".join(f"`{each}`" for each in family.labels)
    return f"| `{family.name}` | {family.kind.value} | {labels} | {family.help} |".replace(
        "  ", " "
    )


if __name__ == "__main__":
    print(page(), end="")
