"""Messages of Protobuf are what Protobuf's own form in JSON says of them.

The library that writes JSON is the one that decodes, but says itself which fields a message has,
and what their values are. Fields without presence are in it with their defaults.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from datetime import datetime, timedelta, timezone
from decimal import Decimal

from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories
from tests.support.kafka.protobuf import classes, descriptors, framed

from slackwater.adapter.external.protobuf import ProtobufMessages, described
from slackwater.planner.parser.kafka_source import Decoding, Payload
from slackwater.storage.kafka.columns import source_columns
from slackwater.storage.kafka.decoding import Decoder
from slackwater.storage.kafka.shapes import MessageReaders, ReaderSchemas
from slackwater.storage.kafka.topic import Messages

KINDS = ["double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string"]
KINDS += ["bytes", "uint32", "sfixed32", "sfixed64", "sint32", "sint64", "E"]
KEYS = [each for each in KINDS if each not in ("double", "float", "bytes", "E")]
RANGES = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}
RANGES |= {"sfixed32": RANGES["int32"], "sint32": RANGES["int32"], "fixed32": RANGES["uint32"]}
RANGES |= {"sfixed64": RANGES["int64"], "sint64": RANGES["int64"], "fixed64": RANGES["uint64"]}


def numbered(lines):
    return " ".join(f"{line} = {number};" for number, line in enumerate(lines, 1))


SCHEMA = f"""
syntax = "proto3";
package all.of_it;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum E {{ ZERO = 0; ONE = 1; MINUS = -1; }}
message Inner {{ {numbered([f"{kind} f_{kind}" for kind in KINDS])} }}
message M {{
  {
    numbered(
        [f"{kind} plain_{kind}" for kind in KINDS]
        + [f"optional {kind} maybe_{kind}" for kind in KINDS]
        + [f"repeated {kind} many_{kind}" for kind in KINDS]
        + [f"map<{kind}, Inner> by_{kind}" for kind in KEYS]
        + [f"map<string, {kind}> to_{kind}" for kind in KINDS]
        + ["Inner inner", "repeated Inner inners", "google.protobuf.Timestamp at"]
        + ["repeated google.protobuf.Timestamp ats", "google.protobuf.Int64Value wrapped"]
        + ["google.protobuf.BytesValue bytes_wrapped"]
    )
}
}}
"""
FILES = descriptors(SCHEMA)
OF = classes(SCHEMA)
DESCRIBED = described(FILES, "all.of_it.M", "values")
DECODING = Decoding(Payload("PROTOBUF"))
COLUMNS = source_columns(DECODING, None, ReaderSchemas(value=DESCRIBED.types))
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def values(kind):
    match kind:
        case "double":
            return st.floats()
        case "float":
            return st.floats(width=32)
        case "bool":
            return st.booleans()
        case "string":
            return st.text(max_size=5)
        case "bytes":
            return st.binary(max_size=5)
        case "E":
            return st.sampled_from([0, 1, -1, 7])
        case _:
            return st.integers(*RANGES[kind])


INNERS = st.fixed_dictionaries({}, optional={f"f_{kind}": values(kind) for kind in KINDS})
TIMES = st.builds(
    lambda seconds, nanos: {"seconds": seconds, "nanos": nanos},
    st.integers(-62_135_596_800, 253_402_300_799),
    st.integers(0, 999_999_999),
)


@st.composite
def messages(draw):
    given_values = {}
    for kind in KINDS:
        for way, strategy in (
            ("plain", values(kind)),
            ("maybe", values(kind)),
            ("many", st.lists(values(kind), max_size=3)),
            ("to", st.dictionaries(st.text(max_size=3), values(kind), max_size=2)),
        ):
            if draw(st.integers(0, 9)) < 2:
                given_values[f"{way}_{kind}"] = draw(strategy)
    if draw(st.booleans()):
        kind = draw(st.sampled_from(KEYS))
        given_values[f"by_{kind}"] = draw(st.dictionaries(values(kind), INNERS, max_size=2))
    rest = {
        "inner": INNERS,
        "inners": st.lists(INNERS, max_size=2),
        "at": TIMES,
        "ats": st.lists(TIMES, max_size=2),
        "wrapped": st.builds(lambda value: {"value": value}, values("int64")),
        "bytes_wrapped": st.builds(lambda value: {"value": value}, values("bytes")),
    }
    given_values |= draw(st.fixed_dictionaries({}, optional=rest))
    message = OF["all.of_it.M"]()
    for name, value in given_values.items():
        target = getattr(message, name)
        if name.startswith("by_"):
            for key, inner in value.items():
                target[key].MergeFrom(OF["all.of_it.Inner"](**inner))
        elif name.startswith("to_"):
            target.update(value)
        elif name.startswith(("many_", "inners", "ats")):
            for each in value:
                target.add(**each) if isinstance(each, dict) else target.append(each)
        elif isinstance(value, dict):
            target.MergeFrom(type(target)(**value))
            target.SetInParent()
        else:
            setattr(message, name, value)
    return message


def meant(kind, found):
    """The cell that a column of that type has for what JSON says; None: it says nothing."""
    if found is None:
        return None
    match kind:
        case {"type": "array", "elementType": element}:
            return [meant(element, each) for each in found]
        case {"type": "map", "keyType": key, "valueType": value}:
            pairs = ((meant_key(key, k), meant(value, v)) for k, v in found.items())
            return sorted(pairs, key=repr)
        case {"type": "struct", "fields": fields}:
            return {each["name"]: meant(each["type"], found.get(each["name"])) for each in fields}
        case "timestamp":
            return micros(found)
        case "binary":
            return base64.b64decode(found)
        case "double":
            return float(found)
        case "float":
            # JSON has the shortest text from which the same number is made.
            return struct.unpack("f", struct.pack("f", float(found)))[0]
        case "long" | "integer":
            return int(found)
        case "decimal(20,0)":
            return Decimal(found)
        case "string" if isinstance(found, int):
            return f"UNKNOWN_ENUM_VALUE_E_{found}"
        case _:
            return found


def meant_key(kind, text):
    return text == "true" if kind == "boolean" else meant(kind, text)


def micros(text):
    """Microseconds since the epoch of a time as JSON has it; what is finer is left out."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    at = datetime.strptime(whole.rjust(19, "0"), "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    return (at - EPOCH) // timedelta(microseconds=1) + int(fraction.ljust(6, "0")[:6])


def same(found, expected):
    if isinstance(expected, float):
        return found == expected or (math.isnan(found) and math.isnan(expected))
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[k], expected[k]) for k in found)
    if isinstance(expected, list | tuple):
        if len(found) != len(expected):
            return False
        found = sorted(found, key=repr) if found and isinstance(found[0], tuple) else found
        return all(same(a, b) for a, b in zip(found, expected, strict=True))
    return type(found) is type(expected) and found == expected


@histories()
@given(st.lists(messages(), min_size=1, max_size=3), st.booleans())
def test_messages_are_what_their_json_says(given_messages, has_registry):
    raw = [each.SerializeToString() for each in given_messages]
    reader = ProtobufMessages(DESCRIBED, False)
    if has_registry:
        # It is the second message of its schema.
        raw = [framed(1, each, b"\x02\x02") for each in raw]
        reader = ProtobufMessages(DESCRIBED, True, {1: FILES}.get)
    shape = COLUMNS.value_shape
    for each, message in zip(raw, given_messages, strict=True):
        said = json_format.MessageToDict(
            message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        cells = shape.cells(reader.value(each))
        for column, cell in zip(shape.columns, cells, strict=True):
            expected = meant(json.loads(column.type_json), said.get(column.name))
            assert same(cell, expected), (column.name, cell, expected)
    count = len(raw)
    decoder = Decoder(DECODING, COLUMNS, MessageReaders(value=reader))
    decoded = decoder.rows(Messages([0] * count, range(count), [0] * count, [None] * count, raw))
    assert not decoded.bad_values
    assert decoded.rows.num_rows == count


@histories()
@given(
    st.lists(
        st.tuples(messages(), st.integers(0, 2**16), st.integers(0, 3), st.binary(max_size=6)),
        min_size=1,
        max_size=4,
    )
)
def test_any_bytes_are_a_row_or_have_a_reason(given_messages):
    """Messages of which some bytes are others, or missing."""
    raw = []
    for message, place, gone, others in given_messages:
        whole = message.SerializeToString()
        at = place % (len(whole) + 1)
        raw.append(whole[:at] + others + whole[at + gone :])
    count = len(raw)
    readers = MessageReaders(value=ProtobufMessages(DESCRIBED, False))
    nothing = [0] * count, range(count), [0] * count, [None] * count
    decoded = Decoder(DECODING, COLUMNS, readers).rows(Messages(*nothing, raw))
    decoded.rows.validate(full=True)
    assert sorted([*decoded.places, *decoded.bad_values]) == list(range(count))
    assert all(decoded.bad_values.values())
