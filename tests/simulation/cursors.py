"""Clients that fetch in pieces, each piece from whatever server there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.ledger import Insert
from tests.simulation.workload import GONE, LATE, PAST, Clients
from tests.support.adapter.calls import calls_of
from tests.support.adapter.coordination import Place

NO_CURSOR = "SLACKWATER_UNKNOWN_CURSOR"
"""What another server says, and the next one after an end: rows come from the one that has it."""


def _rows_of(*names: str) -> str:
    return " UNION ALL ".join(f"SELECT k, '{name}' AS name FROM {name}" for name in names)


@dataclass(slots=True)
class Followed:
    """What a SUBSCRIBE gave: numbers with their times, and up to where that is all."""

    name: str
    done: frozenset[Insert]
    times: dict[int, int] = field(default_factory=dict)
    as_of: int | None = None
    frontier: int = 0

    def add(self, row: Mapping[str, Any], fail: Callable[[str], None]) -> None:
        time = row["mz_timestamp"]
        if time < self.frontier:
            fail(f"I36: SUBSCRIBE {self.name} gave {row} after progress {self.frontier}")
        if row["mz_progressed"]:
            self.as_of = time if self.as_of is None else self.as_of
            self.frontier = time
        elif row["k"] in self.times or row["mz_diff"] != 1:
            fail(f"I36: SUBSCRIBE {self.name} gave {row} after {self.times}")
        else:
            self.times[row["k"]] = time

    def contains(self, insert: Insert) -> bool:
        if self.name == "even":
            return "t1" in insert.tables and insert.number % 2 == 0
        return self.name in insert.tables


@dataclass(slots=True)
class Cursors:
    """Cursors of the clients."""

    clients: Clients
    sessions: list[str] = field(default_factory=list)

    def query(self) -> None:
        """The answer of a query, while others write."""
        self.clients.now_and_then(2.0, self._query)

    def follow(self) -> None:
        """The updates of a collection."""
        self.clients.now_and_then(3.0, self._follow)

    def close(self) -> None:
        """Nothing is held any more, wherever the sessions were."""
        for session in self.sessions:
            self._closed(session)

    def _session(self) -> str:
        self.sessions.append(f"cursor/{len(self.sessions)}")
        return self.sessions[-1]

    def _closed(self, session: str) -> None:
        def close(place: Place) -> None:
            calls_of(place.coordinator)["/v1/session/close"]({"session": session})

        self.clients.ask("close", close)

    def _query(self) -> None:
        world = self.clients.world
        rng, ledger = world.scheduler.rng, world.ledger
        names = rng.choice((("t1", "t2"), ("t1", "even")))
        back_ms = rng.choice((None, None, rng.randrange(3000)))
        done, session = ledger.done(), self._session()
        times: list[int] = []

        def declare(place: Place) -> None:
            suffix = ""
            if back_ms is not None:
                times.append(place.env.oracle.read_ts() - back_ms)
                suffix = f" AS OF {times[-1]}"
            place.sql(f"DECLARE c CURSOR FOR {_rows_of(*names)}{suffix}", session)

        past = () if back_ms is None else PAST
        if not self.clients.ask("declare", declare, *GONE, *past):
            return
        found = self._fetched(session, rng.randrange(1, 5))
        self._closed(session)
        if found is None:
            return
        rows = {name: [row["k"] for row in found if row["name"] == name] for name in names}
        tables = {name: numbers for name, numbers in rows.items() if name != "even"}
        there = {number for numbers in tables.values() for number in numbers}
        seen = [i.time for i in ledger.inserts if i.time is not None and i.number in there]
        at = times[-1] if times else max(seen, default=0)
        known = ledger.done_until(at) | (frozenset() if times else done)
        ledger.check_contents("a cursor", at, tables, known)
        if "even" in rows and sorted(rows["even"]) != sorted(k for k in rows["t1"] if k % 2 == 0):
            world.scheduler.fail(f"a cursor at {at} has read two times: {rows}")

    def _fetched(self, session: str, count: int) -> list[dict] | None:
        """All rows, `count` at a time; None: the cursor went with its server."""
        scheduler, found, complete = self.clients.world.scheduler, list[dict](), list[bool]()

        def fetch(place: Place) -> None:
            rows = place.sql(f"FETCH {count} c", session)
            found.extend(rows)
            complete.append(len(rows) < count)

        for _ in range(80):
            self.clients.ask("fetch", fetch, NO_CURSOR, *GONE, *LATE, *PAST)
            if complete and complete[-1]:
                return found
            scheduler.sleep(scheduler.rng.uniform(0, 0.4))
            if self.clients.world.over:
                break
        return None

    def _follow(self) -> None:
        world = self.clients.world
        rng = world.scheduler.rng
        followed = Followed(rng.choice(("t1", "t2", "even")), world.ledger.done())
        session, count = self._session(), rng.choice(("ALL", "1", "3"))

        def declare(place: Place) -> None:
            subscribe = f"SUBSCRIBE {followed.name} WITH (SNAPSHOT, PROGRESS)"
            place.sql(f"DECLARE c CURSOR FOR {subscribe}", session)

        def fetch(place: Place) -> None:
            for row in place.sql(f"FETCH {count} c WITH (TIMEOUT = '500ms')", session):
                followed.add(row, world.scheduler.fail)

        if self.clients.ask("declare", declare, *GONE):
            for _ in range(rng.randrange(2, 20)):
                self.clients.ask("fetch", fetch, NO_CURSOR, *GONE)
                world.scheduler.sleep(rng.uniform(0, 0.5))
            self._closed(session)
            self._check(followed)

    def _check(self, followed: Followed) -> None:
        """Up to the frontier that it told it has given all, and nothing else."""
        fail, as_of = self.clients.world.scheduler.fail, followed.as_of or 0
        left = dict(followed.times)
        for insert in filter(followed.contains, self.clients.world.ledger.inserts):
            time = left.pop(insert.number, None)
            past = insert.time is not None and insert.time < followed.frontier
            if time is None and followed.frontier > as_of and (insert in followed.done or past):
                fail(f"I35: SUBSCRIBE {followed.name} has left out {insert}: {followed}")
            if time is not None and (
                insert.refused or (insert.time not in (None, time) and time > as_of)
            ):
                fail(f"I35: SUBSCRIBE {followed.name} has {insert} at {time}")
        if left:
            fail(f"I35: SUBSCRIBE {followed.name} has what nobody wrote: {left}")
