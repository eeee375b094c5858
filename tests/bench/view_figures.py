"""What views cost those who write, wait and read: chains, hydration, many views."""

from __future__ import annotations

import statistics
import time

from tests.bench.figure import Figure
from tests.bench.tpch import LARGE_MEMORY, MASTER, load
from tests.support.application import Application

WARM_UP = 10
ROUNDS = 50
WAIT_S = 1200

JOIN = (
    "SELECT l_orderkey, l_linenumber, l_quantity, l_extendedprice, o_custkey, o_orderdate"
    " FROM lineitem JOIN orders ON l_orderkey = o_orderkey"
)
BY_PRIORITY = (
    "SELECT o_orderpriority, count(*) AS n, sum(l_extendedprice) AS price"
    " FROM lineitem JOIN orders ON l_orderkey = o_orderkey GROUP BY o_orderpriority"
)
CHAIN = (
    JOIN,
    "SELECT c_nationkey, l_extendedprice, l_quantity, l_orderkey"
    " FROM c1 JOIN customer ON o_custkey = c_custkey",
    "SELECT c_nationkey, sum(l_extendedprice) AS price, count(*) AS n FROM c2 GROUP BY c_nationkey",
    "SELECT n_regionkey, sum(price) AS price, sum(n) AS n"
    " FROM c3 JOIN nation ON c_nationkey = n_nationkey GROUP BY n_regionkey",
    "SELECT max(price) AS price, sum(n) AS n FROM c4",
)
LINE = (
    "INSERT INTO lineitem SELECT {key}, l_partkey, l_suppkey, 99, l_quantity, l_extendedprice,"
    " l_discount, l_tax, l_returnflag, l_linestatus, l_shipdate, l_commitdate, l_receiptdate,"
    " l_shipinstruct, l_shipmode, l_comment FROM one"
)


def chains(folder):
    """A view over a join at scale factor 1, and a chain of five views, by a client."""
    with Application(folder / "environment", master=MASTER, conf=LARGE_MEMORY) as application:
        load(application, folder, "1", ("lineitem", "orders", "customer", "nation"))
        application.sql("CREATE TABLE one AS SELECT * FROM lineitem LIMIT 1", timeout_s=WAIT_S)
        for number, query in enumerate(CHAIN, start=1):
            application.sql(f"CREATE MATERIALIZED VIEW c{number} AS {query}", timeout_s=WAIT_S)
        application.sql(f"CREATE MATERIALIZED VIEW by_priority AS {BY_PRIORITY}", timeout_s=WAIT_S)
        keys = [row[0] for row in application.rows("SELECT o_orderkey FROM orders LIMIT 200")]
        for what, target, read in (
            ("join", 150, "SELECT sum(n) AS n FROM by_priority"),
            ("chain", 400, "SELECT n FROM c5"),
        ):
            total = application.sql(read, timeout_s=WAIT_S).rows[0][0]
            parts = []
            for number in range(WARM_UP + ROUNDS):
                key = keys[number]
                written = application.sql(LINE.format(key=key))
                answer = application.sql(read)
                total += 1
                assert answer.rows == [[total]]
                parts.append((written.ms, answer.ms))
            insert, wait = (statistics.median(p[i] for p in parts[WARM_UP:]) for i in (0, 1))
            yield Figure(
                f"visible_{what}_1",
                f"INSERT until a read shows it through the {what} at SF 1, p50"
                f" ({insert:.0f} ms INSERT, {wait:.0f} ms read)",
                "ms",
                target,
                statistics.median(sum(each) for each in parts[WARM_UP:]),
            )


def hydration(folder):
    """A view over a join at scale factor 1 is filled; meanwhile another view is read."""
    with Application(folder / "environment", master=MASTER, conf=LARGE_MEMORY) as application:
        load(application, folder, "1", ("lineitem", "orders"))
        application.sql("CREATE TABLE few (k INT)")
        application.sql("CREATE MATERIALIZED VIEW small AS SELECT count(*) AS n FROM few")
        plain = f"CREATE TABLE spark_catalog.default.plain{{}} USING parquet AS {JOIN}"
        plain_ms = min(application.sql(plain.format(n), timeout_s=WAIT_S).ms for n in range(3))
        quiet = [_visible(application, "main") for _ in range(WARM_UP + ROUNDS)][WARM_UP:]
        application.sql("USE slackwater.default", session="beside")
        began = time.monotonic()
        application.sql(f"CREATE MATERIALIZED VIEW v AS {JOIN}", timeout_s=WAIT_S)
        waiting = application.start("SELECT count(*) FROM v", session="beside")
        busy = []
        while not waiting.is_done:
            busy.append(_visible(application, "main"))
        waiting.result(WAIT_S)
        took_ms = (time.monotonic() - began) * 1000
        yield Figure(
            "hydration_1",
            f"a view over lineitem and orders at SF 1 until it can be read ({took_ms:.0f} ms),"
            f" against Spark's plain query that writes Parquet ({plain_ms:.0f} ms)",
            "times",
            2,
            took_ms / plain_ms,
        )
        yield Figure(
            "hydration_beside",
            f"INSERT until another view shows it, p99 while that is filled ({p99(busy):.0f} ms, of"
            f" {len(busy)}), against before",
            "times",
            2,
            p99(busy) / p99(quiet),
        )


def _visible(application, session):
    written = application.sql("INSERT INTO few VALUES (1)", session=session)
    return written.ms + application.sql("SELECT n FROM small", session=session).ms


def many_views(folder):
    """A commit that touches one of 5 views, and one of 50."""
    found = {}
    for count in (5, 50):
        place = folder / str(count)
        with Application(place / "environment", master=MASTER) as application:
            application.sql("USE slackwater.default")
            for number in range(count):
                application.sql(f"CREATE TABLE t{number} (k INT, v INT)")
                application.sql(
                    f"CREATE MATERIALIZED VIEW v{number} AS"
                    f" SELECT k, sum(v) AS s FROM t{number} GROUP BY k"
                )
            for number in range(count):
                application.sql(f"SELECT * FROM v{number}")
            times = []
            for number in range(WARM_UP + ROUNDS):
                written = application.sql(f"INSERT INTO t0 VALUES (1, {number})")
                times.append(written.ms + application.sql("SELECT s FROM v0").ms)
            found[count] = statistics.median(times[WARM_UP:])
    yield Figure(
        "many_views",
        f"INSERT until its view shows it beside 49 others ({found[50]:.0f} ms), against beside 4"
        f" ({found[5]:.0f} ms), p50",
        "times",
        1.1,
        found[50] / found[5],
    )


def p99(times):
    return statistics.quantiles(times, n=100)[98] if len(times) > 1 else times[0]
