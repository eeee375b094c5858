"""Views with temporal filters, compared at every time with a recomputation by DuckDB."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.support.clock import StepClock
from tests.support.compute.incremental import Bench, Recomputation
from tests.support.compute.temporal_cases import (
    DUCK,
    HISTORIES,
    HISTORY,
    LAST,
    MISUSED,
    QUERIES,
    TABLES,
    in_duck,
)
from tests.support.waiting import wait_until

from slackwater.compute.limits import Limits
from slackwater.planner.delta.explain import explain_program
from slackwater.planner.delta.lowering import NotMaintained, invalid_mz_now_use, program_of

pytestmark = pytest.mark.spark

COUNTED = "SELECT k, count(*) AS n FROM e WHERE mz_now() >= s AND mz_now() < e GROUP BY k"


@pytest.fixture
def bench(declared, tmp_path, limits, monotonic):
    made = Bench(tmp_path, declared, limits, monotonic=monotonic)
    made.table("e", TABLES["e"])
    yield made
    made.close()
    assert made.fatal == []


@pytest.fixture(scope="module")
def expected():
    recomputation = Recomputation(DUCK, HISTORIES, LAST)
    yield lambda query, time: recomputation.at(in_duck(query, time), time)
    recomputation.close()


def run(bench, boundaries):
    for upper in boundaries:
        lower = bench.client.reads.tables_upper()
        bench.commit(upper, {"e": [u for u in HISTORY if lower <= u[1] < upper]})
        for name in bench.flows:
            bench.wait(name, upper - 1)


@pytest.mark.parametrize(
    ("as_of", "boundaries"),
    [(0, (LAST + 1,)), (2, (3, 6, 10, LAST + 1)), (4, tuple(range(5, LAST + 2)))],
    ids=["one interval", "some", "each time"],
)
@pytest.mark.parametrize("place", QUERIES)
@pytest.mark.sampled(4)
def test_rows_are_there_while_they_are_valid(bench, expected, place, as_of, boundaries):
    names = {f"v{i}": query for i, query in enumerate(QUERIES[place])}
    bench.commit(as_of + 1, {"e": [u for u in HISTORY if u[1] <= as_of]})
    for name, query in names.items():
        bench.view(name, query, as_of)
    run(bench, boundaries)
    for name, query in names.items():
        for time in range(as_of, LAST + 1):
            assert bench.rows(name, time) == expected(query, time), (query, time)


@pytest.mark.parametrize("place", QUERIES)
def test_it_has_a_program(bench, place):
    for query in QUERIES[place]:
        plan = bench.plan(query)
        assert plan.program is not None, plan.reason
        assert plan.is_temporal is (place != "a condition and its opposite")


@pytest.mark.parametrize("query", MISUSED)
def test_other_uses_have_none(bench, query):
    plan = bench.plan(query)
    assert plan.program is None
    assert MISUSED[query] in invalid_mz_now_use(plan.kept.plan)
    with pytest.raises(NotMaintained, match="compares mz_now"):
        program_of(plan.kept.plan)


def test_explain_names_the_filter(bench):
    plan = bench.plan("SELECT k FROM e WHERE v > 1 AND mz_now() < e")
    names = {bench.relations["e"][0]: "slackwater.default.e"}
    rows = explain_program(plan.kept.plan, names)
    assert [(row.operator, row.maintenance) for row in rows] == [
        ("Project", "linear"),
        ("TemporalFilter", "linear"),
        ("Filter", "linear"),
        ("Collection slackwater.default.e", "linear"),
    ]
    assert "wait in memory" in rows[1].reason


def ticks(bench, name):
    found = bench.worker.records.all()
    return [t for t in found if t.global_id == bench.flows[name].global_id]


def test_rows_end_and_begin_without_any_write_and_so_do_those_of_views_above(bench):
    bench.view("valid", "SELECT k FROM e WHERE mz_now() >= s AND mz_now() < e")
    bench.view("counted", "SELECT count(*) AS n FROM valid")
    bench.commit(5, {"e": [((1, 1, 0, 40), 1, 1), ((2, 2, 30, 50), 1, 1)]})
    bench.wait("counted", 4)
    for upper in (20, 29, 30, 31, 40, 41, 200):
        bench.commit(upper)
        bench.wait("counted", upper - 1)
    changes = [row for row in bench.updates("valid") if row[1] > 1]
    assert changes == [(1, 40, -1), (2, 30, 1), (2, 50, -1)]
    assert [bench.rows("counted", t) for t in (29, 30, 39, 40, 49, 50)] == [
        Counter([(n,)]) for n in (1, 2, 2, 1, 1, 0)
    ]


def test_it_ticks_when_something_is_due_and_reads_nothing_then(bench):
    bench.view("valid", "SELECT k FROM e WHERE mz_now() < e")
    bench.commit(5, {"e": [((k, 1, 0, 1000 * k), 1, 1) for k in range(1, 4)]})
    bench.ticked("valid", 4)
    bench.commit(6)
    bench.wait("valid", 5)
    before = len(ticks(bench, "valid"))
    for upper in range(100, 3200, 100):
        bench.commit(upper)
        bench.wait("valid", upper - 1)
    later = ticks(bench, "valid")[before:]
    assert [(t.emitted, t.looked_up, t.scanned) for t in later] == [(1, 1, 0)] * 3
    assert all(t.by_program for t in later)


def test_a_worker_that_starts_again_knows_what_waits(bench, expected):
    bench.view("counted", COUNTED)
    run(bench, (5,))
    bench.worker.stop()
    bench.worker = bench.new_worker("again")
    bench.worker.add(bench.flows["counted"])
    run(bench, (7, LAST + 1))
    for time in range(LAST + 1):
        assert bench.rows("counted", time) == expected(COUNTED, time), time


def test_two_workers_race_for_the_same_output(bench, expected):
    other = bench.new_worker("other")
    other.add(bench.view("counted", COUNTED))
    try:
        for upper in range(1, LAST + 2):
            bench.commit(upper, {"e": [u for u in HISTORY if u[1] == upper - 1]})
            other.wake()
            bench.wait("counted", upper - 1)
    finally:
        other.stop()
    for time in range(LAST + 1):
        assert bench.rows("counted", time) == expected(COUNTED, time), time


def test_rows_without_collections_end_as_well(bench):
    bench.view("valid", "SELECT x FROM VALUES (5L), (9L) AS t (x) WHERE mz_now() < x", as_of=2)
    bench.wait("valid", 100)
    assert [bench.rows("valid", t) for t in (4, 5, 8, 9)] == [
        Counter([(5,), (9,)]),
        Counter([(9,)]),
        Counter([(9,)]),
        Counter(),
    ]


def test_a_row_that_fails_does_so_no_longer_than_it_is_valid(bench):
    bench.view("bad", "SELECT k, 10 DIV v AS q FROM e WHERE mz_now() < e")
    bench.commit(4, {"e": [((1, 2, 0, 100), 1, 1), ((2, 0, 0, 8), 3, 1)]})
    bench.wait("bad", 3)
    assert bench.refusal("bad", 2) is None
    assert bench.rows("bad", 2) == Counter([(1, 5)])
    assert bench.refusal("bad", 3).sqlstate == "22012"
    bench.commit(20)
    bench.wait("bad", 19)
    assert bench.refusal("bad", 19) is None
    assert bench.rows("bad", 19) == Counter([(1, 5)])
    bench.commit(200)
    bench.wait("bad", 199)
    assert [len(bench.rows("bad", time)) for time in (99, 100, 199)] == [1, 0, 0]


def test_a_row_fails_from_the_time_on_at_which_it_begins_to_be_valid(bench):
    bench.view("bad", "SELECT k, 10 DIV v AS q FROM e WHERE mz_now() >= s")
    bench.commit(5, {"e": [((1, 2, 0, 0), 1, 1), ((2, 5, 40, 0), 2, 1), ((3, 0, 70, 0), 2, 1)]})
    bench.wait("bad", 4)
    bench.commit(100)
    bench.wait("bad", 99)
    assert bench.refusal("bad", 69) is None
    assert [len(bench.rows("bad", time)) for time in (39, 40, 69)] == [1, 2, 2]
    assert bench.refusal("bad", 70).sqlstate == "22012"
    assert bench.refusal("bad", 99).sqlstate == "22012"
    bench.commit(120, {"e": [((3, 0, 70, 0), 110, -1)]})
    bench.wait("bad", 119)
    assert bench.refusal("bad", 119) is None
    assert bench.rows("bad", 119) == Counter([(1, 5), (2, 2)])
    assert len(ticks(bench, "bad")) < 15


@pytest.mark.parametrize(
    "limits", [Limits(incremental_below_rows=2, whole_ms=600_000)], ids=["two rows are many"]
)
@pytest.mark.parametrize("monotonic", [StepClock(0.0)], ids=["to recompute costs nothing"])
def test_it_is_exact_whether_changes_are_followed_or_not(bench, expected):
    query = "SELECT k, v FROM e WHERE mz_now() >= s AND mz_now() < e"
    bench.view("valid", query)
    bench.view("counted", COUNTED)
    run(bench, (2, 4, 6, 7, 8, LAST + 1))
    for time in range(LAST + 1):
        assert bench.rows("valid", time) == expected(query, time), time
        assert bench.rows("counted", time) == expected(COUNTED, time), time
    wait_until(
        lambda: {record.by_program for record in ticks(bench, "counted")[1:]} == {True, False},
        what="some changes are followed, and some not",
    )
