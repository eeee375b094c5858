"""What a read or a join by an index costs, against Spark's own in the same run."""

from __future__ import annotations

import os
import statistics
from pathlib import Path

from tests.bench.figure import Figure
from tests.support.applications.application import Application, coordinators, stat
from tests.support.waiting import wait_until

ROWS = 6_000_000
WARM_UP = 1500
"""So many reads before those that are measured: a JVM compiles what it runs often."""
JOINS = 400
"""So many joins before those that are measured, for the same reason."""
ROUNDS = 200
SCANS = 7
VALUES = "SELECT * FROM VALUES (1, 'a') AS t(k, v) WHERE k = 1"
NUMBERS = "SELECT sum(id * 7) FROM range(1000)"
HYDRATED = (
    "SELECT min(hydrated) FROM slackwater.mz_internal.mz_hydration_statuses h "
    "JOIN slackwater.mz_catalog.mz_indexes i ON i.id = h.object_id"
)


def index_reads(folder):
    """One row by its key: of a few rows and of six million; and a join of a thousand of these."""
    location = folder / "environment"
    with Application(location, master="local[2]") as application:
        sql = application.sql
        sql("USE slackwater.default")
        sql("CREATE TABLE few (k INT, v STRING)")
        sql("INSERT INTO few VALUES (1, 'a'), (2, 'b')")
        sql("CREATE INDEX ON few (k)")
        sql("CREATE TABLE big (k BIGINT, v DOUBLE, s STRING)")
        # The keys have no order, so that no statistics leave out a part or a batch.
        key = f"id * 48271 % {ROWS}"
        sql(
            f"INSERT INTO big SELECT {key}, id * 0.5D, concat('name ', id % 1000) "
            f"FROM range({ROWS})",
            timeout_s=300,
        )
        sql("CREATE INDEX ON big (k)")
        wait_until(lambda: application.value(HYDRATED), what="the indexes")
        point = "SELECT v FROM few WHERE k = 1"
        assert application.rows(point) == [["a"]]
        ours, plain = by_turns(application, (point, VALUES), WARM_UP, ROUNDS)
        most = max(10, 1.25 * plain)
        yield Figure("point_read", "point read by index, p50", "ms", most, ours)
        yield Figure("point_read_ratio", "the same against Spark's VALUES", "x", 1.25, ours / plain)
        (coordinator,) = coordinators(location)
        began = processor_ms(coordinator)
        by_turns(application, (point,), 0, ROUNDS)
        spent = (processor_ms(coordinator) - began) / ROUNDS
        yield Figure("point_read_cpu", "of it the coordinator's processor time", "ms", 2, spent)
        large = f"SELECT v FROM big WHERE k = {ROWS // 2}"
        scan = f"SELECT v FROM big WHERE k % {ROWS} = {ROWS // 2}"
        assert application.rows(large) == application.rows(scan)
        indexed, values = by_turns(application, (large, VALUES), WARM_UP, ROUNDS)
        # What Spark takes for a row that it has anyway is the least that a statement can take.
        least = 1.25 * values
        probes = "(SELECT id * 7 AS k FROM range(1000))"
        join = f"SELECT {{}} sum(big.v) FROM {probes} p JOIN big ON p.k = big.k"
        texts = [join.format(hint) for hint in ("", "/*+ BROADCAST(p) */")]
        assert application.rows(texts[0]) == application.rows(texts[1])
        by_turns(application, [texts[0], NUMBERS], JOINS, 1)
        looked_up, joined, numbers = by_turns(application, [*texts, NUMBERS], 2, SCANS)
        yield Figure(
            "join_of_scan",
            "look-up join of 1000 rows with 6 million, against Spark's",
            "x",
            max(0.05, numbers / joined),
            looked_up / joined,
        )
        yield Figure(
            "join_of_numbers",
            "the same, against Spark's sum of the 1000 rows alone",
            "x",
            1,
            looked_up / numbers,
        )
        sql("CACHE TABLE held AS SELECT * FROM big", timeout_s=300)
        cached = f"SELECT v FROM held WHERE k = {ROWS // 2}"
        scanned, held = by_turns(application, (scan, cached), 2, SCANS)
        yield Figure(
            "point_of_scan",
            "point read of 6 million rows, against a scan",
            "x",
            max(0.02, least / scanned),
            indexed / scanned,
        )
        yield Figure(
            "point_of_cache",
            "the same against Spark's cached table",
            "x",
            max(0.1, least / held),
            indexed / held,
        )


def processor_ms(pid):
    """The processor time of a process."""
    used = stat(Path(f"/proc/{pid}"))
    return (int(used[11]) + int(used[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def by_turns(application, texts, warm_up, rounds):
    """The medians of the texts, which are run one after the other, in milliseconds."""
    times = [[application.sql(text).ms for text in texts] for _ in range(warm_up + rounds)]
    return [statistics.median(each) for each in zip(*times[warm_up:], strict=True)]
