"""The mark of a leader in a file, which the driver's JVM maps into its memory.

Coordinator and driver are on one host. A look at the mark costs the driver no call, and finds a
change as soon as this process has made it, however busy or stopped either of them is.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slackwater.repr.frontier import Timestamp

_NUMBER, _STEADY_NS, _WALL_MS, _READ_TS, _ADDING, _ADDED = range(6)
WORDS = 6
NO_TIME = -1


class FileMark:
    """A file of six words of eight bytes, in the host's byte order, each stored at once.

    The first is the number of `CatalogMark`. The next two say until when this process leads for
    certain: nanoseconds of the steady clock, and milliseconds since the epoch. Both have to be
    ahead, as the steady clock does not count sleep of the machine. At first they are the time of
    this moment, by which the driver sees whether it has the same steady clock. The fourth is the
    read timestamp of the oracle, -1 before there is one. The last two count the commits with errors
    of collections that have begun, and those that are over.

    This process has locked the file as long as it lives. Thread-safe, but for `changing`.
    """

    def __init__(self, path: Path) -> None:
        """Makes the file, which only this user can read. Raises `OSError`."""
        self.path = path
        # Somebody may still have an older file of this name in memory: it stays as it is.
        path.unlink(missing_ok=True)
        # It stays open: a lock ends when its process closes the file.
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        size = WORDS * ctypes.sizeof(ctypes.c_int64)
        os.ftruncate(self._descriptor, size)
        self._words = (ctypes.c_int64 * WORDS).from_buffer(mmap.mmap(self._descriptor, size))
        self._words[_READ_TS] = NO_TIME
        self._lock = threading.Lock()
        self._is_over = False
        self.counts_for(0)

    def counts_for(self, left_ms: int) -> None:
        """Notes that this process leads for so many milliseconds more, unless it is removed."""
        with self._lock:
            if not self._is_over:
                self._words[_STEADY_NS] = time.monotonic_ns() + left_ms * 1_000_000
                self._words[_WALL_MS] = time.time_ns() // 1_000_000 + left_ms

    def reads_at(self, time: Timestamp) -> None:
        """Notes the read timestamp of the oracle, before anybody reads at it."""
        self._words[_READ_TS] = time

    @contextmanager
    def changing(self) -> Iterator[None]:
        """The number is odd within the block, and the next even one after it."""
        self._words[_NUMBER] += 1
        try:
            yield
        finally:
            self._words[_NUMBER] += 1

    @contextmanager
    def adding_errors(self) -> Iterator[None]:
        """Within the block a commit of errors may become visible."""
        self._count(_ADDING)
        try:
            yield
        finally:
            self._count(_ADDED)

    def remove(self) -> None:
        """Removes the file's name, if nobody has, and lets nobody go by it from now on.

        To be called before another process may lead.
        """
        self.counts_for(0)
        with self._lock:
            self._is_over = True
        self.path.unlink(missing_ok=True)

    def _count(self, word: int) -> None:
        with self._lock:
            self._words[word] += 1
