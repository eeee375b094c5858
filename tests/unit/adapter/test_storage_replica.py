"""The replicas of this process: connected again they go on, let go they end what they ran."""

from __future__ import annotations

import json

import pytest
from tests.support.adapter.coordination import Place

from slackwater.adapter.catalog.clusters import DEFAULT_CLUSTER

NONE = "ALTER CLUSTER quickstart SET (REPLICATION FACTOR 0)"
ONE = "ALTER CLUSTER quickstart SET (REPLICATION FACTOR 1)"
TWO = "ALTER CLUSTER quickstart SET (REPLICATION FACTOR 2)"


@pytest.fixture
def place(env, tmp_path):
    made = Place(env)
    made.table("t", v="string")
    made.sql(f"CREATE SINK s FROM t INTO FILES (PATH '{tmp_path}/out', FORMAT JSON)")
    made.sql("CREATE SOURCE c FROM LOAD GENERATOR COUNTER (TICK INTERVAL '20ms')")
    yield made
    made.close()


def running(place):
    parts = place.coordinator.parts
    return dict(parts.sinks._running), parts.ingestion.statuses()


def is_out(tmp_path, count):
    manifest = tmp_path / "out" / "manifest.json"
    files = json.loads(manifest.read_text())["files"] if manifest.exists() else []
    return sum(each["rows"] for each in files) == count


def counted(place):
    return len(place.read("c"))


def test_what_runs_goes_on_when_its_replica_is_connected_again(place, tmp_path):
    before, _ = running(place)
    (replica,) = DEFAULT_CLUSTER.replicas
    with place.env.catalog.lock:
        place.env.storage.connect_replica(DEFAULT_CLUSTER.id, replica.id)
        place.coordinator.parts.implications.replicas.apply_commands()
    after, _ = running(place)
    assert after == before
    place.write("t", {"v": "a"})
    place.wait(lambda: is_out(tmp_path, 1))


def test_what_runs_ends_with_its_replica_and_the_next_one_goes_on(place, tmp_path):
    place.write("t", {"v": "a"})
    place.wait(lambda: is_out(tmp_path, 1) and counted(place) > 1)
    place.sql(NONE)
    assert running(place) == ({}, [])
    seen = counted(place)
    place.write("t", {"v": "b"})
    assert is_out(tmp_path, 1)
    assert counted(place) == seen
    # What is dropped meanwhile does not come back. Nobody runs it, so CREATE does not wait for it.
    place.sql("CREATE SOURCE other FROM LOAD GENERATOR COUNTER (TICK INTERVAL '20ms')")
    place.sql("DROP SOURCE other")
    place.sql(ONE)
    place.wait(lambda: is_out(tmp_path, 2) and counted(place) > seen)
    assert sorted(row["counter"] for row in place.read("c"))[:3] == [1, 2, 3]
    assert [each.source_id for each in running(place)[1]] == [place.item("c").id]


def test_parameters_reach_a_replica_that_comes_later(place):
    place.sql(NONE)
    place.sql("ALTER SYSTEM SET keep_n_source_status_history_entries = 3")
    states = place.coordinator.parts.system._states
    assert states._history_kept != 3
    place.sql(ONE)
    assert states._history_kept == 3


def test_what_one_replica_runs_another_one_takes_over(place, tmp_path):
    place.sql(TWO)
    first, _ = running(place)
    place.write("t", {"v": "a"})
    place.wait(lambda: is_out(tmp_path, 1))
    names = [row["replica"] for row in place.sql("SHOW CLUSTER REPLICAS")]
    assert names == ["r1", "r2"]
    # The first one runs what only one may run; the second one stays under its name.
    place.sql("ALTER CLUSTER quickstart SET (MANAGED = FALSE)")
    place.sql("DROP CLUSTER REPLICA quickstart.r1")
    second, _ = running(place)
    assert list(second) == list(first)
    assert second != first
    seen = counted(place)
    place.write("t", {"v": "b"})
    place.wait(lambda: is_out(tmp_path, 2) and counted(place) > seen)


def test_sources_and_sinks_go_on_where_they_are_on_another_cluster(place, tmp_path):
    place.write("t", {"v": "a"})
    place.wait(lambda: is_out(tmp_path, 1) and counted(place) > 1)
    place.sql("CREATE CLUSTER other (SIZE = '25cc', REPLICATION FACTOR = 0)")
    place.sql("ALTER SINK s SET CLUSTER other")
    place.sql("ALTER SOURCE c SET CLUSTER other")
    assert running(place) == ({}, [])
    statuses = {row["name"]: row["status"] for row in place.sql("SHOW SOURCES")}
    assert statuses == {"c": "paused", "c_progress": "paused"}
    place.write("t", {"v": "b"})
    seen = counted(place)
    place.sql("ALTER CLUSTER other SET (REPLICATION FACTOR = 1)")
    place.wait(lambda: is_out(tmp_path, 2) and counted(place) > seen)
    rows = [row["counter"] for row in place.read("c")]
    assert sorted(rows) == list(range(1, len(rows) + 1))
    place.sql("DROP CLUSTER quickstart")
    place.write("t", {"v": "c"})
    place.wait(lambda: is_out(tmp_path, 3))
