"""Consolidation against Spark's idea of equal values."""

from __future__ import annotations

import struct

import pyarrow as pa

from slackwater.persist.consolidate import consolidate


def table(kind: pa.DataType, *rows: tuple[object, int]) -> pa.Table:
    values = pa.array([value for value, _ in rows], kind)
    return pa.table({"a": values, "__diff": pa.array([diff for _, diff in rows], pa.int64())})


def counts(updates: pa.Table) -> list[tuple[object, int]]:
    return [(row["a"], row["__diff"]) for row in consolidate(updates).to_pylist()]


INT = pa.int32()
LIST = pa.list_(pa.field("element", INT))
MAP = pa.map_(pa.string(), pa.field("value", LIST))
STRUCT = pa.struct([pa.field("x", pa.float64()), pa.field("y", LIST)])


def test_null_equals_null():
    assert counts(table(INT, (None, 1), (1, 1), (None, 2), (1, -1))) == [(None, 3)]


def test_not_a_number_equals_itself_whatever_its_bits():
    strange = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
    assert counts(table(pa.float64(), (float("nan"), 1), (strange, -1))) == []


def test_negative_zero_equals_zero():
    assert counts(table(pa.float32(), (0.0, 1), (-0.0, -1), (1.5, 1))) == [(1.5, 1)]


def test_lists():
    rows = table(
        LIST, ([1, 2], 1), ([1], 1), ([2], 1), ([], 1), (None, 1), ([None], 1), ([1, 2], 1)
    )
    assert counts(rows) == [([1, 2], 2), ([1], 1), ([2], 1), ([], 1), (None, 1), ([None], 1)]
    assert counts(table(LIST, ([], 1), ([], -1), (None, 1))) == [(None, 1)]


def test_maps_in_any_order():
    one = [("a", [1]), ("b", None)]
    rows = table(MAP, (one, 1), (one[::-1], -1), ([], 1), ([("a", [1])], 1), (None, 4), ([], 1))
    assert counts(rows) == [([], 2), ([("a", [1])], 1), (None, 4)]


def test_structs_with_nested_values():
    value = {"x": float("nan"), "y": [1, 2]}
    rows = table(STRUCT, (value, 1), (value, -1), ({"x": None, "y": None}, 1), (None, 1))
    assert counts(rows) == [({"x": None, "y": None}, 1), (None, 1)]


def test_slices_and_chunks():
    rows = table(MAP, ([("z", [9])], 1), ([("a", [1, 2])], 1), ([("a", [1, 2])], 1))
    chunked = pa.concat_tables([rows.slice(1), rows.slice(1, 1)])
    assert counts(chunked) == [([("a", [1, 2])], 3)]


def test_time_is_compared_and_the_schema_stays():
    rows = pa.table(
        {
            "k1": pa.array([1, 1, 1], INT),
            "__time": pa.array([5, 6, 5], pa.int64()),
            "__diff": pa.array([1, 1, 1], pa.int64()),
            "i": pa.array(["d", "d", "d"]),
        }
    )
    result = consolidate(rows)
    assert result.schema == rows.schema
    assert result.to_pylist() == [
        {"k1": 1, "__time": 5, "__diff": 2, "i": "d"},
        {"k1": 1, "__time": 6, "__diff": 1, "i": "d"},
    ]


def test_rows_without_columns():
    rows = pa.table({"__diff": pa.array([1, 2, -1], pa.int64())})
    assert consolidate(rows).to_pylist() == [{"__diff": 2}]
    assert consolidate(rows.slice(0, 0)).num_rows == 0
