"""Random tables, histories, views and tick boundaries, and what DuckDB says of them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal

from hypothesis import strategies as st
from tests.support.compute.incremental import Recomputation

from slackwater.repr.relation import RelationDesc

LAST = 12
TABLES = {
    "r": RelationDesc.of(k="integer", v="long", d="decimal(10,2)"),
    "q": RelationDesc.of(k="integer", v="long", d="decimal(10,2)"),
}
_SQL = "(k INTEGER, v BIGINT, d DECIMAL(10, 2))"

keys = st.one_of(st.none(), st.integers(0, 2))
values = st.one_of(st.none(), st.integers(-3, 3))
decimals = st.one_of(st.none(), st.integers(-300, 300).map(lambda n: Decimal(n) / 100))
rows = st.tuples(keys, values, decimals)


@st.composite
def updates_of_a_table(draw):
    """Inserts and deletes of rows that are there, at random times."""
    present: Counter = Counter()
    updates = []
    times = draw(st.lists(st.integers(1, LAST), max_size=8).map(sorted))
    for time in times:
        here = [row for row, count in present.items() if count]
        if here and draw(st.integers(0, 2)) == 0:
            row, diff = draw(st.sampled_from(here)), -1
        else:
            row, diff = draw(rows), draw(st.sampled_from([1, 1, 1, 2]))
        present[row] += diff
        updates.append((row, time, diff))
    return updates


def scalars(alias):
    prefix = f"{alias}." if alias else ""
    return st.sampled_from(
        [f"{prefix}v", f"{prefix}k + 1", f"coalesce({prefix}v, 0) * 2", f"{prefix}k % 2"]
    )


conditions = st.sampled_from(
    [
        *["v > 0", "k = 1", "v IS NULL", "k IS NOT NULL AND v <> 1", "d < 1", "k IN (0, 2)"],
        *["v NOT IN (1, 2)", "v IN (1, NULL)", "v BETWEEN 0 AND 2", "k IS NULL AND v IS NULL"],
    ]
)
totals = st.sampled_from(
    [
        "CAST(count(*) AS INT) AS k, max(v) AS v, min(d) AS d",
        "CAST(count(k) AS INT) AS k, count(DISTINCT v) AS v, CAST(sum(d) AS DECIMAL(10, 2)) AS d",
        "max(k) AS k, count(*) FILTER (WHERE v > 0) AS v, max(d) FILTER (WHERE v > 0) AS d",
        "min(k) AS k, CAST(coalesce(sum(v), 0) AS BIGINT) AS v, CAST(NULL AS DECIMAL(10, 2)) AS d",
    ]
)
aggregates = st.sampled_from(
    [
        "count(*)",
        "count(v)",
        "sum(v)",
        # A whole number: what a cast to one does with half a cent, each engine sees in its own way.
        "sum(d) * 100",
        "sum(v) FILTER (WHERE k = 1)",
        "count(*) FILTER (WHERE v > 0)",
        "sum(v + 1) + count(*)",
    ]
)
keyed = st.sampled_from(
    ["min(d)", "count(DISTINCT d)", "sum(DISTINCT v) FILTER (WHERE v > 0)", "max(d + v) + sum(v)"]
)


_WITHIN = "PARTITION BY k ORDER BY v NULLS FIRST"
_OPEN = f"{_WITHIN}/*, d NULLS FIRST*/"
windows = st.sampled_from(
    [
        f"row_number() OVER ({_OPEN})",
        f"ntile(2) OVER ({_OPEN})",
        f"lag(v) OVER ({_OPEN})",
        f"lead(v, 2, 7) OVER ({_OPEN})",
        f"sum(v) OVER ({_OPEN} ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
        f"count(d) OVER ({_OPEN} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING)",
        f"nth_value(v, 2) OVER ({_OPEN} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
        f"rank() OVER ({_WITHIN})",
        f"dense_rank() OVER ({_WITHIN})",
        f"4 * cume_dist() OVER ({_WITHIN})",
        f"sum(v) OVER ({_WITHIN})",
        f"rank() OVER ({_WITHIN}) + 10 * row_number() OVER ({_OPEN})",
        "first_value(v) OVER (PARTITION BY k ORDER BY d NULLS FIRST/*, v NULLS FIRST*/)",
        "last_value(v) OVER (PARTITION BY k ORDER BY d NULLS FIRST/*, v NULLS FIRST*/"
        " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)",
        "max(v) OVER (PARTITION BY k) - min(v) OVER (PARTITION BY k)",
        "count(*) OVER (PARTITION BY v) + count(v) OVER (PARTITION BY k)",
        "row_number() OVER (ORDER BY k NULLS FIRST, v NULLS FIRST/*, d NULLS FIRST*/)",
        "sum(v) OVER ()",
        "sum(sum(v)) OVER (PARTITION BY k) + max(min(v)) OVER ()",
    ]
)
"""What is in comments is added for an engine that does not settle ties by the other columns."""


def settled(query):
    return re.sub(r"/\*(.*?)\*/", r"\1", query)


@st.composite
def queries(draw, depth=2, ordered=False):
    """A query with the columns k, v, d; those that are `ordered` may leave ties open."""
    name = st.sampled_from(sorted(TABLES))
    if depth == 0:
        return f"SELECT k, v, d FROM {draw(name)}"

    def source():
        plain = draw(st.booleans())
        return draw(name) if plain else f"({draw(queries(depth - 1, ordered))})"

    if ordered and draw(st.integers(0, 2)) == 0:
        return in_order(draw, source)
    kind = draw(
        st.sampled_from(["map", "filter", "join", "theta", "union", "distinct", "group", "total",
                         "totals", "total having", "total beside keys", "total of total",
                         "having", "in", "three", "keyed", "extremes", "left", "anti", "except",
                         "not in", "unequal",
                         "opaque"])
    )  # fmt: skip
    match kind:
        case "map":
            return f"SELECT k, {draw(scalars('x'))} AS v, x.d FROM {source()} AS x"
        case "filter":
            return f"SELECT * FROM {source()} AS x WHERE {draw(conditions)}"
        case "join":
            return f"SELECT x.k, y.v, x.d FROM {source()} AS x JOIN {source()} AS y ON x.k = y.k"
        case "theta":
            return (
                f"SELECT x.k, x.v + y.v AS v, y.d FROM {source()} AS x, {source()} AS y "
                "WHERE x.k < y.k OR x.v = y.v"
            )
        case "three":
            return (
                "SELECT x.k, y.v, z.d FROM r AS x JOIN q AS y ON x.k = y.k "
                f"JOIN {source()} AS z ON z.v = y.v"
            )
        case "union":
            word = draw(st.sampled_from(["UNION ALL", "UNION"]))
            left, right = (f"SELECT k, v, d FROM {source()} AS x" for _ in range(2))
            return f"{left} {word} {right}"
        case "distinct":
            return f"SELECT DISTINCT k, v, CAST(NULL AS DECIMAL(10, 2)) AS d FROM {source()} AS x"
        case "group":
            aggregate = draw(aggregates)
            return (
                f"SELECT k, CAST({aggregate} AS BIGINT) AS v, "
                f"CAST(sum(d) AS DECIMAL(10, 2)) AS d FROM {source()} AS x GROUP BY k"
            )
        case "total":
            aggregate = draw(aggregates)
            return (
                f"SELECT CAST(count(*) AS INT) AS k, CAST({aggregate} AS BIGINT) AS v, "
                f"CAST(sum(d) AS DECIMAL(10, 2)) AS d FROM {source()} AS x"
            )
        case "totals":
            where = draw(st.sampled_from(["", " WHERE v > 5", " WHERE v > 0"]))
            return f"SELECT {draw(totals)} FROM {source()} AS x{where}"
        case "total having":
            having = draw(st.sampled_from(["count(*) < 3", "max(v) > 0", "max(k) IS NULL"]))
            return f"SELECT {draw(totals)} FROM {source()} AS x HAVING {having}"
        case "total beside keys":
            join = draw(st.sampled_from(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]))
            return (
                "SELECT x.k, y.v, x.d FROM "
                f"(SELECT k, max(v) AS v, min(d) AS d FROM {source()} AS x GROUP BY k) AS x {join} "
                f"(SELECT {draw(totals)} FROM {source()} AS y) AS y ON x.v = y.v"
            )
        case "total of total":
            return f"SELECT {draw(totals)} FROM (SELECT {draw(totals)} FROM {source()} AS x) AS x"
        case "having":
            return (
                "SELECT k, CAST(count(*) AS BIGINT) AS v, CAST(NULL AS DECIMAL(10, 2)) AS d "
                f"FROM {source()} AS x GROUP BY k HAVING sum(v) > 0 OR count(*) > 1"
            )
        case "keyed":
            return (
                f"SELECT k, max(v) - min(v) AS v, CAST({draw(keyed)} AS DECIMAL(10, 2)) AS d "
                f"FROM {source()} AS x GROUP BY k"
            )
        case "extremes":
            return (
                "SELECT CAST(count(DISTINCT k) AS INT) AS k, max(v) AS v, min(d) AS d "
                f"FROM {source()} AS x"
            )
        case "in":
            return f"SELECT k, v, d FROM {source()} AS x WHERE k IN (SELECT k FROM {source()} AS y)"
        case "left":
            return (
                f"SELECT x.k, y.v, x.d FROM {source()} AS x LEFT JOIN {source()} AS y "
                f"ON x.k = y.k AND {draw(st.sampled_from(['y.v > 0', 'x.v < y.v', 'x.d = y.d']))}"
            )
        case "anti":
            test = draw(st.sampled_from(["NOT EXISTS", "EXISTS"]))
            more = draw(st.sampled_from(["y.v > 0", "y.v <> x.v"]))
            return (
                f"SELECT k, v, d FROM {source()} AS x WHERE {test} "
                f"(SELECT 1 FROM {source()} AS y WHERE y.k = x.k AND {more})"
            )
        case "not in":
            column = draw(st.sampled_from(["k", "v"]))
            where = draw(st.sampled_from(["", " WHERE y.v > 0", " WHERE y.k IS NOT NULL"]))
            return (
                f"SELECT k, v, d FROM {source()} AS x WHERE {column} NOT IN "
                f"(SELECT {column} FROM {source()} AS y{where})"
            )
        case "unequal":
            join = draw(st.sampled_from(["LEFT JOIN", "RIGHT JOIN"]))
            test = draw(st.sampled_from(["x.v < y.v", "y.d > 1", "x.k < y.k AND x.v IS NULL"]))
            return f"SELECT x.k, y.v, x.d FROM {source()} AS x {join} {source()} AS y ON {test}"
        case "except":
            operator = draw(st.sampled_from(["EXCEPT", "INTERSECT"]))
            return (
                f"SELECT k, v, d FROM {source()} AS x {operator} "
                f"SELECT k, v, d FROM {source()} AS y"
            )
        case _:
            return (
                "SELECT k, v, d FROM (SELECT k, v, d, row_number() OVER "
                f"(PARTITION BY k ORDER BY v NULLS FIRST, d NULLS FIRST) AS n FROM {source()} AS x"
                ") AS x WHERE n <= 2"
            )


def in_order(draw, source):
    kind = draw(
        st.sampled_from(["window", "window", "first of each", "first", "first number", "by"])
    )
    match kind:
        case "window":
            window = draw(windows)
            group = " GROUP BY k, v, d" if "sum(sum" in window else ""
            return f"SELECT k, CAST({window} AS BIGINT) AS v, d FROM {source()} AS x{group}"
        case "first":
            limit = draw(st.sampled_from(["LIMIT 3", "LIMIT 1", "LIMIT 2 OFFSET 1", "OFFSET 2"]))
            direction = draw(st.sampled_from(["NULLS FIRST", "DESC NULLS LAST"]))
            return (
                f"SELECT k, v, d FROM {source()} AS x "
                f"ORDER BY k {direction}, v {direction}/*, d NULLS FIRST*/ {limit}"
            )
        case "by":
            by, value = draw(st.sampled_from([("v", "d"), ("d", "v")]))
            least = draw(st.sampled_from(["min", "max"]))
            known = f"FILTER (WHERE {by} IS NOT NULL AND {value} IS NOT NULL)"
            found = f"{least}_by({value}, /*row(*/{by}/*, {value})*/) {known}"
            return (
                f"SELECT k, CAST(100 * {found} AS BIGINT) AS v, "
                f"CAST(median(v) AS DECIMAL(10, 2)) AS d FROM {source()} AS x GROUP BY k"
            )
        case "first number":
            return (
                "SELECT k, v, d FROM (SELECT k, v, d, row_number() OVER (ORDER BY v DESC "
                f"NULLS LAST, k NULLS FIRST/*, d NULLS FIRST*/) AS n FROM {source()} AS x) AS x "
                "WHERE n < 3"
            )
        case _:
            return (
                "SELECT k, v, d FROM (SELECT k, v, d, "
                f"row_number() OVER ({_OPEN}) AS n FROM {source()} AS x) AS x "
                f"WHERE n <= {draw(st.integers(0, 3))}"
            )


@dataclass(frozen=True)
class Case:
    histories: dict
    views: list
    boundaries: tuple
    others: tuple
    as_of: int


cuts = st.sets(st.integers(1, LAST), max_size=3).map(lambda s: (*sorted(s), LAST + 1))


def _cases(ordered):
    return st.builds(
        Case,
        st.fixed_dictionaries({name: updates_of_a_table() for name in TABLES}),
        st.lists(queries(ordered=ordered), min_size=2, max_size=3),
        cuts,
        cuts,
        st.sampled_from([0, 0, 4]),
    )


cases = _cases(False)
cases_in_order = _cases(True)
"""Beside others, queries that ask for the place of rows in an order."""


def recomputed(case, top="SELECT k, count(*) AS n, sum(v) AS v FROM ({}) x GROUP BY k"):
    queries = {f"v{i}": settled(query) for i, query in enumerate(case.views)}
    if top:
        queries["top"] = top.format(queries["v0"])
    duck = Recomputation(dict.fromkeys(TABLES, _SQL), case.histories, LAST)
    try:
        times = range(case.as_of, LAST + 1)
        return {name: [duck.at(query, time) for time in times] for name, query in queries.items()}
    finally:
        duck.close()
