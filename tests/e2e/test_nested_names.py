"""Structs as Spark lets one write them: fields of one name, of other case, without any.

Neither Parquet nor Arrow has such structs, so files and streams have other names for them.
"""

from __future__ import annotations

import pytest
from tests.support.applications.application import Application

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
def place(tmp_path_factory):
    location = tmp_path_factory.mktemp("names") / "environment"
    with Application(location, master="local[2]") as application:
        application.sql("USE slackwater")
        application.sql("CREATE TABLE few (id BIGINT)")
        application.sql("INSERT INTO few VALUES (1), (2), (3)")
        application.sql(f"CREATE TABLE many AS SELECT id FROM range({LARGE})")
        yield application


def shown(place, query):
    """Rows in Spark's own text, which has all fields by their places."""
    return sorted(place.rows(query), key=repr)


def as_text(query):
    return f"SELECT id, CAST(s AS STRING) AS t FROM ({query})"


@pytest.mark.parametrize("kind", STRUCTS)
def test_views_have_what_their_query_has(place, kind):
    value = STRUCTS[kind].format("id")
    for table in ("few", "many"):
        query = f"SELECT id, {value} AS s FROM {table}"
        place.sql(f"CREATE MATERIALIZED VIEW {kind}_{table} AS {query}")
        assert shown(place, as_text(f"TABLE {kind}_{table}")) == shown(place, as_text(query))
    declared = place.rows(f"DESCRIBE {kind}_few")
    assert declared == place.rows(f"DESCRIBE QUERY SELECT id, {value} AS s FROM few")


@pytest.mark.parametrize("kind", STRUCTS)
def test_views_of_views_follow_changes(place, kind):
    value = STRUCTS[kind].format("id")
    place.sql(f"CREATE TABLE f_{kind} AS SELECT id FROM few")
    query = f"SELECT id, {value} AS s FROM f_{kind}"
    place.sql(f"CREATE MATERIALIZED VIEW below_{kind} AS {query}")
    grouped = f"SELECT max(id) AS id, max_by(s, id) AS s, count(*) AS n FROM below_{kind}"
    place.sql(f"CREATE MATERIALIZED VIEW above_{kind} AS {grouped}")
    for change in ("INSERT INTO {} VALUES (7), (7)", "DELETE FROM {} WHERE id IN (1, 7)"):
        place.sql(change.format(f"f_{kind}"))
        assert shown(place, as_text(f"TABLE below_{kind}")) == shown(place, as_text(query))
        assert shown(place, as_text(f"SELECT id, s FROM above_{kind}")) == shown(
            place, as_text(f"{query} ORDER BY id DESC LIMIT 1")
        )


@pytest.mark.parametrize("kind", STRUCTS)
def test_cursors_bring_the_values_of_views(place, kind):
    value = STRUCTS[kind].format("id")
    place.sql(f"CREATE MATERIALIZED VIEW c_{kind} AS SELECT id, {value} AS s FROM few")
    place.sql(f"DECLARE cur_{kind} CURSOR FOR SUBSCRIBE c_{kind}")
    fetched = place.python(
        f"rows = spark.sql(\"FETCH ALL cur_{kind} WITH (timeout = '5 minutes')\").collect()\n"
        "result = sorted(str(tuple(row[3])) if row[3] is not None and hasattr(row[3], '__fields__')"
        " else str(row[3]) for row in rows)"
    )
    direct = place.python(
        f"rows = spark.sql('SELECT s FROM c_{kind}').collect()\n"
        "result = sorted(str(tuple(row[0])) if row[0] is not None and hasattr(row[0], '__fields__')"
        " else str(row[0]) for row in rows)"
    )
    assert fetched == direct
    place.sql(f"CLOSE cur_{kind}")


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
