"""Messages of a KAFKA sink: their contents, their order, and what is refused."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from slackwater.repr.errors import SlackwaterError
from slackwater.repr.relation import RelationDesc
from slackwater.storage.kafka.sink_messages import Encoder, KafkaSinkConfig
from slackwater.storage.sink_rows import rows_within

STRINGS = {
    "type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True,
}  # fmt: skip
DESC = RelationDesc.of(k="integer", v="string", h=STRINGS, b="binary", d="double")


def config(**more):
    given = {"key_format": "JSON", "value_format": "JSON", "envelope": "UPSERT", "key": ("k",)}
    return KafkaSinkConfig("t", **{**given, **more})


def messages(rows, desc=DESC, **more):
    """Of (values of all columns, time, diff)."""
    schema = desc.update_schema()
    columns = list(zip(*((*row, time, diff) for row, time, diff in rows), strict=True))
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)
    return Encoder(config(**more), desc, "s").messages(rows_within(desc, [table], 0, 0, 100))


def row(k, v="x", h=None, b=b"", d=0.0):
    return (k, v, h, b, d)


def test_the_order_depends_on_nothing_but_the_updates():
    rows = [(row(k, d=float(k % 3)), time, 1) for k in range(30) for time in (3, 1)]
    usual = messages(rows, key=(), envelope="DEBEZIUM")
    for seed in range(5):
        random.Random(seed).shuffle(rows)
        assert messages(rows, key=(), envelope="DEBEZIUM") == usual
    times = [int(headers[0][1]) for headers in usual.headers]
    assert times == sorted(times)


def test_the_greatest_row_is_that_of_the_greatest_values():
    rows = [
        (row(1, v=None, d=9.0), 1, 1),
        (row(1, v="b", h=[("a", "z")], d=9.0), 1, 1),
        (row(1, v="b", h=[("b", "a")], d=1.0), 1, 1),
        (row(1, v="b", h=[("b", "a")], d=float("nan")), 2, 1),
        (row(1, v="b", h=[("b", "a")], d=10.0), 2, 1),
        (row(1, v="b", h=[("b", "a")], d=9.0), 2, 1),
    ]
    found = messages(rows, is_enforced=False, key=("k",), headers="h")
    assert [each.split(b'"d":')[1] for each in found.values] == [b"1.0}", b'"NaN"}']


def test_several_rows_of_a_key_are_refused():
    with pytest.raises(SlackwaterError, match=r"SLACKWATER_SINK_KEY.*k = 1 at 4"):
        messages([(row(1, "a"), 4, 1), (row(1, "b"), 4, 1)])


def test_text_and_bytes_have_what_is_left_beside_the_key():
    desc = RelationDesc.of(k="string", p="integer", v="binary", h=STRINGS)
    more = {"key": ("k", "p"), "partition_by": "p", "headers": "h", "value_format": "BYTES"}
    found = messages([(("a", -1, b"\0x", [("n", None)]), 5, 1)], desc, **more)
    assert found.keys == [b'{"k":"a","p":-1}']
    assert (found.values, found.places) == ([b"\0x"], [-1])
    assert found.headers == [[("slackwater-timestamp", b"5"), ("n", None)]]
    texts = RelationDesc.of(k="integer", v="decimal(5,2)")
    rows = [((1, None), 1, 1), ((2, None), 2, -1)]
    found = messages(rows, texts, key_format="TEXT", value_format="TEXT")
    assert (found.keys, found.values) == ([b"1", b"2"], [b"", None])


def test_a_deletion_has_the_headers_of_the_row_that_goes():
    found = messages([(row(1, h=[("a", "1")]), 3, -1)], headers="h")
    assert found.values == [None]
    assert found.headers == [[("slackwater-timestamp", b"3"), ("a", b"1")]]


def test_a_header_of_the_user_does_not_hide_the_time():
    found = messages([(row(1, h=[("slackwater-timestamp", "1")]), 3, 1)], headers="h")
    assert found.headers == [[("slackwater-timestamp", b"3")]]


def test_no_updates_are_no_messages():
    assert len(Encoder(config(), DESC, "s").messages(DESC.update_schema().empty_table())) == 0


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"key": ()}, "ENVELOPE UPSERT needs KEY"),
        ({"key": ("nothing",)}, "no column nothing"),
        ({"key": ("k", "k")}, "a column occurs twice"),
        ({"headers": "v"}, "it is no column of type MAP"),
        ({"headers": "nothing"}, "it is no column of type MAP"),
        ({"partition_by": "v"}, "it is no column of whole numbers"),
        ({"partition_by": "k", "key": ("v",)}, "it has to be in KEY"),
        ({"envelope": "DEBEZIUM", "value_format": "TEXT"}, "ENVELOPE DEBEZIUM has two rows"),
        ({"value_format": "TEXT"}, "it takes one column, and not v, h, b, d"),
        ({"key": ("k", "v"), "key_format": "TEXT"}, "it takes one column, and not k, v"),
        ({"key_format": "BYTES"}, "k is neither BINARY nor STRING"),
    ],
)
def test_what_cannot_be_written_is_refused(more, reason):
    with pytest.raises(SlackwaterError, match=reason):
        Encoder(config(**more), DESC, "s")


def test_headers_are_texts_or_bytes():
    desc = RelationDesc.of(k="integer", h={**STRINGS, "valueType": "long"})
    with pytest.raises(SlackwaterError, match="values of headers are STRING or BINARY"):
        Encoder(config(headers="h"), desc, "s")
