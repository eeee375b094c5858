"""The rows of one step of a source that reads a table of a lake, and what they take away.

Rows that come and such that go are added up as far as they are in memory together; beyond that they
are in files. A step may only take away what is there: otherwise the source would have other rows
than its table for ever.

Source: docs/decisions 0079.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.persist.consolidate import consolidate
from slackwater.persist.contents import repeated
from slackwater.repr.dataflow_error import DataflowError
from slackwater.repr.relation import (
    DIFF_COLUMN,
    DIFF_FIELD,
    RelationDesc,
    stored_column,
    with_diff,
)
from slackwater.storage.pieces import PIECE_BYTES, Pieces, StagedRows
from slackwater.storage.row_bytes import row_keys


class SourceCollection(Protocol):
    """The collection of a source: what is durable of it, and the place for its files."""

    def rows(self) -> pa.Table:
        """The durable rows, consolidated, with ``__diff``."""
        ...

    def rows_where(self, column: str, values: pa.Array) -> pa.Table:
        """Those of the durable rows that have one of the values in a column of that stored name."""
        ...

    def lacking(self, changes: pa.Table | StagedRows) -> int:
        """The number of rows that changes take away and that are not there, nor among them."""
        ...

    def errors(self) -> Sequence[DataflowError]:
        """The durable errors."""
        ...

    def stage(self, rows: pa.Table) -> StagedRows:
        """Writes rows into files, as `pieces.Stage`."""
        ...


_WAITING = 4
"""Rows that go are in memory up to so many times as much as others."""


class NotThere(Exception):
    """A row goes that is not there."""


@dataclass(frozen=True, slots=True)
class DeletedValues:
    """Values of some columns, by the stored names of these: rows that have such values go."""

    rows: pa.Table
    keys: frozenset[bytes]

    @staticmethod
    def of(rows: pa.Table) -> DeletedValues:
        """All rows of a table."""
        return DeletedValues(rows, frozenset(row_keys(rows)))

    def found_in(self, table: pa.Table) -> pa.Array:
        """Tells of each row of a table whether it has such values."""
        names = self.rows.column_names
        mask = np.zeros(table.num_rows, dtype=bool)
        places = np.flatnonzero(_may_be(table, self.rows))
        keys = row_keys(table.select(names).take(pa.array(places)))
        mask[places] = [key in self.keys for key in keys]
        return pa.array(mask)


class StepRows:
    """Collects the changes of a step. `limit_bytes` is about how much of them is in memory.

    Rows that go wait for such that come, since many of them are equal where files are written anew.
    """

    def __init__(self, collection: SourceCollection, limit_bytes: int = PIECE_BYTES) -> None:
        self._collection = collection
        self._limit_bytes = limit_bytes
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._look_at = limit_bytes
        self._pieces = Pieces(collection.stage, limit_bytes)
        self._takes = False
        self._waiting_bytes: int | None = _WAITING * limit_bytes

    def add(self, rows: pa.Table) -> None:
        """Adds rows with ``__diff``. Raises what writing files raises."""
        if rows.num_rows == 0:
            return
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes >= self._look_at:
            self._put_away(is_last=False)

    def take_back(self) -> None:
        """All durable rows go, and wait in memory for such that come."""
        self._waiting_bytes = None
        self.add(_negated(self._collection.rows()))

    def delete(self, deleted: Sequence[DeletedValues]) -> None:
        """The durable rows that have such values go."""
        for place, each in enumerate(deleted):
            rows = self._having(each)
            for before in deleted[:place]:
                rows = rows.filter(pc.invert(before.found_in(rows)))
            self.add(_negated(rows))

    def changes(self) -> pa.Table | StagedRows | None:
        """The rows of the step, which may be many; None: there are none.

        Raises `NotThere`, and what reading and writing files raises.
        """
        self._put_away(is_last=True)
        found = self._pieces.rows()
        if found is not None and self._takes and self._collection.lacking(found):
            raise NotThere
        return found

    def _having(self, deleted: DeletedValues) -> pa.Table:
        names = [name for name in deleted.rows.column_names if _is_plain(deleted.rows, name)]
        if names:
            values = pc.unique(deleted.rows.column(names[0]))
            rows = self._collection.rows_where(names[0], values)
        else:
            rows = self._collection.rows()
        return rows.filter(deleted.found_in(rows))

    def _put_away(self, *, is_last: bool) -> None:
        """Puts rows into pieces; those that go stay as long as they are few and others may come."""
        if not self._held:
            return
        rows = consolidate(pa.concat_tables(self._held))
        comes = pc.greater(rows.column(DIFF_COLUMN), 0)
        gone = rows.filter(pc.invert(comes))
        self._takes |= gone.num_rows > 0
        most = self._waiting_bytes
        waits = not is_last and (most is None or gone.nbytes < most)
        self._held, self._held_bytes = ([gone], gone.nbytes) if waits else ([], 0)
        self._look_at = max(self._limit_bytes, 2 * self._held_bytes)
        self._pieces.add(_single(rows.filter(comes) if waits else rows))


def any_of(rows: pa.Table, deleted: Sequence[DeletedValues]) -> pa.Array:
    """Tells of each row whether it has values that are deleted."""
    mask = pa.array(np.zeros(rows.num_rows, dtype=bool))
    for each in deleted:
        mask = pc.or_(mask, each.found_in(rows))
    return mask


def conformed(rows: pa.Table, desc: RelationDesc, *, has_diff: bool) -> pa.Table:
    """Rows of a table in the columns of their source, with ``__diff``, which is 1 if they lack it.

    Raises pa.ArrowException for a value that does not fit, and KeyError for a column that is not
    there.
    """
    schema = desc.arrow_schema()
    arrays = [
        _as(rows.column(name), field.type) for name, field in zip(desc.names, schema, strict=True)
    ]
    found = pa.Table.from_arrays(arrays, schema=schema)
    if not has_diff:
        return with_diff(found)
    # A column of the table, which the source does not have, may have this name as well.
    *_, place = (i for i, name in enumerate(rows.column_names) if name == DIFF_COLUMN)
    return found.append_column(DIFF_FIELD, rows.column(place).cast(pa.int64()))


def conformed_values(rows: pa.Table, desc: RelationDesc) -> DeletedValues:
    """Values of some of the columns, as `conformed`."""
    schema = desc.arrow_schema()
    known = set(desc.names)
    columns = {}
    for name in rows.column_names:
        if name not in known:
            raise KeyError(name)
        stored = stored_column(name)
        columns[stored] = _as(rows.column(name), schema.field(stored).type)
    return DeletedValues.of(pa.table(columns))


def _as(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return values if values.type == kind else values.cast(kind)


def _may_be(rows: pa.Table, wanted: pa.Table) -> np.ndarray:
    """Tells of each row whether it may be equal to one of `wanted` in its columns."""
    mask = np.ones(rows.num_rows, dtype=bool)
    for name in wanted.column_names:
        if not _is_plain(wanted, name):
            continue
        known = pc.unique(wanted.column(name))
        mask &= pc.is_in(rows.column(name), value_set=known).to_numpy()
    return mask


def _is_plain(rows: pa.Table, name: str) -> bool:
    """Whether equal values of a column have equal bytes."""
    kind = rows.schema.field(name).type
    return not (pa.types.is_nested(kind) or pa.types.is_floating(kind))


def _negated(rows: pa.Table) -> pa.Table:
    position = rows.schema.get_field_index(DIFF_COLUMN)
    return rows.set_column(position, DIFF_FIELD, pc.negate(rows.column(position)))


def _single(rows: pa.Table) -> pa.Table:
    """The rows with diffs of 1 and -1, each as often as its diff said: files have no others."""
    diffs = rows.column(DIFF_COLUMN)
    counts = pc.abs(diffs)
    if rows.num_rows == 0 or pc.max(counts).as_py() == 1:
        return rows
    taken = rows.take(repeated(counts.combine_chunks()))
    position = rows.schema.get_field_index(DIFF_COLUMN)
    return taken.set_column(position, DIFF_FIELD, pc.sign(taken.column(position)).cast(pa.int64()))
