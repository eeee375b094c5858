"""The coordinator's process. Started by the shim; see docs/internals/protocol.md section 1.

Either it leads the environment and stays until its stdin ends (the driver is gone), or it finds
a living leader, names it on stdout, and ends.
"""

from __future__ import annotations

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
import uvicorn

from slackwater.persist.locations import Location, parse_location
from slackwater.repr.errors import SlackwaterError, user_error

PING_TIMEOUT_S = 5.0
ELECTION_TIMEOUT_S = 45.0
SHUTDOWN_TIMEOUT_S = 5.0
LOG_BYTES = 10 * 1024 * 1024
LOG_FILES = 5
"""So many older log files are kept beside the current one."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the shim says by environment variables."""

    location: Location
    metastore: str
    application: str

    @staticmethod
    def from_environment() -> Settings:
        """Raises SLACKWATER_INVALID_OPTION, _UNSUPPORTED and _METASTORE_REQUIRED."""
        text = os.environ.get("SLACKWATER_LOCATION") or "slackwater-environment"
        location = parse_location(text, os.environ)
        metastore = location.metastore(os.environ.get("SLACKWATER_METASTORE"))
        return Settings(location, metastore, os.environ.get("SLACKWATER_APPLICATION", "unknown"))

    @property
    def shown(self) -> str:
        """The location as users name it."""
        return str(self.location.local) if self.location.is_local else self.location.uri


def main() -> int:
    """Runs the process; returns its exit status."""
    answers = _take_over_stdout()
    if os.getpgrp() != os.getpid():
        os.setsid()
    try:
        settings = Settings.from_environment()
        settings.location.local.mkdir(parents=True, exist_ok=True)
        log = settings.location.local / "log" / "coordinator.jsonl"
        _log_to(log)
        return _lead_or_join(settings, log, answers)
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
    for noisy in ("py4j", "uvicorn.access", "sqlglot"):
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


def _lead_or_join(settings: Settings, log: Path, answers: int) -> int:
    from slackwater.adapter import coordinator  # noqa: F401 - declares its tables
    from slackwater.persist.leadership import LostElection, acquire, current_leader
    from slackwater.persist.metastore import connect, create_all

    engine = connect(settings.metastore)
    create_all(engine)
    deadline = time.monotonic() + ELECTION_TIMEOUT_S
    while time.monotonic() < deadline:
        leader = current_leader(engine)
        if leader is not None and _alive(leader.address, leader.token_file, leader.epoch):
            _say(answers, {"role": "joined", **_coordinates(leader)})
            return 0
        listener = _listen()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        expected = None if leader is None else leader.epoch
        epoch_guess = 1 if leader is None else leader.epoch + 1
        token_file = settings.location.local / f"token-{epoch_guess}-{os.getpid()}"
        token = _write_token(token_file)
        try:
            epoch = acquire(
                engine,
                address,
                str(token_file),
                settings.application,
                str(log),
                expected_epoch=expected,
            )
        except LostElection:
            listener.close()
            token_file.unlink(missing_ok=True)
            continue
        return _serve(settings, engine, epoch, listener, token, token_file, log, answers)
    raise user_error(
        "SLACKWATER_COORDINATOR_START", reason="no application became the leader", log=str(log)
    )


def _listen() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    # Connections inherit it. An answer is two writes; without it the second one waits 40 ms for
    # the client's delayed acknowledgement (asyncio leaves sockets alone that name no protocol).
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _coordinates(leader: Any) -> dict[str, Any]:
    return {
        "address": leader.address,
        "token_file": leader.token_file,
        "epoch": leader.epoch,
        "log": leader.log,
    }


def _alive(address: str, token_file: str, epoch: int) -> bool:
    """Whether the leader of `epoch` answers at its address."""
    try:
        token = Path(token_file).read_text()
    except OSError:
        return False
    request = urllib.request.Request(
        f"{address}/v1/status",
        data=b"{}",
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=PING_TIMEOUT_S) as response:
            return bool(json.loads(response.read())["epoch"] == epoch)
    except (urllib.error.URLError, OSError, ValueError, KeyError):
        return False


def _write_token(path: Path) -> str:
    token = secrets.token_urlsafe(32)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token)
    return token


def _serve(
    settings: Settings,
    engine: Any,
    epoch: int,
    listener: socket.socket,
    token: str,
    token_file: Path,
    log: Path,
    answers: int,
) -> int:
    from slackwater.adapter.coordinator import Coordinator
    from slackwater.server.app import application
    from slackwater.spark.bridge import SparkBridge

    _log = structlog.get_logger("process")
    finished = threading.Event()

    def stop(reason: str) -> None:
        """Ends the process at once: all state is in the metastore."""
        _log.error("stopping", reason=reason)
        token_file.unlink(missing_ok=True)
        logging.shutdown()
        os._exit(70)

    bridge = SparkBridge()
    coordinator = Coordinator.open(
        engine=engine,
        location=settings.shown,
        blobs=settings.location.blobs(os.environ),
        epoch=epoch,
        spark=bridge,
        log=str(log),
        on_fatal=stop,
    )
    app = application(coordinator, token, stop)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", timeout_keep_alive=600
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]

    async def run() -> None:
        await app.state.widen()
        await server.serve(sockets=[listener])

    serving = threading.Thread(target=lambda: asyncio.run(run()), name="http", daemon=True)
    serving.start()
    while not server.started and serving.is_alive():
        finished.wait(0.005)
    _log.info("leading", epoch=epoch, location=settings.shown)
    _say(
        answers,
        {
            "role": "leader",
            "address": f"http://127.0.0.1:{listener.getsockname()[1]}",
            "token_file": str(token_file),
            "epoch": epoch,
            "log": str(log),
        },
    )
    os.close(answers)
    coordinator.start()
    threading.Thread(target=bridge.warm, name="attach", daemon=True).start()
    _wait_for_end_of_input()
    _log.info("driver is gone")
    token_file.unlink(missing_ok=True)
    closing = threading.Thread(target=coordinator.close, daemon=True)
    closing.start()
    closing.join(SHUTDOWN_TIMEOUT_S)
    logging.shutdown()
    os._exit(0)


def _wait_for_end_of_input() -> None:
    while os.read(0, 4096):
        pass


if __name__ == "__main__":
    sys.exit(main())
