"""The group committer: the one thread that writes the environment's tables.

Writes that are queued together commit together, at one time, in one metastore transaction. Then,
in this order: the oracle learns that the time is readable, the workers of dataflows are woken, the
clients are answered. Because the rows are durable before the time is readable, and the time is
readable before anybody is told, a read that begins after an answer sees the write.

While nothing is written, a tick each second moves the shared upper, whatever the number of tables.

Source: spec coordinator 3.1 to 3.3.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.adapter.controllers.table_log import LogFencedError, LogMovedError, TableLog
from slackwater.adapter.time.oracle import TimestampOracle
from slackwater.adapter.time.watch import Cancellation
from slackwater.adapter.writing.write_queue import WriteQueue
from slackwater.persist.parts import NewPart, RowsOrParts
from slackwater.persist.rows import WriteResult
from slackwater.persist.transactions import Step
from slackwater.planner.parser.parameters import milliseconds, size_bytes
from slackwater.repr.durations import Durations
from slackwater.repr.errors import FatalError, SlackwaterError, user_error
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import DIFF_COLUMN, DIFF_FIELD, TIME_FIELD

StepAt = Callable[[Timestamp], Step]
"""Makes a step of a write's transaction. It is called before the transaction begins."""


@dataclass(frozen=True, slots=True)
class Write:
    """A write to any number of tables, at one time.

    `write_id` makes it idempotent: submitted twice, it has one effect. `owner` is the holder of
    the write lock under which it runs. `steps` run inside its transaction; one that raises makes
    this write fail, and this one only. `step_at` makes one more step when the time is known.
    `inserted` and `deleted` are the counts for the client.
    """

    write_id: str
    appends: Mapping[int, RowsOrParts]
    inserted: int = 0
    deleted: int = 0
    steps: tuple[Step, ...] = ()
    owner: str | None = None
    step_at: StepAt | None = None


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """A commit, or an idle tick (then without shards): all tables are complete before `upper`."""

    timestamp: Timestamp
    upper: Timestamp
    shard_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class CommitSettings:
    """The settings of the group committer.

    `wait_ms`: a request fails after it has waited so long for locks of others. `max_waiting` and
    `max_waiting_bytes` bound the requests that wait at once; others are refused.
    """

    tick_ms: int = 1000
    max_ahead_ms: int = 1000
    wait_ms: int = 60_000
    max_attempts: int = 100
    max_waiting: int = 10_000
    max_waiting_bytes: int = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _PendingWrite:
    write: Write
    future: Future[WriteResult]

    @property
    def size_bytes(self) -> int:
        """The bytes that its rows take in memory."""
        return sum(r.nbytes for r in self.write.appends.values() if isinstance(r, pa.Table))


def count_changes(updates: pa.Table) -> tuple[int, int]:
    """The numbers of rows that a table with ``__diff`` inserts and deletes."""
    diffs = updates.column(DIFF_COLUMN)
    inserted = pc.sum(pc.max_element_wise(diffs, 0)).as_py() or 0
    deleted = pc.sum(pc.min_element_wise(diffs, 0)).as_py() or 0
    return int(inserted), -int(deleted)


def at_time(rows: pa.Table, timestamp: Timestamp) -> pa.Table:
    """`rows` as updates at `timestamp`: ``__time`` goes before ``__diff``, which stays last."""
    diffs = rows.column(DIFF_COLUMN).cast(pa.int64())
    times = pa.chunked_array([pa.repeat(pa.scalar(int(timestamp), pa.int64()), rows.num_rows)])
    return (
        rows.drop_columns([DIFF_COLUMN])
        .append_column(TIME_FIELD, times)
        .append_column(DIFF_FIELD, diffs)
    )


def pause_before_commit_ms(write_ts: Timestamp, now_ms: int, max_ahead_ms: int) -> int:
    """Milliseconds to wait before a commit, so that the timeline does not outrun the clock.

    Times that lie further ahead than writes can ever get are the sign of a clock that went back:
    then nobody waits, and time goes on by single steps until the clock has caught up.
    """
    ahead = write_ts - now_ms
    return ahead if 0 < ahead <= max_ahead_ms else 0


def merged_parts(
    writes: Sequence[Write],
    timestamp: Timestamp,
    new_parts: Callable[[int, pa.Table], tuple[NewPart, ...]],
) -> dict[int, tuple[NewPart, ...]]:
    """The parts of all `writes` at `timestamp`, by shard; rows of one shard share a part."""
    tables: dict[int, list[pa.Table]] = {}
    parts: dict[int, tuple[NewPart, ...]] = {}
    for write in writes:
        for shard_id, rows in write.appends.items():
            if not isinstance(rows, pa.Table):
                parts[shard_id] = parts.get(shard_id, ()) + rows(timestamp)
            elif rows.num_rows:
                tables.setdefault(shard_id, []).append(rows)
    for shard_id, pieces in tables.items():
        for table in concatenated(pieces):
            made = new_parts(shard_id, at_time(table, timestamp))
            parts[shard_id] = parts.get(shard_id, ()) + made
    return {shard_id: made for shard_id, made in parts.items() if made}


def concatenated(pieces: Sequence[pa.Table]) -> list[pa.Table]:
    """The rows of all pieces; those before and after a column was added stay apart."""
    groups: list[list[pa.Table]] = []
    for piece in pieces:
        if groups and groups[-1][0].schema.equals(piece.schema):
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return [pa.concat_tables(group) for group in groups]


def _nothing(_: object) -> None:
    return None


@dataclass(slots=True)
class _Shared:
    """State shared by callers and the committing thread, guarded by one condition variable."""

    queue: WriteQueue = field(default_factory=WriteQueue)
    writes: dict[int, _PendingWrite] = field(default_factory=dict)
    locks: dict[int, Future[None]] = field(default_factory=dict)
    by_write_id: dict[str, int] = field(default_factory=dict)
    in_flight: dict[str, Future[WriteResult]] = field(default_factory=dict)
    flushes: list[Future[Timestamp]] = field(default_factory=list)
    waiting_bytes: int = 0
    dead: Exception | None = None
    stopping: bool = False


@dataclass(frozen=True, slots=True)
class CommitTotals:
    """The commits since the leader has begun: how long they took, and failures by condition.

    The condition of an error without one is its type.
    """

    took: Durations = field(default_factory=Durations)
    failures: Mapping[str, int] = field(default_factory=dict)

    def and_failure(self, error: Exception) -> CommitTotals:
        """These, and one that has failed."""
        name = type(error).__name__
        if isinstance(error, SlackwaterError):
            name = error.condition
        return CommitTotals(self.took, {**self.failures, name: self.failures.get(name, 0) + 1})


class GroupCommitter:
    """Owns every write to the table log. `start` it once; `stop` it before the log is closed.

    `on_committed` runs in the committing thread after each commit and each tick, before the
    clients are answered; it must not block. `on_fatal` is called once, when the application has
    been fenced or an invariant is broken; by then all pending writes have failed. `location`
    names the environment in messages. `clock_ms` is wall time, `monotonic` gives the seconds by
    which writes wait.
    """

    def __init__(
        self,
        log: TableLog,
        oracle: TimestampOracle,
        *,
        location: str,
        clock_ms: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
        on_committed: Callable[[GroupCommit], None] = _nothing,
        on_fatal: Callable[[Exception], None] = _nothing,
        settings: CommitSettings | None = None,
    ) -> None:
        self._log = log
        self._oracle = oracle
        self._location = location
        self._clock_ms = clock_ms
        self._monotonic = monotonic
        self._on_committed = on_committed
        self._on_fatal = on_fatal
        self._settings = settings or CommitSettings()
        self._changed = threading.Condition()
        self._shared = _Shared()
        self._totals = CommitTotals()
        self._thread = threading.Thread(target=self._run, name="group-commit", daemon=True)

    @property
    def totals(self) -> CommitTotals:
        """The commits so far, ticks without writes among them."""
        return self._totals

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Commits what may be committed, fails the rest, and ends the thread."""
        with self._changed:
            self._shared.stopping = True
            self._changed.notify_all()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def configure(self, parameters: Mapping[str, str]) -> None:
        """Goes on with those of the parameters that concern commits; a tick that waits, too."""
        tick_ms = milliseconds(parameters, "default_timestamp_interval")
        most = size_bytes(parameters, "group_commit_max_waiting_bytes")
        with self._changed:
            if tick_ms is not None:
                self._settings = replace(self._settings, tick_ms=tick_ms)
            if most is not None:
                self._settings = replace(self._settings, max_waiting_bytes=most)
            self._changed.notify_all()

    def submit(self, write: Write, wait_ms: int | None = None) -> Future[WriteResult]:
        """Queues `write`. The future is done when the write is durable and readable, or failed.

        It waits at most `wait_ms` for locks of others; the commit itself has no time limit. It
        fails with SLACKWATER_LOCK_TIMEOUT, SLACKWATER_FENCED, SLACKWATER_METASTORE_UNAVAILABLE,
        SLACKWATER_TOO_MANY_REQUESTS or whatever a step of the write raised. The future cannot be
        cancelled; `withdraw` takes back a write that has not begun.
        """
        future: Future[WriteResult] = Future()
        future.set_running_or_notify_cancel()
        with self._changed:
            shared = self._shared
            if write.write_id in shared.by_write_id:
                return shared.writes[shared.by_write_id[write.write_id]].future
            if write.write_id in shared.in_flight:
                return shared.in_flight[write.write_id]
            if (ended := self._ended()) is not None:
                future.set_exception(ended)
                return future
            entry = _PendingWrite(write, future)
            if (full := self._full(entry.size_bytes)) is not None:
                future.set_exception(full)
                return future
            wait = self._settings.wait_ms if wait_ms is None else wait_ms
            token = shared.queue.offer_write(
                frozenset(write.appends), write.owner, self._now_ms() + wait
            )
            shared.writes[token] = entry
            shared.waiting_bytes += entry.size_bytes
            shared.by_write_id[write.write_id] = token
            self._changed.notify_all()
        return future

    def withdraw(self, write_id: str) -> bool:
        """Takes a write back that nobody has begun to commit; its future fails as cancelled.

        False: it has begun or is done, and its future tells the definite outcome.
        """
        with self._changed:
            token = self._shared.by_write_id.get(write_id)
            if token is None or not self._shared.queue.withdraw(token):
                return False
            self._forget_write(token).future.set_exception(user_error("SLACKWATER_CANCELED"))
            self._changed.notify_all()
            return True

    def written(self, write_id: str) -> WriteResult | None:
        """The result of the write, if it was committed; it is readable when this returns.

        None: it has not been committed, and never will be unless it is on its way now or is
        submitted again. Raises SLACKWATER_METASTORE_UNAVAILABLE.
        """
        earlier = self._log.written(write_id)
        if earlier is not None:
            # The commit may have lost its answer, and then nobody has said yet that it is readable.
            self._oracle.apply_write(earlier.timestamp)
        return earlier

    def lock(
        self,
        shard_ids: frozenset[int],
        owner: str,
        wait_ms: int | None = None,
        cancellation: Cancellation | None = None,
    ) -> None:
        """Waits until no other owner's write to `shard_ids` can commit before `release(owner)`.

        All of them at once, first come, first served. When this returns, every earlier write to
        them is readable. The owner's own writes must stay within `shard_ids` and pass. Raises
        SLACKWATER_LOCK_TIMEOUT after `wait_ms` or at the deadline of `cancellation`,
        SLACKWATER_CANCELED, SLACKWATER_FENCED, SLACKWATER_TOO_MANY_REQUESTS, and FatalError if the
        owner has a lock already.
        """
        granted: Future[None] = Future()
        ends = cancellation or Cancellation(wait_ms or self._settings.wait_ms, self._monotonic)
        ends.check()
        with self._changed:
            if (ended := self._ended()) is not None:
                raise ended
            if (full := self._full(0)) is not None:
                raise full
            token = self._shared.queue.offer_lock(shard_ids, owner, self._now_ms() + ends.left_ms())
            self._shared.locks[token] = granted
            self._grant()
            self._changed.notify_all()
        with ends.on_cancel(lambda: self._give_up(token)):
            granted.result()

    def _give_up(self, token: int) -> None:
        """Ends the wait for a lock, unless it was granted: then its owner releases it."""
        with self._changed:
            if self._shared.queue.withdraw(token):
                self._shared.locks.pop(token).set_exception(user_error("SLACKWATER_CANCELED"))
                self._grant()
                self._changed.notify_all()

    def release(self, owner: str) -> None:
        """Ends the lock of `owner`, or its wait for one. Without either, does nothing."""
        with self._changed:
            for token in self._shared.queue.release(owner):
                self._shared.locks.pop(token).set_exception(user_error("SLACKWATER_CANCELED"))
            self._grant()
            self._changed.notify_all()

    def flush(self, timeout_s: float | None = None) -> Timestamp:
        """Makes a commit begin now, and returns its time when it is readable.

        Raises what the commit raised, and TimeoutError.
        """
        done: Future[Timestamp] = Future()
        with self._changed:
            if (ended := self._ended()) is not None:
                raise ended
            self._shared.flushes.append(done)
            self._changed.notify_all()
        return done.result(timeout_s)

    # The committing thread.

    def _run(self) -> None:
        try:
            while self._cycle():
                pass
        except Exception as error:
            self._die(error)

    def _cycle(self) -> bool:
        """Waits for one commit or tick and makes it; False when the committer is to end."""
        going = self._await_work()
        self._pace()
        with self._changed:
            tokens = self._shared.queue.take_writes()
            entries = [self._forget_write(token) for token in tokens]
            self._shared.in_flight = {e.write.write_id: e.future for e in entries}
            flushes, self._shared.flushes = self._shared.flushes, []
        try:
            if going or entries or flushes:
                self._commit(entries, flushes)
        except Exception as error:
            seen = self._as_seen_by_clients(error)
            _fail([*(e.future for e in entries), *flushes], seen)
            raise
        finally:
            with self._changed:
                self._shared.in_flight = {}
                self._shared.queue.finish_writes()
                self._grant()
        if not going:
            self._end(user_error("SLACKWATER_STATEMENT_INTERRUPTED"))
        return going

    def _await_work(self) -> bool:
        """Waits for a write that may go, a flush or the next tick; False when stopping."""
        began = self._now_ms()
        with self._changed:
            while not self._shared.stopping:
                now, tick_at = self._now_ms(), began + self._settings.tick_ms
                self._expire(now)
                self._grant()
                due = self._shared.flushes or self._shared.queue.has_ready_writes()
                if due or now >= tick_at:
                    return True
                deadline = self._shared.queue.next_deadline_ms()
                until = tick_at if deadline is None else min(tick_at, deadline)
                self._changed.wait(max(until - now, 1) / 1000)
        return False

    def _pace(self) -> None:
        pause = pause_before_commit_ms(
            self._oracle.peek_write_ts(), self._clock_ms(), self._settings.max_ahead_ms
        )
        if pause:
            time.sleep(pause / 1000)

    def _commit(
        self, entries: Sequence[_PendingWrite], flushes: Sequence[Future[Timestamp]] = ()
    ) -> None:
        """Commits `entries` together; if one of them is at fault, each by itself."""
        fresh = []
        try:
            for entry in entries:
                earlier = self.written(entry.write.write_id)
                if earlier is None:
                    fresh.append(entry)
                else:
                    entry.future.set_result(earlier)
            began_s = self._monotonic()
            timestamp = self._append([e.write for e in fresh])
            took = self._totals.took.and_one(self._monotonic() - began_s)
            self._totals = replace(self._totals, took=took)
        except (LogFencedError, FatalError):
            raise
        except Exception as error:
            self._totals = self._totals.and_failure(error)
            if len(fresh) > 1 and not _is_outage(error):
                for entry in fresh:
                    self._commit([entry])
                self._commit([], flushes)
            elif not fresh and not flushes and not _is_outage(error):
                raise
            else:
                _fail([*(e.future for e in entries), *flushes], error)
            return
        for entry in fresh:
            entry.future.set_result(_result(entry.write, timestamp))
        for flush in flushes:
            flush.set_result(timestamp)

    def _append(self, writes: Sequence[Write]) -> Timestamp:
        for _ in range(self._settings.max_attempts):
            lower = self._log.tables_upper()
            # Whatever moved the upper is durable; the next time has to lie behind it.
            self._oracle.apply_write(Timestamp(max(0, lower - 1)))
            time_of_write = self._oracle.write_ts()
            timestamp, upper = time_of_write.timestamp, time_of_write.advance_to
            parts = merged_parts(writes, timestamp, self._log.new_parts)
            steps = tuple(step for write in writes for step in _steps(write, timestamp))
            results = {w.write_id: _result(w, timestamp) for w in writes}
            try:
                self._log.append(lower, upper, parts, steps, results)
            except LogMovedError:
                continue
            self._oracle.apply_write(timestamp)
            self._tell(GroupCommit(timestamp, upper, frozenset(parts)))
            return timestamp
        raise FatalError(f"no commit succeeded in {self._settings.max_attempts} attempts")

    def _tell(self, committed: GroupCommit) -> None:
        try:
            self._on_committed(committed)
        except Exception as error:
            raise FatalError("the listener of commits failed") from error

    def _now_ms(self) -> int:
        return int(self._monotonic() * 1000)

    # Under the condition variable.

    def _ended(self) -> Exception | None:
        if self._shared.dead is not None:
            return self._shared.dead
        if self._shared.stopping:
            return user_error("SLACKWATER_STATEMENT_INTERRUPTED")
        return None

    def _full(self, size_bytes: int) -> SlackwaterError | None:
        """The error for a request that has no room to wait. One that is alone always has room."""
        shared, settings = self._shared, self._settings
        if len(shared.queue) >= settings.max_waiting:
            limit = f"{settings.max_waiting} writes"
        elif shared.writes and shared.waiting_bytes + size_bytes > settings.max_waiting_bytes:
            limit = f"{settings.max_waiting_bytes} bytes"
        else:
            return None
        return user_error("SLACKWATER_TOO_MANY_REQUESTS", what="The queue of writes", limit=limit)

    def _forget_write(self, token: int) -> _PendingWrite:
        entry = self._shared.writes.pop(token)
        self._shared.waiting_bytes -= entry.size_bytes
        del self._shared.by_write_id[entry.write.write_id]
        return entry

    def _grant(self) -> None:
        for token in self._shared.queue.grant_locks():
            self._shared.locks.pop(token).set_result(None)

    def _expire(self, now_ms: int) -> None:
        for token in self._shared.queue.expire(now_ms):
            error = user_error("SLACKWATER_LOCK_TIMEOUT")
            if token in self._shared.locks:
                self._shared.locks.pop(token).set_exception(error)
            else:
                self._forget_write(token).future.set_exception(error)

    # The end.

    def _as_seen_by_clients(self, error: Exception) -> Exception:
        if isinstance(error, LogFencedError):
            return user_error("SLACKWATER_FENCED", location=self._location)
        return user_error("SLACKWATER_STATEMENT_INTERRUPTED")

    def _die(self, error: Exception) -> None:
        self._end(self._as_seen_by_clients(error))
        self._on_fatal(error)

    def _end(self, error: Exception) -> None:
        """Fails all requests that wait now, and all later ones."""
        with self._changed:
            self._shared.dead = error
            self._shared.queue.drain()
            pending = [e.future for e in self._shared.writes.values()]
            flushes, locks = self._shared.flushes, self._shared.locks
            self._shared.writes, self._shared.by_write_id = {}, {}
            self._shared.waiting_bytes = 0
            self._shared.flushes, self._shared.locks = [], {}
        _fail([*pending, *flushes, *locks.values()], error)


def _steps(write: Write, timestamp: Timestamp) -> tuple[Step, ...]:
    return write.steps if write.step_at is None else (*write.steps, write.step_at(timestamp))


def _result(write: Write, timestamp: Timestamp) -> WriteResult:
    return WriteResult(timestamp, write.inserted, write.deleted)


def _fail(
    futures: Sequence[Future[WriteResult] | Future[Timestamp] | Future[None]], error: Exception
) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)


def _is_outage(error: Exception) -> bool:
    return isinstance(error, SlackwaterError) and error.is_outage
