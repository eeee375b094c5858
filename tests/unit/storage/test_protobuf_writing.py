"""Schemas of Protobuf that are made of columns, and the bytes of rows in them."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from tests.support.kafka.protobuf import classes

from slackwater.repr.errors import SlackwaterError
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc
from slackwater.storage.kafka.sink_avro import SchemaIds, SinkSchema
from slackwater.storage.kafka.sink_messages import (
    Encoder,
    KafkaSinkConfig,
    check_numbers,
    message_forms,
)

LIST = {"type": "array", "elementType": "string", "containsNull": False}
MAP = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": False}


def struct(**types):
    return {"type": "struct", "fields": [column(name, kind) for name, kind in types.items()]}


def column(name, kind, nullable=True):
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}


def described(*columns):
    key = column("k", "long", nullable=False)
    found = {"type": "struct", "fields": [key, *columns]}
    return RelationDesc.from_json(json.dumps(found))


def config(envelope="UPSERT", **around):
    schema = SinkSchema(GlobalId("u1"), **around)
    return KafkaSinkConfig(
        "t", "PROTOBUF", "PROTOBUF", envelope, ("k",), key_schema=schema, value_schema=schema
    )


def test_a_schema_has_its_columns_in_their_order():
    desc = described(
        column("day", "date"),
        column("at", "timestamp", nullable=False),
        column("tags", LIST),
        column("n of", MAP),
        column("place", struct(**{"2nd": "short", "inner": struct(x="binary")})),
        column("price", "decimal(9,2)", nullable=False),
    )
    docs = {"doc": "rows\nof a test", "column_docs": (("tags", "what is said"),)}
    assert message_forms(config(fullname="shop.v1.Item", **docs), desc).value.schema == (
        'syntax = "proto3";\n'
        "package shop.v1;\n"
        'import "google/protobuf/timestamp.proto";\n'
        "\n"
        "// rows\n"
        "// of a test\n"
        "message Item {\n"
        "  int64 k = 1;\n"
        "  optional string day = 2;\n"
        "  google.protobuf.Timestamp at = 3;\n"
        "  // what is said\n"
        "  repeated string tags = 4;\n"
        "  map<string, int64> n_of = 5;\n"
        "  message Place {\n"
        "    optional int32 c_2nd = 1;\n"
        "    message Inner {\n"
        "      optional bytes x = 1;\n"
        "    }\n"
        "    Inner inner = 2;\n"
        "  }\n"
        "  Place place = 6;\n"
        "  string price = 7;\n"
        "}\n"
    )
    assert message_forms(config(), desc).key.schema.startswith(
        'syntax = "proto3";\n\nmessage Key {\n'
    )


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ([column("a b", "long"), column("a_b", "long")], "a b and a_b would both be a_b"),
        ([column("a_b", "long"), column("aB", "long")], "a_b and aB would both be aB"),
        ([column("a", {**LIST, "containsNull": True})], "no NULL, and a may have some"),
        ([column("a", {**MAP, "valueContainsNull": True})], "no NULL, and a may have some"),
        ([column("a", {**LIST, "elementType": LIST})], "a has lists or maps in a list"),
        ([column("a", {**MAP, "valueType": LIST})], "a has lists or maps in a list or a map"),
        ([column("a", {**MAP, "keyType": "double"})], "and those of a are not"),
        ([column("a", {**MAP, "keyType": "decimal(3,1)"})], "and those of a are not"),
        ([column("s", struct(**{"x y": "long", "x.y": "long"}))], "x y and x.y would both be x_y"),
        ([column("a", MAP), column("AEntry", "long")], "the map a would be called AEntry"),
    ],
)
def test_columns_without_a_form_are_refused(columns, reason):
    with pytest.raises(SlackwaterError) as raised:
        message_forms(config(), described(*columns))
    assert raised.value.condition == "SLACKWATER_INVALID_OPTION"
    assert reason in str(raised.value)


def test_names_of_messages_are_those_of_protobuf():
    with pytest.raises(SlackwaterError, match="a b is no name of a message"):
        message_forms(config(fullname="a b"), described())


def test_messages_that_a_column_has_get_names_that_are_free():
    """Also from columns that are called as they would be, and in messages that are called so."""
    desc = described(
        column("Place", "long"),
        column("place", struct(place=struct(n="long"))),
        column("row", struct(google=struct(n="timestamp"))),
    )
    text = message_forms(config("DEBEZIUM", fullname="Row"), desc).value.schema
    row = classes(text)["Row"].DESCRIPTOR.fields_by_name["after"].message_type
    assert row.full_name == "Row.Row"
    assert row.fields_by_name["place"].message_type.full_name == "Row.Row.Place_"
    assert row.fields_by_name["Place"].message_type is None


def test_a_default_is_left_out_where_it_is_no_news():
    """As Protobuf's own writers leave it out; a field that may be missing says it."""
    desc = described(column("n", "integer", nullable=False), column("m", "integer"))
    rows = pa.Table.from_pylist(
        [
            {"k": 0, "n": 0, "m": 0, "__time": 1, "__diff": 1},
            {"k": 1, "n": -1, "m": None, "__time": 1, "__diff": 1},
        ],
        schema=desc.update_schema(),
    )
    sent = Encoder(config(), desc, "s", SchemaIds(7, 8)).messages(rows)
    begin = b"\0\0\0\0"
    assert sent.keys == [begin + b"\7\0", begin + b"\7\0\x08\1"]
    assert sent.values == [
        begin + b"\x08\0\x18\0",
        begin + b"\x08\0\x08\1\x10" + b"\xff" * 9 + b"\1",
    ]


def test_columns_keep_their_numbers():
    before = described(column("a", "long"), column("b", "long"))
    check_numbers(config(), before, described(*map(_long, "abc")), "s")
    for names in ("ba", "a", "cab"):
        with pytest.raises(SlackwaterError) as raised:
            check_numbers(config(), before, described(*map(_long, names)), "s")
        assert raised.value.condition == "SLACKWATER_COLUMN_MISMATCH"
        assert "k, a, b come first" in str(raised.value)


def _long(name):
    return column(name, "long")
