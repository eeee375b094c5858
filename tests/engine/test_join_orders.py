"""Lookups take the order in which they find fewest rows, as soon as that is known."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.support.compute.incremental import Bench

from slackwater.compute.limits import Limits
from slackwater.repr.relation import RelationDesc

pytestmark = pytest.mark.spark

TABLES = {
    "a": RelationDesc.of(x="integer", y="integer"),
    "b": RelationDesc.of(x="integer", v="integer"),
    "c": RelationDesc.of(y="integer", w="integer"),
}
QUERY = "SELECT a.x, a.y, v, w FROM a JOIN b ON a.x = b.x JOIN c ON a.y = c.y"
MANY = 400
FILLING = {
    "a": [(i % 2, i) for i in range(MANY)],
    "b": [(i % 2, i) for i in range(MANY)],
    "c": [(i * 10, i) for i in range(MANY // 10)],
}


@pytest.fixture
def bench(declared, tmp_path):
    made = Bench(tmp_path, declared, Limits(ordered_rows=MANY))
    for name, desc in TABLES.items():
        made.table(name, desc)
    yield made
    made.close()
    assert made.fatal == []


def commit(bench, at, **rows):
    updates = {name: [(row, at, 1) for row in each] for name, each in rows.items()}
    bench.commit(at + 1, updates)
    bench.ticked("v", at)


def looked_up(bench):
    return bench.worker.records.last(bench.flows["v"].global_id).looked_up


def expected(tables):
    return Counter(
        (x, y, v, w)
        for x, y in tables["a"]
        for x2, v in tables["b"]
        if x == x2
        for y2, w in tables["c"]
        if y == y2
    )


def test_a_view_that_was_filled_before_its_tables(bench):
    """While nothing is known the order is that of the query."""
    bench.view("v", QUERY)
    commit(bench, 1, **FILLING)
    commit(bench, 2, a=[(0, 7)])
    assert looked_up(bench) == 0
    commit(bench, 3, a=[(0, 10)])
    assert looked_up(bench) == 1 + MANY // 2
    tables = {**FILLING, "a": [*FILLING["a"], (0, 7), (0, 10)]}
    assert bench.rows("v", 3) == expected(tables)


@pytest.mark.nightly
def test_another_order_when_the_contents_have_changed(bench):
    bench.view("v", QUERY)
    commit(bench, 1, **FILLING)
    commit(bench, 2, a=[(0, 7)])
    assert looked_up(bench) == 0
    # No row of `a` has these values yet.
    more = {
        "b": [(i + 2, i) for i in range(10 * MANY)],
        "c": [(MANY, i) for i in range(10 * MANY)],
    }
    commit(bench, 3, **more)
    commit(bench, 4, a=[(-1, MANY)])
    assert looked_up(bench) == 0
    tables = {name: [*FILLING[name], *more.get(name, ())] for name in TABLES}
    tables["a"] += [(0, 7), (-1, MANY)]
    assert bench.rows("v", 4) == expected(tables)


def test_a_view_over_full_tables(bench):
    bench.commit(2, {name: [(row, 1, 1) for row in each] for name, each in FILLING.items()})
    bench.view("v", QUERY, as_of=1)
    bench.wait("v", 1)
    commit(bench, 2, a=[(0, 7)])
    assert looked_up(bench) == 0
