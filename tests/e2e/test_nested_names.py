"""Structs as Spark lets one write them: fields of one name, of other case, without any.

Neither Parquet nor Arrow has such structs, so files and streams have other names for them.
"""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

STRUCTS = {
    "twice": "named_struct('id', {0}, 'id', {0} + 1)",
    "case": "named_struct('x', {0}, 'X', {0} + 1)",
    "in_array": "array(named_struct('id', {0}, 'id', {0} + 1), NULL)",
    "in_map": "map('k', named_struct('id', {0}, 'id', {0} + 1))",
    "as_key": "map(named_struct('id', {0}, 'ID', {0} + 1), 1)",
    "in_struct": "named_struct('s', named_struct('id', {0}, 'id', 'a'), 'S', {0})",
    "without_fields": "named_struct()",
    "array_without_fields": "array(named_struct(), NULL)",
    "beside_without_fields": "named_struct('a', named_struct(), 'n', {0})",
    "null_without_fields": "if({0} % 2 = 0, NULL, named_struct())",
    "map_without_fields": "map({0}, named_struct(), {0} + 1, if({0} < 0, named_struct(), NULL))",
    "odd_names": "named_struct('a.b', {0}, 'c`d', 1, 'e f', 2, '', 3, '\"', 4, 'ü,;', 5)",
    "our_names": "named_struct('__time', {0}, '__diff', 1, 'key', 2, 'value', 3, 'element', 4)",
    "our_field": "named_struct('__empty', {0} % 2 = 0)",
    "our_field_twice": "named_struct('__empty', named_struct(), '__EMPTY_1', {0})",
    "suffixes": "named_struct('a', {0}, 'a', 1, 'a_1', 2, 'a_2', 3)",
}
LARGE = 60_000
"""More rows than are kept in the metastore: they are in a file."""


@pytest.fixture(scope="module")
def place(workplace_of_file):
    workplace_of_file.sql("CREATE TABLE few (id BIGINT)")
    workplace_of_file.sql("INSERT INTO few VALUES (1), (2), (3)")
    workplace_of_file.sql(f"CREATE TABLE many AS SELECT id FROM range({LARGE})")
    return workplace_of_file


def of(table):
    """A query with all the structs, each in a column of its own."""
    columns = ", ".join(f"{value.format('id')} AS {kind}" for kind, value in STRUCTS.items())
    return f"SELECT id, {columns} FROM {table}"


def shown(place, query):
    """Rows in Spark's own text, which has all fields by their places."""
    texts = ", ".join(f"CAST({kind} AS STRING) AS {kind}" for kind in STRUCTS)
    result = place.sql(f"SELECT id, {texts} FROM ({query}) ORDER BY id")
    return [dict(zip(result.columns, row, strict=True)) for row in result.rows]


def digests(place, query):
    """The number of rows, and for each column a sum over the texts that `shown` would give."""
    sums = ", ".join(
        f"sum(CAST(xxhash64(id, CAST({kind} AS STRING)) AS DECIMAL(38, 0))) AS {kind}"
        for kind in STRUCTS
    )
    result = place.sql(f"SELECT count(*) AS n, {sums} FROM ({query})")
    return dict(zip(result.columns, *result.rows, strict=True))


def create(place, name, query):
    """A view that follows changes."""
    place.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    explained = place.rows(f"EXPLAIN INCREMENTAL FOR MATERIALIZED VIEW {name}")
    assert all(row[3] != "recompute" for row in explained), explained


def test_views_have_what_their_query_has(place):
    for table in ("few", "many"):
        create(place, f"of_{table}", of(table))
    assert shown(place, "TABLE of_few") == shown(place, of("few"))
    found = digests(place, "TABLE of_many")
    assert found == digests(place, of("many"))
    assert found["n"] == LARGE
    assert place.rows("DESCRIBE of_few") == place.rows(f"DESCRIBE QUERY {of('few')}")


def test_views_of_views_follow_changes(place):
    place.sql("CREATE TABLE changing AS SELECT id FROM few")
    create(place, "below", of("changing"))
    last = ", ".join(f"max_by({kind}, id) AS {kind}" for kind in STRUCTS)
    create(place, "above", f"SELECT max(id) AS id, {last}, count(*) AS n FROM below")
    for change in (
        "INSERT INTO changing VALUES (7), (7)",
        "DELETE FROM changing WHERE id IN (1, 7)",
    ):
        place.sql(change)
        assert shown(place, "TABLE below") == shown(place, of("changing"))
        assert shown(place, "TABLE above") == shown(
            place, f"{of('changing')} ORDER BY id DESC LIMIT 1"
        )


def test_cursors_bring_the_values_of_views(place):
    create(place, "followed", of("few"))
    place.sql("DECLARE c CURSOR FOR SUBSCRIBE followed")
    fetched = values(place, "FETCH ALL c WITH (timeout = '5 minutes')")
    assert fetched == values(place, "SELECT * FROM followed")
    assert [[name for name, _ in row] for row in fetched] == [sorted(["id", *STRUCTS])] * 3
    place.sql("CLOSE c")


def values(place, statement):
    """What Python has of each row, by column: of structs their values, which have all fields."""
    return place.python(
        f"rows = spark.sql({statement!r})\n"
        "shown = lambda v: str(tuple(v) if hasattr(v, '__fields__') else v)\n"
        "rows = [dict(zip(rows.columns, map(shown, row))) for row in rows.collect()]\n"
        "rows = [{n: v for n, v in row.items() if not n.startswith('mz_')} for row in rows]\n"
        "result = sorted(rows, key=lambda row: row['id'])"
    )


def test_tables_have_them_where_case_tells_names_apart(place):
    place.sql("SET spark.sql.caseSensitive = true")
    try:
        place.sql("CREATE TABLE cased (k INT, s STRUCT<x: INT, X: STRING, e: STRUCT<>>)")
        place.sql("INSERT INTO cased VALUES (1, named_struct('x', 1, 'X', 'a', 'e', struct()))")
        place.sql(
            "INSERT INTO cased SELECT id, named_struct('x', id, 'X', 'b', 'e', struct()) FROM many"
        )
        assert place.value("SELECT sum(s.x) FROM cased WHERE s.X = 'b'") == sum(range(LARGE))
        place.sql("UPDATE cased SET k = 7 WHERE s.X = 'a'")
        place.sql("DELETE FROM cased WHERE s.X = 'b'")
        assert place.rows("SELECT k, s.x, s.X FROM cased") == [[7, 1, "a"]]
    finally:
        place.sql("RESET spark.sql.caseSensitive")
    assert place.rows("SELECT k, s IS NULL FROM cased") == [[7, False]]
