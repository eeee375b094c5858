"""An end that comes once, from another thread, and what it ends."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Ending:
    """The end of something before its time. Thread-safe."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._actions: dict[int, Callable[[], None]] = {}

    def end(self) -> None:
        """Calls what is to be called, in the caller's thread. Ending twice is ending once."""
        with self._lock:
            self._ended.set()
            actions = list(self._actions.values())
            self._actions.clear()
        for action in actions:
            action()

    @property
    def is_ended(self) -> bool:
        return self._ended.is_set()

    def wait(self, seconds: float) -> None:
        """Returns after so long, or at the end."""
        self._ended.wait(seconds)

    @contextmanager
    def calling(self, action: Callable[[], None]) -> Iterator[None]:
        """Calls `action` if the end comes while the block runs; at once if it has come already.

        It may still run when the block has ended.
        """
        number = next(self._numbers)
        with self._lock:
            late = self.is_ended
            if not late:
                self._actions[number] = action
        if late:
            action()
        try:
            yield
        finally:
            with self._lock:
                self._actions.pop(number, None)
