"""The times of a refresh schedule, against those that are listed one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories

from slackwater.repr.frontier import EMPTY_FRONTIER, TIMESTAMP_MAX, Frontier, Timestamp
from slackwater.repr.refresh import RefreshEvery, RefreshSchedule

LATEST = 60
times = st.integers(0, LATEST).map(Timestamp)
schedules = st.tuples(
    st.lists(st.builds(RefreshEvery, st.integers(1, 25), times), max_size=3).map(tuple),
    st.lists(times, max_size=3).map(tuple),
).filter(any)


def listed(schedule):
    """All refreshes up to twice the latest time."""
    found = set(schedule.at)
    for each in schedule.every:
        first = each.aligned_to - 1000 * each.interval_ms
        found |= {t for t in range(first, 3 * LATEST, each.interval_ms) if t >= 0}
    return sorted(found)


@histories()
@given(schedules, times)
def test_the_neighbours_of_a_time_are_those_of_the_list(parts, time):
    schedule = RefreshSchedule(*parts)
    refreshes = listed(schedule)
    assert schedule.at_or_after(time) == next((r for r in refreshes if r >= time), None)
    assert schedule.before(time) == next((r for r in reversed(refreshes) if r < time), None)


@histories()
@given(schedules, st.lists(times, min_size=1, max_size=6).map(sorted))
def test_the_upper_never_goes_back_and_no_refresh_is_left_out(parts, inputs):
    """Between an upper and the next there is one refresh: contents before each are final."""
    schedule = RefreshSchedule(*parts)
    refreshes = listed(schedule)
    uppers = [schedule.upper(Frontier(each)) for each in inputs]
    assert uppers == sorted(uppers)
    for complete, upper in zip(inputs, uppers, strict=True):
        assert upper >= Frontier(complete)
        assert not [r for r in refreshes if complete <= r < upper.value]
        assert upper.is_empty or upper.value in refreshes


@histories()
@given(schedules, st.integers(TIMESTAMP_MAX - 30, TIMESTAMP_MAX - 1).map(Timestamp))
def test_the_end_of_time_is_no_refresh(parts, time):
    found = RefreshSchedule(*parts).at_or_after(time)
    assert found is None or time <= found < TIMESTAMP_MAX


def test_a_closed_input_closes_the_view():
    schedule = RefreshSchedule((RefreshEvery(10, Timestamp(3)),))
    assert schedule.upper(EMPTY_FRONTIER) == EMPTY_FRONTIER


def test_a_schedule_has_times_and_an_interval_is_positive():
    with pytest.raises(ValueError, match="has a time"):
        RefreshSchedule()
    with pytest.raises(ValueError, match="no interval"):
        RefreshEvery(0, Timestamp(0))
