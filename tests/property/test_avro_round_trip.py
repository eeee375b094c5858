"""What a sink writes in Avro, a source of the same topic reads back, whatever the types."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories

from slackwater.adapter.external.avro import AvroMessages, check
from slackwater.persist.nested import as_type, with_leaves
from slackwater.planner.parser.kafka_source import Decoding, Included, Payload
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import EMPTY, RelationDesc, stored_names
from slackwater.storage.kafka.avro_writing import valid_name
from slackwater.storage.kafka.columns import source_columns
from slackwater.storage.kafka.decoding import Decoder
from slackwater.storage.kafka.shapes import MessageReaders, ReaderSchemas
from slackwater.storage.kafka.sink_avro import SchemaIds, SinkSchema
from slackwater.storage.kafka.sink_messages import Encoder, KafkaSinkConfig, message_forms
from slackwater.storage.kafka.topic import Messages
from slackwater.storage.row_bytes import _plain

INTEGERS = {"byte": 7, "short": 15, "integer": 31, "long": 63, "date": 31}
INTEGERS |= {"timestamp": 63, "timestamp_ntz": 63}
SCALARS = ["boolean", "float", "double", "string", "string collate UTF8_LCASE", "binary"]
SCALARS += ["varchar(9)", "decimal(1,0)", "decimal(9,9)", "decimal(38,18)", *INTEGERS]
NAMES = ["a", "B", "c-d", "e f", "1", "\u00e4", "__time", "g.h", "after", "op"]


@st.composite
def fields(draw, kinds, least=0):
    names = draw(st.lists(st.sampled_from(NAMES), min_size=least, max_size=4, unique_by=valid_name))
    return {
        "type": "struct",
        "fields": [
            {"name": n, "type": draw(kinds), "nullable": draw(st.booleans()), "metadata": {}}
            for n in names
        ],
    }


def nested(kinds):
    arrays = st.builds(
        lambda e, n: {"type": "array", "elementType": e, "containsNull": n}, kinds, st.booleans()
    )
    maps = st.builds(
        lambda v, n: {
            "type": "map", "keyType": "string", "valueType": v, "valueContainsNull": n,
        },
        kinds,
        st.booleans(),
    )  # fmt: skip
    return arrays | maps | fields(kinds)


KINDS = st.recursive(st.sampled_from(SCALARS), nested, max_leaves=5)


def values(kind, nullable):
    """Values as Arrow takes them, with numbers for times."""
    found = _values(kind)
    return st.none() | found if nullable else found


def _values(kind):
    match kind:
        case str() if kind in INTEGERS:
            bits = INTEGERS[kind]
            return st.integers(-(2**bits), 2**bits - 1)
        case "boolean":
            return st.booleans()
        case "float":
            return st.floats(width=32)
        case "double":
            return st.floats()
        case "binary":
            return st.binary(max_size=70)
        case str() if kind.startswith("decimal"):
            precision, scale = map(int, kind[8:-1].split(","))
            unscaled = st.integers(-(10**precision) + 1, 10**precision - 1)
            return unscaled.map(
                lambda n: str(Decimal((n < 0, tuple(map(int, str(abs(n)))), -scale)))
            )
        case str():
            return st.text(max_size=70)
        case {"type": "array"}:
            return st.lists(values(kind["elementType"], kind["containsNull"]), max_size=3)
        case {"type": "map"}:
            inner = values(kind["valueType"], kind["valueContainsNull"])
            return st.dictionaries(st.text(max_size=3), inner, max_size=3).map(
                lambda found: list(found.items())
            )
        case _:
            listed = kind["fields"]
            stored = stored_names([each["name"] for each in listed])
            if not listed:
                return st.just({EMPTY: None})
            return st.fixed_dictionaries(
                {
                    name: values(each["type"], each["nullable"])
                    for name, each in zip(stored, listed, strict=True)
                }
            )


@st.composite
def tables(draw, structs, cells):
    """A relation and some of its rows, by a key. Its other columns are the fields of a STRUCT, and
    `cells` gives values by type and nullability."""
    key = {"name": "k", "type": "long", "nullable": False, "metadata": {}}
    rest = draw(structs)["fields"]
    desc = RelationDesc.from_json(json.dumps({"type": "struct", "fields": [key, *rest]}))
    count = draw(st.integers(0, 3))
    schema = desc.arrow_schema()
    columns = [pa.array(range(count), pa.int64())]
    for each, field in zip(rest, list(schema)[1:], strict=True):
        inside = st.lists(cells(each["type"], each["nullable"]), min_size=count, max_size=count)
        plain = with_leaves(field.type, _plain)
        columns.append(as_type(pa.array(draw(inside), plain), field.type))
    return desc, pa.Table.from_arrays(columns, schema=schema)


def comparable(table):
    """The values of each row, without the names of fields in them."""
    columns = []
    for column in table.columns:
        values = column.combine_chunks()
        plain = as_type(values, with_leaves(values.type, _plain)).to_pylist()
        columns.append([_bare(cell, values.type) for cell in plain])
    return list(zip(*columns, strict=True))


def _bare(cell, kind):
    if cell is None:
        return None
    if pa.types.is_struct(kind):
        inside = zip(cell.values(), [field.type for field in kind], strict=True)
        return tuple(_bare(each, inner) for each, inner in inside)
    if pa.types.is_map(kind):
        return sorted((key, repr(_bare(each, kind.item_type))) for key, each in cell)
    if pa.types.is_list(kind):
        return [_bare(each, kind.value_type) for each in cell]
    return repr(cell)


@histories()
@given(
    tables(fields(KINDS, 1), values),
    st.sampled_from(["UPSERT", "DEBEZIUM"]),
    st.booleans(),
    st.sampled_from([None, "shop.Order"]),
)
def test_what_a_sink_writes_in_avro_a_source_reads(table, envelope, null_defaults, fullname):
    desc, rows = table
    schema = SinkSchema(GlobalId("u1"), fullname, null_defaults)
    config = KafkaSinkConfig(
        "t", "AVRO", "AVRO", envelope, ("k",), key_schema=schema, value_schema=schema
    )
    forms = message_forms(config, desc)
    texts = {1: forms.key.schema, 2: forms.value.schema}
    for each in texts.values():
        check(each, "values")
    count = len(rows)
    ones = pa.array([1] * count, pa.int64())
    updates = pa.Table.from_arrays([*rows.columns, ones, ones], schema=desc.update_schema())
    sent = Encoder(config, desc, "s", SchemaIds(1, 2)).messages(updates)
    decoding = Decoding(Payload("AVRO"), Payload("AVRO"), (Included("KEY", "the key"),), envelope)
    columns = source_columns(decoding, None, ReaderSchemas(*texts.values()))
    readers = MessageReaders(
        AvroMessages(columns.key_shape.schema, texts[1], writer=texts.get),
        AvroMessages(columns.value_shape.schema, texts[2], writer=texts.get),
    )
    found = Decoder(decoding, columns, readers).rows(
        Messages([0] * count, range(count), [0] * count, sent.keys, sent.values)
    )
    assert (found.bad_keys, found.bad_values) == ({}, {})
    assert columns.value.names == tuple(map(valid_name, desc.names))
    assert [each.nullable for each in columns.value.columns] == [
        each.nullable for each in desc.columns
    ]
    read = found.rows.drop_columns([columns.desc.stored_names[0]]).sort_by("k")
    assert comparable(read) == comparable(rows)
