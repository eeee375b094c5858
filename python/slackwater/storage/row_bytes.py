"""Rows as bytes, small and comparable, for what keeps many of them in memory."""

from __future__ import annotations

import marshal
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa

from slackwater.persist.nested import as_type, with_leaves
from slackwater.repr.relation import DIFF_FIELD, RelationDesc
from slackwater.storage.envelope import MARSHAL_VERSION, exact_key, row_key

_PIECE_ROWS = 100_000
_LOADED_ROWS = 500
"""So many rows are values of Python at once: of more, the garbage collector takes three times as
much as reading them."""


class RowBytes:
    """Turns rows of a relation into bytes and back.

    Promise: ``decode(encode(table)) == table``, and two rows have the same bytes exactly if each of
    their values is the same, bit by bit. Bytes are for this process alone.
    """

    def __init__(self, desc: RelationDesc) -> None:
        self._schema = desc.arrow_schema()
        self._plain = [with_leaves(field.type, _plain) for field in self._schema]

    def encode(self, table: pa.Table) -> list[bytes]:
        """The bytes of each row of a table that has the columns of the relation."""
        return list(map(marshal.dumps, plain_rows(table), repeat(MARSHAL_VERSION)))

    def updates(self, rows: Sequence[tuple[bytes, int]]) -> Iterator[pa.Table]:
        """Rows and their diffs as tables with ``__diff``, in pieces."""
        for start in range(0, len(rows), _PIECE_ROWS):
            piece = rows[start : start + _PIECE_ROWS]
            diffs = pa.array([diff for _, diff in piece], pa.int64())
            yield self.decode([row for row, _ in piece]).append_column(DIFF_FIELD, diffs)

    @staticmethod
    def replaced(row: bytes, values: Mapping[int, Any]) -> bytes:
        """The row with these plain values (see `plain_rows`) at these places."""
        found = list(marshal.loads(row))
        for place, value in values.items():
            found[place] = value
        return marshal.dumps(tuple(found), MARSHAL_VERSION)

    @staticmethod
    def plain(row: bytes) -> tuple[Any, ...]:
        """The plain values of a row (see `plain_rows`)."""
        found: tuple[Any, ...] = marshal.loads(row)
        return found

    def decode(self, rows: Sequence[bytes]) -> pa.Table:
        """The table of these rows."""
        columns: list[list[Any]] = [[] for _ in self._schema]
        for start in range(0, len(rows), _LOADED_ROWS):
            loaded = map(marshal.loads, rows[start : start + _LOADED_ROWS])
            for column, values in zip(columns, zip(*loaded, strict=True), strict=True):
                column += values
        arrays = [
            as_type(pa.array(column, kind), field.type)
            for column, kind, field in zip(columns, self._plain, self._schema, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=self._schema)


def plain_rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """The rows as numbers, texts, bytes and what consists of these; every value has such a form."""
    columns = [
        as_type(column.combine_chunks(), with_leaves(column.type, _plain)).to_pylist()
        for column in table.columns
    ]
    return zip(*columns, strict=True)


def row_keys(keys: pa.Table) -> list[bytes]:
    """The keys of rows that have these key columns. See `row_key`."""
    has_floats = any(_has_floats(column.type) for column in keys.columns)
    return list(map(row_key if has_floats else exact_key, plain_rows(keys)))


def _has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_floats(kind.field(place).type) for place in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type whose Python values are numbers, texts or bytes, and exact."""
    if pa.types.is_date(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.string() if pa.types.is_decimal(kind) else kind
