"""Messages as rows, format by format."""

import pytest

from slackwater.planner.parser.kafka_source import Decoding, Included, Payload
from slackwater.repr.relation import RelationDesc
from slackwater.storage.kafka.columns import source_columns
from slackwater.storage.kafka.decoding import Decoder
from slackwater.storage.kafka.topic import Messages

DECLARED = RelationDesc.from_json(
    '{"type": "struct", "fields": ['
    '{"name": "n", "type": "integer", "nullable": false, "metadata": {}},'
    '{"name": "s", "type": "string", "nullable": true, "metadata": {}}]}'
)
JSON, CSV = Payload("JSON"), Payload("CSV", 2, None, ";")


def messages(*values, keys=None, headers=None):
    count = len(values)
    return Messages(
        [0] * count,
        list(range(count)),
        [1000 + number for number in range(count)],
        keys or [None] * count,
        list(values),
        headers or [()] * count,
    )


def decoded(decoding, given, declared=None):
    """The rows, and the reasons of what is none."""
    found = Decoder(decoding, source_columns(decoding, declared)).rows(given)
    found.rows.validate(full=True)
    return list(map(tuple, (row.values() for row in found.rows.to_pylist()))), found


@pytest.mark.parametrize(
    ("payload", "value", "cell"),
    [
        ("TEXT", "zw\u00f6lf".encode(), "zw\u00f6lf"),
        ("TEXT", b"", ""),
        ("BYTES", b"\xff\0", b"\xff\0"),
        ("JSON", b' {"a": 1.10} ', ' {"a": 1.10} '),
        ("JSON", b"12345678901234567890123", "12345678901234567890123"),
        ("JSON", b"null", "null"),
    ],
)
def test_a_whole_value(payload, value, cell):
    rows, found = decoded(Decoding(Payload(payload)), messages(value, None))
    assert rows == [(cell,), (None,)]
    assert found.bad_values == {}


@pytest.mark.parametrize(
    ("payload", "value", "reason"),
    [
        ("TEXT", b"\xff", "it is not UTF-8 text"),
        ("JSON", b"\xff", "it is not UTF-8 text"),
        ("JSON", b"", "it is not JSON: Expecting value"),
        ("JSON", b"{} {}", "it is not JSON: Extra data"),
        ("JSON", b"NaN", "it is not JSON: NaN is no JSON"),
        ("JSON", b"[" * 100_000, "it is not JSON: "),
    ],
)
def test_a_value_that_cannot_be_read(payload, value, reason):
    rows, found = decoded(Decoding(Payload(payload)), messages(b"1", value, b"2"))
    assert len(rows) == 2
    assert found.places == [0, 2]
    assert found.bad_values[1].startswith(reason)


@pytest.mark.parametrize(
    ("payload", "value", "row"),
    [
        (JSON, b'{"s": "x", "n": 1, "more": []}', (1, "x")),
        (JSON, b'{"n": 1, "s": {"a": 1.10}}', (1, '{"a":1.10}')),
        (JSON, b'{"n": 1}', (1, None)),
        (CSV, b"1;x", (1, "x")),
        (CSV, b'1;"x;""y"', (1, 'x;"y')),
        (CSV, b"1;\n", (1, None)),
    ],
)
def test_declared_columns(payload, value, row):
    assert decoded(Decoding(payload), messages(value), DECLARED)[0] == [row]


@pytest.mark.parametrize(
    ("payload", "value", "reason"),
    [
        (JSON, b"[]", "it is not a JSON object"),
        (JSON, b'{"n": "x"}', '"x" is not an INT (column n)'),
        (JSON, b'{"s": "x"}', "NULL in the column n"),
        (JSON, b'{"n": 9999999999}', "'9999999999' is not an INT (column n)"),
        (CSV, b"", "0 records instead of one"),
        (CSV, b"1;x\n2;y", "2 records instead of one"),
        (CSV, b"1;x;y", "3 fields instead of 2"),
        (CSV, b'1;"x', "a quoted field is not closed, or text follows its closing quote"),
        (CSV, b"x;1", "'x' is not an INT (column n)"),
        (CSV, b";1", "NULL in the column n"),
        (JSON, None, "NULL in the column n"),
        (CSV, None, "NULL in the column n"),
    ],
)
def test_declared_columns_that_do_not_fit(payload, value, reason):
    rows, found = decoded(Decoding(payload), messages(value), DECLARED)
    assert (rows, found.bad_values) == ([], {0: reason})


def test_fields_of_csv_have_the_names_that_are_given_or_numbers():
    assert source_columns(Decoding(CSV), None).desc.names == ("column1", "column2")
    named = Decoding(Payload("CSV", None, ("a", "B c"), ","))
    assert source_columns(named, None).desc.names == ("a", "B c")
    assert decoded(named, messages(b"1,"))[0] == [("1", None)]


def test_what_is_included_comes_behind_the_value_in_its_order():
    decoding = Decoding(
        Payload("TEXT"),
        Payload("BYTES"),
        (
            Included("OFFSET", "o"),
            Included("HEADER", "h", "a"),
            Included("KEY", "id"),
            Included("HEADERS", "all"),
            Included("TIMESTAMP", "t"),
            Included("PARTITION", "p"),
            Included("HEADER", "raw", "b", True),
        ),
    )
    headers = [[("a", b"1"), ("a", b"2"), ("b", b"\xff")], [("a", b"\xff"), ("b", None)], []]
    rows, found = decoded(
        decoding, messages(b"x", b"y", None, keys=[b"k", None, b"l"], headers=headers)
    )
    assert source_columns(decoding, None).desc.names == (
        "id", "text", "o", "h", "all", "t", "p", "raw",
    )  # fmt: skip
    assert [row[:4] for row in rows] == [(b"k", "x", 0, "2"), (b"l", None, 2, None)]
    assert rows[0][4] == [
        {"key": "a", "value": b"1"},
        {"key": "a", "value": b"2"},
        {"key": "b", "value": b"\xff"},
    ]
    assert [row[5].timestamp() for row in rows] == [1.0, 1.002]
    assert [row[6:] for row in rows] == [(0, b"\xff"), (0, None)]
    assert found.bad_values == {1: "its header 'a' is not UTF-8 text"}


def test_of_upserts_only_those_with_a_value_are_rows():
    decoding = Decoding(JSON, Payload("TEXT"), (), "UPSERT")
    given = messages(
        b'{"n": 1}', None, b"{}", b'{"n": 2}', None, keys=[b"a", b"b", b"c", b"\xff", b"\xff"]
    )
    rows, found = decoded(decoding, given, DECLARED)
    assert rows == [("a", 1, None)]
    assert found.bad_values == {2: "NULL in the column n"}
    assert set(found.bad_keys) == {3, 4}


def test_errors_of_values_may_be_a_column():
    decoding = Decoding(JSON, Payload("TEXT"), (), "UPSERT", "wrong")
    rows, found = decoded(decoding, messages(b'{"n": 1}', b"x", keys=[b"a", b"b"]), DECLARED)
    assert rows[0] == ("a", 1, None, None)
    assert rows[1][:3] == ("b", None, None)
    assert rows[1][3]["description"].startswith("it is not JSON")
    assert found.places == [0, 1]
