"""The one timeline of an environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slackwater.adapter.time.oracle import TimestampOracle
from slackwater.adapter.time.watch import FrontierWatch
from slackwater.repr.frontier import Timestamp


@dataclass(frozen=True, slots=True)
class Timeline:
    """The oracle of the timeline, the watch over its frontiers, and the clocks beside it.

    `clock_ms` gives wall clock milliseconds, which may go back; `monotonic` seconds, by which
    statements wait.
    """

    oracle: TimestampOracle
    watch: FrontierWatch
    clock_ms: Callable[[], int]
    monotonic: Callable[[], float]

    def read_ts(self) -> Timestamp:
        """A time at which every acknowledged write is visible."""
        return self.oracle.read_ts()

    def now(self) -> Timestamp:
        """The present time by the wall clock."""
        return Timestamp(self.clock_ms())
