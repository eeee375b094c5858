"""The end of what is computed for a dataflow, when that is removed."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from slackwater.repr.errors import user_error


class Removal:
    """`slackwater.compute.engine.Interruption` of one dataflow's ticks. Thread-safe."""

    def __init__(self, name: str) -> None:
        """`name` is that of the view."""
        self._name = name
        self._removed = False
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._actions: dict[int, Callable[[], None]] = {}

    def remove(self) -> None:
        """Ends what runs, in the caller's thread; what would begin later is refused."""
        with self._lock:
            self._removed = True
            actions = list(self._actions.values())
            self._actions.clear()
        for action in actions:
            action()

    @contextmanager
    def ending(self, action: Callable[[], None]) -> Iterator[None]:
        """Calls `action` if the dataflow is removed while the block runs, or was before."""
        number = next(self._numbers)
        with self._lock:
            late = self._removed
            if not late:
                self._actions[number] = action
        if late:
            action()
        try:
            yield
        finally:
            with self._lock:
                self._actions.pop(number, None)

    def refuse_late(self, doing: str) -> None:
        """Raises SLACKWATER_DEPENDENCY_DROPPED once the dataflow is removed."""
        with self._lock:
            removed = self._removed
        if removed:
            raise user_error("SLACKWATER_DEPENDENCY_DROPPED", objectName=self._name)
