"""What an environment of many collections costs when nothing happens in it."""

from __future__ import annotations

import statistics
import threading
import time
from contextlib import contextmanager

from tests.bench.figure import Figure
from tests.support.adapter.calls import calls_of
from tests.support.adapter.coordination import NoSpark, Place
from tests.support.persist.persistence import new_environment

from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.adapter.catalog.render import create_table_sql
from slackwater.adapter.maintenance import Maintenance, MaintenanceSettings
from slackwater.adapter.reading.stashed_rows import StashedRows
from slackwater.compute.compaction import EngineRewriter
from slackwater.repr.relation import RelationDesc

COLLECTIONS = 10_000
SOURCES = 60
SINKS = 20
AT_ONCE = 1_000
WRITTEN = 200
TICKS = 40
BINDS = 100
BOUND = 100
DESC = RelationDesc.of(k="integer", v="string")


def collections(folder):
    """Opening an environment of many collections, and its ticks."""
    env = new_environment(f"sqlite:///{folder}/metastore.sqlite", folder / "environment")
    _build(Place(env), folder)
    began = time.perf_counter()
    place = Place(env)
    _bind(place, "t0")
    opened_s = time.perf_counter() - began
    try:
        assert sum(item.shard_id is not None for item in _collections(place)) == COLLECTIONS
        yield Figure("reopen", f"opening {COLLECTIONS} collections, to a bind", "s", 10, opened_s)
        yield from _ticks("tick", "idle tick", _idle_ticks(place))
        yield from _ticks("tick_maintained", "tick beside maintenance", _maintained_ticks(place))
        created = [
            _ms(lambda number=number: place.table(f"new{number}", k="integer"))
            for number in range(TICKS)
        ]
        what = f"CREATE TABLE beside {COLLECTIONS} collections, p50"
        yield Figure("create_of_many", what, "ms", 50, statistics.median(created))
        names = [f"t{number}" for number in range(BOUND)]
        binds = [_ms(lambda: _bind(place, *names)) for _ in range(BINDS)]
        what = f"bind of {BOUND} of {COLLECTIONS} collections, p50"
        yield Figure("bind_of_many", what, "ms", 10, statistics.median(binds))
    finally:
        place.close()
        env.engine.dispose()


def _collections(place):
    items = place.env.state.items.values()
    return [item for item in items if item.kind in (ItemKind.TABLE, ItemKind.SOURCE)]


def _build(place, folder):
    """Sources with their progress relations, sinks, tables, some of them with rows."""
    for number in range(SOURCES // 2):
        place.sql(f"CREATE SOURCE clock{number} FROM LOAD GENERATOR COUNTER (TICK INTERVAL '1 h')")
        inputs = folder / f"in{number}"
        inputs.mkdir()
        (inputs / "rows.csv").write_text("k,v\n1,a\n")
        place.sql(f"CREATE SOURCE files{number} FROM FILES (PATH '{inputs}', FORMAT CSV, HEADER)")
    changes, catalog = place.coordinator.parts.changes, place.coordinator.parts.relations.catalog
    tables = COLLECTIONS - len(_collections(place))
    sql = create_table_sql("slackwater.default.t", DESC, None, None, {})
    for first in range(0, tables, AT_ONCE):
        ids = catalog.allocate_ids(min(AT_ONCE, tables - first))
        items = [
            CatalogItem(each, ItemKind.TABLE, "default", f"t{first + at}", sql, DESC)
            for at, each in enumerate(ids)
        ]
        with catalog.lock:
            changes.commit(changes.with_tables_shards(items), "bench")
    for number in range(WRITTEN):
        place.write(f"t{number}", {"k": number, "v": "value"})
    for number in range(SINKS):
        out = folder / f"out{number}"
        place.sql(f"CREATE SINK s{number} FROM t{number} INTO FILES (PATH '{out}', FORMAT JSON)")
    place.close()


def _bind(place, *names):
    relations = [{"id": place.item(name).id} for name in names]
    calls = calls_of(place.coordinator)
    bound = calls["/v1/bind"]({"session": "app/1", "relations": relations})
    calls["/v1/release"]({"holds": [bound["hold"]]})


def _idle_ticks(place):
    """How long ticks take from their beginning until all has been told, in milliseconds."""
    with _measured(place) as (took, begun):
        while len(took) < TICKS:
            begun.wait()
            begun.clear()
    return took


def _maintained_ticks(place):
    """The same of ticks each of which begins together with a turn of the maintenance."""
    parts = place.coordinator.parts
    parts.maintenance.stop()
    maintenance = Maintenance(
        parts.relations,
        parts.timeline.oracle,
        parts.compute,
        EngineRewriter(NoSpark()),
        StashedRows(parts.relations.persist.blobs, parts.relations.persist.epoch),
        epoch=parts.relations.persist.epoch,
        clock_ms=parts.maintenance._clock_ms,
        on_fatal=place.fatal.append,
        settings=MaintenanceSettings(),
    )
    with _measured(place) as (took, begun):
        while len(took) < TICKS:
            begun.wait()
            begun.clear()
            maintenance.turn()
    return took


@contextmanager
def _measured(place):
    """The list to which each tick adds how long it took, and the event of each beginning."""
    committer, took, begun = place.env.committer, [], threading.Event()
    append = committer._append

    def measured(writes):
        began = time.perf_counter()
        begun.set()
        timestamp = append(writes)
        if not writes:
            took.append((time.perf_counter() - began) * 1000)
        return timestamp

    committer._append = measured
    try:
        yield took, begun
    finally:
        committer._append = append


def _ticks(name, what, took):
    what = f"{what} of {COLLECTIONS} collections"
    yield Figure(f"{name}_p50", f"{what}, p50", "ms", 100, statistics.median(took))
    yield Figure(f"{name}_max", f"{what}, max of {len(took)}", "ms", 100, max(took))


def _ms(action):
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1000
