"""Subscriptions and cursors without Spark: what time they have, and who may answer."""

import pytest
from tests.support.coordination import Place, wall_clock_ms

from slackwater.persist.leadership import Fenced


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
