"""The coordinator's process. The shim starts it (docs/internals/protocol.md section 1).

Either it leads the environment and stays until its stdin ends (the driver is gone), or it finds
a living leader, names it on stdout, and ends. A leader that lives and cannot be reached is
an error.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    # What is imported stays: a tenth of a start would go into looking for garbage in it.
    gc.disable()

import asyncio
import json
import logging
import logging.handlers
import os
import secrets
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
import uvicorn
from sqlalchemy import Engine
from sqlalchemy.engine import URL

from slackwater.persist.leadership import (
    LEASE_MS,
    Candidate,
    LeaderRecord,
    Lease,
    LostElection,
    Owner,
    acquire,
    current_leader,
)
from slackwater.persist.locations import Location, parse_location
from slackwater.persist.metastore import connect, create_all, transaction
from slackwater.planner.parser.durations import parse_duration
from slackwater.repr.errors import LOG_FILE, SlackwaterError, invalid_option, user_error
from slackwater.repr.spans import NoSpans
from slackwater.server.election import Decision, Election, LeaderObservation
from slackwater.server.identity import end, is_dead, is_near, started, this_process
from slackwater.server.ingress import settings as ingress_settings
from slackwater.server.ingress.gate import BackendGate, IngressBackend
from slackwater.server.ingress.listener import Ingress
from slackwater.server.leader_lease import LeaderLease, running_ms
from slackwater.server.mark import FileMark

if TYPE_CHECKING:
    # Whoever joins another leader needs neither.
    from slackwater.adapter.coordinator import Coordinator
    from slackwater.adapter.external.tracing import Tracing
    from slackwater.spark.bridge import SparkBridge

PING_TIMEOUT_S = 2.0
POLL_S = 0.1
ELECTION_TIMEOUT_S = 50.0
SHUTDOWN_TIMEOUT_S = 5.0
STOP_AFTER_S = 0.2
SHORTEST_LEASE_MS = 1_000
LONGEST_LEASE_MS = 30_000
LOG_BYTES = 10 * 1024 * 1024
LOG_FILES = 5
"""The number of older log files that are kept beside the current one."""


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """The settings that the shim passes in environment variables."""

    location: Location
    metastore: str | URL
    application: str
    lease_ms: int
    ingress: Mapping[str, str]
    parameters_file: Path | None = None

    @staticmethod
    def from_environment() -> ProcessSettings:
        """Reads the variables of this process.

        Raises SLACKWATER_INVALID_OPTION, _UNKNOWN_OPTION, _UNSUPPORTED, _METASTORE_REQUIRED,
        _PASSWORD_SHOWN.
        """
        text = os.environ.get("SLACKWATER_LOCATION") or "slackwater-environment"
        location = parse_location(text, os.environ)
        metastore = location.metastore(os.environ.get("SLACKWATER_METASTORE"), os.environ)
        application = os.environ.get("SLACKWATER_APPLICATION", "unknown")
        lease_ms = _lease_ms(os.environ.get("SLACKWATER_LEASE"))
        ingress = json.loads(os.environ.get("SLACKWATER_INGRESS") or "{}")
        ingress_settings.read(ingress)
        file = os.environ.get("SLACKWATER_PARAMETERS_FILE")
        parameters_file = Path(file) if file else None
        return ProcessSettings(location, metastore, application, lease_ms, ingress, parameters_file)

    @property
    def shown(self) -> str:
        """The location as users name it."""
        return str(self.location.local) if self.location.is_local else self.location.uri


def _lease_ms(text: str | None) -> int:
    """The length of the lease in milliseconds. Raises SLACKWATER_INVALID_OPTION."""
    if not text:
        return LEASE_MS
    try:
        lease_ms = parse_duration(text)
        reason = "it has to be between 1 s and 30 s"
    except ValueError as error:
        lease_ms, reason = 0, str(error)
    if not SHORTEST_LEASE_MS <= lease_ms <= LONGEST_LEASE_MS:
        raise invalid_option("spark.slackwater.lease", "the session", text, reason)
    return lease_ms


@dataclass(frozen=True, slots=True)
class Leadership:
    """The leadership of `epoch`: its listener, the token of its callers, its log and its lease.

    `mark` tells the driver of changes of the catalog.
    """

    engine: Engine
    epoch: int
    listener: socket.socket
    address: str
    token: str
    token_file: Path
    log: Path
    lease_acquired_ms: int
    mark: FileMark

    def forget_files(self) -> None:
        """Removes the files by which the driver finds this leader."""
        self.token_file.unlink(missing_ok=True)
        self.mark.remove()


def main(here: Owner | None = None) -> int:
    """Runs the process; returns its exit status. `here` identifies the process."""
    # Looking for garbage in what was imported would slow down all that comes next.
    gc.freeze()
    answers = _take_over_stdout()
    if os.getpgrp() != os.getpid():
        os.setsid()
    try:
        settings = ProcessSettings.from_environment()
        settings.location.local.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = settings.location.local / LOG_FILE
        _log_to(log)
        return _lead_or_join(settings, log, answers, here or this_process())
    except SlackwaterError as error:
        _say(answers, {"error": error.to_json()})
    except OSError as error:
        problem = user_error("SLACKWATER_COORDINATOR_START", reason=str(error), log="(none)")
        _say(answers, {"error": problem.to_json()})
    return 1


def _take_over_stdout() -> int:
    """Keeps stdout for the one answer and sends whatever else is printed to stderr."""
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers


def _say(answers: int, message: dict[str, Any]) -> None:
    os.write(answers, (json.dumps(message) + "\n").encode())


def _log_to(path: Path) -> None:
    """Appends to `path`, and begins a new file when it is full.

    A process that joins, or has been fenced, may still write there: it goes on in the file that it
    has open, under whatever name that has by then, and no line is lost for it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.handlers.RotatingFileHandler(
        path, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8"
    )
    handler.setFormatter(logging.Formatter("%(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    for noisy in ("py4j", "uvicorn.access", "uvicorn.error", "sqlglot"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.stdlib.LoggerFactory(),
    )


def _lead_or_join(settings: ProcessSettings, log: Path, answers: int, here: Owner) -> int:
    from slackwater.adapter import coordinator  # noqa: F401 - declares its tables

    gc.freeze()
    gc.enable()
    engine = connect(settings.metastore)
    create_all(engine)
    election = Election()
    deadline = time.monotonic() + ELECTION_TIMEOUT_S
    while time.monotonic() < deadline:
        leader = current_leader(engine)
        decision = election.decide(_observed(leader, here), running_ms())
        if decision is Decision.JOIN:
            _say(answers, {"role": "joined", **_coordinates(leader)})
            return 0
        if decision is Decision.REFUSED:
            raise _unreachable(settings, leader)
        if decision is Decision.WAIT:
            time.sleep(POLL_S)
            continue
        try:
            leadership = _take_lead(settings, engine, leader, log, here)
        except SlackwaterError as error:
            if decision is not Decision.RUN_OUT or not _end_holder(engine, leader, here, error):
                raise
            continue
        if leadership is not None:
            structlog.get_logger("process").info(
                "elected", epoch=leadership.epoch, why=decision.value
            )
            return _serve(settings, leadership, answers)
    raise user_error(
        "SLACKWATER_COORDINATOR_START", reason="no application became the leader", log=str(log)
    )


def _observed(leader: LeaderRecord | None, here: Owner) -> LeaderObservation:
    """Looks whether the leader's process is dead, and whether it answers."""
    if leader is None or (leader.lease is None and leader.is_leased):
        return LeaderObservation(leader)
    owner = here if leader.lease is None else leader.lease.owner
    if leader.lease is not None and is_dead(owner, here, started):
        return LeaderObservation(leader, dead=True)
    # The token is not sent to whoever has that port on another machine.
    token = _token(leader.token_file) if is_near(owner, here) else None
    if token is None:
        return LeaderObservation(leader)
    return LeaderObservation(leader, answers=_answers(leader, token), reachable=True)


def _take_lead(
    settings: ProcessSettings, engine: Engine, leader: LeaderRecord | None, log: Path, here: Owner
) -> Leadership | None:
    """Takes the lead from `leader`, which has gone; None when another candidate was first."""
    epoch = 1 if leader is None else leader.epoch + 1
    listener = _listen()
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    token_file = settings.location.local / f"token-{epoch}-{os.getpid()}"
    token = _write_token(token_file)
    began_ms = running_ms()
    with ExitStack() as unless_taken:
        unless_taken.callback(listener.close)
        unless_taken.callback(token_file.unlink, missing_ok=True)
        mark = FileMark(settings.location.local / f"mark-{epoch}-{os.getpid()}")
        unless_taken.callback(mark.remove)
        try:
            lease = Lease(here, settings.lease_ms)
            candidate = Candidate(address, str(token_file), settings.application, str(log), lease)
            epoch = acquire(engine, candidate, leader)
        except LostElection:
            return None
        unless_taken.pop_all()
    return Leadership(engine, epoch, listener, address, token, token_file, log, began_ms, mark)


def _end_holder(
    engine: Engine, leader: LeaderRecord | None, here: Owner, error: SlackwaterError
) -> bool:
    """Kills the leader whose lease has run out, if it may keep the metastore locked.

    A process that hangs within a transaction of SQLite keeps all others from writing, for as long
    as it hangs; a server ends such a transaction by itself. Returns whether another attempt makes
    sense: another candidate may have been first.
    """
    if engine.dialect.name != "sqlite" or not error.is_outage:
        return False
    if leader is None or leader.lease is None:
        return False
    owner = leader.lease.owner
    ended = end(owner, here)
    if ended:
        structlog.get_logger("process").warning(
            "ended a leader that hangs", epoch=leader.epoch, pid=owner.pid
        )
    return ended or is_dead(owner, here, started)


def _unreachable(settings: ProcessSettings, leader: LeaderRecord | None) -> SlackwaterError:
    if leader is None or leader.lease is None:
        raise AssertionError("only a leader with a lease can be refused")
    owner = leader.lease.owner
    return user_error(
        "SLACKWATER_LEADER_UNREACHABLE",
        location=settings.shown,
        host=owner.host,
        user=owner.user,
        pid=str(owner.pid),
        application=leader.application,
    )


def _listen() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    # Connections inherit it. An answer is two writes; without it the second one waits 40 ms for
    # the client's delayed acknowledgement (asyncio leaves sockets alone that name no protocol).
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _coordinates(leader: LeaderRecord | None) -> dict[str, Any]:
    if leader is None:
        raise AssertionError("nobody leads")
    return {
        "address": leader.address,
        "token_file": leader.token_file,
        "epoch": leader.epoch,
        "log": leader.log,
    }


def _token(path: str) -> str | None:
    """The leader's token; None when it is not for this user."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return None


def _answers(leader: LeaderRecord, token: str) -> bool:
    """Whether the leader answers at its address."""
    request = urllib.request.Request(
        f"{leader.address}/v1/status",
        data=b"{}",
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    try:
        # A proxy of the environment has no part in what stays on this machine.
        with _OPENER.open(request, timeout=PING_TIMEOUT_S) as response:
            return bool(json.loads(response.read())["epoch"] == leader.epoch)
    except (urllib.error.URLError, OSError, ValueError, KeyError):
        return False


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _write_token(path: Path) -> str:
    token = secrets.token_urlsafe(32)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token)
    return token


@dataclass(frozen=True, slots=True)
class _Opened:
    """The parts of a leader that runs; `_close` says in which order they end."""

    coordinator: Coordinator
    bridge: SparkBridge
    leader_lease: LeaderLease
    gate: BackendGate
    ingress: Ingress | None
    tracing: Tracing | None


def _serve(settings: ProcessSettings, leadership: Leadership, answers: int) -> int:
    from slackwater.server.app import application

    _log = structlog.get_logger("process")

    def stop(reason: str) -> None:
        """Ends the process at once: all state is in the metastore."""
        _log.error("stopping", reason=reason)
        leadership.forget_files()
        logging.shutdown()
        os._exit(70)

    opened = _open(settings, leadership, stop)
    coordinator, leader_lease = opened.coordinator, opened.leader_lease
    app = application(coordinator, leadership.token, stop, leader_lease.confirm)
    serving = _listening(app, leadership.listener)
    _log.info("leading", epoch=leadership.epoch, location=settings.shown)
    _say_leading(answers, leadership)
    threading.Thread(target=_outlive, args=(serving, stop), name="watch-http", daemon=True).start()
    coordinator.start()
    opened.gate.open(
        IngressBackend(
            coordinator.parts.webhooks,
            coordinator.parts.changefeeds,
            lambda: leader_lease.confirm(wait_ms=0),
            coordinator.metrics,
        )
    )
    threading.Thread(target=opened.bridge.warm, name="attach", daemon=True).start()
    _wait_for_end_of_input()
    _log.info("driver is gone")
    _close(opened, leadership)
    logging.shutdown()
    os._exit(0)


def _open(
    settings: ProcessSettings, leadership: Leadership, stop: Callable[[str], None]
) -> _Opened:
    """Opens the parts of a leader. When that fails, another process may lead at once."""
    from slackwater.adapter.assembly import Given, open_coordinator
    from slackwater.adapter.external.tracing import is_asked_for, open_tracing
    from slackwater.adapter.reading.reads import LockLease
    from slackwater.spark.bridge import SparkBridge
    from slackwater.spark.driver import Driver

    with ExitStack() as undo:
        undo.callback(leadership.forget_files)
        leader_lease = _leader_lease(settings, leadership, stop)
        undo.callback(leader_lease.give_up)
        undo.callback(leader_lease.stop)
        undo.callback(leadership.mark.remove)
        bridge, gate = SparkBridge(Driver(settings.shown)), BackendGate()
        ingress = _ingress(settings, leadership, gate)
        if ingress is not None:
            undo.callback(ingress.stop)
        tracing = open_tracing() if is_asked_for(os.environ) else None
        coordinator = open_coordinator(
            Given(
                engine=leadership.engine,
                location=settings.shown,
                blobs=settings.location.blobs(os.environ),
                epoch=leadership.epoch,
                spark=bridge,
                log=str(leadership.log),
                on_fatal=stop,
                lease=LockLease(settings.lease_ms),
                parameters_file=settings.parameters_file,
                mark=leadership.mark,
                spans=tracing or NoSpans(),
            )
        )
        undo.pop_all()
        return _Opened(coordinator, bridge, leader_lease, gate, ingress, tracing)


def _close(opened: _Opened, leadership: Leadership) -> None:
    """Ends all, so that another process may lead; a coordinator that hangs is not waited for."""
    opened.gate.close()
    if opened.ingress is not None:
        opened.ingress.stop()
    opened.leader_lease.stop()
    leadership.forget_files()
    closing = threading.Thread(target=opened.coordinator.close, daemon=True)
    closing.start()
    closing.join(SHUTDOWN_TIMEOUT_S)
    if opened.tracing is not None:
        opened.tracing.close()
    opened.leader_lease.give_up()


def _say_leading(answers: int, leadership: Leadership) -> None:
    """Tells the shim where the coordinator is; it is told nothing more."""
    _say(
        answers,
        {
            "role": "leader",
            "address": leadership.address,
            "token_file": str(leadership.token_file),
            "mark": str(leadership.mark.path),
            "epoch": leadership.epoch,
            "log": str(leadership.log),
        },
    )
    os.close(answers)


def _ingress(
    settings: ProcessSettings, leadership: Leadership, gate: BackendGate
) -> Ingress | None:
    """Starts the ingress and returns it; None: the environment has none.

    Until the gate is open it asks senders to come again. An error of this application's own
    settings is raised; one of remembered settings is only logged: they may be another host's.
    """
    own = dict(settings.ingress)
    found = transaction(leadership.engine, lambda conn: ingress_settings.remembered(conn, own))
    try:
        chosen = ingress_settings.read(found)
        if chosen is None:
            return None
        ingress = Ingress(chosen, gate)
    except SlackwaterError as error:
        if own:
            raise
        structlog.get_logger("ingress").warning("not listening", reason=error.message)
        gate.listens("", error.message)
        return None
    ingress.start()
    return ingress


def _leader_lease(
    settings: ProcessSettings, leadership: Leadership, stop: Callable[[str], None]
) -> LeaderLease:
    """Starts to renew the lease: opening a large environment may take longer than it lasts."""

    def lost(reason: str) -> None:
        # Calls that are there now are told why.
        timer = threading.Timer(STOP_AFTER_S, stop, args=(reason,))
        timer.daemon = True
        timer.start()

    leader_lease = LeaderLease(
        connect(settings.metastore, silence_ms=settings.lease_ms // 3),
        leadership.epoch,
        settings.lease_ms,
        acquired_ms=leadership.lease_acquired_ms,
        on_lost=lost,
        on_renewed=leadership.mark.counts_for,
    )
    leader_lease.start()
    return leader_lease


def _listening(app: Any, listener: socket.socket) -> threading.Thread:
    """Starts the thread that serves the application, and returns it."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_keep_alive=600,
        proxy_headers=False,
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]

    async def run() -> None:
        await server.serve(sockets=[listener])

    serving = threading.Thread(target=lambda: asyncio.run(run()), name="http", daemon=True)
    serving.start()
    while not server.started and serving.is_alive():
        time.sleep(0.005)
    return serving


def _outlive(serving: threading.Thread, stop: Callable[[str], None]) -> None:
    """Stops the process when the server's thread ends: it must not keep its lease then."""
    serving.join()
    stop("the HTTP server has ended")


def _wait_for_end_of_input() -> None:
    while os.read(0, 4096):
        pass


if __name__ == "__main__":
    sys.exit(main())
