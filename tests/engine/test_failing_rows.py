"""The error of a view names the row that causes it, and the same contents have the same error."""

from __future__ import annotations

import pytest
from tests.support.compute.incremental import Bench

from slackwater.compute.limits import Limits
from slackwater.repr.dataflow_error import ERRORS
from slackwater.repr.relation import RelationDesc

pytestmark = pytest.mark.spark

A = RelationDesc.of(k="integer", v="long", s="string")
B = RelationDesc.of(k="integer", w="long")


@pytest.fixture
def bench(declared, tmp_path, limits):
    made = Bench(tmp_path, declared, limits)
    made.table("a", A)
    made.table("b", B)
    yield made
    made.close()
    assert made.fatal == []


def fill(bench, upper, a=(), b=()):
    lower = bench.client.reads.tables_upper()
    rows = {"a": [(row, lower, 1) for row in a], "b": [(row, lower, 1) for row in b]}
    bench.commit(upper, rows)


def said(bench, name, time):
    error = bench.refusal(name, time)
    return error.parameters["row"], error.parameters["cause"]


ROWS = {"a": [(1, 2, "x"), (2, 0, "y"), (3, 0, "z")], "b": [(2, 5), (3, 0), (None, 7)]}
DIVIDED = "[DIVIDE_BY_ZERO] Division by zero"


@pytest.mark.parametrize(
    ("query", "row", "cause"),
    [
        ("SELECT 10 DIV v AS q FROM a", "the row (k = 2, v = 0, s = y)", DIVIDED),
        ("SELECT k FROM a WHERE 10 DIV v > 1", "the row (k = 2, v = 0, s = y)", DIVIDED),
        ("SELECT k FROM a WHERE k > 2 AND 10 DIV v > 1", "the row (k = 3, v = 0, s = z)", DIVIDED),
        ("SELECT if(k = 2, 0, 10 DIV v) AS q FROM a", "the row (k = 3, v = 0, s = z)", DIVIDED),
        ("SELECT coalesce(k, 1 DIV w) AS q FROM b WHERE w = 0 OR 1 DIV 0 = 1",
         "the row (k = NULL, w = 7)", DIVIDED),
        ("SELECT CAST(s AS INT) AS n FROM a", "the row (k = 1, v = 2, s = x)", "'x'"),
        ("SELECT CAST(s AS INT) AS n FROM a WHERE v = 0", "the row (k = 2, v = 0, s = y)", "'y'"),
        ("SELECT a.k FROM a JOIN b ON a.k = b.k AND a.v DIV b.w > 1",
         "the row (a.k = 3, v = 0, s = z, b.k = 3, w = 0)", DIVIDED),
        ("SELECT a.k, w FROM a LEFT JOIN b ON a.k = b.k AND (a.v + 9) DIV b.w > 1",
         "the row (a.k = 3, v = 0, s = z, b.k = 3, w = 0)", DIVIDED),
        ("SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND a.v DIV b.w > 1)",
         "the row (a.k = 3, v = 0, s = z, b.k = 3, w = 0)", DIVIDED),
        ("SELECT a.k, w FROM a JOIN b ON 10 DIV v = w", "the row (k = 2, v = 0, s = y)", DIVIDED),
        ("SELECT k, sum(10 DIV v) AS q FROM a GROUP BY k", "the row (k = 2, v = 0, s = y)",
         DIVIDED),
        ("SELECT 10 DIV v AS q, count(*) AS n FROM a GROUP BY 1", "the row (k = 2, v = 0, s = y)",
         DIVIDED),
        ("SELECT count(*) FILTER (WHERE 10 DIV v > k) AS n FROM a",
         "the row (k = 2, v = 0, s = y)", DIVIDED),
        ("SELECT k, 10 DIV sum(v) AS q FROM a GROUP BY k", "the group (k = 2, sum(v) = 0)",
         DIVIDED),
        ("SELECT 10 DIV (sum(v) - 2) AS q FROM a", "the group (sum(v) = 2)", DIVIDED),
        ("SELECT k, 10 DIV (sum(v) - max(v)) AS q FROM a GROUP BY k", "the row (k = 1)", DIVIDED),
        ("SELECT v, stddev(k) AS d, corr(v, k) AS c FROM a GROUP BY v", "the group (v = 0)",
         DIVIDED),
        ("SELECT corr(v, k) FILTER (WHERE v = 0) + 1 AS c FROM a", "a row", DIVIDED),
        ("SELECT k, (SELECT v FROM a) AS w FROM b", "a row", "[SCALAR_SUBQUERY_TOO_MANY_ROWS]"),
        ("SELECT k, v, row_number() OVER (PARTITION BY 10 DIV v ORDER BY k) AS r FROM a",
         "the row (k = 2, v = 0, s = y)", DIVIDED),
        ("SELECT k, (SELECT w FROM b WHERE b.w > a.v) AS w FROM a WHERE k = 1",
         "the row (k = 1, v = 2, s = x, rows = 2", "[SCALAR_SUBQUERY_TOO_MANY_ROWS]"),
        ("SELECT explode(array_repeat(k, CAST(10 DIV v AS INT))) AS e FROM a",
         "the row (k = 2, v = 0, s = y)", DIVIDED),
        ("SELECT q + 1 AS q FROM (SELECT k, 10 DIV v AS q FROM a UNION ALL SELECT k, 1 DIV w"
         " FROM b) x", "the row (k = 2, v = 0, s = y)", DIVIDED),
        ("SELECT k FROM (SELECT k, v FROM a ORDER BY v LIMIT 1) x WHERE 10 DIV v > 0",
         "the row (k = 2, v = 0)", DIVIDED),
    ],
)  # fmt: skip
@pytest.mark.sampled(4)
def test_the_error_names_the_row(bench, query, row, cause):
    bench.view("bad", query)
    fill(bench, 2, **ROWS)
    bench.wait("bad", 1)
    found, why = said(bench, "bad", 1)
    assert found.startswith(row)
    assert cause in why
    said_once = f"{found} makes the query of bad fail: {why.rstrip('.')}.\nCorrect"
    assert said_once in bench.refusal("bad", 1).message


def test_sums_that_are_too_large_name_their_group(bench):
    bench.view("longs", "SELECT k, sum(v) AS s FROM a GROUP BY k")
    bench.view(
        "decimals",
        "SELECT s, avg(CAST(v AS DECIMAL(38, 0)) * 10000000000000000000BD) AS s1,"
        " sum(CAST(v AS DECIMAL(38, 0)) * 10000000000000000000BD) AS s2 FROM a GROUP BY s",
    )
    half = 2**62
    fill(bench, 2, a=[(3, half, "y"), (3, half, "y"), (2, 2 * (half - 1), "x"), (2, 5, "x")])
    for name in bench.flows:
        bench.wait(name, 1)
    row, cause = said(bench, "longs", 1)
    assert row == "the group (k = 2)"
    assert cause.startswith("[ARITHMETIC_OVERFLOW]")
    assert bench.refusal("decimals", 1).parameters["row"] in ("the group (s = x)",)


def test_the_error_of_a_view_below_is_passed_up(bench):
    bench.view("bad", "SELECT k, 10 DIV v AS q FROM a")
    bench.view("above", "SELECT count(*) AS n FROM bad")
    fill(bench, 2, **ROWS)
    for name in bench.flows:
        bench.wait(name, 1)
    assert said(bench, "above", 1) == said(bench, "bad", 1)
    assert said(bench, "above", 1)[0] == "the row (k = 2, v = 0, s = y)"
    assert bench.refusal("above", 1).parameters["viewName"] == "bad"


def test_a_corrected_row_leaves_the_error_to_the_next(bench):
    bench.view("bad", "SELECT 10 DIV v AS q FROM a")
    rows = [(3, 0, "z"), (2, 0, "y")]
    bench.commit(5, {"a": [(row, 1, 1) for row in rows] + [((2, 0, "y"), 4, -1)]})
    bench.wait("bad", 4)
    found = [bench.refusal("bad", time).parameters["row"] for time in (1, 3, 4)]
    assert found == ["the row (k = 2, v = 0, s = y)"] * 2 + ["the row (k = 3, v = 0, s = z)"]


def field(name, kind):
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


STRUCT = {"type": "struct", "fields": [field("x", "integer"), field("y", "string")]}
ARRAY = {"type": "array", "elementType": "integer", "containsNull": True}
MAP = {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True}


def test_rows_are_shown_as_spark_shows_values(bench):
    bench.table(
        "nested",
        RelationDesc.of(
            n="integer",
            t=STRUCT,
            l=ARRAY,
            m=MAP,
            b="binary",
            d="double",
            at="timestamp",
        ),
    )
    bench.view("bad", "SELECT 1 DIV n AS q FROM nested")
    row = (0, {"x": 1, "y": None}, [2, None], [("z", 4), ("k", 3)], b"\x01\xff", 0.5, None)
    bench.commit(2, {"nested": [(row, 1, 1)]})
    bench.wait("bad", 1)
    assert said(bench, "bad", 1)[0] == (
        "the row (n = 0, t = {1, NULL}, l = [2, NULL], m = {k -> 3, z -> 4}, b = [01 FF],"
        " d = 0.5, at = NULL)"
    )


def test_long_texts_and_many_columns_are_cut(bench):
    names = [f"c{i}" for i in range(40)]
    bench.table("wide", RelationDesc.of(**dict.fromkeys(names, "string")))
    bench.view("bad", "SELECT 10 DIV length(c30) AS q FROM wide")
    row = tuple("" if i == 30 else "é" * 300 for i in range(40))
    bench.commit(2, {"wide": [(row, 1, 1)]})
    bench.wait("bad", 1)
    found, _ = said(bench, "bad", 1)
    shown = [f"c{i} = {'é' * 200}..." for i in range(19)]
    assert found == f"the row ({', '.join(shown)}, c30 = , ...)"


HISTORY = [
    ((k, v, s), time, diff)
    for time, k, v, s, diff in [
        (1, 1, 1, "1", 1),
        (2, 9, 0, "q", 1),
        (3, 7, 0, "r", 1),
        (3, None, 0, "s", 1),
        (4, None, 0, "s", -1),
        (4, 7, 0, "r", 2),
        (5, 7, 0, "r", -3),
        (6, 9, 0, "q", -1),
        (7, 5, 0, "t", 1),
    ]
]


def errors_of(declared, path, limits, boundaries):
    """The recorded errors of views, as they are stored."""
    path.mkdir()
    bench = Bench(path, declared, limits)
    try:
        bench.table("a", A)
        bench.view("one", "SELECT k, 10 DIV v AS q FROM a")
        bench.view("cast", "SELECT CAST(s AS INT) AS n FROM a")
        bench.view("joined", "SELECT x.k FROM a x JOIN a y ON x.k = y.k AND x.k DIV y.v > 1")
        lower = 0
        for upper in boundaries:
            rows = [u for u in HISTORY if lower <= u[1] < upper]
            bench.commit(upper, {"a": rows})
            for name in bench.flows:
                bench.wait(name, upper - 1)
            lower = upper
        found = {}
        for name, flow in bench.flows.items():
            shard = flow.view.errors_shard
            upper = bench.client.reads.state(shard).upper
            parts = bench.client.reads.parts_between(shard, 0, upper)
            rows = bench.client.reads.read(parts, ERRORS).to_pylist()
            found[name] = sorted(tuple(row.values()) for row in rows)
        return found
    finally:
        bench.close()


@pytest.mark.nightly
def test_the_same_contents_have_the_same_error_however_they_are_computed(declared, tmp_path):
    ways = [
        (None, (9,)),
        (None, tuple(range(1, 10))),
        # By executors, in several partitions.
        (Limits(few_rows=0), (3, 4, 9)),
    ]
    found = [
        errors_of(declared, tmp_path / str(i), limits, boundaries)
        for i, (limits, boundaries) in enumerate(ways)
    ]
    assert found[0] == found[1] == found[2]
    texts = [text for text, _, diff in found[0]["one"] if diff > 0]
    assert all(each.count('"row":"the row (k = ') == 1 for each in texts)
    assert [any(f"k = {k}," in text for text in texts) for k in ("NULL", 9, 7, 5)] == [True] * 4
