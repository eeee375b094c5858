"""Subscriptions and cursors without Spark: what time they have, and who may answer."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.coordination import Place, wall_clock_ms

from slackwater.persist.leadership import Fenced
from slackwater.repr.errors import SlackwaterError, user_error


@pytest.fixture
def place(env):
    place = Place(env)
    yield place
    place.close()


def test_the_time_of_a_subscription_is_held_when_it_is_chosen(env):
    """History goes on between the choice and what follows it."""
    passed = [0]
    place = Place(env, clock=lambda: wall_clock_ms() + passed[0])
    place.table("t", k="long")
    place.write("t", {"k": 1})
    oracle, chosen = place.env.oracle, []

    class Overtaken:
        def __getattr__(self, name):
            return getattr(oracle, name)

        def read_ts(self):
            chosen.append(oracle.read_ts())
            passed[0] += 60_000
            place.env.committer.flush()
            return chosen[-1]

    place.env.oracle = Overtaken()
    place.sql("DECLARE c CURSOR FOR SUBSCRIBE t")
    place.env.oracle = oracle
    assert chosen
    assert place.sql("FETCH ALL c") == [{"mz_timestamp": chosen[-1], "mz_diff": 1, "k": 1}]
    place.sql("CLOSE c")
    assert place.env.storage.holds() == ()
    place.close()


def test_a_subscription_that_is_refused_holds_nothing(place):
    place.table("t", k="long")
    place.write("t", {"k": 1})
    for text in ("SUBSCRIBE t AS OF 1", "SUBSCRIBE t UP TO 1"):
        with pytest.raises(Exception, match="SLACKWATER"):
            place.sql(f"DECLARE c CURSOR FOR {text}")
    assert place.env.storage.holds() == ()


def test_a_snapshot_that_could_not_be_read_comes_with_the_next_fetch(place):
    place.table("t", k="long")
    place.write("t", {"k": 1})
    place.sql("DECLARE c CURSOR FOR SUBSCRIBE t WITH (SNAPSHOT, PROGRESS)")
    storage = place.env.storage

    class Away:
        def __getattr__(self, name):
            return getattr(storage, name)

        def snapshot(self, global_id, as_of):
            raise user_error("SLACKWATER_STORAGE_UNREADABLE", path="a file", reason="no answer")

    place.env.storage = Away()
    with pytest.raises(SlackwaterError, match="no answer"):
        place.sql("FETCH ALL c")
    place.env.storage = storage
    place.write("t", {"k": 2})
    found = [row["k"] for row in place.sql("FETCH ALL c") if not row["mz_progressed"]]
    assert found == [1, 2]


CALLS = {
    "SHOW OBJECTS": lambda place: place.sql("SHOW OBJECTS"),
    "SHOW SOURCES": lambda place: place.sql("SHOW SOURCES"),
    "SHOW CREATE SINK": lambda place: place.sql("SHOW CREATE SINK nothing"),
    "a cursor": lambda place: place.sql("DECLARE c CURSOR FOR SUBSCRIBE t"),
    "SUBSCRIBE": lambda place: place.sql("SUBSCRIBE t AS OF AT LEAST 0 UP TO 1"),
    "SHOW TABLES": lambda place: place.coordinator.calls()["/v1/catalog/list"](
        {"namespace": ["default"]}
    ),
    "SHOW SCHEMAS": lambda place: place.coordinator.calls()["/v1/catalog/namespaces"]({}),
    "a name that is not there": lambda place: place.coordinator.calls()["/v1/catalog/load"](
        {"namespace": ["default"], "name": "nothing"}
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_who_does_not_lead_any_more_answers_nothing(env, call):
    place = Place(env)
    place.table("t", k="long")
    place.env.committer.flush()
    env.lead(expected_epoch=1)
    with pytest.raises(Fenced):
        CALLS[call](place)
    place.coordinator.close()


def test_two_threads_that_fetch_get_each_row_once(place):
    place.table("t", k="long")
    place.write("t", *({"k": k} for k in range(80)))
    place.sql("DECLARE c CURSOR FOR SUBSCRIBE t")
    with ThreadPoolExecutor(4) as pool:
        fetched = [row for rows in pool.map(place.sql, ["FETCH 2 c"] * 40) for row in rows]
    assert sorted(row["k"] for row in fetched) == list(range(80))


def test_what_a_cursor_keeps_is_bounded(place):
    place.table("t", k="long")
    place.write("t", *({"k": k} for k in range(1000)))
    place.sql("DECLARE small CURSOR FOR SUBSCRIBE t")
    place.sql("DECLARE large CURSOR FOR SUBSCRIBE t")
    assert len(place.sql("FETCH ALL large")) == 1000
    place.sql("SET max_query_result_size = '10 kB'")
    for _ in range(2):
        with pytest.raises(SlackwaterError) as told:
            place.sql("FETCH 1 small")
        assert (told.value.condition, told.value.sqlstate) == ("SLACKWATER_RESULT_SIZE", "53200")
    place.write("t", {"k": -1})
    assert [row["k"] for row in place.sql("FETCH ALL large")] == [-1]
    assert place.sql("SHOW max_query_result_size") == [{"max_query_result_size": "10240 B"}]
    for wrong in ("0", "a lot", "-1", "1 TB"):
        with pytest.raises(SlackwaterError, match="SLACKWATER_INVALID_VARIABLE"):
            place.sql(f"SET max_query_result_size = '{wrong}'")
