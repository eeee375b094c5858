"""Sources that read Delta tables, over a coordinator and Spark; tables are written by delta-rs."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

INTERVAL = "WITH (TIMESTAMP INTERVAL '100 ms')"


def rows_of(items, amounts):
    return pa.table({"item": pa.array(items, pa.string()), "amount": pa.array(amounts, pa.int64())})


def has(place, name, wanted):
    """Waits until a relation has these rows."""
    wait_until(
        lambda: (
            sorted(map(tuple, place.rows(f"SELECT * FROM {name}")), key=str)
            == sorted(wanted, key=str)
        ),
        what=f"{name} has the rows",
    )


def test_a_view_follows_a_table_whatever_is_done_to_it(workplace):
    place, path = workplace, workplace.folder / "sales"
    write_deltalake(str(path), rows_of(["a", "b", None], [1, 2, 3]))
    place.sql(f"CREATE SOURCE sales FROM DELTA (PATH '{path}') {INTERVAL}")
    assert len(place.rows("SELECT * FROM sales")) == 3
    place.sql(
        "CREATE MATERIALIZED VIEW total AS "
        "SELECT item, sum(amount) AS amount FROM sales GROUP BY item"
    )
    write_deltalake(str(path), rows_of(["a", "c"], [10, 1]), mode="append")
    has(place, "total", [("a", 11), ("b", 2), ("c", 1), (None, 3)])
