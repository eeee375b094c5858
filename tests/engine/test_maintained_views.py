"""Small worked cases of each rule, compared at every time with a recomputation by DuckDB."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import replace
from decimal import Decimal, localcontext

import pyarrow as pa
import pytest
from tests.support.compute.incremental import Bench, contents_of
from tests.support.compute.worked_history import HISTORY, LAST, A, B, a, run
from tests.support.waiting import PATIENCE, wait_until

from slackwater.compute.engine import TickEnded
from slackwater.compute.limits import Limits
from slackwater.compute.replica import BACKGROUND_HYDRATIONS
from slackwater.compute.tick import CHANGES_TRIED
from slackwater.planner.delta.explain import explain_program
from slackwater.repr.relation import Column, RelationDesc
from slackwater.spark.bridge import SparkProgram

pytestmark = pytest.mark.spark

VIEWS = [
    "SELECT k, v + 1 AS v, s FROM a WHERE v > 0",
    "SELECT * FROM a",
    "SELECT a.k, a.v, b.w FROM a JOIN b ON a.k = b.k",
    "SELECT k, v, w FROM a JOIN b USING (k)",
    "SELECT x.k, y.v, b.w FROM a x, a y, b WHERE x.k = y.k AND b.k = y.k",
    "SELECT a.k, b.w FROM a CROSS JOIN b WHERE a.v < b.w",
    "SELECT k, v FROM a UNION ALL SELECT k, w FROM b",
    "SELECT k FROM a UNION SELECT k FROM b",
    "SELECT DISTINCT k, s FROM a",
    "SELECT k, count(*) AS n, count(v) AS nv, sum(v) AS sv, sum(p) AS sp FROM a GROUP BY k",
    "SELECT count(*) AS n, sum(v) AS sv FROM a",
    "SELECT count(*) AS n, sum(w) AS sv FROM b WHERE w > 1000",
    "SELECT k % 2 AS g, sum(v) FILTER (WHERE v > 1) AS sv FROM a GROUP BY 1 HAVING count(*) > 1",
    "SELECT k AS key, count(*) + 1 AS n FROM a GROUP BY key",
    "SELECT n, count(*) AS c FROM (SELECT k, count(*) AS n FROM a GROUP BY k) q GROUP BY n",
    "WITH t AS (SELECT k, sum(w) AS w FROM b GROUP BY k) "
    "SELECT a.k, a.v, t.w FROM a JOIN t ON a.k = t.k",
    "SELECT k, v FROM a WHERE k IN (SELECT k FROM b)",
    "SELECT k, max(v) AS m FROM a GROUP BY k",
    "SELECT max(p) AS m, count(DISTINCT s) AS d, sum(v) AS sv FROM a WHERE v > 1",
    "SELECT k % 2 AS g, min(v) FILTER (WHERE v > 1) AS lo, sum(DISTINCT w) + count(*) AS x, "
    "avg(w) AS aw, median(v) AS md FROM (SELECT a.k, v, w FROM a JOIN b USING (k)) q "
    "GROUP BY 1 HAVING max(w) > 1",
    "SELECT m, max(k) AS k FROM (SELECT k, max(v) AS m FROM a GROUP BY k) q GROUP BY m",
    "SELECT k, v FROM a WHERE k IN (1, 3)",
    "SELECT k, v FROM a WHERE NOT (k IN (2, 3)) AND (v) IN (1, k + 4)",
    "SELECT a.k, w FROM a LEFT JOIN b ON a.k = b.k AND b.w IN (10, 20) WHERE a.v IN (1, 5)",
    "SELECT count(*) AS n, max(w) AS m FROM b HAVING count(*) = 0 OR max(w) > 10",
    "SELECT count(*) AS c, max(m) AS m FROM (SELECT max(w) AS m FROM b WHERE w > 15) q",
    "SELECT q.k, q.n, g.m FROM (SELECT k, count(*) AS n FROM a GROUP BY k) q "
    "CROSS JOIN (SELECT max(w) AS m FROM b WHERE w > 15) g",
]
JOINS = [
    "SELECT a.k, a.v, b.w FROM a LEFT JOIN b ON a.k = b.k",
    "SELECT a.k, b.k AS bk, 10 // coalesce(w, 0 * v + 1) AS q FROM a LEFT JOIN b ON a.k = b.k",
    "SELECT * FROM a LEFT JOIN b USING (k)",
    "SELECT k, w, s FROM a RIGHT JOIN b USING (k)",
    "SELECT a.k, b.k AS bk, v, w FROM a FULL JOIN b ON a.k = b.k AND b.w > 10 AND a.v > 0",
    "SELECT a.k, w FROM a LEFT JOIN b ON a.k = b.k AND a.v < b.w - 9",
    "SELECT a.k, x.w, y.w AS yw FROM a LEFT JOIN b x ON a.k = x.k LEFT JOIN b y ON y.k = x.k + 1",
    "SELECT a.k, n FROM a LEFT JOIN (SELECT k, count(*) AS n FROM b GROUP BY k) q ON a.k = q.k",
    "SELECT count(w) AS n, max(v) AS m, count(*) AS c FROM a LEFT JOIN b ON a.k = b.k",
    "SELECT k, v FROM a SEMI JOIN b ON a.k = b.k",
    "SELECT k, v FROM a ANTI JOIN b ON a.k = b.k AND b.w <> 11",
    "SELECT k, v FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND w > 10) AND v > 0",
    "SELECT k, v FROM a WHERE NOT EXISTS (SELECT * FROM b WHERE k = a.k)",
    "SELECT k, v FROM a WHERE NOT EXISTS (SELECT * FROM b WHERE b.k = a.k AND b.w > a.v + 9)",
    "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE w = 20)",
    "SELECT k, v FROM a WHERE k NOT IN (SELECT k FROM b)",
    "SELECT k, v FROM a WHERE k NOT IN (SELECT k FROM b WHERE k IS NOT NULL)",
    "SELECT k FROM a EXCEPT SELECT k FROM b",
    "SELECT k, v FROM a INTERSECT SELECT k, 1 FROM b",
]
SPARK_ONLY = {" SEMI": " LEFT SEMI", " ANTI": " LEFT ANTI", " // ": " DIV "}
OPAQUE = [
    "SELECT k, v FROM a WHERE v > (SELECT count(*) FROM b)",
]


@pytest.mark.parametrize(
    ("queries", "as_of", "boundaries"),
    [
        ([*VIEWS, *OPAQUE], 0, (5, 11)),
        pytest.param(VIEWS[1::2], 3, (11,), marks=pytest.mark.nightly),
        (JOINS[::2], 0, (5, 11)),
        pytest.param(JOINS[1::2], 2, (7, 11), marks=pytest.mark.nightly),
    ],
    ids=["views", "views, one interval", "joins", "more joins"],
)
def test_views_are_exact_at_every_time(bench, expected, queries, as_of, boundaries):
    names = {f"v{i}": query for i, query in enumerate(queries)}
    for name, query in names.items():
        bench.view(name, in_spark(query), as_of)
    run(bench, boundaries)
    for name, query in names.items():
        for time in range(as_of, LAST + 1):
            assert bench.rows(name, time) == expected(query, time), (query, time)


def in_spark(query):
    for duck, spark in SPARK_ONLY.items():
        query = query.replace(duck, spark)
    return query


@pytest.mark.parametrize("query", [*VIEWS, *JOINS])
def test_what_the_rules_cover_is_not_recomputed(bench, query):
    plan = bench.plan(in_spark(query))
    assert plan.program is not None, plan.reason


def test_there_may_be_any_number_of_joins(bench, expected):
    joins = [f"LEFT JOIN b b{i} ON b{i}.k = a.k AND b{i}.w > {i}" for i in range(12)]
    query = (
        f"SELECT a.k, {', '.join(f'b{i}.w AS w{i}' for i in range(12))} FROM a {' '.join(joins)}"
    )
    assert bench.plan(query).program is not None
    bench.view("wide", query)
    run(bench, (5, 11))
    for time in range(LAST + 1):
        assert bench.rows("wide", time) == expected(query, time), time


def test_a_total_stays_when_no_change_concerns_it(bench, expected):
    query = "SELECT max(v) AS m, count(DISTINCT k) AS d FROM a WHERE p < 1"
    bench.view("total", query)
    run(bench, (5, 11))
    for time in range(LAST + 1):
        assert bench.rows("total", time) == expected(query, time), time


def test_results_that_depend_on_the_order_of_rows_cancel(bench):
    bench.view(
        "lists",
        "SELECT k, array_sort(collect_list(v)) AS l, array_sort(collect_set(s)) AS s, "
        "max_by(s, v) AS b, round(stddev_pop(v), 6) AS d FROM a GROUP BY k",
    )
    run(bench, (3, 6, 11))
    for time in range(LAST + 1):
        groups = {}
        for k, v, _, s in contents_of(HISTORY["a"], time):
            groups.setdefault(k, []).append((v, s))
        expected = Counter()
        for k, rows in groups.items():
            present = sorted(v for v, _ in rows if v is not None)
            mean = sum(present) / len(present) if present else None
            spread = (
                (sum((v - mean) ** 2 for v in present) / len(present)) ** 0.5 if present else None
            )
            best = "x" if present else None
            expected[repr((k, present, ["x"], best, spread and round(spread, 6)))] += 1
        _, shard, _ = bench.relations["lists"]
        rows = bench.client.reads.snapshot(shard, time).to_pylist()
        assert Counter(repr(tuple(row.values())) for row in rows) == expected, time


def test_explain_names_operators_and_collections(bench):
    plan = bench.plan("SELECT a.k, median(w) AS m FROM a JOIN b ON a.k = b.k GROUP BY a.k")
    names = {bench.relations[n][0]: f"slackwater.default.{n}" for n in ("a", "b")}
    rows = explain_program(plan.kept.plan, names)
    assert [(row.operator, row.maintenance) for row in rows] == [
        ("Aggregate", "keyed"),
        ("Project", "linear"),
        ("Join of 2", "bilinear"),
        ("Collection slackwater.default.a", "linear"),
        ("Collection slackwater.default.b", "linear"),
    ]
    assert "computed again" in rows[0].reason


def test_views_on_views_and_a_diamond(bench, expected):
    bench.view("sums", "SELECT k, sum(v) AS sv FROM a GROUP BY k")
    bench.view("wide", "SELECT sums.k, sv, w FROM sums JOIN b ON sums.k = b.k")
    bench.view("both", "SELECT wide.k, wide.w, sums.sv FROM wide JOIN sums ON wide.k = sums.k")
    run(bench, (2, 7, 11))
    sums = "(SELECT k, sum(v) AS sv FROM a GROUP BY k)"
    wide = f"(SELECT q.k, sv, w FROM {sums} q JOIN b ON q.k = b.k)"
    both = f"SELECT x.k, x.w, y.sv FROM {wide} x JOIN {sums} y ON x.k = y.k"
    for time in range(LAST + 1):
        assert bench.rows("both", time) == expected(both, time), time


def test_nothing_changed_is_no_tick(bench):
    bench.view("n", "SELECT k, count(*) AS n FROM a GROUP BY k")
    bench.commit(5, {"a": [(a(1), 1, 1)]})
    bench.ticked("n", 4)
    before = len(bench.worker.records.all())
    bench.commit(500)
    bench.wait("n", 499)
    bench.commit(600, {"b": [((1, 1), 550, 1)]})
    bench.wait("n", 599)
    assert len(bench.worker.records.all()) == before


def test_a_worker_that_starts_again_continues(bench, expected):
    bench.view("n", "SELECT k, count(*) AS n, sum(p) AS p FROM a GROUP BY k")
    run(bench, (5,))
    bench.worker.stop()
    bench.worker = bench.new_worker("again")
    bench.worker.add(bench.flows["n"])
    run(bench, (11,))
    for time in range(LAST + 1):
        query = "SELECT k, count(*) AS n, sum(p) AS p FROM a GROUP BY k"
        assert bench.rows("n", time) == expected(query, time)


def test_a_tick_that_others_would_wait_for_is_made_again_in_the_background(
    declared, tmp_path, monkeypatch
):
    """One row may meet all others: how long that takes shows when it is done."""
    bench = Bench(tmp_path, declared, Limits(quick_ms=0))
    background = []
    start_background = bench.worker._start_background
    monkeypatch.setattr(
        bench.worker,
        "_start_background",
        lambda view, tick: (
            background.append((view.flow.name, tick)),
            start_background(view, tick),
        ),
    )
    try:
        bench.table("a", RelationDesc.of(k="integer", v="integer"))
        bench.table("b", RelationDesc.of(k="integer", w="integer"))
        bench.view("j", "SELECT v, w FROM a JOIN b ON a.k = b.k")
        many = [((1, n), 1, 1) for n in range(5_000)]
        bench.commit(2, {"a": many, "b": [((1, 7), 1, 1)]})
        bench.wait("j", 1)
        bench.commit(3, {"a": [((2, 0), 2, 1)]})
        bench.wait("j", 2)
        before = len(background)
        bench.commit(4, {"b": [((1, 7), 3, -1), ((1, 8), 3, 1)]})
        bench.wait("j", 3)
        assert [name for name, tick in background[before:] if tick is not None] == ["j"]
        assert bench.rows("j", 3) == Counter({(n, 8): 1 for n in range(5_000)})
        assert bench.ticked("j", 3).by_program
    finally:
        bench.close()


def looks_up(session):
    """Whether a thread of the driver's JVM is within a lookup of a tick."""
    threads = session._jvm.org.apache.spark.util.Utils.getThreadDump()
    return any("slackwater.programs.Lookup.run(" in each.toString() for each in threads)


def test_a_tick_ends_when_its_view_is_removed(declared, tmp_path, monkeypatch):
    made, begun, ended = SparkProgram.tick, threading.Event(), []

    def watched(program, lower, upper, deltas, most_ms=None, before=None):
        if most_ms is None:
            begun.set()
        try:
            return made(program, lower, upper, deltas, most_ms, before)
        except TickEnded as end:
            ended.append(end.reason)
            raise

    monkeypatch.setattr(SparkProgram, "tick", watched)
    # A quick tick ends after a while, and is made in background.
    bench = Bench(tmp_path, declared, Limits())
    try:
        a = RelationDesc.of(k="integer", v="integer")
        bench.table("a", a)
        bench.table("b", RelationDesc.of(k="integer", w="integer"))
        # No pair is in the view: with those that are the tick would become too large, and end so.
        flow = bench.view("j", "SELECT v, w FROM a JOIN b ON a.k = b.k WHERE v % 7 > w % 7 + 7")
        count = 400_000
        columns = [[1] * count, list(range(count)), [1] * count, [1] * count]
        schema = a.update_schema()
        many = pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)
        bench.write(2, {"a": many})
        bench.wait("j", 1)
        bench.commit(3, {"a": [((2, 0), 2, 1)]})
        bench.wait("j", 2)
        begun.clear()
        bench.commit(4, {"b": [((1, w), 3, 1) for w in range(4_000)]})
        assert begun.wait(PATIENCE)
        # What has not come into the driver's JVM by then would end as cancelled.
        wait_until(lambda: looks_up(declared.session), what="the tick looks rows up")
        bench.worker.remove(flow.global_id)
        wait_until(lambda: ended[-1:] == ["closed"])
    finally:
        bench.close()


def test_an_output_of_another_plan_is_compared_before_it_is_followed(bench, expected):
    """An upgrade may give a query other rows: what is taken away later must be there."""
    old, new = (f"SELECT k, {f}(v) AS m FROM a GROUP BY k" for f in ("max", "min"))
    bench.view("m", old)
    run(bench, (5,))
    bench.worker.stop()
    bench.worker = bench.new_worker("upgraded")
    before = bench.flows["m"]
    export = replace(before.view, plan_changed=True)
    bench.worker.add(replace(before, plan=bench.plan(new), export=export))
    run(bench, (7, 11))
    for time in range(LAST + 1):
        assert bench.rows("m", time) == expected(old if time < 5 else new, time), time
    wait_until(
        lambda: any(each.by_program for each in bench.worker.records.all()[-1:]),
        what="the record of a tick by the program",
    )


def test_two_workers_race_for_the_same_output(bench, expected):
    other = bench.new_worker("other")
    flow = bench.view("n", "SELECT k, count(*) AS n FROM a GROUP BY k")
    other.add(flow)
    try:
        for upper in range(1, 12):
            lower = upper - 1
            bench.commit(upper, {"a": [u for u in HISTORY["a"] if lower <= u[1] < upper]})
            other.wake()
            bench.wait("n", upper - 1)
    finally:
        other.stop()
    for time in range(LAST + 1):
        query = "SELECT k, count(*) AS n FROM a GROUP BY k"
        assert bench.rows("n", time) == expected(query, time)


def states(bench, name, times):
    """At each time the contents, or the SQLSTATE of the error that is in their place."""
    found = []
    for time in times:
        error = bench.refusal(name, time)
        found.append(dict(bench.rows(name, time)) if error is None else error.sqlstate)
    return found


def test_a_view_has_an_error_while_a_row_makes_its_query_fail(bench):
    bench.view("bad", "SELECT k, 10 DIV v AS q FROM a")
    bench.view("above", "SELECT count(*) AS n FROM bad")
    bench.view("beside", "SELECT count(*) AS n FROM a")
    bench.commit(5, {"a": [(a(1, 2), 1, 1), (a(2, 0), 3, 1)]})
    for name in bench.flows:
        bench.wait(name, 4)
    bench.commit(9, {"a": [(a(2, 0), 6, -1), (a(2, 5), 6, 1), (a(3, 0), 8, 1)]})
    for name in bench.flows:
        bench.wait(name, 8)
    good, mended = {(1, 5): 1}, {(1, 5): 1, (2, 2): 1}
    divided = "22012"
    assert states(bench, "bad", range(1, 9)) == [
        *[good, good, divided, divided, divided, mended, mended, divided]
    ]
    assert states(bench, "above", range(1, 9)) == [
        *[{(1,): 1}, {(1,): 1}, divided, divided, divided, {(2,): 1}, {(2,): 1}, divided]
    ]
    assert states(bench, "beside", (2, 4, 8)) == [{(1,): 1}, {(2,): 1}, {(3,): 1}]
    said = [bench.refusal(name, 4).parameters for name in ("bad", "above")]
    assert [each["objectName"] for each in said] == ["bad", "above"]
    for each in said:
        assert (each["viewName"], each["inputs"], each["timestamp"]) == ("bad", "a", "4")
        assert each["cause"].startswith("[DIVIDE_BY_ZERO]")


@pytest.mark.parametrize(
    ("expression", "sqlstate"),
    [
        ("10 DIV v", "22012"),
        ("map(0L, 1, v, 2)", "23505"),
        ("if(v = 0, raise_error('no'), v)", "P0001"),
        ("isnull(assert_true(v > 0))", "P0001"),
        ("array_repeat(1, if(v = 0, 2147483647, 1))", "54000"),
    ],
)
def test_whatever_a_row_causes_is_an_error_of_the_view(bench, expression, sqlstate):
    bench.view("bad", f"SELECT k, {expression} AS q FROM a")
    bench.commit(6, {"a": [(a(1, 1), 1, 1), (a(2, 0), 3, 1), (a(2, 0), 5, -1)]})
    bench.wait("bad", 5)
    assert states(bench, "bad", (3, 4)) == [sqlstate, sqlstate]
    assert bench.refusal("bad", 2) is bench.refusal("bad", 5) is None


def test_the_error_of_a_view_says_what_is_wrong_now(bench):
    bench.view("bad", "SELECT CAST(s AS INT) AS n FROM a")
    bench.commit(3, {"a": [(a(1, s="x"), 1, 1)]})
    bench.wait("bad", 2)
    bench.commit(6, {"a": [(a(1, s="x"), 4, -1), (a(1, s="y"), 4, 1)]})
    bench.wait("bad", 5)
    assert "'x'" in str(bench.refusal("bad", 3))
    assert "'y'" in str(bench.refusal("bad", 4))
    bench.commit(9, {"a": [(a(1, s="y"), 7, -1)]})
    bench.wait("bad", 8)
    assert states(bench, "bad", (6, 7)) == ["22018", {}]


def test_a_view_that_is_behind_looks_at_the_last_of_many_changes_while_it_fails(bench):
    bench.view("bad", "SELECT 10 DIV v AS q FROM a")
    bench.commit(3, {"a": [(a(1, 0), 1, 1)]})
    bench.wait("bad", 2)
    bench.worker.stop()
    for time in range(4, 4 + 2 * CHANGES_TRIED):
        bench.commit(time + 1, {"a": [(a(1, time), time, 1)]})
    bench.commit(100, {"a": [(a(1, 0), 99, -1)]})
    bench.worker = bench.new_worker("later")
    bench.worker.add(bench.flows["bad"])
    bench.wait("bad", 99)
    assert states(bench, "bad", (0, 1, 50, 98)) == [{}, "22012", "22012", "22012"]
    assert sum(bench.rows("bad", 99).values()) == 2 * CHANGES_TRIED
    tick = bench.ticked("bad", 99)
    assert bench.worker.records.all() == [tick]
    assert (tick.lower, tick.upper) == (3, 100)


def test_a_row_that_was_corrected_does_not_fail_again(bench):
    query = "SELECT q, w FROM (SELECT k, 10 DIV v AS q FROM a) x JOIN b ON x.k = b.k"
    bench.view("bad", query)
    bench.commit(4, {"a": [(a(1, 2), 1, 1), (a(1, 0), 3, 1)], "b": [((1, 5), 2, 1)]})
    bench.wait("bad", 3)
    bench.commit(8, {"a": [(a(1, 0), 6, -1)]})
    bench.wait("bad", 7)
    bench.view("later", query, 7)
    for time in (9, 11):
        bench.commit(time + 1, {"b": [((1, time), time, 1)]})
        bench.wait("bad", time)
        bench.wait("later", time)
    joined = Counter({(5, 5): 1, (5, 9): 1, (5, 11): 1})
    assert bench.rows("bad", 11) == bench.rows("later", 11) == joined
    last = [bench.ticked(name, 11) for name in ("bad", "later")]
    assert [(each.upper, each.by_program) for each in last] == [(12, True), (12, True)]


def test_a_view_may_fail_at_its_beginning(bench):
    bench.commit(4, {"a": [(a(2, 0), 3, 1)]})
    bench.view("bad", "SELECT k, 10 DIV v AS q FROM a", 3)
    bench.wait("bad", 3)
    bench.commit(8, {"a": [(a(2, 0), 6, -1), (a(2, 5), 6, 1)]})
    bench.wait("bad", 7)
    assert states(bench, "bad", (3, 5, 6)) == ["22012", "22012", {(2, 2): 1}]


def test_a_view_that_starts_again_knows_its_error(bench):
    flow = bench.view("bad", "SELECT 10 DIV v AS q FROM a")
    bench.commit(4, {"a": [(a(2, 0), 3, 1)]})
    bench.wait("bad", 3)
    bench.worker.stop()
    bench.worker = bench.new_worker("next")
    bench.worker.add(flow)
    bench.commit(8, {"a": [(a(2, 0), 6, -1), (a(2, 5), 6, 1)]})
    bench.wait("bad", 7)
    assert states(bench, "bad", (2, 5, 7)) == [{}, "22012", {(2,): 1}]


def test_a_view_whose_inputs_are_not_kept_any_more_has_an_error_instead(bench):
    """As an earlier version may have left it."""
    flow = bench.view("n", "SELECT k FROM a")
    bench.commit(3, {"a": [(a(1), 1, 1)]})
    bench.wait("n", 2)
    bench.worker.stop()
    bench.commit(9, {"a": [(a(2), 4, 1), (a(3), 8, 1)]})
    _, shard, _ = bench.relations["a"]
    bench.client.maintenance.set_since({shard: 6})
    bench.worker = bench.new_worker("next")
    bench.worker.add(flow)
    bench.wait("n", 8)
    some, lost = {(1,): 1, (2,): 1}, "22000"
    found = [{(1,): 1}, lost, lost, some, {**some, (3,): 1}]
    assert states(bench, "n", (2, 3, 5, 6, 8)) == found


def test_a_removed_view_is_not_maintained(bench):
    flow = bench.view("n", "SELECT k, count(*) AS n FROM a GROUP BY k")
    bench.commit(3)
    bench.wait("n", 2)
    bench.worker.remove(flow.global_id)
    bench.view("m", "SELECT k FROM a")
    bench.commit(9, {"a": [(a(1), 5, 1)]})
    bench.wait("m", 8)
    assert bench.client.reads.state(flow.view.shard_id).upper == 3


@pytest.mark.parametrize(
    "limits",
    [Limits(few_rows=2, inline_rows=0), Limits(few_rows=2)],
    ids=["files", "inline"],
)
def test_results_of_much_input_are_written_by_executors(bench, expected):
    query = "SELECT k, count(*) AS n, sum(v) AS v FROM a GROUP BY k"
    bench.view("n", query)
    run(bench, (5, 11))
    for time in range(LAST + 1):
        assert bench.rows("n", time) == expected(query, time)


def test_sums_of_doubles_take_back_what_they_added(declared, tmp_path):
    bench = Bench(tmp_path, declared)
    try:
        bench.table("d", RelationDesc.of(k="integer", x="double"))
        bench.view("s", "SELECT k, sum(x) AS s, avg(x) AS a FROM d GROUP BY k")
        nan, inf = float("nan"), float("inf")
        bench.commit(
            9,
            {
                "d": [
                    ((1, 0.1), 1, 1),
                    ((1, 0.2), 2, 1),
                    ((1, 1e15), 3, 1),
                    ((1, 1e15), 4, -1),
                    ((1, nan), 5, 1),
                    ((1, nan), 6, -1),
                    ((1, inf), 7, 1),
                    ((1, -inf), 8, 1),
                ]
            },
        )
        bench.wait("s", 8)
        assert bench.rows("s", 4) == bench.rows("s", 6) == bench.rows("s", 2)
        # The nearest to the exact sum of the two numbers that are nearest to 0.1 and to 0.2.
        assert bench.rows("s", 2) == Counter({(1, 0.30000000000000004, 0.15000000000000002): 1})
        assert bench.rows("s", 5) == bench.rows("s", 8) == Counter({(1, "NaN", "NaN"): 1})
        assert bench.rows("s", 7) == Counter({(1, inf, inf): 1})
    finally:
        bench.close()


def test_wide_decimals_are_exact(declared, tmp_path):
    bench = Bench(tmp_path, declared)
    try:
        bench.table("d", RelationDesc.of(x="decimal(38,18)", y="decimal(15,2)"))
        query = "SELECT sum(x) AS x, avg(y) AS a, sum(y * y * (1 + y)) AS y, avg(x) AS ax FROM d"
        bench.view("s", query)
        x, y = Decimal("12345678901234.000000000000000001"), Decimal("123456.78")
        bench.commit(5, {"d": [((x, y), 1, 3), ((x, y), 3, -1)]})
        bench.wait("s", 4)
        assert bench.rows("s", 0) == Counter({(None, None, None, None): 1})
        for time, count in ((1, 3), (3, 2)):
            [found] = bench.rows("s", time)
            with localcontext() as exact:
                exact.prec = 60
                assert found[:3] == (x * count, y, y * y * (1 + y) * count)
            session = declared.session
            frame = session.createDataFrame([(x, y)] * count, "x decimal(38,18), y decimal(15,2)")
            frame.createOrReplaceTempView("d")
            assert found == tuple(session.sql(query).collect()[0])
            session.catalog.dropTempView("d")
    finally:
        bench.close()


@pytest.fixture
def gated(bench, monkeypatch):
    """Views with 4711 in them wait until `go_on`; `held` counts those that have come."""
    held, go_on = threading.Semaphore(0), threading.Event()
    collect_view = bench.engine.collect_view

    def gate(view, most_ms=None):
        if any("4711" in handle.sql for handle in view.kept.plan.handles):
            held.release()
            assert go_on.wait(PATIENCE)
        return collect_view(view, most_ms)

    monkeypatch.setattr(bench.engine, "collect_view", gate)
    yield held, go_on
    go_on.set()


def test_views_that_are_being_filled_keep_no_other_waiting(bench, gated):
    held, go_on = gated
    bench.view("n", "SELECT k, count(*) AS n FROM a GROUP BY k")
    bench.commit(3, {"a": [(a(1), 1, 1), (a(2), 2, 1)]})
    bench.wait("n", 2)
    for name in ("one", "two", "three"):
        bench.view(name, "SELECT k + 4711 AS k FROM a", 2)
    for _ in range(BACKGROUND_HYDRATIONS):
        assert held.acquire(timeout=PATIENCE)
    for time in (4, 6, 8):
        bench.commit(time + 1, {"a": [(a(1), time, 1)]})
        bench.wait("n", time)
    assert not held.acquire(blocking=False), "so many are hydrated at once"
    go_on.set()
    for name in ("one", "two", "three"):
        bench.wait(name, 8)
        assert bench.rows(name, 8) == Counter({(4712,): 4, (4713,): 1})


def test_a_view_that_is_recomputed_keeps_no_quick_one_waiting(bench, gated):
    held, go_on = gated
    go_on.set()
    slow = bench.view(
        "slow",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3)"
        " SELECT k + 4711 AS k FROM a JOIN r ON n = 1",
    )
    bench.view("n", "SELECT k, count(*) AS n FROM a GROUP BY k")
    bench.commit(3, {"a": [(a(1), 1, 1)]})
    for name in ("slow", "n"):
        bench.wait(name, 2)
    go_on.clear()
    while held.acquire(blocking=False):
        pass
    bench.commit(5, {"a": [(a(1), 4, 1)]})
    assert held.acquire(timeout=PATIENCE)
    bench.wait("n", 4)
    assert bench.client.reads.state(slow.view.shard_id).upper == 3
    go_on.set()
    bench.wait("slow", 4)
    assert bench.rows("slow", 4) == Counter({(4712,): 2})


def test_what_is_computed_for_a_view_ends_when_it_is_removed(bench):
    """In the driver, and as a job of executors."""
    sleep = "reflect('java.lang.Thread', 'sleep', 600000L)"
    bench.commit(3, {"a": [(a(1), 1, Limits().few_rows), (a(1), 2, 1 - Limits().few_rows)]})
    for as_of in (1, 2):
        flow = bench.view(f"endless{as_of}", f"SELECT k, {sleep} AS s FROM a WHERE k = 1", as_of)
        wait_until(lambda: bench.worker._replica.works())
        bench.worker.remove(flow.global_id)
        wait_until(lambda: not bench.worker._replica.works())
        assert bench.client.reads.state(flow.view.shard_id).upper == as_of
        assert bench.failure(flow) is None


def test_a_view_that_is_dropped_while_it_is_filled_is_forgotten(bench, gated):
    held, go_on = gated
    bench.commit(3, {"a": [(a(1), 1, 1)]})
    flow = bench.view("slow", "SELECT k + 4711 AS k FROM a", 2)
    assert held.acquire(timeout=PATIENCE)
    bench.worker.remove(flow.global_id)
    go_on.set()
    bench.view("n", "SELECT k FROM a", 2)
    bench.wait("n", 2)
    bench.worker.stop()
    assert bench.client.reads.state(flow.view.shard_id).upper == 2


def test_environments_of_one_driver_share_no_arrangements(declared, tmp_path):
    """Collections of different environments may have the same ids."""
    benches = [Bench(tmp_path / name, declared) for name in ("one", "two")]
    try:
        for number, bench in enumerate(benches):
            bench.table("a", A)
            bench.table("b", B)
            begin = 4 + number
            bench.view("j", "SELECT a.k, a.v, b.w FROM a JOIN b ON a.k = b.k", begin)
            bench.commit(begin + 1, {"a": [(a(1), 1, 1)], "b": [((1, number), 1, 1)]})
            bench.wait("j", begin)
            bench.commit(begin + 2, {"a": [(a(1, 2), begin + 1, 1)]})
            bench.wait("j", begin + 1)
            assert bench.rows("j", begin + 1) == Counter([(1, 1, number), (1, 2, number)])
    finally:
        for bench in benches:
            bench.close()


def test_numbers_that_are_equal_are_one_row_of_what_is_kept(declared, tmp_path):
    """A program is hydrated where -0.0 and 0.0 were made one, and told of each later."""
    bench = Bench(tmp_path, declared)
    try:
        bench.table("d", RelationDesc.of(x="double"))
        bench.view("least", "SELECT min(x) AS x FROM d", 4)
        bench.view("pairs", "SELECT a.x, b.x AS y FROM d a JOIN d b ON a.x = b.x", 4)
        bench.commit(10, {"d": [((-0.0,), 1, 3), ((0.0,), 5, 2), ((-0.0,), 9, -1)]})
        for time, count in ((4, 3), (8, 5), (9, 4)):
            bench.wait("least", time)
            bench.wait("pairs", time)
            assert bench.rows("least", time) == Counter([(0.0,)])
            assert bench.rows("pairs", time) == Counter({(0.0, 0.0): count**2})
    finally:
        bench.close()


def test_maps_that_are_equal_are_one_row_of_what_is_kept(declared, tmp_path):
    kind = {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True}
    desc = RelationDesc((Column("k", '"integer"'), Column("m", json.dumps(kind))))
    there, again = [("x", None), ("y", 2)], [("y", 2), ("x", None)]
    bench = Bench(tmp_path, declared)
    try:
        bench.table("maps", desc)
        bench.view("counted", "SELECT k, m, count(*) OVER (PARTITION BY k) AS n FROM maps", 4)
        bench.commit(10, {"maps": [((1, there), 1, 3), ((1, again), 5, 1), ((1, again), 9, -2)]})
        for time, count in ((4, 3), (8, 4), (9, 2)):
            bench.wait("counted", time)
            rows = bench.snapshot("counted", time).to_pylist()
            assert [(row["n"], sorted(row["m"])) for row in rows] == [(count, there)] * count
    finally:
        bench.close()


def test_texts_that_a_collation_has_equal_stay_as_they_are(declared, tmp_path):
    collations = json.dumps({"__COLLATIONS": {"s": "spark.UTF8_LCASE"}})
    desc = RelationDesc((Column("k", '"integer"'), Column("s", '"string"', True, collations)))
    bench = Bench(tmp_path, declared)
    try:
        bench.table("texts", desc)
        bench.table("more", desc)
        bench.view("all", "SELECT s, k FROM texts", 4)
        bench.view("least", "SELECT min(s) AS lo, max(s) AS hi FROM more")
        bench.view("pairs", "SELECT a.k, b.s FROM texts a JOIN texts b ON a.k = b.k", 4)
        updates = [((1, "a"), 1, 1), ((1, "A"), 2, 1), ((2, "b"), 3, 1), ((2, "b"), 4, -1)]
        more = [((1, "a"), 3, 1), ((1, "aB"), 3, 1), ((1, "b"), 5, 1), ((1, "a"), 5, 2)]
        bench.commit(10, {"texts": [*updates, ((1, "A"), 9, -1)], "more": more})
        bench.wait("least", 9)
        assert bench.rows("least", 4) == Counter([("a", "aB")])
        assert bench.rows("least", 9) == Counter([("a", "b")])
        for time, texts in ((4, "aA"), (9, "a")):
            bench.wait("all", time)
            bench.wait("pairs", time)
            assert bench.rows("all", time) == Counter((s, 1) for s in texts)
            assert bench.rows("pairs", time) == Counter((1, s) for s in texts * len(texts))
    finally:
        bench.close()


@pytest.mark.parametrize("collation", ["UTF8_LCASE", "UNICODE"])
def test_aggregates_keep_texts_with_a_collation(declared, tmp_path, collation):
    """Spark's interpreted projections do not copy them out of a row that is used again."""
    collations = json.dumps({"__COLLATIONS": {"s": f"spark.{collation}"}})
    kinds = (Column("g", '"string"'), Column("n", '"integer"'))
    desc = RelationDesc((*kinds, Column("s", '"string"', True, collations)))
    bench = Bench(tmp_path, declared)
    try:
        bench.table("texts", desc)
        bench.view("least", "SELECT g, min(s) AS lo, median(n) AS m FROM texts GROUP BY g", 4)
        pairs = "(SELECT a.n, a.g, b.s FROM texts a JOIN texts b ON a.n = b.n WHERE a.n > 0)"
        bench.view("some", f"SELECT g, min(s) AS lo, median(n) AS m FROM {pairs} GROUP BY g", 4)
        first = "min(s) OVER w AS lo, first_value(s) OVER w AS f FROM texts"
        bench.view("each", f"SELECT n, {first} WINDOW w AS (PARTITION BY g ORDER BY n)", 4)
        rows = [("ab"[n % 2], n, f"x{n}") for n in (5, 3, 8, 1, 9, 2, 7, 4, 6)]
        bench.commit(10, {"texts": [*((r, 1, 1) for r in rows), (("a", 0, "x0"), 6, 1)]})
        bench.wait("least", 9)
        bench.wait("each", 9)
        bench.wait("some", 9)
        assert bench.rows("some", 9) == Counter([("a", "x2", 5.0), ("b", "x1", 5.0)])
        assert bench.rows("least", 4) == Counter([("a", "x2", 5.0), ("b", "x1", 5.0)])
        assert bench.rows("least", 9) == Counter([("a", "x0", 4.0), ("b", "x1", 5.0)])
        least = [(n, *(["x1" if n % 2 else "x0"] * 2)) for n in range(10)]
        assert bench.rows("each", 9) == Counter(least)
    finally:
        bench.close()
