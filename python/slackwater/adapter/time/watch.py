"""Waiting for frontiers: one condition that every writer signals after its commit is applied.

Threads that wait hold no other lock (lock order: docs/internals/coordinator.md).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from slackwater.repr.errors import user_error


@dataclass(slots=True)
class Cancellation:
    """The flag of one running statement. Set by another thread; seen at each wait."""

    flag: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raises SLACKWATER_CANCELED once the flag is set."""
        if self.flag.is_set():
            raise user_error("SLACKWATER_CANCELED")


class FrontierWatch:
    """Wakes waiting threads when a frontier has moved."""

    def __init__(self) -> None:
        self._moved = threading.Condition()

    def signal(self) -> None:
        """To be called after any frontier, catalog or status change."""
        with self._moved:
            self._moved.notify_all()

    def wait_until(
        self, reached: Callable[[], bool], timeout_s: float, cancellation: Cancellation
    ) -> bool:
        """Waits until `reached()`; False when `timeout_s` went by first.

        `reached` is called with the condition's lock held and must be quick; what it raises is
        passed on. Raises SLACKWATER_CANCELED.
        """
        deadline = time.monotonic() + timeout_s
        with self._moved:
            while not reached():
                cancellation.check()
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._moved.wait(min(left, 0.5))
        return True
