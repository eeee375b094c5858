"""The cost of a scrape of many objects, and of counting for it."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench.figure import Figure
from tests.support.applications.application import Application, coordinators, stat
from tests.support.waiting import wait_until

from slackwater.adapter.sessions.statement_counts import StatementCounts
from slackwater.adapter.time.watch import Cancellation

TABLES, VIEWS, SOURCES = 300, 600, 100
ROUNDS = 40
COUNTED = 20_000
WAIT_S = 1200
IDLE_S = 10
MASTER = "local[2]"

Scrape = Callable[[], tuple[str, float]]


def scrape(folder: Path, connect: Callable[[Path], Scrape]) -> Iterator[Figure]:
    """A scrape of an environment whose views have all ticked; `connect` gives its coordinator."""
    with Application(folder / "environment", master=MASTER) as application:
        application.sql("USE slackwater.default")
        for number in range(TABLES):
            application.sql(f"CREATE TABLE t{number} (k INT, v INT)", timeout_s=WAIT_S)
        for number in range(SOURCES):
            application.sql(
                f"CREATE SOURCE s{number} FROM LOAD GENERATOR COUNTER (TICK INTERVAL '1 h')",
                timeout_s=WAIT_S,
            )
        for number in range(VIEWS):
            application.sql(
                f"CREATE MATERIALIZED VIEW v{number} AS SELECT k, sum(v) AS s"
                f" FROM t{number % TABLES} GROUP BY k",
                timeout_s=WAIT_S,
            )
        for number in range(TABLES):
            application.sql(f"INSERT INTO t{number} VALUES (1, 1)", timeout_s=WAIT_S)
        call = connect(folder / "environment")

        def ticked() -> int:
            text = call()[0]
            return text.count("slackwater_tick_rows_total{") // 3

        wait_until(lambda: ticked() == VIEWS, what="all views have ticked")
        (pid,) = coordinators(folder / "environment")
        idle_ms = -_processor_ms(pid)
        time.sleep(IDLE_S)
        idle_ms += _processor_ms(pid)
        began_s, busy_ms = time.monotonic(), -_processor_ms(pid)
        took = [call()[1] for _ in range(ROUNDS)]
        busy_ms += _processor_ms(pid)
        besides_ms = idle_ms / IDLE_S * (time.monotonic() - began_s)
        lines = call()[0].count("\n")
        what = f"scrape of {TABLES + VIEWS + SOURCES} objects, {lines} lines"
        yield Figure("scrape", f"{what}, p50", "ms", 100, statistics.median(took))
        what = f"{what}, of the coordinator's processor time"
        yield Figure("scrape_processor", what, "ms", 100, (busy_ms - besides_ms) / ROUNDS)


def _processor_ms(pid: int) -> float:
    """What the process has used of processors so far."""
    user, system = (int(each) for each in stat(Path(f"/proc/{pid}"))[11:13])
    return (user + system) * 1000 / os.sysconf("SC_CLK_TCK")


def counting(folder: Path) -> Iterator[Figure]:
    """Counting of one statement."""
    counts, ends = StatementCounts(time.monotonic), Cancellation()
    began = time.process_time()
    for _ in range(COUNTED):
        with counts.counted("select", ends):
            pass
    each_us = (time.process_time() - began) / COUNTED * 1e6
    yield Figure("counting", "counting of one statement", "µs", 20, each_us)
