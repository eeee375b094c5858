"""The replica of this process: connected again it goes on, let go it ends what it ran."""

from __future__ import annotations

import json

import pytest
from tests.support.adapter.coordination import Place

from slackwater.adapter.controllers.collections import INSTANCE, REPLICA


@pytest.fixture
def place(env, tmp_path):
    made = Place(env)
    made.table("t", v="string")
    made.sql(f"CREATE SINK s FROM t INTO FILES (PATH '{tmp_path}/out', FORMAT JSON)")
    made.sql("CREATE SOURCE c FROM LOAD GENERATOR COUNTER (TICK INTERVAL '20ms')")
    yield made
    made.close()


def told(place, action):
    """The controller does it, and the replica what follows."""
    with place.env.catalog.lock:
        action(place.env.storage)
        place.coordinator.parts.implications._replica.apply_commands()


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
    told(place, lambda storage: storage.connect_replica(INSTANCE, REPLICA))
    after, _ = running(place)
    assert after == before
    place.write("t", {"v": "a"})
    place.wait(lambda: is_out(tmp_path, 1))


def test_what_runs_ends_with_its_replica_and_the_next_one_goes_on(place, tmp_path):
    place.write("t", {"v": "a"})
    place.wait(lambda: is_out(tmp_path, 1) and counted(place) > 1)
    told(place, lambda storage: storage.drop_replica(INSTANCE, REPLICA))
    assert running(place) == ({}, [])
    seen = counted(place)
    place.write("t", {"v": "b"})
    assert is_out(tmp_path, 1)
    assert counted(place) == seen
    # What is dropped meanwhile does not come back. Nobody runs it, so CREATE waits to its deadline.
    place.sql("SET slackwater.statement_timeout = '10s'")
    place.sql("CREATE SOURCE other FROM LOAD GENERATOR COUNTER (TICK INTERVAL '20ms')")
    place.sql("RESET slackwater.statement_timeout")
    place.sql("DROP SOURCE other")
    told(place, lambda storage: storage.connect_replica(INSTANCE, REPLICA))
    place.wait(lambda: is_out(tmp_path, 2) and counted(place) > seen)
    assert sorted(row["counter"] for row in place.read("c"))[:3] == [1, 2, 3]
    assert [each.source_id for each in running(place)[1]] == [place.item("c").id]


def test_parameters_reach_a_replica_that_comes_later(place):
    told(place, lambda storage: storage.drop_replica(INSTANCE, REPLICA))
    place.sql("ALTER SYSTEM SET keep_n_source_status_history_entries = 3")
    states = place.coordinator.parts.system._states
    assert states._history_kept != 3
    told(place, lambda storage: storage.connect_replica(INSTANCE, REPLICA))
    assert states._history_kept == 3
