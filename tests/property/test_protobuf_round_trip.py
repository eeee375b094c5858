"""What a sink writes in Protobuf, a source of the same topic and Google's library read back."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories
from tests.property.test_avro_round_trip import SCALARS, tables, values
from tests.support.kafka.protobuf import classes, descriptors

from slackwater.adapter.external.protobuf import ProtobufMessages, described
from slackwater.persist.nested import as_type, with_leaves
from slackwater.planner.parser.kafka_source import Decoding, Included, Payload
from slackwater.repr.ids import GlobalId
from slackwater.storage.kafka.columns import source_columns
from slackwater.storage.kafka.decoding import Decoder
from slackwater.storage.kafka.protobuf_writing import field_name
from slackwater.storage.kafka.shapes import MessageReaders, ReaderSchemas
from slackwater.storage.kafka.sink_avro import SchemaIds, SinkSchema
from slackwater.storage.kafka.sink_messages import Encoder, KafkaSinkConfig, message_forms
from slackwater.storage.kafka.topic import Messages
from slackwater.storage.row_bytes import _plain

NAMES = ["a", "B", "c-d", "e f", "1", "\u00e4", "__time", "g.h", "google", "message", "Row", "Xs"]
KEYS = ["string", "boolean", "byte", "long"]
LISTS = ("array", "map")
HEADER_BYTES = 6
"""A zero byte, four of the id, and one that says which message it is."""


@st.composite
def fields(draw, kinds):
    """At least one: a message without fields is no column."""
    names = st.lists(
        st.sampled_from(NAMES), min_size=1, max_size=4, unique_by=lambda n: field_name(n).lower()
    )
    return {
        "type": "struct",
        "fields": [
            {"name": n, "type": draw(kinds), "nullable": draw(st.booleans()), "metadata": {}}
            for n in draw(names)
        ],
    }


def nested(kinds):
    elements = kinds.filter(lambda kind: isinstance(kind, str) or kind["type"] not in LISTS)
    arrays = elements.map(lambda e: {"type": "array", "elementType": e, "containsNull": False})
    maps = st.builds(
        lambda k, v: {"type": "map", "keyType": k, "valueType": v, "valueContainsNull": False},
        st.sampled_from(KEYS),
        elements,
    )
    return arrays | maps | fields(kinds)


KINDS = st.recursive(st.sampled_from(SCALARS), nested, max_leaves=5)


def cells(kind, nullable):
    """As those of Avro, with keys of maps of the types that they have."""
    if isinstance(kind, str):
        return values(kind, nullable)
    match kind["type"]:
        case "array":
            found = st.lists(cells(kind["elementType"], False), max_size=3)
        case "map":
            entries = st.dictionaries(
                cells(kind["keyType"], False), cells(kind["valueType"], False), max_size=3
            )
            found = entries.map(lambda each: list(each.items()))
        case _:
            inside = {f["name"]: cells(f["type"], f["nullable"]) for f in kind["fields"]}
            found = st.fixed_dictionaries(inside)
    return st.none() | found if nullable else found


def plain_columns(table):
    for column in table.columns:
        found = column.combine_chunks()
        yield as_type(found, with_leaves(found.type, _plain)).to_pylist()


def bare(cell, kind):
    """A cell that was read, without the names of fields."""
    if cell is None:
        return None
    if pa.types.is_struct(kind):
        return tuple(bare(v, f.type) for v, f in zip(cell.values(), kind, strict=True))
    if pa.types.is_map(kind):
        return sorted((repr(k), repr(bare(v, kind.item_type))) for k, v in cell)
    if pa.types.is_list(kind):
        return [bare(each, kind.value_type) for each in cell]
    return repr(cell)


def expected(cell, kind):
    """The cell that a source reads for one that was written."""
    if isinstance(kind, dict) and kind["type"] in LISTS and cell is None:
        return []
    if cell is None:
        return None
    match kind:
        case "date":
            return repr(_iso(np.datetime64(cell, "D")))
        case "timestamp_ntz":
            seconds, micros = divmod(cell, 10**6)
            fraction = f".{micros:06}" if micros else ""
            return repr(_iso(np.datetime64(seconds, "s")) + fraction)
        case str() if kind.startswith("decimal"):
            return repr(format(Decimal(cell), "f"))
        case str():
            return repr(cell)
        case {"type": "array"}:
            return [expected(each, kind["elementType"]) for each in cell]
        case {"type": "map"}:
            return sorted((repr(k), repr(expected(v, kind["valueType"]))) for k, v in cell)
        case _:
            types = [each["type"] for each in kind["fields"]]
            return tuple(expected(v, t) for v, t in zip(cell.values(), types, strict=True))


def _iso(moment):
    """As Spark writes it: years have four digits at least, and a sign if they have more."""
    text = str(moment)
    is_before = text.startswith("-")
    year, rest = text.removeprefix("-").split("-", 1)
    sign = "-" if is_before else "+" if len(year) > 4 else ""
    return f"{sign}{year:0>4}-{rest}"


@histories()
@given(
    tables(fields(KINDS), cells),
    st.sampled_from(["UPSERT", "DEBEZIUM"]),
    st.sampled_from([None, "shop.v1.Order"]),
)
def test_what_a_sink_writes_in_protobuf_a_source_reads(table, envelope, fullname):
    desc, rows = table
    schema = SinkSchema(GlobalId("u1"), fullname, doc="of a test\nin lines")
    config = KafkaSinkConfig(
        "t", "PROTOBUF", "PROTOBUF", envelope, ("k",), key_schema=schema, value_schema=schema
    )
    forms = message_forms(config, desc)
    count = len(rows)
    ones = pa.array([1] * count, pa.int64())
    updates = pa.Table.from_arrays([*rows.columns, ones, ones], schema=desc.update_schema())
    sent = Encoder(config, desc, "s", SchemaIds(1, 2)).messages(updates)
    texts = {1: forms.key.schema, 2: forms.value.schema}
    files = {number: descriptors(text) for number, text in texts.items()}
    contents = [each[HEADER_BYTES:] for each in sent.values]
    for data in contents:
        # The bytes are those that Google's library writes, which has another order of a map.
        known = classes(texts[2])[fullname or ("Row" if envelope == "UPSERT" else "Envelope")]
        again = known.FromString(data).SerializeToString(deterministic=True)
        assert again == data or (len(again) == len(data) and '"map"' in desc.to_json())
    key, value = (described(files[number], None, "values") for number in (1, 2))
    decoding = Decoding(
        Payload("PROTOBUF"), Payload("PROTOBUF"), (Included("KEY", "the key"),), envelope
    )
    columns = source_columns(decoding, None, ReaderSchemas(key.types, value.types))
    readers = MessageReaders(
        ProtobufMessages(key, True, files.get),
        ProtobufMessages(replace(value, types=columns.value_shape.types), True, files.get),
    )
    found = Decoder(decoding, columns, readers).rows(
        Messages([0] * count, range(count), [0] * count, sent.keys, sent.values)
    )
    assert (found.bad_keys, found.bad_values) == ({}, {})
    assert columns.value.names == tuple(map(field_name, desc.names))
    read = found.rows.drop_columns([columns.desc.stored_names[0]]).sort_by("k")
    kinds = [column.spark_type for column in desc.columns]
    for got, is_, was, kind in zip(
        plain_columns(read), read.columns, plain_columns(rows), kinds, strict=True
    ):
        assert [bare(each, is_.type) for each in got] == [expected(each, kind) for each in was]
