"""Messages of Debezium in Protobuf as rows, as converters write them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.kafka.protobuf import classes, descriptors, framed

from slackwater.adapter.external.protobuf import ProtobufMessages, described
from slackwater.planner.parser.kafka_source import Decoding, Payload
from slackwater.repr.errors import SlackwaterError
from slackwater.storage.kafka.columns import source_columns
from slackwater.storage.kafka.decoding import Decoder
from slackwater.storage.kafka.shapes import MessageReaders, ReaderSchemas
from slackwater.storage.kafka.topic import Messages

KEY = 'syntax = "proto3"; message Key { int32 id = 1; }'
CHANGE = """
syntax = "proto3";
package srv.db.t;
import "google/protobuf/wrappers.proto";
message Envelope {
  message Value { int32 id = 1; optional string name = 2; google.protobuf.Int64Value price = 3; }
  message Source { string version = 1; int64 ts_ms = 2; }
  Value before = 1;
  Value after = 2;
  Source source = 3;
  string op = 5;
}
"""
OTHERS = CHANGE.replace("int64 ts_ms = 2;", "string ts_ms = 2; bool snapshot = 3;")
DECODING = Decoding(Payload("PROTOBUF"), Payload("PROTOBUF"), envelope="DEBEZIUM")


def decoded(text, *messages, writers=None):
    """The rows of pairs of a key and the bytes of a change, which name a schema by its number."""
    key = described(descriptors(KEY), None, "keys")
    value = described(descriptors(text), None, "values")
    columns = source_columns(DECODING, None, ReaderSchemas(key.types, value.types))
    files = {0: descriptors(KEY), **{n: descriptors(t) for n, t in (writers or {1: text}).items()}}
    readers = MessageReaders(
        ProtobufMessages(replace(key, types=columns.key_shape.types), True, files.get),
        ProtobufMessages(replace(value, types=columns.value_shape.types), True, files.get),
    )
    count = len(messages)
    keys = [framed(0, classes(KEY)["Key"](id=each).SerializeToString()) for each, _ in messages]
    return Decoder(DECODING, columns, readers).rows(
        Messages([0] * count, range(count), [0] * count, keys, [each for _, each in messages])
    )


def change(text=CHANGE, schema=1, **values):
    return framed(schema, classes(text)["srv.db.t.Envelope"](**values).SerializeToString())


def test_what_messages_do():
    found = decoded(
        CHANGE,
        (1, change(op="c", after={"id": 1, "name": "a", "price": {"value": 0}})),
        (2, change(op="r", after={"id": 2})),
        (3, change(op="u", before={"id": 3}, after={"id": 3, "name": ""})),
        (4, change(op="d", before={"id": 4, "name": "x"})),
        (5, None),
        (6, change(op="t")),
        (7, change(op="c")),
        (8, change(op="m")),
        (9, change()),
    )
    assert [list(row.values()) for row in found.rows.to_pylist()] == [
        [1, "a", 0],
        [2, None, None],
        [3, "", None],
    ]
    assert (list(found.deletes), list(found.truncates)) == ([4, 3], [5])
    assert found.bad_values == {
        6: 'its op is "c", and it has no row after it',
        7: 'its op is "m"',
        8: 'its op is ""',
    }


def test_nothing_counts_but_the_row_and_what_has_happened():
    """The block about the source may change as it likes; the row may not."""
    row = CHANGE.replace("optional string name = 2;", "optional int32 name = 2;")
    found = decoded(
        CHANGE,
        (1, change(OTHERS, 2, op="c", after={"id": 1}, source={"ts_ms": "now"})),
        (2, change(row, 3, op="c", after={"id": 2, "name": 7})),
        writers={1: CHANGE, 2: OTHERS, 3: row},
    )
    assert found.rows.to_pylist() == [{"id": 1, "name": None, "price": None}]
    assert "after.name is int32, and not string" in found.bad_values[1]


@pytest.mark.parametrize("word", ["optional string", "google.protobuf.StringValue"])
def test_without_op_the_row_decides(word):
    text = CHANGE.replace("string op", f"{word} op")
    op = "c" if word.startswith("optional") else {"value": "c"}
    found = decoded(
        text,
        (1, change(text, after={"id": 1})),
        (2, change(text)),
        (3, change(text, op=op, after={"id": 3})),
    )
    assert [row["id"] for row in found.rows.to_pylist()] == [1, 3]
    assert list(found.deletes) == [1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (KEY, "Key has no message as its field after"),
        (
            CHANGE.replace("Value after", "repeated Value after"),
            "has no message as its field after",
        ),
        (CHANGE.replace("string op", "int32 op"), "the field op of srv.db.t.Envelope is no text"),
    ],
)
def test_schemas_of_nothing_of_debezium(text, reason):
    with pytest.raises(SlackwaterError) as raised:
        decoded(text)
    assert raised.value.condition == "SLACKWATER_PROTOBUF_SCHEMA"
    assert reason in str(raised.value)
