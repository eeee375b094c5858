"""The dashboard and the alerts ask for what the metrics have, in the language of Prometheus."""

import json
import re
from importlib import resources
from itertools import combinations
from pathlib import Path

import promql_parser as promql
import pytest
import yaml
from docs.generators import dashboard

from slackwater.adapter.system.exposition import Kind
from slackwater.adapter.system.metric_families import FAMILIES

FOLDER = Path(str(resources.files("slackwater").joinpath("monitoring")))
PAGE = (Path(__file__).parents[3] / "docs/user/tasks/monitor.md").read_text()
OF_SCRAPES = {"job", "instance"}
RATE_INTERVAL = "5m"

ALERTS = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
BOARD = json.loads((FOLDER / "grafana.json").read_text())
GRAPHS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [
    *((rule["alert"], rule["expr"]) for rule in ALERTS),
    *((panel["title"], target["expr"]) for panel in GRAPHS for target in panel["targets"]),
]


def named_series():
    """The labels of each series that is exported, by its name."""
    found = {}
    for each in FAMILIES:
        labels = {*each.labels, *OF_SCRAPES}
        if each.kind is Kind.HISTOGRAM:
            found[f"{each.name}_bucket"] = {*labels, "le"}
            found |= {f"{each.name}_sum": labels, f"{each.name}_count": labels}
        else:
            found[each.name] = labels
    return found


SERIES = named_series()


def selectors(text):
    """What the expression selects, as Prometheus's own grammar has it."""
    found = []
    promql.walk(
        promql.parse(text.replace("$__rate_interval", RATE_INTERVAL)),
        lambda node: (
            found.append(node) if isinstance(node, promql.VectorSelector) else None,
            True,
        )[1],
    )
    return found


@pytest.mark.parametrize(("title", "text"), EXPRESSIONS)
def test_each_expression_asks_for_what_is_exported(title, text):
    found = selectors(text)
    assert found
    known = set()
    for each in found:
        assert each.name in SERIES
        assert {m.name for m in each.matchers.matchers} <= SERIES[each.name], title
        known |= SERIES[each.name]
    for labels in re.findall(r"(?:by|on|group_left) \(([a-z_, ]+)\)", text):
        assert set(labels.split(", ")) <= known, title


def test_an_expression_of_what_is_not_exported_would_be_found():
    with pytest.raises(ValueError, match="unclosed"):
        selectors("rate(slackwater_leader[5m]")
    (found,) = selectors("rate(slackwater_nothing[$__rate_interval])")
    assert found.name not in SERIES


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_each_alert_is_explained(rule):
    assert re.fullmatch(r"\d+m", rule["for"])
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"]
    assert f"| `{rule['alert']}` |" in PAGE
    used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert all(label in rule["expr"] or label in labels_of(rule) for label in used)


def labels_of(rule):
    return {label for each in selectors(rule["expr"]) for label in SERIES[each.name]}


def test_the_page_explains_no_other_alert():
    assert set(re.findall(r"^\| `(Slackwater\w+)` \|", PAGE, re.MULTILINE)) == {
        rule["alert"] for rule in ALERTS
    }


def test_the_dashboard_is_current():
    assert (FOLDER / "grafana.json").read_text() == dashboard.dashboard(), (
        "run python -m docs.generators.dashboard > monitoring/grafana.json"
    )


def test_the_graphs_of_the_dashboard_do_not_overlap():
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)

    def covers(one, other):
        return all(
            one[start] < other[start] + other[size] and other[start] < one[start] + one[size]
            for start, size in (("x", "w"), ("y", "h"))
        )

    places = [panel["gridPos"] for panel in BOARD["panels"]]
    assert all(place["x"] + place["w"] <= dashboard.WIDTH for place in places)
    assert not any(covers(*pair) for pair in combinations(places, 2))


def test_the_configuration_of_the_page_scrapes_what_the_ingress_serves():
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (job,) = yaml.safe_load(text)["scrape_configs"]
    assert job.get("metrics_path", "/metrics") == "/metrics"
    assert yaml.safe_load(text)["rule_files"] == ["alerts.yaml"]
