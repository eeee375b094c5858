"""A row that is retracted sends no more than what it concerns through GROUP BY."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

ROWS = 60_000


@pytest.mark.parametrize(
    "change", ["UPDATE t SET v = v + 1 WHERE k = 7", "DELETE FROM t WHERE k = 7"]
)
def test_other_rows_of_a_view_are_not_grouped(workplace, change):
    workplace.sql(f"CREATE TABLE t AS SELECT id AS k, id % 10 AS v, uuid() AS s FROM range({ROWS})")
    workplace.sql("CREATE MATERIALIZED VIEW w AS SELECT k, v, s FROM t WHERE v >= 0")
    read, query = "SELECT v, s, k FROM w", "SELECT v, s, k FROM t WHERE v >= 0"
    assert "Aggregate" not in plan(workplace, read)
    workplace.sql(change)
    assert counted(workplace, read) == counted(workplace, query)
    # Above the one aggregate is what passes beside it.
    above, *grouped = plan(workplace, read).partition("Aggregate")
    assert "Union" in above
    assert "xxhash64" in grouped[-1]


def plan(workplace, read):
    ((text,),) = workplace.rows(f"EXPLAIN {read}")
    return text


def counted(workplace, read):
    return workplace.rows(f"SELECT count(*), sum(k), max(s), min(s) FROM ({read})")
