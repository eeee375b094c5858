"""Messages of Protobuf as columns, and their values as cells."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.support.kafka.protobuf import classes, descriptors, written

from slackwater.adapter.external.protobuf import ProtobufMessages, described
from slackwater.planner.parser.kafka_source import Decoding, Included, Payload
from slackwater.repr.errors import SlackwaterError
from slackwater.storage.kafka.columns import source_columns
from slackwater.storage.kafka.decoding import Decoder
from slackwater.storage.kafka.protobuf import protobuf_shape
from slackwater.storage.kafka.protobuf_types import changed_field
from slackwater.storage.kafka.shapes import MessageReaders, ReaderSchemas
from slackwater.storage.kafka.topic import Messages

PROTOBUF = Decoding(Payload("PROTOBUF"))


def types_of(text, message=None):
    return described(descriptors(text), message, "values").types


def columns_of(text, message=None, **more):
    """The names and types of the columns."""
    shape = protobuf_shape(types_of(text, message), **{"is_key": False, **more})
    return {each.name: json.loads(each.type_json) for each in shape.columns}


def rows_of(text, *messages, message=None):
    """The rows of messages as Arrow has them, with the columns that Spark has."""
    found = described(descriptors(text), message, "values")
    columns = source_columns(PROTOBUF, None, ReaderSchemas(value=found.types))
    decoder = Decoder(PROTOBUF, columns, MessageReaders(value=ProtobufMessages(found, False)))
    count = len(messages)
    nothing = [0] * count, range(count), [0] * count, [None] * count
    decoded = decoder.rows(Messages(*nothing, messages))
    assert not decoded.bad_values, decoded.bad_values
    return decoded.rows.to_pylist()


def problem_of(text, message):
    """What is wrong with a message."""
    found = described(descriptors(text), None, "values")
    shape = protobuf_shape(found.types, is_key=False)
    with pytest.raises(ValueError, match=r"\w") as caught:
        shape.cells(ProtobufMessages(found, False).value(message))
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "column", "values"),
    [
        ("double", "double", [1.5, float("-inf")]),
        ("float", "float", [0.5, -0.0]),
        ("int64", "long", [-(2**63), 2**63 - 1]),
        ("uint64", "decimal(20,0)", [2**64 - 1]),
        ("int32", "integer", [-(2**31), 2**31 - 1]),
        ("fixed64", "decimal(20,0)", [2**64 - 1]),
        ("fixed32", "long", [2**32 - 1]),
        ("bool", "boolean", [True]),
        ("string", "string", ["zw\u00f6lf", "\U0001f30a"]),
        ("bytes", "binary", [b"\0\xff"]),
        ("uint32", "long", [2**32 - 1]),
        ("sfixed32", "integer", [-(2**31)]),
        ("sfixed64", "long", [-(2**63)]),
        ("sint32", "integer", [-(2**31)]),
        ("sint64", "long", [-(2**63)]),
    ],
)
def test_a_value_of_each_kind(kind, column, values):
    text = f'syntax = "proto3"; message M {{ {kind} f = 1; repeated {kind} many = 2; }}'
    listed = {"type": "array", "elementType": column, "containsNull": False}
    assert columns_of(text) == {"f": column, "many": listed}
    given = [written(text, "M", f=each, many=[each, each]) for each in values]
    assert rows_of(text, *given) == [{"f": each, "many": [each, each]} for each in values]


OF_BEFORE = """
syntax = "proto2";
message M {
  required int32 must = 1;
  optional int32 may = 2;
  optional int32 given = 3 [default = 7];
  optional string text = 4;
  optional E e = 5;
  optional E other = 6 [default = B];
  repeated E many = 7;
  optional group Part = 8 { optional int32 x = 1; }
  extensions 100 to 200;
}
extend M { optional int32 extension = 100; }
enum E { option allow_alias = true; A = 0; B = 1; ALSO_B = 1; }
"""
OF_NOW = """
syntax = "proto3";
message M {
  int32 plain = 1;
  optional int32 may = 2;
  oneof either { string text = 3; bytes raw = 4; }
  E e = 5;
  Inner inner = 6;
  map<string, Inner> by_name = 7;
  map<int32, uint64> by_number = 8;
  repeated Inner many = 9;
  Nothing nothing = 10;
  repeated Nothing nothings = 11;
  map<string, Nothing> no_map = 12;
  int32 import = 13;
}
message Inner { int64 a = 1; optional E e = 2; int32 A = 3; }
message Nothing {}
enum E { Z = 0; Y = 1; }
"""
OF_EDITIONS = """
edition = "2023";
message M {
  int32 explicit = 1;
  int32 implicit = 2 [features.field_presence = IMPLICIT];
  int32 must = 3 [features.field_presence = LEGACY_REQUIRED];
  E e = 4;
}
enum E { option features.enum_type = CLOSED; A = 0; }
"""


def test_presence_in_the_syntax_of_before():
    shape = protobuf_shape(types_of(OF_BEFORE), is_key=False)
    assert [each.name for each in shape.columns if not each.nullable] == ["must"]
    nothing = {"must": 0, "may": None, "given": 7, "text": None, "e": None, "other": "B"}
    assert rows_of(
        OF_BEFORE,
        written(OF_BEFORE, "M", must=0),
        written(OF_BEFORE, "M", must=1, may=0, given=0, text="", e=1, many=[1, 0], part={"x": 3}),
        # An enum of this syntax has no other numbers, and of an extension nothing is known.
        written(OF_BEFORE, "M", must=0) + b"\x28\x09\xa0\x06\x05",
    ) == [
        {**nothing, "many": [], "part": None},
        {
            "must": 1, "may": 0, "given": 0, "text": "", "e": "B", "other": "B",
            "many": ["B", "A"], "part": {"x": 3},
        },
        {**nothing, "many": [], "part": None},
    ]  # fmt: skip
    assert problem_of(OF_BEFORE, b"") == "it is no message M: it lacks must"
    bad = written(OF_BEFORE, "M", must=0) + b"\x22\x01\xff"
    assert problem_of(OF_BEFORE, bad) == "it has a string that is not UTF-8 text"


def test_presence_in_the_syntax_of_now():
    assert rows_of(OF_NOW, b"", message="M") == [
        {
            "plain": 0, "may": None, "text": None, "raw": None, "e": "Z", "inner": None,
            "by_name": [], "by_number": [], "many": [], "import": 0,
        }
    ]  # fmt: skip
    message = classes(OF_NOW)["M"](
        may=0,
        raw=b"",
        inner={"a": 1, "A": 2},
        by_name={"k": {"e": 1}},
        by_number={-1: 2**64 - 1},
        many=[{}, {"e": 0}],
    )
    # An enum of this syntax may have any number.
    found = rows_of(OF_NOW, message.SerializeToString() + b"\x28\x09", message="M")
    assert found == [
        {
            "plain": 0, "may": 0, "text": None, "raw": b"", "e": "UNKNOWN_ENUM_VALUE_E_9",
            "inner": {"a_1": 1, "e_2": None, "A_3": 2},
            "by_name": [("k", {"a_1": 0, "e_2": "Y", "A_3": 0})],
            "by_number": [(-1, Decimal(2**64 - 1))],
            "many": [{"a_1": 0, "e_2": None, "A_3": 0}, {"a_1": 0, "e_2": "Z", "A_3": 0}],
            "import": 0,
        }
    ]  # fmt: skip


def test_presence_as_editions_say():
    shape = protobuf_shape(types_of(OF_EDITIONS), is_key=False)
    assert [each.nullable for each in shape.columns] == [True, True, False, True]
    assert rows_of(OF_EDITIONS, b"\x18\x01\x20\x07") == [
        {"explicit": None, "implicit": 0, "must": 1, "e": None}
    ]


KNOWN = """
syntax = "proto3";
package k;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/any.proto";
message M {
  google.protobuf.Timestamp at = 1;
  google.protobuf.Duration length = 2;
  google.protobuf.UInt64Value wide = 3;
  google.protobuf.StringValue text = 4;
  repeated google.protobuf.BoolValue flags = 5;
  google.protobuf.Any any = 6;
  map<string, google.protobuf.Timestamp> times = 7;
}
"""


def test_messages_that_everybody_knows():
    message = classes(KNOWN)["k.M"](wide={"value": 2**64 - 1}, text={}, flags=[{}, {"value": True}])
    message.at.seconds, message.at.nanos = -62_135_596_800, 123_456_789
    message.length.nanos = -1
    message.times["k"].seconds = 253_402_300_799
    columns = columns_of(KNOWN)
    assert (columns["at"], columns["wide"]) == ("timestamp", "decimal(20,0)")
    ((at, length, wide, text, flags, any_, times),) = [
        protobuf_shape(types_of(KNOWN), is_key=False).cells(message)
    ]
    assert at == -62_135_596_800_000_000 + 123_456
    assert length == {"seconds": 0, "nanos": -1}
    assert (wide, text, flags, any_) == (Decimal(2**64 - 1), "", [False, True], None)
    assert times == [("k", 253_402_300_799_000_000)]
    assert rows_of(KNOWN, b"")[0]["wide"] is None
    far = classes(KNOWN)["k.M"]()
    far.at.seconds = 2**62
    assert "no time that a TIMESTAMP can have" in problem_of(KNOWN, far.SerializeToString())


def test_what_has_no_columns():
    proto = 'syntax = "proto3"; '
    for text, reason, is_key in (
        ("message M { int32 a = 1; M m = 2; }", "the message M contains itself", False),
        ("message M { N n = 1; } message N { repeated M m = 1; }", "M contains itself", False),
        ("message M {}", "the message M has no field", False),
        ("message M { N n = 1; } message N {}", "the message M has no field", False),
        ("message M { map<string, int32> m = 1; }", "maps have no equality", True),
        ('import "google/protobuf/struct.proto"; message M { google.protobuf.Struct s = 1; }',
         "the message google.protobuf.Struct contains itself", False),
    ):  # fmt: skip
        with pytest.raises(SlackwaterError, match="SLACKWATER_PROTOBUF_SCHEMA") as caught:
            protobuf_shape(types_of(proto + text, "M"), is_key=is_key)
        assert reason in str(caught.value)


PAIR = 'syntax = "proto3"; message K { int32 id = 1; string part = 2; }'
SINGLE = 'syntax = "proto3"; message K { int32 id = 1; }'


def test_keys():
    """The fields are columns; under a name they are one."""
    assert columns_of(PAIR, is_key=True) == {"id": "integer", "part": "string"}
    assert columns_of(SINGLE, is_key=True, name="k") == {"k": "integer"}
    assert columns_of(PAIR, is_key=True, name="k")["k"]["type"] == "struct"
    found = described(descriptors(PAIR), None, "keys")
    value = described(descriptors(SINGLE), None, "values")
    decoding = Decoding(Payload("PROTOBUF"), Payload("PROTOBUF"), (Included("KEY", "k"),), "UPSERT")
    columns = source_columns(decoding, None, ReaderSchemas(found.types, value.types))
    readers = MessageReaders(ProtobufMessages(found, False), ProtobufMessages(value, False))
    decoder = Decoder(decoding, columns, readers)
    # The same key with its fields in another order.
    keys = [b"\x08\x01\x12\x01p", b"\x12\x01p\x08\x01", b"\x12\x01q", b"\xff"]
    values = [written(SINGLE, "K", id=5), None, b"\xff", b""]
    decoded = decoder.rows(Messages([0] * 4, range(4), [0] * 4, keys, values))
    assert decoded.rows.to_pylist() == [{"k": {"id": 1, "part": "p"}, "id": 5}]
    assert decoded.keys[0] == decoded.keys[1] != decoded.keys[2]
    assert decoded.deletes == [1]
    assert set(decoded.bad_keys) == {3}
    assert set(decoded.bad_values) == {2}
    assert decoder.key_of(keys[1]) == decoded.keys[0]


def test_fields_may_be_called_as_what_messages_do():
    text = """syntax = "proto2"; message M {
      optional int32 HasField = 1; optional int32 FromString = 2; required int32 IsInitialized = 3;
      optional M2 FindInitializationErrors = 4; optional int32 class = 5;
    } message M2 { repeated int32 items = 1; optional int32 HasField = 2; }"""
    found = described(descriptors(text), "M", "values")
    shape, messages = protobuf_shape(found.types, is_key=False), ProtobufMessages(found, False)
    assert shape.cells(messages.value(b"\x10\x05\x18\x06\x22\x02\x10\x07\x28\x08")) == [
        None, 5, 6, {"items": [], "HasField": 7}, 8,
    ]  # fmt: skip
    with pytest.raises(ValueError, match="it lacks IsInitialized"):
        messages.value(b"\x22\0")


def test_columns_can_be_left_out():
    shape = protobuf_shape(types_of(PAIR), is_key=False).without(["ID"])
    assert [each.name for each in shape.columns] == ["part"]
    assert shape.cells(classes(PAIR)["K"](id=1, part="p")) == ["p"]


def test_cells_of_nothing_have_their_types():
    """A batch in which nothing can be read has columns as any other."""
    found = described(descriptors(KNOWN), None, "values")
    columns = source_columns(PROTOBUF, None, ReaderSchemas(value=found.types))
    decoder = Decoder(PROTOBUF, columns, MessageReaders(value=ProtobufMessages(found, False)))
    decoded = decoder.rows(Messages([0], [0], [0], [None], [b"\xff"]))
    assert decoded.rows.num_rows == 0
    assert decoded.rows.schema.field("at").type == pa.timestamp("us", tz="UTC")
    assert set(decoded.bad_values) == {0}


@pytest.mark.parametrize(
    ("writer", "reader", "change"),
    [
        ("int32 a = 1;", "int64 b = 1;", None),
        ("uint32 a = 1;", "uint64 a = 1; string more = 2;", None),
        ("int32 a = 1; string gone = 2;", "int32 a = 1;", None),
        ("string a = 1;", "bytes a = 1;", None),
        ("E a = 1;", "int32 a = 1;", None),
        ("optional int32 a = 1;", "oneof o { int32 a = 1; }", None),
        ("repeated int32 a = 1;", "repeated int64 a = 1;", None),
        ("M a = 1;", "M a = 1;", None),
        ("map<string, int32> a = 1;", "map<string, int64> a = 1;", None),
        ("int64 a = 1;", "int32 a = 1;", "a is int64, and not int32"),
        ("int32 a = 1;", "sint32 a = 1;", "a is int32, and not sint32"),
        ("int32 a = 1;", "string a = 1;", "a is int32, and not string"),
        ("bytes a = 1;", "string a = 1;", "a is bytes, and not string"),
        ("int32 a = 1;", "repeated int32 a = 1;", "a is int32, and not repeated int32"),
        ("M a = 1;", "bytes a = 1;", "a is message p.M, and not bytes"),
        ("N a = 1;", "O a = 1;", "a.x is int32, and not string"),
        (
            "repeated N a = 1;",
            "map<int32, int32> a = 1;",
            "a is repeated message p.N, and not a map",
        ),
        ("map<string, N> a = 1;", "map<string, O> a = 1;", "a.value.x is int32, and not string"),
        ("E a = 1;", "H.F a = 1;", "a is enum p.E, and not enum p.H.F"),
        ("E a = 1;", "H.G a = 1;", None),
    ],
)
def test_fields_that_mean_something_else(writer, reader, change):
    """Names do not matter, numbers do."""
    rest = (
        "message N { int32 x = 1; } message O { string x = 1; } enum E { A = 0; B = 1; }"
        " message H { enum F { C = 0; } enum G { A = 0; } }"
    )
    head = 'syntax = "proto3"; package p; '
    both = [types_of(f"{head} message M {{ {each} }} {rest}", "p.M") for each in (writer, reader)]
    assert changed_field(*both) == change


EACH_KIND = [
    ("double", [-1.5]), ("float", [0.5]), ("int64", [-(2**63), -1, 1, 2**63 - 1]),
    ("uint64", [1, 2**64 - 1]), ("int32", [-(2**31), -1, 1, 2**31 - 1]), ("fixed64", [2**64 - 1]),
    ("fixed32", [2**32 - 1]), ("bool", [True]), ("string", ["a"]), ("bytes", [b"a", b"\xff"]),
    ("uint32", [1, 2**32 - 1]), ("E", [1, -1, 7]), ("sfixed32", [-1]), ("sfixed64", [-1]),
    ("sint32", [-(2**31), 2**31 - 1]), ("sint64", [-(2**63), 2**63 - 1]),
]  # fmt: skip
PAIRS = 'syntax = "proto3"; enum E { Z = 0; ONE = 1; MINUS = -1; } ' + " ".join(
    f"message M_{kind} {{ {kind} a = 1; repeated {kind} b = 2; }}" for kind, _ in EACH_KIND
)


def test_what_is_taken_for_the_same_is_read_as_the_same():
    """Of each two kinds: if one may be read as the other, all values are what they were."""
    types = {kind: types_of(PAIRS, f"M_{kind}") for kind, _ in EACH_KIND}
    alike = set()
    for written_as, values in EACH_KIND:
        for read_as, _ in EACH_KIND:
            if changed_field(types[written_as], types[read_as]) is not None:
                continue
            alike.add((written_as, read_as))
            for value in values:
                message = written(PAIRS, f"M_{written_as}", a=value, b=[value, value])
                found = classes(PAIRS)[f"M_{read_as}"].FromString(message)
                same = value.encode() if (written_as, read_as) == ("string", "bytes") else value
                assert [found.a, *found.b] == [same] * 3
    wider = {each for each in alike if each[0] != each[1]}
    assert wider == {
        ("int32", "int64"), ("uint32", "uint64"), ("uint32", "int64"), ("sint32", "sint64"),
        ("E", "int32"), ("E", "int64"), ("string", "bytes"),
    }  # fmt: skip
    assert len(alike) == len(wider) + len(EACH_KIND)
