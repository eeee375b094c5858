"""Schemas, bounds and progress of Iceberg tables as values."""

from __future__ import annotations

import io
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Frontier
from slackwater.repr.relation import RelationDesc
from slackwater.storage.iceberg.progress import (
    FRONTIER,
    History,
    OtherSink,
    ProgressLost,
    progress_in,
    properties_of,
    recorded,
)
from slackwater.storage.iceberg.schema import Misfit, fitted, new_schema, sink_columns
from slackwater.storage.iceberg.statistics import lower_bound, statistics_of, upper_bound
from slackwater.storage.lake.config import IcebergPlace, LakeSinkConfig
from slackwater.storage.lake.table import LakeProgress

NESTED = pa.schema(
    [
        pa.field("k", pa.int64(), False),
        pa.field("s", pa.struct([pa.field("x", pa.int8()), pa.field("y", pa.float64())])),
        pa.field("m", pa.map_(pa.string(), pa.list_(pa.field("element", pa.int32())))),
    ]
)


def at(frontier, epoch=1):
    return LakeProgress(Frontier(frontier), 0, epoch)


def test_a_new_schema():
    schema = new_schema(NESTED, ["k"])
    assert schema["identifier-field-ids"] == [1]
    assert [(each["id"], each["name"], each["required"]) for each in schema["fields"]] == [
        (1, "k", True),
        (2, "s", False),
        (3, "m", False),
    ]
    assert schema["fields"][1]["type"]["fields"][0] == {
        "id": 4,
        "name": "x",
        "required": False,
        "type": "int",
    }
    assert schema["fields"][2]["type"]["value"]["element"] == "int"
    other = new_schema(NESTED, ["k", "s"])
    assert "identifier-field-ids" not in other
    assert not any(each["required"] for each in other["fields"])


@pytest.mark.parametrize("kind", [pa.duration("us"), pa.decimal128(5, -2), pa.uint8()])
def test_types_that_there_are_not(kind):
    with pytest.raises(SlackwaterError, match="SLACKWATER_UNSUPPORTED_TYPE"):
        new_schema(pa.schema([pa.field("c", kind)]))


DESC = RelationDesc.from_json(
    json.dumps(
        {
            "fields": [
                {"name": "__time", "type": "byte", "nullable": False, "metadata": {}},
                {"name": "c", "type": "char(3)", "nullable": True, "metadata": {}},
            ]
        }
    )
)


def test_columns_of_a_sink():
    append = sink_columns(LakeSinkConfig(IcebergPlace("a.b", "t"), "APPEND"), DESC)
    assert append.identifier == ("a", "b", "t")
    assert append.shown == "the table a.b.t"
    assert append.schema.names == ["__time", "c", "_mz_diff", "_mz_timestamp"]
    upsert = sink_columns(LakeSinkConfig(IcebergPlace("a", "t"), "UPSERT", ("c",)), DESC)
    assert upsert.schema.names == ["__time", "c"]
    assert upsert.schema.types == [pa.int8(), pa.string()]


@pytest.mark.parametrize(
    ("namespace", "table", "option"),
    [("", "t", "NAMESPACE"), ("a..b", "t", "NAMESPACE"), ("a", "", "TABLE")],
)
def test_names_that_are_empty(namespace, table, option):
    with pytest.raises(SlackwaterError, match=f"The option {option} of CREATE SINK"):
        sink_columns(LakeSinkConfig(IcebergPlace(namespace, table), "APPEND"), DESC)


def test_fields_that_cannot_be_found():
    fields = [
        {"name": name, "type": "integer", "nullable": True, "metadata": {}} for name in ("a", "A")
    ]
    column = {
        "name": "s",
        "type": {"type": "struct", "fields": fields},
        "nullable": True,
        "metadata": {},
    }
    desc = RelationDesc.from_json(json.dumps({"fields": [column]}))
    with pytest.raises(SlackwaterError, match=r"MISMATCH.*s\.a cannot be found"):
        sink_columns(LakeSinkConfig(IcebergPlace("a", "t"), "APPEND"), desc)


def test_columns_fit_a_schema_of_their_own():
    fit = fitted(NESTED, new_schema(NESTED))
    assert fit.schema.names == NESTED.names
    assert fit.ids(["m", "k"]) == [3, 1]
    assert [each.is_repeated for each in fit.leaves] == [False, False, False, True, True]
    assert len({each.field_id for each in fit.leaves}) == 5


def schema_of(*fields):
    return {
        "fields": [
            {"id": number, "name": name, "required": required, "type": kind}
            for number, (name, required, kind) in enumerate(fields, 10)
        ]
    }


def test_a_table_may_be_wider():
    columns = pa.schema([pa.field("i", pa.int32()), pa.field("d", pa.decimal128(5, 2), False)])
    table = schema_of(("more", False, "uuid"), ("d", False, "decimal(38, 2)"), ("i", False, "long"))
    fit = fitted(columns, table)
    assert fit.schema.types == [pa.int64(), pa.decimal128(38, 2)]
    assert fit.ids(["i", "d"]) == [12, 11]


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (schema_of(("I", False, "int")), "it has no column i"),
        (schema_of(("i", True, "int")), "its column i is required, and may be NULL here"),
        (schema_of(("i", False, "string")), "its column i has the type string, and is int here"),
        (schema_of(("i", False, "decimal(9, 0)")), "has the type decimal"),
        (schema_of(("i", False, {"type": "struct", "fields": []})), "has the type struct"),
        (
            schema_of(("i", False, "int"), ("more", True, "int")),
            "its column more is required, and there is no such column here",
        ),
    ],
)
def test_tables_that_columns_do_not_fit(table, reason):
    with pytest.raises(Misfit, match=reason):
        fitted(pa.schema([pa.field("i", pa.int32())]), table)


def test_nested_columns_that_do_not_fit():
    table = new_schema(NESTED)
    table["fields"][1]["type"]["fields"][0]["type"] = "boolean"
    with pytest.raises(Misfit, match=r"its column s\.x has the type boolean, and is int here"):
        fitted(NESTED, table)
    table = new_schema(NESTED)
    table["fields"][2]["type"]["value-required"] = True
    with pytest.raises(Misfit, match="the value of its column m is required"):
        fitted(NESTED, table)


def statistics(columns, rows, group_rows):
    """The statistics of a file with these rows."""
    fit = fitted(columns, new_schema(columns))
    writer = pq.ParquetWriter(io.BytesIO(), fit.schema, store_decimal_as_integer=True)
    with writer:
        writer.write_table(pa.Table.from_pylist(rows, columns), row_group_size=group_rows)
    return statistics_of(writer.writer.metadata, fit.leaves)


def test_statistics_of_a_file():
    columns = pa.schema(
        [
            pa.field("i", pa.int32()),
            pa.field("d", pa.decimal128(30, 2)),
            pa.field("d9", pa.decimal128(9, 2)),
            pa.field("f", pa.float64()),
            pa.field("none", pa.string()),
            pa.field("l", pa.list_(pa.field("element", pa.int32()))),
        ]
    )
    rows = [
        {"i": 1, "d": Decimal("-0.01"), "d9": Decimal("1.28"), "f": float("nan"), "l": [1, 2]},
        {"i": None, "d": None, "d9": None, "f": None, "l": None},
        {"i": -3, "d": Decimal("10.00"), "d9": Decimal("-1.29"), "f": 1.0, "l": []},
    ]
    found = statistics(columns, rows, group_rows=1)
    assert found.rows == 3
    assert found.values == dict.fromkeys(range(1, 6), 3)
    assert found.nulls == {1: 1, 2: 1, 3: 1, 4: 1, 5: 3}
    assert found.lower == {1: b"\xfd\xff\xff\xff", 2: b"\xff", 3: b"\xff\x7f"}
    assert found.upper == {1: b"\x01\0\0\0", 2: b"\x03\xe8", 3: b"\0\x80"}
    assert len(found.offsets) == 3
    assert set(found.sizes) == {1, 2, 3, 4, 5, 7}


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(st.lists(texts, min_size=1))
def test_texts_are_within_their_bounds(values):
    """In the order of Iceberg, which is that of the characters' numbers, as Python has it."""
    columns = pa.schema([pa.field("t", pa.string())])
    found = statistics(columns, [{"t": each} for each in values], group_rows=2)
    if found.lower:
        assert found.lower[1].decode() <= min(values)
        assert found.upper[1].decode() >= max(values)
        assert all(len(each[1].decode()) <= 16 for each in (found.lower, found.upper))


@given(st.binary(max_size=20))
def test_bytes_are_within_their_bounds(value):
    lower, upper = lower_bound("binary", value), upper_bound("binary", value)
    assert lower is not None
    assert lower <= value
    assert upper is None or upper >= value


@given(st.integers(-(10**38), 10**38))
def test_decimals_are_exact(value):
    found = lower_bound("decimal(38, 0)", value)
    assert found == upper_bound("decimal(38, 0)", value)
    assert int.from_bytes(found, "big", signed=True) == value


def test_bounds_that_there_are_not():
    assert upper_bound("string", ("\U0010ffff" * 17).encode()) is None
    assert upper_bound("string", ("\ud7ff" * 17).encode()) == ("\ud7ff" * 15 + "\ue000").encode()
    assert lower_bound("string", b"\xff") is None
    assert lower_bound("double", 1.0) is None


def entries(frontier, sink="s"):
    return recorded(sink, at(frontier))


def properties(frontier, snapshot_id=1, sequence=1, sink="s"):
    return properties_of(entries(frontier, sink), snapshot_id, sequence)


def test_progress_of_an_empty_table():
    assert progress_in("s", History(()), {"other": "x"}) is None


def test_progress_is_under_what_others_did():
    history = History(({}, entries(20), entries(10)), 3)
    assert progress_in("s", history, properties(20, 7, 2)) == at(20)


def test_progress_when_snapshots_have_expired():
    assert progress_in("s", History(({},), 5), properties(20, 7, 4)) == at(20)


@pytest.mark.parametrize(
    ("history", "known"),
    [
        (History((entries(10),), 1), properties(20, 7, 2)),
        (History(({},), 5, frozenset({7})), properties(20, 7, 4)),
        (History(({},), 3), properties(20, 7, 4)),
        (History(()), properties(20, 7, 4)),
        (History((entries(10),), 1), {}),
        (History(({},), 5), entries(20)),
        (History(({},), 5), {**properties(20), FRONTIER: "x"}),
    ],
    ids=["back", "aside", "older", "emptied", "no properties", "half", "no number"],
)
def test_progress_that_is_lost(history, known):
    with pytest.raises(ProgressLost):
        progress_in("s", history, known)


def test_another_sink():
    with pytest.raises(OtherSink, match="t"):
        progress_in("s", History((entries(10, "t"),), 1), properties(10, sink="t"))
