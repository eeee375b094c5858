"""Avro schemas as columns, and their values as cells."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from io import BytesIO

import fastavro
import pyarrow as pa
import pytest

from slackwater.adapter.external.avro import AvroMessages, check
from slackwater.adapter.external.wire_format import ASKED_AGAIN_S
from slackwater.planner.parser.kafka_source import Decoding, Included, Payload
from slackwater.repr.errors import SlackwaterError
from slackwater.storage.kafka.avro import avro_shape
from slackwater.storage.kafka.avro_meaning import other_meaning
from slackwater.storage.kafka.columns import source_columns
from slackwater.storage.kafka.decoding import Decoder
from slackwater.storage.kafka.envelopes import ByKey, Reading
from slackwater.storage.kafka.shapes import MessageReaders, ReaderSchemas
from slackwater.storage.kafka.topic import Messages
from slackwater.storage.keyed_rows import RowsInMemory


def logical(kind, name, **more):
    return {"type": kind, "logicalType": name, **more}


def record(*fields, name="R", **more):
    found = [{"name": n, "type": t, **rest} for n, t, rest in ((*f, {})[:3] for f in fields)]
    return {"type": "record", "name": name, "fields": found, **more}


def written(schema, value):
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


FIXED = {"type": "fixed", "name": "F", "size": 3}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
PAIR = record(("a", "int"), ("b", ["null", "string"]), name="P")
DECIMAL = logical("bytes", "decimal", precision=5, scale=2)
FIXED_DECIMAL = {**FIXED, **logical("fixed", "decimal", precision=5, scale=1)}
MEMBERS = ["null", "int", "string", record(("x", "int"), name="X"), record(("x", "int"), name="Y")]


@pytest.mark.parametrize(
    ("schema", "value", "kind", "cell"),
    [
        ("boolean", True, "boolean", True),
        ("int", -(2**31), "integer", -(2**31)),
        ("long", 2**63 - 1, "long", 2**63 - 1),
        ("float", 1.5, "float", 1.5),
        ("double", float("inf"), "double", float("inf")),
        ("string", "zw\u00f6lf", "string", "zw\u00f6lf"),
        ("bytes", b"\0\xff", "binary", b"\0\xff"),
        (FIXED, b"abc", "binary", b"abc"),
        (ENUM, "B", "string", "B"),
        (logical("int", "date"), -1, "date", -1),
        (logical("int", "time-millis"), 86_399_999, "string", "23:59:59.999"),
        (logical("long", "time-micros"), 1, "string", "00:00:00.000001"),
        (logical("long", "timestamp-millis"), -1, "timestamp", -1000),
        (logical("long", "timestamp-micros"), 2**62, "timestamp", 2**62),
        (logical("long", "local-timestamp-millis"), 5, "timestamp_ntz", 5000),
        (logical("long", "local-timestamp-micros"), 5, "timestamp_ntz", 5),
        (logical("string", "uuid"), "no uuid", "string", "no uuid"),
        (logical("long", "of another system"), 1, "long", 1),
        (DECIMAL, b"\xff\x85", "decimal(5,2)", Decimal("-1.23")),
        (FIXED_DECIMAL, b"\0\0\x0a", "decimal(5,1)", Decimal("1.0")),
        (["null", "long"], None, "long", None),
        (["long", "int"], 2**40, "long", 2**40),
        (["float", "double"], 0.1, "double", 0.1),
    ],
)
def test_a_value_of_each_type(schema, value, kind, cell):
    bare = _bare(schema)
    shape = avro_shape(json.dumps(schema), is_key=False)
    (column,) = shape.columns
    assert (column.name, json.loads(column.type_json)) == ("data", kind)
    assert column.nullable == (isinstance(schema, list) and "null" in schema)
    assert cells(schema, written(bare, value)) == [cell]
    as_field = record(("f", schema))
    assert cells(as_field, written(record(("f", bare)), {"f": value})) == [cell]
    # What Arrow makes of the cell is in the column that Spark has for the type.
    desc = source_columns(AVRO, None, ReaderSchemas(value=json.dumps(schema))).desc
    assert pa.array([cell], desc.arrow_schema().field(0).type).null_count == (cell is None)


def test_fields_whose_names_differ_in_case_alone():
    """Readers find fields of structs whatever their case, so these have other names in Arrow."""
    inner = record(("a", "int"), ("A", ["null", "int"]), name="I")
    schema = record(("r", inner), ("list", {"type": "array", "items": "I"}))
    text, value = json.dumps(schema), {"a": 1, "A": 2}
    columns = source_columns(AVRO, None, ReaderSchemas(value=text))
    reader = AvroMessages(columns.value_shape.schema, text, has_header=False)
    decoder = Decoder(AVRO, columns, MessageReaders(value=reader))
    message = written(schema, {"r": value, "list": [value]})
    found = decoder.rows(Messages([0], [0], [0], [None], [message])).rows.to_pylist()
    stored = {"a_1": 1, "A_2": 2}
    assert found == [{"r": stored, "list": [stored]}]


def _bare(schema):
    if isinstance(schema, dict):
        return {name: value for name, value in schema.items() if name != "logicalType"}
    return schema


def cells(schema, data):
    shape = avro_shape(json.dumps(schema), is_key=False)
    reader = AvroMessages(shape.schema, json.dumps(schema), has_header=False)
    return shape.cells(reader.value(data))


def test_nested_values():
    schema = record(
        ("list", {"type": "array", "items": ["null", DECIMAL]}),
        ("map", {"type": "map", "values": PAIR}),
        ("again", ["null", "P"]),
        name="ns.R",
    )
    value = {
        "list": [None, Decimal("1.00")],
        "map": {"k": {"a": 1, "b": None}},
        "again": {"a": 2, "b": "x"},
    }
    assert cells(schema, written(schema, value)) == [
        [None, Decimal("1.00")],
        [("k", {"a": 1, "b": None})],
        {"a": 2, "b": "x"},
    ]
    shape = avro_shape(json.dumps(schema), is_key=False)
    assert [column.nullable for column in shape.columns] == [False, False, True]
    desc = source_columns(AVRO, None, ReaderSchemas(value=json.dumps(schema))).desc
    assert [str(field.type) for field in desc.arrow_schema()] == [
        "list<element: decimal128(5, 2)>",
        "map<string, struct<a: int32 not null, b: string>>",
        "struct<a: int32 not null, b: string>",
    ]


@pytest.mark.parametrize(
    ("value", "place", "cell"),
    [
        (7, 0, 7),
        ("t", 1, "t"),
        (("X", {"x": 1}), 2, {"x": 1}),
        (("Y", {"x": 1}), 3, {"x": 1}),
    ],
)
def test_a_union_is_a_struct_with_a_field_for_each_type(value, place, cell):
    schema = record(("u", MEMBERS))
    ((found),) = cells(schema, written(schema, {"u": value}))
    assert found == {f"member{n}": cell if n == place else None for n in range(4)}
    assert cells(schema, written(schema, {"u": None})) == [None]
    # A writer that has one of the types alone.
    writer = record(("u", MEMBERS[place + 1]))
    plain = value[1] if isinstance(value, tuple) else value
    assert resolved(schema, writer, {"u": plain}) == [found]


def resolved(reader, writer, value):
    shape = avro_shape(json.dumps(reader), is_key=False)
    messages = AvroMessages(shape.schema, json.dumps(reader), writer=lambda _: json.dumps(writer))
    return shape.cells(messages.value(b"\0\0\0\0\1" + written(writer, value)))


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("null", "null alone has no column"),
        (["null"], "null alone has no column"),
        (record(("n", "null")), "null alone has no column"),
        (record(), "the record has no field"),
        (record(("t", ["null", "R"])), "the record R contains itself"),
        (record(("t", {"type": "array", "items": "R"})), "the record R contains itself"),
        (["int", "long", "string"], "whose values look the same"),
        ([ENUM, "string"], "whose values look the same"),
        ([FIXED, "bytes"], "whose values look the same"),
        (["bytes", "string"], "whose values look the same"),
        (record(("u", ["long", "string"], {"default": 7})), "several types has a default (u)"),
        ([PAIR, {"type": "map", "values": "int"}], "whose values look the same"),
        (logical("bytes", "decimal", precision=39, scale=0), "there is no DECIMAL(39, 0)"),
        (logical("bytes", "decimal", precision=2, scale=3), "DECIMAL(2, 3)"),
    ],
)
def test_schemas_without_columns(schema, reason):
    with pytest.raises(SlackwaterError, match="SLACKWATER_AVRO_SCHEMA") as caught:
        avro_shape(json.dumps(schema), is_key=False)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "Expecting"),
        ('"strange"', "it names strange"),
        ('{"type": "record"}', "name"),
        ('{"type": "fixed", "name": "F"}', "size"),
        ("7", "7 is no schema"),
    ],
)
def test_texts_that_are_no_schema(schema, reason):
    with pytest.raises(SlackwaterError, match="SLACKWATER_AVRO_SCHEMA") as caught:
        check(schema, "values")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "data", "reason"),
    [
        ("int", b"\x80\x80\x80\x80\x10", "2147483648 is not an int"),
        (logical("int", "time-millis"), b"\x01", "-1 is no time of day"),
        (logical("long", "timestamp-millis"), written("long", 2**60), "no time that a TIMESTAMP"),
        (DECIMAL, b"\x06\x01\x86\xa0", "more digits than DECIMAL(5, 2)"),
        ("string", b"\x02\xff", "it is not Avro of its schema"),
        ("string", b"\x04a", "it is not Avro of its schema"),
        ("long", b"", "it is not Avro of its schema"),
        (ENUM, b"\x10", "it is not Avro of its schema"),
        (["null", "int"], b"\x08", "it is not Avro of its schema"),
        ("int", b"\x02\x02", "1 bytes are left"),
    ],
)
def test_values_that_cannot_be_read(schema, data, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        cells(schema, data)


NEW = record(
    ("id", "long"),
    ("name", "string", {"aliases": ["title"]}),
    ("more", ["null", "int"], {"default": None}),
)


def test_writers_of_other_versions():
    assert resolved(NEW, record(("id", "int"), ("name", "string")), {"id": 1, "name": "a"}) == [
        1,
        "a",
        None,
    ]
    renamed = record(("title", "string"), ("gone", "bytes"), ("id", "long"))
    assert resolved(NEW, renamed, {"title": "t", "gone": b"x", "id": 2}) == [2, "t", None]
    for wrong, value in (
        (record(("id", "string"), ("name", "string")), {"id": "1", "name": "a"}),
        (record(("id", "long")), {"id": 1}),
    ):
        with pytest.raises(ValueError, match="its schema is none of the source's"):
            resolved(NEW, wrong, value)


def test_a_registry_is_asked_once_for_what_it_has_and_later_again_for_what_it_has_not():
    asked, known, now = [], {}, [0.0]

    def writer(number):
        asked.append(number)
        return known.get(number)

    messages = AvroMessages('"long"', '"long"', writer=writer, monotonic=lambda: now[0])
    for _ in range(2):
        with pytest.raises(ValueError, match="the registry has no schema 7"):
            messages.value(b"\0\0\0\0\7\x02")
    known[7] = '"int"'
    assert asked == [7]
    now[0] += ASKED_AGAIN_S
    assert [messages.value(b"\0\0\0\0\7\x02") for _ in range(3)] == [1, 1, 1]
    assert asked == [7, 7]
    known[8] = '{"type": "nothing"}'
    with pytest.raises(ValueError, match="the schema 8 is not Avro"):
        messages.value(b"\0\0\0\0\x08\x02")


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0", b"\1\0\0\0\7\x02", b"x"])
def test_messages_without_the_header(data):
    with pytest.raises(ValueError, match="it does not begin with a zero byte"):
        AvroMessages('"long"', '"long"').value(data)


AVRO = Decoding(Payload("AVRO"))
KEY = record(("a", "long"), ("b", ["null", "string"]), name="K")


@pytest.mark.parametrize(
    ("schema", "name", "names", "kinds"),
    [
        (KEY, None, ("a", "b"), ("long", "string")),
        (KEY, "n", ("n",), (None,)),
        (record(("a", "long"), name="K"), "n", ("n",), ("long",)),
        ("long", None, ("key",), ("long",)),
        ("long", "n", ("n",), ("long",)),
    ],
)
def test_columns_of_keys(schema, name, names, kinds):
    decoding = Decoding(Payload("TEXT"), Payload("AVRO"), (Included("KEY", name),), "UPSERT")
    columns = source_columns(decoding, None, ReaderSchemas(key=json.dumps(schema)))
    assert columns.key.names == names
    for column, kind in zip(columns.key.columns, kinds, strict=True):
        found = json.loads(column.type_json)
        assert found == kind or (kind is None and found["type"] == "struct")


def test_keys_are_the_same_whatever_schema_they_were_written_in():
    decoding = Decoding(Payload("TEXT"), Payload("AVRO"), (), "UPSERT")
    columns = source_columns(decoding, None, ReaderSchemas(key=json.dumps(KEY)))
    other = record(("b", "string"), ("a", "int"), name="K")
    schemas = {1: json.dumps(KEY), 2: json.dumps(other)}
    reader = AvroMessages(columns.key_shape.schema, json.dumps(KEY), writer=schemas.get)
    decoder = Decoder(decoding, columns, MessageReaders(key=reader))
    one = b"\0\0\0\0\1" + written(KEY, {"a": 7, "b": "x"})
    two = b"\0\0\0\0\2" + written(other, {"a": 7, "b": "x"})
    none = b"\0\0\0\0\1" + written(KEY, {"a": 7, "b": None})
    found = decoder.rows(
        Messages([0] * 4, range(4), [0] * 4, [one, two, none, b"bad"], [b"v", None, b"w", b"x"])
    )
    assert found.rows.to_pylist() == [
        {"a": 7, "b": "x", "text": "v"},
        {"a": 7, "b": None, "text": "w"},
    ]
    assert found.keys[0] == found.keys[1] == decoder.key_of(two)
    assert found.keys[2] not in (found.keys[0], found.keys[3])
    assert list(found.bad_keys) == [3]
    with pytest.raises(ValueError, match="zero byte"):
        decoder.key_of(b"bad")


def test_a_key_has_no_map():
    schema = json.dumps(record(("m", {"type": "map", "values": "int"})))
    assert avro_shape(schema, is_key=False).columns
    with pytest.raises(SlackwaterError, match="maps have no equality"):
        avro_shape(schema, is_key=True)


MILLIS, MICROS = logical("long", "timestamp-millis"), logical("long", "timestamp-micros")
INNER = record(("t", ["null", MILLIS]), name="I")


@pytest.mark.parametrize(
    ("writer", "reader", "told"),
    [
        (MILLIS, MICROS, "the value is a timestamp-millis, and not a timestamp-micros"),
        ("long", MICROS, None),
        (MILLIS, "long", None),
        (MILLIS, logical("long", "no type"), None),
        (DECIMAL, {**DECIMAL, "scale": 1}, "the value is a decimal with scale 2, and not a"),
        (DECIMAL, {**DECIMAL, "precision": 9}, None),
        (["null", MILLIS], MICROS, "the value is a timestamp-millis"),
        ({"type": "array", "items": MILLIS}, {"type": "array", "items": MICROS}, "the value is a"),
        ({"type": "map", "values": MILLIS}, {"type": "map", "values": MICROS}, "the value is a"),
        (record(("a", MILLIS)), record(("b", MICROS, {"aliases": ["a"]})), "b is a timestamp-m"),
        (record(("a", MILLIS)), record(("b", MICROS)), None),
        (
            record(("gone", INNER), ("x", "I"), name="n.R"),
            record(("x", record(("t", MICROS), name="n.I")), name="n.R"),
            "x.t is a timestamp-millis",
        ),
        (
            record(("gone", ["int", INNER]), ("x", {"type": "array", "items": "I"})),
            record(("x", {"type": "array", "items": record(("t", MICROS), name="I")})),
            "x.t is a timestamp-millis",
        ),
        (record(("l", ["null", "R"]), ("t", MILLIS)), record(("l", ["null", "R"])), None),
    ],
)
def test_numbers_that_mean_something_else_are_not_read(writer, reader, told):
    found = other_meaning(writer, reader)
    assert found == told if told is None else found.startswith(told)
    if told == "the value is a timestamp-millis, and not a timestamp-micros":
        with pytest.raises(ValueError, match="its schema is none of the source's"):
            resolved(reader, writer, 1)


def test_a_key_that_could_not_be_read_is_taken_back_when_it_can():
    decoding = Decoding(Payload("TEXT"), Payload("AVRO"), (), "UPSERT")
    columns = source_columns(decoding, None, ReaderSchemas(key='"long"'))
    schemas, now = {}, [0.0]
    reader = AvroMessages('"long"', '"long"', writer=schemas.get, monotonic=lambda: now[0])
    decoder = Decoder(decoding, columns, MessageReaders(key=reader))
    reading = Reading("t", decoding, decoder, lambda _: pytest.fail("nothing is large"))
    envelope = ByKey(reading, columns.desc, RowsInMemory({}, 10**6, "s"))
    taken = []
    for offset in range(2):
        envelope.take(Messages([0], [offset], [0], [b"\0\0\0\0\1\x02"], [b"v"]))
        changes = envelope.changes()
        rows = [] if changes.rows is None else changes.rows.to_pylist()
        taken.append((rows, [diff for _, diff in changes.errors], envelope.error_after(changes)))
        envelope.committed()
        schemas[1] = '"long"'
        now[0] += ASKED_AGAIN_S
    (_, come, told), (rows, gone, left) = taken
    assert (come, gone, left) == ([1], [-1], None)
    assert "the registry has no schema 1" in told
    assert rows == [{"key": 1, "text": "v", "__diff": 1}]
