"""What clients do, by seed: they write, read, define and drop, and remember what they were told."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.simulation.ledger import COUNTED, REPLACED, Insert
from tests.simulation.views import (
    CHOSEN,
    REFRESH,
    REFRESHED,
    VIEWS,
    choice,
    contents,
    wrong,
)
from tests.simulation.world import Lost, World
from tests.support.adapter.calls import calls_of
from tests.support.adapter.coordination import Place

from slackwater.adapter.catalog.details import IngestedDetails
from slackwater.adapter.catalog.model import ItemKind
from slackwater.adapter.protocol import Caller
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Timestamp

UNKNOWN = "is not known"
PASSING = frozenset(
    {
        "SLACKWATER_METASTORE_UNAVAILABLE",
        "SLACKWATER_STORAGE_UNAVAILABLE",
        "SLACKWATER_STORAGE_UNREADABLE",
        "SLACKWATER_STATEMENT_INTERRUPTED",
        "SLACKWATER_FENCED",
        "SLACKWATER_SINK_LOCATION_UNWRITABLE",
    }
)
"""What may be answered to anything while there is trouble."""
DEFINITE = frozenset({"SLACKWATER_METASTORE_UNAVAILABLE", "SLACKWATER_STORAGE_UNAVAILABLE"})
"""With these nothing was written, unless they say that it is not known."""
GONE = frozenset({"SLACKWATER_DEPENDENCY_DROPPED", "SLACKWATER_UNKNOWN_RELATION"})
"""What may be answered about something that somebody drops."""
LATE = frozenset({"SLACKWATER_WAIT_TIMEOUT"})
PAST = frozenset({"SLACKWATER_NO_VALID_TIMESTAMP"})
BLOCK_LOST = "SLACKWATER_TRANSACTION_LOST"
LOCK_LOST = "SLACKWATER_LOCK_LOST"
COUNTER = "LOAD GENERATOR COUNTER (TICK INTERVAL '250ms')"
KEY_VALUE = (
    "LOAD GENERATOR KEY VALUE (KEYS 12, PARTITIONS 3, SNAPSHOT ROUNDS 2, VALUE SIZE 5,"
    " BATCH SIZE 2, SEED 1, TICK INTERVAL '400ms')"
)


PAIR = "pair"
"""A cluster of two replicas, which are dropped and made anew under the same names."""
SIZE = "25cc"

TABLE = re.compile("[tp][0-9]+")
Definition = Callable[[Place], object]


@dataclass(eq=False, slots=True)
class Request:
    """What is sent for an insert: the same again, however often.

    `sent`: from here on a lost answer leaves it open whether it has happened, which makes all that
    comes later `doubtful`. `asked`: COMMIT was sent, and is all that can be sent again.
    """

    insert: Insert
    in_file: bool
    sent: bool = False
    asked: bool = False
    doubtful: bool = False
    files: list[dict[str, Any]] = field(default_factory=list)

    def send(self, place: Place) -> int | None:
        """Returns the time, if it is told."""
        number, tables = self.insert.number, self.insert.tables
        row = {"k": number, "v": "x" * (number % 7)}
        if len(tables) == 1:
            return self._write(place, tables[0], row)
        session = f"writer/{number}"
        place.coordinator.calls.enter(
            Caller(session=session, transaction="open" if self.asked else None)
        )
        if not self.asked:
            place.sql("BEGIN", session)
            for table in tables:
                place.write(table, row, session=session, mode="append")
        self.sent = self.asked = True
        place.sql("COMMIT", session, write_id=f"b{number}")
        return None

    def _write(self, place: Place, table: str, row: dict[str, Any]) -> int:
        write_id = f"w{self.insert.number}"
        if not self.in_file:
            self.sent = True
            return place.write(table, row, write_id=write_id)
        if not self.files:
            self.files.append(self._staged(place, table, row, write_id))
        body = {"write_id": write_id, "inline": [], "files": self.files, "mode": "append"}
        self.sent = True
        return place.write(table, row, **body)

    @staticmethod
    def _staged(place: Place, table: str, row: dict[str, Any], write_id: str) -> dict[str, Any]:
        """A file as an executor leaves it."""
        item = place.item(table)
        directory = calls_of(place.coordinator)["/v1/prepare_write"](
            {"table": item.id, "write_id": write_id}
        )["directory"]
        rows = pa.Table.from_pylist([row], schema=item.desc.arrow_schema())
        blobs = place.env.persist.blobs
        blob = blobs.put(directory, ".parquet", lambda file: pq.write_table(rows, file))
        return {**asdict(blob), "rows": 1}


@dataclass(slots=True)
class Clients:
    """All clients of one environment. `busy` counts those that have not ended."""

    world: World
    busy: int = 0
    _names: int = 0

    # Each of these is what one client does

    def write(self) -> None:
        """Inserts, and asks again when no answer came."""
        self.now_and_then(0.3, self._write)

    def read(self) -> None:
        """Reads at a time, twice."""
        self.now_and_then(1.0, self._read)

    def read_views(self) -> None:
        """Reads views with what they are computed from."""
        self.now_and_then(1.5, self._read_views)

    def subscribe(self) -> None:
        """Follows a table for a while."""
        self.now_and_then(4.0, self._subscribe)

    def count(self) -> None:
        """Reads a number and writes the next one, in one statement."""
        self.now_and_then(1.0, self._count)

    def define(self) -> None:
        """Creates, alters and drops."""
        self.now_and_then(1.5, self._define)

    def prepare(self) -> None:
        """What is there from the beginning and stays."""
        path = self.world.folder / "out"
        for name, create in {
            "t1": self._new_table("t1"),
            "t2": self._new_table("t2"),
            COUNTED: self._new_table(COUNTED),
            REPLACED: self._new_table(REPLACED),
            "ticks": self._new_source("ticks"),
            "kv": lambda place: place.sql(f"CREATE SOURCE kv FROM {KEY_VALUE}"),
            **{name: self._new_view(name) for name in VIEWS},
            CHOSEN: lambda place: place.sql(
                f"CREATE MATERIALIZED VIEW {CHOSEN} AS {choice(0).query}"
            ),
            REFRESHED: lambda place: place.sql(
                f"CREATE MATERIALIZED VIEW {REFRESHED} WITH ({REFRESH}) AS {VIEWS['even'].query}"
            ),
            "out": lambda place: place.sql(
                f"CREATE SINK out FROM t1 INTO FILES (PATH '{path}', FORMAT JSON)"
            ),
        }.items():
            while not self.has_created(name, create):
                self.world.scheduler.sleep(1.0)

    def define_and_drop(self) -> None:
        """A table and a source, from their beginning to their end."""
        for name, create in {"p1": self._new_table("p1"), "more": self._new_source("more")}.items():
            while not self.has_created(name, create):
                self.world.scheduler.sleep(1.0)
        self.insert("p1")
        for name in ("p1", "more"):
            while not self.has_dropped(name):
                self.world.scheduler.sleep(1.0)

    def end_sources(self) -> None:
        """Nothing is written any more but what clients write."""
        server = self.world.leader()
        items = server.place.env.state.items.values()
        for name in [i.name for i in items if isinstance(i.details, IngestedDetails)]:
            while not self.has_dropped(name):
                self.world.scheduler.sleep(1.0)

    # How they do it

    def now_and_then(self, seconds: float, action: Callable[[], None]) -> None:
        scheduler = self.world.scheduler
        self.busy += 1
        while not self.world.over:
            scheduler.sleep(scheduler.rng.uniform(0, 2 * seconds))
            action()
        self.busy -= 1

    def _some_tables(self) -> list[str]:
        rng = self.world.scheduler.rng
        names = [n for n, kept in self.world.ledger.objects.items() if kept and TABLE.fullmatch(n)]
        return rng.sample(names, k=min(len(names), rng.choice((1, 1, 1, 2, 3))))

    def refused(self, what: str, error: SlackwaterError, *expected: str) -> None:
        """Notes an answer; there are some that nobody should get."""
        self.world.scheduler.note(f"{what}: {error}")
        if error.condition not in PASSING.union(expected):
            self.world.scheduler.fail(f"{what}: {error}")

    # Writes

    def _write(self) -> None:
        rng = self.world.scheduler.rng
        tables = self._some_tables()
        if tables:
            self.insert(*tables, attempts=rng.choice((1, 3, 6)))

    def insert(self, *tables: str, attempts: int = 1000) -> None:
        """One row into each table, until it is known what became of it, or nobody asks any more.

        Into several tables it is a transaction block, of which only COMMIT can be asked for again.
        """
        rng = self.world.scheduler.rng
        insert = self.world.ledger.insert(*tables)
        request = Request(insert, in_file=len(tables) == 1 and rng.random() < 0.3)
        for _ in range(attempts):
            if self._attempt(request) or (len(tables) > 1 and not request.asked):
                return
            self.world.scheduler.sleep(rng.uniform(0, 2))

    def _attempt(self, request: Request) -> bool:
        """Asks once; whether the answer says for good what became of it."""
        insert, name = request.insert, f"write {request.insert.number}"
        request.sent = insert.refused = False
        try:
            time = self.world.call("write", request.send)
        except Lost:
            self.world.scheduler.note(f"{name}: no answer")
            request.doubtful |= request.sent
            insert.refused = not request.doubtful
            return False
        except SlackwaterError as error:
            self.refused(name, error, *GONE, BLOCK_LOST)
            if error.condition == BLOCK_LOST:
                # Whoever says so has looked: nothing of it was written.
                insert.refused = True
                return True
            unwritten = error.condition in DEFINITE and UNKNOWN not in str(error)
            request.doubtful |= request.sent and not unwritten
            insert.refused = not request.doubtful
            return error.condition in GONE
        self.world.scheduler.note(f"{name}: {time}")
        if insert.done and insert.time != time:
            self.world.scheduler.fail(f"I8: {insert} was repeated, and it is at {time}")
        insert.done, insert.refused, insert.time = True, False, time
        return True

    # Statements that read and write

    def _count(self) -> None:
        """The next number; asked again with the same request when no answer came."""
        rng, ledger = self.world.scheduler.rng, self.world.ledger
        least, request = ledger.counted, dict[str, Any]()
        ledger.doubtful += 1
        for _ in range(rng.choice((1, 2, 4))):
            try:
                self.world.call("count", lambda place: self._next_number(place, request, least))
            except Lost:
                self.world.scheduler.note("count: no answer")
                if not request:
                    break
            except SlackwaterError as error:
                self.refused("count", error, LOCK_LOST)
                unwritten = error.condition in DEFINITE and UNKNOWN not in str(error)
                if not request or error.condition == LOCK_LOST:
                    break
                if not unwritten:
                    continue
            else:
                ledger.counted += 1
                ledger.doubtful -= 1
                return

    def _next_number(self, place: Place, request: dict[str, Any], least: int) -> None:
        if not request:
            session = f"counter/{self.world.scheduler.rng.randrange(10**9)}"
            table = place.item(COUNTED).id
            bound = calls_of(place.coordinator)["/v1/bind"](
                {"session": session, "relations": [{"id": table}], "write_targets": [table]}
            )
            rows = place.rows(COUNTED, bound["timestamp"])
            numbers = [row["k"] for row in rows]
            self.world.ledger.check_counted("a statement", numbers, least=least)
            self.world.scheduler.sleep(self.world.scheduler.rng.uniform(0, 1))
            request |= {
                "session": session,
                "write_id": f"c{session.partition('/')[2]}",
                "hold": bound["hold"],
                "inline": [
                    place.encoded(COUNTED, *rows, diff=-1),
                    place.encoded(COUNTED, {"k": 1 + sum(numbers), "v": ""}),
                ],
            }
        place.write(COUNTED, **request)

    # Reads

    def _read(self) -> None:
        rng = self.world.scheduler.rng
        tables = self._some_tables()
        back_ms = rng.choice((None, None, rng.randrange(3000)))
        done = self.world.ledger.done()

        def read(place: Place) -> None:
            shards = {name: place.item(name).shard_id for name in tables}
            body: dict[str, Any] = {
                "session": "reader/1",
                "relations": [{"id": place.item(name).id} for name in tables],
            }
            if back_ms is not None:
                body["as_of"] = {"at": place.env.oracle.read_ts() - back_ms}
            bound = calls_of(place.coordinator)["/v1/bind"](body)
            at = Timestamp(bound["timestamp"])
            try:
                parts = {n: place.env.persist.reads.parts_at(s, at) for n, s in shards.items()}
                first = self._contents(place, shards, at)
                known = done if back_ms is None else self.world.ledger.done_until(at)
                self.world.ledger.check_contents("a read", at, first, known)
                self.world.scheduler.sleep(rng.uniform(0, 6))
                if self._contents(place, shards, at) != first:
                    self.world.scheduler.fail(f"I2: {tables} at {at} were {first}")
                for name, shard in shards.items():
                    # A reader opens what it was told when it began, also after a compaction.
                    place.env.persist.reads.read(
                        parts[name], place.env.persist.reads.state(shard).desc
                    )
            finally:
                calls_of(place.coordinator)["/v1/release"]({"holds": [bound["hold"]]})

        try:
            self.world.call("read", read)
        except Lost:
            self.world.scheduler.note("read: no answer")
        except SlackwaterError as error:
            past = () if back_ms is None else ("SLACKWATER_NO_VALID_TIMESTAMP",)
            self.refused("read", error, *GONE, *past)

    def read_all_views(self) -> None:
        """Without trouble each view comes to be complete."""
        if not self._views_are_read(sorted(VIEWS), None):
            self.world.scheduler.fail("the views are not complete although nothing is in the way")

    def _read_views(self) -> None:
        rng = self.world.scheduler.rng
        views = rng.sample(sorted(VIEWS), k=rng.randrange(1, len(VIEWS) + 1))
        self._views_are_read(views, rng.choice((None, None, rng.randrange(3000))))

    def _views_are_read(self, views: Iterable[str], back_ms: int | None) -> bool:
        """Reads the views, and the tables that they are computed from, at one time.

        Whether there was an answer. `back_ms`: so long ago; None: as of now.
        """
        names = sorted({"t1", "t2", "even", *views})
        done = self.world.ledger.done()

        def read(place: Place) -> None:
            body: dict[str, Any] = {
                "session": "reader/2",
                "relations": [{"id": place.item(name).id} for name in names],
            }
            if back_ms is not None:
                body["as_of"] = {"at": place.env.oracle.read_ts() - back_ms}
            bound = calls_of(place.coordinator)["/v1/bind"](body)
            at = bound["timestamp"]
            try:
                found = {name: contents(place, name, at) for name in names}
            finally:
                calls_of(place.coordinator)["/v1/release"]({"holds": [bound["hold"]]})
            tables = {n: [row[0] for row in found[n].elements()] for n in ("t1", "t2")}
            known = done if back_ms is None else self.world.ledger.done_until(at)
            self.world.ledger.check_contents("a read of views", at, tables, known)
            if different := wrong(found):
                self.world.scheduler.fail(f"{different} at {at} with {found}")

        return self.ask("read views", read, *GONE, *LATE, *(PAST if back_ms is not None else ()))

    def ask(self, what: str, action: Callable[[Place], object], *expected: str) -> bool:
        """Asks once; whether it was answered."""
        try:
            self.world.call(what, action)
        except Lost:
            self.world.scheduler.note(f"{what}: no answer")
            return False
        except SlackwaterError as error:
            self.refused(what, error, *expected)
            return False
        return True

    @staticmethod
    def _contents(place: Place, shards: Mapping[str, int], at: Timestamp) -> dict[str, list[int]]:
        found = {
            n: place.env.persist.reads.snapshot(s, at)["k"].to_pylist() for n, s in shards.items()
        }
        return {name: sorted(numbers) for name, numbers in found.items()}

    def _subscribe(self) -> None:
        rng = self.world.scheduler.rng
        (table, *_) = self._some_tables()
        session = f"subscriber/{rng.randrange(10**9)}"
        done = self.world.ledger.done()
        times: dict[int, int] = {}

        def follow(place: Place) -> None:
            try:
                place.sql(f"DECLARE c CURSOR FOR SUBSCRIBE {table} WITH (SNAPSHOT)", session)
                for _ in range(rng.randrange(1, 6)):
                    for row in place.sql("FETCH ALL c WITH (TIMEOUT = '1s')", session):
                        self._note_update(table, row, times)
                    self.world.scheduler.sleep(rng.uniform(0, 2))
            finally:
                calls_of(place.coordinator)["/v1/session/close"]({"session": session})

        try:
            self.world.call("subscribe", follow)
        except Lost:
            self.world.scheduler.note("subscribe: no answer")
        except SlackwaterError as error:
            self.refused("subscribe", error, *GONE)
        else:
            self._check_subscribed(table, done, times)

    def _note_update(self, table: str, row: Mapping[str, Any], times: dict[int, int]) -> None:
        number, time = row["k"], row["mz_timestamp"]
        if number in times or row["mz_diff"] != 1 or time < max(times.values(), default=0):
            self.world.scheduler.fail(f"I36: SUBSCRIBE {table} gave {row} after {times}")
        times[number] = time

    def _check_subscribed(self, table: str, done: Set[Insert], times: Mapping[int, int]) -> None:
        as_of = min(times.values(), default=0)
        for insert in self.world.ledger.inserts:
            if table not in insert.tables:
                continue
            time = times.get(insert.number)
            if insert in done and time is None:
                self.world.scheduler.fail(f"I35: SUBSCRIBE {table} has left out {insert}")
            if time is not None and insert.time not in (None, time) and time > as_of:
                self.world.scheduler.fail(f"I35: SUBSCRIBE {table} has {insert} at {time}")

    # Definitions

    def _define(self) -> None:
        rng = self.world.scheduler.rng
        passing = [n for n, kept in self.world.ledger.objects.items() if kept and n[0] == "p"]
        kind = rng.choice(("create", "drop", "alter")) if passing else "create"
        if kind == "create":
            self._names += 1
            if rng.random() < 0.8:
                name = f"p{self._names}"
                self.has_created(name, self._new_table(name))
            else:
                name = f"passing{self._names}"
                self.has_created(name, self._new_source(name))
        elif kind == "drop":
            self.has_dropped(rng.choice(passing))
        else:
            self._attempt_to_alter(rng.choice(["t1", *passing]))

    @staticmethod
    def _new_table(name: str) -> Definition:
        return lambda place: place.table(name, k="long", v="string")

    @staticmethod
    def _new_view(name: str) -> Definition:
        query = VIEWS[name].query
        if name != "both":
            return lambda place: place.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")

        def create(place: Place) -> None:
            replicas = f"r1 (SIZE = '{SIZE}'), r2 (SIZE = '{SIZE}')"
            place.sql(f"CREATE CLUSTER IF NOT EXISTS {PAIR} REPLICAS ({replicas})", "op/1")
            place.sql(f"CREATE MATERIALIZED VIEW {name} IN CLUSTER {PAIR} AS {query}")

        return create

    @staticmethod
    def _new_source(name: str) -> Definition:
        return lambda place: place.sql(f"CREATE SOURCE {name} FROM {COUNTER}")

    def has_created(self, name: str, create: Definition) -> bool:
        """Asks once; whether it is there for sure."""

        def unless_there(place: Place) -> None:
            # What an earlier request became is known only once the catalog is.
            place.env.catalog.resolve()
            if place.env.state.find("default", name) is None:
                create(place)

        if self._has_done(f"create {name}", unless_there):
            self.world.ledger.objects[name] = True
        return self.world.ledger.objects.get(name, False)

    def has_dropped(self, name: str) -> bool:
        """Asks once; whether it is gone for sure."""
        self.world.ledger.objects[name] = False

        def drop(place: Place) -> None:
            place.env.catalog.resolve()
            found = place.env.state.find("default", name)
            if found is None:
                return
            if found.kind is ItemKind.TABLE:
                place.drop(name)
            else:
                place.sql(f"DROP SOURCE {name}")

        return self._has_done(f"drop {name}", drop)

    def _attempt_to_alter(self, name: str) -> None:
        kept = self.world.scheduler.rng.choice((1, 2, 5))

        def alter(place: Place) -> None:
            found = place.env.state.find("default", name)
            if found is not None:
                kind = "TABLE" if found.kind is ItemKind.TABLE else "SOURCE"
                place.sql(f"ALTER {kind} {name} SET (RETAIN HISTORY FOR '{kept}s')")

        self._has_done(f"alter {name}", alter)

    def _has_done(self, what: str, action: Definition) -> bool:
        try:
            self.world.call(what.partition(" ")[0], action)
        except Lost:
            self.world.scheduler.note(f"{what}: no answer")
            return False
        except SlackwaterError as error:
            self.refused(what, error, *GONE)
            return False
        self.world.scheduler.note(what)
        return True
