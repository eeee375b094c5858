"""Rows as Avro: schemas, bytes, names, and what has no schema."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import BytesIO

import fastavro
import pyarrow as pa
import pytest

from slackwater.repr.errors import SlackwaterError
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc
from slackwater.storage.kafka.avro import avro_shape
from slackwater.storage.kafka.avro_writing import NoAvro, avro_rows, valid_name
from slackwater.storage.kafka.sink_avro import SchemaIds, SinkSchema, header
from slackwater.storage.kafka.sink_messages import (
    Encoder,
    KafkaSinkConfig,
    check_kafka_sink,
    message_forms,
)
from slackwater.storage.sink_rows import rows_within

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 18}


def array(element):
    return {"type": "array", "elementType": element, "containsNull": True}


def mapping(value, key="string"):
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": False}


def struct(*fields):
    listed = [{"name": n, "type": t, "nullable": null, "metadata": {}} for n, t, null in fields]
    return {"type": "struct", "fields": listed}


PAIR = struct(("a b", "integer", False), ("\u00e4", array("date"), True))
PAIR_SCHEMA = {
    "type": "record",
    "name": "slackwater.sink.c",
    "fields": [
        {"name": "a_b", "type": "int"},
        {
            "name": "_",
            "type": [
                "null",
                {"type": "array", "items": ["null", {"type": "int", "logicalType": "date"}]},
            ],
        },
    ],
}


@pytest.mark.parametrize(
    ("kind", "schema", "values"),
    [
        ("boolean", "boolean", [True, False]),
        ("byte", "int", [-128, 127]),
        ("short", "int", [-(2**15), 2**15 - 1]),
        ("integer", "int", [-(2**31), -65, -64, 0, 63, 64, 2**31 - 1]),
        ("long", "long", [-(2**63), -1, 8191, 8192, 2**63 - 1]),
        ("float", "float", [0.5, -0.0, float("inf")]),
        ("double", "double", [0.1, -0.0, 1e300, float("-inf")]),
        ("string", "string", ["", "zw\u00f6lf", "\0", "\U0001f30a"]),
        ("string collate UTF8_LCASE", "string", ["x" * 200]),
        ("varchar(3)", "string", ["abc"]),
        ("binary", "bytes", [b"", b"\0\xff"]),
        (
            "decimal(38,18)",
            DECIMAL,
            [Decimal(0), Decimal("1E-18"), Decimal("-1E-18"), Decimal(f"-{'9' * 20}.{'9' * 18}"),
             Decimal("1.28"), Decimal("-1.28")],
        ),
        ("date", {"type": "int", "logicalType": "date"}, [date(1, 1, 1), date(9999, 12, 31)]),
        (
            "timestamp",
            {"type": "long", "logicalType": "timestamp-micros"},
            [datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)],
        ),
        (
            "timestamp_ntz",
            {"type": "long", "logicalType": "local-timestamp-micros"},
            [datetime(1, 1, 1), datetime(2024, 2, 29, 1, 2, 3, 4)],
        ),
        (
            array("long"), {"type": "array", "items": ["null", "long"]}, [[], [None, 1], [5] * 200]
        ),
        (mapping("integer"), {"type": "map", "values": "int"}, [[], [("b", 1)]]),
        (
            PAIR, PAIR_SCHEMA,
            [{"a b": 1, "\u00e4": None}, {"a b": 2, "\u00e4": [None, date(1, 1, 1)]}],
        ),
        (struct(), {**PAIR_SCHEMA, "fields": []}, [{"__empty": None}]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("nullable", [False, True])
def test_a_value_of_each_type(kind, schema, values, nullable):
    """What is written is what the columns of a source read, with the same names of types."""
    desc = RelationDesc.from_json(json.dumps(struct(("c", kind, nullable))))
    form = avro_rows(desc.columns, "row")
    wanted = ["null", schema] if nullable else schema
    assert form.schema == {
        "type": "record",
        "name": "row",
        "fields": [{"name": "c", "type": wanted}],
    }
    values = [*values, None] if nullable else values
    column = pa.array(values, desc.arrow_schema().field(0).type)
    raw = form.encode(pa.table([column], schema=desc.arrow_schema()))
    shape = avro_shape(json.dumps(form.schema), is_key=False)
    plain = fastavro.parse_schema(json.loads(shape.schema))
    found = [shape.cells(fastavro.schemaless_reader(BytesIO(each), plain, None)) for each in raw]
    for (cell,), value in zip(found, values, strict=True):
        assert _named(cell) == _named(pa.array([value], column.type).to_pylist()[0]) or (
            _numbers(cell, value)
        )


def _named(value):
    """The value without the names of fields, which are other ones in Avro."""
    if isinstance(value, dict):
        return [_named(each) for name, each in value.items() if name != "__empty"]
    return [_named(each) for each in value] if isinstance(value, list | tuple) else value


def _numbers(cell, value):
    """Whether a number is a date or a time, or an array has such."""
    match value:
        case datetime():
            epoch = datetime(1970, 1, 1, tzinfo=value.tzinfo)
            return cell == (value - epoch) // timedelta(microseconds=1)
        case date():
            return cell == (value - date(1970, 1, 1)).days
        case {"a b": number, "\u00e4": dates}:
            days = [None if d is None else (d - date(1970, 1, 1)).days for d in dates]
            return list(cell.values()) == [number, days]
    return False


@pytest.mark.parametrize(
    ("name", "valid"),
    [("a", "a"), ("A_1", "A_1"), ("a-b", "a_b"), ("1a", "_1a"), ("\u00e4\u0661", "__"), ("", "_")],
)
def test_names(name, valid):
    assert valid_name(name) == valid


REGISTRY = GlobalId("u9")
DESC = RelationDesc.of(k="integer", v="string")


def config(envelope="UPSERT", key=("k",), **more):
    schema = SinkSchema(REGISTRY, **more)
    return KafkaSinkConfig(
        "t", "AVRO", "AVRO", envelope, key, key_schema=schema, value_schema=schema
    )


def column(name, kind):
    desc = RelationDesc.from_json(json.dumps(struct((name, kind, True))))
    return RelationDesc((*RelationDesc.of(k="integer").columns, *desc.columns))


@pytest.mark.parametrize(
    ("desc", "reason"),
    [
        (RelationDesc.of(**{"k": "long", "a-b": "long", "a_b": "long"}), "a-b and a_b would both"),
        (column("s", struct(("1", "long", True), ("_1", "long", True))), "1 and _1 would both be"),
        (column("m", mapping("long", "integer")), "the keys of maps are texts in Avro"),
        (column("m", mapping("long", struct())), "the keys of maps are texts in Avro"),
    ],
)  # fmt: skip
def test_columns_without_a_schema_are_refused(desc, reason):
    with pytest.raises(SlackwaterError, match="SLACKWATER_INVALID_OPTION") as caught:
        check_kafka_sink(config(), desc, "s")
    assert reason in caught.value.message
    with pytest.raises(NoAvro):
        avro_rows(desc.columns, "row")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"fullname": "a b"}, "a b is no name of a record"),
        ({"fullname": "a..b"}, "a..b is no name of a record"),
        ({"fullname": ""}, " is no name of a record"),
        ({"fullname": "shop.Row_1"}, None),
        ({"fullname": "x.row", "envelope": "DEBEZIUM"}, "x.row is the name of the rows in it"),
    ],
)
def test_names_of_records(more, reason):
    if reason is None:
        check_kafka_sink(config(**more), DESC, "s")
        return
    with pytest.raises(SlackwaterError, match="SLACKWATER_INVALID_OPTION") as caught:
        check_kafka_sink(config(**more), DESC, "s")
    assert reason in caught.value.message


def test_schemas_of_both_envelopes():
    fields = [
        {"name": "k", "type": ["null", "int"], "default": None},
        {"name": "v", "type": ["null", "string"], "default": None},
    ]
    forms = message_forms(config(null_defaults=True), DESC)
    assert json.loads(forms.key.schema) == {"type": "record", "name": "row", "fields": fields[:1]}
    assert json.loads(forms.value.schema) == {
        "type": "record",
        "name": "envelope",
        "fields": fields,
    }
    forms = message_forms(config("DEBEZIUM", (), fullname="shop.Change"), DESC)
    assert forms.key is None
    assert json.loads(forms.value.schema) == {
        "type": "record",
        "name": "shop.Change",
        "fields": [
            {
                "name": "before",
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "shop.row",
                        "fields": [{"name": f["name"], "type": f["type"]} for f in fields],
                    },
                ],
            },
            {"name": "after", "type": ["null", "shop.row"]},
        ],
    }
    for each in (forms, message_forms(config("DEBEZIUM", null_defaults=True), DESC)):
        fastavro.parse_schema(json.loads(each.value.schema))


def messages(made, rows):
    schema = DESC.update_schema()
    columns = list(zip(*rows, strict=True))
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)
    encoder = Encoder(made, DESC, "s", SchemaIds(7, 258))
    return encoder.messages(rows_within(DESC, [table], 0, 0, 100))


def test_messages_begin_with_the_ids_of_their_schemas():
    rows = [(1, "a", 1, 1), (1, "a", 2, -1), (1, "b", 2, 1), (2, None, 2, 1), (1, "b", 3, -1)]
    key, value = header(7), header(258)
    assert (key, value) == (b"\0\0\0\0\7", b"\0\0\0\1\2")
    found = messages(config(), rows)
    one, two = key + b"\2\2", key + b"\2\4"
    assert found.keys == [one, one, two, one]
    assert found.values == [value + b"\2\2\2\2a", value + b"\2\2\2\2b", value + b"\2\4\0", None]
    found = messages(config("DEBEZIUM"), rows)
    assert found.keys == [one, one, two, one]
    assert found.values == [
        value + b"\0\2\2\2\2\2a",
        value + b"\2\2\2\2\2a\2\2\2\2\2b",
        value + b"\0\2\2\4\0",
        value + b"\2\2\2\2\2b\0",
    ]


@pytest.mark.parametrize(
    ("kind", "value", "raw"),
    [
        (mapping("integer"), [("b", 1), ("a", 2)], b"\4\2a\4\2b\2\0"),
        ("decimal(5,2)", Decimal("-1.28"), b"\2\x80"),
        ("decimal(5,2)", Decimal("1.28"), b"\4\0\x80"),
        ("decimal(5,2)", Decimal("0.00"), b"\2\0"),
    ],
)
def test_a_value_has_one_form(kind, value, raw):
    """Entries of maps are in the order of their keys, and decimals as short as they can be."""
    desc = RelationDesc.from_json(json.dumps(struct(("c", kind, False))))
    column = pa.array([value], desc.arrow_schema().field(0).type)
    rows = pa.table([column], schema=desc.arrow_schema())
    assert avro_rows(desc.columns, "row").encode(rows) == [raw]
