"""Parts: the immutable pieces that a shard consists of.

A part holds updates ``(row, time, diff)`` with ``lower <= time < upper``. Its rows are either an
Arrow IPC stream inline in the metastore (small writes) or one Parquet file.

A file written by Spark's executors does not know the time of its commit. Such a *uniform* part
lacks the columns ``__time`` and ``__diff``: all its rows have the part's `uniform` time and diff.
So a large write needs no second pass, and TRUNCATE adds the negation of a uniform part without
touching its file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from slackwater.repr.frontier import Timestamp


@dataclass(frozen=True, slots=True)
class Uniform:
    """The one time and the one diff that all rows of a part have."""

    time: Timestamp
    diff: int


@dataclass(frozen=True, slots=True)
class InlineBody:
    """Rows as one Arrow IPC stream: the columns, then ``__time`` and ``__diff``."""

    ipc: bytes

    @property
    def size_bytes(self) -> int:
        """The size of the stream."""
        return len(self.ipc)


@dataclass(frozen=True, slots=True)
class FileBody:
    """Rows as one immutable Parquet file.

    `uri` is absolute (``file:///...``). `uniform` is None when the file has the columns
    ``__time`` and ``__diff``.
    """

    uri: str
    size_bytes: int
    modified_ms: int
    uniform: Uniform | None


@dataclass(frozen=True, slots=True)
class NewPart:
    """A part to be committed. `min_time` and `max_time` are inclusive bounds of its times.

    `has_retractions`: a diff is not +1, so that who reads the part has to consolidate.
    """

    body: InlineBody | FileBody
    rows: int
    min_time: Timestamp
    max_time: Timestamp
    has_retractions: bool


@dataclass(frozen=True, slots=True)
class Part:
    """A committed part of a shard. `part_id` is unique in the environment."""

    part_id: int
    shard_id: int
    lower: Timestamp
    upper: Timestamp
    body: InlineBody | FileBody
    rows: int
    min_time: Timestamp
    max_time: Timestamp
    has_retractions: bool


PartsAt = Callable[[Timestamp], tuple[NewPart, ...]]
"""Makes the parts of a write when its time is known, e.g. uniform parts over registered files."""

RowsOrParts: TypeAlias = pa.Table | PartsAt
"""The rows that a write adds to one shard: a table whose last column is ``__diff``, or parts."""
