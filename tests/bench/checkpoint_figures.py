"""What it costs a checkpoint group to bring its bounds up to date."""

from __future__ import annotations

import statistics
import time
from contextlib import contextmanager
from itertools import islice

from sqlalchemy import insert, text
from tests.bench.figure import Figure
from tests.support.persist.postgres import running_server

from slackwater.checkpoints import DatabaseStore, EngineTransactions
from slackwater.checkpoints.bounds import bounds
from slackwater.checkpoints.tables import create_tables, key
from slackwater.persist.metastore import connect
from slackwater.persist.tables import checkpoints
from slackwater.repr.hlc import Range, Time

GROUP = "bench"
PARTITIONS = 64
WAITING = 100_000
HISTORY = 1_000_000
LOOKAHEAD = 1_000
READS = 41
WARM_UP = 10
AT_ONCE = 20_000


def refreshes(folder):
    """64 partitions with 100 000 checkpoints to be applied, and a history that grows."""
    with running_server(fsync=True) as server:
        for store, url in (
            ("SQLite", f"sqlite:///{folder}/checkpoints.sqlite"),
            ("PostgreSQL", server.new_database()),
        ):
            with opened(url) as engine:
                yield from _refreshes(engine, store)


@contextmanager
def opened(url):
    engine = connect(url)
    create_tables(engine)
    yield engine
    engine.dispose()


def _refreshes(engine, store):
    name = f"{store.lower()}_checkpoint_refresh"
    what = f"refresh of {PARTITIONS} partitions, {WAITING} checkpoints to apply, on {store}"
    each, before, past = (n // PARTITIONS for n in (WAITING, HISTORY // 10, HISTORY))
    _fill(engine, range(past - before, past), applied_ms=1)
    _fill(engine, range(past, past + each), applied_ms=None)
    expected = Range.including(Time(past - 1), Time(past + each - 1))
    short = _reads(engine, None, expected)
    yield Figure(name, f"{what}, p50", "ms", 20, statistics.median(short))
    limited = Range.including(Time(past - 1), Time(past - 1 + LOOKAHEAD))
    ahead = statistics.median(_reads(engine, LOOKAHEAD, limited))
    yield Figure(f"{name}_limited", f"{what}, lookahead {LOOKAHEAD}, p50", "ms", 20, ahead)
    _fill(engine, range(past - before), applied_ms=1)
    long = _reads(engine, None, expected)
    after = f"{what}, after {HISTORY} applied, p50"
    yield Figure(f"{name}_history", after, "ms", 20, statistics.median(long))
    growth = f"the same, against {HISTORY // 10} applied, fastest, on {store}"
    yield Figure(f"{name}_growth", growth, "x", 2, min(long) / min(short))


def _fill(engine, numbers, applied_ms):
    rows = (
        {
            "group_name": GROUP,
            "partition_name": f"topic@{partition}",
            "source_hlc": key(Time(number)),
            "first_seen_ms": 1,
            "applied_ms": applied_ms,
        }
        for number in numbers
        for partition in range(PARTITIONS)
    )
    with engine.begin() as conn:
        while some := list(islice(rows, AT_ONCE)):
            conn.execute(insert(checkpoints), some)
    if engine.dialect.name == "postgresql":
        # As the server does by itself, some time later.
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            conn.execute(text("VACUUM ANALYZE checkpoints"))


def _reads(engine, lookahead, expected):
    """How long refreshes take, in milliseconds."""
    store = DatabaseStore(EngineTransactions(engine))
    took = []
    for _ in range(READS):
        began = time.perf_counter()
        state = store.state(GROUP, lookahead)
        found = bounds(state.partitions, state.committed)
        took.append((time.perf_counter() - began) * 1000)
        assert found == expected
    return took[WARM_UP:]
