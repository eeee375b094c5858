"""The servers of one environment, one after the other or two at a time, and who calls them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Engine
from tests.simulation.engine import SimulatedEngine
from tests.simulation.faults import Hazards, SimulatedBlobs, SimulatedMetastore
from tests.simulation.ledger import Durable, Ledger
from tests.simulation.threads import Process, Scheduler
from tests.support.adapter.coordination import Place
from tests.support.persist.persistence import Environment, new_environment

from slackwater.adapter.catalog.model import ItemKind
from slackwater.adapter.maintenance import MaintenanceSettings
from slackwater.persist.blobs import LocalBlobs
from slackwater.persist.compaction import CompactionSettings
from slackwater.persist.garbage import STAMP_MARGIN_MS
from slackwater.persist.leadership import Fenced
from slackwater.repr.errors import FatalError, SlackwaterError
from slackwater.repr.frontier import Frontier

T = TypeVar("T")

LEASE_MS = 8_000
ORPHAN_AGE_MS = 20_000
"""A write may be asked for again for so long, and its file is not thrown away meanwhile."""
MAINTENANCE = MaintenanceSettings(
    interval_ms=1_000,
    revisit_ms=500,
    search_ms=2_000,
    lease_ms=LEASE_MS,
    orphan_age_ms=ORPHAN_AGE_MS,
    compaction=CompactionSettings(
        target_bytes=64 * 1024, base_bytes=512, fan_in=2, inline_fan_in=4, inline_bytes=256
    ),
)
STARTS_AGAIN = "a change of the catalog happened whose answer was lost"
"""With this a leader ends itself although nobody has taken over."""


class Lost(Exception):
    """The server ended before it answered."""


@dataclass(eq=False, slots=True)
class Server:
    """A process that leads, or did."""

    process: Process
    engine: Engine
    fatal: list[str] = field(default_factory=list)
    place: Place | None = None
    is_open: bool = False
    frontiers: dict[str, tuple[Frontier, Frontier]] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class World:
    """What outlives servers, and what they and their clients share."""

    scheduler: Scheduler
    hazards: Hazards
    folder: Path
    metastore: SimulatedMetastore = field(init=False)
    ledger: Ledger = field(init=False)
    durable: Durable = field(init=False)
    servers: list[Server] = field(default_factory=list)
    over: bool = False

    def __post_init__(self) -> None:
        store = self.folder / "metastore.db"
        new_environment(self._url, self.folder).engine.dispose()
        self.metastore = SimulatedMetastore(self._url, self.hazards)
        self.ledger = Ledger(self.scheduler.fail)
        self.durable = Durable(str(store), self.scheduler.fail)

    @property
    def _url(self) -> str:
        return f"sqlite:///{self.folder / 'metastore.db'}"

    # Servers

    def open(self) -> Server:
        """A new leader, however often it takes."""
        while True:
            server = self._try_to_open()
            if server is not None:
                return server
            self.scheduler.sleep(1.0)

    def _try_to_open(self) -> Server | None:
        process = Process(f"server{len(self.servers) + 1}")
        server = Server(process, self.metastore.engine(process))
        self.servers.append(server)
        tried: list[SlackwaterError | None] = []

        def start() -> None:
            blobs = SimulatedBlobs(LocalBlobs(self.folder / "files"), self.hazards)
            spark = SimulatedEngine(self.hazards, blobs)
            try:
                server.place = spark.place = Place(
                    Environment(self._url, server.engine, str(self.folder / "files")),
                    blobs=blobs,
                    spark=spark,
                    maintenance=MAINTENANCE,
                    on_fatal=server.fatal.append,
                )
                tried.append(None)
            except SlackwaterError as error:
                tried.append(error)

        if not self._within(server, "start", start) or tried != [None] or not self.audit(server):
            self.scheduler.note("the server did not start")
            self.end(server)
            return None
        server.is_open = True
        return server

    def _within(self, server: Server, name: str, action: Callable[[], object]) -> bool:
        """Does something in a thread of the server; False: it has ended before that was done."""
        if not server.process.alive:
            return False
        turn = self.scheduler.spawn(name, server.process, action)
        self.scheduler.wait(lambda: turn.ended or not server.process.alive)
        return turn.ended

    def end(self, server: Server) -> None:
        """As by kill -9."""
        server.is_open = False
        self.scheduler.note(f"{server.process.name} ends")
        self.scheduler.kill(server.process)
        self.metastore.forget(server.process)

    def close(self, server: Server) -> None:
        """As an operator ends it."""
        server.is_open = False
        self.scheduler.note(f"{server.process.name} closes")
        self._within(server, "close", server.place.coordinator.close)
        self.end(server)

    def leader(self) -> Server:
        """The one that leads once it is over with all others."""
        *others, server = self._open()
        for each in others:
            self.end(each)
        return server

    def has_ended(self, server: Server) -> bool:
        """Whether the server has to be replaced."""
        return not server.process.alive or bool(server.fatal)

    def operate(self, lifetime_s: float | None = None) -> None:
        """Replaces servers when they end, and after a while also when they do not.

        When it is over, there is one that leads.
        """
        rng = self.scheduler.rng
        while True:
            server = self.open()
            until = rng.uniform(1, 12) if lifetime_s is None else lifetime_s
            self.scheduler.wait(lambda each=server: self.over or self.has_ended(each), until)
            if server.fatal and STARTS_AGAIN not in server.fatal[0]:
                self.scheduler.fail(f"I19: nobody has taken over, and yet: {server.fatal}")
            if self.over and not self.has_ended(server):
                return
            if self.has_ended(server):
                self.end(server)
            elif rng.random() < 0.5:
                self.scheduler.spawn("zombie", None, lambda each=server: self._outlive(each))
            elif rng.random() < 0.5:
                self.close(server)
            else:
                self.end(server)

    def _outlive(self, server: Server) -> None:
        """The server goes on although another one leads, until it notices or is ended."""
        self.scheduler.note(f"{server.process.name} is replaced and does not know it")
        limit = self.scheduler.rng.uniform(1, 15)
        self.scheduler.wait(lambda: self.has_ended(server), limit)
        self.end(server)

    # Clients

    def call(self, name: str, action: Callable[[Place], T]) -> T:
        """Has a server do something. Raises `Lost` and SlackwaterError."""
        self.scheduler.wait(lambda: bool(self._open()))
        server = self.scheduler.rng.choice(self._open())
        answers: list[T] = []
        errors: list[SlackwaterError] = []

        def run() -> None:
            try:
                answers.append(action(server.place))
            except SlackwaterError as error:
                errors.append(error)
            except (FatalError, Fenced) as error:
                # As the server's HTTP face does.
                server.fatal.append(str(error))

        self._within(server, name, run)
        if errors:
            raise errors[0]
        if not answers:
            raise Lost
        return answers[0]

    def _open(self) -> list[Server]:
        return [s for s in self.servers if s.is_open and s.process.alive and not s.fatal]

    # Checks

    def audit(self, server: Server) -> bool:
        """All that has to be so of a leader before it takes requests, and at the end.

        False: the server has ended before that was seen.
        """

        def look() -> None:
            before, self.hazards.enabled = self.hazards.enabled, False
            self.durable.check_shards(server.place)
            self.durable.check_frontiers(
                server.place, server.process.name, is_new=not server.is_open
            )
            self.ledger.check_all(server.place, server.process.name)
            self.hazards.enabled = before

        self.durable.check()
        return self._within(server, "audit", look)

    def watch(self) -> None:
        """Looks again and again at what must hold at any moment."""
        while not self.over:
            self.scheduler.sleep(self.scheduler.rng.uniform(0.1, 1.0))
            self.durable.check()
            for server in self._open():
                self._within(server, "watch", lambda each=server: self._look(each))

    def _look(self, server: Server) -> None:
        for change in server.place.env.ingestion.statuses():
            error = change.status.error
            if error is not None and not error.startswith("[SLACKWATER_"):
                self.scheduler.fail(f"I51: a source has failed: {error}")
        for item in list(server.place.env.state.items.values()):
            if item.shard_id is None or item.kind is ItemKind.SINK:
                continue
            try:
                found = server.place.env.relations.frontiers(item)
            except SlackwaterError:
                continue
            known = server.frontiers.get(item.id, found)
            if found[0] < known[0] or found[1] < known[1]:
                self.scheduler.fail(f"I1: {item.name} went back from {known} to {found}")
            server.frontiers[item.id] = found

    def drift(self) -> None:
        """The wall clock is set, back or forth, by a little."""
        while not self.over:
            self.scheduler.sleep(self.scheduler.rng.uniform(0.5, 5.0))
            if self.hazards.enabled:
                self.scheduler.skew_ns = self.scheduler.rng.randrange(-300, 300) * 1_000_000

    def settle(self) -> None:
        """Without trouble all that was dropped is finalized, and all files are named."""
        # What a replica may have read is kept for a while after it has said that it does not.
        self.scheduler.sleep((LEASE_MS + ORPHAN_AGE_MS + STAMP_MARGIN_MS) / 1000 + 15)
        store = sqlite3.connect(self.durable.path)
        try:
            waiting = store.execute(
                "SELECT shard_id FROM shards WHERE dropped AND shard_id IN"
                " (SELECT shard_id FROM parts)"
            ).fetchall()
            named = {uri for (uri,) in store.execute("SELECT uri FROM parts").fetchall()}
            listed = store.execute("SELECT * FROM garbage").fetchall()
        finally:
            store.close()
        if waiting:
            self.scheduler.fail(f"I26: {waiting} are dropped and still have parts")
        files = LocalBlobs(self.folder / "files")
        if left := [b.uri for b in files.list(files.uri("shards")) if b.uri not in named]:
            self.scheduler.fail(f"these files stay: {left}, although listed are {listed}")
