"""Types and values of Avro as Spark's own ``from_avro`` has them."""

from __future__ import annotations

import json
from decimal import Decimal
from io import BytesIO

import fastavro
import pytest

from slackwater.adapter.external.avro import AvroMessages
from slackwater.planner.parser.kafka_source import Decoding, Payload
from slackwater.repr.relation import RelationDesc
from slackwater.storage.kafka.avro_writing import avro_rows
from slackwater.storage.kafka.columns import source_columns
from slackwater.storage.kafka.decoding import Decoder
from slackwater.storage.kafka.shapes import MessageReaders, ReaderSchemas
from slackwater.storage.kafka.topic import Messages

pytestmark = pytest.mark.spark


def logical(kind, name, **more):
    return {"type": kind, "logicalType": name, **more}


def record(name, *fields):
    found = [{"name": n, "type": t, **rest} for n, t, rest in ((*f, {})[:3] for f in fields)]
    return {"type": "record", "name": name, "fields": found}


FIXED = {"type": "fixed", "name": "F", "size": 2}
UUID = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "A"}
PAIR = record("P", ("a", "int"), ("b", ["null", "string"]))
DECIMAL = logical("bytes", "decimal", precision=9, scale=2)
FIXED_DECIMAL = {"type": "fixed", "name": "D", "size": 4, **logical("fixed", "decimal")}
FIXED_DECIMAL |= {"precision": 5, "scale": 1}
MEMBERS = ["null", "int", "string", record("X", ("x", "int")), record("Y", ("x", "int"))]

ALIKE = [
    ("boolean", [True, False]),
    ("int", [0, -(2**31), 2**31 - 1]),
    ("long", [-(2**63), 2**63 - 1]),
    ("float", [0.1, -0.0, float("inf")]),
    ("double", [0.1, 1e300, float("-inf")]),
    ("string", ["", "zw\u00f6lf", "\U0001f30a"]),
    ("bytes", [b"", b"\0\xff"]),
    (FIXED, [b"ab"]),
    (UUID, [b"0123456789abcdef"]),
    (ENUM, ["B"]),
    (logical("int", "date"), [0, -719_162, 40_000]),
    (logical("long", "timestamp-millis"), [0, -1, 253_402_300_799_999]),
    (logical("long", "timestamp-micros"), [0, -1, 1_700_000_000_123_456]),
    (logical("long", "local-timestamp-millis"), [0, 86_400_001]),
    (logical("long", "local-timestamp-micros"), [0, -1]),
    (logical("long", "timestamp-nanos"), [5]),
    (logical("string", "uuid"), ["no uuid"]),
    (DECIMAL, [Decimal("0.00"), Decimal("-1.23"), Decimal("9999999.99")]),
    (FIXED_DECIMAL, [Decimal("-0.1"), Decimal("9999.9")]),
    ({"type": "array", "items": ["null", "int"]}, [[], [1, None]]),
    ({"type": "array", "items": PAIR}, [[{"a": 1, "b": None}]]),
    ({"type": "map", "values": ["null", DECIMAL]}, [{}, {"k": Decimal("1.00")}, {"n": None}]),
    (PAIR, [{"a": 1, "b": "x"}, {"a": 2, "b": None}]),
    (["null", PAIR], [None, {"a": 1, "b": "x"}]),
    (["int"], [1]),
    (["int", "long"], [1, 2**40]),
    (["null", "double", "float"], [0.5, None]),
    (MEMBERS, [None, 1, "t", ("X", {"x": 1}), ("Y", {"x": 2})]),
    (["boolean", {"type": "array", "items": "int"}, "bytes"], [True, [1], b"x"]),
    (["double", "long"], [0.5, 2**53 + 1]),
]


@pytest.mark.parametrize(
    ("schema", "values"), ALIKE, ids=lambda each: json.dumps(each, default=str)
)
def test_types_and_values(spark, schema, values):
    schema = record("R", ("f", schema))
    written = [{"f": value} for value in values]
    assert as_spark(spark, schema, _plain(schema), written) == as_read(
        spark, schema, _plain(schema), written
    )


def test_values_of_another_writer(spark):
    reader = record(
        "R",
        ("id", "long"),
        ("name", "string", {"aliases": ["title"]}),
        ("more", ["null", "int"], {"default": None}),
        ("wide", "double"),
        ("kind", ENUM),
        ("either", MEMBERS),
        ("inner", record("I", ("z", "long", {"default": 7}), ("y", ["null", "string"]))),
    )
    writer = record(
        "R",
        ("gone", {"type": "array", "items": "string"}),
        ("either", "string"),
        ("title", "string"),
        ("kind", {**ENUM, "symbols": ["B", "C"], "default": "C"}),
        ("inner", record("I", ("y", "string"), ("x", "bytes"))),
        ("id", "int"),
        ("wide", "float"),
    )
    value = {
        "gone": ["a"],
        "either": "s",
        "title": "t",
        "inner": {"y": "y", "x": b"x"},
        "id": 3,
        "wide": 0.5,
    }
    written = [{**value, "kind": "B"}, {**value, "kind": "C"}]
    assert as_spark(spark, reader, writer, written) == as_read(spark, reader, writer, written)


def test_a_long_is_no_double_where_a_union_has_both(spark):
    reader, writer = record("R", ("f", ["null", "double", "long"])), record("R", ("f", "long"))
    written = [{"f": 2**53 + 1}]
    assert as_spark(spark, reader, writer, written) == as_read(spark, reader, writer, written)


DEFAULTS = [
    ("bytes", "\u00ff"),
    (FIXED, "\u00ff\u0000"),
    (DECIMAL, "\u0001\u00ff"),
    (["bytes", "null"], "\u00ff"),
    ({"type": "array", "items": "bytes"}, ["\u00ff"]),
    ({"type": "map", "values": "long"}, {"k": 1}),
    ("double", 1),
    (PAIR, {"a": 1, "b": None}),
    (record("Z", ("a", "int", {"default": 5}), ("b", "bytes")), {"b": "\u00ff"}),
    (ENUM, "B"),
    (["null", "double", "long"], None),
]


@pytest.mark.parametrize(("schema", "default"), DEFAULTS)
def test_defaults(spark, schema, default):
    reader = record("R", ("id", "int"), ("f", schema, {"default": default}))
    writer = record("R", ("id", "int"))
    written = [{"id": 1}]
    assert as_spark(spark, reader, writer, written) == as_read(spark, reader, writer, written)


WRITTEN = """
  SELECT id, CAST(id AS BYTE) b, CAST(-id AS SHORT) sh, CAST(id AS INT) i, id = 1 bo,
    CAST(id / 3 AS FLOAT) f, CAST(-id / 7 AS DOUBLE) d, concat('zw\u00f6lf', id) s,
    CAST(repeat('x', 99) AS BINARY) bi, CAST(id - 1.5 AS DECIMAL(38, 18)) de,
    CAST(-id AS DECIMAL(5, 0)) du, date_sub(DATE '0001-01-01', 400 * CAST(id AS INT)) da,
    timestamp_micros(-70000000000000000 * id) ts,
    TIMESTAMP_NTZ '0001-01-01 00:00:00.000001' nt,
    IF(id = 1, NULL, array(id, NULL)) ar, map('k', named_struct('n', id, 'm', array(id))) ma,
    IF(id = 2, NULL, named_struct('a', nullif(id, 1),
      'b', nullif(named_struct('c', nullif(id, 0)), NULL))) st
  FROM range(3)
"""


def test_rows_of_sinks(spark):
    """Spark reads the rows that sinks write, as they were, dates before the year 1 among them."""
    frame = spark.sql(WRITTEN)
    desc = RelationDesc.from_json(frame.schema.json())
    form = avro_rows(desc.columns, "row")
    rows = frame.toArrow().cast(desc.arrow_schema())
    schema = json.dumps(form.schema)
    types, found = deserialized(spark, schema, schema, form.encode(rows))
    assert found == [row.json() for row in frame._jdf.collectAsList()]
    assert types == [_as_read(each.spark_type) for each in desc.columns]


def _as_read(kind):
    """Spark's type of what it reads: Avro has no numbers of one or two bytes."""
    return (
        {"byte": "integer", "short": "integer"}.get(kind, kind) if isinstance(kind, str) else kind
    )


def _plain(schema):
    """The schema for fastavro's writer, which is given numbers for times."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = schema.get("logicalType") == "decimal"
    return {
        name: _plain(value) if isinstance(value, dict | list) else value
        for name, value in schema.items()
        if kept or name != "logicalType"
    }


def data(writer, value):
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(writer), value)
    return stream.getvalue()


def as_read(spark, reader, writer, values):
    """Types and values as a source of a topic has them."""
    text = json.dumps(reader)
    columns = source_columns(Decoding(Payload("AVRO")), None, ReaderSchemas(value=text))
    messages = AvroMessages(columns.value_shape.schema, text, writer=lambda _: json.dumps(writer))
    decoder = Decoder(Decoding(Payload("AVRO")), columns, MessageReaders(value=messages))
    raw = [b"\0\0\0\0\1" + data(writer, value) for value in values]
    count = len(raw)
    found = decoder.rows(Messages([0] * count, range(count), [0] * count, [None] * count, raw))
    assert found.bad_values == {}
    frame = spark.createDataFrame(found.rows)
    types = [json.loads(each.type_json) for each in columns.value_shape.columns]
    return types, [row.json() for row in frame._jdf.collectAsList()]


def as_spark(spark, reader, writer, values):
    """Types and values as Spark's deserializer has them."""
    raw = [data(writer, value) for value in values]
    return deserialized(spark, json.dumps(reader), json.dumps(writer), raw)


def deserialized(spark, reader, writer, raw):
    jvm = spark._jvm
    avro, sql = jvm.org.apache.avro, jvm.org.apache.spark.sql
    wanted = avro.Schema.Parser().parse(reader)
    written = avro.Schema.Parser().parse(writer)
    kind = getattr(getattr(sql.avro, "SchemaConverters$"), "MODULE$").toSqlType(wanted).dataType()
    deserializer = sql.avro.AvroDeserializer(wanted, kind, "CORRECTED", False, "", -1)
    outside = getattr(getattr(sql.catalyst, "CatalystTypeConverters$"), "MODULE$")
    rows = []
    for each in raw:
        decoder = avro.io.DecoderFactory.get().binaryDecoder(each, None)
        found = avro.generic.GenericDatumReader(written, wanted).read(None, decoder)
        rows.append(outside.convertToScala(deserializer.deserialize(found).get(), kind).json())
    return [field["type"] for field in json.loads(kind.json())["fields"]], rows
