"""What the last ticks of each dataflow did: kept in bounded number, for people to read."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId

KEPT = 32
"""Of each dataflow so many ticks are kept."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of a program in one tick."""

    operator: str
    emitted: int
    looked_up: int
    elapsed_us: int


@dataclass(frozen=True, slots=True)
class TickRecord:
    """One tick that was committed, over ``[lower, upper)``.

    `scanned` are the rows that were read whole, `looked_up` those that arrangements gave, `emitted`
    those of the output. `compute_us` is all that comes before the commit. `steps` are those of a
    program; a tick by queries has none.
    """

    global_id: GlobalId
    lower: Timestamp
    upper: Timestamp
    committed_ms: int
    by_program: bool
    scanned: int
    emitted: int
    compute_us: int
    commit_us: int
    steps: tuple[StepRecord, ...] = ()

    @property
    def looked_up(self) -> int:
        return sum(step.looked_up for step in self.steps)


@dataclass(slots=True)
class TickRecords:
    """The last ticks of each dataflow. Thread-safe."""

    _ticks: dict[GlobalId, deque[TickRecord]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, record: TickRecord) -> None:
        with self._lock:
            self._ticks.setdefault(record.global_id, deque(maxlen=KEPT)).append(record)

    def forget(self, global_id: GlobalId) -> None:
        with self._lock:
            self._ticks.pop(global_id, None)

    def last(self, global_id: GlobalId) -> TickRecord | None:
        with self._lock:
            ticks = self._ticks.get(global_id)
            return ticks[-1] if ticks else None

    def all(self) -> Sequence[TickRecord]:
        """The earliest of each dataflow first."""
        with self._lock:
            return [record for ticks in self._ticks.values() for record in ticks]
