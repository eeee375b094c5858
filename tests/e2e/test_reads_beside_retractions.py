"""A row that is retracted sends no more than what it concerns through GROUP BY."""

from __future__ import annotations

import pytest
from tests.support.applications.application import SqlError

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


WIDE = [f"c{number}" for number in range(24)]
"""Conditions for each set of so many columns would fill the memory."""


@pytest.fixture
def wide(workplace):
    """A table of many columns with rows in a file, of which none is retracted."""
    columns = ", ".join(f"id * {at} AS {name}" for at, name in enumerate(WIDE, 1))
    workplace.sql(f"CREATE TABLE t AS SELECT {columns} FROM range({ROWS})")
    workplace.sql("CREATE TABLE few AS SELECT id AS k FROM range(3)")
    return workplace


# Few rows that a statement retracts are in the metastore, more are in files.
@pytest.mark.parametrize("retracted", [1, ROWS // 10])
def test_what_a_retraction_may_concern_multiplies_no_conditions(wide, retracted):
    wide.sql(f"DELETE FROM t WHERE c0 < {retracted}")
    renamed = ", ".join(f"{name} AS of_{name}" for name in WIDE)
    joined = f"FROM (SELECT {renamed} FROM t) JOIN few ON of_c0 - {retracted} = k"
    assert "xxhash64" in plan(wide, f"SELECT * {joined}")
    assert wide.rows(f"SELECT count(*), min(of_c1) {joined}") == [[3, 2 * retracted]]


@pytest.mark.parametrize(
    "retracted", [1, *(pytest.param(ROWS // n, marks=pytest.mark.nightly) for n in (10, 2))]
)
def test_rows_that_are_gone_are_no_reason_for_an_error(wide, retracted):
    """A statement and a view may compute what would fail with one of them."""
    divided = f"c0, 1 / (c0 DIV {retracted}) AS one FROM t"
    with pytest.raises(SqlError, match="DIVIDE_BY_ZERO"):
        wide.rows(f"SELECT * FROM (SELECT {divided}) WHERE one > 0")
    wide.sql(f"DELETE FROM t WHERE c0 < {retracted}")
    left = ROWS - retracted
    found = f"FROM (SELECT {divided}) WHERE one > 0"
    assert wide.rows(f"SELECT count(*), min(c0) {found}") == [[left, retracted]]
    assert wide.rows(f"SELECT c0 {found} AND c0 = {ROWS - 1}") == [[ROWS - 1]]
    assert wide.rows(f"SELECT c0 {found} AND c0 < {retracted}") == []
    wide.sql(f"CREATE MATERIALIZED VIEW linear AS SELECT c0 {found}")
    wide.sql(f"CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n, max(one) AS m {found}")
    ranked = f"SELECT percent_rank() OVER (ORDER BY one) AS r {found}"
    wide.sql(f"CREATE MATERIALIZED VIEW ranked AS {ranked}")
    assert wide.value("SELECT count(*) FROM linear") == left
    assert wide.value("SELECT n FROM total") == left
    assert wide.value("SELECT count(*) FROM ranked") == left
