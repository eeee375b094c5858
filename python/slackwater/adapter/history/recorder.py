"""The shell of the history: calls tell it events, and a thread stores what comes of them.

To tell something is to append to a queue. Texts are looked at, and files written, by the thread;
who reads the history first has what waits in the queue applied.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from slackwater.adapter.history.core import HistoryCore, Limits
from slackwater.adapter.history.events import (
    Bound,
    CallBegan,
    CallEnded,
    Computed,
    Connected,
    Disconnected,
    Done,
    Event,
    Failure,
    Key,
    Released,
    Said,
    Wrote,
)
from slackwater.adapter.history.files import HistoryFiles
from slackwater.adapter.history.passes import Passes
from slackwater.adapter.history.records import KINDS, Record, SessionBegan, Statement
from slackwater.adapter.history.store import HistoryStore
from slackwater.adapter.history.traces import spans_of
from slackwater.adapter.protocol import EndedRead, UnboundRead
from slackwater.adapter.time.watch import Cancellation
from slackwater.persist.blobs import Blobs
from slackwater.planner.parser import parameters, variables
from slackwater.repr.spans import NoSpans, Spans

PASS_S = 1.0
"""So often what is new is stored."""
WAITING_AT_MOST = 10_000
"""The most events that wait: whoever brings one more applies them."""

FOLDER = "history"
_log = structlog.get_logger("history")


@dataclass(slots=True)
class CallHistory:
    """One call of a statement, for the history. `ended` is called once."""

    key: Key
    _tell: Callable[[Event], None]
    _clock: Callable[[], int]

    def ended(self, result: Bound | Wrote | Done | Failure, cancellation: Cancellation) -> None:
        """The call has ended, whose waits the cancellation has seen."""
        now_ms = self._clock()
        waited_s = cancellation.waited_s
        if waited_s > 0:
            until_ms = now_ms - round(cancellation.since_waited_s() * 1000)
            self._tell(CallEnded(self.key, now_ms, result, round(waited_s * 1000), until_ms))
        else:
            self._tell(CallEnded(self.key, now_ms, result))


class History:
    """The history of statements and sessions. Thread-safe; `validate` and reads wait for the core.

    What could not be stored is tried again: see `HistoryStore`.
    """

    def __init__(
        self,
        blobs: Blobs,
        epoch: int,
        clock: Callable[[], int],
        limits: Limits | None = None,
        spans: Spans | None = None,
    ) -> None:
        """`clock` gives wall clock milliseconds. `spans` is told of statements that have ended."""
        limits = limits or Limits()
        self._spans = spans or NoSpans()
        self._clock = clock
        default = parameters.PARAMETERS["statement_logging_target_data_rate"].default
        self._core = HistoryCore(limits, variables.size_bytes(default))
        self._waiting: deque[Event] = deque()
        self._lock = threading.Lock()
        self._store: HistoryStore[Record] = HistoryStore(
            "the history",
            HistoryFiles(blobs, epoch, FOLDER, KINDS),
            self._core,
            self._lock,
            # Of each statement there may be two records, and there are sessions.
            most=3 * limits.records,
            age_ms=limits.age_ms,
        )
        self._passes = Passes(
            "history", PASS_S, lambda: self._pass(PASS_S * 1000), lambda: self._pass(0)
        )

    # What calls tell

    def call(self, key: Key, said: Said) -> CallHistory:
        """A call of a statement begins."""
        self._tell(CallBegan(key, self._clock(), uuid.uuid4().hex, said))
        return CallHistory(key, self._tell, self._clock)

    def writing(self, key: Key, said: Said) -> Callable[[], None]:
        """The jobs of a statement's write run; to be called when they are over."""
        self._tell(CallBegan(key, self._clock(), uuid.uuid4().hex, said))
        return lambda: self._tell(CallEnded(key, self._clock(), Computed()))

    def released(self, ended: EndedRead) -> None:
        """The reads under a hold have ended."""
        failure = None if ended.condition is None else Failure(ended.condition, ended.message)
        at_ms = self._clock() - max(0, ended.ago_ms)
        rows, took_ms = ended.rows, ended.took_ms
        self._tell(Released(ended.hold, at_ms, rows, failure, took_ms, ended.strategy))

    def unbound(self, key: Key, said: Said, read: UnboundRead) -> None:
        """A statement has read without a call, and has ended."""
        now_ms, hold = self._clock(), uuid.uuid4().hex
        began_ms = now_ms - max(0, read.began_ago_ms)
        bound_ms = began_ms + round(read.took_us / 1000)
        failure = None if read.condition is None else Failure(read.condition, read.message)
        ended_ms = max(bound_ms, now_ms - max(0, read.ago_ms))
        self._tell(CallBegan(key, began_ms, uuid.uuid4().hex, said))
        self._tell(CallEnded(key, bound_ms, Bound(read.timestamp, hold)))
        rows, took_ms = read.rows, read.took_ms
        self._tell(Released(hold, ended_ms, rows, failure, took_ms, read.strategy))

    def connected(self, session_id: str, application: str | None, user: str) -> None:
        """The first call of a session has come."""
        self._tell(Connected(session_id, self._clock(), application, user))

    def disconnected(self, session_id: str) -> None:
        """A session has ended."""
        self._tell(Disconnected(session_id, self._clock()))

    def _tell(self, event: Event) -> None:
        self._waiting.append(event)
        if len(self._waiting) >= WAITING_AT_MOST:
            with self._lock:
                self._apply()

    # What is known

    def statements(self) -> tuple[Statement, ...]:
        """The statements up to now, in the order in which they began."""
        with self._lock:
            self._apply()
            return self._core.statements()

    def sessions(self) -> tuple[SessionBegan, ...]:
        """The sessions up to now, in the order in which they began."""
        with self._lock:
            self._apply()
            return self._core.sessions()

    def validate(self) -> None:
        """Raises FatalError when an invariant of the core is broken."""
        with self._lock:
            self._apply()
            self._core.validate()

    def configure(self, values: Mapping[str, str]) -> None:
        """Goes by these parameters of the system from now on."""
        rate = parameters.size_bytes(values, "statement_logging_target_data_rate")
        sample_rate = values.get("statement_logging_sample_rate")
        with self._lock:
            # What has begun before the change is treated as before it.
            self._apply()
            if rate is not None:
                self._core.set_data_rate(rate)
            if sample_rate is not None:
                self._core.sample_rate = float(sample_rate)

    def _apply(self) -> None:
        """Applies what waits. Called with the lock."""
        while self._waiting:
            self._core.apply(self._waiting.popleft())
        for ended in self._core.take_ended():
            self._spans.ended(ended.key, *spans_of(ended))
        self._core.forget_old(self._clock())

    # The thread

    def start(self) -> None:
        """Begins to store, and to read what leaders before have stored."""
        self._passes.start()

    def stop(self) -> None:
        """Stores what there is, unless that takes long, and ends."""
        self._passes.stop()

    def _pass(self, settle_ms: float) -> None:
        """Stores what is new, and statements that run for `settle_ms` already."""
        now_ms = self._clock()
        with self._lock:
            self._apply()
            taken = self._core.take_changed(now_ms - round(settle_ms))
        self._store.keep(taken, now_ms)
