"""Clusters with SCHEDULE = ON REFRESH: they run before and while a view is refreshed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.adapter.calm import CalmPlace

from slackwater.adapter.catalog.clusters import DEFAULT_CLUSTER
from slackwater.adapter.catalog.details import MaterializedViewDetails
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.adapter.ddl.schedules import misplaced
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier, Timestamp
from slackwater.repr.ids import user_id
from slackwater.repr.refresh import RefreshEvery, RefreshSchedule

BEGIN = 1_780_000_000_000
HOUR_MS = 3_600_000


def view(number, *, refreshed):
    schedule = RefreshSchedule((RefreshEvery(HOUR_MS, Timestamp(0)),)) if refreshed else None
    details = MaterializedViewDetails(
        query="SELECT 1", catalog="slackwater", namespace=("default",), refresh=schedule
    )
    return CatalogItem(
        id=user_id(number),
        kind=ItemKind.MATERIALIZED_VIEW,
        schema_name="default",
        name=f"v{number}",
        create_sql="",
        details=details,
        cluster=DEFAULT_CLUSTER.id,
    )


@pytest.mark.parametrize(
    ("uppers", "on_refresh_ms", "wanted"),
    [
        ({}, 0, 0),
        ({10: 101}, 0, 0),
        ({10: 100}, 0, None),
        ({10: 110}, 9, 0),
        ({10: 110}, 10, None),
        ({10: 500, 11: 100}, 0, None),
        ({10: None}, 10, 0),
        ({10: 500, 12: 1}, 0, 0),
        ({10: 500}, None, None),
    ],
)
def test_a_cluster_is_wanted_while_a_refresh_is_due(uppers, on_refresh_ms, wanted):
    """At 100: a view that is refreshed on commit, 12, does not count, whatever its upper is."""
    views = [view(number, refreshed=number != 12) for number in uppers]
    cluster = replace(DEFAULT_CLUSTER, on_refresh_ms=on_refresh_ms)
    state = CatalogState.of([], views, clusters=[cluster])

    def upper(item):
        found = uppers[int(item.id[1:])]
        return EMPTY_FRONTIER if found is None else Frontier(found)

    found = list(misplaced(state, upper, Timestamp(100)))
    assert found == ([] if wanted is None else [(cluster, wanted)])


@pytest.fixture
def place(env):
    made = CalmPlace(env, BEGIN)
    made.table("t", k="integer")
    yield made
    made.close()


def replicas(place, name="nightly"):
    return [row["replica"] for row in place.sql("SHOW CLUSTER REPLICAS") if row["cluster"] == name]


def upper(place, name):
    return place.env.relations.upper(place.item(name)).value


def test_a_cluster_comes_for_each_refresh_and_goes_after_it(place):
    place.sql(
        "CREATE CLUSTER nightly (SIZE = '25cc', SCHEDULE = ON REFRESH"
        " (HYDRATION TIME ESTIMATE = '10 min'))"
    )
    assert replicas(place) == []
    place.write("t", {"k": 1})
    place.sql(
        "CREATE MATERIALIZED VIEW v IN CLUSTER nightly"
        " WITH (REFRESH AT CREATION, REFRESH EVERY '1 hour') AS SELECT k, count(*) AS n FROM t"
        " GROUP BY k"
    )
    place.wait(lambda: upper(place, "v") > BEGIN + HOUR_MS // 2)
    coming = upper(place, "v")
    place.wait(lambda: replicas(place) == [])
    assert [tuple(row.values()) for row in place.rows("v")] == [(1, 1)]
    place.write("t", {"k": 1})
    place.passes(coming - 20 * 60_000 - place.now_ms)
    assert replicas(place) == []
    place.passes(11 * 60_000)
    place.wait(lambda: replicas(place) == ["r1"])
    assert upper(place, "v") == coming
    place.passes(coming + 1 - place.now_ms)
    place.wait(lambda: upper(place, "v") == coming + HOUR_MS)
    place.wait(lambda: replicas(place) == [])
    assert [tuple(row.values()) for row in place.rows("v")] == [(1, 2)]


def test_a_schedule_and_a_number_of_replicas_exclude_each_other(place):
    place.sql("CREATE CLUSTER nightly (SIZE = '25cc', SCHEDULE = ON REFRESH)")
    for refused in (
        "ALTER CLUSTER nightly SET (REPLICATION FACTOR = 2)",
        "CREATE CLUSTER other (SIZE = '25cc', SCHEDULE = ON REFRESH, REPLICATION FACTOR = 1)",
    ):
        with pytest.raises(SlackwaterError) as error:
            place.sql(refused)
        assert error.value.condition == "SLACKWATER_SCHEDULED_CLUSTER"
    place.sql("ALTER CLUSTER nightly SET (SCHEDULE = MANUAL, REPLICATION FACTOR = 2)")
    assert replicas(place) == ["r1", "r2"]
    place.sql("ALTER CLUSTER nightly SET (SCHEDULE = ON REFRESH)")
    place.wait(lambda: replicas(place) == [])
    (shown,) = place.sql("SHOW CREATE CLUSTER nightly")
    assert "SCHEDULE = ON REFRESH" in shown["create_sql"]
