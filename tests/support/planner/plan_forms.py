"""Queries whose plans are known, in groups: each form of Spark SQL that changes a plan's shape."""

from __future__ import annotations

TABLES = {
    "t": (
        "id BIGINT NOT NULL, a INT, b INT, s STRING, d DATE, ts TIMESTAMP, x DOUBLE, "
        "arr ARRAY<INT>, st STRUCT<f: INT, g: STRUCT<h: INT>>, m MAP<STRING, INT>"
    ),
    "u": "uid BIGINT NOT NULL, x INT, y INT, us STRING",
    "one": "uid BIGINT NOT NULL, x INT, y INT",
    "w": "k INT",
}

_T = (
    "SELECT id, CAST(nullif(id % 7, 0) AS INT), CAST(nullif(id * 5 % 6, 0) AS INT),"
    " CASE id % 5 WHEN 0 THEN NULL WHEN 1 THEN 'a' WHEN 2 THEN 'B' WHEN 3 THEN 'b' ELSE 'ax' END,"
    " date_add(DATE '2024-01-01', CAST(id AS INT)),"
    " TIMESTAMP '2024-01-01 22:30:00' + make_dt_interval(0, CAST(id AS INT)),"
    " CASE id % 4 WHEN 0 THEN 0.0D WHEN 1 THEN -0.0D WHEN 2 THEN double('nan') ELSE id / 4.0D END,"
    " CASE WHEN id % 4 = 0 THEN NULL ELSE transform(sequence(1, CAST(id % 3 AS INT) + 1),"
    " i -> CAST(i * id AS INT)) END,"
    " named_struct('f', CAST(id AS INT), 'g', named_struct('h', CAST(id % 3 AS INT))),"
    " map('k', CAST(id % 2 AS INT), 'l', NULL) FROM range(1, 31)"
)
_U = (
    "SELECT id, CAST(nullif(id % 5, 0) AS INT), CAST(nullif(id * 3 % 7, 0) AS INT),"
    " array('a', 'A', 'b')[CAST(id % 3 AS INT)] FROM range(1, 13)"
)
LOAD = (
    f"INSERT INTO t {_T}",
    f"INSERT INTO u {_U}",
    "INSERT INTO one SELECT id, CAST(id AS INT), CAST(id % 3 AS INT) FROM range(1, 6)",
    "INSERT INTO w SELECT CAST(id AS INT) FROM range(1, 5)",
)
VIEWS = {"vw": "SELECT a, count(*) AS n FROM t GROUP BY a"}

FORMS: dict[str, dict[str, str]] = {
    "subqueries": {
        "in": "SELECT a, b FROM t WHERE a IN (SELECT x FROM u)",
        "in_many": "SELECT a, b FROM t WHERE (a, b) IN (SELECT x, y FROM u)",
        "in_correlated": "SELECT a, b FROM t WHERE a IN (SELECT x FROM u WHERE u.y = t.b)",
        "in_below_or": "SELECT a, b FROM t WHERE a IN (SELECT x FROM u) OR b > 3",
        "in_selected": "SELECT a, a IN (SELECT x FROM u) AS i, a NOT IN (SELECT x FROM u) AS n"
        " FROM t",
        "in_of_join": "SELECT t.a, u.y FROM t JOIN u ON t.a = u.x AND t.b IN (SELECT k FROM w)",
        "not_in": "SELECT a, b FROM t WHERE a NOT IN (SELECT x FROM u WHERE x > 3)",
        "not_in_not_null": "SELECT a, b FROM t WHERE id NOT IN (SELECT uid FROM u)",
        "not_in_many": "SELECT a, b FROM t WHERE (a, b) NOT IN (SELECT x, y FROM u WHERE y = 2)",
        "not_in_correlated": "SELECT a, b FROM t WHERE a NOT IN (SELECT x FROM u WHERE u.y = t.b)",
        "not_in_below_or": "SELECT a, b FROM t WHERE a NOT IN (SELECT x FROM u) OR b > 3",
        "exists": "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.x = t.a AND u.y > t.b)",
        "not_exists": "SELECT a FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.x <=> t.a)",
        "exists_below_or": "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.x = t.a)"
        " OR b = 2",
        "exists_selected": "SELECT a, EXISTS (SELECT 1 FROM u WHERE u.x = t.a) AS e FROM t",
        "exists_alone": "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE x > 3)",
        "not_exists_alone": "SELECT a, NOT EXISTS (SELECT * FROM u WHERE x > 30) AS n FROM t",
        "exists_nested": "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.x = t.a AND"
        " EXISTS (SELECT 1 FROM w WHERE w.k = u.y))",
        "exists_aggregate": "SELECT a FROM t WHERE EXISTS (SELECT count(*) FROM u WHERE u.x = t.a"
        " HAVING count(*) > 1)",
        "scalar": "SELECT a, (SELECT max(x) FROM u) AS m FROM t WHERE b > (SELECT avg(y) FROM u)",
        "scalar_twice": "SELECT a FROM t WHERE b > (SELECT avg(y) FROM u)"
        " OR a < (SELECT avg(y) FROM u)",
        "scalar_copied": "SELECT m, a FROM (SELECT a, (SELECT max(x) FROM u) AS m FROM t)"
        " WHERE m > 3 AND m > a",
        "scalar_having": "SELECT a, (SELECT max(x) FROM u HAVING max(x) > 90) AS m FROM t",
        "scalar_limit": "SELECT a, (SELECT y FROM u ORDER BY uid LIMIT 1) AS m FROM t",
        "scalar_in_scalar": "SELECT a FROM t WHERE b > (SELECT avg(y) FROM u"
        " WHERE x < (SELECT max(k) FROM w))",
        "scalar_of_aggregate": "SELECT a, sum(b + (SELECT max(x) FROM u)) AS m FROM t GROUP BY a",
        "scalar_of_join": "SELECT t.a, u.y FROM t LEFT JOIN u"
        " ON t.a = u.x AND u.y < (SELECT max(k) FROM w)",
        "scalar_of_sort": "SELECT a, id FROM t ORDER BY a + (SELECT max(k) FROM w), id LIMIT 4",
        "scalar_correlated": "SELECT a, (SELECT max(y) FROM u WHERE u.x = t.a) AS m FROM t",
        "scalar_count": "SELECT a, (SELECT count(*) FROM u WHERE u.x = t.a) AS m FROM t",
        "scalar_unequal": "SELECT a, (SELECT count(*) FROM u WHERE u.x < t.a) AS m FROM t",
        "scalar_single": "SELECT a, (SELECT y FROM one WHERE one.x = t.a) AS m FROM t",
        "scalar_top": "SELECT a, (SELECT y FROM u WHERE u.x = t.a ORDER BY y, uid LIMIT 1) AS m"
        " FROM t",
        "scalar_union": "SELECT a, (SELECT sum(v) FROM (SELECT y AS v FROM u WHERE u.x = t.a"
        " UNION ALL SELECT k FROM w WHERE w.k = t.a)) AS m FROM t",
        "scalar_in_sum": "SELECT a, sum((SELECT max(y) FROM u WHERE u.x = t.a)) AS m FROM t"
        " GROUP BY a",
        "scalar_of_having": "SELECT a, sum(b) AS s FROM t GROUP BY a"
        " HAVING sum(b) > (SELECT max(y) FROM u WHERE u.x = t.a)",
        "in_of_view": "SELECT b FROM t WHERE b IN (SELECT n FROM vw WHERE vw.a = t.a)",
        "in_of_cte": "SELECT b FROM t WHERE b IN (WITH c AS (SELECT y, max(x) AS m FROM u"
        " GROUP BY y) SELECT c1.y FROM c c1 JOIN c c2 ON c1.y = c2.m WHERE c1.m >= t.a)",
        "exists_deep": "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM (SELECT x FROM u"
        " WHERE u.x = t.a AND u.y BETWEEN 1 AND nvl(t.b, 3)) AS q WHERE q.x > 1)",
        "exists_deep_alone": "SELECT a FROM t WHERE b IN (SELECT k FROM w"
        " WHERE EXISTS (SELECT 1 FROM u WHERE x > 2))",
        "between": "SELECT a FROM t WHERE b + 1 BETWEEN 1 AND (SELECT max(x) FROM u)",
    },
    "sets": {
        "except": "SELECT a, b FROM t EXCEPT SELECT x, y FROM u",
        "except_same": "SELECT a, b FROM t EXCEPT SELECT a, b FROM t WHERE a > 2",
        "except_all": "SELECT a, b FROM t EXCEPT ALL SELECT x, y FROM u",
        "intersect": "SELECT a, b FROM t INTERSECT SELECT x, y FROM u",
        "intersect_all": "SELECT a, b FROM t INTERSECT ALL SELECT x, y FROM u",
        "union": "SELECT a FROM t UNION SELECT x FROM u",
        "union_all": "SELECT a, b FROM t UNION ALL SELECT x, y FROM u UNION ALL SELECT k, k FROM w",
        "union_self": "SELECT a FROM t UNION ALL SELECT a FROM t",
        "distinct": "SELECT DISTINCT a, b FROM t",
    },
    "joins": {
        "left": "SELECT t.a, u.y FROM t LEFT JOIN u ON t.a = u.x AND u.y > 2 WHERE t.b > 1",
        "right": "SELECT t.a, u.y FROM t RIGHT JOIN u ON t.a = u.x AND t.b < u.y",
        "full": "SELECT t.a, u.y FROM t FULL JOIN u ON t.a = u.x",
        "full_null_safe": "SELECT t.a, u.y FROM t FULL JOIN u ON t.a <=> u.x AND t.s = u.us"
        " AND t.b > u.y AND t.b > 1",
        "using": "SELECT a, b, y FROM t FULL JOIN (SELECT x AS a, y FROM u) USING (a)",
        "cross": "SELECT w.k, u.y FROM w CROSS JOIN u",
        "theta": "SELECT t.a, u.y FROM t JOIN u ON t.a < u.x",
        "self": "SELECT t1.a, t2.b FROM t t1 JOIN t t2 ON t1.a = t2.b",
        "same_columns": "SELECT t1.a, t2.b FROM t t1 JOIN t t2 ON t1.a = t2.b AND t1.b = t2.a",
        "semi": "SELECT a FROM t LEFT SEMI JOIN u ON t.a = u.x",
        "anti": "SELECT a FROM t LEFT ANTI JOIN u ON t.a = u.x AND t.b > u.y",
        "comma": "SELECT t.a, u.y, w.k FROM t, w, u WHERE t.a = u.x AND u.y = w.k AND t.b > 1",
        "outer_that_is_inner": "SELECT t.a, u.y FROM t LEFT JOIN u ON t.a = u.x WHERE u.y > 2",
        "hint": "SELECT /*+ BROADCAST(u), REPARTITION(3) */ t.a FROM t JOIN u ON t.a = u.x",
    },
    "lateral": {
        "aggregate": "SELECT t.a, l.m FROM t,"
        " LATERAL (SELECT max(y) AS m FROM u WHERE u.x = t.a) l",
        "top": "SELECT t.a, l.y FROM t, LATERAL (SELECT y FROM u WHERE u.x = t.a"
        " ORDER BY y DESC, uid LIMIT 2) l",
        "top_offset": "SELECT t.id, l.y FROM t, LATERAL (SELECT y FROM u WHERE u.x = t.a"
        " ORDER BY uid LIMIT 2 OFFSET 1) l",
        "left": "SELECT t.a, l.m FROM t LEFT JOIN LATERAL (SELECT max(y) AS m, count(*) AS c"
        " FROM u WHERE u.x < t.a) l ON l.c > 1",
        "expression": "SELECT t.a, l.z FROM t, LATERAL (SELECT t.a + 1 AS z) l",
        "chain": "SELECT t.a, l.y, n.k FROM t, LATERAL (SELECT y FROM u WHERE u.x = t.a) l,"
        " LATERAL (SELECT k FROM w WHERE w.k = l.y) n",
    },
    "windows": {
        "frames": "SELECT a, b, sum(b) OVER (PARTITION BY a ORDER BY b, id"
        " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s,"
        " row_number() OVER (ORDER BY b DESC NULLS LAST, id) AS r FROM t",
        "top": "SELECT a, b FROM (SELECT a, b, row_number() OVER (PARTITION BY a ORDER BY b, id)"
        " AS r FROM t) WHERE r <= 2",
        "qualify": "SELECT a, b FROM t QUALIFY rank() OVER (PARTITION BY a ORDER BY b) = 1",
        "of_aggregate": "SELECT a, sum(sum(b)) OVER (ORDER BY a) AS s FROM t GROUP BY a",
        "whole": "SELECT a, b - avg(b) OVER () AS c FROM t",
        "ties": "SELECT a, b, s, x, m, rank() OVER (PARTITION BY a ORDER BY b, id) AS r,"
        " lag(x) OVER (PARTITION BY a ORDER BY b, id) AS l,"
        " first_value(s) OVER (PARTITION BY a ORDER BY b, id) AS f FROM t",
    },
    "grouping": {
        "expression": "SELECT a + 1 AS k, sum(b) + 1 AS s FROM t GROUP BY a + 1 HAVING sum(b) > 0",
        "literal": "SELECT 1 AS one, count(*) AS c FROM t GROUP BY 1.0, a",
        "sets": "SELECT a, b, grouping(a) AS g, grouping_id() AS i, sum(id) AS s FROM t"
        " GROUP BY GROUPING SETS ((a), (b), (a, b), ())",
        "rollup": "SELECT a, b, count(*) AS c FROM t GROUP BY ROLLUP (a, b)",
        "cube": "SELECT a, s, count(*) AS c FROM t GROUP BY CUBE (a, s)",
        "pivot": "SELECT * FROM (SELECT a, b, id FROM t) PIVOT (sum(id) FOR a IN (1, 2, 3))",
        "unpivot": "SELECT * FROM (SELECT a, b FROM t) UNPIVOT (v FOR n IN (a, b))",
        "float": "SELECT x, count(*) AS c FROM t GROUP BY x",
        "map": "SELECT m, count(*) AS c FROM t GROUP BY m",
        "collation": "SELECT s COLLATE UTF8_LCASE = 'A' AS i, count(*) AS c FROM t"
        " GROUP BY s COLLATE UTF8_LCASE",
    },
    "aggregates": {
        "global": "SELECT count(*) AS c, max(b) AS m FROM t WHERE a > 100",
        "distinct": "SELECT a, count(DISTINCT b) AS c FROM t GROUP BY a",
        "distinct_many": "SELECT a, count(DISTINCT b) AS c, sum(DISTINCT id) AS d, sum(b) AS s"
        " FROM t GROUP BY a",
        "filter": "SELECT a, count(DISTINCT b) FILTER (WHERE id > 2) AS c,"
        " sum(b) FILTER (WHERE b > 1) AS s FROM t GROUP BY a",
        "replaced": "SELECT a, count_if(b > 1) AS ci, any(b > 1) AS an, avg(b) AS av,"
        " round(stddev(b), 6) AS sd, bool_and(b > 0) AS ba FROM t GROUP BY a",
        "ordered": "SELECT a, listagg(s, ',') WITHIN GROUP (ORDER BY s) AS l,"
        " percentile_cont(0.5) WITHIN GROUP (ORDER BY b) AS p, max_by(b, id) AS mb,"
        " array_sort(collect_list(b)) AS cl FROM t GROUP BY a",
        "same_twice": "SELECT a, sum(b) AS s, sum(b) + count(*) AS q FROM t GROUP BY a"
        " HAVING count(*) > 1",
        "no_columns": "SELECT count(*) AS c FROM t",
    },
    "limits": {
        "top": "SELECT a, b, id FROM t ORDER BY b DESC NULLS LAST, id LIMIT 5",
        "offset": "SELECT a, b, id FROM t ORDER BY b, id LIMIT 2 + 3 OFFSET 2",
        "offset_alone": "SELECT a, b, id FROM t ORDER BY b, id OFFSET 25",
        "ordered": "SELECT a, id FROM t ORDER BY a, id",
    },
    "ctes": {
        "twice": "WITH c AS (SELECT a, sum(b) AS s FROM t GROUP BY a)"
        " SELECT c1.a, c2.s FROM c c1 JOIN c c2 ON c1.a = c2.a + 1 WHERE c1.s > 0 OR c2.s > 0",
        "same_twice": "WITH c AS (SELECT a, sum(b) AS s FROM t GROUP BY a)"
        " SELECT c1.a, c1.s, c2.a AS a2, c2.s AS s2 FROM c c1 JOIN c c2 ON c1.s = c2.s",
        "thrice": "WITH c AS (SELECT a, b FROM t WHERE b > 1)"
        " SELECT a, b FROM c UNION ALL SELECT a, b FROM c UNION ALL SELECT b, a FROM c",
        "view": "SELECT vw.a, n FROM vw JOIN t ON vw.a = t.b WHERE n > 1",
        "pipe": "FROM t |> WHERE a > 1 |> AGGREGATE sum(b) AS s GROUP BY a",
    },
    "generators": {
        "explode": "SELECT a, e FROM t LATERAL VIEW explode(arr) v AS e",
        "outer": "SELECT a, p, e FROM t LATERAL VIEW OUTER posexplode(arr) v AS p, e",
        "selected": "SELECT a, explode(map('k', b)) FROM t",
        "sequence": "SELECT a, s.n FROM t, LATERAL explode(sequence(1, coalesce(a, 1))) s(n)",
        "inline": "SELECT id, f, h FROM t LATERAL VIEW inline(array(st, NULL)) v AS f, h",
        "stack": "SELECT id, n, v FROM t LATERAL VIEW stack(2, 'a', a, 'b', b) x AS n, v",
    },
    "expressions": {
        "struct": "SELECT st.f, st.g.h, named_struct('x', a, 'y', b).x AS z FROM t"
        " WHERE st.g.h > 1",
        "lambdas": "SELECT a, transform(arr, y -> y + a) AS tr, filter(arr, (y, i) -> i > 0) AS f,"
        " aggregate(arr, 0, (p, q) -> p - q) AS ag, exists(arr, y -> y > 2) AS ex FROM t",
        "replaced": "SELECT a, nvl(b, 0) AS n, nullif(a, b) AS ni, a BETWEEN 1 AND b AS bt,"
        " left(s, 2) AS l, date_part('year', d) AS y, try_divide(a, b) AS td,"
        " endswith(s, 'x') AS ew FROM t",
        "nested_replaced": "SELECT nullif(nvl(a, 1) + rand(1) * 0, b) IS NULL AS z FROM t",
        "collated_join": "SELECT t.a, u.us FROM t JOIN u"
        " ON t.s COLLATE UNICODE_CI = u.us COLLATE UNICODE_CI",
        "interval": "SELECT d + INTERVAL 1 MONTH AS x, ts + INTERVAL '1' HOUR AS z FROM t",
        "zone": "SELECT CAST(ts AS STRING) AS s, hour(ts) AS h, CAST(ts AS DATE) AS cd FROM t",
        "in_list": "SELECT a FROM t WHERE a IN (1, 2, 3, NULL)",
        "now": "SELECT id FROM t WHERE unix_millis(ts) < mz_now()",
    },
    "constants": {
        "values": "SELECT t.a, v.n FROM t JOIN VALUES (1, 'x'), (2, 'y') AS v(k, n) ON t.a = v.k",
        "range": "SELECT t.a, r.id FROM t JOIN range(3) r ON t.a = r.id",
        "one_row": "SELECT 1 AS one, named_struct('f', 2) AS st",
        "nothing": "SELECT a FROM t WHERE false",
        "union": "SELECT a FROM t UNION ALL SELECT 1 UNION ALL VALUES (2)",
    },
    "others": {
        "sample": "SELECT a FROM t TABLESAMPLE (100 PERCENT) REPEATABLE (7)",
        "recursive": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5)"
        " SELECT n FROM r",
        "of_other": "SELECT a, count(*) AS c FROM t TABLESAMPLE (100 PERCENT) REPEATABLE (7)"
        " GROUP BY a",
    },
}
