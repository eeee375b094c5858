"""What a query leaves to the order of rows is settled in its view, and follows changes."""

from __future__ import annotations

import pytest
from tests.support.applications.application import SqlError
from tests.support.applications.many_relations import interpret, read_at_once

pytestmark = pytest.mark.spark

READER = "reader"
SESSION = "session_window(timestamp_seconds(60 * v), '90 seconds')"
SETTLED = {
    "SELECT k, v FROM t LIMIT 3": "SELECT k, v FROM t ORDER BY k, v LIMIT 3",
    "SELECT v FROM t LIMIT 2 OFFSET 1": "SELECT v FROM t ORDER BY v LIMIT 2 OFFSET 1",
    "SELECT k, v, x FROM t OFFSET 2": "SELECT k, v, x + 0D AS x FROM t ORDER BY k, v, x OFFSET 2",
    "SELECT count(*) AS n FROM (SELECT * FROM t LIMIT 4)": "SELECT least(count(*), 4) AS n FROM t",
    "SELECT k, v FROM t WHERE v IN (SELECT v FROM t WHERE k = 1 LIMIT 1)": (
        "SELECT k, v FROM t WHERE v IN (SELECT v FROM t WHERE k = 1 ORDER BY v LIMIT 1)"
    ),
    "SELECT k, m, last_value(v) OVER (PARTITION BY k ORDER BY m) AS w FROM t": (
        "SELECT k, m, max_by(v, n) OVER (PARTITION BY k ORDER BY m) AS w FROM"
        " (SELECT *, row_number() OVER (PARTITION BY k ORDER BY m, v) AS n FROM t)"
    ),
    "SELECT k, m, last_value(s) IGNORE NULLS OVER (PARTITION BY k ORDER BY m) AS w FROM t": (
        "SELECT k, m, max_by(s, n) OVER (PARTITION BY k ORDER BY m) AS w FROM (SELECT *,"
        " if(s IS NULL, NULL, row_number() OVER (PARTITION BY k ORDER BY m, s)) AS n FROM t)"
    ),
    "SELECT k, m, nth_value(v, 2) OVER (PARTITION BY k ORDER BY m) AS w FROM t": (
        "SELECT k, m, max(if(n = 2, v, NULL)) OVER (PARTITION BY k ORDER BY m) AS w FROM"
        " (SELECT *, row_number() OVER (PARTITION BY k ORDER BY m, v) AS n FROM t)"
    ),
    "SELECT k, m, first_value(v) OVER (ORDER BY m RANGE BETWEEN 1 PRECEDING AND 1 PRECEDING) AS w"
    " FROM t": (
        "SELECT k, m, min_by(v, n) OVER (ORDER BY m RANGE BETWEEN 1 PRECEDING AND 1 PRECEDING) AS w"
        " FROM (SELECT *, row_number() OVER (ORDER BY m, k, v) AS n FROM t)"
    ),
    "SELECT k, listagg(s, ',') WITHIN GROUP (ORDER BY s DESC) AS l, count(*) AS n FROM t"
    " GROUP BY k": (
        "SELECT k, nullif(array_join(sort_array(collect_list(s), false), ','), '') AS l,"
        " count(*) AS n FROM t GROUP BY k"
    ),
    "SELECT k, listagg(DISTINCT s, '') WITHIN GROUP (ORDER BY s) AS l FROM t GROUP BY k": (
        "SELECT k, nullif(array_join(sort_array(collect_set(s)), ''), '') AS l FROM t GROUP BY k"
    ),
    "SELECT k, median(x) AS p, percentile(x, 0.25) AS q FROM t GROUP BY k": (
        "SELECT k, median(x) + 0D AS p, percentile(x, 0.25) + 0D AS q FROM t GROUP BY k"
    ),
    "SELECT k, percentile_cont(0.5) WITHIN GROUP (ORDER BY x) AS p, mode(x) AS f FROM t"
    " GROUP BY k": (
        "SELECT k, percentile_cont(0.5) WITHIN GROUP (ORDER BY x) + 0D AS p,"
        " mode(x + 0D, true) AS f FROM t GROUP BY k"
    ),
    "SELECT k, approx_percentile(v, array(0.0, 0.5, 1.0), 1000) AS p FROM t GROUP BY k": (
        "SELECT k, transform(percentile_disc(array(0.0, 0.5, 1.0)) WITHIN GROUP (ORDER BY v),"
        " p -> int(p)) AS p FROM t GROUP BY k"
    ),
    "SELECT k, session_window.start AS a, session_window.end AS b, count(*) AS n, sum(v) AS s"
    f" FROM t GROUP BY k, {SESSION}": (
        "SELECT k, timestamp_seconds(60 * min(v)) AS a, timestamp_seconds(60 * max(v) + 90) AS b,"
        " count(*) AS n, sum(v) AS s FROM (SELECT k, v, v - dense_rank() OVER"
        " (PARTITION BY k ORDER BY v) AS g FROM t WHERE v IS NOT NULL) GROUP BY k, g"
    ),
    "SELECT t.k, t.v, t.v - u.m AS d FROM t JOIN t AS u EXACT NEAREST 2 BY DISTANCE t.v - u.m": (
        "SELECT k, v, d FROM (SELECT t.k, t.v,"
        " slice(array_sort(collect_list(t.v - u.m)), 1, 2) AS l"
        " FROM (SELECT *, monotonically_increasing_id() AS id FROM t) AS t, t AS u"
        " GROUP BY t.id, t.k, t.v) LATERAL VIEW explode(l) AS d"
    ),
    "SELECT k, approx_count_distinct(x) AS n FROM t GROUP BY k": (
        "SELECT k, approx_count_distinct(x) AS n FROM t GROUP BY k"
    ),
    "SELECT k, hll_sketch_estimate(hll_sketch_agg(v)) AS n FROM t GROUP BY k": (
        "SELECT k, hll_sketch_estimate(hll_sketch_agg(v)) AS n FROM t GROUP BY k"
    ),
}
"""Queries that leave rows or orders open, and such with the same rows that do not."""

WITHOUT_TWIN = (
    "SELECT session_window.start AS a, count(DISTINCT s) AS n, max(x) AS m,"
    f" histogram_numeric(x, 2) AS b FROM t GROUP BY {SESSION}",
    f"SELECT k, {SESSION} AS w, sum(x) AS b FROM t GROUP BY ALL HAVING count(*) > 1",
    "SELECT t.v, t.x, u.v AS w, u.mp AS b FROM t LEFT JOIN t AS u"
    " APPROX NEAREST 3 BY SIMILARITY t.m * u.v",
    "SELECT k, histogram_numeric(x, 3) AS h FROM t GROUP BY k",
    "SELECT histogram_numeric(v, 2) AS h, count(*) AS n FROM t",
    "SELECT k, approx_percentile(x, 0.3, 3) AS p FROM t GROUP BY k",
    "SELECT hll_sketch_agg(v) AS b FROM t",
    "SELECT k, theta_sketch_agg(v) AS b FROM t GROUP BY k",
    "SELECT k, tuple_sketch_agg_double(v, x) AS b FROM t GROUP BY k",
    "SELECT approx_top_k(v, 2) AS b FROM t",
    "SELECT k, bitmap_construct_agg(bitmap_bit_position(v)) AS b FROM t GROUP BY k",
    "SELECT k, max_by(mp, v) AS b FROM t GROUP BY k",
    "SELECT k, mode(c) AS b, mode(array_sort(map_entries(mp))) AS e FROM t GROUP BY k",
    "SELECT k, listagg(s, '') WITHIN GROUP (ORDER BY s) FILTER (WHERE v > 1) AS b FROM t"
    " GROUP BY k",
    "SELECT k, m, last_value(mp) OVER (PARTITION BY k ORDER BY m) AS b FROM t",
    "SELECT k, m, last_value(c) OVER (PARTITION BY k ORDER BY m) AS b FROM t",
    "SELECT k, m, max(v) OVER (PARTITION BY k ORDER BY m) AS b,"
    " row_number() OVER (PARTITION BY k ORDER BY m) AS r,"
    " last_value(v) OVER (PARTITION BY k ORDER BY m) AS l FROM t",
)
"""Queries whose views are compared with views of the same query that are made later."""

COLUMNS = (
    "k INT, m INT, v INT, x DOUBLE, s STRING, c STRING COLLATE UTF8_LCASE, mp MAP<STRING, INT>"
)
VALUES = "SELECT {k}, {m}, {v}, {x}, {s}, upper({s}), if({v} IS NULL, NULL, map('a', {v}, 'b', 1))"
STEPS = (
    *(
        "INSERT INTO t "
        + VALUES.format(k=n % 3, m=n % 2, v=(7 * n) % 5, x=f"{n}.5D", s=f"'{'cab'[n % 3]}'")
        for n in range(4)
    ),
    "INSERT INTO t " + VALUES.format(k=1, m="NULL", v="NULL", x="NULL", s="NULL"),
    "INSERT INTO t " + VALUES.format(k="NULL", m=1, v=3, x="double('NaN')", s="'d'"),
    "INSERT INTO t " + VALUES.format(k=2, m=1, v=4, x="-0.0D", s="'A'"),
    "INSERT INTO t SELECT k, m, v + id, x + id, s, lower(c), mp FROM t, range(3)",
    "UPDATE t SET v = 9 WHERE k = 0 AND v < 3",
    "DELETE FROM t WHERE k = 1 AND s = 'a'",
    "DELETE FROM t WHERE k <> 1",
    "INSERT INTO t SELECT k, m, v + 1, x, s, c, mp FROM t",
)


@pytest.fixture(scope="module")
def place(workplace_of_file):
    workplace_of_file.sql(f"CREATE TABLE t ({COLUMNS})")
    workplace_of_file.use(READER)
    interpret(workplace_of_file, READER)
    return workplace_of_file


def names(prefix, queries):
    return {f"{prefix}{n}": query for n, query in enumerate(queries)}


def tables(views):
    return {name: f"SELECT * FROM {name}" for name in views}


def create(place, views):
    for name, query in views.items():
        place.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")


def rows(place, query):
    return sorted(place.rows(query), key=repr)


@pytest.mark.nightly
def test_views_leave_nothing_open(place):
    settled, others = names("s", SETTLED), names("o", WITHOUT_TWIN)
    create(place, settled | others)
    for name in settled | others:
        explained = place.rows(f"EXPLAIN INCREMENTAL FOR MATERIALIZED VIEW {name}")
        assert all(row[3] != "recompute" for row in explained), (name, explained)
    for number, step in enumerate(STEPS):
        place.sql(step)
        if number % 2:
            twins = {f"{name}?": SETTLED[query] for name, query in settled.items()}
            found = read_at_once(place, tables(settled) | twins, session=READER)
            for name, query in settled.items():
                assert found[name] == found[f"{name}?"], query
        compared = {7: others, 11: settled | others}.get(number, {})
        if compared:
            again = names(f"again{number}_", compared.values())
            create(place, again)
            found = read_at_once(place, tables(compared | again), session=READER)
            for (name, query), other in zip(compared.items(), again, strict=True):
                assert found[other] == found[name], query
                place.sql(f"DROP MATERIALIZED VIEW {other}")


def test_what_ends_a_recursion_is_a_condition(place):
    endless = (
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r LIMIT 5"
    )
    with pytest.raises(SqlError) as refused:
        place.sql(f"CREATE MATERIALIZED VIEW five AS {endless}")
    assert refused.value.condition == "SLACKWATER_UNSUPPORTED"
    assert "let a condition end the recursion" in str(refused.value)
    place.sql(
        "CREATE MATERIALIZED VIEW five AS WITH RECURSIVE r(n) AS"
        " (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 9) SELECT n FROM r ORDER BY n LIMIT 5"
    )
    assert rows(place, "SELECT n FROM five") == [[n] for n in range(1, 6)]
    place.sql("DROP MATERIALIZED VIEW five")


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("SELECT TRANSFORM(k) USING 'cat' AS (k INT) FROM t", "TRANSFORM"),
        ("SELECT mode(mp) FROM t", "mode(array_sort(map_entries(...)))"),
    ],
)
def test_what_has_no_order_is_refused(place, query, named):
    with pytest.raises(SqlError) as refused:
        place.sql(f"CREATE MATERIALIZED VIEW m AS {query}")
    assert refused.value.condition == "SLACKWATER_UNMATERIALIZABLE_FUNCTION"
    assert named in str(refused.value)
