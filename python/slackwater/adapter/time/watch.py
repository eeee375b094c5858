"""The waits of statements for frontiers, and the ends of these waits.

`FrontierWatch` is one condition that every writer signals after its commit is applied. Threads that
wait hold no other lock (lock order: docs/internals/coordinator.md).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from slackwater.repr.cancellation import CancellationToken
from slackwater.repr.errors import user_error

_LOOK_S = 0.5
"""The longest pause, in seconds, after which a thread that waits looks at the clock again."""
LONGEST_S = 10.0**9
"""Seconds that stand for no deadline: practically for ever, and short enough for locks."""


class Cancellation:
    """The end of one statement before its time: on request, or at its deadline.

    Every wait of the statement observes the same one. Thread-safe. `timeout_ms` counts from now;
    0 means no deadline. `monotonic` gives seconds.
    """

    def __init__(
        self, timeout_ms: int = 0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.timeout_ms = timeout_ms
        self._monotonic = monotonic
        self._until = monotonic() + timeout_ms / 1000 if timeout_ms else None
        self._token = CancellationToken()
        self._waits_for: Callable[[], str] | None = None
        self.waited_s = 0.0
        self._waited_until: float | None = None

    @contextmanager
    def waiting(self, for_what: Callable[[], str]) -> Iterator[None]:
        """A wait of the statement; `for_what` says in any thread what for, as things are then."""
        before, self._waits_for = self._waits_for, for_what
        try:
            yield
        finally:
            self._waits_for = before

    def waits_for(self) -> str | None:
        """A sentence on what the statement waits for now; None: it waits for nothing."""
        told = self._waits_for
        return None if told is None else told()

    def waited(self, seconds: float) -> None:
        """Notes that the statement has waited for a frontier for so long, and up to now."""
        self.waited_s += seconds
        self._waited_until = self._monotonic()

    def since_waited_s(self) -> float:
        """Seconds since the statement waited last; 0 if it has not waited."""
        return 0.0 if self._waited_until is None else self._monotonic() - self._waited_until

    def cancel(self) -> None:
        """Ends the statement's waits. Cancelling twice is cancelling once."""
        self._token.cancel()

    @property
    def is_cancelled(self) -> bool:
        return self._token.is_cancelled

    def extend(self, wait_ms: int) -> None:
        """Counts `timeout_ms` anew from `wait_ms` after now: the statement asks to wait so long."""
        if self._until is not None:
            self._until = self._monotonic() + (wait_ms + self.timeout_ms) / 1000

    def left_s(self) -> float:
        """Seconds until the deadline, 0 after it; `LONGEST_S` without a deadline."""
        return LONGEST_S if self._until is None else max(0.0, self._until - self._monotonic())

    def left_ms(self) -> int:
        return int(self.left_s() * 1000)

    def pause(self, seconds: float) -> None:
        """Returns after `seconds`, or when the statement is cancelled."""
        self._token.wait(seconds)

    def check(self) -> None:
        """Raises SLACKWATER_CANCELED once it is cancelled."""
        if self.is_cancelled:
            raise user_error("SLACKWATER_CANCELED")

    def check_deadline(self, doing: str) -> None:
        """Raises what `check` does; after the deadline SLACKWATER_STATEMENT_TIMEOUT.

        That error names `doing`.
        """
        self.check()
        if self.left_s() <= 0:
            raise user_error(
                "SLACKWATER_STATEMENT_TIMEOUT", seconds=f"{self.timeout_ms / 1000:g}", doing=doing
            )

    def on_cancel(self, action: Callable[[], None]) -> AbstractContextManager[None]:
        """Calls `action` in the canceller's thread, if the statement is cancelled in the block.

        If it is cancelled already, at once. The action may still run when the block has ended.
        """
        return self._token.on_cancel(action)

    @contextmanager
    def on_cancel_or_deadline(self, action: Callable[[], None]) -> Iterator[None]:
        """Calls `action` as `on_cancel` does, and at the deadline as well.

        For work that takes no time limit of its own.
        """
        with self.on_cancel(action):
            if self._until is None:
                yield
                return
            left = threading.Event()
            threading.Thread(
                target=self._at_the_deadline, args=(action, left), name="deadline", daemon=True
            ).start()
            try:
                yield
            finally:
                left.set()

    def _at_the_deadline(self, action: Callable[[], None], left: threading.Event) -> None:
        """Calls `action` at the deadline, unless the block is `left` before."""
        while (left_s := self.left_s()) > 0:
            if left.wait(min(left_s, _LOOK_S)):
                return
        if not left.is_set():
            action()


class FrontierWatch:
    """Wakes waiting threads when a frontier has moved. `monotonic` gives seconds."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._moved = threading.Condition()

    def now_s(self) -> float:
        """The seconds by which threads wait here."""
        return self._monotonic()

    def signal(self) -> None:
        """Wakes the threads that wait. Call it after any frontier, catalog or status change."""
        with self._moved:
            self._moved.notify_all()

    def wait_until(
        self, reached: Callable[[], bool], timeout_s: float, cancellation: Cancellation
    ) -> bool:
        """Waits until `reached()`; False when `timeout_s` went by first.

        `reached` is called with the condition's lock held and must be quick. Raises what `reached`
        raises, and SLACKWATER_CANCELED.
        """
        began = self._monotonic()
        deadline = began + timeout_s
        has_waited = False
        try:
            with cancellation.on_cancel(self.signal), self._moved:
                while not reached():
                    cancellation.check()
                    left = deadline - self._monotonic()
                    if left <= 0:
                        return False
                    has_waited = True
                    self._moved.wait(min(left, _LOOK_S))
            return True
        finally:
            if has_waited:
                cancellation.waited(self._monotonic() - began)
