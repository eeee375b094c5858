"""Ingestions: what a source does, and the threads that let each source do it at its own pace.

An ingestion is deterministic in its durable state: `poll` derives a step from the state that was
last committed, and only `committed` moves on. So a crash before the commit repeats the step, a
crash after it continues, and nothing is emitted twice or lost.

Source: spec controllers 5.1-5.3, coordinator 6.2 and 7.2.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import pyarrow as pa
import structlog

from slackwater.persist.leadership import Fenced
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.hlc import Range
from slackwater.repr.ids import GlobalId
from slackwater.storage.pieces import StagedRows
from slackwater.storage.source_time import SourceFrontier

_log = structlog.get_logger("source")

StatusName = Literal["starting", "running", "stalled", "paused", "ceased"]

ADVICE_WHERE_REPLACED = (
    "What the source has stays readable. CREATE SOURCE a new one, and DROP this one when it is of "
    "no use any more."
)
"""The advice where the upstream is another one and the source cannot go on with it."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """The status of a source. `error` is a complete message, `details` are JSON for humans."""

    status: StatusName
    error: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceStatistics:
    """Counters of one source since it was created, or, in a step, of that step.

    `offset_known` and `offset_committed` are positions (ticks, files), not increments.
    `rows_skipped` counts malformed rows that ON ERROR SKIP left out, `dead_letters` messages that
    became one. `snapshot_records_known` and
    `snapshot_records_staged` are those of a snapshot of which that can be said. `begun` are the
    exports that were added to the running source and have their first contents.
    """

    messages_received: int = 0
    bytes_received: int = 0
    updates_staged: int = 0
    updates_committed: int = 0
    rows_skipped: int = 0
    offset_known: int = 0
    offset_committed: int = 0
    snapshot_committed: bool = False
    snapshot_records_known: int | None = None
    snapshot_records_staged: int | None = None
    begun: tuple[str, ...] = ()
    dead_letters: int = 0

    def during(self, step: SourceStatistics | None) -> SourceStatistics:
        """These counters while `step` is being made. None: no step that takes long is."""
        if step is None:
            return self
        return replace(
            self,
            messages_received=self.messages_received + step.messages_received,
            bytes_received=self.bytes_received + step.bytes_received,
            offset_known=max(self.offset_known, step.offset_known),
            offset_committed=max(self.offset_committed, step.offset_committed),
            snapshot_records_known=step.snapshot_records_known,
            snapshot_records_staged=step.snapshot_records_staged,
        )

    def after(self, step: SourceStatistics) -> SourceStatistics:
        """These counters once `step` was committed."""
        return SourceStatistics(
            messages_received=self.messages_received + step.messages_received,
            bytes_received=self.bytes_received + step.bytes_received,
            updates_staged=self.updates_staged + step.updates_staged,
            updates_committed=self.updates_committed + step.updates_staged,
            rows_skipped=self.rows_skipped + step.rows_skipped,
            offset_known=max(self.offset_known, step.offset_known),
            offset_committed=max(self.offset_committed, step.offset_committed),
            snapshot_committed=self.snapshot_committed or step.snapshot_committed,
            snapshot_records_known=step.snapshot_records_known or self.snapshot_records_known,
            snapshot_records_staged=step.snapshot_records_staged or self.snapshot_records_staged,
            begun=(*self.begun, *step.begun),
            dead_letters=self.dead_letters + step.dead_letters,
        )


@dataclass(frozen=True, slots=True)
class IngestionStep:
    """The result of one poll.

    `updates` maps an export's name to its rows plus ``__diff`` (BIGINT), which may be in files
    already; `errors` to what could not be made rows (see `slackwater.repr.dataflow_error`). Exports
    without news are left out. Once they are committed, the source has been read up to `frontier`,
    and `state` (JSON) is what else the ingestion needs to go on. All of that belongs into one
    transaction: its time is the time to which the messages before `frontier` are reclocked.
    `checkpoints` are those of the source's
    checkpoint group that are applied with it; None: it has no group, or nothing is.
    """

    updates: Mapping[str, pa.Table | StagedRows]
    state: str
    frontier: SourceFrontier
    status: SourceStatus
    statistics: SourceStatistics = SourceStatistics()
    errors: Mapping[str, pa.Table] = field(default_factory=dict)
    checkpoints: Range | None = None


@dataclass(frozen=True, slots=True)
class IngestionProgress:
    """A step takes several polls, and this was not the last one: nothing is to be committed.

    The statistics are those of the step so far.
    """

    status: SourceStatus
    statistics: SourceStatistics


class Ingestion(Protocol):
    """A source's core. Not thread-safe: one caller at a time."""

    def poll(self, now_ms: int) -> IngestionStep | IngestionProgress | None:
        """The next step at wall-clock `now_ms`, or None when nothing is new, status included.

        Repeats its answer's work until `committed` is called. Raises SlackwaterError for problems
        that may pass; they become the source's status.
        """
        ...

    def committed(self, step: IngestionStep) -> None:
        """`step` (the last that `poll` returned) is durable."""
        ...


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """All before `committed` of a partition is durable here, and it is known to have something up
    to `known`; None: nobody knows it."""

    partition: int
    committed: int
    known: int | None

    @staticmethod
    def of(frontier: SourceFrontier, known: Mapping[int, int]) -> tuple[PartitionOffsets, ...]:
        """Those of the partitions of a frontier, and of those with an end that is known.

        An end may have been said before what is committed was read.
        """
        numbers = {each.partition for each in frontier.positions} | known.keys()
        found = ((number, frontier.offset(number) or 0) for number in sorted(numbers))
        return tuple(
            PartitionOffsets(number, at, max(known[number], at) if number in known else None)
            for number, at in found
        )


class Resnapshot:
    """A request to read the upstream from its beginning again. `done` is set once the difference
    is durable."""

    def __init__(self) -> None:
        self.done = threading.Event()


@dataclass(frozen=True, slots=True)
class StatusChange:
    """One row of mz_source_status_history."""

    occurred_at_ms: int
    source_id: GlobalId
    status: SourceStatus


class StepSuperseded(Exception):
    """A step was derived from a state that is not the stored one any more; nothing was written."""

    def __init__(self, source_id: GlobalId, steps: int, stored: int) -> None:
        super().__init__(f"{source_id} has committed {stored} steps, not {steps}")
        self.steps = steps
        self.stored = stored


@dataclass(frozen=True, slots=True)
class Reached:
    """The durable state of an ingestion after `steps` committed steps.

    `state` is None before the first one, and `frontier`, the last that the remap has, as well.
    """

    steps: int = 0
    state: str | None = None
    frontier: SourceFrontier | None = None
    statistics: SourceStatistics = SourceStatistics()

    def is_changed_by(self, step: IngestionStep) -> bool:
        """Whether `step` has something to commit."""
        news = bool(step.updates) or bool(step.errors) or bool(step.statistics.begun)
        return news or (step.state, step.frontier) != (self.state, self.frontier)

    def after(self, step: IngestionStep) -> Reached:
        """The durable state once `step` was committed."""
        statistics = self.statistics.after(step.statistics)
        return Reached(self.steps + 1, step.state, step.frontier, statistics)


def _nothing_open() -> None:
    """Most ingestions have nothing open between two polls."""


def _ends_unknown() -> Mapping[int, int]:
    """Most sources have one partition, of which the statistics say how far it is known."""
    return {}


@dataclass(frozen=True, slots=True)
class Resumed:
    """An ingestion that goes on from what is durable of it. `close` ends what it has open.

    `ends` says after a poll up to which offset each partition is known to have something.
    """

    ingestion: Ingestion
    reached: Reached = Reached()
    close: Callable[[], None] = _nothing_open
    ends: Callable[[], Mapping[int, int]] = _ends_unknown


Resume = Callable[[], Resumed]
"""Builds a source's ingestion from what is stored now. Raises SlackwaterError."""

Commit = Callable[[GlobalId, Reached, IngestionStep], None]
"""Commits a source's step in one transaction, provided that what it follows still is stored.

Returns when the step is durable. Raises `StepSuperseded`, and SlackwaterError; after
SLACKWATER_METASTORE_UNAVAILABLE the step may be durable or not.
"""

Record = Callable[[Sequence[StatusChange]], None]
"""Makes changes of statuses durable; those of sources that were dropped are left out.

Raises SlackwaterError, then the same changes are recorded again later.
"""

_HISTORY = 1000
_RETRY_MS = 1000
_LONGEST_RETRY_MS = 30_000
_REBUILD_MS = 10


class _RunningIngestion:
    """One source and its thread. `ingestion` is None while it is to be built (again).

    `failures` counts the polls that have failed one after the other. `progress` is that of a step
    that takes several polls. `known` are the ends of partitions after the last poll.
    """

    __slots__ = (
        "close",
        "ends",
        "failures",
        "healthy",
        "ingestion",
        "interval_ms",
        "known",
        "last",
        "progress",
        "reached",
        "resume",
        "source_id",
        "stop",
        "thread",
        "unrecorded",
    )

    def __init__(self, source_id: GlobalId, resume: Resume, interval_ms: int) -> None:
        self.source_id = source_id
        self.resume = resume
        self.interval_ms = interval_ms
        self.ingestion: Ingestion | None = None
        self.close: Callable[[], None] = _nothing_open
        self.ends: Callable[[], Mapping[int, int]] = _ends_unknown
        self.known: Mapping[int, int] = {}
        self.reached = Reached()
        self.progress: SourceStatistics | None = None
        self.failures = 0
        self.stop = False
        self.healthy: SourceStatus | None = None
        self.last: StatusChange | None = None
        self.unrecorded: deque[StatusChange] = deque(maxlen=_HISTORY)
        self.thread: threading.Thread | None = None


class IngestionRunner:
    """Polls each source at its interval, in a thread of its own.

    A slow, stalled or failing source holds up no other.
    """

    def __init__(self, commit: Commit, record: Record, clock: Callable[[], int]) -> None:
        """`clock` gives wall-clock milliseconds since the epoch."""
        self._commit = commit
        self._record_changes = record
        self._clock = clock
        self._changed = threading.Condition()
        self._running: dict[GlobalId, _RunningIngestion] = {}
        self._woken: set[GlobalId] = set()
        self._closed = False

    def add(self, source_id: GlobalId, resume: Resume, interval_ms: int) -> None:
        """Starts a source; its first poll is at once.

        `resume` runs in the source's thread, and again whenever a step turns out to be superseded.
        """
        running = _RunningIngestion(source_id, resume, max(1, interval_ms))
        thread = threading.Thread(
            target=self._run, args=(running,), name=f"source-{source_id}", daemon=True
        )
        running.thread = thread
        with self._changed:
            if self._closed:
                raise ValueError("the runner is closed")
            if source_id in self._running:
                raise ValueError(f"{source_id} is running already")
            self._running[source_id] = running
            self._note(running, SourceStatus("starting"))
            thread.start()

    def remove(self, source_id: GlobalId) -> None:
        """Stops a source and waits for the step that it is in. Unknown sources are ignored."""
        with self._changed:
            running = self._running.pop(source_id, None)
            if running is None:
                return
            running.stop = True
            self._changed.notify_all()
        if running.thread is not None and running.thread is not threading.current_thread():
            running.thread.join()

    def wake(self, source_id: GlobalId | None = None) -> None:
        """Polls a source (all, when None) now instead of at its next interval."""
        with self._changed:
            self._woken |= set(self._running) if source_id is None else {source_id}
            self._changed.notify_all()

    def close(self) -> None:
        """Stops all sources and waits for the steps that they are in."""
        with self._changed:
            self._closed = True
            ids = list(self._running)
            for running in self._running.values():
                running.stop = True
            self._changed.notify_all()
        for source_id in ids:
            self.remove(source_id)

    def status(self, source_id: GlobalId) -> StatusChange | None:
        """The current status and since when it holds; None for a source that does not run."""
        with self._changed:
            running = self._running.get(source_id)
            return None if running is None else running.last

    def statuses(self) -> list[StatusChange]:
        with self._changed:
            return [running.last for running in self._running.values() if running.last is not None]

    def statistics(self) -> dict[GlobalId, SourceStatistics]:
        with self._changed:
            return {
                w.source_id: w.reached.statistics.during(w.progress) for w in self._running.values()
            }

    def partitions(self) -> dict[GlobalId, tuple[PartitionOffsets, ...]]:
        """The partitions of each source, without those of which nothing is durable."""
        with self._changed:
            found = [(w.source_id, w.reached.frontier, w.known) for w in self._running.values()]
        return {
            source_id: PartitionOffsets.of(frontier, known)
            for source_id, frontier, known in found
            if frontier is not None
        }

    def signal(self) -> None:
        """Lets those who wait look whether they still want to."""
        with self._changed:
            self._changed.notify_all()

    def wait_for(
        self,
        source_id: GlobalId,
        condition: Callable[[SourceStatus], bool],
        timeout_s: float,
        given_up: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Waits until the status of a source meets `condition`; False after `timeout_s`.

        False also once `given_up`; who makes that true calls `signal`.
        """

        def met() -> bool:
            running = self._running.get(source_id)
            return (
                running is not None and running.last is not None and condition(running.last.status)
            )

        with self._changed:
            self._changed.wait_for(lambda: met() or given_up(), timeout_s)
            return met()

    def _note(self, running: _RunningIngestion, status: SourceStatus) -> None:
        if running.last is None or running.last.status != status:
            running.last = StatusChange(self._clock(), running.source_id, status)
            running.unrecorded.append(running.last)
            log = _log.warning if status.status == "stalled" else _log.info
            log("status", object=running.source_id, status=status.status, error=status.error)
        self._changed.notify_all()

    def _record(self, running: _RunningIngestion) -> None:
        with self._changed:
            changes = tuple(running.unrecorded)
        if not changes:
            return
        try:
            self._record_changes(changes)
        except (SlackwaterError, Fenced):
            return  # they stay, and are recorded after a later poll, if this still leads
        with self._changed:
            for _ in changes:
                running.unrecorded.popleft()

    def _run(self, running: _RunningIngestion) -> None:
        while not running.stop:
            began = self._clock()
            pause = self._turn(running, began)
            self._record(running)
            with self._changed:
                self._changed.wait_for(
                    lambda: running.stop or running.source_id in self._woken, timeout=pause / 1000
                )
                self._woken.discard(running.source_id)
        running.close()

    def _turn(self, running: _RunningIngestion, began_ms: int) -> int:
        """One poll and its commit. Returns the milliseconds until the next one."""
        try:
            if running.ingestion is None:
                resumed = running.resume()
                running.ingestion, running.reached = resumed.ingestion, resumed.reached
                running.close, running.ends = resumed.close, resumed.ends
            step = running.ingestion.poll(began_ms)
            running.known = running.ends()
            if running.stop:
                return 0
            if isinstance(step, IngestionProgress):
                return self._going_on(running, step)
            if step is not None:
                reached = self._committed(running, step)
                running.ingestion.committed(step)
        except StepSuperseded:
            # An earlier commit whose answer was lost has happened after all.
            running.close()
            running.ingestion, running.close = None, _nothing_open
            return _REBUILD_MS
        except Fenced:
            # Another application leads, and runs the source: it is as that one says.
            return max(running.interval_ms, _RETRY_MS)
        except SlackwaterError as error:
            return self._failed(running, str(error))
        except Exception as error:  # one source's defect must not end the others
            return self._failed(running, f"{type(error).__name__}: {error}")
        with self._changed:
            running.failures, running.progress = 0, None
            if step is not None:
                running.healthy = step.status
                running.reached = reached
            if running.healthy is not None:
                self._note(running, running.healthy)
        return min(running.interval_ms, max(1, began_ms + running.interval_ms - self._clock()))

    def _committed(self, running: _RunningIngestion, step: IngestionStep) -> Reached:
        """Makes `step` durable, unless nothing of it has to be, and returns what is reached."""
        reached = running.reached
        if reached.is_changed_by(step):
            self._commit(running.source_id, reached, step)
            return reached.after(step)
        return replace(reached, statistics=reached.statistics.after(step.statistics))

    def _going_on(self, running: _RunningIngestion, progress: IngestionProgress) -> int:
        """Tells how far a step is that takes several polls; the next one is at once."""
        with self._changed:
            running.failures, running.progress = 0, progress.statistics
            self._note(running, progress.status)
        return 0

    def _failed(self, running: _RunningIngestion, message: str) -> int:
        """Tells why a poll has failed. The next one is after a while that doubles each time."""
        with self._changed:
            pause_ms: int = min(_RETRY_MS << running.failures, _LONGEST_RETRY_MS)
            running.failures = min(running.failures + 1, 10)
            self._note(running, SourceStatus("stalled", message))
        return max(running.interval_ms, pause_ms)
