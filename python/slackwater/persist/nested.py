"""Nested values in another form: with other names and types inside, and maps as lists."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc


def as_lists(values: pa.Array) -> pa.Array:
    """A map array as a list array of (key, value) structs; any other array unchanged."""
    if not pa.types.is_map(values.type):
        return values
    # Below a NULL there are NULLs in what has none, which a cast to the same would refuse.
    item = values.type.item_field
    entry = pa.struct([values.type.key_field, item.with_type(_nullable(item.type))])
    return values.cast(pa.list_(pa.field("entries", entry, False)))


def as_type(values: pa.Array, target: pa.DataType) -> pa.Array:
    """The values in the target type. Nested types are rebuilt, since a cast is too strict there."""
    if values.type.equals(target):
        return values
    if pa.types.is_struct(target):
        # Fields go by their places; a struct without fields had none in older parts.
        found = values.flatten() or [pa.nulls(len(values))] * target.num_fields
        children = [as_type(c, f.type) for c, f in zip(found, target, strict=True)]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=values.is_null())
    if pa.types.is_map(target):
        values = as_lists(values)
        entries = values.flatten()
        keys = as_type(entries.field(0), target.key_type)
        items = as_type(entries.field(1), target.item_type)
        return pa.MapArray.from_arrays(_offsets(values), keys, items, type=target)
    if pa.types.is_list(target):
        elements = as_type(values.flatten(), target.value_type)
        return pa.ListArray.from_arrays(_offsets(values), elements, type=target)
    return values.cast(target)


def with_leaves(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type with each type in it that is not nested replaced by `leaf` of it."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(with_leaves(field.type, leaf)) for field in kind])
    if pa.types.is_map(kind):
        inner = with_leaves(kind.key_type, leaf), with_leaves(kind.item_type, leaf)
        return pa.map_(inner[0], kind.item_field.with_type(inner[1]))
    if pa.types.is_list(kind):
        field = kind.value_field
        return pa.list_(field.with_type(with_leaves(field.type, leaf)))
    return leaf(kind)


def _nullable(kind: pa.DataType) -> pa.DataType:
    """The type with NULLs allowed in all that is in it."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _nullable(each.type)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(_nullable(kind.key_type), pa.field("value", _nullable(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _nullable(kind.value_type)))
    return kind


def _offsets(values: pa.Array) -> pa.Array:
    """Offsets into the flattened values; a NULL list has a NULL offset."""
    lengths = pc.fill_null(pc.list_value_length(values), 0).cast(pa.int32())
    ends = pc.cumulative_sum(lengths)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    absent = pa.concat_arrays([values.is_null(), pa.array([False])])
    return pc.if_else(absent, pa.scalar(None, pa.int32()), offsets)
