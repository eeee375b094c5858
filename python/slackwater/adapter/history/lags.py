"""The core of the freshness history: by how much each object was behind, minute by minute.

No clocks, threads, files. Source: spec coordinator 7.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slackwater.adapter.history.core import DAY_MS
from slackwater.repr.errors import FatalError
from slackwater.repr.ids import GlobalId

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class LagsOfMinute:
    """The worst lag of each object in the minute that begins at `minute_ms`, in milliseconds."""

    minute_ms: int
    lags_ms: Mapping[GlobalId, int]


@dataclass(frozen=True, slots=True)
class LagLimits:
    """The most rows that are kept, one for each minute and object, and for how long."""

    rows: int = 200_000
    age_ms: int = DAY_MS


class LagCore:
    """The lags of an environment. One caller at a time.

    For each minute that is over, and each object that was seen in it::

        lag(minute, object) = max(lags that were observed of the object within the minute)

    The minute that runs is not told. Of more rows than `limits` say the oldest minutes go, whole.
    """

    def __init__(self, limits: LagLimits) -> None:
        self._limits = limits
        self._running_ms: int | None = None
        self._minutes: dict[int, dict[GlobalId, int]] = {}
        self._unstored: set[int] = set()
        self._rows = 0

    def minutes(self) -> tuple[LagsOfMinute, ...]:
        """The minutes that are over, the earliest first."""
        over = sorted(each for each in self._minutes if each != self._running_ms)
        return tuple(LagsOfMinute(each, dict(self._minutes[each])) for each in over)

    def observe(self, now_ms: int, lags_ms: Mapping[GlobalId, int]) -> None:
        """Notes the lags of all objects at a time. The clock may have gone back."""
        self._running_ms = now_ms - now_ms % MINUTE_MS
        self._merge(self._running_ms, lags_ms)
        self._unstored.add(self._running_ms)
        self.forget_old(now_ms)

    def take_over(self, *, also_running: bool = False) -> tuple[LagsOfMinute, ...]:
        """The minutes that are to be stored now: those that are over, and were not taken yet.

        `also_running`: with the one that runs, because the leader ends.
        """
        taken = {each for each in self._unstored if also_running or each != self._running_ms}
        self._unstored -= taken
        return tuple(LagsOfMinute(each, dict(self._minutes[each])) for each in sorted(taken))

    def put_back(self, minutes: Iterable[LagsOfMinute]) -> None:
        """Gives back minutes that could not be stored."""
        self._unstored |= {each.minute_ms for each in minutes if each.minute_ms in self._minutes}

    def recover(self, minutes: Iterable[LagsOfMinute], now_ms: int) -> None:
        """Takes what leaders before have stored, in any order. Idempotent."""
        for each in minutes:
            self._merge(each.minute_ms, each.lags_ms)
        self.forget_old(now_ms)

    def forget_old(self, now_ms: int) -> None:
        """Forgets what is older or more than the limits allow."""
        oldest_ms = now_ms - self._limits.age_ms
        for minute_ms in sorted(self._minutes):
            if minute_ms >= oldest_ms and self._rows <= self._limits.rows:
                return
            self._rows -= len(self._minutes.pop(minute_ms))
            self._unstored.discard(minute_ms)

    def _merge(self, minute_ms: int, lags_ms: Mapping[GlobalId, int]) -> None:
        known = self._minutes.setdefault(minute_ms, {})
        self._rows -= len(known)
        for object_id, lag_ms in lags_ms.items():
            known[object_id] = max(lag_ms, known.get(object_id, 0))
        self._rows += len(known)

    def validate(self) -> None:
        """Raises FatalError when an invariant is broken."""
        if self._rows != sum(map(len, self._minutes.values())):
            raise FatalError("the rows of the lag history are counted wrongly")
        if not self._unstored <= set(self._minutes):
            raise FatalError("a minute that is not known is to be stored")
        if self._rows > self._limits.rows:
            raise FatalError("the lag history has more rows than it may")
