"""The timestamp oracle: hands out the times of reads and writes.

Why it has no durable row of its own. Every write commits, in one metastore transaction, its rows
and the move of the environment's tables upper to one past its time, and `apply_write` is called
only afterwards. So at every moment ``read_ts < tables upper`` for the durable upper: each time
that a reader was ever given and each write that was ever acknowledged is at most ``upper - 1``.
An oracle that starts at ``upper - 1`` therefore never hands out a read time below an earlier one,
and never a write time at or below a time that has been read. A write time that was handed out but
not committed is lost, harmlessly: nobody has seen anything at it.

Source: spec coordinator 2.1.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import TIMESTAMP_MAX, Timestamp


@dataclass(frozen=True, slots=True)
class WriteTimestamp:
    """The time of a write, and the upper that its commit moves the tables to."""

    timestamp: Timestamp
    advance_to: Timestamp


class TimestampOracle:
    """Linearizable read and write times of the one timeline. Thread-safe.

    `clock_ms` gives milliseconds since the epoch; it may stand still or go back. Without one,
    write times are consecutive. `on_read` is told of each read time before anybody is given it.
    """

    def __init__(
        self,
        start: Timestamp,
        clock_ms: Callable[[], int] | None = None,
        on_read: Callable[[Timestamp], None] = lambda _: None,
    ) -> None:
        self._read = start
        self._write = start
        self._clock_ms = clock_ms
        self._on_read = on_read
        self._lock = threading.Lock()
        on_read(start)

    @staticmethod
    def recover(
        tables_upper: Timestamp,
        clock_ms: Callable[[], int],
        on_read: Callable[[Timestamp], None] = lambda _: None,
    ) -> TimestampOracle:
        """The oracle of an environment whose durable tables upper is `tables_upper`."""
        return TimestampOracle(Timestamp(max(0, tables_upper - 1)), clock_ms, on_read)

    def write_ts(self) -> WriteTimestamp:
        """A time greater than every earlier read and write time, and not before the clock.

        Raises FatalError when the timeline is used up.
        """
        with self._lock:
            now = 0 if self._clock_ms is None else self._clock_ms()
            timestamp = Timestamp(max(self._write + 1, now))
            if timestamp >= TIMESTAMP_MAX:
                raise FatalError(f"the timeline ends at {TIMESTAMP_MAX}")
            self._write = timestamp
            return WriteTimestamp(timestamp, Timestamp(timestamp + 1))

    def peek_write_ts(self) -> Timestamp:
        """The current write time; does not advance it."""
        with self._lock:
            return self._write

    def read_ts(self) -> Timestamp:
        """A time at or after every applied write, and before every later write time."""
        with self._lock:
            return self._read

    def apply_write(self, timestamp: Timestamp) -> None:
        """Makes everything up to `timestamp` readable. Call it when that is durable."""
        with self._lock:
            if timestamp > self._read:
                self._on_read(timestamp)
                self._read = timestamp
            self._write = max(self._write, timestamp)
