"""What views cost those who write, wait and read: chains, hydration, many views."""

from __future__ import annotations

import statistics
import time

from tests.bench.figure import Figure
from tests.bench.tpch import LARGE_MEMORY, MASTER, load
from tests.support.applications.application import Application

CLIENT_WARM_UP = 60
"""What a client waits for goes through code that is compiled after thousands of calls."""
MANY_WARM_UP = 150
"""Or what comes later would be measured in warmer code."""
ROUNDS = 50
WAIT_S = 1200
TOUCHED, MANY = 5, 50
VIEW_ROWS = 4_500_000

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
    "INSERT INTO lineitem VALUES ({key}, 1, 1, 99, 1, 1000, 0, 0, 'N', 'O', DATE'1998-01-01',"
    " DATE'1998-01-01', DATE'1998-01-01', 'NONE', 'MAIL', 'one more')"
)
TICK_OF = (
    "SELECT sum(plan_us + load_us + compute_us + encode_us + commit_us) FROM"
    " (SELECT t.*, row_number() OVER (PARTITION BY object_id ORDER BY upper DESC) AS n"
    " FROM slackwater.mz_internal.mz_recent_ticks t JOIN slackwater.mz_catalog.mz_objects o"
    " ON t.object_id = o.id WHERE o.name IN ({names})) WHERE n = 1"
)


def chains(folder):
    """A view over a join at scale factor 1, and a chain of five views, by a client."""
    with Application(folder / "environment", master=MASTER, conf=LARGE_MEMORY) as application:
        load(application, folder, "1", ("lineitem", "orders", "customer", "nation"))
        keys = [row[0] for row in application.rows("SELECT o_orderkey FROM orders LIMIT 200")]
        application.sql(f"CREATE MATERIALIZED VIEW by_priority AS {BY_PRIORITY}", timeout_s=WAIT_S)
        yield _visible_through(
            application, keys, "join", 150, "SELECT sum(n) AS n FROM by_priority", ("by_priority",)
        )
        views = []
        for number, query in enumerate(CHAIN, start=1):
            views.append(f"c{number}")
            application.sql(f"CREATE MATERIALIZED VIEW c{number} AS {query}", timeout_s=WAIT_S)
        yield _visible_through(application, keys, "chain", 400, "SELECT n FROM c5", views)


def _visible_through(application, keys, what, target, read, views):
    """What a client waits for an INSERT and the read that shows it, and where the time goes."""
    total = application.sql(read, timeout_s=WAIT_S).rows[0][0]
    parts = []
    for number in range(CLIENT_WARM_UP + ROUNDS):
        written = application.sql(LINE.format(key=keys[number]))
        answer = application.sql(read)
        total += 1
        assert answer.rows == [[total]]
        ticked = application.rows(TICK_OF.format(names=", ".join(f"'{v}'" for v in views)))
        parts.append((written.ms, answer.ms, ticked[0][0] / 1000))
    found = parts[CLIENT_WARM_UP:]
    insert, wait, tick = (statistics.median(p[i] for p in found) for i in range(3))
    return Figure(
        f"visible_{what}_1",
        f"INSERT until a read shows it through the {what} at SF 1, p50 ({insert:.0f} ms INSERT,"
        f" {wait:.0f} ms read, in both {tick:.0f} ms for ticks)",
        "ms",
        target,
        statistics.median(insert + read for insert, read, _ in found),
    )


def hydration(folder):
    """A view over a join at scale factor 1 is filled; meanwhile another view is read."""
    with Application(folder / "environment", master=MASTER, conf=LARGE_MEMORY) as application:
        load(application, folder, "1", ("lineitem", "orders"))
        application.sql("CREATE TABLE few (k INT)")
        application.sql("CREATE MATERIALIZED VIEW small AS SELECT count(*) AS n FROM few")
        plain = f"CREATE TABLE spark_catalog.default.plain{{}} USING parquet AS {JOIN}"
        plain_ms = min(application.sql(plain.format(n), timeout_s=WAIT_S).ms for n in range(3))
        quiet = [_visible(application, "main") for _ in range(CLIENT_WARM_UP + 3 * ROUNDS)]
        application.sql("USE slackwater.default", session="beside")
        took_ms = min(_hydrated(application, beside=False)[0] for _ in range(3))
        busy = [each for _ in range(5) for each in _hydrated(application, beside=True)[1]]
        yield Figure(
            "hydration_1",
            f"a view over lineitem and orders at SF 1 until it can be read ({took_ms:.0f} ms),"
            f" against Spark's plain query that writes Parquet ({plain_ms:.0f} ms), best of 3 each",
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
            p99(busy) / p99(quiet[CLIENT_WARM_UP:]),
        )


def _hydrated(application, *, beside):
    """How long a view takes from its creation until it answers; what a client waits meanwhile."""
    began = time.monotonic()
    application.sql(f"CREATE MATERIALIZED VIEW v AS {JOIN}", timeout_s=WAIT_S)
    waiting = application.start("SELECT count(*) FROM v", session="beside")
    busy = []
    while beside and not waiting.is_done:
        busy.append(_visible(application, "main"))
    waiting.result(WAIT_S)
    took_ms = (time.monotonic() - began) * 1000
    application.sql("DROP MATERIALIZED VIEW v")
    return took_ms, busy


def _visible(application, session):
    written = application.sql("INSERT INTO few VALUES (1)", session=session)
    return written.ms + application.sql("SELECT n FROM small", session=session).ms


def retracted(folder):
    """A view of a few million rows is read before one row of it is updated, and after that."""
    with Application(folder / "environment", master=MASTER, conf=LARGE_MEMORY) as application:
        application.sql("USE slackwater.default")
        application.sql(
            "CREATE TABLE base AS SELECT id AS k, id % 1000 AS v, uuid() AS s"
            f" FROM range({VIEW_ROWS})"
        )
        application.sql(
            "CREATE MATERIALIZED VIEW wide AS SELECT k, v, s FROM base WHERE v < 990",
            timeout_s=WAIT_S,
        )
        read = "SELECT sum(v), max(s) FROM wide"
        before_ms = _best(application, read)
        application.sql("UPDATE base SET v = v + 1 WHERE k = 7")
        after_ms = _best(application, read)
    yield Figure(
        "retracted_row",
        f"a read of a view of {VIEW_ROWS} rows after an UPDATE of one ({after_ms:.0f} ms), against"
        f" before ({before_ms:.0f} ms), best of 5",
        "times",
        2,
        after_ms / before_ms,
    )


def _best(application, read):
    return min(application.sql(read, timeout_s=WAIT_S).ms for _ in range(5))


def many_views(folder):
    """A commit that touches five views, of 5 that there are, then of 50, then again of 5."""
    with Application(folder / "environment", master=MASTER) as application:
        application.sql("USE slackwater.default")
        application.sql("CREATE TABLE t (k INT, v INT)")
        for number in range(TOUCHED):
            _make_view(application, f"touched{number}", f"t WHERE v >= {number}")
        before_ms = _until_all_show_it(application)
        for number in range(TOUCHED, MANY):
            application.sql(f"CREATE TABLE t{number} (k INT, v INT)")
            _make_view(application, f"v{number}", f"t{number}")
        many_ms = _until_all_show_it(application)
        for number in range(TOUCHED, MANY):
            application.sql(f"DROP TABLE t{number} CASCADE")
        after_ms = _until_all_show_it(application)
    few_ms = (before_ms + after_ms) / 2
    yield Figure(
        "many_views",
        f"INSERT until {TOUCHED} views show it beside {MANY - TOUCHED} others ({many_ms:.0f} ms),"
        f" against alone ({before_ms:.0f} ms before, {after_ms:.0f} ms after), p50",
        "times",
        1.1,
        many_ms / few_ms,
    )


def _make_view(application, name, of):
    application.sql(
        f"CREATE MATERIALIZED VIEW {name} AS SELECT k, sum(v) AS s FROM {of} GROUP BY k"
    )
    application.sql(f"SELECT * FROM {name}")


def _until_all_show_it(application):
    read = " UNION ALL ".join(f"SELECT s FROM touched{number}" for number in range(TOUCHED))
    times = []
    for number in range(MANY_WARM_UP + ROUNDS):
        written = application.sql(f"INSERT INTO t VALUES (1, {number})")
        times.append(written.ms + application.sql(read).ms)
    return statistics.median(times[MANY_WARM_UP:])


def p99(times):
    return statistics.quantiles(times, n=100)[98] if len(times) > 1 else times[0]
