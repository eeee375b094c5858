"""Checkpoints in memory: for tests, and for groups that may be forgotten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

from slackwater.checkpoints.bounds import Checkpoint, PartitionProgress, bounds, progress
from slackwater.checkpoints.listeners import GroupListeners
from slackwater.checkpoints.store import FIRST, GoingBackwards, GroupState, GroupSubscription
from slackwater.repr.hlc import ZERO, Range, Time


@dataclass(slots=True)
class _Kept:
    committed: Time = ZERO
    partitions: dict[str, list[Checkpoint]] = field(default_factory=dict)

    def progress(self, lookahead: int | None) -> tuple[PartitionProgress, ...]:
        found = (progress(name, rows, lookahead) for name, rows in self.partitions.items())
        return tuple(each for each in found if each is not None)


class MemoryStore:
    """A `Store` for the groups of one process. Nothing of it outlives the process."""

    def __init__(self) -> None:
        self._groups: dict[str, _Kept] = {}
        self._lock = Lock()
        self._listeners = GroupListeners()

    def advance(self, group: str, partition: str, time: Time) -> None:
        with self._lock:
            rows = self._kept(group).partitions.setdefault(partition, [])
            if rows and time < rows[-1].time:
                raise GoingBackwards(group, partition, time, rows[-1].time)
            if not rows or time > rows[-1].time:
                rows.append(Checkpoint(time, applied=False))
        self._listeners.tell(group)

    def commit(self, group: str, done: Range) -> None:
        with self._lock:
            kept = self._kept(group)
            for rows in kept.partitions.values():
                rows[:] = [replace(row, applied=row.applied or row.time in done) for row in rows]
            kept.committed = bounds(kept.progress(None), kept.committed).min
        self._listeners.tell(group)

    def ensure(self, group: str, partitions: Sequence[str]) -> None:
        with self._lock:
            kept = self._kept(group)
            for name in partitions:
                if not kept.partitions.get(name):
                    kept.partitions[name] = [Checkpoint(FIRST, applied=True)]
        self._listeners.tell(group)

    def raise_committed(self, group: str, committed: Time) -> None:
        with self._lock:
            kept = self._kept(group)
            kept.committed = max(kept.committed, committed)

    def state(self, group: str, lookahead: int | None) -> GroupState:
        with self._lock:
            kept = self._kept(group)
            return GroupState(kept.committed, kept.progress(lookahead))

    def pending(self) -> list[str]:
        with self._lock:
            return sorted(
                name
                for name, kept in self._groups.items()
                if any(not row.applied for rows in kept.partitions.values() for row in rows)
            )

    def prune(self, group: str) -> int:
        pruned = 0
        with self._lock:
            kept = self._kept(group)
            for each in kept.progress(None):
                rows = kept.partitions[each.partition]
                lead = each.lead
                if lead is not None:
                    left = [row for row in rows if row.time >= lead]
                    pruned += len(rows) - len(left)
                    rows[:] = left
        return pruned

    def listen(self, group: str, wake: Callable[[], None]) -> GroupSubscription:
        """Calls `wake` after each advance, commit and declaration, as `Store.listen` promises."""
        return self._listeners.add(group, wake)

    def _kept(self, group: str) -> _Kept:
        return self._groups.setdefault(group, _Kept())
