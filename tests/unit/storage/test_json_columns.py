"""Cells of JSON become a column at once, or each by itself: both say the same."""

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slackwater.planner.parser.kafka_source import Decoding, Payload
from slackwater.repr.relation import RelationDesc
from slackwater.storage.kafka.columns import source_columns
from slackwater.storage.kafka.decoding import Decoder
from slackwater.storage.kafka.topic import Messages
from slackwater.storage.text_values import from_json, from_json_cells

KINDS = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal": pa.decimal128(6, 2),
    "large decimal": pa.decimal128(38, 18),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
    "list": pa.list_(pa.int64()),
    "struct": pa.struct([("a", pa.string())]),
    "map": pa.map_(pa.string(), pa.int64()),
}
TEXTS = st.sampled_from(
    [
        *("", "a", "1", "+1", " 1", "1.5", "1e3", "12345.678", "NaN", "true", "\ud800", "\u0661"),
        *("2026-01-31", "2026-02-30", "2026-1-2", "2026-01-31T25:00:00", "2026-01-31 10"),
        *("2026-01-31 10Z", "2026-01-31T10:20Z", "2026-01-31T10+01:00", "2026-01-31Z"),
        *("2026-01-31T10:20:30Z", "2026-01-31 10:20:30.1234567", "2026-01-31T10:20:30+02:00"),
        *("0001-01-01T00:00:00-18:00", "9999-12-31T23:59:59.999999Z", "2026-01-31T", "1969-12-31"),
    ]
)
NUMBERS = st.one_of(
    st.integers(-300, 300),
    st.sampled_from([2**63, -(2**63), 10**40, 9999]),
    st.sampled_from(
        ["0.5", "1.005", "9999.995", "9999.994", "1E+2", "1E+400", "-0.00", "1.100"]
    ).map(Decimal),
)
CELLS = st.one_of(
    st.lists(st.one_of(st.none(), TEXTS), max_size=4),
    st.lists(st.one_of(st.none(), NUMBERS), max_size=4),
    st.lists(st.one_of(st.none(), st.booleans()), max_size=4),
    st.lists(
        st.one_of(
            TEXTS,
            NUMBERS,
            st.booleans(),
            st.just([1, None]),
            st.just({"a": "b"}),
            st.just({"a": 1}),
        ),
        max_size=4,
    ),
)


def one_by_one(cells, kind):
    values, bad = [], {}
    for place, cell in enumerate(cells):
        try:
            values.append(from_json(cell, kind))
        except ValueError as error:
            values.append(None)
            bad[place] = str(error)
    return pa.array(values, kind), bad


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150, deadline=None)
@given(cells=CELLS)
@example(cells=[None, None])
@example(cells=[])
def test_a_column_at_once_has_the_cells_one_by_one(kind, cells):
    found = from_json_cells(cells, KINDS[kind])
    values, bad = one_by_one(cells, KINDS[kind])
    assert dict(found.bad) == bad
    assert found.values.type == values.type
    # NaN equals nothing, and its text does.
    assert list(map(repr, found.values.to_pylist())) == list(map(repr, values.to_pylist()))


@pytest.mark.parametrize("payload", [Payload("JSON"), Payload("CSV", 2, None, ",")])
def test_a_row_whose_error_is_a_column_has_no_other_cell(payload):
    desc = RelationDesc.of(n="integer", s="string")
    decoding = Decoding(payload, Payload("TEXT"), envelope="UPSERT", inline_errors="error")
    values = {
        "CSV": [b"1,a", b"x,b"],
        "JSON": [b'{"n": 1, "s": "a"}', b'{"n": "x", "s": "b"}'],
    }[payload.kind]
    given = Messages([0, 0], [0, 1], [1, 1], [b"k", b"l"], values, [(), ()])
    rows = Decoder(decoding, source_columns(decoding, desc)).rows(given).rows.to_pylist()
    assert [(row["n"], row["s"], row["error"] is None) for row in rows] == [
        (1, "a", True),
        (None, None, False),
    ]
