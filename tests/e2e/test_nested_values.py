"""Values of nested types: one order, one equality, whichever way they came in."""

from __future__ import annotations

import pytest
from tests.support.applications.many_relations import interpret, read_at_once

pytestmark = pytest.mark.spark

LENGTHS = range(20, 37)
"""At some of these a row of one text fills its buffer."""

NESTED_KINDS = {
    "collated": ("STRING COLLATE UTF8_LCASE", "'{}'"),
    "in_struct": (
        "STRUCT<a: STRING COLLATE UTF8_LCASE, b: INT>",
        "named_struct('a', '{}' COLLATE UTF8_LCASE, 'b', 1)",
    ),
    "in_array": ("ARRAY<STRING COLLATE UTF8_LCASE>", "array('{}' COLLATE UTF8_LCASE)"),
    "in_map": ("MAP<STRING, INT>", "map('{}', 1, 'k', 2)"),
    "map_of_maps": ("MAP<STRING, MAP<STRING, INT>>", "map('x', map('{}', 1), 'y', map('k', 2))"),
}
OPEN_QUERIES = (
    "SELECT x, d, row_number() OVER (ORDER BY g) AS n FROM {}",
    "SELECT x, d FROM {} LIMIT 3",
    "SELECT x, d FROM {} QUALIFY row_number() OVER (PARTITION BY g ORDER BY g) = 1",
    "SELECT g, max_by(x, g) AS m FROM {} GROUP BY g",
)


READER = "reader"


@pytest.fixture
def place(workplace):
    workplace.use(READER)
    interpret(workplace, READER)
    return workplace


def contents(place, names):
    """The rows of each relation."""
    sources = {name: f"SELECT * FROM {name}" for name in names}
    return list(read_at_once(place, sources, session=READER).values())


def counts(place, names):
    return [each.total() for each in contents(place, names)]


def texts():
    return [letter * length for length in LENGTHS for letter in ("a", "A", "b")]


@pytest.mark.parametrize("kind", NESTED_KINDS)
@pytest.mark.sampled(3)
def test_no_view_depends_on_the_order_in_which_rows_came(place, kind):
    column, literal = NESTED_KINDS[kind]
    for name, rows in (("asc", texts()), ("desc", texts()[::-1])):
        values = ", ".join(f"(1, 0.5D, {literal.format(text)})" for text in rows)
        place.sql(f"CREATE TABLE {name}_{kind} (g INT, d DOUBLE, x {column})")
        place.sql(f"INSERT INTO {name}_{kind} VALUES {values}")
        for number, query in enumerate(OPEN_QUERIES):
            table = f"{name}_{kind}"
            place.sql(f"CREATE MATERIALIZED VIEW v{number}_{table} AS {query.format(table)}")
    ones, others = (
        contents(place, [f"v{number}_{name}_{kind}" for number in range(len(OPEN_QUERIES))])
        for name in ("asc", "desc")
    )
    for query, one, other in zip(OPEN_QUERIES, ones, others, strict=True):
        assert one == other, query


MAPS = {
    "maps": "map('x', map('a', {0}, 'b', 2), 'y', map('c', 3, 'd', NULL))",
    "lists": "map('x', array(map('a', {0}, 'b', 2)), 'y', array())",
    "structs": "map('x', named_struct('m', map('a', {0}, 'b', 2)), 'y', NULL)",
    "maps_of_maps": "map(1, map(2, map('a', {0}, 'b', 2), 3, map('c', 4)), 5, map(6, NULL))",
    "in_array": "array(map('x', map('a', {0}), 'y', map('b', 2)), NULL)",
}
BACK = "map_from_entries(reverse(map_entries({0})))"
OTHER_WAY_ROUND = {
    "maps": BACK.format("{0}"),
    "lists": BACK.format("{0}"),
    "structs": BACK.format("{0}"),
    "maps_of_maps": BACK.format("{0}"),
    "in_array": "transform({0}, m -> " + BACK.format("m") + ")",
}


@pytest.mark.parametrize("kind", MAPS)
@pytest.mark.sampled(3)
def test_views_of_nested_maps_follow_deletes(place, kind):
    table = f"m_{kind}"
    first, second = MAPS[kind].format(1), MAPS[kind].format(9)
    place.sql(f"CREATE TABLE {table} AS SELECT 1 AS k, {first} AS m")
    place.sql(f"INSERT INTO {table} SELECT 2, {second}")
    place.sql(
        f"INSERT INTO {table} SELECT k + 10, {OTHER_WAY_ROUND[kind].format('m')} FROM {table}"
    )
    views = {
        "plain": f"SELECT k, m FROM {table}",
        "numbered": f"SELECT k, m, row_number() OVER (ORDER BY k) AS n FROM {table}",
        "some": f"SELECT m FROM {table} WHERE k > 0",
        "first": f"SELECT k, m FROM {table} QUALIFY row_number() OVER (ORDER BY k DESC) = 1",
        "listed": "SELECT k % 10 AS g, array_sort(collect_list(k)) AS l, max_by(m, k) AS x"
        f" FROM {table} GROUP BY g",
        "grouped": f"SELECT m, count(*) AS n FROM {table} GROUP BY m",
        "deduplicated": f"SELECT k % 10 AS k, m FROM {table} GROUP BY ALL",
    }
    for name, query in views.items():
        place.sql(f"CREATE MATERIALIZED VIEW {table}_{name} AS {query}")
    names = [f"{table}_{name}" for name in views]
    assert counts(place, names) == [4, 4, 4, 1, 2, 2, 2]
    assert {row[1] for row in place.rows(f"SELECT m, n FROM {table}_grouped")} == {2}
    place.sql(f"DELETE FROM {table} WHERE k IN (1, 11)")
    assert counts(place, names) == [2, 2, 2, 1, 1, 1, 1]
    place.sql(f"UPDATE {table} SET m = {OTHER_WAY_ROUND[kind].format('m')}")
    assert counts(place, names) == [2, 2, 2, 1, 1, 1, 1]
    place.sql(f"DELETE FROM {table}")
    assert counts(place, names) == [0] * len(names)
