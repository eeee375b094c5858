"""Rows as bytes, small and comparable, for what keeps many of them in memory."""

from __future__ import annotations

import marshal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from slackwater.persist.nested import as_type, with_leaves
from slackwater.repr.relation import DIFF_FIELD, RelationDesc

_VERSION = 2
_PIECE_ROWS = 100_000
"""The last version of `marshal` that writes equal values alike: later ones write references."""


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
        return [marshal.dumps(row, _VERSION) for row in plain_rows(table)]

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
        return marshal.dumps(tuple(found), _VERSION)

    @staticmethod
    def plain(row: bytes) -> tuple[Any, ...]:
        """The plain values of a row (see `plain_rows`)."""
        found: tuple[Any, ...] = marshal.loads(row)
        return found

    def decode(self, rows: Sequence[bytes]) -> pa.Table:
        """The table of these rows."""
        columns = list(zip(*map(marshal.loads, rows), strict=True)) or [()] * len(self._schema)
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


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type whose Python values are numbers, texts or bytes, and exact."""
    if pa.types.is_date(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.string() if pa.types.is_decimal(kind) else kind
