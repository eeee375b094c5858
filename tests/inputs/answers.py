"""Rows as they are compared, whoever gives them."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import Any

import pyarrow as pa

DIGITS = 12
"""Spark adds doubles in the order in which it reads them."""
_DOUBLE = re.compile(r"(?<=')-?\d+\.\d+(?:e[+-]\d+)?(?=')")


def rows_of(table: pa.Table) -> Counter[str]:
    """The rows as a multiset, whatever the columns are called."""
    columns = [_values(column) for column in table.columns]
    rows = zip(*columns, strict=True) if columns else [()] * table.num_rows
    return Counter(repr(row) for row in rows)


SMALLEST = 1e-13


def nearly(rows: Counter[str]) -> Counter[str]:
    """The rows with fewer digits: Spark's sums of squares round where ours are exact."""
    found: Counter[str] = Counter()
    for row, count in rows.items():
        found[_DOUBLE.sub(lambda double: _shortened(float(double[0])), row)] += count
    return found


def _shortened(double: float) -> str:
    """What is left where sums of some digits should have been equal is nothing."""
    return f"{double:.8g}" if abs(double) >= SMALLEST else "0"


def _values(column: pa.ChunkedArray) -> list[Any]:
    return [each for chunk in column.chunks for each in _plain(chunk)]


def _plain(values: pa.Array) -> list[Any]:
    """Values by what they are made of: names of fields do not count, nor do zones of moments."""
    kind = values.type
    if pa.types.is_struct(kind):
        fields = [_plain(each) for each in values.flatten()]
        rows = list(zip(*fields, strict=True)) if fields else [()] * len(values)
        return _unless_null(values, rows)
    if pa.types.is_map(kind):
        return _unless_null(values, [sorted(each, key=repr) for each in _slices(values)])
    if pa.types.is_list(kind):
        return _unless_null(values, _slices(values))
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return values.cast(pa.int64()).to_pylist()
    if pa.types.is_date32(kind):
        return values.cast(pa.int32()).to_pylist()
    if pa.types.is_floating(kind):
        digits = DIGITS if kind.bit_width == 64 else 6
        return [None if v is None else f"{v + 0.0:.{digits}g}" for v in values.to_pylist()]
    return values.to_pylist()


def _slices(values: pa.ListArray | pa.MapArray) -> list[Any]:
    if pa.types.is_map(values.type):
        items = list(zip(_plain(values.keys), _plain(values.items), strict=True))
    else:
        items = _plain(values.values)
    offsets = values.offsets.to_pylist()
    return [items[begin:end] for begin, end in itertools.pairwise(offsets)]


def _unless_null(values: pa.Array, rows: list[Any]) -> list[Any]:
    return [
        row if valid else None
        for row, valid in zip(rows, values.is_valid().to_pylist(), strict=True)
    ]
