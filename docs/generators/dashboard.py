"""The dashboard for Grafana: ``python -m docs.generators.dashboard > monitoring/grafana.json``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH = 24
HEIGHT = 8
SCHEMA = 39
"""The version of Grafana's schema of dashboards that this is written for (Grafana 10.3)."""

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
OF = 'job=~"$job"'
NAMED = f"* on (job, instance, object_id) group_left (schema, name) slackwater_object_info{{{OF}}}"
"""Gives the series of objects their names."""
OBJECT = "{{schema}}.{{name}}"


@dataclass(frozen=True, slots=True)
class Panel:
    """A graph: its title, the unit of its values by Grafana's name, and what it shows.

    `shown` are expressions with the names of their series.
    """

    title: str
    unit: str
    shown: Sequence[tuple[str, str]]


def _of_objects(title: str, unit: str, value: str, legend: str = OBJECT) -> Panel:
    return Panel(title, unit, [(f"{value} {NAMED}", legend)])


def _quantiles(title: str, name: str, by: str = "") -> Panel:
    labels = f"le, {by}" if by else "le"
    legend = f" {{{{{by}}}}}" if by else ""
    return Panel(
        title,
        "s",
        [
            (
                f"histogram_quantile({part}, sum by ({labels})"
                f" (rate({name}_bucket{{{OF}}}[$__rate_interval])))",
                f"p{part * 100:.0f}{legend}",
            )
            for part in (0.5, 0.99)
        ],
    )


ROWS: Sequence[tuple[str, Sequence[Panel]]] = (
    (
        "Freshness",
        (
            _of_objects("Behind the clock", "s", f"slackwater_wallclock_lag_seconds{{{OF}}}"),
            _of_objects("Behind inputs", "s", f"slackwater_materialization_lag_seconds{{{OF}}}"),
            _of_objects("Not hydrated", "none", f"(slackwater_hydrated{{{OF}}} == 0)"),
            Panel("Leader", "none", [(f"slackwater_leader{{{OF}}}", "epoch {{epoch}}")]),
        ),
    ),
    (
        "Failures",
        (
            _of_objects("Failing views", "none", f"(slackwater_view_failing{{{OF}}} == 1)"),
            _of_objects(
                "Failed ticks",
                "ops",
                "sum by (job, instance, object_id, condition)"
                f" (rate(slackwater_view_failures_total{{{OF}}}[$__rate_interval]))",
                f"{OBJECT} {{{{condition}}}}",
            ),
            Panel(
                "Statements that failed",
                "ops",
                [
                    (
                        "sum by (statement_type, status) (rate(slackwater_statements_total"
                        f'{{{OF}, status!="success"}}[$__rate_interval]))',
                        "{{statement_type}} {{status}}",
                    )
                ],
            ),
            Panel(
                "Commits that failed",
                "ops",
                [
                    (
                        "sum by (condition) (rate(slackwater_commit_failures_total"
                        f"{{{OF}}}[$__rate_interval]))",
                        "{{condition}}",
                    )
                ],
            ),
        ),
    ),
    (
        "Ticks",
        (
            _quantiles("Duration of ticks", "slackwater_tick_duration_seconds", "mode"),
            _of_objects(
                "Time in ticks",
                "percentunit",
                "sum by (job, instance, object_id)"
                f" (rate(slackwater_tick_duration_seconds_sum{{{OF}}}[$__rate_interval]))",
            ),
            Panel(
                "Rows of ticks",
                "rowsps",
                [
                    (
                        f"sum by (kind) (rate(slackwater_tick_rows_total{{{OF}}}"
                        "[$__rate_interval]))",
                        "{{kind}}",
                    )
                ],
            ),
            Panel(
                "Arrangements",
                "bytes",
                [
                    (f"slackwater_arrangement_bytes{{{OF}}}", "{{replica_id}} {{where}}"),
                    (
                        f"slackwater_arrangement_limit_bytes{{{OF}}}",
                        "{{replica_id}} {{where}} limit",
                    ),
                ],
            ),
        ),
    ),
    (
        "Statements",
        (
            Panel(
                "Statements",
                "ops",
                [
                    (
                        f"sum by (statement_type) (rate(slackwater_statements_total{{{OF}}}"
                        "[$__rate_interval]))",
                        "{{statement_type}}",
                    )
                ],
            ),
            _quantiles("Time in the coordinator", "slackwater_statement_seconds"),
            _quantiles("Wait for complete inputs", "slackwater_statement_wait_seconds"),
            Panel(
                "Sessions and subscriptions",
                "none",
                [
                    (f"slackwater_active_sessions{{{OF}}}", "sessions"),
                    (f"slackwater_active_subscribes{{{OF}}}", "subscriptions"),
                ],
            ),
        ),
    ),
    (
        "Sources",
        (
            _of_objects(
                "Messages",
                "ops",
                f"rate(slackwater_source_messages_total{{{OF}}}[$__rate_interval])",
            ),
            _of_objects(
                "Not read yet",
                "none",
                f"(slackwater_source_offset_known{{{OF}}}"
                f" - slackwater_source_offset_committed{{{OF}}})",
            ),
            _of_objects("Stalled", "none", f'slackwater_source_status{{{OF}, status="stalled"}}'),
            _of_objects(
                "Dead letters and skipped rows",
                "none",
                f"(increase(slackwater_source_dead_letters_total{{{OF}}}[$__rate_interval])"
                f" + increase(slackwater_source_rows_skipped_total{{{OF}}}[$__rate_interval]))",
            ),
            _of_objects(
                "Log that PostgreSQL keeps",
                "bytes",
                f"slackwater_postgres_slot_retained_bytes{{{OF}}}",
            ),
            _of_objects(
                "Age of checkpoints",
                "s",
                f"slackwater_checkpoint_committed_age_seconds{{{OF}}}",
            ),
        ),
    ),
    (
        "Sinks",
        (
            _of_objects(
                "Behind the clock",
                "s",
                f"(time() - slackwater_sink_frontier_timestamp_seconds{{{OF}}})",
            ),
            _of_objects(
                "Messages", "ops", f"rate(slackwater_sink_messages_total{{{OF}}}[$__rate_interval])"
            ),
            _quantiles("Duration of ranges", "slackwater_sink_commit_seconds"),
            _of_objects("Stalled", "none", f'slackwater_sink_status{{{OF}, status="stalled"}}'),
            _of_objects(
                "Transactions of Kafka",
                "ops",
                f"rate(slackwater_kafka_transactions_total{{{OF}}}[$__rate_interval])",
                f"{OBJECT} {{{{outcome}}}}",
            ),
        ),
    ),
    (
        "Storage",
        (
            _of_objects("Contents", "bytes", f"slackwater_shard_bytes{{{OF}}}"),
            _of_objects("Garbage", "bytes", f"slackwater_garbage_bytes{{{OF}}}"),
            _quantiles("Duration of commits", "slackwater_commit_seconds"),
            _of_objects("Holds", "none", f"slackwater_read_holds{{{OF}}}"),
        ),
    ),
)


def dashboard() -> str:
    """The dashboard as JSON, ending with a newline."""
    job = {
        "name": "job",
        "type": "query",
        "label": "job",
        "datasource": SOURCE,
        "query": "label_values(slackwater_leader, job)",
        "includeAll": True,
        "multi": True,
        "refresh": 2,
        "current": {"text": "All", "value": "$__all"},
    }
    source = {"name": "datasource", "type": "datasource", "label": "Prometheus"}
    found = {
        "title": "Slackwater",
        "uid": "slackwater",
        "schemaVersion": SCHEMA,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [{**source, "query": "prometheus"}, job]},
        "panels": list(_panels()),
    }
    return json.dumps(found, indent=1) + "\n"


def _panels() -> Iterator[dict[str, Any]]:
    number = top = 0
    for title, panels in ROWS:
        number += 1
        place = {"x": 0, "y": top, "w": WIDTH, "h": 1}
        yield {"id": number, "type": "row", "title": title, "gridPos": place, "panels": []}
        top += 1
        width = WIDTH // 3 if len(panels) > 4 else WIDTH // len(panels)
        for at, panel in enumerate(panels):
            number += 1
            column, row = at % (WIDTH // width), at // (WIDTH // width)
            place = {"x": column * width, "y": top + row * HEIGHT, "w": width, "h": HEIGHT}
            yield {"id": number, "gridPos": place, **_graph(panel)}
        top += HEIGHT * -(-len(panels) * width // WIDTH)


def _graph(panel: Panel) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": panel.title,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": SOURCE,
                "expr": expr,
                "legendFormat": legend,
            }
            for at, (expr, legend) in enumerate(panel.shown)
        ],
    }


if __name__ == "__main__":
    print(dashboard(), end="")
