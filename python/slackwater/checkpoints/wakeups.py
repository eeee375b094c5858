"""The signal that a thread waits for between its rounds."""

from __future__ import annotations

from threading import Condition


class Wakeups:
    """Calls for a round. Those that come before it begins are one; a later one is kept.

    CockroachDB Replicator forgets calls during a round, and finds their changes a second later.
    """

    def __init__(self) -> None:
        self._condition = Condition()
        self._is_called = False
        self._is_closed = False

    def call(self) -> None:
        """Asks for a round."""
        with self._condition:
            self._is_called = True
            self._condition.notify_all()

    def close(self) -> None:
        """Ends the rounds: `wait` returns False from now on."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()

    def wait(self, timeout_s: float) -> bool:
        """Waits for a call, `timeout_s` at most; returns whether a round is to begin."""
        with self._condition:
            self._condition.wait_for(lambda: self._is_called or self._is_closed, timeout_s)
            self._is_called = False
            return not self._is_closed
