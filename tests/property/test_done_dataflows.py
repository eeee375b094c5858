"""The history of dataflows: the last ticks and hydrations, under any leaders, within limits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories

from slackwater.adapter.history.dataflows import DataflowCore, DataflowLimits, Hydrated, Ticked
from slackwater.compute.records import KEPT, HydrationRecord, TickRecord, TickTimes

LIMITS = DataflowLimits(records=70, age_ms=100_000)
NAMES = ("u1", "u2", "u3")

steps = st.lists(
    st.one_of(
        st.tuples(st.just("ticked"), st.sampled_from(NAMES), st.integers(1, 40)),
        st.tuples(st.just("hydrated"), st.sampled_from(NAMES)),
        st.tuples(st.just("observed"), st.integers(0, 30_000)),
        st.just(("stored",)),
        st.just(("not stored",)),
        st.just(("crashed",)),
    ),
    max_size=60,
)


def tick(name, upper, now_ms):
    times = TickTimes(1, 2, 3, 4, 5)
    return Ticked("r1", TickRecord(name, upper - 1, upper, now_ms, True, 1, 2, times))


class Leaders:
    """Leaders one after the other, and a replica of each that keeps its last ticks."""

    def __init__(self):
        self.core = DataflowCore(LIMITS)
        self.now_ms = 1_000_000
        self.replica, self.files, self.noted, self.done = [], [], set(), []

    def take(self, step):
        self.now_ms += 1
        match step:
            case ("ticked", name, count):
                for _ in range(count):
                    self.do(tick(name, len(self.done) + 1, self.now_ms))
            case ("hydrated", name):
                record = HydrationRecord(name, self.now_ms, None, self.now_ms)
                self.do(Hydrated("r1", "c1", record))
            case ("observed", passed_ms):
                self.now_ms += passed_ms
                self.core.observe(self.replica, self.now_ms)
                self.noted |= set(self.replica)
            case ("stored",):
                self.files += self.core.take_over()
            case ("not stored",):
                self.core.put_back(self.core.take_over())
            case ("crashed",):
                self.core, self.replica, self.noted = DataflowCore(LIMITS), [], set(self.files)
                for _ in range(2):
                    self.core.recover(reversed(self.files), self.now_ms)
        self.core.validate()

    def do(self, record):
        self.done.append(record)
        self.replica.append(record)
        mine = [each for each in self.replica if of(each) == of(record)]
        if len(mine) > KEPT:
            self.replica.remove(mine[0])

    def check(self):
        told = self.core.records()
        assert len(set(told)) == len(told)
        assert set(told) <= self.noted
        # Of each dataflow it is the end of what was noted, but for what is too old or too much.
        left_out = self.noted - set(told)
        for each in left_out:
            later = [t for t in told if of(t) == of(each) and t.ended_ms >= each.ended_ms]
            is_old = each.ended_ms < self.now_ms - LIMITS.age_ms
            is_too_much = not later and len(told) > LIMITS.records - KEPT
            assert is_old or len(later) == KEPT or is_too_much, each
        now = self.core.records(self.replica)
        assert {of(each) for each in self.replica} <= {of(each) for each in now}
        assert set(self.replica) - set(now) == set()


def of(record):
    return type(record), record.record.global_id


@histories()
@given(steps)
def test_of_each_dataflow_the_last_is_known_under_any_leaders(taken):
    leaders = Leaders()
    for step in taken:
        leaders.take(step)
        leaders.check()
