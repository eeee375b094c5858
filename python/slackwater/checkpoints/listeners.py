"""The listeners that are woken when a group has changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock


class GroupListeners:
    """The callbacks of each group. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._of: dict[str, list[_Listener]] = defaultdict(list)

    def add(self, group: str, wake: Callable[[], None]) -> _Listener:
        """Calls `wake` when somebody tells of the group, until the returned listener is closed."""
        listener = _Listener(self, group, wake)
        with self._lock:
            self._of[group].append(listener)
        return listener

    def remove(self, listener: _Listener) -> None:
        """Removes a listener; does nothing the second time."""
        with self._lock:
            left = [each for each in self._of.pop(listener.group, []) if each is not listener]
            if left:
                self._of[listener.group] = left

    def tell(self, group: str) -> None:
        """Wakes the listeners of the group."""
        with self._lock:
            listeners = list(self._of.get(group, ()))
        for each in listeners:
            each.wake()

    def tell_all(self) -> None:
        """Wakes all listeners."""
        with self._lock:
            listeners = [each for of in self._of.values() for each in of]
        for each in listeners:
            each.wake()


@dataclass(frozen=True, slots=True, eq=False)
class _Listener:
    _listeners: GroupListeners
    group: str
    wake: Callable[[], None]

    def close(self) -> None:
        self._listeners.remove(self)
