"""Views look up in the indexes of tables, whatever they leave out of what these have."""

from __future__ import annotations

import pytest
from tests.support.compute.worked_history import HISTORY, LAST, a
from tests.support.waiting import wait_until

from slackwater.repr.relation import RelationDesc

pytestmark = pytest.mark.spark

SERVED = {
    "columns": ("SELECT a.s, b.w FROM a JOIN b ON a.k = b.k", "ab"),
    "all columns": ("SELECT a.*, b.w FROM a JOIN b ON a.k = b.k", "ab"),
    "null safe": ("SELECT a.v, b.w FROM a JOIN b ON a.k <=> b.k", "ab"),
    "filtered": ("SELECT a.v, b.w FROM a JOIN b ON a.k = b.k WHERE a.v > 3 AND b.w <> 11", "ab"),
    "computed": (
        "SELECT x.n, b.w FROM (SELECT k, v IS NULL AS n FROM a WHERE p > 1) x"
        " JOIN b ON x.k = b.k AND x.n <> (b.w > 15)",
        "ab",
    ),
    "by other names": (
        "SELECT x.m, a.v FROM (SELECT k AS n, w AS m FROM b) x JOIN a ON x.n = a.k",
        "ab",
    ),
    "with itself": ("SELECT x.v, y.s FROM a x JOIN a y ON x.k = y.k WHERE y.v > 1", "a"),
    "three": ("SELECT x.v, b.w, y.p FROM a x JOIN b ON x.k = b.k JOIN a y ON b.k = y.k", "ab"),
    "left": ("SELECT a.v, b.w FROM a LEFT JOIN b ON a.k = b.k AND b.w > 10", "ab"),
    "full": ("SELECT a.v, b.w FROM a FULL JOIN b ON a.k = b.k AND b.w > a.v", "ab"),
    "exists": ("SELECT v FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND w > v)", "ab"),
    "not exists": ("SELECT v FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k)", "ab"),
    "partners alone": ("SELECT v FROM a WHERE k IN (SELECT k FROM b)", "ab"),
    "some partners": ("SELECT v FROM a WHERE k IN (SELECT k FROM b WHERE w <> 11)", "ab"),
    "or partners": (
        "SELECT v FROM a WHERE v > 5 OR EXISTS (SELECT 1 FROM b WHERE b.k = a.k)",
        "ab",
    ),
    "left of all": ("SELECT a.v, b.w FROM a LEFT JOIN b ON a.k = b.k", "ab"),
    "full of all": ("SELECT a.v, b.w FROM a FULL JOIN b ON a.k <=> b.k", "ab"),
    "groups": ("SELECT k, median(w) AS m FROM b WHERE w <> 11 GROUP BY k", "b"),
    "windows": ("SELECT w, rank() OVER (PARTITION BY k ORDER BY w) AS r FROM b", "b"),
}
"""Queries, and the tables in whose indexes they look up."""

ALONE = {
    "other keys": "SELECT a.v, b.w FROM a JOIN b ON a.k + 0 = b.k + 0",
    "more keys": "SELECT x.v FROM a x JOIN a y ON x.k = y.k AND x.p = y.p",
    "another type": "SELECT a.s, b.w FROM a JOIN b ON a.k = b.w",
    "a filter that fails": "SELECT a.v, b.w FROM a JOIN b ON a.k = b.k WHERE 10 / a.v > 1",
    "a limit": "SELECT x.v, y.v AS u FROM (SELECT * FROM a ORDER BY v LIMIT 9) x"
    " JOIN (SELECT * FROM a ORDER BY v LIMIT 8) y ON x.k = y.k",
}


def arranged(bench):
    """For each arrangement the tables that it has, and who looks up in it."""
    names = {global_id: name for name, (global_id, _, _) in bench.relations.items()}
    return sorted(
        (
            "".join(names[g] for g in each.collections),
            tuple(sorted(names.get(g, g) for g in each.readers)),
        )
        for each in bench.engine.arrangements()
    )


def index(bench, table, *keys):
    flow = bench.index_on(table, *keys)
    bench.worker.add(flow)
    return flow


def history(bench, uppers, then=lambda: None):
    """The history with ticks up to each of `uppers`; `then` comes after the first."""
    for position, upper in enumerate(uppers):
        lower = bench.client.reads.tables_upper()
        bench.commit(
            upper, {n: [u for u in h if lower <= u[1] < upper] for n, h in HISTORY.items()}
        )
        if not position:
            then()
        for name in bench.flows:
            bench.wait(name, upper - 1)


def in_duck(query):
    return query.replace("<=>", "IS NOT DISTINCT FROM")


@pytest.mark.parametrize("uppers", [(3, 6, 11), tuple(range(2, 12))], ids=["few", "many"])
@pytest.mark.parametrize("name", SERVED)
@pytest.mark.sampled(4)
def test_a_view_looks_up_in_the_indexes_of_its_tables(bench, expected, name, uppers):
    query, tables = SERVED[name]
    index(bench, "a", "k")
    index(bench, "b", "k")
    history(bench, uppers, lambda: bench.view("j", query, as_of=1))
    for at in range(1, LAST + 1):
        assert bench.rows("j", at) == expected(in_duck(query), at), at
    shared = [table for table, readers in arranged(bench) if len(readers) > 1]
    assert "".join(shared) == tables
    assert not [table for table, readers in arranged(bench) if readers == ("j",)]


@pytest.mark.parametrize("name", ALONE)
def test_a_view_that_asks_for_something_else_has_its_own(bench, expected, name):
    index(bench, "a", "k")
    index(bench, "b", "k")
    query = ALONE[name]
    history(bench, (3, 6, 11), lambda: bench.view("j", query, as_of=1))
    for at in range(1, LAST + 1):
        assert bench.rows("j", at) == expected(in_duck(query), at), at
    served = "b" if "fails" in name else ""
    assert "".join(t for t, readers in arranged(bench) if len(readers) > 1) == served


def test_keys_come_in_any_order_and_once(bench, expected):
    index(bench, "a", "v", "k")
    index(bench, "b", "w", "k")
    queries = {
        "inner": "SELECT x.s, y.p FROM a x JOIN a y ON x.k = y.k AND x.v <=> y.v",
        "semi": "SELECT w FROM b WHERE EXISTS"
        " (SELECT 1 FROM a WHERE a.k = b.k AND a.v <=> b.w AND a.s > 'a')",
        "twice": "SELECT x.s FROM a x JOIN a y ON x.k = y.k AND x.v = y.k",
        "groups": "SELECT k, v, max_by(s, p) AS s, median(p) AS m FROM a GROUP BY k, v",
        "windows": "SELECT k, rank() OVER (PARTITION BY k, v ORDER BY p) AS r FROM a",
    }
    history(bench, (3, 6, 11), lambda: [bench.view(n, q, as_of=1) for n, q in queries.items()])
    for name, query in queries.items():
        for at in range(1, LAST + 1):
            assert bench.rows(name, at) == expected(in_duck(query), at), (name, at)
    assert [each for each in arranged(bench) if len(each[1]) > 1] == [
        ("a", ("groups", "index-a-0", "inner", "semi", "twice", "windows")),
        ("b", ("index-b-1", "semi")),
    ]


def test_the_index_and_the_view_begin_and_end_in_any_order(bench):
    """What is kept stays as long as one of them is there."""
    bench.commit(5, {"a": [(a(1, 1), 1, 1)], "b": [((1, 10), 2, 2)]})
    flow = bench.index_on("b", "k")
    bench.view("j", "SELECT a.v, b.w FROM a JOIN b ON a.k = b.k", as_of=4)
    bench.wait("j", 4)
    both = ("b", (flow.global_id, "j"))
    wait_until(lambda: ("b", ("j",)) in arranged(bench), what="the view has what it looks up")
    bench.worker.add(flow)
    wait_until(lambda: both in arranged(bench), what="the index shares it")
    bench.commit(10, {"b": [((1, 10), 7, -1), ((1, 11), 8, 1)]})
    bench.wait("j", 9)
    bench.worker.remove(flow.global_id)
    wait_until(lambda: ("b", ("j",)) in arranged(bench), what="the index is gone")
    bench.commit(15, {"a": [(a(1, 2), 12, 1)]})
    bench.wait("j", 14)
    assert bench.rows("j", 14) == {(v, w): 1 for v in (1, 2) for w in (10, 11)}
    again = bench.index("again", "SELECT *, (k) AS key0 FROM b", 1)
    bench.worker.add(again)
    wait_until(lambda: ("b", (again.global_id, "j")) in arranged(bench), what="another index")
    bench.worker.remove(bench.flows["j"].global_id)
    wait_until(lambda: arranged(bench) == [("b", (again.global_id,))], what="the view is gone")


def test_a_change_of_columns_that_nobody_reads_gives_no_updates(bench):
    bench.commit(5, {"a": [(a(1, 1, s="x"), 1, 1)], "b": [((1, 10), 2, 1)]})
    index(bench, "a", "k")
    bench.view("j", "SELECT a.v, b.w FROM a JOIN b ON a.k = b.k", as_of=4)
    bench.wait("j", 4)
    bench.commit(7, {"a": [(a(1, 1, s="x"), 5, -1), (a(1, 1, s="y"), 5, 1)]})
    record = bench.ticked("j", 6)
    assert record.looked_up == 0
    bench.commit(9, {"b": [((1, 11), 8, 1)]})
    bench.wait("j", 8)
    assert bench.rows("j", 8) == {(1, 10): 1, (1, 11): 1}


def test_without_room_for_the_index_the_view_keeps_less_by_itself(bench):
    """The index has long texts, of which the view takes none."""
    wide = RelationDesc.of(k="integer", s="string")
    bench.table("wide", wide)
    rows = [((k, f"{k}" * 200), 1, 1) for k in range(4000)]
    bench.commit(5, {"wide": rows, "b": [((1, 10), 2, 1)]})
    with bench.declared.memory.all_but(120):
        flow = index(bench, "wide", "k")
        bench.view("j", "SELECT b.w FROM wide JOIN b ON wide.k = b.k", as_of=4)
        bench.wait("j", 4)
        wait_until(lambda: bench.is_out_of_memory(flow), what="there is no room for the index")
        wait_until(lambda: ("wide", ("j",)) in arranged(bench), what="the view has its own")
        bench.commit(10, {"b": [((2, 20), 7, 1)], "wide": [(rows[1][0], 8, 1)]})
        record = bench.ticked("j", 9)
        assert record.steps[-1].mode != "scanned"
    assert bench.rows("j", 9) == {(10,): 2, (20,): 1}


@pytest.mark.parametrize("condition", ["", " WHERE b.w < 5"], ids=["all rows", "few rows"])
def test_a_view_that_wants_few_of_many_rows_of_a_key_keeps_these(bench, condition):
    many = [((1, number), 2, 1) for number in range(400)]
    bench.commit(5, {"a": [(a(1, 1), 1, 1)], "b": many})
    flow = index(bench, "b", "k")
    bench.view("j", f"SELECT a.v, b.w FROM a JOIN b ON a.k = b.k{condition}", as_of=4)
    bench.wait("j", 4)
    bench.commit(10, {"a": [(a(1, 2), 7, 1)], "b": [((1, 3), 8, -1)]})
    bench.wait("j", 9)
    wanted = [number for number in range(5 if condition else 400) if number != 3]
    assert bench.rows("j", 9) == {(v, w): 1 for v in (1, 2) for w in wanted}
    readers = [("j",), (flow.global_id,)] if condition else [(flow.global_id, "j")]
    assert sorted(who for of, who in arranged(bench) if of == "b") == sorted(readers)
