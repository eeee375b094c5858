"""Clocks of tests, for what takes one by `monotonic`."""

from __future__ import annotations

import threading
import time


class MovableClock:
    """Seconds of the machine, and those that a test lets pass besides. Thread-safe.

    A deadline that is hours away does not come by itself, however slow the machine is; `passes`
    lets it come. Who waits looks at the clock each half second.
    """

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self._ahead_s

    def passes(self, seconds: float) -> None:
        """Lets `seconds` pass at once."""
        self._ahead_s += seconds


class StepClock:
    """Seconds that pass only while somebody looks: `step_s` with each look. Thread-safe.

    Whatever is measured by it has taken as long on each machine.
    """

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._now_s = 0.0
        self._lock = threading.Lock()

    def __call__(self) -> float:
        with self._lock:
            self._now_s += self._step_s
            return self._now_s
