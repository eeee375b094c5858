"""TPC-H at a small scale, refreshed in DuckDB: what goes, what comes, what queries answer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib import resources
from pathlib import Path

import duckdb
import pyarrow as pa
from tests.support.applications.slt import sql_text

from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN
from slackwater.storage.tpch import TABLES

QUERIES = {
    path.stem: sql_text(path)
    for path in sorted(Path(str(resources.files("slackwater"))).glob("sql/bench/tpch/*.sql"))
}


@dataclass(frozen=True, slots=True)
class Change:
    """The rows of `table` that `goes` says go; what `comes` selects comes in their place.

    `comes` may read `gone`, which are the rows that go, and the tables as they were.
    """

    table: str
    goes: str = "false"
    comes: str = "FROM gone WHERE false"


def replaced(table: str, goes: str, values: str) -> Change:
    """An UPDATE of some rows."""
    return Change(table, goes, f"SELECT * REPLACE ({values}) FROM gone")


def _orders_again(table: str, key: str, values: str) -> Change:
    """Orders with new keys, like some that there are."""
    comes = (
        f"SELECT * REPLACE ({key} + 100000 AS {key}, {values}) FROM {table} WHERE {key} % 50 < 3"
    )
    return Change(table, comes=comes)


REFRESHES: Mapping[str, Sequence[Change]] = {
    "new orders with their lines": (
        _orders_again("orders", "o_orderkey", "o_custkey % 1500 + 1 AS o_custkey"),
        _orders_again("lineitem", "l_orderkey", "50.00 - l_quantity / 2 AS l_quantity"),
    ),
    "old orders go with their lines": (
        Change("orders", "o_orderkey % 20 = 7"),
        Change("lineitem", "l_orderkey % 20 = 7"),
    ),
    "what orders refer to changes": (
        replaced(
            "customer",
            "c_custkey % 5 = 0",
            "(c_nationkey + 7) % 25 AS c_nationkey, 'BUILDING' AS c_mktsegment,"
            " c_acctbal + 1000 AS c_acctbal",
        ),
        replaced(
            "supplier",
            "s_suppkey % 5 = 1",
            "(s_nationkey + 3) % 25 AS s_nationkey, s_acctbal - 17 AS s_acctbal,"
            " 'Customer after customer: Complaints' AS s_comment",
        ),
        replaced(
            "part",
            "p_partkey % 7 = 2",
            "'Brand#23' AS p_brand, 'MED BOX' AS p_container, 15 AS p_size,"
            " if(p_partkey % 2 = 0, 'PROMO BURNISHED BRASS', 'ECONOMY ANODIZED STEEL') AS p_type,"
            " 'rose ' || p_name AS p_name",
        ),
        replaced("partsupp", "ps_partkey % 9 = 4", "ps_supplycost / 2 AS ps_supplycost"),
    ),
    "everything at once": (
        Change("orders", "o_orderkey > 100000"),
        Change("lineitem", "l_orderkey > 100000 OR l_linenumber = 6"),
        replaced("nation", "n_nationkey IN (0, 9, 12)", "upper(reverse(n_name)) AS n_name"),
        replaced("customer", "c_custkey % 11 = 3", "c_acctbal - 500 AS c_acctbal"),
        replaced("supplier", "s_nationkey = 20", "3 AS s_nationkey"),
        replaced("part", "p_brand = 'Brand#23'", "'ECONOMY ANODIZED STEEL' AS p_type"),
        Change("partsupp", "ps_partkey % 10 = 1"),
    ),
}


class Warehouse:
    """The eight tables of the benchmark in DuckDB."""

    def __init__(self, folder: Path, scale_factor: str) -> None:
        tool = Path(sys.executable).with_name("tpchgen-cli")
        subprocess.run([tool, "parquet", "-s", scale_factor, f"--output-dir={folder}"], check=True)
        self._duck = duckdb.connect()
        for name in TABLES:
            self._duck.execute(f"CREATE TABLE {name} AS FROM '{folder}/{name}.parquet'")

    def close(self) -> None:
        self._duck.close()

    def load(self, time: int) -> dict[str, pa.Table]:
        """All rows of all tables, as updates at `time`."""
        return {name: self._updates(name, f"FROM {name}", time, 1) for name in TABLES}

    def refresh(self, changes: Sequence[Change], time: int) -> dict[str, pa.Table]:
        """Makes the changes, all of which see the tables as they were; their updates at `time`."""
        updates = {each.table: self._change(each, time) for each in changes}
        for change in changes:
            table = change.table
            self._duck.execute(f"DELETE FROM {table} WHERE {change.goes}")
            self._duck.execute(f"INSERT INTO {table} FROM come_{table}")
        return updates

    def _change(self, change: Change, time: int) -> pa.Table:
        table = change.table
        gone = f"SELECT * FROM {table} WHERE {change.goes}"
        comes = f"WITH gone AS ({gone}) {change.comes}"
        # A table of its own has the values as the types of the columns take them.
        self._duck.execute(f"CREATE OR REPLACE TEMP TABLE come_{table} AS FROM {table} LIMIT 0")
        self._duck.execute(f"INSERT INTO come_{table} {comes}")
        return pa.concat_tables(
            [
                self._updates(table, gone, time, -1),
                self._updates(table, f"FROM come_{table}", time, 1),
            ]
        )

    def _updates(self, table: str, query: str, time: int, diff: int) -> pa.Table:
        found = self._duck.sql(query).to_arrow_table()
        for name, value in ((TIME_COLUMN, time), (DIFF_COLUMN, diff)):
            found = found.append_column(name, pa.repeat(pa.scalar(value), found.num_rows))
        return found.cast(TABLES[table].update_schema())

    def answer(self, query: str) -> list[tuple]:
        return self._duck.execute(query).fetchall()


def differences(found: Sequence[tuple], wanted: Sequence[tuple]) -> list[tuple]:
    """Pairs of rows that differ.

    DuckDB gives averages and quotients of decimals as doubles: these may differ from a decimal by
    one in its last digit.
    """
    if len(found) != len(wanted):
        return [(len(found), len(wanted))]
    pairs = zip(sorted(found, key=_place), sorted(wanted, key=_place), strict=True)
    return [(a, b) for a, b in pairs if not all(map(_is_same, a, b))]


def _place(row: tuple) -> tuple:
    names = [repr(each) for each in row if not isinstance(each, Decimal | float)]
    return names, [float(each) for each in row if isinstance(each, Decimal | float)]


def _is_same(found: object, wanted: object) -> bool:
    if isinstance(found, Decimal) and isinstance(wanted, float):
        return abs(found - Decimal(wanted)) <= Decimal(1).scaleb(found.as_tuple().exponent)
    return found == wanted
