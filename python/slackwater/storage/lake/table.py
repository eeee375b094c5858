"""The seam between a sink and a table of a lake, whose commits are atomic.

A commit has the changes of a range of time and the sink's progress: both are in the table or none
is. So the table is the authority; what the metastore has lags behind.

Source: surface 4, docs/decisions 0076.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

import pyarrow as pa

from slackwater.repr.frontier import Frontier


@dataclass(frozen=True, slots=True)
class LakeProgress:
    """The progress of a sink, as its last commit in the table has it.

    Every update before `frontier` is in the table. `version` is that of the sink's definition,
    `epoch` that of the leader that has committed.
    """

    frontier: Frontier
    version: int
    epoch: int


@dataclass(frozen=True, slots=True)
class LakeChanges:
    """The changes of a range of time: all rows with a key of `deleted` go, then `inserted` come.

    `inserted` has the table's columns. `deleted` has those of the sink's key, each key once and
    only where the table may have a row of it; None when the sink appends.
    """

    inserted: pa.Table
    deleted: pa.Table | None = None


Written = Callable[[int], None]
"""Is told that so many rows more of those that are inserted were handed over."""


Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def unheard(rows: int) -> None:
    """Nobody wants to know."""


def telling(pieces: Iterable[Rows], written: Written) -> Iterator[Rows]:
    """The pieces; each is told of when the next one is asked for."""
    for each in pieces:
        yield each
        written(each.num_rows)


class TableChanged(Exception):
    """Another writer has committed since the table was loaded; this commit has done nothing."""


class LakeTable(Protocol):
    """One table, for one writer of one sink. Not thread-safe.

    Each method raises SLACKWATER_SINK_UNREACHABLE when the table cannot be reached; after a commit
    that did, it is not known whether the commit is there, until `load` has told.
    """

    def load(self) -> LakeProgress | None:
        """Reads the table as it is now; what the sink has committed there last, None: nothing.

        Commits of others since then are passed over. Raises SLACKWATER_SINK_PROGRESS_LOST when the
        table is gone, is another one, or does not tell any more, and what
        `LakeTarget.ensure` raises when the table does not fit any more.
        """
        ...

    def commit(
        self, changes: LakeChanges, progress: LakeProgress, written: Written = unheard
    ) -> None:
        """Commits to the table as it was loaded. Durable on return. Raises `TableChanged`."""
        ...

    def tidy(self) -> None:
        """Writes small files of the table together, if it is time for that; no row changes.

        It may be given up when another writer has committed. Then the next commit raises
        `TableChanged`, and so it may in any case.
        """
        ...

    def close(self) -> None:
        """Ends the clients. What is committed stays."""
        ...


class LakeTarget(Protocol):
    """The table of a sink as its definition has it, and how to get there."""

    def ensure(self) -> None:
        """Makes the table, or finds that the one which is there fits the sink's columns.

        Raises SLACKWATER_CONNECTOR_MISSING, SLACKWATER_SINK_UNREACHABLE,
        SLACKWATER_COLUMN_MISMATCH, SLACKWATER_UNSUPPORTED_TYPE.
        """
        ...

    def opened(self) -> LakeTable:
        """The table for one writer, which is not loaded yet. Raises what `ensure` raises."""
        ...
