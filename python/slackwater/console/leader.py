"""The leader of an environment, found in its metastore and asked over the protocol of the shim."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import SQLAlchemyError

from slackwater.console.snapshot import Failure, Leader, Row
from slackwater.console.watch import Answer, Asked
from slackwater.persist.ipc import from_stream
from slackwater.persist.leadership import LeaderRecord, Owner, current_leader
from slackwater.persist.metastore import RetryPolicy, connect
from slackwater.repr.errors import SlackwaterError, first_line
from slackwater.server.identity import is_near

TIMEOUT_S = 10.0
"""Seconds after which a leader counts as gone that is not dead; a busy machine takes some."""
METASTORE_WAIT_MS = 2_000


class AbsentError(Exception):
    """There is no answer; the text says why. `leads`: somebody leads, and refuses to answer."""

    def __init__(self, reason: str, leads: bool = False) -> None:
        super().__init__(reason)
        self.leads = leads


@dataclass(frozen=True, slots=True)
class Met:
    """A leader that has answered: where it is, and by which token it is asked."""

    record: LeaderRecord
    token: str
    leader: Leader


class LeaderClient:
    """Asks whoever leads. `ask` is for one thread.

    `url` is the metastore's, `here` the process that asks. Nothing is made where there is no
    environment yet, and no lead is taken.
    """

    def __init__(self, url: str | URL, here: Owner) -> None:
        self._url = url
        self._here = here
        self._engine: Engine | None = None
        self._met: Met | None = None

    @property
    def log(self) -> Path | None:
        """The log of the leader that has answered last; None: nobody has."""
        return None if self._met is None else Path(self._met.record.log)

    def ask(self, asked: Asked) -> Answer:
        """Asks the leader that has answered last, or another one. Raises AbsentError."""
        if self._met is not None:
            try:
                return self._asked(self._met, asked)
            except AbsentError:
                pass
        met = self._find()
        answer = self._asked(met, asked)
        self._met = met
        return answer

    def metrics(self) -> str | None:
        """The metrics of the leader; None, if it does not tell them."""
        if self._met is None:
            return None
        try:
            return self._call(self._met.record, self._met.token, "/v1/metrics", {}).decode()
        except AbsentError:
            return None

    def _asked(self, met: Met, asked: Asked) -> Answer:
        body = {"relations": asked.relations, "after": asked.after}
        told = json.loads(self._call(met.record, met.token, "/v1/system", body))
        return decoded(told, met.leader)

    def _find(self) -> Met:
        record = self._record()
        if record is None:
            raise AbsentError("Nobody has led this environment yet.")
        owner = None if record.lease is None else record.lease.owner
        if owner is not None and not is_near(owner, self._here):
            raise AbsentError(
                f"The leader runs on {owner.host}, whose loopback is not reached from here: "
                "start the console there."
            )
        try:
            token = Path(record.token_file).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise AbsentError(f"{record.application} has led last, and has ended.") from None
        except OSError as error:
            raise AbsentError(f"The token of the leader cannot be read: {error.strerror}") from None
        status = json.loads(self._call(record, token, "/v1/status", {}))
        if status["epoch"] != record.epoch:
            raise AbsentError("Another application is taking the lead.")
        leader = Leader(status["epoch"], status["location"], status["version"], status["since"])
        return Met(record, token, leader)

    def _record(self) -> LeaderRecord | None:
        try:
            if self._engine is None:
                if not _exists(self._url):
                    return None
                self._engine = connect(self._url)
            policy = RetryPolicy(wait_ms=METASTORE_WAIT_MS)
            return current_leader(self._engine, retry_policy=policy)
        except SlackwaterError as error:
            reason = first_line(error.message)
            raise AbsentError(f"The metastore does not answer: {reason}") from None
        except SQLAlchemyError as error:
            reason = type(error).__name__
            raise AbsentError(f"The metastore does not answer: {reason}") from None

    def _call(self, record: LeaderRecord, token: str, path: str, body: Mapping[str, Any]) -> bytes:
        """The body of the answer. Raises AbsentError."""
        request = urllib.request.Request(
            f"{record.address}{path}",
            data=json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        try:
            # A proxy of the environment has no part in what stays on this machine.
            with _OPENER.open(request, timeout=TIMEOUT_S) as response:
                answer: bytes = response.read()
                return answer
        except urllib.error.HTTPError as error:
            raise AbsentError(_refusal(error), leads=True) from None
        except OSError:
            raise AbsentError(f"{record.application} does not answer.") from None


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def decoded(told: Mapping[str, Any], leader: Leader) -> Answer:
    """The answer to `/v1/system`."""
    return Answer(
        at_ms=told["now"],
        leader=leader,
        tables={name: _rows(stream) for name, stream in told["relations"].items()},
        unknown=frozenset(told["unknown"]),
        failures=tuple(
            Failure(each["object_id"], each["condition"], each["message"], each["since"])
            for each in told["errors"]
        ),
    )


def _rows(stream: str) -> tuple[Row, ...]:
    return tuple(from_stream(base64.b64decode(stream)).to_pylist())


def _exists(url: str | URL) -> bool:
    parsed = make_url(url)
    return parsed.get_backend_name() != "sqlite" or Path(parsed.database or "").exists()


def _refusal(error: urllib.error.HTTPError) -> str:
    try:
        told = json.loads(error.read())["error"]
        return f"[{told['condition']}] {first_line(told['message'])}"
    except (ValueError, KeyError, TypeError, OSError):
        return f"The leader answers with status {error.code}."
