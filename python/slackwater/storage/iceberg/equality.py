"""Rows that are deleted by values of some of their columns.

NULL is NULL's equal, NaN is NaN's, and 0.0 is none of -0.0: as Iceberg's own reader has it.

Source: docs/decisions 0080.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_BITS = {pa.float32(): (pa.int32(), np.float32), pa.float64(): (pa.int64(), np.float64)}


def matches(rows: pa.Table, keys: pa.Table) -> Any:
    """Finds the rows that have the values of one of the keys: an array of numpy's.

    Both have the same number of columns, of the same types.
    """
    found, known, _ = _codes(_comparable(rows.column(0)), _comparable(keys.column(0)))
    for row_column, key_column in zip(rows.columns[1:], keys.columns[1:], strict=True):
        row_codes, key_codes, count = _codes(_comparable(row_column), _comparable(key_column))
        # Each code is less than the number of keys, so that two of them fit into 64 bits.
        found, known, _ = _codes(
            pc.add(pc.multiply(found, count), row_codes),
            pc.add(pc.multiply(known, count), key_codes),
        )
    return pc.is_valid(found).to_numpy(zero_copy_only=False)


def _codes(values: pa.Array, keys: pa.Array) -> tuple[pa.Array, pa.Array, int]:
    """Small numbers for values and keys, and how many; NULL: the value is none of the keys."""
    distinct = pc.unique(keys)
    numbers = (pc.index_in(each, value_set=distinct).cast(pa.int64()) for each in (values, keys))
    return next(numbers), next(numbers), len(distinct)


def _comparable(column: pa.ChunkedArray) -> pa.Array:
    """The values in a form in which Arrow's equality is that of deletes."""
    values = column.combine_chunks()
    if values.type not in _BITS:
        return values
    bits, kind = _BITS[values.type]
    plain = pc.if_else(pc.is_nan(values), pa.scalar(np.nan, values.type), values)
    exact = np.asarray(pc.fill_null(plain, 0.0).to_numpy(zero_copy_only=False), kind)
    return pa.array(
        exact.view(bits.to_pandas_dtype()),
        bits,
        mask=values.is_null().to_numpy(zero_copy_only=False),
    )
