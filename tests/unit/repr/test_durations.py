"""Durations count each between its bounds, and in all."""

from hypothesis import given
from hypothesis import strategies as st

from slackwater.repr.durations import BOUNDS_S, Durations


@given(st.lists(st.floats(0, 1000) | st.sampled_from(BOUNDS_S)))
def test_each_is_counted_up_to_its_bounds(seconds):
    found = Durations()
    for each in seconds:
        found = found.and_one(each)
    wanted = [sum(each <= bound for each in seconds) for bound in BOUNDS_S]
    assert found.up_to == (*wanted, len(seconds))
    assert found.number == len(seconds)
    assert abs(found.sum_s - sum(seconds)) < 1e-6 * (1 + sum(seconds))
