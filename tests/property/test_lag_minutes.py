"""The freshness history: each minute has the worst lags, whichever leaders have seen it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories

from slackwater.adapter.history.lags import MINUTE_MS, LagCore, LagLimits

LIMITS = LagLimits(rows=12, age_ms=10 * MINUTE_MS)

observed = st.dictionaries(st.sampled_from(["u1", "u2", "u3"]), st.integers(0, 99))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("observed"), st.integers(-20_000, 90_000), observed),
        st.just(("stored",)),
        st.just(("not stored",)),
        st.just(("ended",)),
        st.just(("crashed",)),
    ),
    max_size=60,
)


class Leaders:
    """Leaders one after the other; the worst lags of what was stored, and of what was not yet."""

    def __init__(self):
        self.core = LagCore(LIMITS)
        self.now_ms = 100 * MINUTE_MS
        self.files = []
        self.stored = {}
        self.seen = {}

    def take(self, step):
        match step:
            case ("observed", passed_ms, lags):
                # A clock may go back.
                self.now_ms += passed_ms
                self.core.observe(self.now_ms, lags)
                worst = self.seen.setdefault(self.now_ms // MINUTE_MS, {})
                for name, lag in lags.items():
                    worst[name] = max(lag, worst.get(name, 0))
            case ("stored",):
                self.store(self.core.take_over())
            case ("not stored",):
                self.core.put_back(self.core.take_over())
            case ("ended",):
                self.store(self.core.take_over(also_running=True))
                self.follow(self.seen)
            case ("crashed",):
                self.follow(self.stored)
        self.core.validate()

    def store(self, minutes):
        self.files.extend(minutes)
        for each in minutes:
            self.stored[each.minute_ms // MINUTE_MS] = dict(each.lags_ms)

    def follow(self, known):
        self.seen = {minute: dict(lags) for minute, lags in known.items()}
        self.core = LagCore(LIMITS)
        for _ in range(2):
            self.core.recover(self.files, self.now_ms)

    def check(self):
        told = {each.minute_ms // MINUTE_MS: dict(each.lags_ms) for each in self.core.minutes()}
        for minute, lags in told.items():
            assert lags == self.seen[minute]
        # What is left out is older than all that is there, and more than fits beside it.
        left_out = {m: lags for m, lags in self.seen.items() if m not in told}
        rows = sum(map(len, told.values()))
        for minute, lags in left_out.items():
            is_running = minute == self.now_ms // MINUTE_MS
            is_old = minute * MINUTE_MS < self.now_ms - LIMITS.age_ms
            is_too_much = rows + len(lags) > LIMITS.rows - 3 and all(minute < m for m in told)
            assert is_running or is_old or is_too_much, (minute, told)


@histories()
@given(steps)
def test_each_minute_has_the_worst_lags_under_any_leaders(taken):
    leaders = Leaders()
    for step in taken:
        leaders.take(step)
        leaders.check()
