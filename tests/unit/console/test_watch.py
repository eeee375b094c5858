"""What the leader is asked for, and when: the core, with times given."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.console.environments import AT_MS, LEADER, status, tick

from slackwater.console import relations as r
from slackwater.console.looking import PAUSE_S
from slackwater.console.snapshot import Failure
from slackwater.console.watch import LOOKED_S, Answer, Watch

WALL_MS = AT_MS


def answer(at_ms=AT_MS, leader=LEADER, **given):
    return Answer(at_ms, leader, **{"tables": {}, **given})


def lag(object_id, value):
    return {"object_id": object_id, "lag": value}


def counted(object_id, updates):
    return {"id": object_id, "updates_committed": updates}


@pytest.fixture
def watch():
    return Watch()


def asked(watch, now_s):
    return watch.due(now_s, WALL_MS)


def test_nobody_who_looks_is_nobody_who_asks(watch):
    assert asked(watch, 0.0) is None
    watch.look({r.LAG}, 0.0)
    assert asked(watch, LOOKED_S - 0.1).relations == (r.LAG,)
    assert asked(watch, LOOKED_S + 0.1) is None
    assert not watch.is_watched(LOOKED_S + 0.1)


def test_two_who_look_at_the_same_ask_once(watch):
    watch.look({r.LAG, r.NAMES}, 0.0)
    watch.look({r.LAG, r.SESSIONS}, 0.1)
    due = asked(watch, 0.2)
    assert due.relations == tuple(sorted([r.LAG, r.NAMES, r.SESSIONS]))
    watch.answered(due, answer(), 0.3)
    assert asked(watch, 0.4).relations == ()


def test_what_changes_seldom_is_asked_for_seldom(watch):
    asks = []
    for second in range(21):
        watch.look({r.LAG, r.SHARDS, r.LAG_HISTORY}, float(second))
        due = asked(watch, float(second))
        watch.answered(due, answer(AT_MS + 1000 * second), float(second))
        asks += due.relations
    assert [asks.count(name) for name in (r.LAG, r.SHARDS, r.LAG_HISTORY)] == [21, 3, 1]


def test_of_a_history_the_last_hour_is_asked_for(watch):
    watch.look({r.LAG, r.LAG_HISTORY}, 0.0)
    assert asked(watch, 0.0).after == {r.LAG_HISTORY: WALL_MS - 3_600_000}


def test_a_page_waits_until_all_that_it_shows_was_told(watch):
    watch.look({r.LAG}, 0.0)
    watch.answered(asked(watch, 0.0), answer(), 0.1)
    watch.look({r.LAG, r.NAMES}, 0.2)
    assert not watch.is_fresh({r.LAG, r.NAMES}, 0.2, 0.2)
    assert watch.lacks(0.2)
    watch.answered(asked(watch, 0.2), answer(), 0.3)
    assert watch.is_fresh({r.LAG, r.NAMES}, 0.2, 0.3)
    assert not watch.is_fresh({r.LAG, r.NAMES}, 60.0, 60.0), "an hour old is not shown as new"


def test_who_comes_while_nobody_leads_waits_for_one_attempt(watch):
    watch.look({r.LAG}, 0.0)
    watch.failed("nobody", 0.1)
    assert watch.is_fresh({r.LAG}, 0.0, 0.1)
    watch.look({r.LAG}, 60.0)
    assert not watch.is_fresh({r.LAG}, 60.0, 60.0)
    assert not watch.lacks(60.0), "it is tried each second, not without a pause"
    watch.failed("nobody", 60.1)
    assert watch.is_fresh({r.LAG}, 60.0, 60.1)


def test_values_stay_while_nobody_leads_and_say_since_when(watch):
    watch.look({r.LAG}, 0.0)
    watch.answered(asked(watch, 0.0), answer(tables={r.LAG: (lag("u1", 5),)}), 0.1)
    watch.failed("the leader does not answer", 1.0)
    watch.failed("no token", 2.0)
    snapshot = watch.snapshot
    assert (snapshot.absence.since_ms, snapshot.absence.reason) == (AT_MS, "no token")
    assert snapshot.rows(r.LAG) == (lag("u1", 5),)
    watch.answered(asked(watch, 2.5), answer(AT_MS + 9000, replace(LEADER, epoch=8)), 3.0)
    assert watch.snapshot.absence is None
    assert watch.snapshot.leader.epoch == 8


def test_another_leader_is_asked_for_all_anew(watch):
    watch.look({r.LAG, r.SHARDS}, 0.0)
    watch.answered(asked(watch, 0.0), answer(), 0.1)
    watch.look({r.LAG, r.SHARDS}, 1.2)
    due = asked(watch, 1.2)
    assert due.relations == (r.LAG,)
    watch.answered(due, answer(leader=replace(LEADER, epoch=8)), 1.3)
    assert asked(watch, 1.4).relations == (r.SHARDS,)


def test_a_relation_that_another_leader_lacks_goes(watch):
    watch.look({r.ACTIVITY}, 0.0)
    watch.answered(asked(watch, 0.0), answer(tables={r.ACTIVITY: ()}), 0.1)
    assert r.ACTIVITY in watch.snapshot.tables
    watch.look({r.ACTIVITY}, 5.0)
    watch.answered(asked(watch, 5.0), answer(unknown=frozenset({r.ACTIVITY})), 5.1)
    assert r.ACTIVITY not in watch.snapshot.tables
    assert watch.is_fresh({r.ACTIVITY}, 5.0, 5.2), "nobody waits for what there is not"


def test_errors_are_those_of_the_last_answer(watch):
    failure = Failure("u1", "SLACKWATER_DATA_ERROR", "the row (k = 1)", AT_MS)
    watch.look({r.LAG}, 0.0)
    watch.answered(asked(watch, 0.0), answer(failures=(failure,)), 0.1)
    assert watch.snapshot.failures == (failure,)
    watch.answered(asked(watch, 1.0), answer(), 1.1)
    assert watch.snapshot.failures == ()


def test_rates_of_sources_are_differences_and_never_negative(watch):
    watch.look({r.SOURCE_COUNTS}, 0.0)
    for second, (kept, restarted) in enumerate([(100, 100), (150, 7)]):
        rows = (counted("u1", kept), counted("u2", restarted))
        told = answer(AT_MS + 2000 * second, tables={r.SOURCE_COUNTS: rows})
        watch.answered(asked(watch, float(second)), told, float(second))
    assert watch.snapshot.rates == {"u1": 25.0, "u2": 0.0}


def test_rates_of_views_go_by_their_ticks(watch):
    watch.look({r.TICKS}, 0.0)
    busy = tuple(tick("busy", 100 * n, emitted=2) for n in range(32))
    idle = (tick("idle", 60_000),)
    slow = (tick("slow", 2000, emitted=50),)
    watch.answered(asked(watch, 0.0), answer(tables={r.TICKS: (*busy, *idle, *slow)}), 0.1)
    rates = watch.snapshot.rates
    assert rates["busy"] == pytest.approx(64 / 3.1)
    assert (rates["idle"], rates["slow"]) == (0.0, 5.0)


def test_lags_are_kept_for_an_hour_and_not_of_what_was_dropped(watch):
    for second in range(0, 4000, 20):
        watch.look({r.LAG}, float(second))
        rows = (lag("u1", second), *([lag("u2", 1)] if second < 100 else []))
        told = answer(AT_MS + 1000 * second, tables={r.LAG: rows})
        watch.answered(asked(watch, float(second)), told, float(second))
    samples = watch.snapshot.lags["u1"]
    assert samples[-1] == (AT_MS + 3_980_000, 3980)
    assert samples[0][0] > AT_MS + 380_000
    assert "u2" not in watch.snapshot.lags


def test_the_history_of_the_leader_comes_before_what_was_seen(watch):
    watch.look({r.LAG, r.LAG_HISTORY}, 0.0)
    past = datetime.fromtimestamp((AT_MS - 600_000) / 1000, timezone.utc)
    history = ({"occurred_at": past, "object_id": "u1", "lag": 77},)
    tables = {r.LAG: (lag("u1", 5),), r.LAG_HISTORY: history}
    watch.answered(asked(watch, 0.0), answer(tables=tables), 0.1)
    assert watch.snapshot.lags["u1"] == ((AT_MS - 600_000, 77), (AT_MS, 5))


@given(st.lists(st.tuples(st.floats(0, 5), st.sampled_from(["look", "answer", "fail"]))))
def test_whoever_looks_is_shown_something_after_one_attempt(steps):
    watch, now_s = Watch(), 0.0
    for pause_s, step in steps:
        now_s += pause_s
        watch.look({r.LAG, r.NAMES}, now_s)
        due = watch.due(now_s, WALL_MS)
        assert due is not None
        if step == "answer":
            watch.answered(due, answer(AT_MS + int(now_s * 1000)), now_s)
        elif step == "fail":
            watch.failed("gone", now_s)
        if step != "look":
            assert watch.is_fresh({r.LAG, r.NAMES}, now_s, now_s)
        assert (watch.snapshot.absence is None) or not watch.lacks(now_s)


REFRESH_S = 1.0
"""A page is refreshed so often: `hx-trigger` of live.html."""
SHOWN_S = 3.0
BAD = {
    "a source that has stopped": {"tables": {r.SOURCES: (status("u3", "s", "stalled", "[X]"),)}},
    "a view that fails": {"failures": (Failure("u6", "C", "the row (1)", AT_MS),)},
    "a leader that has gone": None,
}


def needs_attention(snapshot):
    """Whether a page made of the snapshot says that something is wrong."""
    stalled = any(row["status"] == "stalled" for row in snapshot.rows(r.SOURCES))
    return stalled or bool(snapshot.failures) or snapshot.absence is not None


def shown_at(bad, known_s, ask_s, first_refresh_s):
    """When a refresh of the first screen shows what the leader tells from `known_s` on.

    An ask takes `ask_s`, and the next begins `PAUSE_S` after it, as in `looking.py`.
    """
    watch, ask_began_s, asked_for = Watch(), None, None
    next_ask_s, refresh_s = 0.0, first_refresh_s
    watch.look(r.FIRST, 0.0)
    while True:
        answer_s = float("inf") if ask_began_s is None else ask_began_s + ask_s
        now_s = min(answer_s, refresh_s, next_ask_s)
        if now_s == answer_s:
            is_bad = ask_began_s >= known_s
            if is_bad and bad is None:
                watch.failed("does not answer", now_s)
            else:
                given = bad if is_bad else {}
                known = given.get("tables", {})
                tables = {name: known.get(name, ()) for name in asked_for.relations}
                failures = given.get("failures", ())
                watch.answered(asked_for, Answer(AT_MS, LEADER, tables, failures=failures), now_s)
            ask_began_s, next_ask_s = None, now_s + PAUSE_S
        elif now_s == next_ask_s:
            ask_began_s, asked_for, next_ask_s = now_s, watch.due(now_s, WALL_MS), float("inf")
        else:
            watch.look(r.FIRST, now_s)
            if now_s >= known_s and needs_attention(watch.snapshot):
                return now_s
            refresh_s += REFRESH_S


@pytest.mark.parametrize("bad", BAD)
@given(
    known_s=st.floats(5.0, 8.0),
    ask_s=st.floats(0.001, 0.5),
    first_refresh_s=st.floats(0.0, REFRESH_S),
)
def test_what_the_leader_knows_is_shown_within_three_seconds(bad, known_s, ask_s, first_refresh_s):
    shown_s = shown_at(BAD[bad], known_s, ask_s, first_refresh_s)
    assert shown_s - known_s <= SHOWN_S


def test_a_page_is_refreshed_each_second():
    template = resources.files("slackwater.console") / "templates" / "live.html"
    assert f'hx-trigger="every {REFRESH_S:g}s"' in template.read_text()
