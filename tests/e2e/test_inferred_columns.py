"""Columns and rows of a FILES source without declaration are those of Spark's own reader."""

from __future__ import annotations

import gzip
import json
import os

import pytest
from tests.support.applications.application import SqlError
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

CSV = {
    "a_name_twice": "id,name,name\n1,a,b\n",
    "no_name": "id,,\n1,2,3\n",
    "no_first_name": ",qty\n1,2\n",
    "names_by_case": "a,A\n1,x\n",
    "names_with_spaces": " a,b \n1,x\n",
    "quoted_names": '"x y","",""\n1,2,3\n',
    "a_null_name": "NA,b\n1,2\n",
    "our_names": "__row,_metadata,value\n1,2,3\n",
    "odd_names": "select,a.b,c`d,İ\n1,2,3,4\n",
    "blank_lines_first": "\n\na,b\n1,2\n",
    "only_a_header": "a,b\n",
    "a_mark": "\ufeffa,b\n1,2\n",
    "carriage_returns": "a,b\r\n1,2\r\n",
    "integers": "a,b,c\n1,-1,+5\n00012,3000000000,12345678901234567890\n",
    "numbers": "a,b,c,d,e\n1d,1.5,1e3,NaN,.5\n 2,12345678901234567890,2f,-Inf,Infinity\n",
    "booleans": "a,b\nTRUE,true\nfalse,1\n",
    "times": "a,b,c,d\n"
    "2020-01-01,2020-1-1,2020-01-01 10:00:00,2020-01-01\n"
    "2021-02-03,2020-12-1,2020-01-01T10:00:00.123456Z,2020-01-01 10:00\n",
    "no_dates": "a,b\n2020-02-30,2020\n2020-02-29,1.5\n",
    "nulls": "a,b,c\n1,,NA\n,,\nNA,2,NA\n",
    "quotes": 'a,b\n"x""y,z",1\n"two\nlines",2\n',
}


def source(place, name, folder, options):
    place.sql(
        f"CREATE SOURCE {name} FROM FILES (PATH '{folder}', FORMAT {options})"
        " WITH (TIMESTAMP INTERVAL '50ms')"
    )


def columns(place, query):
    answer = place.rows(f"DESCRIBE QUERY {query}")
    return [(name, kind) for name, kind, _ in answer]


def texts(place, names, relation):
    """The rows as Spark writes them, whatever Python has for their values."""
    listed = ", ".join(f"CAST({quoted(name)} AS STRING)" for name in names)
    return sorted(place.rows(f"SELECT to_json(array({listed})) AS row FROM {relation}"))


def quoted(name):
    return "`" + name.replace("`", "``") + "`"


def same_as_spark(place, name, path, format, options):
    """Compares the source `name` with the temporary view that Spark reads from the files."""
    listed = ", ".join(f"{key} '{value}'" for key, value in options.items())
    place.sql(
        f"CREATE TEMPORARY VIEW {name}_spark USING {format} OPTIONS (path '{path}', {listed})"
    )
    expected = columns(place, f"SELECT * FROM {name}_spark")
    assert columns(place, f"SELECT * FROM {name}") == expected
    names = [column for column, _ in expected]
    rows = texts(place, names, f"{name}_spark")
    wait_until(lambda: texts(place, names, name) == rows)


@pytest.mark.parametrize("case", CSV)
@pytest.mark.sampled(4)
def test_csv(workplace, case):
    folder = workplace.folder / "in"
    folder.mkdir()
    (folder / "one.csv").write_bytes(CSV[case].encode())
    source(workplace, case, folder, "CSV, HEADER true, NULL 'NA'")
    options = {"header": "true", "inferSchema": "true", "nullValue": "NA", "multiLine": "true"}
    same_as_spark(workplace, case, folder, "csv", {**options, "escape": '"'})


def test_csv_without_a_header_in_a_packed_file_with_another_delimiter(workplace):
    folder = workplace.folder / "k=1 [x]*{y}"
    folder.mkdir()
    (folder / "one.csv.gz").write_bytes(gzip.compress(b"1;a\n2;b\n"))
    workplace.sql(
        f"CREATE SOURCE s FROM FILES (PATH '{folder.parent}/k=1*/*', FORMAT CSV,"
        " DELIMITER ';') WITH (TIMESTAMP INTERVAL '50ms')"
    )
    assert columns(workplace, "SELECT * FROM s") == [("_c0", "int"), ("_c1", "string")]
    wait_until(lambda: workplace.rows("SELECT * FROM s ORDER BY 1") == [[1, "a"], [2, "b"]])


def test_json(workplace):
    folder = workplace.folder / "in"
    folder.mkdir()
    rows = [
        {"n": 1, "x": {"b": [1, 2.5], "a": None}, "big": 2**70, "day": "2020-01-01"},
        {"n": 2.5, "c": True, "x": {"a": "t"}, "none": None, "empty": {}},
    ]
    (folder / "one.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source(workplace, "j", folder, "JSON")
    same_as_spark(workplace, "j", folder, "json", {"mode": "DROPMALFORMED"})


def test_parquet(workplace):
    folder = workplace.folder / "in"
    workplace.application.python(
        "spark.sql(\"SELECT 1Y AS t, 2S AS s, CAST('x' AS CHAR(3)) AS c, X'01' AS b,"
        " DATE'2020-01-01' AS d, TIMESTAMP_NTZ'2020-01-01 00:00:00' AS z, 1.50BD AS m,"
        " array(named_struct('a', map('k', 1))) AS n, 'q' COLLATE UTF8_LCASE AS l\")"
        f".coalesce(1).write.parquet({str(folder)!r})\nresult = None"
    )
    source(workplace, "p", folder, "PARQUET, PATTERN '*.parquet'")
    same_as_spark(workplace, "p", folder, "parquet", {"mergeSchema": "false"})


def test_files_with_other_headers_agree_by_names(workplace):
    folder = workplace.folder / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("x,y,z\n1,a,2020-01-01\n")
    os.utime(folder / "a.csv", (1, 1))
    (folder / "b.csv").write_text('y,x,more,z\n"b",2.5,1,2020-01-01T10:00:00\n')
    source(workplace, "s", folder, "CSV, HEADER true")
    expected = [("x", "double"), ("y", "string"), ("z", "timestamp")]
    assert columns(workplace, "SELECT * FROM s") == expected
    rows = [["1.0", "a"], ["2.5", "b"]]
    wait_until(lambda: workplace.rows("SELECT x, y FROM s ORDER BY x") == rows)


@pytest.mark.parametrize(
    ("contents", "format", "condition", "says"),
    [
        (b"a,b\n1,2\n1\n", "CSV", "SLACKWATER_SOURCE_BAD_ROW", "line 3: 1 fields instead of 2"),
        (b"a\n10:00\n", "CSV", "SLACKWATER_SOURCE_BAD_ROW", "line 2: '10:00'"),
        (b"a,a,a0\n1,2,3\n", "CSV", "SLACKWATER_DUPLICATE_COLUMN", "a0"),
        (b"a\n\xff\n", "CSV", "SLACKWATER_SOURCE_FILE_UNREADABLE", "line 2 is not UTF-8"),
        (b'{"a": 1}\n[1]\n', "JSON", "SLACKWATER_SOURCE_BAD_ROW", "line 2"),
        (b'{"a": 1, "A": 2}\n', "JSON", "SLACKWATER_DUPLICATE_COLUMN", "a"),
        (b"nothing", "PARQUET", "SLACKWATER_SOURCE_FILE_UNREADABLE", "one.file"),
        (b"", "CSV", "SLACKWATER_SOURCE_FILES_NOT_FOUND", "/in"),
        (b"\n\n", "CSV", "SLACKWATER_SOURCE_FILES_NOT_FOUND", "/in"),
    ],
)
def test_files_that_say_no_columns_are_refused(workplace, contents, format, condition, says):
    folder = workplace.folder / "in"
    folder.mkdir()
    (folder / "one.file").write_bytes(contents)
    header = ", HEADER true" if format == "CSV" else ""
    with pytest.raises(SqlError) as refused:
        workplace.sql(f"CREATE SOURCE s FROM FILES (PATH '{folder}', FORMAT {format}{header})")
    assert refused.value.condition == condition
    assert says in refused.value.message


def test_bad_rows_do_not_count_where_they_are_skipped(workplace):
    folder = workplace.folder / "in"
    folder.mkdir()
    (folder / "one.csv").write_text("x,y\n1,a\n2\n")
    (folder / "one.json").write_text('{"x": 1}\nbad\n')
    for format, pattern in (("CSV, HEADER true", "*.csv"), ("JSON", "*.json")):
        name = pattern[2:]
        workplace.sql(
            f"CREATE SOURCE {name} FROM FILES (PATH '{folder}', FORMAT {format},"
            f" PATTERN '{pattern}', ON ERROR SKIP) WITH (TIMESTAMP INTERVAL '50ms')"
        )
    assert columns(workplace, "SELECT * FROM csv") == [("x", "int"), ("y", "string")]
    assert columns(workplace, "SELECT * FROM json") == [("x", "bigint")]
    wait_until(lambda: workplace.rows("SELECT x FROM csv") == [[1]])
