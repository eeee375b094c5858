"""What clients were told, and what must therefore be so. I1 to I51: spec controllers, section 6."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.simulation.views import (
    CHOSEN,
    REFRESHED,
    VIEWS,
    choice,
    contents,
    refreshed_at,
    wrong,
)
from tests.support.adapter.coordination import Place

from slackwater.adapter.catalog.details import IngestedDetails
from slackwater.adapter.catalog.model import CatalogItem, ItemKind, shards_of
from slackwater.adapter.controllers.collections import retention
from slackwater.controller.holds import Holder, HoldKind
from slackwater.persist.uris import local_path
from slackwater.repr.frontier import Frontier
from slackwater.storage.key_value import KeyValueConfig

Fail = Callable[[str], None]


@dataclass(eq=False, slots=True)
class Insert:
    """An insert of one row into each of its tables, and what is known of it.

    `done` and `refused` were answered; without them it may have happened or not. A block is not
    told its time.
    """

    number: int
    tables: tuple[str, ...]
    done: bool = False
    refused: bool = False
    time: int | None = None


COUNTED = "counted"
"""A table of one row, which statements read and replace by the next number."""


REPLACED = "replaced"
"""A table whose contents are those of one `replacement`."""


def replacement(number: int) -> list[dict[str, Any]]:
    """The rows of the replacement of this number; each fourth has other columns."""
    other = {"w": number} if number % 4 == 3 else {"v": "x"}
    return [{"k": number, **other} for _ in range(1 + number % 3)]


@dataclass(slots=True)
class Ledger:
    """All that clients have asked for and been answered."""

    fail: Fail
    inserts: list[Insert] = field(default_factory=list)
    objects: dict[str, bool] = field(default_factory=dict)
    """The tables and sources that were created, and whether nobody has tried to drop them."""
    counted: int = 0
    """How often it was answered that the number is the next one."""
    doubtful: int = 0
    """How often that was asked for, and it is not known what became of it."""

    replaced: int = 0
    """The last replacement that was acknowledged."""
    asked: int = 0
    """The last replacement that was asked for."""

    query: int = 0
    """The last query of the view `CHOSEN` that was acknowledged."""
    queries: int = 0
    """The last one that was asked for."""

    def insert(self, *tables: str) -> Insert:
        made = Insert(len(self.inserts) + 1, tables)
        self.inserts.append(made)
        return made

    def done(self) -> frozenset[Insert]:
        """What everybody must see from now on."""
        return frozenset(each for each in self.inserts if each.done)

    def done_until(self, at: int) -> frozenset[Insert]:
        """What is known to be there at a time of the past."""
        return frozenset(i for i in self.inserts if i.time is not None and i.time <= at)

    def check_contents(
        self, what: str, at: int, found: Mapping[str, Iterable[int]], known: Set[Insert]
    ) -> None:
        """What a reader sees at a time: all that is `known`, once; of the rest all or nothing."""
        rows = {name: Counter(numbers) for name, numbers in found.items()}
        for insert in self.inserts:
            here = [name for name in insert.tables if name in rows]
            counts = {rows[name][insert.number] for name in here}
            if not here:
                continue
            if counts - {0, 1}:
                self.fail(f"I8: {what} at {at}: {insert} is there more than once")
            if len(counts) > 1:
                self.fail(f"I29: {what} at {at}: {insert} is only in some of its tables")
            if insert in known and counts != {1}:
                self.fail(f"I29: {what} at {at}: {insert} was acknowledged and is not there")
            if insert.refused and counts != {0}:
                self.fail(f"I29: {what} at {at}: {insert} has failed and is there")
            if insert.time is not None and insert.time > at and counts != {0}:
                self.fail(f"I29: {what} at {at}: {insert} is there before its time")
            for name in here:
                del rows[name][insert.number]
        left = {name: dict(counted) for name, counted in rows.items() if any(counted.values())}
        if left:
            self.fail(f"I29: {what} at {at}: rows that nobody wrote: {left}")

    def check_counted(self, what: str, found: Iterable[int], *, least: int) -> None:
        """A statement that reads and writes does both at one time: no number is left out."""
        numbers = list(found)
        if len(numbers) > 1:
            self.fail(f"I29: {what}: the one row of {COUNTED} is {numbers}")
        number = sum(numbers)
        if not least <= number <= self.counted + self.doubtful:
            self.fail(
                f"I29: {what}: {COUNTED} is {number}, after {least} of {self.counted} that were"
                f" acknowledged and {self.doubtful} that may have been"
            )

    def check_replaced(self, what: str, rows: list[dict[str, Any]], *, least: int) -> None:
        """One replacement, as a whole: what was there before and what comes come at one time."""
        number = rows[0]["k"] if rows else 0
        if rows != (replacement(number) if number else []):
            self.fail(f"I29: {what}: {REPLACED} is {rows}")
        if not least <= number <= self.asked:
            self.fail(f"I29: {what}: {REPLACED} is {number}, not {least} to {self.asked}")

    def check_chosen(self, what: str, found: Mapping[str, Counter], *, least: int) -> None:
        """The view is what one of the queries that it may have answers, over the same contents."""
        numbers = range(least, self.queries + 1)
        if all(found[CHOSEN] != choice(number).answer(found["t1"]) for number in numbers):
            self.fail(f"{what}: {CHOSEN} is of no query of {numbers}: {found}")

    # Restarts and the end

    def check_all(self, place: Place, what: str) -> None:
        """Everything that this leader has, against everything that was answered."""
        names = {item.name for item in place.env.state.items.values()}
        for name, kept in self.objects.items():
            if kept and name not in names:
                self.fail(f"I27: {what}: {name} was created and is not there")
        stored = [
            item
            for item in place.env.state.items.values()
            if item.shard_id is not None and item.kind is not ItemKind.SINK
        ]
        if not stored:
            return
        hold = place.env.storage.acquire(
            [item.id for item in stored], Holder(HoldKind.STATEMENT, what)
        )
        try:
            tables = [
                i for i in stored if i.kind is ItemKind.TABLE and i.name not in (COUNTED, REPLACED)
            ]
            self._check_tables(place, tables, hold.since)
            if any(item.name == COUNTED for item in stored):
                numbers = [row["k"] for row in place.rows(COUNTED)]
                self.check_counted(what, numbers, least=self.counted)
            if any(item.name == REPLACED for item in stored):
                self._check_replacements(place, what, hold.since)
            for item in stored:
                if isinstance(item.details, IngestedDetails):
                    self._check_source(place, item, hold.since)
            self._check_views(place, what, hold.since)
            if any(item.name == CHOSEN for item in stored):
                self._check_each_choice(place, what, hold.since)
            if any(item.name == REFRESHED for item in stored):
                self._check_refreshed(place, what, hold.since)
        finally:
            place.env.storage.release(hold)

    def _check_tables(self, place: Place, tables: Iterable[CatalogItem], since: int) -> None:
        done, at = self.done(), place.env.persist.reads.tables_upper() - 1
        times = {each.number: each.time for each in self.inserts if each.time is not None}
        found = {}
        for table in tables:
            rows = [row for row in place.updates(table.name) if row["__time"] <= at]
            found[table.name] = [row["k"] for row in rows for _ in range(row["__diff"])]
            for row in rows:
                # Compaction moves a time up to the since, and no further.
                number, time = row["k"], row["__time"]
                if time > since and times.setdefault(number, time) != time:
                    self.fail(f"I7: {number} is in {table.name} at {time}, not {times[number]}")
        self.check_contents("all", at, found, done)

    def _check_source(self, place: Place, item: CatalogItem, since: int) -> None:
        """At each time that can be told apart, what the progress says is what is there."""
        progress = place.env.state.item(item.progress)
        upper = place.env.persist.reads.tables_upper()
        bound = {row["__time"] for row in place.updates(progress.name)}
        times = {row["__time"] for row in place.updates(item.name) if since < row["__time"] < upper}
        if not times <= bound:
            self.fail(f"I49: {item.name} has rows at {times - bound}, which were not bound")
        for time in sorted(times | {max(since, upper - 1)})[-8:]:
            rows, reached = place.rows(item.name, time), place.rows(progress.name, time)
            if "counter" in item.desc.names:
                expected = list(range(1, 1 + sum(row["offset"] for row in reached)))
                wrong = sorted(row["counter"] for row in rows) != expected
            else:
                expected = last_values(item.ingested.config, reached)
                wrong = {tuple(row.values()) for row in rows} != expected
            if wrong:
                self.fail(f"I51: {item.name} at {time} is not what the source emitted")

    def _check_replacements(self, place: Place, what: str, since: int) -> None:
        times = {row["__time"] for row in place.updates(REPLACED)}
        last = place.env.persist.reads.tables_upper() - 1
        for at in sorted({time for time in times if since < time} | {max(since, last)}):
            least = self.replaced if at == last else 0
            self.check_replaced(f"{what} at {at}", place.rows(REPLACED, at), least=least)

    def _check_views(self, place: Place, what: str, since: int) -> None:
        """Whenever they can be read they are what their queries answer then."""
        named = {each for view in VIEWS.values() for each in view.names}
        here = [i for i in place.env.state.items.values() if i.name in VIEWS or i.name in named]
        upper = min((place.env.relations.upper(item).value for item in here), default=0)
        if upper <= since:
            return
        times = {row["__time"] for item in here for row in place.updates(item.name)}
        within = {time for time in times if since < time < upper}
        for at in sorted({since, *within, upper - 1})[-12:]:
            found = {item.name: contents(place, item.name, at) for item in here}
            if names := wrong(found):
                self.fail(f"{what}: {names} at {at} are not what their queries answer: {found}")

    def _check_each_choice(self, place: Place, what: str, since: int) -> None:
        least, names = self.query, ("t1", CHOSEN)
        upper = min(place.env.relations.upper(place.item(name)).value for name in names)
        times = {row["__time"] for name in names for row in place.updates(name)}
        at_all = {since, *(time for time in times if since < time < upper), upper - 1}
        for at in sorted(at_all)[-12:] if since < upper else ():
            found = {name: contents(place, name, at) for name in names}
            self.check_chosen(f"{what} at {at}", found, least=0)
        # It is complete up to the present only when its replacement has taken its place.
        if since < upper == place.env.persist.reads.tables_upper():
            found = {name: contents(place, name, upper - 1) for name in names}
            self.check_chosen(f"{what} at {upper - 1}", found, least=least)

    def _check_refreshed(self, place: Place, what: str, since: int) -> None:
        """At each time it is what its query answered at the last refresh."""
        names = ("t1", REFRESHED)
        upper = min(place.env.relations.upper(place.item(name)).value for name in names)
        times = {row["__time"] for name in names for row in place.updates(name)}
        for at in sorted({since, *(t for t in times if since < t < upper), upper - 1})[-12:]:
            refresh = refreshed_at(place, at)
            if refresh is None or not since <= refresh <= at < upper:
                continue
            expected = VIEWS["even"].answer(contents(place, "t1", refresh))
            if contents(place, REFRESHED, at) != expected:
                self.fail(f"{what}: {REFRESHED} at {at} is not what it was at {refresh}")

    def check_sink(self, folder: Path, table: str) -> None:
        """What a reader that follows the manifest has got: each insert once, at its time."""
        manifest = folder / "manifest.json"
        if not manifest.exists():
            return
        read = json.loads(manifest.read_text())
        lines = [
            json.loads(line)
            for file in read["files"]
            for line in (folder / file["path"]).read_text().splitlines()
        ]
        counted = Counter(line["k"] for line in lines)
        if max(counted.values(), default=1) > 1 or any(line["mz_diff"] != 1 for line in lines):
            self.fail(f"I51: the sink of {table} has written a row twice: {counted}")
        times = {line["k"]: line["mz_timestamp"] for line in lines}
        as_of = min((file["lower"] for file in read["files"]), default=0)
        for insert in self.done_until(read["frontier"] - 1):
            if table in insert.tables:
                written = times.get(insert.number)
                if written is None or (written != insert.time and insert.time > as_of + 1):
                    self.fail(f"I51: the sink of {table} has {insert} at {written}")


def last_values(config: KeyValueConfig, reached: list[dict]) -> set[tuple]:
    """The rows of ENVELOPE UPSERT when the source was read so far."""
    found = set()
    for row in reached:
        keys = config.keys_per_partition
        for number in range(max(0, row["offset"] - keys), row["offset"]):
            found.add(tuple(config.row(row["partition"], number)))
    return found


@dataclass(slots=True)
class Durable:
    """What is stored, read past everybody, and that it never goes back."""

    path: str
    fail: Fail
    _sinces: dict[int, int] = field(default_factory=dict)
    _uppers: dict[int, int] = field(default_factory=dict)
    _tables_upper: int = 0

    def check(self) -> None:
        """At any moment."""
        store = sqlite3.connect(self.path)
        try:
            (upper,) = store.execute("SELECT tables_upper FROM environment").fetchone()
            shards = store.execute(
                'SELECT shard_id, since, "upper", dropped FROM shards'
            ).fetchall()
            files = store.execute("SELECT part_id, uri FROM parts WHERE uri IS NOT NULL").fetchall()
        finally:
            store.close()
        if upper < self._tables_upper:
            self.fail(f"I1: the tables upper went back from {self._tables_upper} to {upper}")
        self._tables_upper = upper
        for shard_id, since, own_upper, _ in shards:
            if since < self._sinces.get(shard_id, 0):
                self.fail(f"I1: the since of {shard_id} went back to {since}")
            if (own_upper or 0) < self._uppers.get(shard_id, 0):
                self.fail(f"I1: the upper of {shard_id} went back to {own_upper}")
            self._sinces[shard_id], self._uppers[shard_id] = since, own_upper or 0
        for part_id, uri in files:
            if not local_path(uri).exists():
                self.fail(f"part {part_id} names {uri}, which is not there")

    def check_shards(self, place: Place) -> None:
        """Once a leader has reconciled, before it takes requests."""
        store = sqlite3.connect(self.path)
        try:
            dropped = dict(store.execute("SELECT shard_id, dropped FROM shards").fetchall())
        finally:
            store.close()
        mapped = {s for item in place.env.state.items.values() for s in shards_of(item)}
        for shard_id in mapped:
            if dropped.get(shard_id, True):
                self.fail(f"I26: {shard_id} is in use and is dropped, or was never made")
        for shard_id, is_dropped in dropped.items():
            if not is_dropped and shard_id not in mapped:
                self.fail(f"I27: {shard_id} belongs to nobody and is not to be finalized")

    def check_frontiers(self, place: Place, what: str, *, is_new: bool) -> None:
        """What the controller of this leader allows, against what is stored.

        A new leader has no reason to allow less than it must.
        """
        for item in place.env.state.items.values():
            if item.shard_id is None or item.kind is ItemKind.SINK:
                continue
            stored = place.env.persist.reads.state(item.shard_id)
            since, upper = place.env.storage.frontiers(item.id)
            if Frontier(stored.since) > since:
                self.fail(f"I17: {what}: {item.name} is stored with {stored.since}, not {since}")
            promised = max(Frontier(stored.since), retention(item).frontier(upper))
            if is_new and since > promised:
                self.fail(f"I18: {what}: {item.name} can be read from {since}, not {promised}")
