"""What a commit sends to the driver, however many views read what it has written."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.support.compute.incremental import Bench

from slackwater.repr.relation import RelationDesc

pytestmark = pytest.mark.spark

WIDE = RelationDesc.of(k="integer", v="string", w="double")
COLUMNS = ("k", "v", "w", "k, v", "v, w", "k, v, w")
ROWS = 500


@pytest.fixture
def bench(declared, tmp_path):
    made = Bench(tmp_path, declared)
    made.table("t", WIDE)
    yield made
    made.close()
    assert made.fatal == []


def row(number):
    return number, f"text {number}", number / 2


def commit(bench, at, views):
    """Commits rows, waits for all views, and says how much was sent for it."""
    before = bench.engine._driver.parts.bytes_given
    bench.commit(at + 1, {"t": [(row(at * ROWS + i), at, 1) for i in range(ROWS)]})
    for name in views:
        bench.wait(name, at)
    return bench.engine._driver.parts.bytes_given - before


def test_bytes_do_not_grow_with_views(bench):
    views = []
    sent = []
    commit(bench, 1, views)
    for at, columns in enumerate(COLUMNS, start=2):
        views.append(f"v{at}")
        bench.view(views[-1], f"SELECT {columns} FROM t", at - 1)
        bench.wait(views[-1], at - 1)
        commit(bench, 2 * at, views)
        sent.append(commit(bench, 2 * at + 1, views))
    assert sent[0] > ROWS
    # The columns that anybody reads, once; numbers of rows grow by a digit.
    assert sent[-1] <= 1.1 * sent[-2] <= 1.1 * 1.1 * sent[-3]
    for name, columns in zip(views, COLUMNS, strict=True):
        wanted = [WIDE.stored_names.index(c) for c in columns.split(", ")]
        last = 2 * (len(COLUMNS) + 1) + 1
        times = [1, *range(4, last + 1)]
        found = Counter(
            tuple(row(at * ROWS + i)[c] for c in wanted) for at in times for i in range(ROWS)
        )
        assert bench.rows(name, last) == found


def test_the_driver_asks_for_what_it_has_not_got(bench):
    """As after an eviction, or while another thread is about to bring it."""
    bench.view("all", "SELECT k, v, w FROM t")
    bench.view("some", "SELECT k FROM t")
    commit(bench, 1, ("all", "some"))
    commit(bench, 2, ("all", "some"))
    parts = bench.engine._driver.parts
    parts._given.update(dict.fromkeys(range(1000)))
    commit(bench, 3, ("all", "some"))
    expected = Counter(row(at * ROWS + i) for at in (1, 2, 3) for i in range(ROWS))
    assert bench.rows("all", 3) == expected
    assert bench.rows("some", 3).total() == 3 * ROWS
