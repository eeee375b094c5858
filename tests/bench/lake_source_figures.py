"""How many rows of a table of a lake become durable in a second, and how soon a view shows one."""

from __future__ import annotations

import itertools
import statistics
import time

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from tests.bench.figure import Figure
from tests.support.applications.application import Application
from tests.support.iceberg.java import Tables, a_target

from slackwater.repr.frontier import Frontier
from slackwater.storage.lake.table import LakeChanges, LakeProgress

ROWS = 2_000_000
APPENDED = 1_000_000
PIECE = 20_000
ROUNDS = 60
WARM_UP = 10


def delta_source(folder):
    """A Delta table that is full, then many appends, then one row after the other."""
    path = str(folder / "orders")

    def append(rows):
        write_deltalake(path, rows, mode="append")

    def change(number):
        DeltaTable(path).update(updates={"customer": "'other'"}, predicate=f"id = {number}")

    with Application(folder / "environment", master="local[2]") as application:
        application.sql("USE slackwater.default")
        application.sql("SET slackwater.statement_timeout = '10min'")
        yield from figures("delta_source", application, f"DELTA (PATH '{path}')", append, change)


def iceberg_source(folder):
    """An Iceberg table in the same way; a change is a delete by equality, and a new row."""
    access = Tables(folder).access()
    target = a_target(access, rows_of(0, 1).schema, ("n", "orders"), key=["id"])
    target.ensure()
    commits = itertools.count(1)

    def commit(inserted, deleted=None):
        table = target.opened()
        table.load()
        table.commit(LakeChanges(inserted, deleted), LakeProgress(Frontier(next(commits)), 0, 1))
        table.close()

    def change(number):
        row = rows_of(number, number + 1)
        other = row.set_column(1, "customer", pa.array(["other"]))
        commit(other, row.select(["id"]))

    with Application(folder / "environment", master="local[2]") as application:
        application.sql("USE slackwater.default")
        application.sql("SET slackwater.statement_timeout = '10min'")
        application.sql(
            "CREATE CONNECTION lake TO ICEBERG CATALOG (CATALOG TYPE sql, "
            f"URL '{access.url}', WAREHOUSE '{access.warehouse}')"
        )
        place = "ICEBERG CATALOG CONNECTION lake (NAMESPACE 'n', TABLE 'orders')"
        yield from figures("iceberg_source", application, place, commit, change)


def figures(name, application, place, append, change):
    """The table at `place`, to which `append` adds rows and of which `change` changes one."""
    append(rows_of(0, ROWS))
    began = time.perf_counter()
    application.sql(
        f"CREATE SOURCE orders FROM {place} WITH (TIMESTAMP INTERVAL '100 ms')", timeout_s=600
    )
    took_s = time.perf_counter() - began
    yield _rate(f"{name}_snapshot", "read first", ROWS, 250_000, took_s)
    application.sql(
        "CREATE MATERIALIZED VIEW seen AS"
        " SELECT count(*) AS n, count_if(customer = 'other') AS others FROM orders"
    )
    _wait(application, "n", ROWS)
    began = time.perf_counter()
    for start in range(ROWS, ROWS + APPENDED, PIECE):
        append(rows_of(start, start + PIECE))
    _wait(application, "n", ROWS + APPENDED)
    took_s = time.perf_counter() - began
    yield _rate(f"{name}_appends", f"appended by {PIECE}", APPENDED, 100_000, took_s)
    times = []
    for number in range(ROUNDS):
        start = ROWS + APPENDED + number
        append(rows_of(start, start + 1))
        began = time.perf_counter()
        _wait(application, "n", start + 1)
        times.append((time.perf_counter() - began) * 1000)
    yield Figure(
        f"{name}_to_view",
        "a commit of the table until a view shows it, p50",
        "ms",
        400,
        statistics.median(times[WARM_UP:]),
    )
    times = []
    for number in range(8):
        change(ROWS + number)
        began = time.perf_counter()
        _wait(application, "others", number + 1)
        times.append((time.perf_counter() - began) * 1000)
    yield Figure(
        f"{name}_change_to_view",
        f"one row changes in a table of {ROWS + APPENDED}, until a view shows it, p50",
        "ms",
        4_000,
        statistics.median(times[2:]),
    )


def rows_of(start, end):
    numbers = range(start, end)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "customer": pa.array([f"customer {n % 1000}" for n in numbers]),
            "amount": pa.array([n % 10_000 for n in numbers])
            .cast(pa.decimal128(19, 0))
            .cast(pa.decimal128(12, 2)),
            "at": pa.array(numbers, pa.timestamp("us", tz="UTC")),
        }
    )


def _wait(application, column, count):
    while application.value(f"SELECT {column} FROM seen") < count:
        pass


def _rate(name, how, rows, target, took_s):
    what = f"for 1000 rows that are {how} ({rows} rows of four columns in {took_s:.1f} s)"
    return Figure(name, what, "ms", 1_000_000 / target, took_s * 1_000_000 / rows)
