"""Which dataflows tick over which intervals."""

from __future__ import annotations

import pytest

from slackwater.compute.schedule import (
    LONGEST_BACKOFF_MS,
    Flow,
    Round,
    Tick,
    after_failure,
    capped_upper,
    in_order,
    next_retry_ms,
    plan_round,
)
from slackwater.persist.parts import InlineBody, Part
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import TIMESTAMP_MAX, Timestamp
from slackwater.repr.refresh import RefreshEvery, RefreshSchedule

IPC = b"rows"
ERROR = SlackwaterError("DIVIDE_BY_ZERO", "22012", "no", {})


def part(min_time, max_time, rows=1):
    return Part(1, 1, min_time, max_time + 1, InlineBody(IPC), rows, min_time, max_time, False)


def flow(name, *inputs, as_of=0):
    return Flow(name, inputs, as_of)


def plan(flows, uppers, data=(), failures=None, now_ms=0):
    """`data`: for each flow the times at which its inputs change."""
    times = dict(data)

    def has_data(name, lower, upper):
        return any(lower <= t < upper for t in times.get(name, ()))

    return plan_round(in_order(flows), uppers, failures or {}, has_data, now_ms)


def test_a_flow_whose_inputs_changed_ticks():
    assert plan([flow("v", "t")], {"t": 9, "v": 4}, {"v": [5]}.items()) == Round(
        {}, (Tick("v", 4, 9, False),)
    )


def test_a_flow_whose_inputs_only_moved_advances_and_so_do_those_above_it():
    flows = [flow("w", "v"), flow("v", "t")]
    assert plan(flows, {"t": 9, "v": 4, "w": 4}) == Round({"v": 9, "w": 9}, ())


def test_a_flow_above_one_that_ticks_waits_for_it():
    flows = [flow("v", "t"), flow("w", "v", "t")]
    data = {"v": [5], "w": [5]}.items()
    assert plan(flows, {"t": 9, "v": 4, "w": 4}, data).ticks == (Tick("v", 4, 9, False),)
    assert plan(flows, {"t": 9, "v": 9, "w": 4}, data).ticks == (Tick("w", 4, 9, False),)


def test_independent_flows_tick_in_one_round():
    flows = [flow("v", "t"), flow("w", "t")]
    data = {"v": [5], "w": [5]}.items()
    assert len(plan(flows, {"t": 9, "v": 4, "w": 4}, data).ticks) == 2


def test_the_first_tick_is_at_the_as_of_also_without_data():
    assert plan([flow("v", "t", as_of=5)], {"t": 9, "v": 0}).ticks == (Tick("v", 5, 9, True),)
    assert plan([flow("v", "t", as_of=5)], {"t": 5, "v": 0}).ticks == ()


def test_a_flow_without_inputs_is_closed():
    assert plan([flow("v", as_of=5)], {"v": 0}).ticks == (Tick("v", 5, TIMESTAMP_MAX, True),)
    assert plan([flow("v", as_of=5)], {"v": TIMESTAMP_MAX}) == Round({}, ())


EVERY_TEN = RefreshSchedule((RefreshEvery(10, Timestamp(3)),))


def refreshed(*inputs, present, as_of=3):
    return Flow("v", inputs, as_of, EVERY_TEN, present)


def test_a_refresh_is_made_when_its_time_has_passed_and_never_before():
    data = {"v": [5, 12]}.items()
    assert plan([refreshed("t", present=13)], {"t": 13, "v": 13}, data) == Round({}, ())
    ticks = plan([refreshed("t", present=14)], {"t": 14, "v": 13}, {"v": [13]}.items()).ticks
    assert ticks == (Tick("v", 13, 14, False),)


def test_a_refresh_waits_for_the_present_though_its_inputs_are_final():
    assert plan([refreshed("t", present=13)], {"t": TIMESTAMP_MAX, "v": 13}) == Round({}, ())
    assert plan([refreshed(present=3)], {"v": 3}) == Round({}, ())
    assert plan([refreshed(present=4)], {"v": 3}).ticks == (Tick("v", 3, 4, True),)


def test_refreshes_that_change_nothing_are_left_behind_at_once():
    assert plan([refreshed("t", present=45)], {"t": 45, "v": 13}) == Round({"v": 53}, ())


def test_a_view_above_goes_as_far_as_a_refresh_to_come():
    flows = [refreshed("t", present=14), flow("w", "v")]
    assert plan(flows, {"t": 14, "v": 13, "w": 13}) == Round({"v": 23, "w": 23}, ())


def test_the_end_of_a_schedule_is_the_end_of_the_view():
    once = Flow("v", ("t",), 3, RefreshSchedule(at=(Timestamp(3), Timestamp(9))), 99)
    assert plan([once], {"t": 99, "v": 9}) == Round({"v": TIMESTAMP_MAX}, ())


def test_other_flows_go_on_while_one_is_left_alone():
    failure = after_failure(ERROR, None, 1_000)
    flows = [flow("v", "t"), flow("w", "t")]
    data = {"v": [7], "w": [7]}.items()
    planned = plan(flows, {"t": 99, "v": 7, "w": 7}, data, {"v": failure}, 1_000)
    assert [tick.global_id for tick in planned.ticks] == ["w"]


def test_a_failure_that_may_pass_is_retried_after_growing_pauses():
    tick = Tick("v", 4, 9, False)
    first = after_failure(ERROR, None, 1_000)
    second = after_failure(ERROR, first, 2_000)
    assert 1_000 < first.retry_at_ms < second.retry_at_ms - 1_000
    data = {"v": [5]}.items()
    early = plan([flow("v", "t")], {"t": 9, "v": 4}, data, {"v": second}, 2_000)
    assert early.ticks == ()
    late = plan([flow("v", "t")], {"t": 9, "v": 4}, data, {"v": second}, second.retry_at_ms)
    assert late.ticks == (tick,)
    assert next_retry_ms([first, second]) == first.retry_at_ms
    assert (first.began_ms, second.began_ms) == (1_000, 1_000)
    for _ in range(50):
        second = after_failure(ERROR, second, 0)
    assert second.retry_at_ms == LONGEST_BACKOFF_MS


def test_views_that_read_each_other_are_refused():
    with pytest.raises(ValueError, match="cycle"):
        in_order([flow("v", "w"), flow("w", "v")])


def test_an_interval_is_cut_at_a_part():
    parts = [part(1, 1, 10), part(3, 4, 10), part(6, 6, 10)]

    def capped(max_rows=100, max_bytes=100):
        return capped_upper(parts, 1, 9, max_rows=max_rows, max_bytes=max_bytes)

    assert capped() == 9
    assert capped(max_rows=15) == 5
    assert capped(max_rows=5) == 2
    assert capped(max_bytes=2 * len(IPC)) == 7
    assert capped(max_bytes=len(IPC)) == 5
    assert capped(max_bytes=1) == 2


def test_what_has_a_tick_and_failed_waits_for_its_turn():
    failure = after_failure(ERROR, None, 1_000)
    flows = [flow("v", "t"), flow("w", "t"), flow("x", "t")]
    uppers = {"t": 9, "v": 4, "w": 4, "x": 9}
    failures = dict.fromkeys("vwx", failure)
    early = plan(flows, uppers, {"v": [5]}.items(), failures, 1_000)
    assert (early.ticks, early.waiting, early.advances) == ((), {"v"}, {"w": 9})
    late = plan(flows, uppers, {"v": [5]}.items(), failures, failure.retry_at_ms)
    assert ([tick.global_id for tick in late.ticks], late.waiting) == (["v"], frozenset())
