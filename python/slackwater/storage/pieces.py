"""The rows of one step for one collection, in files where they are many.

Source: spec controllers 5.1; docs/decisions 0001, 0069.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from slackwater.persist.parts import NewPart, PartsAt
from slackwater.repr.frontier import Timestamp

PIECE_BYTES = 64 * 1024 * 1024
"""Rows beyond this size go to files before their commit."""


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Rows that are in files already. The commit says their time, and only names the files."""

    parts: PartsAt
    num_rows: int

    def joined(self, other: StagedRows) -> StagedRows:
        """These rows and the others."""

        def parts(time: Timestamp) -> tuple[NewPart, ...]:
            return (*self.parts(time), *other.parts(time))

        return StagedRows(parts, self.num_rows + other.num_rows)


Stage = Callable[[pa.Table], StagedRows]
"""Writes rows, which end with ``__diff``, into files. If they are never committed, the files go."""


class Pieces:
    """Collects rows with ``__diff``; of many only the last are in memory."""

    def __init__(self, stage: Stage, piece_bytes: int = PIECE_BYTES) -> None:
        self._stage = stage
        self._piece_bytes = piece_bytes
        self._tables: list[pa.Table] = []
        self._held_bytes = 0
        self._staged: StagedRows | None = None

    def add(self, rows: pa.Table) -> None:
        """Raises what writing files raises; then nothing was added."""
        if rows.num_rows == 0:
            return
        self._tables.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes >= self._piece_bytes:
            try:
                self._put_away()
            except BaseException:
                self._held_bytes -= self._tables.pop().nbytes
                raise

    def add_all(self, rows: pa.Table | StagedRows) -> None:
        """Adds rows that other pieces gave, as `add` does."""
        if isinstance(rows, StagedRows):
            self._staged = rows if self._staged is None else self._staged.joined(rows)
        else:
            self.add(rows)

    def rows(self) -> pa.Table | StagedRows | None:
        """All rows that were added; None: there are none."""
        if self._staged is not None and self._tables:
            self._put_away()
        if self._staged is not None:
            return self._staged
        return pa.concat_tables(self._tables) if self._tables else None

    def _put_away(self) -> None:
        staged = self._stage(pa.concat_tables(self._tables))
        self._staged = staged if self._staged is None else self._staged.joined(staged)
        self._tables, self._held_bytes = [], 0
