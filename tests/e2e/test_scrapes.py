"""Metrics of a real application: ticks, memory, and a view that a row makes fail."""

from __future__ import annotations

import sqlite3
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark


def scraped(workplace):
    """The samples of `/v1/metrics`, with the token of the location."""
    location = Path(workplace.application.location)
    with sqlite3.connect(location / "metastore.sqlite") as metastore:
        address, token_file = metastore.execute(
            "SELECT address, token_file FROM leaders ORDER BY epoch DESC LIMIT 1"
        ).fetchone()
    headers = {
        "Authorization": f"Bearer {Path(token_file).read_text()}",
        "Content-Type": "application/json",
    }
    request = urllib.request.Request(f"{address}/v1/metrics", data=b"{}", headers=headers)
    with urllib.request.urlopen(request) as response:
        assert response.headers["content-type"].startswith("text/plain; version=")
        text = response.read().decode()
    return [s for family in text_string_to_metric_families(text) for s in family.samples]


def complete(workplace):
    """The samples of a scrape that all parts have answered, which a busy machine may delay."""
    found = []

    def answered():
        found[:] = scraped(workplace)
        parts = [s.value for s in found if s.name == "slackwater_scrape_part_answers"]
        return parts == [1] * 4

    wait_until(answered, what="all parts answer")
    return found


def value(samples, name, /, **labels):
    """The sum of the samples of that name with these labels; None: there are none."""
    found = [s.value for s in samples if s.name == name and labels.items() <= s.labels.items()]
    return sum(found) if found else None


def id_of(workplace, name):
    return workplace.value(
        "SELECT id FROM slackwater.mz_internal.mz_object_fully_qualified_names"
        f" WHERE name = '{name}' AND schema_name = '{workplace.schema}'"
    )


def test_a_view_is_followed_from_its_ticks_to_its_drop(workplace):
    workplace.sql("CREATE TABLE t (k INT, v INT)")
    workplace.sql('CREATE MATERIALIZED VIEW `<b>"` AS SELECT k, sum(v) AS s FROM t GROUP BY k')
    workplace.sql("INSERT INTO t VALUES (1, 2), (2, 3)")
    workplace.rows('SELECT * FROM `<b>"`')
    view = id_of(workplace, '<b>"')
    found = complete(workplace)
    assert value(found, "slackwater_object_info", object_id=view, name='<b>"') == 1
    assert value(found, "slackwater_hydrated", object_id=view) == 1
    assert value(found, "slackwater_view_failing", object_id=view) == 0
    assert value(found, "slackwater_tick_duration_seconds_count", object_id=view) >= 1
    assert value(found, "slackwater_tick_rows_total", object_id=view, kind="emitted") >= 2
    assert value(found, "slackwater_shard_bytes", object_id=view) > 0
    assert value(found, "slackwater_arrangement_bytes", where="memory") > 0
    limit = value(found, "slackwater_arrangement_limit_bytes", where="memory")
    assert value(found, "slackwater_arrangement_bytes", where="memory") <= limit
    workplace.sql('DROP MATERIALIZED VIEW `<b>"`')
    assert not [s for s in scraped(workplace) if s.labels.get("object_id") == view]


def test_a_row_that_makes_a_view_fail_is_seen_until_it_goes(workplace):
    workplace.sql("CREATE TABLE t (k INT)")
    workplace.sql("CREATE MATERIALIZED VIEW inverse AS SELECT 6 DIV k AS v FROM t")
    view = id_of(workplace, "inverse")

    def is_failing():
        return value(complete(workplace), "slackwater_view_failing", object_id=view)

    workplace.sql("INSERT INTO t VALUES (0), (3)")
    wait_until(lambda: is_failing() == 1, what="the view fails")
    workplace.sql("DELETE FROM t WHERE k = 0")
    wait_until(lambda: is_failing() == 0, what="the view goes on")
    assert workplace.rows("SELECT v FROM inverse") == [[2]]
