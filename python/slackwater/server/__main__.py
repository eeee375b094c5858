"""The coordinator's process. The shim starts it (docs/internals/protocol.md section 1).

Either it leads the environment and stays until its stdin ends (the driver is gone), or it finds
a living leader, names it on stdout, and ends. A leader that lives and cannot be reached is
an error.
"""

from __future__ import annotations

import gc

from slackwater.server.left_out import UNUSED, leave_out

if __name__ == "__main__":
    # What is imported stays: a tenth of a start would go into looking for garbage in it.
    gc.disable()
    leave_out(*UNUSED)

import json
import logging
import logging.handlers
import os
import sys
import time
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import structlog
from sqlalchemy import Engine

from slackwater.persist.leadership import LeaderRecord, Owner, current_leader
from slackwater.persist.metastore import connect, create_all
from slackwater.repr.errors import LOG_FILE, SlackwaterError, user_error
from slackwater.server.answer import answer, take_over_stdout
from slackwater.server.election import Decision, Election, LeaderObservation
from slackwater.server.identity import end, is_dead, is_near, started, this_process
from slackwater.server.leader_lease import running_ms
from slackwater.server.settings import ProcessSettings

PING_TIMEOUT_S = 2.0
POLL_S = 0.1
ELECTION_TIMEOUT_S = 50.0
LOG_BYTES = 10 * 1024 * 1024
LOG_FILES = 5
"""The number of older log files that are kept beside the current one."""


def main(here: Owner | None = None) -> int:
    """Runs the process; returns its exit status. `here` identifies the process."""
    # Looking for garbage in what was imported would slow down all that comes next.
    gc.freeze()
    answers = take_over_stdout()
    if os.getpgrp() != os.getpid():
        os.setsid()
    try:
        settings = ProcessSettings.from_environment()
        settings.location.local.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = settings.location.local / LOG_FILE
        _log_to(log)
        return _lead_or_join(settings, log, answers, here or this_process())
    except SlackwaterError as error:
        answer(answers, {"error": error.to_json()})
    except OSError as error:
        problem = user_error("SLACKWATER_COORDINATOR_START", reason=str(error), log="(none)")
        answer(answers, {"error": problem.to_json()})
    return 1


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
    engine = connect(settings.metastore)
    create_all(engine, declare=_import_leading)
    election = Election()
    deadline = time.monotonic() + ELECTION_TIMEOUT_S
    while time.monotonic() < deadline:
        leader = current_leader(engine)
        decision = election.decide(_observed(leader, here), running_ms())
        if decision is Decision.JOIN:
            answer(answers, {"role": "joined", **_coordinates(leader)})
            return 0
        if decision is Decision.REFUSED:
            raise _unreachable(settings, leader)
        leading = _import_leading()
        if decision is Decision.WAIT:
            time.sleep(POLL_S)
            continue
        try:
            leadership = leading.take_lead(settings, engine, leader, log, here)
        except SlackwaterError as error:
            if decision is not Decision.RUN_OUT or not _end_holder(engine, leader, here, error):
                raise
            continue
        if leadership is not None:
            structlog.get_logger("process").info(
                "elected", epoch=leadership.epoch, why=decision.value
            )
            leading.serve(settings, leadership, answers)
    raise user_error(
        "SLACKWATER_COORDINATOR_START", reason="no application became the leader", log=str(log)
    )


@cache
def _import_leading() -> ModuleType:
    """Imports the module by which a process leads, and with it all tables of the metastore.

    Most of a start goes into it. Whoever joins another leader does without.
    """
    from slackwater.server import leading

    # Looking for garbage in what was imported would slow down all that comes next.
    gc.freeze()
    gc.enable()
    return leading


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


if __name__ == "__main__":
    sys.exit(main())
