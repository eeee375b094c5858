"""The signal that a thread waits for between its rounds."""

from __future__ import annotations

from threading import Condition


class Wakeups:
    """Calls for a round. Those that come before it begins are one; one that comes later is kept.

    The original forgets what comes during a round, and finds it when it looks a second later.
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
        """Lets there be no more rounds."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()

    def wait(self, timeout_s: float) -> bool:
        """Waits for a call, `timeout_s` at most; whether there is to be a round."""
        with self._condition:
            self._condition.wait_for(lambda: self._is_called or self._is_closed, timeout_s)
            self._is_called = False
            return not self._is_closed
