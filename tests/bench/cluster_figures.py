"""What a heavy cluster costs a light one, against the same work on one cluster."""

from __future__ import annotations

import statistics
import time
from contextlib import contextmanager
from itertools import cycle

from tests.bench.beside import beside
from tests.bench.figure import Figure
from tests.bench.view_figures import p99
from tests.support.applications.application import Application

ROWS = 1_500_000
ROUNDS = 60
UPDATES_A_SECOND = 10_000
COMMITS_A_SECOND = 5
SUSTAINED_S = 60
SUSTAINED = (
    "SELECT k % 100 AS g, count(*) AS n, sum(v) AS s FROM t WHERE v % 10 <> {0} GROUP BY k % 100",
    "SELECT k, v FROM t WHERE k % 50 = {0}",
    "SELECT name, max(v) AS m FROM t JOIN names ON k % 100 = id WHERE v % 10 <> {0} GROUP BY name",
    "SELECT DISTINCT k % 1000 + {0} AS k FROM t",
)
HEAVY = "SELECT b.k, count(*) AS n, sum(c.v) AS s FROM big b JOIN big c ON b.k = c.k GROUP BY b.k"


def clusters(folder):
    """One row until a view of the light cluster shows it, while the heavy one hydrates views."""
    with Application(folder / "environment", master="local[2]") as application:
        sql = application.sql
        sql("USE slackwater.default")
        sql("CREATE CLUSTER light (SIZE = '100cc')")
        sql("CREATE CLUSTER heavy (SIZE = '100cc')")
        sql("CREATE TABLE big (k BIGINT, v DOUBLE)")
        sql(f"INSERT INTO big SELECT id, id * 0.5D FROM range({ROWS})", timeout_s=300)
        sql("CREATE TABLE t (k INT, v INT)")
        sql("CREATE MATERIALIZED VIEW seen IN CLUSTER light AS SELECT k, sum(v) FROM t GROUP BY k")
        visible_ms(application, 20)
        alone = visible_ms(application, ROUNDS)
        with hydrating(application, "heavy"):
            apart = visible_ms(application, ROUNDS)
        with hydrating(application, "light"):
            together = visible_ms(application, ROUNDS)
    for name, of in (("p50", statistics.median), ("p90", _p90)):
        yield Figure(
            f"heavy_apart_{name}",
            f"INSERT until a view shows it beside a heavy cluster, against alone, {name}",
            "x",
            2,
            of(apart) / of(alone),
        )
        yield Figure(
            f"heavy_together_{name}",
            f"the same against the heavy views on its own cluster, {name}",
            "x",
            1,
            of(apart) / of(together),
        )


def sustained(folder):
    """Strict reads of twenty views on two clusters, while a table gets so many rows a second."""
    with Application(folder / "environment", master="local[2]") as application:
        application.sql("USE slackwater.default")
        application.sql("USE slackwater.default", session="writer")
        application.sql("CREATE TABLE t (k BIGINT, v BIGINT)")
        application.sql("CREATE TABLE names AS SELECT id, concat('n', id) AS name FROM range(100)")
        views = []
        for cluster in ("one", "two"):
            application.sql(f"CREATE CLUSTER {cluster} (SIZE = '100cc')")
            for number in range(10):
                views.append(f"{cluster}_{number}")
                query = SUSTAINED[number % len(SUSTAINED)].format(number)
                application.sql(
                    f"CREATE MATERIALIZED VIEW {views[-1]} IN CLUSTER {cluster} AS {query}"
                )
        for view in views:
            application.sql(f"SELECT count(*) FROM {view}")
        with writing(application) as written:
            began = time.monotonic()
            reads = []
            for view in cycle(views):
                at = time.monotonic() - began
                if at > SUSTAINED_S:
                    break
                reads.append((at, application.sql(f"SELECT count(*) FROM {view}").ms))
    third = SUSTAINED_S / 3
    first, last = (
        statistics.median(ms for at, ms in reads if begin <= at < begin + third)
        for begin in (0, 2 * third)
    )
    rate = sum(written) / SUSTAINED_S
    what = f"strict reads of 20 views on two clusters beside {rate:.0f} updates a second"
    yield Figure(
        "sustained_rate", f"{what}: the rate, of that wanted", "x", 1.02, UPDATES_A_SECOND / rate
    )
    yield Figure("sustained_p99", f"{what}, p99", "ms", 1000, p99([ms for _, ms in reads]))
    yield Figure(
        "sustained_flat", f"{what}: last 20 s against the first, p50", "x", 1.5, last / first
    )


@contextmanager
def writing(application):
    """While the block runs, the table gets rows at the rate; how many each commit brought."""
    written = []
    rows = UPDATES_A_SECOND // COMMITS_A_SECOND

    def write(ended):
        began = time.monotonic()
        while not ended.wait(max(0.0, began + len(written) / COMMITS_A_SECOND - time.monotonic())):
            values = f"SELECT id + {len(written) * rows}, id % 1000 FROM range({rows})"
            application.sql(f"INSERT INTO t {values}", session="writer", timeout_s=300)
            written.append(rows)

    with beside(write):
        yield written


def visible_ms(application, rounds):
    """For each row how long it takes until a strict read of the view has it."""
    times = []
    for number in range(rounds):
        written = application.sql(f"INSERT INTO t VALUES ({number % 10}, {number})").ms
        times.append(written + application.sql(f"SELECT * FROM seen WHERE k = {number % 10}").ms)
    return times


@contextmanager
def hydrating(application, cluster):
    """While the block runs, the cluster hydrates views over much, one after the other."""

    def hydrate(ended):
        number = 0
        while not ended.is_set():
            number += 1
            name = f"{cluster}_{number}"
            own = f"CREATE MATERIALIZED VIEW {name} IN CLUSTER {cluster} AS {HEAVY}"
            application.sql(f"{own} HAVING n > {number}", session="heavy", timeout_s=300)
            application.sql(f"SELECT count(*) FROM {name}", session="heavy", timeout_s=300)
            application.sql(f"DROP MATERIALIZED VIEW {name}", session="heavy", timeout_s=300)

    application.sql("USE slackwater.default", session="heavy")
    with beside(hydrate):
        yield


def _p90(times):
    return sorted(times)[int(len(times) * 0.9)]
