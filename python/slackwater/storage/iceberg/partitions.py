"""The partitions of an Iceberg table to which rows belong.

A partition is told by transforms of columns, as the table's partition spec has them. Values are in
the form of manifests: dates are days, timestamps are microseconds.

Source: docs/decisions 0084.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.storage.iceberg.schema import FIELD_ID

_DAY_US = 86_400_000_000
_HOUR_US = 3_600_000_000
_CALENDAR = {"day": "D", "month": "M", "year": "Y"}
_VOID = "void"


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """One value of a partition: a transform of the field with that id.

    `of` is the transform of one value, for those that are none of time.
    """

    transform: str
    field_id: int
    of: Callable[[Any], Any] | None = None


Partition = tuple[Any, ...]
"""The values of a partition."""


def are_told_by(columns: Sequence[PartitionColumn], ids: Collection[int]) -> bool:
    """Whether these fields alone tell the partition of a row."""
    return all(each.field_id in ids for each in columns if each.transform != _VOID)


def split(
    rows: pa.Table, columns: Sequence[PartitionColumn]
) -> Iterator[tuple[Partition, pa.Table]]:
    """The rows of each partition, whose order stays. Fields that rows do not have are NULL.

    The fields of `rows` have their ids.
    """
    if not columns:
        yield (), rows
        return
    if not rows.num_rows:
        return
    values = [_transformed(rows, each) for each in columns]
    names = [str(place) for place in range(len(columns))]
    at = pa.array(np.arange(rows.num_rows))
    groups = pa.Table.from_arrays([*values, at], [*names, "at"])
    found = groups.group_by(names, use_threads=False).aggregate([("at", "list")])
    keys = zip(*(found.column(name).to_pylist() for name in names), strict=True)
    for key, places in zip(keys, found.column("at_list"), strict=True):
        yield key, rows.take(places.values)


def _transformed(rows: pa.Table, column: PartitionColumn) -> pa.Array:
    found = None if column.transform == _VOID else _field(rows, column.field_id)
    if found is None:
        return pa.nulls(rows.num_rows, pa.int8())
    if column.transform in _CALENDAR or column.transform == "hour":
        return _of_time(found, column.transform)
    values = _physical(found)
    return values if column.of is None else _of_values(values, column)


def _of_time(values: pa.Array, transform: str) -> pa.Array:
    numbers = _physical(values)
    missing = numbers.is_null().to_numpy(zero_copy_only=False)
    plain = numbers.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    if transform == "hour":
        return pa.array((plain // _HOUR_US).astype(np.int32), mask=missing)
    days = plain if pa.types.is_date(values.type) else plain // _DAY_US
    counted = days.astype("M8[D]").astype(f"M8[{_CALENDAR[transform]}]").astype(np.int64)
    return pa.array(counted.astype(np.int32), mask=missing)


def _of_values(values: pa.Array, column: PartitionColumn) -> pa.Array:
    """Each different value is transformed once."""
    assert column.of is not None
    if column.transform.startswith("truncate") and pa.types.is_integer(values.type):
        # Below the least number, Iceberg goes on at the greatest one.
        width = int(column.transform[len("truncate[") : -1])
        missing = values.is_null().to_numpy(zero_copy_only=False)
        plain = values.fill_null(0).to_numpy(zero_copy_only=False)
        return pa.array(plain - (plain.astype(np.int64) % width).astype(plain.dtype), mask=missing)
    kind = pa.int32() if column.transform.startswith("bucket") else values.type
    encoded = values.dictionary_encode()
    made = pa.array([column.of(each) for each in encoded.dictionary.to_pylist()], kind)
    return made.take(encoded.indices)


def _physical(values: pa.Array) -> pa.Array:
    if pa.types.is_date(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values


def _field(rows: pa.Table, field_id: int) -> pa.Array | None:
    """The values of a field, which may be within structs; None: the rows do not have it."""
    for column, field in zip(rows.columns, rows.schema, strict=True):
        path = _path(field, field_id)
        if path is not None:
            found = column.combine_chunks()
            return pc.struct_field(found, path) if path else found
    return None


def _path(field: pa.Field, field_id: int) -> list[int] | None:
    """The places that lead to a field within another; empty: it is that one."""
    if int((field.metadata or {}).get(FIELD_ID, -1)) == field_id:
        return []
    if pa.types.is_struct(field.type):
        for place in range(field.type.num_fields):
            inner = _path(field.type.field(place), field_id)
            if inner is not None:
                return [place, *inner]
    return None
