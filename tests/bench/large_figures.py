"""An index over very many rows, and a view that joins them: time, bytes, and the driver's heap."""

from __future__ import annotations

import re
import subprocess
import time
from contextlib import contextmanager

from tests.bench.beside import beside
from tests.bench.figure import Figure
from tests.bench.index_figures import HYDRATED
from tests.support.applications.application import Application

ROWS = 100_000_000
HEAP_MB = 4096
WAIT_S = 1800
CONF = {"spark.driver.memory": f"{HEAP_MB}m", "spark.slackwater.arrangements.memory": "12g"}
BYTES_A_ROW = (
    "SELECT max(bytes) / max(records) FROM slackwater.mz_internal.mz_arrangement_sizes"
    f" WHERE records >= {ROWS}"
)


def hundred_million(folder):
    """A generated table with an index, and a view that joins it with few rows."""
    with Application(folder / "environment", master="local[2]", conf=CONF) as application:
        sql = application.sql
        sql("USE slackwater.default")
        sql(f"SET slackwater.statement_timeout = '{WAIT_S}s'")
        sql("CREATE TABLE big (k BIGINT, v BIGINT)")
        sql(f"INSERT INTO big SELECT id, id % 1000 FROM range({ROWS})", timeout_s=WAIT_S)
        sql("CREATE TABLE few AS SELECT id * 1000003 AS k FROM range(50)")
        with heap_watched(application.jvm()) as heap_mb:
            began = time.monotonic()
            sql("CREATE INDEX ON big (k)")
            while not application.value(HYDRATED):
                assert time.monotonic() < began + WAIT_S, "the index is not hydrated"
                time.sleep(0.5)
            index_s = time.monotonic() - began
            began = time.monotonic()
            sql("CREATE MATERIALIZED VIEW v AS SELECT k, big.v FROM few JOIN big USING (k)")
            sql("SELECT * FROM v", timeout_s=WAIT_S)
            sql("INSERT INTO few VALUES (7)", timeout_s=WAIT_S)
            found = sql("SELECT v FROM v WHERE k = 7", timeout_s=WAIT_S)
            assert found.rows == [[7]]
            view_s = time.monotonic() - began
        each = float(application.value(BYTES_A_ROW))
    name = f"{ROWS // 1_000_000} million rows"
    yield Figure("large_index", f"an index on {name}, until it is hydrated", "s", 600, index_s)
    yield Figure(
        "large_view", f"a view that joins {name} with 50, until it follows", "s", 600, view_s
    )
    yield Figure(
        "large_bytes", "of it in memory, of two BIGINT with a key", "bytes a row", 40, each
    )
    name = "the most that was taken of the driver's heap meanwhile"
    yield Figure("large_heap", name, "MB", HEAP_MB / 2, max(heap_mb))


@contextmanager
def heap_watched(jvm):
    """While the block runs, what the heap of the JVM has, garbage too, in MB."""
    seen = [0.0]

    def watch(ended):
        while not ended.wait(1):
            told = subprocess.run(
                ["jcmd", str(jvm), "GC.heap_info"], stdout=subprocess.PIPE, text=True, check=False
            )
            heap = re.search(r"heap\s+total \d+K, used (\d+)K", told.stdout)
            if heap is not None:
                seen.append(int(heap[1]) / 1024)

    with beside(watch):
        yield seen
