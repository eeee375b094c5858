"""Whether a change is followed or its view recomputed, the view is exact and others go on."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.support.clock import StepClock
from tests.support.compute.worked_history import LAST, a, run
from tests.support.waiting import wait_until

from slackwater.compute.limits import Limits

pytestmark = pytest.mark.spark

UNHURRIED_MS = 600_000
"""A busy machine takes longer to recompute than is usual, and is not to follow for that."""


@pytest.mark.parametrize(
    "limits", [Limits(incremental_below_rows=2, whole_ms=UNHURRIED_MS)], ids=["few"]
)
def test_a_view_is_exact_whether_its_changes_are_followed_or_not(bench, expected):
    query = "SELECT k, count(*) AS n, sum(v) AS v FROM a LEFT JOIN b USING (k) GROUP BY k"
    bench.view("n", query)
    run(bench, range(1, LAST + 2))
    for time in range(LAST + 1):
        assert bench.rows("n", time) == expected(query, time)
    wait_until(
        lambda: {record.by_program for record in bench.worker.records.all()} == {True, False},
        what="some changes are followed, and some not",
    )


EQUAL_ROWS = 20_000


@pytest.mark.parametrize(
    "limits", [Limits(incremental_below_rows=10_000, whole_ms=100)], ids=["few"]
)
def test_equal_rows_that_meet_each_other_are_followed_when_it_takes_long_to_pair_them(bench):
    """To recompute is to make 400 million pairs; followed, one row meets one row."""
    bench.view("n", "SELECT x.k, count(*) AS n FROM a x JOIN a y ON x.k = y.k GROUP BY x.k")
    bench.commit(2, {"a": [(a(1), 1, 1)]})
    bench.wait("n", 1)
    expected = Counter({(1, 1): 1})
    for time in (2, 3):
        bench.commit(time + 1, {"a": [(a(time), time, 1)] * EQUAL_ROWS})
        tick = bench.ticked("n", time)
        expected[time, EQUAL_ROWS**2] = 1
        assert bench.rows("n", time) == expected
        assert tick.by_program


@pytest.mark.parametrize("limits", [Limits(incremental_below_rows=1, whole_ms=100)], ids=["few"])
def test_a_row_that_is_there_very_often_holds_no_core_when_its_copies_take_too_long(bench):
    bench.view("n", "SELECT k % 7 AS k, max(v) AS m, count(*) AS n FROM a GROUP BY 1")
    bench.commit(2)
    bench.wait("n", 1)
    bench.commit(3, {"a": [(a(1), 2, 10**12)]})
    assert bench.ticked("n", 2).by_program
    ((_, _, count),) = bench.rows("n", 2)
    assert count == 10**12
    bench.view("m", "SELECT k, count(*) AS n FROM b GROUP BY k", 2)
    bench.wait("m", 2)


BEFORE = [(2, False), (5, True), (6, False)]
"""What is done before anything was measured: the upper of each tick, and if it was a program's."""


@pytest.mark.parametrize(
    "limits", [Limits(incremental_below_rows=3, whole_ms=UNHURRIED_MS)], ids=["few"]
)
@pytest.mark.parametrize(
    ("monotonic", "last"),
    [
        pytest.param(StepClock(1.0), [(10, True)], id="to recompute took long"),
        pytest.param(StepClock(0.0), [(9, True), (10, False)], id="it took no time"),
    ],
)
def test_of_several_times_only_that_at_which_much_changes_is_recomputed(bench, last):
    bench.commit(2, {"a": [(a(1), 1, 1)]})
    for time, keys in ((3, [1]), (5, [2, 3, 4]), (7, [3]), (9, [5, 6, 7, 8])):
        bench.commit(time + 1, {"a": [(a(key), time, 1) for key in keys]})
    flow = bench.view("n", "SELECT k, count(*) AS n FROM a GROUP BY k", 1)
    bench.ticked("n", 9)
    told = [r for r in bench.worker.records.all() if r.global_id == flow.global_id]
    # At the last time as much changes: what was measured at the one before decides.
    assert [(r.upper, r.by_program) for r in told] == [*BEFORE, *last]
    assert bench.rows("n", 4) == Counter({(1, 2): 1})
    assert bench.rows("n", 6) == Counter({(1, 2): 1, (2, 1): 1, (3, 1): 1, (4, 1): 1})
    assert bench.rows("n", 8)[3, 2] == 1
    assert len(bench.rows("n", 9)) == 8
