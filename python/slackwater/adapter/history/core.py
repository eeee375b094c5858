"""The core of the history: events in, statements and sessions out. No clocks, threads, files.

A statement is open from its first call until it has ended, which it does once. At all times::

    each hold belongs to one open statement, which knows it
    each open statement that is kept is among the statements, and has no end
    there are no more statements, nor sessions, than `Limits` say

Source: spec coordinator 7.2.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from slackwater.adapter.history.events import (
    Bound,
    CallBegan,
    CallEnded,
    Computed,
    Connected,
    Disconnected,
    Done,
    Ended,
    Event,
    Failure,
    Key,
    ReadEnded,
    Released,
    Wrote,
)
from slackwater.adapter.history.records import (
    Reached,
    Record,
    SessionBegan,
    Statement,
    Status,
    Step,
)
from slackwater.adapter.history.sampling import Throttle, is_sampled
from slackwater.adapter.history.texts import SHOWN_CHARACTERS, kind_of, of_statement
from slackwater.adapter.protocol import ReadStrategy
from slackwater.repr.errors import FatalError, conditions

DAY_MS = 24 * 3600 * 1000
RECORD_BYTES = 600
"""The size of a record beside its texts, as the throttle counts."""
OPEN_AT_MOST = 20_000
"""Of more statements that are open at once, the end of the oldest is not seen."""
READS_AT_MOST = 100
"""The most reads of a statement that its end tells of, the first."""

_CANCELED = frozenset(("SLACKWATER_CANCELED", "SPARK_JOB_CANCELLED", "InterruptedException"))


@dataclass(frozen=True, slots=True)
class Limits:
    """The most statements, and the most sessions, that are kept, and for how long."""

    records: int = 10_000
    age_ms: int = DAY_MS


@dataclass(slots=True)
class Open:
    """A statement that has not ended. One that is not kept (`id` is None) is followed, too.

    `holds` are those that it has now, and since when.
    """

    id: str | None
    kind: str
    began_ms: int
    writes: bool
    calls: int = 0
    holds: dict[str, int] = field(default_factory=dict)
    reads: list[ReadEnded] = field(default_factory=list)
    strategies: set[ReadStrategy] = field(default_factory=set)
    timestamp: int | None = None
    rows: int | None = None
    rows_written: int | None = None
    failure: Failure | None = None


class HistoryCore:
    """The statements and sessions of an environment. One caller at a time."""

    def __init__(self, limits: Limits, data_rate: int, sample_rate: float = 1.0) -> None:
        """`data_rate` is in bytes a second, `sample_rate` the part of statements that is kept."""
        self.sample_rate = sample_rate
        self._limits = limits
        self._throttle = Throttle(data_rate)
        self._open: OrderedDict[Key, Open] = OrderedDict()
        self._holds: dict[str, Key] = {}
        self._statements: OrderedDict[str, Statement] = OrderedDict()
        self._sessions: OrderedDict[str, SessionBegan] = OrderedDict()
        self._changed: dict[str, None] = {}
        self._new_sessions: dict[str, None] = {}
        self._ended: list[Ended] = []

    # What is known

    def statements(self) -> tuple[Statement, ...]:
        """The statements, in the order in which they began."""
        return tuple(self._statements.values())

    def sessions(self) -> tuple[SessionBegan, ...]:
        """The sessions, in the order in which they began."""
        return tuple(self._sessions.values())

    def set_data_rate(self, data_rate: int) -> None:
        """From now on the throttle lets so many bytes a second through."""
        self._throttle.rate = data_rate

    # Events

    def apply(self, event: Event) -> None:
        match event:
            case CallBegan():
                self._call_began(event)
            case CallEnded():
                self._call_ended(event)
            case Released():
                self._released(event)
            case Connected():
                self._connected(event)
            case Disconnected():
                self._disconnected(event)

    def _call_began(self, event: CallBegan) -> None:
        said = event.said
        opened = self._open.get(event.key)
        if opened is None:
            kept = self._begin(event)
            opened = self._open[event.key] = Open(
                event.execution_id if kept else None,
                kind_of(said.text, said.kind, writes=said.writes),
                event.at_ms,
                said.writes,
            )
            while len(self._open) > OPEN_AT_MOST:
                self._end(next(iter(self._open)), event.at_ms, Status.ABORTED)
        opened.calls += 1
        opened.writes |= said.writes

    def _begin(self, event: CallBegan) -> bool:
        """Makes the statement, if it is to be kept."""
        said, key = event.said, event.key
        rate = min(said.rate, self.sample_rate)
        if not is_sampled(event.execution_id, rate):
            return False
        size = RECORD_BYTES + 2 * min(len(said.text or ""), SHOWN_CHARACTERS)
        throttled = self._throttle.take(size, event.at_ms)
        if throttled is None:
            return False
        planned = () if said.planned_ms is None else (Reached(Step.PLANNED, said.planned_ms),)
        self._keep(
            Statement(
                execution_id=event.execution_id,
                session_id=key.session_id,
                statement_id=key.statement_id,
                began_ms=event.at_ms,
                text=of_statement(said.text, said.kind, writes=said.writes),
                application=said.application,
                user=said.user,
                cluster=said.cluster,
                isolation=said.isolation,
                sample_rate=rate,
                throttled=throttled,
                spark_execution_id=_spark_execution_id(key),
                planned_ms=said.planned_ms,
                cluster_id=said.cluster_id,
                database=said.database,
                search_path=said.search_path,
                version=said.version,
                steps=(*planned, Reached(Step.BEGAN, event.at_ms)),
            )
        )
        return True

    def _call_ended(self, event: CallEnded) -> None:
        opened = self._open.get(event.key)
        if opened is None:
            return
        opened.calls = max(0, opened.calls - 1)
        self._waited(opened, event)
        match event.result:
            case Bound(timestamp, hold):
                reached = Reached(Step.BOUND, event.at_ms)
                read_at = None if timestamp is None else int(timestamp)
                self._change(opened, reached, timestamp=read_at)
                opened.timestamp = read_at
                if hold is not None:
                    opened.holds[hold] = event.at_ms
                    self._holds[hold] = event.key
                self._end_if_over(event.key, event.at_ms)
            case Wrote(timestamp, rows):
                reached = Reached(Step.COMMITTED, event.at_ms)
                self._change(opened, reached, timestamp=int(timestamp), rows_written=rows)
                opened.timestamp, opened.rows_written = int(timestamp), rows
                self._end(event.key, event.at_ms, Status.SUCCESS)
            case Computed():
                self._end_if_over(event.key, event.at_ms)
            case Done(rows):
                opened.rows = rows
                self._end(event.key, event.at_ms, Status.SUCCESS)
            case Failure() as failure:
                opened.failure = failure
                self._end(event.key, event.at_ms, _status(failure))

    def _waited(self, opened: Open, event: CallEnded) -> None:
        if event.waited_until_ms is not None and opened.id is not None:
            before = self._statements[opened.id].waited_ms
            reached = Reached(Step.WAITED, event.waited_until_ms)
            self._change(opened, reached, waited_ms=before + event.waited_ms)

    def _released(self, event: Released) -> None:
        key = self._holds.pop(event.hold, None)
        if key is None:
            return
        opened = self._open[key]
        bound_ms = opened.holds.pop(event.hold)
        if len(opened.reads) < READS_AT_MOST:
            began_ms = bound_ms if event.took_ms is None else event.at_ms - event.took_ms
            read = ReadEnded(began_ms, event.at_ms, event.rows, event.failure)
            opened.reads.append(read)
        if event.rows is not None:
            opened.rows = (opened.rows or 0) + event.rows
        if event.strategy is not None:
            opened.strategies.add(event.strategy)
        opened.failure = opened.failure or event.failure
        self._end_if_over(key, event.at_ms)

    def _end_if_over(self, key: Key, at_ms: int) -> None:
        """Ends a statement of Spark's that has no call and reads nothing any more."""
        opened = self._open[key]
        if opened.calls or opened.holds:
            return
        if opened.failure is not None:
            status = _status(opened.failure)
        else:
            # A write that comes to nothing releases what it read, and nobody says why.
            status = Status.ABORTED if opened.writes else Status.SUCCESS
        self._end(key, at_ms, status)

    def _end(self, key: Key, at_ms: int, status: Status) -> None:
        opened = self._open.pop(key)
        for hold in opened.holds:
            del self._holds[hold]
        self._ended.append(
            Ended(
                key,
                opened.kind,
                opened.began_ms,
                at_ms,
                status,
                spark_execution_id=_spark_execution_id(key),
                timestamp=opened.timestamp,
                rows_returned=opened.rows,
                rows_written=opened.rows_written,
                failure=opened.failure,
                reads=tuple(opened.reads),
            )
        )
        if opened.id is None:
            return
        failure = opened.failure
        text = self._statements[opened.id].text
        self._change(
            opened,
            Reached(Step.FINISHED, at_ms),
            finished_ms=at_ms,
            status=status,
            rows_returned=opened.rows,
            condition=None if failure is None else failure.condition,
            error=None if failure is None else _shown_message(failure, is_secret=text.is_secret),
            strategy=_strategy(opened) if status is Status.SUCCESS else None,
        )

    def _connected(self, event: Connected) -> None:
        if event.session_id not in self._sessions:
            self._sessions[event.session_id] = SessionBegan(
                event.session_id, event.at_ms, event.application, event.user
            )
            self._new_sessions[event.session_id] = None

    def _disconnected(self, event: Disconnected) -> None:
        for key in [key for key in self._open if key.session_id == event.session_id]:
            self._end(key, event.at_ms, Status.ABORTED)

    # Statements

    def _keep(self, statement: Statement) -> None:
        self._statements[statement.execution_id] = statement
        self._changed[statement.execution_id] = None
        while len(self._statements) > self._limits.records:
            self._forget(next(iter(self._statements)))

    def _forget(self, execution_id: str) -> None:
        statement = self._statements.pop(execution_id)
        self._changed.pop(execution_id, None)
        opened = self._open.get(Key(statement.session_id, statement.statement_id))
        if opened is not None and opened.id == execution_id:
            opened.id = None

    def _change(self, opened: Open, reached: Reached, **fields: object) -> None:
        """Notes a step, and what has become known with it."""
        if opened.id is not None:
            before = self._statements[opened.id]
            steps = (*before.steps, reached)
            changed = replace(before, steps=steps, **fields)  # type: ignore[arg-type]
            self._statements[opened.id] = changed
            self._changed[opened.id] = None

    def take_ended(self) -> tuple[Ended, ...]:
        """The statements that have ended since the last time, also those that are not kept."""
        ended, self._ended = tuple(self._ended), []
        return ended

    # What is stored

    def take_changed(self, began_before_ms: int) -> tuple[Record, ...]:
        """The records that have changed since the last time and are to be stored now.

        A statement that has not ended is among them once it began before that time: most end soon.
        """
        found: list[Record] = [self._sessions[each] for each in self._new_sessions]
        self._new_sessions.clear()
        for execution_id in list(self._changed):
            statement = self._statements[execution_id]
            if statement.status is not None or statement.began_ms < began_before_ms:
                found.append(statement)
                del self._changed[execution_id]
        return tuple(found)

    def put_back(self, records: Iterable[Record]) -> None:
        """Gives back records that could not be stored; those that are kept are taken again."""
        for record in records:
            match record:
                case Statement(execution_id=known) if known in self._statements:
                    self._changed[known] = None
                case SessionBegan(session_id=known) if known in self._sessions:
                    self._new_sessions[known] = None

    def recover(self, records: Iterable[Record], now_ms: int) -> None:
        """Takes what leaders before have stored, in any order; of several, the last one counts.

        What they have not seen the end of ends as aborted. Idempotent.
        """
        statements: dict[str, Statement] = {}
        sessions: dict[str, SessionBegan] = {}
        for record in records:
            match record:
                case Statement(execution_id=known) if known not in self._statements:
                    before = statements.get(known)
                    if before is None or len(before.steps) <= len(record.steps):
                        statements[known] = record
                case SessionBegan(session_id=known):
                    sessions.setdefault(known, record)
        for execution_id, statement in statements.items():
            if statement.status is None:
                steps = (*statement.steps, Reached(Step.FINISHED, now_ms))
                statements[execution_id] = replace(
                    statement, status=Status.ABORTED, finished_ms=now_ms, steps=steps
                )
                self._changed[execution_id] = None
        ran = (*statements.values(), *self._statements.values())
        in_order = sorted(ran, key=lambda each: each.began_ms)
        self._statements = OrderedDict((each.execution_id, each) for each in in_order)
        # A session goes on under the next leader, and began under the first.
        connected = {**self._sessions, **sessions}
        began = sorted(connected.values(), key=lambda each: each.connected_ms)
        self._sessions = OrderedDict((each.session_id, each) for each in began)
        self.forget_old(now_ms)

    def forget_old(self, now_ms: int) -> None:
        """Forgets what is older or more than the limits allow."""
        oldest_ms = now_ms - self._limits.age_ms
        statements, sessions = self._statements, self._sessions
        while statements and (
            len(statements) > self._limits.records
            or next(iter(statements.values())).began_ms < oldest_ms
        ):
            self._forget(next(iter(statements)))
        while sessions and (
            len(sessions) > self._limits.records
            or next(iter(sessions.values())).connected_ms < oldest_ms
        ):
            session_id, _ = sessions.popitem(last=False)
            self._new_sessions.pop(session_id, None)

    def validate(self) -> None:
        """Raises FatalError when an invariant is broken."""
        for hold, key in self._holds.items():
            _require(key in self._open and hold in self._open[key].holds, f"the hold {hold}")
        known = {hold for opened in self._open.values() for hold in opened.holds}
        _require(known == set(self._holds), "the holds of open statements")
        kept = [opened.id for opened in self._open.values() if opened.id is not None]
        for execution_id in kept:
            _require(execution_id in self._statements, f"the open statement {execution_id}")
            _require(self._statements[execution_id].status is None, f"{execution_id} has ended")
        running = {each.execution_id for each in self._statements.values() if each.status is None}
        _require(running == set(kept), "the statements that run")
        _require(set(self._changed) <= set(self._statements), "what is to be stored")
        _require(set(self._new_sessions) <= set(self._sessions), "the sessions to be stored")
        _require(len(self._statements) <= self._limits.records, "the number of statements")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise FatalError(f"the history is broken: {what}")


def _spark_execution_id(key: Key) -> int | None:
    """Spark's statements have Spark's number as their name."""
    text = key.statement_id
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


def _status(failure: Failure) -> Status:
    return Status.CANCELED if failure.condition in _CANCELED else Status.ERROR


def _strategy(opened: Open) -> ReadStrategy | None:
    """The strategy of all reads of a statement that writes nothing; None: it has read nothing."""
    if opened.writes:
        return None
    return next((each for each in ReadStrategy if each in opened.strategies), None)


def _shown_message(failure: Failure, *, is_secret: bool) -> str | None:
    """The error's message; where it might show a secret, the one of the catalogue for all cases."""
    if not is_secret:
        return None if failure.message is None else failure.message[:SHOWN_CHARACTERS]
    entry = conditions().get(failure.condition)
    return None if entry is None else "\n".join(entry["message"])
