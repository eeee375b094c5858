"""How many rows a sink commits to an Iceberg table in a second, and what a small commit takes."""

from __future__ import annotations

import statistics
import time

import pyarrow as pa
from tests.bench.delta_sink_figures import DESC, ROUNDS, ROWS, SMALL, taken, updates
from tests.bench.figure import Figure

from slackwater.adapter.external.iceberg import IcebergTarget
from slackwater.storage.access import IcebergAccess
from slackwater.storage.iceberg.schema import sink_columns
from slackwater.storage.lake.changes import LakeRows
from slackwater.storage.lake.config import IcebergPlace, LakeSinkConfig
from slackwater.storage.lake.sink import LakeSink, SinkTable
from slackwater.storage.sink_folder import Claim


def iceberg_sink(folder):
    """A large range in each mode, all of whose keys change in the next one; then small ranges. The
    catalog is in SQLite."""
    appended = _opened(folder, "append", "APPEND")
    yield Figure(
        "iceberg_sink_append",
        f"time for 1000 rows of a range of {ROWS}, appended, four columns",
        "ms",
        1000 / 100,
        taken(appended, 0, updates(0, ROWS, 0)) * 1000 / ROWS,
    )
    upserted = _opened(folder, "upsert", "UPSERT")
    taken(upserted, 0, updates(0, ROWS, 0))
    changed = pa.concat_tables([updates(0, ROWS, 1, -1), updates(0, ROWS, 1, 1, "other")])
    yield Figure(
        "iceberg_sink_upsert",
        f"time for 1000 rows of a range in which {ROWS} keys change",
        "ms",
        1000 / 25,
        taken(upserted, 1, changed) * 1000 / ROWS,
    )
    for mode in ("APPEND", "UPSERT"):
        sink = _opened(folder, f"small {mode}", mode)
        taken(sink, 0, updates(0, SMALL, 0))
        times = []
        for at in range(1, ROUNDS):
            change = [updates(at, at + 1, at, -1), updates(at, at + 1, at, 1, "other")]
            times.append(taken(sink, at, pa.concat_tables(change)))
        yield Figure(
            f"iceberg_sink_commit_{mode.lower()}",
            f"a range in which one row of {SMALL} changes, committed, p50",
            "ms",
            100,
            statistics.median(times[10:]),
        )


def _opened(folder, table, mode):
    """A sink that has not begun."""
    config = LakeSinkConfig(IcebergPlace("n", table), mode, ("id",) if mode == "UPSERT" else ())
    access = IcebergAccess("sql", f"sqlite:///{folder}/catalog.db", folder.as_uri())
    target = IcebergTarget(access, None, "bench-s", "s", sink_columns(config, DESC))
    target.ensure()
    return LakeSink(
        LakeRows(config, DESC, "s"),
        SinkTable("it"),
        Claim("u1", "s", 1, lambda: None),
        target.opened(),
        clock=lambda: int(time.time() * 1000),
        is_stopped=lambda: False,
    )
