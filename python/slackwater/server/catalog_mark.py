"""The mark of the catalog in a file, which the driver's JVM maps into its memory.

Coordinator and driver are on one host. A look at the mark costs the driver no call, and finds a
change as soon as this process has made it, however busy or stopped either of them is.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_WORD = struct.Struct("=q")
_NUMBER, _STEADY_NS, _WALL_MS = 0, 1, 2
WORDS = 3


class FileMark:
    """A file of three words of eight bytes, in the host's byte order.

    The first is the number of `CatalogMark`. The others say until when this process leads for
    certain: nanoseconds of the steady clock, and milliseconds since the epoch. Both have to be
    ahead, as the steady clock does not count sleep of the machine. At first they are the time of
    this moment, by which the driver sees whether it has the same steady clock.
    """

    def __init__(self, path: Path) -> None:
        """Makes the file, which only this user can read. Raises `OSError`."""
        self.path = path
        # Somebody may still have an older file of this name in memory: it stays as it is.
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.ftruncate(descriptor, WORDS * _WORD.size)
            self._memory = mmap.mmap(descriptor, WORDS * _WORD.size)
        finally:
            os.close(descriptor)
        self._number = 0
        self.counts_for(0)

    def counts_for(self, left_ms: int) -> None:
        """Notes that this process leads for so many milliseconds more."""
        self._write(_STEADY_NS, time.monotonic_ns() + left_ms * 1_000_000)
        self._write(_WALL_MS, time.time_ns() // 1_000_000 + left_ms)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """The number is odd within the block, and the next even one after it."""
        self._count()
        try:
            yield
        finally:
            self._count()

    def remove(self) -> None:
        """Removes the file's name, if nobody has. The driver sees the words nevertheless."""
        self.path.unlink(missing_ok=True)

    def _count(self) -> None:
        self._number += 1
        self._write(_NUMBER, self._number)

    def _write(self, word: int, value: int) -> None:
        _WORD.pack_into(self._memory, word * _WORD.size, value)
