"""Ingestions: what a source does, and the threads that let each source do it at its own pace.

An ingestion is deterministic in its durable state: `poll` derives a step from the state that was
last committed, and only `committed` moves on. So a crash before the commit repeats the step, a
crash after it continues, and nothing is emitted twice or lost.

Source: spec controllers 5.1-5.3, coordinator 6.2 and 7.2.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import pyarrow as pa

from slackwater.repr.errors import SlackwaterError
from slackwater.repr.ids import GlobalId

StatusName = Literal["starting", "running", "stalled", "paused", "ceased"]


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """How a source is. `error` is a complete message, `details` are JSON values for humans."""

    status: StatusName
    error: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceStatistics:
    """Counters of one source since it was created in this process, or, in a step, of that step.

    `offset_known` and `offset_committed` are positions (ticks, files), not increments.
    `rows_skipped` counts malformed rows that ON ERROR SKIP left out.
    """

    messages_received: int = 0
    bytes_received: int = 0
    updates_staged: int = 0
    updates_committed: int = 0
    rows_skipped: int = 0
    offset_known: int = 0
    offset_committed: int = 0
    snapshot_committed: bool = False

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
        )


@dataclass(frozen=True, slots=True)
class IngestionStep:
    """What one poll found.

    `updates` maps an export's name to its rows plus ``__diff`` (BIGINT); exports without news are
    left out. `state` is the durable resumption state (JSON) that holds once `updates` are
    committed: both belong into one transaction.
    """

    updates: Mapping[str, pa.Table]
    state: str
    status: SourceStatus
    statistics: SourceStatistics = SourceStatistics()


class Ingestion(Protocol):
    """A source's core. Not thread-safe: one caller at a time."""

    def poll(self, now_ms: int) -> IngestionStep | None:
        """The next step at wall-clock `now_ms`, or None when nothing is new, status included.

        Repeats its answer's work until `committed` is called. Raises SlackwaterError for problems
        that may pass; they become the source's status.
        """
        ...

    def committed(self, step: IngestionStep) -> None:
        """`step` (the last that `poll` returned) is durable."""
        ...


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
class Resumed:
    """An ingestion as its durable state says: `state`, after `steps` committed steps.

    `state` is None when no step has been committed yet.
    """

    ingestion: Ingestion
    steps: int = 0
    state: str | None = None


Resume = Callable[[], Resumed]
"""Builds a source's ingestion from what is stored now. Raises SlackwaterError."""

Commit = Callable[[GlobalId, int, IngestionStep], None]
"""Commits a source's step in one transaction, provided that so many steps were committed before.

Returns when the step is durable. Raises `StepSuperseded`, and SlackwaterError; after
SLACKWATER_METASTORE_UNAVAILABLE the step may be durable or not.
"""

_HISTORY = 1000
_RETRY_MS = 1000
_REBUILD_MS = 10


class _Worker:
    """One source and its thread. `current` is None while its ingestion is to be built (again)."""

    __slots__ = (
        "changes",
        "current",
        "healthy",
        "interval_ms",
        "resume",
        "source_id",
        "statistics",
        "stop",
        "thread",
    )

    def __init__(self, source_id: GlobalId, resume: Resume, interval_ms: int) -> None:
        self.source_id = source_id
        self.resume = resume
        self.current: Resumed | None = None
        self.interval_ms = interval_ms
        self.stop = False
        self.healthy: SourceStatus | None = None
        self.statistics = SourceStatistics()
        self.changes: deque[StatusChange] = deque(maxlen=_HISTORY)
        self.thread: threading.Thread | None = None


class IngestionRunner:
    """Polls each source at its interval, in a thread of its own.

    A slow, stalled or failing source holds up no other. Nothing here is durable: statuses and
    statistics begin anew with the process.
    """

    def __init__(self, commit: Commit, clock: Callable[[], int]) -> None:
        """`clock` gives wall-clock milliseconds since the epoch."""
        self._commit = commit
        self._clock = clock
        self._changed = threading.Condition()
        self._workers: dict[GlobalId, _Worker] = {}
        self._woken: set[GlobalId] = set()
        self._closed = False

    def add(self, source_id: GlobalId, resume: Resume, interval_ms: int) -> None:
        """Starts a source; its first poll is at once.

        `resume` runs in the source's thread, and again whenever a step turns out to be superseded.
        """
        worker = _Worker(source_id, resume, max(1, interval_ms))
        thread = threading.Thread(
            target=self._run, args=(worker,), name=f"source-{source_id}", daemon=True
        )
        worker.thread = thread
        with self._changed:
            if self._closed:
                raise ValueError("the runner is closed")
            if source_id in self._workers:
                raise ValueError(f"{source_id} is running already")
            self._workers[source_id] = worker
            self._record(worker, SourceStatus("starting"))
            thread.start()

    def remove(self, source_id: GlobalId) -> None:
        """Stops a source and waits for the step that it is in. Unknown sources are ignored."""
        with self._changed:
            worker = self._workers.pop(source_id, None)
            if worker is None:
                return
            worker.stop = True
            self._changed.notify_all()
        if worker.thread is not None and worker.thread is not threading.current_thread():
            worker.thread.join()

    def wake(self, source_id: GlobalId | None = None) -> None:
        """Polls a source (all, when None) now instead of at its next interval."""
        with self._changed:
            self._woken |= set(self._workers) if source_id is None else {source_id}
            self._changed.notify_all()

    def close(self) -> None:
        """Stops all sources and waits for the steps that they are in."""
        with self._changed:
            self._closed = True
            ids = list(self._workers)
            for worker in self._workers.values():
                worker.stop = True
            self._changed.notify_all()
        for source_id in ids:
            self.remove(source_id)

    def status(self, source_id: GlobalId) -> StatusChange | None:
        """The current status and since when it holds; None for a source that does not run."""
        with self._changed:
            worker = self._workers.get(source_id)
            return None if worker is None else worker.changes[-1]

    def statuses(self) -> list[StatusChange]:
        with self._changed:
            return [worker.changes[-1] for worker in self._workers.values()]

    def statistics(self) -> dict[GlobalId, SourceStatistics]:
        with self._changed:
            return {worker.source_id: worker.statistics for worker in self._workers.values()}

    def history(self) -> list[StatusChange]:
        """The last changes of each running source, oldest first."""
        with self._changed:
            changes = [change for worker in self._workers.values() for change in worker.changes]
        return sorted(changes, key=lambda change: change.occurred_at_ms)

    def wait_for(
        self, source_id: GlobalId, condition: Callable[[SourceStatus], bool], timeout_s: float
    ) -> bool:
        """Waits until the status of a source meets `condition`; False after `timeout_s`."""

        def met() -> bool:
            worker = self._workers.get(source_id)
            return worker is not None and condition(worker.changes[-1].status)

        with self._changed:
            return self._changed.wait_for(met, timeout_s)

    def _record(self, worker: _Worker, status: SourceStatus) -> None:
        if not worker.changes or worker.changes[-1].status != status:
            worker.changes.append(StatusChange(self._clock(), worker.source_id, status))
        self._changed.notify_all()

    def _run(self, worker: _Worker) -> None:
        while not worker.stop:
            began = self._clock()
            pause = self._turn(worker, began)
            with self._changed:
                self._changed.wait_for(
                    lambda: worker.stop or worker.source_id in self._woken, timeout=pause / 1000
                )
                self._woken.discard(worker.source_id)

    def _turn(self, worker: _Worker, began_ms: int) -> int:
        """One poll and its commit. Returns the milliseconds until the next one."""
        try:
            if worker.current is None:
                worker.current = worker.resume()
            step = worker.current.ingestion.poll(began_ms)
            if worker.stop:
                return 0
            if step is not None:
                worker.current = self._committed(worker, worker.current, step)
        except StepSuperseded:
            # An earlier commit whose answer was lost has happened after all.
            worker.current = None
            return _REBUILD_MS
        except SlackwaterError as error:
            return self._failed(worker, str(error))
        except Exception as error:  # one source's defect must not end the others
            return self._failed(worker, f"{type(error).__name__}: {error}")
        with self._changed:
            if step is not None:
                worker.healthy = step.status
                worker.statistics = worker.statistics.after(step.statistics)
            if worker.healthy is not None:
                self._record(worker, worker.healthy)
        return min(worker.interval_ms, max(1, began_ms + worker.interval_ms - self._clock()))

    def _committed(self, worker: _Worker, current: Resumed, step: IngestionStep) -> Resumed:
        """Makes `step` durable, unless it changes nothing that is durable."""
        steps = current.steps
        if step.updates or step.state != current.state:
            self._commit(worker.source_id, steps, step)
            steps += 1
        current.ingestion.committed(step)
        return Resumed(current.ingestion, steps, step.state)

    def _failed(self, worker: _Worker, message: str) -> int:
        with self._changed:
            self._record(worker, SourceStatus("stalled", message))
        return max(worker.interval_ms, _RETRY_MS)
