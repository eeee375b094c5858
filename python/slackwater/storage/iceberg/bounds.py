"""Keys of which a file may have rows, by the bounds that manifests have of its columns.

Source: docs/decisions 0084.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_NUMBERS = {4: "<i", 8: "<q"}


@dataclass(frozen=True, slots=True)
class FileBounds:
    """The bounds of the columns of a file, and its numbers of NULLs, by the ids of fields."""

    lower: Mapping[int, bytes] = field(default_factory=dict)
    upper: Mapping[int, bytes] = field(default_factory=dict)
    nulls: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Keys:
    """Values of the fields with these ids, a column for each."""

    ids: Sequence[int]
    values: pa.Table

    def within(self, bounds: FileBounds) -> Keys:
        """Those of which a file with such bounds may have rows."""
        chosen: Any = None
        for field_id, column in zip(self.ids, self.values.columns, strict=True):
            may_be = _may_be(column, field_id, bounds)
            chosen = may_be if chosen is None else pc.and_(chosen, may_be)
        return Keys(self.ids, self.values.filter(chosen))


def _may_be(column: pa.ChunkedArray, field_id: int, bounds: FileBounds) -> pa.ChunkedArray:
    is_null = pc.is_null(column)
    found: Any = pc.invert(is_null)
    for raw, compared in (
        (bounds.lower.get(field_id), pc.greater_equal),
        (bounds.upper.get(field_id), pc.less_equal),
    ):
        bound = None if raw is None else _decoded(raw, column.type)
        if bound is not None:
            found = pc.and_(found, pc.fill_null(compared(column, bound), False))
    return found if bounds.nulls.get(field_id) == 0 else pc.or_(found, is_null)


def _decoded(raw: bytes, kind: pa.DataType) -> pa.Scalar | None:
    """The value of a bound; None: it tells nothing here. One of INT may be of a column that is
    LONG now."""
    if pa.types.is_string(kind):
        try:
            return pa.scalar(raw.decode(), kind)
        except UnicodeDecodeError:
            return None
    if pa.types.is_binary(kind):
        return pa.scalar(raw, kind)
    if pa.types.is_decimal(kind):
        number = int.from_bytes(raw, "big", signed=True)
        digits = tuple(map(int, str(abs(number))))
        return pa.scalar(Decimal((int(number < 0), digits, -kind.scale)), kind)
    form = _NUMBERS.get(len(raw))
    if form is None:
        return None
    (number,) = struct.unpack(form, raw)
    if pa.types.is_integer(kind):
        return pa.scalar(number, pa.int64())
    if pa.types.is_date(kind):
        return pa.scalar(number, pa.int32()).cast(kind)
    return pa.scalar(number, pa.int64()).cast(kind) if pa.types.is_timestamp(kind) else None
