"""Sessions: what a connection has set, opened and been told."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slackwater.adapter.reading.cursors import Cursor
from slackwater.adapter.time.watch import Cancellation
from slackwater.adapter.transactions import Idle, Transaction
from slackwater.adapter.writing.buffered import BufferedWrite
from slackwater.planner.parser import variables
from slackwater.storage.controller.holds import ReadHold

NOTICES_KEPT = 100


@dataclass(frozen=True, slots=True)
class Notice:
    """A message beside a result. `severity` is NOTICE or WARNING; `code` an SQLSTATE."""

    severity: str
    code: str
    message: str

    def to_json(self) -> dict[str, str]:
        return {"severity": self.severity, "code": self.code, "message": self.message}


@dataclass(frozen=True, slots=True)
class Context:
    """Where a statement runs: the Spark session's current catalog and namespace, and its user.

    `settings` are those of Spark's that can change the result of a query, where the statement is
    one that needs them; a definition keeps them.
    """

    catalog: str
    namespace: tuple[str, ...]
    user: str
    settings: Mapping[str, str] | None = None

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Context:
        given = body.get("context") or {}
        return Context(
            catalog=given.get("catalog") or "slackwater",
            namespace=tuple(given.get("namespace") or ("default",)),
            user=given.get("user") or "anonymous",
            settings=given.get("settings"),
        )


@dataclass(slots=True)
class Session:
    """One Spark session. Used by one statement at a time, except for cancellation."""

    session_id: str
    connected_ms: int
    used_ms: int = 0
    user: str = "anonymous"
    values: dict[str, str] = field(default_factory=dict)
    transaction: Transaction[BufferedWrite] = field(default_factory=Idle)
    cursors: dict[str, Cursor] = field(default_factory=dict)
    history: deque[Notice] = field(default_factory=lambda: deque(maxlen=NOTICES_KEPT))
    pending: list[Notice] = field(default_factory=list)
    block_hold: ReadHold | None = None
    holds: set[str] = field(default_factory=set)
    running: dict[str, Cancellation] = field(default_factory=dict)

    def variable(self, name: str) -> str:
        """The value of a session variable."""
        return self.values.get(name, variables.VARIABLES[name].default)

    def notify(self, message: str, severity: str = "NOTICE", code: str = "00000") -> None:
        notice = Notice(severity, code, message)
        self.history.append(notice)
        self.pending.append(notice)

    def take_notices(self) -> list[dict[str, str]]:
        """The notices since the last answer."""
        taken, self.pending = self.pending, []
        return [notice.to_json() for notice in taken]


class Sessions:
    """All sessions of the environment, by id. A session begins with its first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}

    def get(self, session_id: str, now_ms: int) -> Session:
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None:
                session = self._sessions[session_id] = Session(session_id, now_ms)
            return session

    def find(self, session_id: str) -> Session | None:
        with self._lock:
            return self._sessions.get(session_id)

    def close(self, session_id: str) -> Session | None:
        """Forgets a session and returns it, so that its holds can be released."""
        with self._lock:
            session = self._sessions.pop(session_id, None)
        if session is not None:
            for cancellation in list(session.running.values()):
                cancellation.flag.set()
        return session

    def all(self) -> tuple[Session, ...]:
        with self._lock:
            return tuple(self._sessions.values())
