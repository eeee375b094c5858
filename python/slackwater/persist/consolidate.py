"""Consolidation: equal rows become one, their diffs are summed, and zero sums vanish.

Equality is that of Spark's GROUP BY: NULL equals NULL, NaN equals NaN, -0.0 equals 0.0, and the
order of a map's entries does not matter. Nested values are numbered, so that equal values and only
those have the same code; the codes of their elements are the bytes that are compared.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.persist.nested import as_lists
from slackwater.repr.relation import DIFF_COLUMN


def consolidate(updates: pa.Table) -> pa.Table:
    """The updates with the diffs summed by all other columns, without the sums that are zero.

    Takes any table with the BIGINT column ``__diff``; where ``__time`` is a column it is one of
    those compared. The schema stays, rows keep the order of their first appearance. Of values that
    are equal but differ in bytes the first is kept.
    """
    if updates.num_rows == 0:
        return updates
    position = updates.schema.get_field_index(DIFF_COLUMN)
    keys = [
        comparable(column) for index, column in enumerate(updates.columns) if index != position
    ] or [pa.chunked_array([pa.repeat(pa.scalar(0, pa.int64()), updates.num_rows)])]
    names = [f"k{index}" for index in range(len(keys))]
    rows = pa.table(
        [*keys, updates.column(position), _counting(updates.num_rows)], names=[*names, "d", "i"]
    )
    groups = rows.group_by(names, use_threads=False).aggregate([("d", "sum"), ("i", "min")])
    groups = groups.filter(pc.not_equal(groups.column("d_sum"), 0))
    kept = updates.take(groups.column("i_min"))
    return kept.set_column(position, updates.schema.field(position), groups.column("d_sum"))


def comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values that Arrow groups as this module says, in the place of those of the column."""
    if pa.types.is_floating(column.type):
        return _normal(column)
    if pa.types.is_nested(column.type):
        return pa.chunked_array([codes_of(column)])
    return column


def _normal(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Floating-point numbers with one NaN and one zero."""
    zero = pa.scalar(0.0, values.type)
    not_a_number = pa.scalar(float("nan"), values.type)
    # Adding +0.0 turns -0.0 into 0.0.
    return pc.if_else(pc.is_nan(values), not_a_number, pc.add(values, zero))


def codes_of(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """For each value, NULL too, a number >= 0, the same for equal values only."""
    if isinstance(values, pa.ChunkedArray):
        chunks = values.chunks
        values = pa.concat_arrays(chunks) if chunks else pa.nulls(0, values.type)
    if pa.types.is_struct(values.type):
        codes = _validity(values)
        for field in values.flatten():
            codes = _pair(codes, codes_of(field))
        return codes
    if pa.types.is_nested(values.type):
        lists = as_lists(values)
        elements = lists.flatten()
        lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int64())
        codes = (
            _in_order(lists, _pair(codes_of(elements.field(0)), codes_of(elements.field(1))))
            if pa.types.is_map(values.type)
            else codes_of(elements)
        )
        return _pair(_validity(values), _number(_as_bytes(codes, lengths)))
    if pa.types.is_floating(values.type):
        values = _normal(values)
    return _number(values)


def _in_order(maps: pa.Array, entries: pa.Array) -> pa.Array:
    """The entries' codes, sorted within each map."""
    table = pa.table({"map": pc.list_parent_indices(maps), "entry": entries})
    order = pc.sort_indices(table, sort_keys=[("map", "ascending"), ("entry", "ascending")])
    return entries.take(order)


def _as_bytes(codes: pa.Array, lengths: pa.Array) -> pa.Array:
    """Each list of codes as one binary value, over the same memory."""
    if len(codes) == 0:
        return pa.nulls(len(lengths), pa.large_binary())
    ends = pc.multiply(pc.cumulative_sum(lengths), 8)
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    buffers = [None, offsets.buffers()[1], codes.buffers()[1]]
    return pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers)


def _pair(left: pa.Array, right: pa.Array) -> pa.Array:
    """Codes of pairs. They stay below the number of rows, so the product cannot overflow."""
    if len(left) == 0:
        return left
    width = pc.add(pc.max(right), 1)
    return _number(pc.add(pc.multiply(left, width), right))


def _validity(values: pa.Array) -> pa.Array:
    return values.is_valid().cast(pa.int64())


def _number(values: pa.Array) -> pa.Array:
    encoded = pc.dictionary_encode(values, null_encoding="encode")
    return encoded.indices.cast(pa.int64())


def _counting(count: int) -> pa.Array:
    ones = pa.repeat(pa.scalar(1, pa.int64()), count)
    return pc.cumulative_sum(ones, start=-1)
