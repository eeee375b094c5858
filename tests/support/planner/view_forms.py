"""The forms of Spark SQL's grammar, as queries over tables with and without NULLs.

They follow the alternatives of Spark's SqlBaseParser.g4: predicate, comparison, valueExpression,
primaryExpression, relation, aggregationClause, queryTerm, queryOrganization.
"""

from __future__ import annotations

TABLES = {
    "t": (
        "id INT NOT NULL, n INT NOT NULL, a INT, b INT, d DECIMAL(10,2), "
        "dn DECIMAL(10,2) NOT NULL, s STRING, sn STRING NOT NULL, ts TIMESTAMP, "
        "tn TIMESTAMP NOT NULL, x DOUBLE, o BOOLEAN, "
        "st STRUCT<b: INT, m: MAP<STRING, INT>, i: STRUCT<x: INT, y: ARRAY<INT>>>, "
        "ar ARRAY<INT>, m MAP<STRING, INT>"
    ),
    "u": "id INT NOT NULL, n INT NOT NULL, a INT, c INT",
    "w": "n INT NOT NULL, e STRING",
}

_TS = "TIMESTAMP '2024-02-29 12:30:00'"
_FULL = (
    "named_struct('b', 1, 'm', map('k', 1), 'i', named_struct('x', 2, 'y', array(1, NULL))), "
    "array(1, 2, NULL), map('k', 1, 'l', NULL)"
)
LOAD = [
    "INSERT INTO t VALUES "
    f"(1, 0, 1, 1, 1.50, 1.50, 'apple', 'apple', {_TS}, {_TS}, 0.5, true, {_FULL}), "
    f"(2, 1, 2, 1, -2.25, 0.00, 'Banana', 'a_b', {_TS}, {_TS}, 1.5, false, {_FULL}), "
    f"(3, 3, 3, 5, 0.00, 7.00, 'b%', 'cherry', {_TS}, {_TS}, -1.0, true, "
    "named_struct('b', 2, 'm', map(), 'i', NULL), array(NULL), map())",
    "INSERT INTO u VALUES (1, 0, 1, 10), (2, 1, 2, 20), (2, 4, 4, 40), (5, 1, NULL, NULL)",
    "INSERT INTO w VALUES (0, 'zero'), (1, NULL), (9, 'nine')",
    "INSERT INTO t VALUES "
    f"(4, 3, NULL, NULL, NULL, 7.00, NULL, '', NULL, {_TS}, NULL, NULL, NULL, NULL, NULL), "
    "(5, 1, NULL, 2, NULL, 1.50, '', 'apple', NULL, TIMESTAMP '2023-01-01 00:00:00', NULL, NULL, "
    "named_struct('b', NULL, 'm', NULL, 'i', named_struct('x', NULL, 'y', NULL)), NULL, "
    "map('k', NULL)), "
    f"(1, 0, 1, 1, 1.50, 1.50, 'apple', 'apple', {_TS}, {_TS}, 0.5, true, {_FULL})",
]
CHANGES = [
    [
        "UPDATE t SET n = n + 1, a = NULL, s = 'apple', st = NULL WHERE id IN (1, 5)",
        "DELETE FROM w",
    ],
    ["DELETE FROM t", "DELETE FROM u"],
]
"""After each of them views and queries are compared."""

_NUMBER_TESTS = [
    "{} IN (1, 3)",
    "{} NOT IN (1, 3)",
    "{} IN (1)",
    "{} IN (1, NULL)",
    "{} NOT IN (1, NULL)",
    "{} IN (b, 3)",
    "NOT ({} IN (0, 1))",
    "({}, b) IN ((1, 1), (3, 5))",
    "{} IS NULL",
    "{} IS NOT NULL",
    "NOT ({} IS NULL)",
    "isnull({})",
    "isnotnull({})",
    "{} BETWEEN 1 AND 2",
    "{} NOT BETWEEN 1 AND 2",
    "{} BETWEEN b AND 3",
    "{} = 1",
    "{} == 1",
    "{} <=> b",
    "{} <=> NULL",
    "{} <> 1",
    "{} != b",
    "{} < 1",
    "{} > 1",
    "{} <= b",
    "{} >= b",
    "{} IS DISTINCT FROM b",
    "{} IS NOT DISTINCT FROM 1",
    "({} > 1) IS TRUE",
    "({} > 1) IS NOT TRUE",
    "({} > b) IS FALSE",
    "({} > b) IS UNKNOWN",
    "({} > b) IS NOT UNKNOWN",
    "! ({} = 1)",
    "{} = 1 AND b = 1",
    "{} IS NULL OR b IS NULL",
    "{} IS NULL AND b IS NULL",
    "coalesce({}, b) IS NULL",
    "{} = NULL",
    "true",
    "CAST(NULL AS BOOLEAN)",
    "EXISTS(ar, y -> y > {})",
]
_TEXT_TESTS = [
    "{} LIKE 'a%'",
    "{} NOT LIKE 'a%'",
    "{} LIKE 'a/_b' ESCAPE '/'",
    "{} LIKE 'b\\\\%'",
    "{} ILIKE 'B%'",
    "{} RLIKE '^[ab]'",
    "{} NOT REGEXP '^a'",
    "{} LIKE ANY ('a%', 'b%')",
    "{} NOT LIKE ANY ('a%', 'b%')",
    "{} LIKE SOME ('a%')",
    "{} LIKE ALL ('a%', '%e')",
    "{} NOT LIKE ALL ('a%', 'b%')",
    "{} ILIKE ANY ('A%', 'B%')",
    "{} IN ('apple', '')",
    "{} = ''",
    "{} COLLATE UTF8_LCASE = 'APPLE'",
    "startswith({}, 'a')",
    "length({}) BETWEEN 1 AND 5",
    "{} IS NULL",
]
_DECIMAL_TESTS = ["{} IN (1.5, 7)", "{} BETWEEN 0 AND 1.50", "{} IS NULL", "{} > 0 OR {} IS NULL"]
_TIME_TESTS = [
    "{} = TIMESTAMP '2024-02-29 12:30:00'",
    "{} IN (TIMESTAMP '2023-01-01', DATE '2024-02-29')",
    "{} BETWEEN DATE '2024-01-01' AND DATE '2024-12-31'",
    "{} + INTERVAL '1' DAY > TIMESTAMP '2024-03-01 00:00:00'",
    "{} IS NOT NULL",
    "extract(YEAR FROM {}) = 2024",
]
_NESTED_TESTS = [
    "st.b = 1",
    "st.b IS NULL",
    "st IS NULL",
    "st IS NOT NULL AND st.i IS NULL",
    "st.i.x IN (2, 3)",
    "t.st.i.y[0] = 1",
    "st.m['k'] = 1",
    "m['l'] IS NULL",
    "m IS NOT NULL",
    "ar[0] IS NULL",
    "array_contains(ar, 1)",
    "size(ar) BETWEEN 0 AND 3",
    "exists(ar, y -> y = b)",
    "st.i = st.i",
    "o",
    "NOT o",
    "o IS NOT TRUE",
    "x > 0.25",
    "x IS NULL OR o",
]


def _where(tests: list[str], *columns: str) -> list[str]:
    """For each column a branch where the test stands alone, and one where it is below OR."""
    found = []
    for start in range(0, len(tests), _TOGETHER):
        branches = []
        for test in tests[start : start + _TOGETHER]:
            forms = [test.replace("{}", column) for column in columns] or [test]
            below = " OR ".join(f"({form} AND id > 1)" for form in forms)
            branches += [
                f"SELECT {i} AS branch, id FROM t WHERE {form}"
                for i, form in enumerate([*forms, below], start=10 * len(branches))
            ]
        found.append(" UNION ALL ".join(branches))
    return found


_TOGETHER = 10
"""So many tests are in one view."""

_VALUES = [
    *["-a", "+a", "~a", "n * a", "a / 2", "a % 2"],
    *["a DIV 2", "d + a", "d - dn", "s || sn", "n & 3"],
    *["a ^ 1", "a | 4", "a << 1", "a >> 1", "a - (b - n)", "(a - b) - n", "-(a + b) * n"],
    *["CASE WHEN a = 1 THEN 'x' WHEN n IS NULL THEN 'y' END"],
    *["CASE a WHEN 1 THEN 'i' ELSE 'j' END"],
    *["CASE WHEN n IN (1, 3) THEN 1 ELSE 0 END", "if(a IS NULL, 0, a)", "nullif(a, b)"],
    *["coalesce(a, b, n)", "nvl2(a, 1, 2)", "a IS NULL", "n IS NULL", "NOT o", "a > 1 AND o"],
    *["a IN (1, 2)", "a NOT IN (1, NULL)"],
    *["s LIKE ANY ('a%', 'b%')", "a BETWEEN 1 AND n", "a <=> b"],
    *["CAST(a AS STRING)", "a :: STRING", "TRY_CAST(s AS INT)"],
    *["CAST(d AS INT)", "CAST(NULL AS INT)"],
    *["1L", "1S", "1Y", "1.5BD", "2D", "3F", "1e3", "1.50", "X'1F'", "true", "'a' 'b'", "r'a\\b'"],
    *["DATE '2024-01-01'", "TIMESTAMP '2024-01-01 00:00:00'", "INTERVAL '1' DAY + ts"],
    *["TIMESTAMP_NTZ '2024-01-01 00:00:00'"],
    *["date_trunc('MONTH', ts)", "ts - INTERVAL 1 DAY 2 HOURS"],
    *["EXTRACT(YEAR FROM ts)", "timestampadd(DAY, 1, ts)", "timestampdiff(HOUR, tn, ts)"],
    *["SUBSTRING(s FROM 1 FOR 2)", "substr(s, 2)", "TRIM(BOTH 'a' FROM s)", "TRIM(s)"],
    *["TRIM(LEADING 'a' FROM s)", "OVERLAY(s PLACING 'x' FROM 1 FOR 1)", "POSITION('a' IN s)"],
    *["left(s, 1)", "upper(s)", "concat_ws(',', s, sn)", "split(s, 'p')", "format_string('%s', s)"],
    *["st", "st.b", "st.i", "st.i.x", "st.i.y", "t.st.i.y[0]"],
    *["st.m", "st.m['k']", "ar[0]", "m['k']"],
    *["(a, b)", "struct(a, b AS c)", "named_struct('p', a, 'q', st.b)", "to_json((a, b))"],
    *["array(a, n)", "struct(st.b, a + 1, 5)", "to_json(struct(a, st.b))"],
    *["transform(ar, y -> y + a)", "filter(ar, y -> y IS NULL)"],
    *["aggregate(ar, 0, (p, q) -> p + q)"],
    *["map(sn, a)", "map_entries(m)", "to_json(st)"],
    *["hash(a, s)", "ceil(d)", "round(d, 1)", "log(2, n + 1)"],
    *["decode(a, 1, 'i', 2, 'j', 'k')", "greatest(a, b)", "try_divide(a, 0)", "d * dn", "x / 3"],
]  # fmt: skip

_AGGREGATES = [
    "count(*) AS r",
    "count(a) AS r, count(a, b) AS r2",
    "count(DISTINCT a) AS r, count(*) AS n2, sum(n) AS s2",
    "sum(a) AS r, sum(d) AS rd, sum(x) AS rx",
    "avg(a) AS r, avg(d) AS rd, avg(x) AS rx",
    "min(a) AS r, max(s) AS rs, max(ts) AS rt",
    "count_if(a > 1) AS r, bool_and(o) AS ro, every(a > 0) AS re",
    "count(*) FILTER (WHERE a > 1) AS r, sum(n) FILTER (WHERE a IS NULL) AS r2",
    "max(a) FILTER (WHERE b = 1) AS r, count(DISTINCT n) FILTER (WHERE n IN (1, 3)) AS r2",
    "array_sort(collect_list(a)) AS r, array_sort(collect_set(s)) AS rs",
    "max_by(s, id) IS NULL AS r, min_by(id, id) AS ri",
    "count(*) + coalesce(max(a), 0) AS r, CASE WHEN count(*) = 0 THEN 'none' ELSE 'some' END AS e",
    "coalesce(sum(n), 0) AS r, coalesce(max(n), 0) AS m, count(*) IS NULL AS c",
    "percentile(a, 0.5) AS r, median(n) AS m",
    "round(stddev_pop(a), 6) AS r, round(corr(a, n), 6) AS c, round(variance(x), 6) AS v, "
    "round(skewness(a), 6) AS sk, round(kurtosis(a), 6) AS ku, round(std(DISTINCT a), 6) AS sd",
    "round(covar_samp(a, n), 6) AS r, round(regr_slope(n, a), 6) AS s, "
    "round(regr_intercept(n, a), 6) AS i, round(regr_r2(a, n), 6) AS r2, "
    "round(regr_sxx(n, a), 6) AS sx, round(regr_sxy(n, a), 6) AS sy, regr_count(n, a) AS rc",
    "mean(a) AS r, try_sum(n) AS s, try_avg(d) AS t, approx_count_distinct(a) AS ac, "
    "mode(n, true) AS m",
    "count(st.b) AS r, max(st.i.x) AS rx, sum(st.m['k']) AS rm",
    "1 AS one, 'x' AS x, count(*) AS r",
]

_OTHERS = [
    # aggregates without GROUP BY
    "SELECT count(*) AS c FROM t HAVING count(*) = 0",
    "SELECT max(a) AS m FROM t HAVING max(a) IS NULL",
    "SELECT 1 AS one FROM t HAVING count(*) = 0",
    "SELECT 1 AS one FROM t HAVING true",
    "SELECT count(*) AS c, max(a) AS m FROM t WHERE false",
    "SELECT count(*) AS c, max(m) AS m FROM (SELECT max(a) AS m FROM t)",
    "SELECT sum(c) AS s, max(m) AS m FROM (SELECT n, count(*) AS c, max(a) AS m FROM t GROUP BY n)",
    "SELECT count(*) AS c FROM t UNION ALL SELECT max(a) FROM t UNION ALL SELECT sum(c) FROM u",
    "SELECT max(a) AS c FROM t EXCEPT SELECT max(a) FROM u",
    "WITH g AS (SELECT count(*) AS c, max(a) AS m FROM t) SELECT c, m FROM g WHERE m IS NULL",
    "WITH g AS (SELECT max(a) AS m FROM t) SELECT x.m, y.m AS y FROM g x CROSS JOIN g y",
    "SELECT g.c, g.m, u.id FROM (SELECT count(*) AS c, max(a) AS m FROM t) g, u",
    "SELECT u.id, g.m FROM u LEFT JOIN (SELECT max(a) AS m FROM t) g ON u.a = g.m",
    "SELECT g.m, u.id FROM (SELECT max(a) AS m FROM t) g LEFT JOIN u ON u.a <=> g.m",
    "SELECT g.c, h.c AS hc FROM (SELECT count(*) AS c FROM t) g "
    "FULL JOIN (SELECT count(*) AS c, max(n) AS m FROM u) h ON g.c = h.c",
    "SELECT k.n, k.c, g.m FROM (SELECT n, count(*) AS c FROM t GROUP BY n) k "
    "JOIN (SELECT max(c) AS m FROM u) g ON k.c <> g.m OR g.m IS NULL",
    "SELECT id FROM u WHERE a IN (SELECT max(a) FROM t)",
    "SELECT id FROM u WHERE a NOT IN (SELECT max(a) FROM t)",
    "SELECT id FROM u WHERE EXISTS (SELECT max(a) FROM t)",
    "SELECT id FROM u WHERE NOT EXISTS (SELECT count(*) FROM t HAVING count(*) > 2)",
    "SELECT id, (SELECT count(*) FROM t) AS c, (SELECT max(a) FROM t) AS m FROM u",
    "SELECT id, (SELECT count(*) FROM t WHERE t.n = u.n) AS c FROM u",
    "SELECT (SELECT count(*) FROM t) AS c",
    "SELECT count(*) AS c, (SELECT max(n) FROM u) AS m FROM t",
    "SELECT count(*) AS c, max(t.a) AS m FROM t JOIN u ON t.n = u.n",
    "SELECT count(u.id) AS c, max(u.c) AS m FROM t LEFT JOIN u ON t.n = u.n",
    "SELECT count(e) AS c, max(e) AS m FROM t LATERAL VIEW OUTER explode(ar) v AS e",
    # GROUP BY and HAVING
    "SELECT n, count(*) AS c FROM t GROUP BY n",
    "SELECT n, count(*) AS c FROM t GROUP BY 1",
    "SELECT n AS k, a, count(*) AS c FROM t GROUP BY 2, 1",
    "SELECT n + 1 AS k, count(*) AS c FROM t GROUP BY k",
    "SELECT n + 1 AS k, count(*) AS c FROM t GROUP BY n",
    "SELECT n, a, count(*) AS c FROM t GROUP BY ALL",
    "SELECT count(*) AS c, max(a) AS m FROM t GROUP BY ALL",
    "SELECT count(*) AS c FROM t GROUP BY 'x'",
    "SELECT count(*) AS c, max(a) AS m FROM t GROUP BY NULL",
    "SELECT 1.0 AS k, count(*) AS c FROM t GROUP BY 1.0",
    "SELECT n, a, count(*) AS c FROM t GROUP BY n, a WITH ROLLUP",
    "SELECT n, a, max(b) AS c FROM t GROUP BY CUBE (n, a)",
    "SELECT n, a, max(b) AS c, grouping(n) AS g FROM t GROUP BY GROUPING SETS ((n, a), (n), ())",
    "SELECT n, max(b) AS c FROM t GROUP BY n GROUPING SETS ((n), ())",
    "SELECT max(b) AS c FROM t GROUP BY GROUPING SETS (())",
    "SELECT st.b, count(*) AS c FROM t GROUP BY st.b",
    "SELECT t.st.b AS k, max(st.i.x) AS c FROM t GROUP BY t.st.b",
    "SELECT st.i.x, count(*) AS c FROM t GROUP BY st.i.x HAVING st.i.x IS NULL OR count(*) > 1",
    "SELECT st.i AS k, count(*) AS c FROM t GROUP BY st.i",
    "SELECT st, count(*) AS c FROM t GROUP BY st",
    "SELECT ar, count(*) AS c FROM t GROUP BY ar",
    "SELECT CASE WHEN n IN (1, 3) THEN 'x' ELSE 'y' END AS k, count(*) AS c FROM t GROUP BY k",
    "SELECT n IS NULL AS z, a IS NULL AS y, count(*) AS c FROM t GROUP BY n IS NULL, a IS NULL",
    "SELECT n, count(*) AS c FROM t GROUP BY n HAVING c > 1",
    "SELECT n, sum(a) AS a FROM t GROUP BY n HAVING a > 1",
    "SELECT n, sum(a) AS k FROM t GROUP BY n HAVING k IS NULL OR n IN (1, 3)",
    "SELECT n FROM t GROUP BY n HAVING max(a) IS NULL",
    "SELECT n, count(*) AS c FROM t GROUP BY n HAVING n NOT IN (3) AND count(a) IN (0, 1)",
    "SELECT upper(s) AS k, count(*) AS c FROM t GROUP BY upper(s) HAVING k LIKE ANY ('A%', 'B%')",
    "SELECT a AS n, n AS a FROM t",
    "SELECT n AS k, k + 1 AS l, l * 2 AS q FROM t",
    "SELECT n + 1 AS n, n + 1 AS q FROM t",
    "SELECT DISTINCT a, s FROM t",
    # relations
    "SELECT * FROM t",
    "SELECT t.* FROM t WHERE t.n IN (1, 3)",
    "SELECT * EXCEPT (st, m, ar) FROM t",
    "SELECT x.k, x.l FROM (SELECT n, a FROM t) AS x (k, l)",
    "SELECT k FROM u AS x (i, k, l, q) WHERE l IS NULL",
    "SELECT n, a, c, t.id FROM t JOIN u USING (n, a)",
    "SELECT n, t.id AS i, u.id AS j FROM t LEFT JOIN u USING (n)",
    "SELECT n, t.n AS tn2, u.n AS un, u.id FROM t RIGHT JOIN u USING (n)",
    "SELECT n, t.id AS i, u.id AS j FROM t FULL JOIN u USING (n)",
    "SELECT * FROM u NATURAL JOIN w",
    "SELECT * FROM u NATURAL LEFT JOIN w",
    "SELECT u.id, w.e FROM u NATURAL RIGHT JOIN w",
    "SELECT u.id, w.e FROM u CROSS JOIN w",
    "SELECT u.id, w.e FROM u LEFT OUTER JOIN w ON u.n = w.n WHERE w.n IS NULL",
    "SELECT u.id, w.n FROM u LEFT OUTER JOIN w ON u.n = w.n AND w.n IS NULL",
    "SELECT u.id, w.n IS NULL AS z FROM u LEFT JOIN w ON u.n = w.n",
    "SELECT u.id, w.n FROM u FULL OUTER JOIN w ON u.n = w.n AND u.a IN (1, 2)",
    "SELECT t.id FROM t ANTI JOIN u USING (n)",
    "SELECT id, st FROM t LEFT ANTI JOIN u ON t.st.b = u.a",
    "SELECT t.id, x.c, y.c AS yc, w.e FROM t LEFT JOIN u x ON t.n = x.n LEFT JOIN u y ON x.a = y.a "
    "LEFT JOIN w ON y.n = w.n",
    "SELECT a.id, b.n AS bn, c.n AS cn, d.n AS dn2, e.e FROM u a LEFT JOIN u b ON a.n = b.a "
    "LEFT JOIN u c ON b.n = c.a LEFT JOIN u d ON c.n = d.a LEFT JOIN w e ON e.n = d.n",
    "SELECT a.id, b.e, c.e AS ce, d.e AS de FROM u a LEFT JOIN w b ON a.n = b.n "
    "LEFT JOIN w c ON a.a = c.n LEFT JOIN w d ON a.c = d.n",
    "SELECT t.id, w.e FROM t LEFT JOIN (u JOIN w ON u.n = w.n) ON t.n = u.n",
    "SELECT t.id, y FROM t, LATERAL (SELECT u.c AS y FROM u WHERE u.n = t.n)",
    "SELECT id, k, v FROM t LATERAL VIEW explode(m) q AS k, v",
    "SELECT id, p, v FROM t LATERAL VIEW OUTER posexplode(st.i.y) q AS p, v WHERE v IS NULL",
    "SELECT id, e FROM t, LATERAL explode(ar) AS q (e)",
    "SELECT * FROM VALUES (1, 'x'), (2, NULL) AS v (k, l)",
    "SELECT r.id AS k, t.id FROM range(3) r LEFT JOIN t ON t.n = r.id",
    "SELECT * FROM (SELECT n, a, id FROM u) PIVOT (max(id) FOR a IN (1 AS one, 2 AS two))",
    "SELECT * FROM u UNPIVOT INCLUDE NULLS (v FOR kind IN (a, c))",
    # subqueries as predicates
    "SELECT id FROM t WHERE a IN (SELECT a FROM u) AND n IN (0, 1, 2)",
    "SELECT id FROM t WHERE a NOT IN (SELECT a FROM u)",
    "SELECT id FROM t WHERE n NOT IN (SELECT n FROM u)",
    "SELECT id FROM t WHERE (n, a) IN (SELECT n, a FROM u)",
    "SELECT id FROM t WHERE n IN (1, 3) OR n IN (SELECT n FROM u)",
    "SELECT id, n IN (SELECT n FROM u) AS z FROM t",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.n = t.n AND u.a IS NULL)",
    "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.n = t.n AND u.n IN (1, 3))",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.n IS NULL)",
    # set operations and other query terms
    "SELECT a, s FROM t UNION ALL SELECT NULL, NULL UNION ALL SELECT n, NULL FROM u",
    "SELECT x.id FROM (SELECT id, NULL AS z FROM u) x WHERE x.z IS NULL",
    "SELECT n FROM t EXCEPT ALL SELECT n FROM u",
    "SELECT a FROM t INTERSECT SELECT a FROM u",
    "(SELECT n FROM t WHERE n IN (1, 2)) UNION ALL (SELECT n FROM u WHERE n IS NULL)",
    "FROM u SELECT id, n WHERE a IS NULL",
    "FROM t |> AGGREGATE count(*) AS c, max(a) AS m",
    "SELECT id, n FROM u ORDER BY n, id, a NULLS LAST LIMIT 2",
    "SELECT n, count(*) AS c FROM u GROUP BY n ORDER BY c DESC, n LIMIT 1 OFFSET 1",
    "WITH q (k, l) AS (SELECT n, a FROM t WHERE n IN (1, 3)), "
    "r AS (SELECT k FROM q WHERE l IS NULL) SELECT count(*) AS c, max(k) AS m FROM r",
    "SELECT id, n, row_number() OVER (PARTITION BY n ORDER BY id, c) AS r FROM u",
    "SELECT id, sum(n) OVER (ORDER BY id, n ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS r FROM u",
    "SELECT n, a FROM u QUALIFY row_number() OVER (PARTITION BY n ORDER BY id) = 1",
    "TABLE u",
    "SELECT id FROM t WHERE a !> 1 OR n !< 2",
    "SELECT a >>> 1 AS v FROM t",
    "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a) AS v FROM t",
    "WITH RECURSIVE r (k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM r WHERE k < 3) SELECT k FROM r",
]


def _values(width: int) -> list[str]:
    groups = [_VALUES[i : i + width] for i in range(0, len(_VALUES), width)]
    return [
        "SELECT id, " + ", ".join(f"{value} AS v{i}" for i, value in enumerate(group)) + " FROM t"
        for group in groups
    ]


def forms() -> list[str]:
    """The queries that can be maintained views."""
    tests = [
        *_where(_NUMBER_TESTS, "n", "a"),
        *_where(_TEXT_TESTS, "s", "sn"),
        *_where(_DECIMAL_TESTS, "d", "dn"),
        *_where(_TIME_TESTS, "ts", "tn"),
        *_where(_NESTED_TESTS),
    ]
    totals = [f"SELECT {each} FROM t" for each in _AGGREGATES]
    keyed = [f"SELECT n, a AS k, {each} FROM t GROUP BY n, a" for each in _AGGREGATES[::3]]
    return [*tests, *_values(18), *totals, *keyed, *_OTHERS]


ON_VIEWS = {
    "totals": "SELECT count(*) AS c, max(a) AS m, coalesce(sum(n), 0) AS z FROM t",
    "keyed": "SELECT n, count(*) AS c, max(a) AS m FROM t GROUP BY n",
}
"""Views that the queries of `on_views` read."""


def on_views() -> list[str]:
    """Queries over views, whose columns Spark may know not to be NULL."""
    return [
        "SELECT c, m FROM totals WHERE c IS NULL",
        "SELECT c, m FROM totals WHERE c IS NULL OR z IS NULL",
        "SELECT n, c FROM keyed WHERE c IS NULL",
        "SELECT n, c FROM keyed WHERE c IS NULL OR n IS NULL",
        "SELECT n, c FROM keyed WHERE c IN (1, 3)",
        "SELECT count(*) AS c, max(c) AS m, max(m) AS mm FROM totals",
        "SELECT count(*) AS c, max(c) AS m FROM keyed",
        "SELECT sum(c) AS c, count(DISTINCT m) AS m FROM totals",
        "SELECT totals.c, keyed.n, keyed.m FROM totals LEFT JOIN keyed ON totals.c = keyed.c",
        "SELECT keyed.n, totals.m FROM keyed JOIN totals ON keyed.m <=> totals.m",
        "SELECT n FROM keyed WHERE m NOT IN (SELECT m FROM totals)",
        "SELECT c FROM totals UNION ALL SELECT max(c) FROM keyed",
        "SELECT c FROM totals EXCEPT SELECT c FROM keyed",
        "SELECT max(x.c) AS c FROM totals x CROSS JOIN totals y",
    ]


REFUSED = {
    "SELECT count(*) AS c FROM t GROUP BY ()": "PARSE_SYNTAX_ERROR",
    "SELECT first(a) AS v FROM t": "SLACKWATER_UNMATERIALIZABLE_FUNCTION",
    "SELECT any_value(a) AS v FROM t GROUP BY n": "SLACKWATER_UNMATERIALIZABLE_FUNCTION",
    "SELECT last(a) IGNORE NULLS AS v FROM t": "SLACKWATER_UNMATERIALIZABLE_FUNCTION",
    "SELECT collect_list(a) AS v FROM t": "SLACKWATER_UNMATERIALIZABLE_FUNCTION",
    "SELECT listagg(s) AS v FROM t": "SLACKWATER_UNMATERIALIZABLE_FUNCTION",
    "SELECT current_date AS v": "SLACKWATER_UNMATERIALIZABLE_FUNCTION",
    "SELECT id, current_timestamp() AS v FROM t": "SLACKWATER_UNMATERIALIZABLE_FUNCTION",
    "SELECT id, rand() AS v FROM t": "SLACKWATER_UNMATERIALIZABLE_FUNCTION",
    "SELECT id, current_user AS v FROM t": "SLACKWATER_UNMATERIALIZABLE_FUNCTION",
    "SELECT * FROM t TABLESAMPLE (50 PERCENT)": "SLACKWATER_UNMATERIALIZABLE_FUNCTION",
    "SELECT row_number() OVER (PARTITION BY n) AS v FROM t": "WINDOW_FUNCTION_FRAME_NOT_ORDERED",
    "SELECT id FROM t WHERE mz_now() <> 1": "SLACKWATER_TEMPORAL_FILTER",
    "SELECT id, mz_now() AS v FROM t": "SLACKWATER_TEMPORAL_FILTER",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3)"
    " SELECT id FROM t JOIN r ON r.n = 1 WHERE mz_now() > 1": "SLACKWATER_TEMPORAL_FILTER",
    "SELECT id, INTERVAL '1' DAY AS v FROM t": "SLACKWATER_UNSUPPORTED_TYPE",
    "SELECT NULL AS v": "SLACKWATER_UNSUPPORTED_TYPE",
    "SELECT DISTINCT m FROM t": "UNSUPPORTED_FEATURE.SET_OPERATION_ON_MAP_TYPE",
}
"""Queries that are no maintained views, and with which condition they are refused."""
