"""Subscriptions and cursors without Spark: what time they have, and who may answer."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from tests.support.adapter.calls import calls_of
from tests.support.adapter.coordination import Place
from tests.support.waiting import PATIENCE

from slackwater.persist.leadership import Fenced
from slackwater.repr.clock import wall_clock_ms
from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.storage.controller.shell import Storage


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


def test_a_snapshot_that_could_not_be_read_comes_with_the_next_fetch(place, monkeypatch):
    place.table("t", k="long")
    place.write("t", {"k": 1})
    place.sql("DECLARE c CURSOR FOR SUBSCRIBE t WITH (SNAPSHOT, PROGRESS)")

    def away(storage, global_id, as_of):
        raise user_error("SLACKWATER_STORAGE_UNREADABLE", path="a file", reason="no answer")

    with monkeypatch.context() as faulty:
        faulty.setattr(Storage, "snapshot", away)
        with pytest.raises(SlackwaterError, match="no answer"):
            place.sql("FETCH ALL c")
    place.write("t", {"k": 2})
    found = [row["k"] for row in place.sql("FETCH ALL c") if not row["mz_progressed"]]
    assert found == [1, 2]


def metadata_call(found, place):
    return calls_of(place.coordinator)[f"/v1/catalog/find_{found}"]({})


CALLS = {
    "SHOW OBJECTS": lambda place: place.sql("SHOW OBJECTS"),
    "SHOW SOURCES": lambda place: place.sql("SHOW SOURCES"),
    "SHOW CREATE SINK": lambda place: place.sql("SHOW CREATE SINK nothing"),
    "a cursor": lambda place: place.sql("DECLARE c CURSOR FOR SUBSCRIBE t"),
    "SUBSCRIBE": lambda place: place.sql("SUBSCRIBE t AS OF AT LEAST 0 UP TO 1"),
    "SHOW TABLES": lambda place: calls_of(place.coordinator)["/v1/catalog/list"](
        {"namespace": ["default"]}
    ),
    "SHOW SCHEMAS": lambda place: calls_of(place.coordinator)["/v1/catalog/namespaces"]({}),
    **{
        f"metadata of {found}": partial(metadata_call, found)
        for found in ("schemas", "relations", "columns")
    },
    "a name that is not there": lambda place: calls_of(place.coordinator)["/v1/catalog/load"](
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


# A cursor that is declared in a block is the block's


def refusal(action):
    with pytest.raises(SlackwaterError) as told:
        action()
    return told.value.condition, told.value.sqlstate


def of_the_session(place):
    return [str(hold.holder) for hold in place.env.storage.holds() if "app/1" in str(hold.holder)]


def test_a_cursor_in_a_block_begins_at_the_block_s_time(place):
    place.table("t", k="long")
    first = place.write("t", {"k": 1})
    place.sql("BEGIN")
    place.sql("DECLARE c CURSOR FOR SUBSCRIBE t")
    time = calls_of(place.coordinator)["/v1/bind"](
        {"session": "app/1", "relations": [{"id": place.item("t").id}]}
    )["timestamp"]
    later = place.write("t", {"k": 2}, session="app/2")
    assert first <= time < later
    place.sql("DECLARE d CURSOR FOR SUBSCRIBE t")
    place.sql("DECLARE e CURSOR FOR SUBSCRIBE t UP TO " + str(time + 1))
    rows = [{"mz_timestamp": time, "mz_diff": 1, "k": 1}]
    rows.append({"mz_timestamp": later, "mz_diff": 1, "k": 2})
    assert place.sql("FETCH ALL c") == place.sql("FETCH ALL d") == rows
    assert place.sql("FETCH ALL e") == rows[:1]
    assert refusal(lambda: place.write("t", {"k": 3}, mode="append")) == (
        "SLACKWATER_READ_ONLY_TRANSACTION",
        "25006",
    )


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_cursor_of_a_block_ends_with_it(place, end):
    place.table("t", k="long")
    place.write("t", {"k": 1})
    place.sql("DECLARE mine CURSOR FOR SUBSCRIBE t")
    place.sql("BEGIN")
    place.sql("DECLARE c CURSOR FOR SUBSCRIBE t")
    place.sql("DECLARE closed CURSOR FOR SUBSCRIBE t")
    place.sql("CLOSE closed")
    assert refusal(lambda: place.sql("DECLARE mine CURSOR FOR SUBSCRIBE t")) == (
        "SLACKWATER_DUPLICATE_CURSOR",
        "42P03",
    )
    place.sql(end)
    for name in ("c", "closed"):
        assert refusal(lambda name=name: place.sql(f"FETCH 1 {name}")) == (
            "SLACKWATER_UNKNOWN_CURSOR",
            "34000",
        )
    assert len(place.sql("FETCH ALL mine")) == 1
    assert of_the_session(place) == ["subscription app/1"]
    # The name is free, and what has it now is the session's.
    place.sql("DECLARE c CURSOR FOR SUBSCRIBE t")
    place.sql("BEGIN")
    place.sql(end)
    assert len(place.sql("FETCH ALL c")) == 1


def test_a_commit_that_is_sent_again_ends_no_cursor_of_a_later_block(place):
    place.table("t", k="long")
    place.write("t", {"k": 1})
    place.sql("BEGIN")
    place.sql("COMMIT", write_id="first")
    place.sql("BEGIN")
    place.sql("DECLARE c CURSOR FOR SUBSCRIBE t")
    place.sql("COMMIT", write_id="first")
    assert len(place.sql("FETCH ALL c")) == 1


def test_a_block_that_writes_takes_no_cursor_but_one_as_of_a_time(place):
    place.table("t", k="long")
    time = place.write("t", {"k": 1})
    place.sql("DECLARE mine CURSOR FOR SUBSCRIBE t")
    place.sql("BEGIN")
    place.write("t", {"k": 2}, mode="append")
    place.sql(f"DECLARE past CURSOR FOR SUBSCRIBE t AS OF {time}")
    assert [row["k"] for row in place.sql("FETCH ALL past")] == [1]
    assert [row["k"] for row in place.sql("FETCH ALL mine")] == [1]
    place.sql("CLOSE mine")
    place.sql("COMMIT")
    assert [row["k"] for row in place.rows("t")] == [1, 2]
    place.sql("BEGIN")
    place.write("t", {"k": 3}, mode="append")
    assert refusal(lambda: place.sql("DECLARE c CURSOR FOR SUBSCRIBE t")) == (
        "SLACKWATER_WRITE_ONLY_TRANSACTION",
        "25000",
    )
    assert refusal(lambda: place.sql("FETCH ALL c")) == ("SLACKWATER_FAILED_TRANSACTION", "25P02")
    place.sql("ROLLBACK")
    assert of_the_session(place) == []


def test_a_cursor_in_a_block_reads_only_what_can_be_read_at_its_time(place):
    place.table("t", k="long")
    place.write("t", {"k": 1})
    place.sql("BEGIN")
    place.sql("DECLARE c CURSOR FOR SUBSCRIBE t")
    place.write("t", {"k": 2}, session="app/2")
    place.table("later", by="app/2", k="long")
    assert refusal(lambda: place.sql("DECLARE d CURSOR FOR SUBSCRIBE later")) == (
        "SLACKWATER_OUTSIDE_TIMEDOMAIN",
        "25000",
    )


def test_a_cursor_whose_block_ends_while_it_is_opened_ends_with_it(place):
    place.table("t", k="long")
    place.write("t", {"k": 1})
    opening, ended = threading.Event(), threading.Event()
    confirm = place.env.persist.transactions.confirm_leadership

    def slowly():
        confirm()
        opening.set()
        assert ended.wait(PATIENCE)

    place.sql("BEGIN")
    place.env.persist.transactions.confirm_leadership = slowly
    with ThreadPoolExecutor(1) as pool:
        declared = pool.submit(place.sql, "DECLARE c CURSOR FOR SUBSCRIBE t")
        assert opening.wait(PATIENCE)
        place.sql("ROLLBACK")
        place.sql("BEGIN")
        ended.set()
        declared.result(PATIENCE)
    place.env.persist.transactions.confirm_leadership = confirm
    assert refusal(lambda: place.sql("FETCH 1 c")) == ("SLACKWATER_UNKNOWN_CURSOR", "34000")
    place.sql("ROLLBACK")
    assert of_the_session(place) == []
