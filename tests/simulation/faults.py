"""What can go wrong below a coordinator, by seed: metastore, files, engine, answers, processes.

Every step that others can see or that outlives a process is a boundary. At each one others may go
on first, time may pass, and the process may end, as by kill -9.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial, partialmethod
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
from sqlalchemy import Connection, Engine, ExceptionContext, event
from sqlalchemy.exc import OperationalError
from tests.simulation.threads import Ended, Process, Scheduler
from tests.support.persist.metastore_faults import gone, lose_commit

from slackwater.compute.controller.core import ComputeController
from slackwater.compute.controller.effects import CommitOutput, Effect
from slackwater.compute.controller.shell import Compute
from slackwater.controller.protocol import DroppedIds
from slackwater.persist.blobs import Blob, LocalBlobs
from slackwater.persist.metastore import connect
from slackwater.persist.uris import local_path
from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.repr.frontier import Frontier
from slackwater.repr.ids import GlobalId
from slackwater.storage import sink_files
from slackwater.storage.controller.core import StorageController
from slackwater.storage.controller.protocol import Response, ShardFinalized
from slackwater.storage.controller.shell import Storage
from slackwater.storage.sink_files import LocalFileSystem

LOCK_WAIT_S = 5.0
OF_THE_METASTORE = frozenset({"begin", "commit", "committed"})
"""The steps of a transaction, which replicas share with the leader in whose process they are."""
MAY_BE_LATE = (ShardFinalized, DroppedIds)
"""Whoever asks for anything else waits for the answer in the same thread."""


@dataclass(frozen=True, slots=True)
class Weather:
    """How likely each trouble is where it can occur, in per mille; `calm` has none of them."""

    kill: int = 0
    delay: int = 0
    refuse: int = 0
    lose: int = 0
    outage: int = 0
    blob: int = 0
    repeat: int = 0
    sink: int = 0
    engine: int = 0
    wire: int = 0
    cut: int = 0
    end: int = 0
    slow: int = 0

    @staticmethod
    def drawn(rng: random.Random) -> Weather:
        """Some troubles often, some never: what only one of them shows is not hidden by others."""
        most = Weather(
            kill=10,
            delay=40,
            refuse=30,
            lose=30,
            outage=4,
            blob=80,
            repeat=500,
            sink=80,
            engine=100,
            wire=800,
            cut=100,
            end=40,
            slow=500,
        )
        names = [each.name for each in fields(Weather)]
        return Weather(**{n: rng.choice((0, 1, getattr(most, n))) for n in names})


CALM = Weather()


@dataclass(slots=True)
class Hazards:
    """Where the dice are thrown. `kill_at` is the number of the boundary that ends its process."""

    scheduler: Scheduler
    weather: Weather = CALM
    kill_at: int | None = None
    passed: int = 0
    enabled: bool = True

    def boundary(self, name: str) -> None:
        """A step is about to be done, or has just been."""
        process = self.scheduler.process
        if process is not None and not process.alive and name not in OF_THE_METASTORE:
            raise Ended
        if process is not None and self.enabled:
            self.passed += 1
            if self.passed == self.kill_at or self.strikes("kill", often=name == "committed"):
                self.scheduler.note(f"killed at boundary {self.passed}: {name}")
                self.scheduler.kill(process.whole)
            elif process.host is not None and name not in OF_THE_METASTORE and self.strikes("end"):
                self.scheduler.note(f"{process.name} ends alone")
                process.alive = False
                raise Ended
            elif self.strikes("delay"):
                self.scheduler.sleep(self.scheduler.rng.uniform(0.001, 0.7))
        self.scheduler.pause()

    def work(self) -> None:
        """Something is computed, which takes a slow process its time."""
        process = self.scheduler.process
        if process is not None and self.enabled and process.pause_s:
            self.scheduler.sleep(self.scheduler.rng.uniform(0, process.pause_s))

    def strikes(self, trouble: str, *, often: bool = False) -> bool:
        """Whether the trouble comes now; `often`: where it shows the most."""
        if not self.enabled:
            return False
        likely = getattr(self.weather, trouble) * (5 if often else 1)
        struck = self.scheduler.rng.random() * 1000 < likely
        if struck and trouble not in ("kill", "delay"):
            self.scheduler.note(f"trouble: {trouble}")
        return struck


@dataclass(slots=True)
class SimulatedMetastore:
    """One SQLite file, as several processes reach it.

    Who writes is waited for here and not inside SQLite, where no turn could be given up. Of those
    who wait, any may be next.
    """

    url: str
    hazards: Hazards
    _writer: Connection | None = None
    _away_until_ns: int = 0
    _opened: list[tuple[Process | None, object]] = field(default_factory=list)

    def engine(self, process: Process | None) -> Engine:
        """The engine of a process."""
        engine = connect(self.url)
        event.listen(engine, "commit", self._commit)
        event.listen(engine, "rollback", self._rollback)
        event.listen(engine, "handle_error", self._failed)
        event.listen(engine, "before_cursor_execute", self._execute)
        event.listen(engine, "connect", partial(self._connected, process))
        return engine

    def forget(self, process: Process) -> None:
        """The process has ended: what it had open is closed, and what it had begun is undone."""
        kept = []
        for owner, connection in self._opened:
            if owner is not process:
                kept.append((owner, connection))
                continue
            if self._writer is not None and self._driver(self._writer) is connection:
                self._writer = None
            # A connection that was lost is closed already.
            with suppress(sqlite3.ProgrammingError):
                connection.rollback()
            connection.close()
        self._opened = kept

    def _connected(self, process: Process | None, connection, _record) -> None:
        # Nobody is waited for inside SQLite: there, no turn could be given up.
        connection.execute("PRAGMA busy_timeout=0")
        self._opened.append((process, connection))

    def _failed(self, context: ExceptionContext) -> None:
        if isinstance(context.original_exception, sqlite3.OperationalError):
            self.hazards.scheduler.fail(f"somebody waits in SQLite: {context.original_exception}")

    def _begin(self, conn: Connection) -> None:
        hazards, scheduler = self.hazards, self.hazards.scheduler
        hazards.boundary("begin")
        if hazards.strikes("outage"):
            self._go_away(scheduler.rng.uniform(0.5, 20))
        if hazards.enabled and scheduler.now_ns < self._away_until_ns:
            raise gone("BEGIN")
        if hazards.strikes("refuse"):
            raise gone("BEGIN")
        if conn.get_execution_options()["slackwater_read_only"]:
            return
        if not scheduler.wait(lambda: self._writer is None, LOCK_WAIT_S):
            raise OperationalError("BEGIN", {}, Exception("database is locked"))
        self._writer = conn

    def _go_away(self, seconds: float) -> None:
        """For more than ten seconds nobody waits."""
        self._away_until_ns = self.hazards.scheduler.now_ns + int(seconds * 1e9)

    def _execute(self, conn: Connection, _cursor, statement: str, *_: object) -> None:
        if statement.startswith("BEGIN"):
            self._begin(conn)
        else:
            self.hazards.scheduler.pause()

    def _commit(self, conn: Connection) -> None:
        if conn.get_execution_options()["slackwater_read_only"]:
            return
        self.hazards.boundary("commit")
        if self.hazards.strikes("lose"):
            rng = self.hazards.scheduler.rng
            landed = rng.random() < 0.5
            self.hazards.scheduler.note("the commit has happened" if landed else "no commit")
            if rng.random() < 0.2:
                self._go_away(rng.uniform(1, 20))
            error = lose_commit(conn, landed=landed)
            self._release(conn)
            raise error
        self._driver(conn).commit()
        self._release(conn)
        self.hazards.boundary("committed")

    def _rollback(self, conn: Connection) -> None:
        self._release(conn)

    def _release(self, conn: Connection) -> None:
        if self._writer is conn:
            self._writer = None

    @staticmethod
    def _driver(conn: Connection):
        return conn.connection.driver_connection


class _Away(OSError):
    pass


def _no_answer() -> SlackwaterError:
    return user_error("SLACKWATER_STORAGE_UNAVAILABLE", what="a data file", reason="no answer")


@dataclass(slots=True)
class SimulatedBlobs:
    """Local files whose store fails, repeats what it was asked to do, and lists what was."""

    files: LocalBlobs
    hazards: Hazards
    _listed: dict[str, list[Blob]] = field(default_factory=dict)

    def uri(self, *names: str) -> str:
        return self.files.uri(*names)

    def put(self, directory: str, suffix: str, write: Callable[[BinaryIO], object]) -> Blob:
        self.hazards.boundary("put")
        if self.hazards.strikes("blob"):
            folder = local_path(directory)
            folder.mkdir(parents=True, exist_ok=True)
            unfinished = folder / f".{self.hazards.passed}{suffix}.writing"
            unfinished.write_bytes(b"PAR1")
            self._dated(unfinished)
            raise _no_answer()
        if self.hazards.strikes("blob"):
            # The store did it, answered nothing, and was asked again: one of the files is left.
            self._dated(local_path(self.files.put(directory, suffix, write).uri))
        blob = self.files.put(directory, suffix, write)
        modified_ms = self._dated(local_path(blob.uri))
        self.hazards.boundary("put done")
        return replace(blob, modified_ms=modified_ms)

    def own(self, uri: str, directory: str) -> str | None:
        return self.files.own(uri, directory)

    def settle(self, uris: Iterable[str]) -> None:
        self.hazards.boundary("settle")
        if self.hazards.strikes("blob"):
            raise _no_answer()
        self.files.settle(uris)

    def open(self, uri: str) -> pa.NativeFile:
        self.hazards.boundary("open")
        if self.hazards.strikes("blob"):
            raise _Away("no answer")
        return self.files.open(uri)

    def outage(self, uri: str, error: OSError) -> SlackwaterError | None:
        if not isinstance(error, _Away):
            return None
        return user_error("SLACKWATER_STORAGE_UNREADABLE", path="a data file", reason="no answer")

    def delete(self, uri: str) -> None:
        self.hazards.boundary("delete")
        if self.hazards.strikes("blob"):
            raise _no_answer()
        self.files.delete(uri)
        self.hazards.boundary("deleted")
        if self.hazards.strikes("blob"):
            raise _no_answer()
        if self.hazards.strikes("repeat"):
            self.files.delete(uri)

    def remove_directory(self, directory: str) -> None:
        self.hazards.boundary("remove directory")
        if self.hazards.strikes("blob"):
            raise _no_answer()
        self.files.remove_directory(directory)

    def list(self, directory: str) -> Iterator[Blob]:
        self.hazards.boundary("list")
        if self.hazards.strikes("blob"):
            raise _no_answer()
        now = sorted(self.files.list(directory), key=lambda blob: blob.uri)
        before = self._listed.get(directory, [])
        self._listed[directory] = now
        return iter(before if self.hazards.strikes("blob") else now)

    def _dated(self, path: Path) -> int:
        now_ns = self.hazards.scheduler.time_ns()
        os.utime(path, ns=(now_ns, now_ns))
        return now_ns // 1_000_000


@dataclass(frozen=True, slots=True)
class SimulatedFolder:
    """The folder of a sink."""

    files: LocalFileSystem
    hazards: Hazards

    def make_directory(self, path: str) -> None:
        self.hazards.boundary("directory of a sink")
        self.files.make_directory(path)

    def read(self, path: str) -> bytes | None:
        self.hazards.boundary("read of a sink")
        return self.files.read(path)

    def list(self, path: str) -> tuple[str, ...]:
        self.hazards.boundary("list of a sink")
        return self.files.list(path)

    def exists(self, path: str) -> bool:
        return self.files.exists(path)

    def link(self, source: str, target: str) -> bool:
        self.hazards.boundary("link of a sink")
        if self.hazards.strikes("sink"):
            if self.hazards.scheduler.rng.random() < 0.5:
                self.files.link(source, target)
            raise OSError("no answer")
        made = self.files.link(source, target)
        self.hazards.boundary("linked by a sink")
        return made

    def remove(self, path: str) -> None:
        self.hazards.boundary("remove of a sink")
        self.files.remove(path)

    def remove_directory(self, path: str) -> None:
        self.hazards.boundary("removal of a sink's directory")
        if self.hazards.strikes("sink"):
            raise OSError("no answer")
        self.files.remove_directory(path)

    def write(self, path: str, data: bytes) -> None:
        self.hazards.boundary("write of a sink")
        if self.hazards.strikes("sink"):
            Path(path).write_bytes(data[: len(data) // 2])
            raise OSError("no answer")
        self.files.write(path, data)

    def replace(self, source: str, target: str) -> None:
        self.hazards.boundary("rename of a sink")
        if self.hazards.strikes("sink"):
            if self.hazards.scheduler.rng.random() < 0.5:
                self.files.replace(source, target)
            raise OSError("no answer")
        self.files.replace(source, target)
        self.hazards.boundary("renamed by a sink")

    def sync_directory(self, path: str) -> None:
        self.hazards.boundary("sync of a sink")
        self.files.sync_directory(path)


def _validated(core: ComputeController | StorageController, process: Callable[..., Any]) -> Any:
    """What follows from a step, after which the controller has to agree with itself."""
    effects = process(core)
    core.validate()
    return effects


@contextmanager
def disturbed(hazards: Hazards) -> Iterator[None]:
    """Lets sinks write into simulated folders, and the controller hear answers twice and late.

    Each effect of the compute controller is a boundary, and both controllers are validated after
    each step.
    """
    respond, report, carry_out = Storage.respond, Storage.report, Compute._carry_out
    cores = [(core, core.process) for core in (ComputeController, StorageController)]
    scheduler = hazards.scheduler

    def later(action: Callable[[], None]) -> None:
        def run() -> None:
            scheduler.sleep(scheduler.rng.uniform(0.0, 3.0))
            action()

        scheduler.spawn("again", scheduler.process, run)

    def disturbed_respond(storage: Storage, response: Response) -> None:
        hazards.boundary(type(response).__name__)
        if hazards.strikes("repeat"):
            later(lambda: respond(storage, response))
            if isinstance(response, MAY_BE_LATE) and scheduler.rng.random() < 0.5:
                return
        respond(storage, response)

    def disturbed_report(storage: Storage, uppers: Iterable[tuple[GlobalId, Frontier]]) -> None:
        said = list(uppers)
        if hazards.strikes("repeat"):
            later(lambda: report(storage, said))
        report(storage, said)

    def disturbed_effects(compute: Compute, effects: Iterable[Effect]) -> list[CommitOutput]:
        def each() -> Iterator[Effect]:
            for effect in effects:
                hazards.boundary(type(effect).__name__)
                yield effect

        return carry_out(compute, each())

    Storage.respond = disturbed_respond  # type: ignore[method-assign]
    Storage.report = disturbed_report  # type: ignore[method-assign]
    Compute._carry_out = disturbed_effects  # type: ignore[method-assign]
    for core, process in cores:
        core.process = partialmethod(_validated, process)
    sink_files.LocalFileSystem = partial(  # type: ignore[assignment, misc]
        SimulatedFolder, LocalFileSystem(), hazards
    )
    yield
    Storage.respond, Storage.report = respond, report  # type: ignore[method-assign]
    Compute._carry_out = carry_out  # type: ignore[method-assign]
    for core, process in cores:
        core.process = process
    sink_files.LocalFileSystem = LocalFileSystem  # type: ignore[misc]
