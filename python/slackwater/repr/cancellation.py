"""A cancellation that comes once, from another thread, and what it ends."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class CancellationToken:
    """Ends something before its time. Thread-safe."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._actions: dict[int, Callable[[], None]] = {}

    def cancel(self) -> None:
        """Calls the actions, in the caller's thread. Cancelling twice is cancelling once."""
        with self._lock:
            self._cancelled.set()
            actions = list(self._actions.values())
            self._actions.clear()
        for action in actions:
            action()

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    def wait(self, seconds: float) -> None:
        """Returns after so long, or when it is cancelled."""
        self._cancelled.wait(seconds)

    @contextmanager
    def on_cancel(self, action: Callable[[], None]) -> Iterator[None]:
        """Calls `action` if it is cancelled while the block runs; at once if it was before.

        It may still run when the block has ended.
        """
        number = next(self._numbers)
        with self._lock:
            cancelled = self.is_cancelled
            if not cancelled:
                self._actions[number] = action
        if cancelled:
            action()
        try:
            yield
        finally:
            with self._lock:
                self._actions.pop(number, None)
