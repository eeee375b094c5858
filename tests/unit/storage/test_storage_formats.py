"""What the FILES source makes of a file's bytes."""

import gzip
import io
import json
from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.repr.relation import Column, RelationDesc
from slackwater.storage.file_formats import (
    Format,
    UnreadableFileError,
    _read_csv,
    _read_plain_csv,
    read_rows,
)
from slackwater.storage.text_values import convert

CSV = Format("CSV", header=True, null_text="NA")
ALL = RelationDesc.of(i="integer", s="string", d="double", b="boolean", t="timestamp", dt="date")


def lines(*rows):
    return "\n".join(rows).encode() + b"\n"


def test_csv_agrees_with_sparks_reader():
    """The expected values are what spark.read.csv of 4.2 gave for each of these cells."""
    desc = RelationDesc((*ALL.columns, Column("dec", '"decimal(5,2)"')))
    data = lines(
        "i,s,d,b,t,dt,dec",
        '1,"",1.5,TRUE,2020-01-02T03:04:05Z,2020-1-2,1.005',
        '"","a\\"b",.5,false,2020-01-02 03:04:05.123456,2020-01-02,2',
        '+4,C:\\temp,1e3,,2020-01-02T03:04,2020-01-02T01:00:00,"3"',
        '5,"C:\\temp\\\\",Inf,,2020-01-02T03:04:05+01:00,,',
        '7,a"b,-Infinity,True,2020-01-02,,1e2',
    )
    rows = read_rows(data, CSV, desc)
    assert rows.bad == ()
    utc = timezone.utc
    day = date(2020, 1, 2)
    assert [tuple(row.values()) for row in rows.table.to_pylist()] == [
        (1, None, 1.5, True, datetime(2020, 1, 2, 3, 4, 5, tzinfo=utc), day, Decimal("1.01")),
        (None, 'a"b', 0.5, False, datetime(2020, 1, 2, 3, 4, 5, 123456, utc), day, Decimal("2")),
        (4, "C:\\temp", 1000.0, None, datetime(2020, 1, 2, 3, 4, tzinfo=utc), day, Decimal("3")),
        (
            5,
            "C:\\temp\\",
            float("inf"),
            None,
            datetime(2020, 1, 2, 2, 4, 5, tzinfo=utc),
            None,
            None,
        ),
        (7, 'a"b', float("-inf"), True, datetime(2020, 1, 2, tzinfo=utc), None, Decimal("100")),
    ]


def test_a_bad_row_has_its_physical_line():
    desc = RelationDesc.of(k="integer", v="string")
    data = lines("k,v", '1,"two', 'lines"', "", "2.0,x", "3,y,z", "4,NA", '5,"open', "6,end")
    rows = read_rows(data, CSV, desc)
    assert [(row.line, row.reason) for row in rows.bad] == [
        (5, "'2.0' is not an INT (column k)"),
        (6, "3 fields instead of 2"),
        (8, "a quoted field is not closed, or text follows its closing quote"),
    ]
    assert rows.table.to_pylist() == [
        {"k": 1, "v": "two\nlines"},
        {"k": 4, "v": None},
        {"k": 6, "v": "end"},
    ]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("integer", "2.0"), ("integer", "0x10"), ("integer", " 3"), ("byte", "200"),
        ("long", "99999999999999999999"), ("boolean", "yes"), ("double", "1,5"),
        ("double", "nan"), ("date", "2020-02-31"), ("timestamp", "2020-01-02T25:00"),
        ("timestamp", "now"), ("decimal(5,2)", "1000"), ("decimal(5,2)", "x"),
    ],
)  # fmt: skip
def test_texts_that_do_not_convert(kind, text):
    rows = read_rows(f"v\n{text}\n".encode(), Format("CSV", True, ";"), RelationDesc.of(v=kind))
    assert [row.line for row in rows.bad] == [2]
    assert len(rows.table) == 0


def test_half_of_a_surrogate_pair_is_a_bad_row_wherever_it_is():
    data = (
        b'{"v": ["\\ud800"]}\n{"v": ["ok"], "\\ud800": 1}\n{"v": "\\ud800"}\n{"v": [["\\udc00"]]}\n'
    )
    kind = {"type": "array", "elementType": "string", "containsNull": True}
    rows = read_rows(data, Format("JSON"), RelationDesc((Column("v", json.dumps(kind)),)))
    assert rows.table.to_pylist() == [{"v": ["ok"]}]
    assert [row.line for row in rows.bad] == [1, 3, 4]
    for row in rows.bad:
        assert r"\ud" in row.reason
        row.reason.encode()


def test_columns_are_found_by_name_and_must_exist():
    data = lines("c,B,a", "1,2,3")
    table = read_rows(data, CSV, RelationDesc.of(a="long", b="long")).table
    assert table.to_pylist() == [{"a": 3, "b": 2}]
    with pytest.raises(UnreadableFileError, match="lacks the column z"):
        read_rows(data, CSV, RelationDesc.of(z="long"))


def test_without_header_crlf_bom_and_gzip():
    desc = RelationDesc.of(a="long", b="string")
    data = b"\xef\xbb\xbf1|x\r\n2|\r\n"
    expected = [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    form = Format("CSV", False, "|")
    assert read_rows(data, form, desc).table.to_pylist() == expected
    assert read_rows(gzip.compress(data), form, desc, packed=True).table.to_pylist() == expected
    assert read_rows(b'\xef\xbb\xbf"1"|x\r\n2|\r\n', form, desc).table.to_pylist() == expected


def test_not_null_is_enforced():
    desc = RelationDesc((Column("a", '"long"', nullable=False), Column("b", '"long"')))
    rows = read_rows(lines("a,b", "1,2", "NA,3"), CSV, desc)
    assert [(row.line, row.reason) for row in rows.bad] == [(3, "NULL in the column a")]


CELL = st.text(alphabet='ab1 \\"\n;,', max_size=5)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(CELL, CELL), max_size=6))
def test_quoted_csv_round_trips(rows):
    def quoted(cell):
        return '"' + cell.replace("\\", "\\\\").replace('"', '\\"') + '"'

    data = "".join(",".join(map(quoted, row)) + "\n" for row in rows).encode()
    got = read_rows(data, Format("CSV"), RelationDesc.of(a="string", b="string"))
    # a lone backslash is itself in Spark too; doubled ones are one
    assert got.bad == ()
    assert [tuple(r.values()) for r in got.table.to_pylist()] == [
        tuple(cell or None for cell in row) for row in rows
    ]


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="1a.-+ \n\r,N\u00e9", max_size=30), st.booleans())
def test_the_fast_path_reads_what_the_careful_path_reads(text, header):
    form = Format("CSV", header, null_text="NA")
    desc = RelationDesc.of(a="double", b="string")
    data = ("a,b\n" if header else "").encode() + text.encode()
    fast = _read_plain_csv(data, form, desc)
    if fast is not None:
        careful = _read_csv(data, form, desc)
        assert careful.bad == ()
        assert fast.table.equals(careful.table)


CIVIL = (
    r"20[0-9]{2}-[01][0-9]-[0-3][0-9]"
    r"([T ][0-2][0-9](:[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?)?(Z|\+01:00)?)?"
)
TEXTS = st.one_of(
    st.from_regex(r"[+-]?[0-9]{1,20}", fullmatch=True),
    st.from_regex(r"[+-]?[0-9]{0,3}\.[0-9]{0,3}(e[0-9])?", fullmatch=True),
    st.from_regex(CIVIL, fullmatch=True),
    st.sampled_from(["true", "False", "NaN", "Inf", "", "x"]),
)


@settings(max_examples=500, deadline=None)
@given(
    TEXTS,
    st.sampled_from(
        [pa.int32(), pa.int64(), pa.float64(), pa.bool_(), pa.date32(),
         pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.decimal128(10, 2)]
    ),
)  # fmt: skip
def test_vectorised_and_single_conversion_agree(text, kind):
    alone = convert(pa.array([text]), kind)
    # a second, bad text forces the conversion of each text by itself
    beside = convert(pa.array([text, "!"]), kind)
    assert alone.bad.keys() == beside.bad.keys() - {1}
    assert alone.values.cast(pa.string()).to_pylist() == (
        beside.values.slice(0, 1).cast(pa.string()).to_pylist()
    )


def test_json_lines():
    fields = [
        {"name": "x", "type": "integer", "nullable": True, "metadata": {}},
        {"name": "y", "type": {"type": "array", "elementType": "string", "containsNull": True},
         "nullable": True, "metadata": {}},
    ]  # fmt: skip
    nested = {"name": "n", "type": {"type": "struct", "fields": fields}, "nullable": True}
    plain = [
        {"name": name, "type": kind, "nullable": True}
        for name, kind in {
            "k": "long",
            "d": "decimal(5,2)",
            "t": "timestamp",
            "s": "string",
        }.items()
    ]
    desc = RelationDesc.from_json(json.dumps({"type": "struct", "fields": [*plain, nested]}))
    data = lines(
        '{"k": 1, "d": 1.25, "t": "2020-01-02T03:04:05Z", "s": {"a": [1.50]}, "more": 1}',
        '{"n": {"x": 3, "y": ["a", 1, null]}}',
        "",
        '{"k": 2.0}',
        "{",
        "[1]",
        '{"k": 9, "n": {"x": "no"}}',
    )
    rows = read_rows(data, Format("JSON"), desc)
    assert [row.line for row in rows.bad] == [4, 5, 6, 7]
    assert rows.table.to_pylist() == [
        {"k": 1, "d": Decimal("1.25"), "t": datetime(2020, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
         "s": '{"a":[1.50]}', "n": None},
        {"k": None, "d": None, "t": None, "s": None, "n": {"x": 3, "y": ["a", "1", None]}},
    ]  # fmt: skip


def test_parquet_casts_and_fills():
    buffer = io.BytesIO()
    pq.write_table(pa.table({"K": pa.array([1, 2], pa.int32()), "other": ["a", "b"]}), buffer)
    table = read_rows(
        buffer.getvalue(), Format("PARQUET"), RelationDesc.of(k="long", v="string")
    ).table
    assert table.to_pylist() == [{"k": 1, "v": None}, {"k": 2, "v": None}]
    with pytest.raises(UnreadableFileError, match="not a Parquet file"):
        read_rows(b"nothing", Format("PARQUET"), RelationDesc.of(k="long"))
    with pytest.raises(UnreadableFileError, match="column other"):
        read_rows(buffer.getvalue(), Format("PARQUET"), RelationDesc.of(other="long"))
