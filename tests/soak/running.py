"""Many ticks of many kinds of views, failing ones among them, and what memory they leave taken."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.applications.application import Application, SqlError, only_coordinator
from tests.support.waiting import PATIENCE

VIEWS = {
    "sums": "SELECT k % 10 AS g, sum(v) AS s, count(*) AS n, avg(v) AS a FROM t GROUP BY k % 10",
    "joined": "SELECT t.k, t.v, d.name FROM t JOIN d ON t.k % 50 = d.k",
    "outer_joined": "SELECT d.name, t.v FROM d LEFT JOIN t ON d.k = t.k",
    "extremes": "SELECT k % 7 AS g, min(v) AS least, max(v) AS most FROM t GROUP BY k % 7",
    "distinct_values": "SELECT DISTINCT v FROM t",
    "top": "SELECT k, v FROM t ORDER BY v DESC, k LIMIT 5",
    "ranked": "SELECT k, v, row_number() OVER (PARTITION BY k % 20 ORDER BY v, k) AS r FROM t",
    "without": "SELECT k FROM d WHERE k NOT IN (SELECT v FROM t)",
    "waiting": "SELECT k, v FROM t WHERE mz_now() < e",
    "on_top": "SELECT name, count(*) AS n FROM joined GROUP BY name",
    "failing": "SELECT k, 1000 / v AS q FROM t",
    "failing_below": "SELECT sum(q) AS s FROM failing",
    "recomputed": (
        "WITH RECURSIVE r AS (SELECT coalesce(min(k), 0) % 10 AS n FROM t"
        " UNION ALL SELECT n + 1 FROM r WHERE n < 10) SELECT count(*) AS n FROM r"
    ),
}
CONF = {
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "20",
}
"""What Spark keeps of what it has done, so much of it that it is full early."""
ROWS = 200
"""The table is emptied when it has so many."""
FAILS_EVERY = 50
"""Each of so many commits makes two views fail, and the next one mends them."""


@dataclass(frozen=True, slots=True)
class Sample:
    """`heap` is the driver's after a collection; the others are the processes' resident memory."""

    ticks: int
    seconds: float
    heap_mb: float
    driver_mb: float
    coordinator_mb: float


def soak(folder: Path, ticks: int, samples: int) -> Iterator[Sample]:
    """Commits until the views have made so many ticks, and tells of memory now and then."""
    with Application(
        folder / "environment", master="local[2]", conf=CONF, alone=True
    ) as application:
        _declare(application)
        began = time.monotonic()
        counted = Ticks(application)
        commits = 0
        for number in range(samples):
            while counted.total < ticks * (number + 1) // samples:
                for _ in range(10):
                    _commit(application, commits)
                    commits += 1
                counted.look()
            yield _sample(application, counted.total, time.monotonic() - began)


def _declare(application: Application) -> None:
    application.sql("USE slackwater.default")
    application.sql("CREATE TABLE t (k INT, v INT, e BIGINT)")
    application.sql(
        "CREATE TABLE d AS SELECT CAST(id AS INT) AS k, 'n' || id AS name FROM range(50)"
    )
    for name, query in VIEWS.items():
        application.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")


def _commit(application: Application, number: int) -> None:
    """One commit, and one look at a view that shows it."""
    match number % FAILS_EVERY:
        case 0:
            application.sql(f"INSERT INTO t VALUES ({number % 1000}, 0, 9000000000000)")
            with pytest.raises(SqlError) as refused:
                application.sql("SELECT s FROM failing_below")
            assert refused.value.sqlstate == "22012"
        case 1:
            application.sql("DELETE FROM t WHERE v = 0")
        case 2 if number % ROWS == 2:
            application.sql("DELETE FROM t")
        case _:
            key, value = number % 1000, number % 97 + 1
            ends = "CAST(unix_millis(now()) AS BIGINT) + 2000"
            application.sql(f"INSERT INTO t VALUES ({key}, {value}, {ends})")
    found = application.rows("SELECT coalesce(sum(n), 0) FROM sums", timeout_s=PATIENCE)
    assert found == application.rows("SELECT count(*) FROM t"), number


class Ticks:
    """Counts ticks by the relation that keeps the last 32 of each view."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._upper: dict[str, int] = {}
        self.total = 0

    def look(self) -> None:
        """To be called before a view has made 32 ticks more."""
        rows = self._application.rows(
            "SELECT object_id, upper FROM slackwater.mz_internal.mz_recent_ticks"
        )
        fresh = [(name, upper) for name, upper in rows if upper > self._upper.get(name, 0)]
        for name, upper in fresh:
            self._upper[name] = max(upper, self._upper.get(name, 0))
        self.total += len(fresh)


_HEAP = """
jvm = spark._jvm
for _ in range(3):
    jvm.System.gc()
bean = jvm.java.lang.management.ManagementFactory.getMemoryMXBean()
result = bean.getHeapMemoryUsage().getUsed()
"""


def _sample(application: Application, ticks: int, seconds: float) -> Sample:
    heap = application.python(_HEAP)
    coordinator = only_coordinator(application.location)
    return Sample(
        ticks,
        seconds,
        heap / 2**20,
        _resident_mb(application.jvm()),
        _resident_mb(coordinator),
    )


def _resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"process {pid} has no resident memory")


SLACK_MB = 24


def growth(samples: list[Sample]) -> list[str]:
    """What the last quarter has more of than the second one, beyond a tenth and some megabytes."""
    quarter = len(samples) // 4
    found = []
    for name in ("heap_mb", "driver_mb", "coordinator_mb"):
        early = max(getattr(s, name) for s in samples[quarter : 2 * quarter])
        late = min(getattr(s, name) for s in samples[-quarter:])
        if late > early * 1.1 + SLACK_MB:
            found.append(f"{name} grew from {early:.0f} to {late:.0f}")
    return found
