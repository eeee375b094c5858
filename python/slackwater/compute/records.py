"""Records of the last ticks of each dataflow, for people to read. Their number is bounded."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from slackwater.repr.durations import Durations
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId

KEPT = 32
"""Of each dataflow so many ticks are kept."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of a program in one tick.

    `mode`: `delta`, it needs what has changed alone; `indexed`, it looks that up in an arrangement;
    `scanned`, in what a job has read of the inputs; `shared`, another dataflow has run the step;
    `recompute`, it computes the view as a whole.
    `reads`: the collections whose changes or rows it reads, and by which keys.
    """

    operator: str
    mode: str
    emitted: int
    looked_up: int
    elapsed_us: int
    reads: str | None = None


@dataclass(frozen=True, slots=True)
class TickTimes:
    """The time that a tick took, divided by purpose. The query was parsed with the view's creation.

    `plan_us`: to make its program; `load_us`: to hydrate what that keeps and to read what has
    changed; `encode_us`: to bring requests and updates from one process to the other, and into
    parts. `compute_us` is the rest of what came before the commit.
    """

    plan_us: int
    load_us: int
    compute_us: int
    encode_us: int
    commit_us: int

    @property
    def whole_us(self) -> int:
        return self.plan_us + self.load_us + self.compute_us + self.encode_us + self.commit_us


@dataclass(frozen=True, slots=True)
class TickRecord:
    """One tick that was committed, over ``[lower, upper)``.

    `scanned` are the rows that were read whole, `looked_up` those that arrangements gave, `emitted`
    those of the output. `steps` are those of a program; a tick by queries has one.
    """

    global_id: GlobalId
    lower: Timestamp
    upper: Timestamp
    committed_ms: int
    by_program: bool
    scanned: int
    emitted: int
    times: TickTimes
    steps: tuple[StepRecord, ...] = ()

    @property
    def looked_up(self) -> int:
        return sum(step.looked_up for step in self.steps)


@dataclass(frozen=True, slots=True)
class FailureCount:
    """The number of ticks of a dataflow that have failed with a condition."""

    condition: str
    number: int


@dataclass(frozen=True, slots=True)
class TickTotals:
    """The ticks of a dataflow since the replica has it: those that were committed, and failures.

    `followed` are the durations of ticks by its program, `recomputed` of the others. `scanned`,
    `looked_up` and `emitted` are sums over `TickRecord`.
    """

    global_id: GlobalId
    followed: Durations = field(default_factory=Durations)
    recomputed: Durations = field(default_factory=Durations)
    scanned: int = 0
    looked_up: int = 0
    emitted: int = 0
    failures: tuple[FailureCount, ...] = ()

    def and_tick(self, tick: TickRecord) -> TickTotals:
        """These, and one more that was committed."""
        took_s = tick.times.whole_us / 1_000_000
        counted = replace(
            self,
            scanned=self.scanned + tick.scanned,
            looked_up=self.looked_up + tick.looked_up,
            emitted=self.emitted + tick.emitted,
        )
        if tick.by_program:
            return replace(counted, followed=self.followed.and_one(took_s))
        return replace(counted, recomputed=self.recomputed.and_one(took_s))

    def and_failure(self, condition: str) -> TickTotals:
        """These, and one that has failed."""
        numbers = {each.condition: each.number for each in self.failures}
        numbers[condition] = numbers.get(condition, 0) + 1
        return replace(self, failures=tuple(FailureCount(*each) for each in numbers.items()))


@dataclass(frozen=True, slots=True)
class HydrationProgress:
    """A dataflow that reads whole inputs, for `elapsed_ms` until now.

    `rows_read` counts a row each time that it is read, `rows` once for each input that has it.
    """

    global_id: GlobalId
    rows_read: int
    rows: int
    elapsed_ms: int

    def __str__(self) -> str:
        """The share of what has to be read at least: 99 % while it reads rows again."""
        share = min(100 * self.rows_read // self.rows, 99) if self.rows else 0
        return f"{share} %: {self.rows_read:,} of {self.rows:,} rows"


@dataclass(frozen=True, slots=True)
class HydrationRecord:
    """The times, by the wall clock, at which a dataflow came to a replica and was hydrated there.

    `installed_ms`: the replica was told of it; `started_ms`: its turn came; `hydrated_ms`: the
    replica had its contents at the as-of. None: not yet.
    """

    global_id: GlobalId
    installed_ms: int
    started_ms: int | None = None
    hydrated_ms: int | None = None


@dataclass(slots=True)
class HydrationRecords:
    """The hydration of each dataflow that the replica has. Thread-safe."""

    clock_ms: Callable[[], int]
    _known: dict[GlobalId, HydrationRecord] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def installed(self, global_id: GlobalId) -> None:
        with self._lock:
            self._known[global_id] = HydrationRecord(global_id, self.clock_ms())

    def started(self, global_id: GlobalId) -> None:
        with self._lock:
            known = self._known.get(global_id)
            if known is not None and known.started_ms is None:
                self._known[global_id] = replace(known, started_ms=self.clock_ms())

    def hydrated(self, global_id: GlobalId) -> None:
        with self._lock:
            known = self._known.get(global_id)
            if known is not None and known.hydrated_ms is None:
                self._known[global_id] = replace(known, hydrated_ms=self.clock_ms())

    def forget(self, global_id: GlobalId) -> None:
        with self._lock:
            self._known.pop(global_id, None)

    def all(self) -> Sequence[HydrationRecord]:
        with self._lock:
            return list(self._known.values())


@dataclass(frozen=True, slots=True)
class ArrangementSize:
    """An arrangement: an index in memory in which the ticks of `readers` look rows up.

    `number` is never used again while the driver runs. `collections`: those whose rows it has, in
    `records` updates and in `size_bytes` of memory outside the heap.
    """

    number: int
    collections: tuple[GlobalId, ...]
    records: int
    size_bytes: int
    readers: tuple[GlobalId, ...]


@dataclass(frozen=True, slots=True)
class ArrangementMemory:
    """The room for the arrangements of a replica, in bytes: what is taken of it, and its limit.

    `where`: `memory`, or `files` for what the memory has no room for.
    """

    where: str
    used_bytes: int
    limit_bytes: int


@dataclass(slots=True)
class TickRecords:
    """The last ticks of each dataflow, and totals of all that it made. Thread-safe."""

    _ticks: dict[GlobalId, deque[TickRecord]] = field(default_factory=dict)
    _totals: dict[GlobalId, TickTotals] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, record: TickRecord) -> None:
        with self._lock:
            self._ticks.setdefault(record.global_id, deque(maxlen=KEPT)).append(record)
            self._totals[record.global_id] = self._total(record.global_id).and_tick(record)

    def failed(self, global_id: GlobalId, condition: str) -> None:
        """Counts a tick that has failed."""
        with self._lock:
            self._totals[global_id] = self._total(global_id).and_failure(condition)

    def _total(self, global_id: GlobalId) -> TickTotals:
        return self._totals.get(global_id) or TickTotals(global_id)

    def forget(self, global_id: GlobalId) -> None:
        with self._lock:
            self._ticks.pop(global_id, None)
            self._totals.pop(global_id, None)

    def totals(self) -> Sequence[TickTotals]:
        """The totals of each dataflow that has ticked or failed."""
        with self._lock:
            return list(self._totals.values())

    def last(self, global_id: GlobalId) -> TickRecord | None:
        with self._lock:
            ticks = self._ticks.get(global_id)
            return ticks[-1] if ticks else None

    def all(self) -> Sequence[TickRecord]:
        """The earliest of each dataflow first."""
        with self._lock:
            return [record for ticks in self._ticks.values() for record in ticks]
