"""The lock that serialises changes of the catalog."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from slackwater.adapter.time.watch import Cancellation

LOOK_S = 0.1
"""Seconds between two looks whether a statement that waits for the lock is to end."""


class CatalogLock:
    """The lock that every change of the catalog holds; its holder may take it again.

    Lock order: this one, then the committer's, then persist's; nobody waits for a frontier with any
    of them. The storage controller's lock is the innermost: nothing is waited for under it.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    @contextmanager
    def defining(self, cancellation: Cancellation) -> Iterator[None]:
        """The lock for a statement.

        Raises SLACKWATER_CANCELED and SLACKWATER_STATEMENT_TIMEOUT.
        """
        while not self._lock.acquire(timeout=LOOK_S):
            cancellation.check_deadline("another change of the catalog had ended")
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def within(self, timeout_s: float) -> Iterator[bool]:
        """The lock, if it is free within that time; the block is told whether it has it."""
        taken = self._lock.acquire(timeout=timeout_s)
        try:
            yield taken
        finally:
            if taken:
                self._lock.release()
