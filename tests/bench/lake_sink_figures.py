"""How many rows a sink commits to a table in a second, and what a small commit takes."""

from __future__ import annotations

import statistics
import time

import pyarrow as pa
from tests.bench.figure import Figure

from slackwater.adapter.external.delta import DeltaTarget
from slackwater.adapter.external.delta_folder import DeltaFolder
from slackwater.adapter.external.iceberg import IcebergTarget
from slackwater.repr.frontier import Frontier
from slackwater.repr.relation import RelationDesc
from slackwater.storage.access import IcebergAccess
from slackwater.storage.iceberg.schema import sink_columns
from slackwater.storage.lake.changes import LakeRows
from slackwater.storage.lake.config import DeltaPlace, IcebergPlace, LakeSinkConfig
from slackwater.storage.lake.sink import LakeSink, SinkTable
from slackwater.storage.sink_folder import Claim

ROWS = 1_000_000
ROUNDS = 60
SMALL = 10_000
DESC = RelationDesc.of(id="long", customer="string", amount="decimal(12,2)", at="timestamp")


def delta_sink(folder):
    """Delta tables in folders."""

    def opened(table, mode):
        config = LakeSinkConfig(DeltaPlace(str(folder / table)), mode, _key(mode))
        return config, DeltaTarget(
            DeltaFolder.at(str(folder / table)), "s", "bench-s", config, DESC
        )

    yield from figures("delta_sink", opened, 50)


def iceberg_sink(folder):
    """Iceberg tables in folders; the catalog is in SQLite."""
    access = IcebergAccess("sql", f"sqlite:///{folder}/catalog.db", folder.as_uri())

    def opened(table, mode):
        config = LakeSinkConfig(IcebergPlace("n", table), mode, _key(mode))
        return config, IcebergTarget(access, None, "bench-s", "s", sink_columns(config, DESC))

    yield from figures("iceberg_sink", opened, 100)


def figures(name, made, most_ms):
    """A large range in each mode, all of whose keys change in the next one; then small ranges.

    `made` gives the definition and the target of a sink, for a table and a mode; a small commit is
    to take `most_ms`.
    """

    def opened(table, mode):
        return _opened(*made(table, mode))

    appended = opened("append", "APPEND")
    yield Figure(
        f"{name}_append",
        f"time for 1000 rows of a range of {ROWS}, appended, four columns",
        "ms",
        1000 / 100,
        taken(appended, 0, updates(0, ROWS, 0)) * 1000 / ROWS,
    )
    upserted = opened("upsert", "UPSERT")
    taken(upserted, 0, updates(0, ROWS, 0))
    changed = pa.concat_tables([updates(0, ROWS, 1, -1), updates(0, ROWS, 1, 1, "other")])
    yield Figure(
        f"{name}_upsert",
        f"time for 1000 rows of a range in which {ROWS} keys change",
        "ms",
        1000 / 25,
        taken(upserted, 1, changed) * 1000 / ROWS,
    )
    for mode in ("APPEND", "UPSERT"):
        sink = opened(f"small {mode}", mode)
        taken(sink, 0, updates(0, SMALL, 0))
        times = []
        for at in range(1, ROUNDS):
            change = [updates(at, at + 1, at, -1), updates(at, at + 1, at, 1, "other")]
            times.append(taken(sink, at, pa.concat_tables(change)))
        yield Figure(
            f"{name}_commit_{mode.lower()}",
            f"a range in which one row of {SMALL} changes, committed, p50",
            "ms",
            most_ms,
            statistics.median(times[10:]),
        )


def _key(mode):
    return ("id",) if mode == "UPSERT" else ()


def _opened(config, target):
    """A sink that has not begun."""
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
