"""How many rows a sink commits to a Delta table in a second, and what a small commit takes."""

from __future__ import annotations

import statistics
import time

import pyarrow as pa
from tests.bench.figure import Figure

from slackwater.adapter.external.delta import DeltaTarget
from slackwater.repr.frontier import Frontier
from slackwater.repr.relation import RelationDesc
from slackwater.storage.lake.changes import LakeRows
from slackwater.storage.lake.config import DeltaPlace, LakeSinkConfig
from slackwater.storage.lake.sink import LakeSink, SinkTable
from slackwater.storage.sink_folder import Claim

ROWS = 1_000_000
ROUNDS = 60
SMALL = 10_000
DESC = RelationDesc.of(id="long", customer="string", amount="decimal(12,2)", at="timestamp")


def delta_sink(folder):
    """A large range in each mode, all of whose keys change in the next one; then small ranges."""
    appended = _opened(folder / "append", "APPEND")
    yield Figure(
        "delta_sink_append",
        f"time for 1000 rows of a range of {ROWS}, appended, four columns",
        "ms",
        1000 / 100,
        taken(appended, 0, updates(0, ROWS, 0)) * 1000 / ROWS,
    )
    upserted = _opened(folder / "upsert", "UPSERT")
    taken(upserted, 0, updates(0, ROWS, 0))
    changed = pa.concat_tables([updates(0, ROWS, 1, -1), updates(0, ROWS, 1, 1, "other")])
    yield Figure(
        "delta_sink_upsert",
        f"time for 1000 rows of a range in which {ROWS} keys change",
        "ms",
        1000 / 25,
        taken(upserted, 1, changed) * 1000 / ROWS,
    )
    for mode in ("APPEND", "UPSERT"):
        sink = _opened(folder / f"small {mode}", mode)
        taken(sink, 0, updates(0, SMALL, 0))
        times = []
        for at in range(1, ROUNDS):
            change = [updates(at, at + 1, at, -1), updates(at, at + 1, at, 1, "other")]
            times.append(taken(sink, at, pa.concat_tables(change)))
        yield Figure(
            f"delta_sink_commit_{mode.lower()}",
            f"a range in which one row of {SMALL} changes, committed, p50",
            "ms",
            50,
            statistics.median(times[10:]),
        )


def _opened(folder, mode):
    """A sink that has not begun."""
    config = LakeSinkConfig(DeltaPlace(str(folder)), mode, ("id",) if mode == "UPSERT" else ())
    target = DeltaTarget(str(folder), "s", "bench-s", config, DESC)
    target.ensure()
    return LakeSink(
        LakeRows(config, DESC, "s"),
        SinkTable("it"),
        Claim("u1", "s", 1, lambda: None),
        target.opened(),
        clock=lambda: int(time.time() * 1000),
        is_stopped=lambda: False,
    )


def taken(sink, at, updates):
    """The milliseconds that a range of one time takes."""
    began = time.perf_counter()
    sink.write(Frontier(at), Frontier(at + 1), [updates])
    return (time.perf_counter() - began) * 1000


def updates(first, end, time_ms, diff=1, customer="customer"):
    schema = DESC.update_schema()
    numbers, size = pa.array(range(first, end), pa.int64()), end - first
    columns = [
        numbers,
        pa.array([f"{customer} {number % 1000}" for number in range(first, end)]),
        pa.array([number % 10_000 for number in range(first, end)]).cast(pa.decimal128(19, 0)),
        numbers,
        pa.repeat(time_ms, size),
        pa.repeat(diff, size),
    ]
    arrays = [c.cast(f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
