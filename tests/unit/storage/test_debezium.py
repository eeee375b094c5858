"""Messages of Debezium as rows, in the forms that its connectors give them."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from io import BytesIO

import fastavro
import pytest

from slackwater.adapter.external.avro import AvroMessages
from slackwater.planner.parser.kafka_source import Decoding, Included, Payload
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.relation import RelationDesc
from slackwater.storage.kafka.columns import source_columns
from slackwater.storage.kafka.debezium import narrowed, row_shape
from slackwater.storage.kafka.decoding import Decoder
from slackwater.storage.kafka.envelopes import ByKey, Reading
from slackwater.storage.kafka.shapes import MessageReaders, ReaderSchemas
from slackwater.storage.kafka.topic import Messages
from slackwater.storage.keyed_rows import RowsInMemory


def connect(kind, name, **more):
    """A type as Connect's converter writes it."""
    return {"type": kind, "connect.version": 1, "connect.name": name, **more}


DECIMAL = connect(
    "bytes",
    "org.apache.kafka.connect.data.Decimal",
    scale=2,
    precision=10,
    **{"connect.parameters": {"scale": "2", "connect.decimal.precision": "10"}},
    logicalType="decimal",
)
ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "price", "type": ["null", DECIMAL], "default": None},
        {"name": "made", "type": connect("int", "io.debezium.time.Date")},
        {"name": "at", "type": connect("long", "io.debezium.time.MicroTimestamp")},
        {"name": "seen", "type": connect("string", "io.debezium.time.ZonedTimestamp")},
        {"name": "day", "type": connect("int", "org.apache.kafka.connect.data.Date")
         | {"logicalType": "date"}},
        {"name": "any", "type": {
            "type": "record", "name": "VariableScaleDecimal", "namespace": "io.debezium.data",
            "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
        }},
        {"name": "other", "type": ["null", "io.debezium.data.VariableScaleDecimal"]},
    ],
    "connect.name": "srv.db.t.Value",
}  # fmt: skip
VALUES = {
    "id": 1,
    "name": None,
    "price": Decimal("12.50"),
    "made": 19_000,
    "at": -1,
    "seen": "2024-01-01T00:00:00Z",
    "day": 0,
    "any": {"scale": 1, "value": b"\x05"},
    "other": {"scale": 0, "value": b"\x07"},
}
MYSQL = [
    ("version", "string"),
    ("ts_ms", "long"),
    ("snapshot", [connect("string", "io.debezium.data.Enum"), "null"]),
    ("file", "string"),
    ("pos", "long"),
]
POSTGRES = [("version", "string"), ("lsn", ["null", "long"]), ("xmin", ["null", "long"])]
SQL_SERVER = [("change_lsn", ["null", "string"]), ("event_serial_no", ["null", "long"])]


def envelope(source, row=ROW, namespace="srv.db.t", **more):
    """The schema of messages, whose source block has these fields."""
    block = [{"name": n, "type": t} for n, t in source]
    fields = [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", row["name"]], "default": None},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": block}},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
        {"name": "transaction", "type": ["null", {
            "type": "record", "name": "block", "namespace": "event",
            "fields": [{"name": "id", "type": "string"}],
        }], "default": None},
    ]  # fmt: skip
    return {"type": "record", "name": "Envelope", "namespace": namespace, "fields": fields, **more}


def written(number, schema, value):
    stream = BytesIO(b"\0" + number.to_bytes(4, "big"))
    stream.seek(5)
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


KEY = {"type": "record", "name": "srv.db.t.Key", "fields": [{"name": "id", "type": "int"}]}
SOURCES = {
    2: (MYSQL, {"version": "3", "ts_ms": 1, "snapshot": "first", "file": "f", "pos": 1}),
    3: (POSTGRES, {"version": "3", "lsn": 7, "xmin": None}),
    4: (SQL_SERVER, {"change_lsn": "0:1", "event_serial_no": 2}),
}
BOTH = Payload("AVRO")
DECODING = Decoding(BOTH, BOTH, (), "DEBEZIUM")


def avro_decoder(schema, decoding=DECODING):
    """Decodes messages with keys, whose values are of all three upstreams."""
    texts = {n: json.dumps(envelope(block)) for n, (block, _) in SOURCES.items()}
    texts[1] = json.dumps(KEY)
    text = narrowed(json.dumps(schema))
    columns = source_columns(decoding, None, ReaderSchemas(texts[1], text))
    key = AvroMessages(columns.key_shape.schema, texts[1], writer=texts.get)
    value = AvroMessages(columns.value_shape.schema, text, writer=texts.get)
    return Decoder(decoding, columns, MessageReaders(key, value)), columns


def messages(*found, keys=None, offset=0):
    count = len(found)
    offsets = [offset + n for n in range(count)]
    return Messages([0] * count, offsets, [1] * count, keys or [b"k"] * count, list(found))


def test_rows_of_each_upstream():
    """The block about the source, which differs, is of no concern, and the key is there once."""
    decoder, columns = avro_decoder(envelope(MYSQL))
    key = written(1, KEY, {"id": 1})
    raw = [
        written(n, envelope(block), {"op": op, "before": None, "after": VALUES, "source": source})
        for op, (n, (block, source)) in zip("cur", SOURCES.items(), strict=True)
    ]
    found = decoder.rows(messages(*raw, keys=[key] * 3))
    assert (found.bad_keys, found.bad_values) == ({}, {})
    kinds = [json.loads(column.type_json) for column in columns.desc.columns]
    assert columns.desc.names == tuple(VALUES)
    assert kinds[:7] == ["integer", "string", "decimal(10,2)", "integer", "long", "string", "date"]
    assert [column.nullable for column in columns.desc.columns] == [
        False, True, True, False, False, False, False, False, True,
    ]  # fmt: skip
    assert found.rows.to_pylist() == [{**VALUES, "day": date(1970, 1, 1)}] * 3


def test_what_messages_do():
    """Deletions have a row before, empty tables have neither key nor row."""
    decoder, _ = avro_decoder(envelope(POSTGRES))
    schema, source = envelope(POSTGRES), SOURCES[3][1]
    both = {"before": None, "after": None, "source": source}
    raw = [
        written(3, schema, {**both, "op": "d", "before": VALUES}),
        written(3, schema, {**both, "op": "t"}),
        None,
        written(3, schema, {**both, "op": "u"}),
        written(3, schema, {**both, "op": "m"}),
        written(3, schema, {**both, "op": "c", "after": VALUES})[:-1],
    ]
    key = written(1, KEY, {"id": 1})
    found = decoder.rows(messages(*raw, keys=[key, None, key, key, key, key]))
    assert (sorted(found.deletes), found.truncates, found.places) == ([0, 2], [1], [])
    assert found.bad_values[3] == 'its op is "u", and it has no row after it'
    assert found.bad_values[4] == 'its op is "m"'
    assert found.bad_values[5].startswith("it is not Avro of its schema")


def test_the_key_of_a_name_is_beside_the_whole_row():
    decoding = Decoding(BOTH, BOTH, (Included("KEY", "k"), Included("OFFSET", "o")), "DEBEZIUM")
    _, columns = avro_decoder(envelope(MYSQL), decoding)
    assert columns.desc.names == ("k", *VALUES, "o")


def test_a_schema_is_narrowed_once():
    text = json.dumps(envelope(MYSQL))
    once = narrowed(text)
    assert narrowed(once) == once
    assert row_shape(once).columns == row_shape(text).columns
    assert [each["name"] for each in json.loads(once)["fields"]] == ["op", "after"]
    assert "event" not in once


def test_names_mean_what_they_meant_in_the_whole_schema():
    """A type that is defined in another field, within another namespace, and used twice."""
    pair = {
        "type": "record",
        "name": "other.Pair",
        "fields": [
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A"]}},
            {"name": "again", "type": ["null", "Kind"]},
        ],
    }
    row = {
        "type": "record",
        "name": "Value",
        "fields": [
            {"name": "list", "type": {"type": "array", "items": "other.Pair"}},
            {"name": "map", "type": {"type": "map", "values": "other.Kind"}},
        ],
    }
    schema = envelope([("pair", pair)], row)
    schema["fields"] = [schema["fields"][2], *schema["fields"][:2], *schema["fields"][3:]]
    text = json.dumps(schema)
    reader = AvroMessages(row_shape(text).schema, narrowed(text), writer=lambda _: text)
    one = {"kind": "A", "again": "A"}
    after = {"list": [one], "map": {"x": "A"}}
    raw = written(1, schema, {"op": "c", "before": None, "after": after, "source": {"pair": one}})
    assert row_shape(text).cells(reader.value(raw)["after"]) == [[one], [("x", "A")]]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("string", "a message is no record"),
        (["null", ROW, {**KEY, "name": "Other"}], "a message is no record"),
        (ROW, "the record has no field after"),
        (envelope(MYSQL) | {"fields": [{"name": "after", "type": "string"}]}, "the field after is"),
        (envelope(MYSQL) | {"fields": [{"name": "after", "type": "No"}]}, "the field after is no"),
    ],
)
def test_schemas_of_nothing_of_debezium(schema, reason):
    with pytest.raises(SlackwaterError, match="SLACKWATER_AVRO_SCHEMA") as caught:
        row_shape(json.dumps(schema))
    assert reason in caught.value.message


DECLARED = RelationDesc.from_json(
    '{"type": "struct", "fields": ['
    '{"name": "id", "type": "integer", "nullable": false, "metadata": {}},'
    '{"name": "price", "type": "decimal(10,2)", "nullable": true, "metadata": {}}]}'
)
JSON = Decoding(Payload("JSON"), Payload("JSON"), (), "DEBEZIUM")
IN_JSON = Decoder(JSON, source_columns(JSON, DECLARED))


def in_json(change, *, schema=False):
    found = {"schema": {"type": "struct"}, "payload": change} if schema else change
    return json.dumps(found).encode()


@pytest.mark.parametrize("schema", [False, True])
def test_json_with_and_without_its_schema(schema):
    """The text of the key is the same whatever its schema says."""
    key = in_json({"id": 1}, schema=schema)
    row = {"id": 1, "price": "1.50", "more": []}
    found = IN_JSON.rows(
        messages(
            in_json({"before": None, "after": row, "op": "r"}, schema=schema),
            in_json({"before": None, "after": {"id": 1}}, schema=schema),
            in_json({"before": row, "after": None, "op": "d"}, schema=schema),
            in_json({"before": row, "after": None}, schema=schema),
            in_json({"before": None, "after": None, "op": "t"}, schema=schema),
            b'{"schema": null, "payload": null}',
            None,
            keys=[key, key, key, key, None, key, key],
        )
    )
    assert (found.bad_keys, found.bad_values) == ({}, {})
    assert [tuple(row.values()) for row in found.rows.to_pylist()] == [
        (found.rows["key"][0].as_py(), 1, Decimal("1.50")),
        (found.rows["key"][1].as_py(), 1, None),
    ]
    assert json.loads(found.rows["key"][0].as_py()) == {"id": 1}
    assert (sorted(found.deletes), found.truncates) == ([2, 3, 5, 6], [4])
    assert found.keys[0] == found.keys[5] == IN_JSON.key_of(key)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\xff", "it is not UTF-8 text"),
        (b"{", "it is not JSON: "),
        (b"[]", "it is not a JSON object"),
        (b'{"id": 1, "price": 2}', "it has neither op nor after, as messages of Debezium have"),
        (b'{"op": "c", "after": 1}', "its row is not a JSON object"),
        (b'{"op": ["c"], "after": {}}', 'its op is ["c"]'),
        (b'{"op": "c", "after": {}}', "NULL in the column id"),
        (b'{"schema": {}, "payload": 1}', "its payload is not a JSON object"),
    ],
)
def test_what_is_no_message_of_debezium(value, reason):
    found = IN_JSON.rows(messages(value, keys=[b"1"]))
    assert found.bad_values[0].startswith(reason)
    assert found.rows.num_rows == 0


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b'{"schema": {"type": "struct"}, "payload": {"id": 1.10}}', '{"id":1.10}'),
        (b'{"schema": null, "payload": "a"}', '"a"'),
        (b'{"schema": 1, "payload": 2}', '{"schema": 1, "payload": 2}'),
        (b' {"id": 1}', ' {"id": 1}'),
        (b"7", "7"),
    ],
)
def test_keys_in_json(key, text):
    row = in_json({"op": "c", "after": {"id": 1}})
    assert IN_JSON.rows(messages(row, keys=[key])).rows["key"].to_pylist() == [text]


def steps(*found, decoding=JSON):
    """The rows, and the errors, after steps of (key, value)."""
    columns = source_columns(decoding, DECLARED)
    reading = Reading("t", decoding, Decoder(decoding, columns), lambda _: pytest.fail("large"))
    state = ByKey(reading, columns.desc, RowsInMemory({}, 10**6, "s"))
    rows, errors, told, offset = [], [], [], 0
    for step in found:
        state.take(messages(*(v for _, v in step), keys=[k for k, _ in step], offset=offset))
        offset += len(step)
        changes = state.changes()
        for row in [] if changes.rows is None else changes.rows.to_pylist():
            if row["__diff"] == 1:
                rows.append((row["key"], row["id"]))
            else:
                rows.remove((row["key"], row["id"]))
        for error, diff in changes.errors:
            errors.append(error) if diff == 1 else errors.remove(error)
        state.committed()
        told.append((sorted(rows), len(errors)))
    return told


def put(number):
    return b"%d" % number, in_json({"op": "c", "after": {"id": number}})


TRUNCATE = None, in_json({"op": "t", "after": None})
DELETE = in_json({"op": "d", "after": None})


def test_a_table_is_emptied_within_a_step_and_between_them():
    assert steps([put(1), TRUNCATE, put(2)], [put(3)], [TRUNCATE], [put(1)]) == [
        ([("2", 2)], 0),
        ([("2", 2), ("3", 3)], 0),
        ([], 0),
        ([("1", 1)], 0),
    ]
    # With errors that are told, of each key the last message counts; this one has none.
    assert steps([put(1), TRUNCATE, (None, DELETE)])[0] == ([], 1)


def test_errors_of_keys_go_with_the_next_good_message_and_with_the_table():
    bad = b"1", in_json({"op": "c", "after": {}})
    assert steps([put(1)], [bad], [put(1)], [bad], [(b"1", DELETE)], [bad], [TRUNCATE]) == [
        ([("1", 1)], 0), ([], 1), ([("1", 1)], 0), ([], 1), ([], 0), ([], 1), ([], 0),
    ]  # fmt: skip


def test_a_tombstone_without_its_deletion_deletes():
    """Compaction may have removed what stood before it."""
    assert steps([put(1), put(2)], [(b"1", None)], [(b"2", DELETE), (b"2", None)]) == [
        ([("1", 1), ("2", 2)], 0),
        ([("2", 2)], 0),
        ([], 0),
    ]


def test_a_table_without_keys_is_an_error_that_its_tombstones_do_not_hide():
    row = in_json({"op": "c", "after": {"id": 1}})
    assert steps([(None, row)], [(None, DELETE), (None, None)], [TRUNCATE]) == [
        ([], 1), ([], 1), ([], 0),
    ]  # fmt: skip


def test_a_schema_that_is_given_is_that_of_the_writers():
    """It is kept whole: messages have all of its fields."""
    schema, (_, source) = envelope(SQL_SERVER), SOURCES[4]
    text = json.dumps(schema)
    decoding = Decoding(BOTH, Payload("BYTES"), (), "DEBEZIUM")
    columns = source_columns(decoding, None, ReaderSchemas(value=text))
    reader = AvroMessages(columns.value_shape.schema, text, has_header=False)
    decoder = Decoder(decoding, columns, MessageReaders(value=reader))
    raw = written(1, schema, {"op": "c", "before": VALUES, "after": VALUES, "source": source})
    found = decoder.rows(messages(raw[5:]))
    assert found.rows.to_pylist() == [{"key": b"k", **VALUES, "day": date(1970, 1, 1)}]
