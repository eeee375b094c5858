"""What a heavy cluster costs a light one, against the same work on one cluster."""

from __future__ import annotations

import statistics
import threading
from contextlib import contextmanager

from tests.bench.figure import Figure
from tests.support.applications.application import Application

ROWS = 1_500_000
ROUNDS = 60
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
    ended = threading.Event()

    def hydrate():
        number = 0
        while not ended.is_set():
            number += 1
            name = f"{cluster}_{number}"
            own = f"CREATE MATERIALIZED VIEW {name} IN CLUSTER {cluster} AS {HEAVY}"
            application.sql(f"{own} HAVING n > {number}", session="heavy", timeout_s=300)
            application.sql(f"SELECT count(*) FROM {name}", session="heavy", timeout_s=300)
            application.sql(f"DROP MATERIALIZED VIEW {name}", session="heavy", timeout_s=300)

    application.sql("USE slackwater.default", session="heavy")
    thread = threading.Thread(target=hydrate)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _p90(times):
    return sorted(times)[int(len(times) * 0.9)]
