"""What a change costs views over TPC-H, against computing their queries again."""

from __future__ import annotations

import statistics
from importlib import resources

from tests.bench.figure import Figure
from tests.bench.tpch import LARGE_MEMORY, MASTER, load
from tests.support.applications.application import Application

CHANGED_ROWS = 1000
WARM_UP = 5
ROUNDS = 16

QUERIES = (1, 3, 4, 5, 6, 10, 12, 13, 14, 15, 17, 18, 21)
OTHERS = {
    "max by supplier": "SELECT l_suppkey, max(l_extendedprice) AS m FROM lineitem"
    " GROUP BY l_suppkey",
    "count distinct by supplier": "SELECT l_suppkey, count(DISTINCT l_partkey) AS n FROM lineitem"
    " GROUP BY l_suppkey",
}
CHANGED = {"lineitem": "l_orderkey", "orders": "o_orderkey", "customer": "c_custkey"}
READS = {
    "orders": (3, 4, 5, 10, 12, 13, 18, 21),
    "customer": (3, 5, 10, 13, 18),
}
"""Which of the queries read these tables; all but 13 read `lineitem`."""


def small_ticks(folder):
    """At scale factor 0.1."""
    yield from _figures(measured(folder, "0.1"), "0.1")


def ticks(folder):
    """At scale factor 1, and how they grow from 0.1."""
    small = measured(folder / "small", "0.1")
    large = measured(folder / "large", "1")
    yield from _figures(large, "1")
    for (view, table), (tick, _) in large.items():
        growth = tick / small[view, table][0]
        yield Figure(
            f"growth_{_name(view, table)}",
            f"tick of {view} for {CHANGED_ROWS} rows of {table}, SF 1 against SF 0.1",
            "times",
            1.5,
            growth,
        )


def _figures(found, scale):
    for (view, table), (tick_ms, query_ms) in found.items():
        yield Figure(
            f"tick_{_name(view, table)}_{scale}",
            f"tick of {view} for {CHANGED_ROWS} rows of {table} at SF {scale}"
            f" ({tick_ms:.1f} ms) against its query ({query_ms:.0f} ms)",
            "of it",
            0.05,
            tick_ms / query_ms,
        )


def _name(view, table):
    return f"{view.replace(' ', '_')}_{table}"


def views():
    """The queries by the names of their views."""
    folder = resources.files("slackwater") / "sql" / "bench" / "tpch"
    texts = {f"Q{n}": (folder / f"q{n:02}.sql").read_text().rstrip().rstrip(";") for n in QUERIES}
    return {**texts, **OTHERS}


def measured(folder, scale):
    """Of each view and changed table: the tick and the query, p50 in milliseconds."""
    folder.mkdir(exist_ok=True)
    found = {}
    with Application(folder / "environment", master=MASTER, conf=LARGE_MEMORY) as application:
        load(application, folder, scale)
        for view, query in views().items():
            for table, tick_ms, query_ms in _of_view(application, view, query):
                found[view, table] = (tick_ms, query_ms)
                print(f"  SF {scale} {view} {table}: tick {tick_ms:.1f} ms, query {query_ms:.0f}")
    return found


def _of_view(application, view, query):
    application.sql(f"CREATE MATERIALIZED VIEW v AS {query}", timeout_s=1200)
    application.sql("SELECT count(*) FROM v", timeout_s=1200)
    number = int(view[1:]) if view[1:].isdigit() else 0
    for table, key in CHANGED.items():
        reads = number != 13 if table == "lineitem" else number in READS[table]
        if not reads:
            continue
        parts = max(1, application.value(f"SELECT count(*) FROM {table}") // CHANGED_ROWS)
        ticks = [
            _tick_ms(application, table, f"pmod(xxhash64({key}), {parts})", number)
            for number in range(WARM_UP + ROUNDS)
        ]
        tick_ms = statistics.median(ticks[WARM_UP:])
        again = f"SELECT count(*), bit_xor(xxhash64(*)) FROM ({query})"
        times = [application.sql(again, timeout_s=1200).ms for _ in range(3)]
        yield table, tick_ms, statistics.median(times)
    application.sql("DROP MATERIALIZED VIEW v", timeout_s=1200)


def _tick_ms(application, table, part, number):
    """Changes one of the parts of a table; the controller's part of what follows."""
    change = _change(table, f"{part} = {number // 2}", is_first=number % 2 == 0)
    application.sql(change, timeout_s=1200)
    application.sql("SELECT count(*) FROM v", timeout_s=1200)
    row = application.rows(
        "SELECT plan_us + load_us + compute_us + encode_us + commit_us"
        " FROM slackwater.mz_internal.mz_recent_ticks"
        " ORDER BY upper DESC LIMIT 1"
    )
    return row[0][0] / 1000


def _change(table, chosen, *, is_first):
    """Lines come, and the same go again; orders and customers change what queries read of them."""
    match table:
        case "lineitem" if is_first:
            return (
                "INSERT INTO lineitem BY NAME SELECT * EXCEPT (l_linenumber),"
                f" l_linenumber + 10 AS l_linenumber FROM lineitem WHERE {chosen}"
            )
        case "lineitem":
            return f"DELETE FROM lineitem WHERE {chosen} AND l_linenumber > 10"
        case "orders":
            return (
                "UPDATE orders SET o_orderdate = date_add(o_orderdate, 1),"
                f" o_totalprice = o_totalprice + 1 WHERE {chosen}"
            )
        case "customer":
            return (
                "UPDATE customer SET c_nationkey = (c_nationkey + 1) % 25,"
                f" c_acctbal = c_acctbal + 1 WHERE {chosen}"
            )
