"""The coordinator's process as the leader: it takes the lead, serves, and ends.

Whoever joins another leader imports none of it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import structlog
import uvicorn
from sqlalchemy import Engine

from slackwater.adapter.assembly import Given, open_coordinator
from slackwater.adapter.coordinator import Coordinator
from slackwater.adapter.external.tracing import Tracing, is_asked_for, open_tracing
from slackwater.adapter.reading.reads import LockLease
from slackwater.persist.leadership import (
    Candidate,
    LeaderRecord,
    Lease,
    LostElection,
    Owner,
    acquire,
)
from slackwater.persist.metastore import connect, transaction
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.spans import NoSpans
from slackwater.server.answer import answer
from slackwater.server.app import application
from slackwater.server.ingress import settings as ingress_settings
from slackwater.server.ingress.gate import BackendGate, IngressBackend
from slackwater.server.ingress.listener import Ingress
from slackwater.server.leader_lease import LeaderLease, running_ms
from slackwater.server.mark import FileMark
from slackwater.server.settings import ProcessSettings
from slackwater.spark.bridge import SparkBridge
from slackwater.spark.driver import Driver

SHUTDOWN_TIMEOUT_S = 5.0
STOP_AFTER_S = 0.2


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


def take_lead(
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


def _listen() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    # Connections inherit it. An answer is two writes; without it the second one waits 40 ms for
    # the client's delayed acknowledgement (asyncio leaves sockets alone that name no protocol).
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


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


def serve(settings: ProcessSettings, leadership: Leadership, answers: int) -> NoReturn:
    """Leads until the driver is gone or another application leads, tells the driver at `answers`
    where the coordinator is, and ends the process."""
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
    answer(
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
