"""A value that threads can watch."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition
from typing import Generic, TypeVar

T = TypeVar("T")


class Variable(Generic[T]):
    """A value that threads change, and for which others wait. Thread-safe.

    A waiting thread sees the latest value: it may miss those between.
    """

    def __init__(self, value: T) -> None:
        self._value = value
        self._changed = Condition()

    def get(self) -> T:
        """The value now."""
        with self._changed:
            return self._value

    def set(self, value: T) -> None:
        """Changes the value; wakes the waiting threads unless it is equal."""
        self.update(lambda _: value)

    def update(self, change: Callable[[T], T]) -> T:
        """Puts ``change(value)`` in the value's place, atomically, and returns it."""
        with self._changed:
            value = change(self._value)
            if value != self._value:
                self._value = value
                self._changed.notify_all()
            return value

    def wait_for(self, reached: Callable[[T], bool], timeout_s: float | None = None) -> T:
        """The first value that it sees of which `reached` is true.

        Raises TimeoutError after `timeout_s`.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: reached(self._value), timeout_s):
                raise TimeoutError(f"the value is still {self._value} after {timeout_s} s")
            return self._value
