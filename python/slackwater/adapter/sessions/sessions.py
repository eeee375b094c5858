"""Sessions: the variables, transaction, cursors and notices of each connection."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from hashlib import blake2b

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.sessions.buffered import BufferedWrite
from slackwater.adapter.sessions.cursors import Cursor
from slackwater.adapter.time.watch import Cancellation
from slackwater.adapter.transactions import (
    Idle,
    Lost,
    Transaction,
    add_write,
    begin,
    in_block,
    isolation,
    statement_failed,
)
from slackwater.controller.holds import ReadHold
from slackwater.planner.parser import variables
from slackwater.repr.errors import user_error
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId

ANSWER_BYTES = 512 * 1024**2
"""The most bytes of an answer, whatever a session asks for: the coordinator has it in memory."""
NOTICES_KEPT = 100
Cause = tuple[GlobalId, int | tuple[str, ...]]
"""Something of an object that a session is told once: when it stopped, or by what it is read."""
PENDING_COMMITS_KEPT = 64
WRITES_KEPT = 1024
"""So many ids of writes are remembered: more than there are statements at once.

A client repeats only a write whose answer it lacks.
"""


@dataclass(frozen=True, slots=True)
class Advice:
    """A sentence that says what to do, the statement that does it, and the object it is about."""

    hint: str
    action: str | None = None
    about: GlobalId | None = None


NO_ADVICE = Advice("")


@dataclass(frozen=True, slots=True)
class Notice:
    """A message beside a result. `severity` is NOTICE or WARNING; `code` is an SQLSTATE.

    `number` counts the notices of its session, from 0 on.
    """

    severity: str
    code: str
    message: str
    advice: Advice
    created_ms: int
    number: int

    def to_json(self) -> dict[str, str]:
        told = {"severity": self.severity, "code": self.code, "message": self.message}
        return told | ({"hint": self.advice.hint} if self.advice.hint else {})


@dataclass(frozen=True, slots=True)
class RunningCall:
    """A call of a statement that runs now. `call` names it alone, `execution` its statement."""

    call: str
    execution: str | None
    cancellation: Cancellation

    @property
    def statement(self) -> str:
        """The name of the statement in the history; of one that has none, that of the call."""
        return self.execution or self.call


@dataclass(frozen=True, slots=True)
class RunningWrite:
    """The progress of the jobs of a statement's write at `told_s`, as their driver says.

    `over` tells the history that there are no more of them.
    """

    rows: int
    tasks: int
    tasks_done: int
    told_s: float
    over: Callable[[], None]

    def __str__(self) -> str:
        """The progress as a sentence."""
        of = f", {self.tasks_done} of {self.tasks} tasks are done" if self.tasks else ""
        return f"{self.rows:,} rows are written{of}."


@dataclass(slots=True)
class PendingCommit:
    """A COMMIT that the client has sent under `write_id`, and its outcome.

    `block` is the block that it commits; Idle once that is settled, or another COMMIT has come.
    """

    write_id: str
    block: Transaction[BufferedWrite]
    outcome: Future[None] = field(default_factory=Future)


@dataclass(slots=True)
class Session:
    """One Spark session. Several of its statements may run at once, in threads of their own.

    `lock` guards the state that they share: the transaction, its hold and its end, the cursors, and
    the notices. It is held while that is read and changed, never while a statement runs or waits.
    Lock order: before the storage controller's, after none.
    """

    session_id: str
    connected_ms: int
    clock: Callable[[], int]
    used_ms: int = 0
    user: str = "anonymous"
    values: dict[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    """The variables whose defaults are parameters that somebody has set."""
    transaction: Transaction[BufferedWrite] = field(default_factory=Idle)
    blocks: int = 0
    pending_commits: dict[str, PendingCommit] = field(default_factory=dict)
    entered: bool = False
    cursors: dict[str, Cursor] = field(default_factory=dict)
    block_cursors: set[str] = field(default_factory=set)
    told: int = 0
    history: deque[Notice] = field(default_factory=lambda: deque(maxlen=NOTICES_KEPT))
    pending: deque[Notice] = field(default_factory=lambda: deque(maxlen=NOTICES_KEPT))
    known_causes: deque[Cause] = field(default_factory=lambda: deque(maxlen=NOTICES_KEPT))
    block_hold: ReadHold | None = None
    seen_ts: Timestamp | None = None
    """The latest time that reads and writes of the session were at, while its isolation is strong
    session serializable; None before the first of them."""
    writes: dict[str, bool] = field(default_factory=dict)
    holds: set[str] = field(default_factory=set)
    running: dict[str, RunningCall] = field(default_factory=dict)
    writing: dict[str, RunningWrite] = field(default_factory=dict)
    """Statements whose jobs write, by their names."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    def variable(self, name: str) -> str:
        """The value of a session variable, inside a block the block's own."""
        own = isolation(self.transaction) if name == "transaction_isolation" else None
        default = self.defaults.get(name, variables.VARIABLES[name].default)
        return own or self.values.get(name, default)

    @property
    def connection_id(self) -> int:
        """A number for clients that expect PostgreSQL's; the same under every coordinator.

        48 bits, so that a double has it exactly.
        """
        return int.from_bytes(blake2b(self.session_id.encode(), digest_size=6).digest(), "big")

    @property
    def result_limit_bytes(self) -> int:
        """The most bytes that a query may bring to Spark's driver."""
        return variables.size_bytes(self.variable("max_query_result_size"))

    @property
    def answer_limit_bytes(self) -> int:
        """The most bytes that an answer of the coordinator, or the rows kept for one, may have."""
        return min(self.result_limit_bytes, ANSWER_BYTES)

    def stop_writing(self, statement: str | None) -> None:
        """The jobs of the statement's write are over."""
        write = None if statement is None else self.writing.pop(statement, None)
        if write is not None:
            write.over()

    def cancel(self, named: Callable[[RunningCall], bool] = lambda _: True) -> None:
        """Ends the running calls that `named` picks, those of one statement for example.

        Without it, all of them.
        """
        for running in list(self.running.values()):
            if named(running):
                running.cancellation.cancel()

    def notify(
        self,
        message: str,
        severity: str = "NOTICE",
        code: str = "00000",
        advice: Advice = NO_ADVICE,
    ) -> None:
        with self.lock:
            notice = Notice(severity, code, message, advice, self.clock(), self.told)
            self.told += 1
            self.history.append(notice)
            self.pending.append(notice)

    def is_news(self, cause: Cause) -> bool:
        """Whether the session was not told of this yet. It knows of it from now on."""
        with self.lock:
            if cause in self.known_causes:
                return False
            self.known_causes.append(cause)
            return True

    def take_notices(self) -> list[dict[str, str]]:
        """The notices since the last answer."""
        with self.lock:
            taken = list(self.pending)
            self.pending.clear()
        return [notice.to_json() for notice in taken]

    def saw(self, time: Timestamp) -> None:
        """A write of the session was committed at that time."""
        with self.lock:
            if self.seen_ts is not None:
                self.seen_ts = max(self.seen_ts, time)

    # The transaction

    def enter(self, *, in_block: bool) -> None:
        """Notes a call. `in_block`: the client knows of a block that has not ended.

        If this coordinator sees the session for the first time, the block was begun under the
        coordinator before it, and is lost. Else another thread has ended it meanwhile.
        """
        with self.lock:
            if in_block and not self.entered and isinstance(self.transaction, Idle):
                self.transaction = Lost()
            self.entered = True

    def begin(self, *, read_only: bool, isolation: str | None) -> None:
        """BEGIN. Raises what `transactions.begin` does."""
        with self.lock:
            before = self.transaction
            self.transaction = begin(before, read_only=read_only, isolation=isolation)
            self.blocks += self.transaction is not before

    def buffer(self, write_id: str, write: BufferedWrite) -> bool:
        """Keeps a write for COMMIT, if a block was open when it came for the first time.

        One that comes again is kept once, whatever has become of its block. One that came outside
        of a block is the committer's, which knows it again, too. Raises what `add_write` does.
        """
        with self.lock:
            if (is_kept := self.writes.get(write_id)) is not None:
                return is_kept
            is_kept = in_block(self.transaction)
            if is_kept:
                self.transaction = add_write(self.transaction, write, write.size_bytes)
            if len(self.writes) >= WRITES_KEPT:
                del self.writes[next(iter(self.writes))]
            self.writes[write_id] = is_kept
            return is_kept

    def fail(self, block: int) -> None:
        """Notes that a statement failed which began when the session had begun `block` blocks."""
        with self.lock:
            if self.blocks == block:
                self.transaction = statement_failed(self.transaction)

    def roll_back(self) -> Transaction[BufferedWrite]:
        """Ends the block; returns the transaction as it was."""
        with self.lock:
            block, self.transaction = self.transaction, Idle()
            ended = self._taken_cursors()
        _close(ended)
        return block

    def commit(self, write_id: str) -> tuple[PendingCommit, bool]:
        """Ends the block; returns the commit, and whether it comes for the first time.

        One that came before ends nothing: it is about the block that was open then.
        """
        with self.lock:
            if (asked := self.pending_commits.get(write_id)) is not None:
                return asked, False
            for earlier in self.pending_commits.values():
                earlier.block = Idle()
            if len(self.pending_commits) >= PENDING_COMMITS_KEPT:
                del self.pending_commits[next(iter(self.pending_commits))]
            pending = self.pending_commits[write_id] = PendingCommit(write_id, self.transaction)
            self.transaction = Idle()
            ended = self._taken_cursors()
        _close(ended)
        return pending, True

    # Cursors

    @property
    def block(self) -> int | None:
        """The number of the open block; None outside of one."""
        return self.blocks if in_block(self.transaction) else None

    def open_cursor(self, name: str, cursor: Cursor, block: int | None) -> None:
        """Keeps a cursor that was declared in `block`, or outside of one.

        A block that has ended meanwhile takes it along. Raises SLACKWATER_DUPLICATE_CURSOR, and
        then it is closed.
        """
        with self.lock:
            is_late = block is not None and block != self.block
            if not is_late and self.cursors.setdefault(name, cursor) is cursor:
                if block is not None:
                    self.block_cursors.add(name)
                return
        cursor.close()
        if not is_late:
            raise user_error("SLACKWATER_DUPLICATE_CURSOR", cursor=name)

    def close_cursor(self, name: str) -> None:
        """Ends a cursor, if there is one of that name."""
        with self.lock:
            cursor = self.cursors.pop(name, None)
            self.block_cursors.discard(name)
        if cursor is not None:
            cursor.close()

    def _taken_cursors(self) -> list[Cursor]:
        """The cursors of the block, which the session does not have any more."""
        names, self.block_cursors = self.block_cursors, set()
        return [self.cursors.pop(name) for name in names if name in self.cursors]


def _close(cursors: Iterable[Cursor]) -> None:
    """Ends cursors. Called without the lock: dataflows may end with them, which takes others."""
    for cursor in cursors:
        cursor.close()


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a statement: its session, the meaning of its names, and what ends it."""

    session: Session
    context: Context
    cancellation: Cancellation

    @property
    def user(self) -> str:
        return self.context.user


class Sessions:
    """All sessions of the environment, by id. A session begins with its first call.

    `clock` gives wall clock milliseconds. Sessions that begin later have the variables `defaults`.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self.defaults: Mapping[str, str] = {}
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}

    def get(self, session_id: str) -> Session:
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None:
                session = self._sessions[session_id] = Session(
                    session_id, self._clock(), self._clock, defaults=self.defaults
                )
            return session

    def configure(self, parameters: Mapping[str, str]) -> None:
        """Gives sessions to come the defaults among the parameters."""
        own = {name: value for name, value in parameters.items() if name in variables.VARIABLES}
        with self._lock:
            self.defaults = {**self.defaults, **own}

    def find(self, session_id: str) -> Session | None:
        with self._lock:
            return self._sessions.get(session_id)

    def close(self, session_id: str) -> Session | None:
        """Forgets a session and returns it, so that its holds can be released."""
        with self._lock:
            session = self._sessions.pop(session_id, None)
        if session is not None:
            session.cancel()
        return session

    def all(self) -> tuple[Session, ...]:
        with self._lock:
            return tuple(self._sessions.values())

    def notify(self, message: str, severity: str, code: str, advice: Advice = NO_ADVICE) -> None:
        """Gives each session a notice, which goes out with its next answer."""
        for session in self.all():
            session.notify(message, severity, code, advice)
