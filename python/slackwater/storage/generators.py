"""Load generators that tick: COUNTER, AUCTION, CLOCK and TPCH.

What a generator emits is a pure function of its configuration, the tick's number and the time of
tick 0. The position in the source is the number of the tick; the durable state is the time of tick
0 (``base_ms``) and the time of the last tick. Tick n is due at ``base_ms + n * tick_interval_ms``.
After a pause longer than MAX_MISSED_TICKS intervals the base moves forward, so that at most that
many missed ticks are made up for.

The state also has each base from the first tick that it counted for on (``bases``). So the ticks
that were can be made again, at their times, for a table that is added to a running generator.
"""

from __future__ import annotations

import json
import random
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from slackwater.repr.relation import RelationDesc
from slackwater.storage import tpch
from slackwater.storage.ingestion import (
    IngestionProgress,
    IngestionStep,
    SourceStatistics,
    SourceStatus,
)
from slackwater.storage.source_time import SourceFrontier

GeneratorKind = Literal["COUNTER", "AUCTION", "CLOCK", "TPCH"]
MAX_MISSED_TICKS = 100
COPIED_TICKS = 200
"""So many ticks are made again for a new table between two looks at the others."""

ORGANIZATIONS = 10
USERS = 60
ACCOUNTS = 30
BIDS_PER_AUCTION = 9
AUCTION_LENGTH_MS = 10_000

_ADJECTIVES = (
    "Antique", "Brass", "Ceramic", "Folding", "Gilded", "Hand-Painted", "Restored", "Signed",
    "Silver", "Vintage", "Walnut", "Woven",
)  # fmt: skip
_THINGS = (
    "Barometer", "Bookcase", "Carriage Clock", "Chess Set", "Fountain Pen", "Globe", "Lantern",
    "Map of the Coast", "Music Box", "Rocking Chair", "Sextant", "Ship in a Bottle", "Tea Service",
    "Typewriter",
)  # fmt: skip
_FIRST = ("Ada", "Bo", "Clara", "Dev", "Edith", "Farid", "Greta", "Hugo", "Ines", "Jun", "Kofi",
          "Lena", "Mato", "Nora", "Omar", "Pia", "Quin", "Rosa", "Sven", "Tala")  # fmt: skip
_LAST = ("Abara", "Bergman", "Castillo", "Dietrich", "Eriksen", "Fontaine", "Grau", "Hale",
         "Ito", "Jansen", "Kovac", "Lindqvist", "Moreau", "Novak", "Okoye")  # fmt: skip
_PLACES = ("Harbour", "Lighthouse", "Meridian", "North Pier", "Old Mill", "Quayside", "Riverside",
           "Saltmarsh", "Tidewater", "Windward")  # fmt: skip
_TRADES = ("Auctions", "Brothers", "Collectors", "Estates", "Trading")


@dataclass(frozen=True, slots=True)
class GeneratorConfig:
    """A load generator. `up_to` (exclusive) bounds the ticks: a COUNTER ends at that value.

    `max_cardinality` is the number of rows that a COUNTER keeps; older ones are retracted.
    `tick_interval_ms` None: nothing changes after the first tick.
    """

    kind: GeneratorKind
    tick_interval_ms: int | None = 1000
    seed: int = 0
    up_to: int | None = None
    max_cardinality: int | None = None
    scale_factor: float = 0.01


_EXPORTS: Mapping[GeneratorKind, Mapping[str, RelationDesc]] = {
    "COUNTER": {"counter": RelationDesc.of(counter="long")},
    "CLOCK": {"clock": RelationDesc.of(time="timestamp")},
    "AUCTION": {
        "organizations": RelationDesc.of(id="long", name="string"),
        "users": RelationDesc.of(id="long", org_id="long", name="string"),
        "accounts": RelationDesc.of(id="long", org_id="long", balance="long"),
        "auctions": RelationDesc.of(id="long", seller="long", item="string", end_time="timestamp"),
        "bids": RelationDesc.of(
            id="long", buyer="long", auction_id="long", amount="integer", bid_time="timestamp"
        ),
    },
    "TPCH": tpch.TABLES,
}

Update = tuple[tuple[Any, ...], int]


def exports(kind: GeneratorKind) -> dict[str, RelationDesc]:
    """The relations of a generator by name.

    COUNTER and CLOCK have one, which is the source itself; the others' are tables beside it.
    """
    return dict(_EXPORTS[kind])


def tick(config: GeneratorConfig, number: int, time_ms: int) -> dict[str, pa.Table]:
    """The updates of tick `number` (from 0), which is due at `time_ms`, by export."""
    if config.kind == "TPCH":
        return tpch.tick(tpch.TpchConfig(config.scale_factor, config.seed), number)
    rows = _TICKS[config.kind](config, number, time_ms)
    return {name: _EXPORTS[config.kind][name].with_diffs(found) for name, found in rows.items()}


def _counter(config: GeneratorConfig, number: int, time_ms: int) -> dict[str, list[Update]]:
    updates: list[Update] = [((number + 1,), 1)]
    oldest = number + 1 - (config.max_cardinality or number + 1)
    if oldest > 0:
        updates.append(((oldest,), -1))
    return {"counter": updates}


def _draw(config: GeneratorConfig, table: str, row_id: int) -> random.Random:
    """A stream of choices of its own for each row, so that a row does not depend on others."""
    return random.Random(f"{config.seed}/{table}/{row_id}")


def _auction(config: GeneratorConfig, number: int, time_ms: int) -> dict[str, list[Update]]:
    updates = _parties(config) if number == 0 else {}
    auction, turn = divmod(number, BIDS_PER_AUCTION + 1)
    auction_id = auction + 1
    if turn == 0:
        choice = _draw(config, "auctions", auction_id)
        item = f"{choice.choice(_ADJECTIVES)} {choice.choice(_THINGS)}"
        end_time = (time_ms + AUCTION_LENGTH_MS) * 1000
        row = (auction_id, choice.randint(1, USERS), item, end_time)
        updates["auctions"] = [(row, 1)]
    else:
        bid_id = auction * BIDS_PER_AUCTION + turn
        choice = _draw(config, "bids", bid_id)
        bid = (bid_id, choice.randint(1, USERS), auction_id, choice.randint(1, 100), time_ms * 1000)
        updates["bids"] = [(bid, 1)]
    return updates


def _parties(config: GeneratorConfig) -> dict[str, list[Update]]:
    organizations: list[Update] = []
    for row_id in range(1, ORGANIZATIONS + 1):
        trade = _draw(config, "organizations", row_id).choice(_TRADES)
        organizations.append(((row_id, f"{_PLACES[row_id - 1]} {trade}"), 1))
    users: list[Update] = []
    for row_id in range(1, USERS + 1):
        choice = _draw(config, "users", row_id)
        name = f"{choice.choice(_FIRST)} {choice.choice(_LAST)}"
        users.append(((row_id, choice.randint(1, ORGANIZATIONS), name), 1))
    accounts: list[Update] = []
    for row_id in range(1, ACCOUNTS + 1):
        choice = _draw(config, "accounts", row_id)
        row = (row_id, choice.randint(1, ORGANIZATIONS), choice.randint(100, 10_000))
        accounts.append((row, 1))
    return {"organizations": organizations, "users": users, "accounts": accounts}


_TICKS: Mapping[str, Callable[[GeneratorConfig, int, int], dict[str, list[Update]]]] = {
    "COUNTER": _counter,
    "AUCTION": _auction,
}


def remembers_times(state: str | None) -> bool:
    """Whether the times of all ticks that were are known; in states of early releases they are not.

    None: there were none yet.
    """
    return state is None or "bases" in json.loads(state)


Bases = tuple[tuple[int, int], ...]
"""The times of tick 0, each with the first tick that it counts for, in order."""


def _state(base_ms: int | None, last_time_ms: int | None, bases: Bases | None) -> str:
    times = {} if bases is None else {"bases": bases}
    return json.dumps({"base_ms": base_ms, "last_time_ms": last_time_ms, **times})


@dataclass(frozen=True, slots=True)
class GeneratedTables:
    """The exports of a generator, which come and go while it runs.

    `references` gives, by their names, what they are of the generator's relations, as it is now.
    `begun` are those that have contents already.
    """

    references: Callable[[], Mapping[str, str]]
    begun: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Copy:
    """The ticks that were, made again for an export: those before `following`."""

    reference: str
    following: int = 0
    rows: list[pa.Table] = field(default_factory=list)


class GeneratorIngestion:
    """The ingestion of a load generator, from the durable frontier and state on.

    Promise: in each step each export has what the ticks before the frontier make of it, as if it
    had been there from the first one on; until then it has nothing.
    """

    def __init__(
        self,
        config: GeneratorConfig,
        frontier: SourceFrontier | None = None,
        state: str | None = None,
        tables: GeneratedTables | None = None,
    ) -> None:
        """`tables` None: all relations of the generator, under their names."""
        self._config = config
        own = {name: name for name in _EXPORTS[config.kind]}
        self._references = (lambda: own) if tables is None else tables.references
        self._begun = frozenset(own) if tables is None else tables.begun
        self._copies: dict[str, _Copy] = {}
        self._tick = 0
        self._base_ms: int | None = None
        self._last_time_ms: int | None = None
        self._bases: Bases | None = ()
        self._ceased = False
        if frontier is not None and state is not None:
            self._continue_from(frontier, state)

    def poll(self, now_ms: int) -> IngestionStep | IngestionProgress | None:
        config = self._config
        base = now_ms if self._base_ms is None else self._base_ms
        interval = config.tick_interval_ms
        if interval is None:
            due = 1 - self._tick
        else:
            due = (now_ms - base) // interval + 1 - self._tick
            if due > MAX_MISSED_TICKS:
                base += (due - MAX_MISSED_TICKS) * interval
                due = MAX_MISSED_TICKS
        if config.up_to is not None:
            due = min(due, config.up_to - self._tick)
        references = self._references()
        copied = self._copied(references)
        if due <= 0 and not copied:
            return self._copying() if self._copies else self._end()
        if due <= 0:
            # Only what was made again: nothing else moves.
            base, due = self._base_ms or 0, 0
        following = self._tick + due
        bases = self._with_base(base) if due else self._bases
        updates = self._updates(references, base, following, copied)
        count = sum(rows.num_rows for rows in updates.values())
        last = self._time(base, following - 1) if due else self._last_time_ms
        return IngestionStep(
            updates=updates,
            state=_state(base, last, bases),
            frontier=SourceFrontier.at(following),
            status=SourceStatus("ceased" if following == config.up_to else "running"),
            statistics=SourceStatistics(
                messages_received=due,
                updates_staged=count,
                offset_known=following,
                offset_committed=following,
                snapshot_committed=True,
                begun=tuple(copied),
            ),
        )

    def _copied(self, references: Mapping[str, str]) -> dict[str, Sequence[pa.Table]]:
        """The rows of the exports that begin with the next step, each up to the ticks of now."""
        missing = {name: each for name, each in references.items() if name not in self._begun}
        self._copies = {
            name: self._copies.get(name) or _Copy(each) for name, each in missing.items()
        }
        left = COPIED_TICKS
        for copy in self._copies.values():
            end = min(self._tick, copy.following + left)
            left -= end - copy.following
            for number in range(copy.following, end):
                found = tick(self._config, number, self._time_of(number))
                copy.rows += [found[copy.reference]] if copy.reference in found else []
            copy.following = end
        return {name: c.rows for name, c in self._copies.items() if c.following == self._tick}

    def _copying(self) -> IngestionProgress:
        return IngestionProgress(
            SourceStatus("ceased" if self._ceased else "running"),
            SourceStatistics(
                snapshot_records_known=self._tick * len(self._copies),
                snapshot_records_staged=sum(each.following for each in self._copies.values()),
            ),
        )

    def _time(self, base_ms: int, number: int) -> int:
        return base_ms + number * (self._config.tick_interval_ms or 0)

    def _time_of(self, number: int) -> int:
        """The time of a tick that was."""
        bases = self._bases or ((0, self._base_ms or 0),)
        place = bisect_right(bases, number, key=lambda each: each[0]) - 1
        return self._time(bases[max(0, place)][1], number)

    def _with_base(self, base_ms: int) -> Bases | None:
        """The bases once the next tick has this one."""
        bases = self._bases
        if bases is None or (bases and bases[-1][1] == base_ms):
            return bases
        return (*bases, (self._tick, base_ms))

    def _updates(
        self,
        references: Mapping[str, str],
        base_ms: int,
        following: int,
        copied: Mapping[str, Sequence[pa.Table]],
    ) -> dict[str, pa.Table]:
        """The updates of the ticks before `following`, and what was made again, by export."""
        shown = {name: each for name, each in references.items() if name in self._begun}
        shown |= {name: references[name] for name in copied}
        made: dict[str, list[pa.Table]] = {}
        if self._config.kind == "CLOCK" and following > self._tick:
            made["clock"] = [self._moved(self._time(base_ms, following - 1))]
        else:
            for number in range(self._tick, following):
                ticked = tick(self._config, number, self._time(base_ms, number))
                for reference, rows in ticked.items():
                    made.setdefault(reference, []).append(rows)
        found = {name: [*copied.get(name, ()), *made.get(each, ())] for name, each in shown.items()}
        return {name: pa.concat_tables(tables) for name, tables in found.items() if tables}

    def committed(self, step: IngestionStep) -> None:
        self._continue_from(step.frontier, step.state)
        self._ceased = step.status.status == "ceased"
        self._begun |= frozenset(step.statistics.begun)

    def _continue_from(self, frontier: SourceFrontier, state: str) -> None:
        decoded = json.loads(state)
        (position,) = frontier.positions
        self._tick = position.offset
        self._base_ms = decoded["base_ms"]
        self._last_time_ms = decoded["last_time_ms"]
        bases = decoded.get("bases")
        self._bases = None if bases is None else tuple((first, base) for first, base in bases)

    def _end(self) -> IngestionStep | None:
        """Says once, after a restart too, that UP TO is reached."""
        if self._ceased or self._tick != self._config.up_to:
            return None
        return IngestionStep(
            updates={},
            state=_state(self._base_ms, self._last_time_ms, self._bases),
            frontier=SourceFrontier.at(self._tick),
            status=SourceStatus("ceased"),
        )

    def _moved(self, time_ms: int) -> pa.Table:
        """A clock's step: only its last time is shown, and the row that is there goes.

        The row that is there has the time at which it was emitted; the base may have moved since.
        """
        moved: list[Update] = [((time_ms * 1000,), 1)]
        if self._last_time_ms is not None:
            moved.append(((self._last_time_ms * 1000,), -1))
        return _EXPORTS["CLOCK"]["clock"].with_diffs(moved)
