"""The rows of one step of a source that reads a table of a lake, and what they take away.

Rows that go are in memory until the step is whole, and rows that come as far as they may be among
those that go; the rest is in files. A step may only take away what is there: what has other rows
than the table would do so for ever.

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
from slackwater.repr.dataflow_error import DataflowError
from slackwater.repr.relation import DIFF_COLUMN, DIFF_FIELD, RelationDesc, stored_column
from slackwater.storage.envelope import row_key
from slackwater.storage.pieces import PIECE_BYTES, Pieces, StagedRows
from slackwater.storage.row_bytes import plain_rows


class SourceCollection(Protocol):
    """The collection of a source: what is durable of it, and the place for its files."""

    def rows(self) -> pa.Table:
        """The durable rows, consolidated, with ``__diff``."""
        ...

    def errors(self) -> Sequence[DataflowError]:
        """The durable errors."""
        ...

    def stage(self, rows: pa.Table) -> StagedRows:
        """Writes rows into files, as `pieces.Stage`."""
        ...


class NotThere(Exception):
    """A row goes that is not there."""


class StepFull(Exception):
    """A version does not fit beside those before it: it is to be a step of its own."""


@dataclass(frozen=True, slots=True)
class DeletedValues:
    """Values of some columns, by the stored names of these: rows that have such values go."""

    rows: pa.Table

    def found_in(self, table: pa.Table) -> pa.Array:
        """Tells of each row of a table whether it has such values."""
        names = self.rows.column_names
        wanted = {row_key(each) for each in plain_rows(self.rows)}
        mask = np.zeros(table.num_rows, dtype=bool)
        places = np.flatnonzero(_may_be(table, self.rows))
        for place, row in zip(
            places, plain_rows(table.select(names).take(pa.array(places))), strict=True
        ):
            mask[place] = row_key(row) in wanted
        return pa.array(mask)


class StepRows:
    """Collects the changes of a step, version after version.

    `limit_bytes` is how much of rows that come is in memory. Versions that fit together have all
    their rows there: so what one of them takes away is found among what those before it brought.
    """

    def __init__(self, collection: SourceCollection, limit_bytes: int = PIECE_BYTES) -> None:
        self._collection = collection
        self._limit_bytes = limit_bytes
        self._look_at = limit_bytes
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._pieces = Pieces(collection.stage, limit_bytes)
        self._durable: pa.Table | None = None
        self._is_put_away = False
        self._begins_at = 0

    def begin_version(self) -> None:
        """Rows that are added from now on belong to the next version."""
        self._begins_at = len(self._held)

    def leave_version(self) -> None:
        """The version that has begun last does not belong to the step."""
        del self._held[self._begins_at :]
        self._held_bytes = sum(each.nbytes for each in self._held)

    def add(self, rows: pa.Table) -> None:
        """Adds rows with ``__diff``. Raises `StepFull`, and what writing files raises."""
        if rows.num_rows == 0:
            return
        if self._begins_at and self._held_bytes + rows.nbytes >= self._limit_bytes:
            raise StepFull
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes >= self._look_at:
            self._put_away()

    def take_back(self) -> None:
        """All durable rows go."""
        self.add(_negated(self._rows()))

    def delete(self, deleted: Sequence[DeletedValues]) -> None:
        """The durable rows that have such values go."""
        rows = self._rows()
        self.add(_negated(rows.filter(any_of(rows, deleted))))

    @property
    def is_full(self) -> bool:
        """Whether no version fits beside what is there."""
        return self._is_put_away or self._held_bytes >= self._limit_bytes

    def changes(self) -> pa.Table | StagedRows | None:
        """The rows of the step, which may be many; None: there are none.

        Raises `NotThere`, and what writing files raises.
        """
        gone = self._put_away()
        if gone is not None:
            like = self._rows()
            like = like.filter(pa.array(_may_be(like, gone.drop_columns([DIFF_COLUMN]))))
            left = consolidate(pa.concat_tables([like, gone]))
            if pc.any(pc.less(left.column(DIFF_COLUMN), 0)).as_py():
                raise NotThere
            self._pieces.add(_single(gone))
            self._held, self._held_bytes = [], 0
        return self._pieces.rows()

    def _put_away(self) -> pa.Table | None:
        """Puts rows that come into pieces; rows that go stay, and are the answer, if any."""
        if not self._held:
            return None
        self._is_put_away = True
        rows = consolidate(pa.concat_tables(self._held))
        comes = pc.greater(rows.column(DIFF_COLUMN), 0)
        gone = rows.filter(pc.invert(comes))
        self._held, self._held_bytes = [rows], rows.nbytes
        self._pieces.add(_single(rows.filter(comes)))
        self._held = [gone] if gone.num_rows else []
        self._held_bytes = gone.nbytes
        self._look_at = max(self._limit_bytes, 2 * self._held_bytes)
        return gone if gone.num_rows else None

    def _rows(self) -> pa.Table:
        if self._durable is None:
            self._durable = self._collection.rows()
        return self._durable


def any_of(rows: pa.Table, deleted: Sequence[DeletedValues]) -> pa.Array:
    """Tells of each row whether it has values that are deleted."""
    mask = pa.array(np.zeros(rows.num_rows, dtype=bool))
    for each in deleted:
        mask = pc.or_(mask, each.found_in(rows))
    return mask


def conformed(rows: pa.Table, desc: RelationDesc) -> pa.Table:
    """Rows of a table, with ``__diff`` if they have it, in the columns of their source.

    Raises pa.ArrowException for a value that does not fit, and KeyError for a column that is not
    there.
    """
    schema = desc.arrow_schema()
    arrays = [
        _as(rows.column(name), field.type) for name, field in zip(desc.names, schema, strict=True)
    ]
    if DIFF_COLUMN in rows.column_names:
        arrays.append(rows.column(DIFF_COLUMN).cast(pa.int64()))
        schema = schema.append(DIFF_FIELD)
    return pa.Table.from_arrays(arrays, schema=schema)


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
    return DeletedValues(pa.table(columns))


def _as(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return values if values.type == kind else values.cast(kind)


def _may_be(rows: pa.Table, wanted: pa.Table) -> np.ndarray:
    """Tells of each row whether it may be equal to one of `wanted` in its columns."""
    mask = np.ones(rows.num_rows, dtype=bool)
    for name in wanted.column_names:
        kind = wanted.schema.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_floating(kind):
            continue
        known = pc.unique(wanted.column(name))
        mask &= pc.is_in(rows.column(name), value_set=known).to_numpy()
    return mask


def _negated(rows: pa.Table) -> pa.Table:
    position = rows.schema.get_field_index(DIFF_COLUMN)
    return rows.set_column(position, DIFF_FIELD, pc.negate(rows.column(position)))


def _single(rows: pa.Table) -> pa.Table:
    """The rows with diffs of 1 and -1, each as often as its diff said: files have no others."""
    diffs = rows.column(DIFF_COLUMN)
    counts = pc.abs(diffs)
    if rows.num_rows == 0 or pc.max(counts).as_py() == 1:
        return rows
    places = np.repeat(np.arange(rows.num_rows), counts.to_numpy())
    taken = rows.take(pa.array(places))
    position = rows.schema.get_field_index(DIFF_COLUMN)
    return taken.set_column(position, DIFF_FIELD, pc.sign(taken.column(position)).cast(pa.int64()))
