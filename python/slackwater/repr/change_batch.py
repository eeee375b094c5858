"""Multisets of times: a delta of one, and one whose frontier is known at any moment.

Times are never the empty frontier: an empty frontier contributes no element. Source: spec
controllers 1.5, 2.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier, Timestamp

_STALE_HEAP_ENTRIES = 64


class ChangeBatch:
    """A delta ``{time: change of its count}``, always consolidated: no count is zero."""

    __slots__ = ("_counts",)

    def __init__(self, changes: Iterable[tuple[Timestamp, int]] = ()) -> None:
        self._counts: dict[Timestamp, int] = {}
        for time, diff in changes:
            self.update(time, diff)

    @staticmethod
    def move(old: Frontier, new: Frontier) -> ChangeBatch:
        """One entry that moves from `old` to `new`; an empty frontier has no entry."""
        batch = ChangeBatch()
        if old != new:
            batch.add_frontier(old, -1)
            batch.add_frontier(new, 1)
        return batch

    def update(self, time: Timestamp, diff: int) -> None:
        count = self._counts.get(time, 0) + diff
        if count:
            self._counts[time] = count
        else:
            self._counts.pop(time, None)

    def add_frontier(self, frontier: Frontier, diff: int) -> None:
        if not frontier.is_empty:
            self.update(Timestamp(frontier.value), diff)

    def extend(self, other: ChangeBatch) -> None:
        for time, diff in other.items():
            self.update(time, diff)

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes: the net of every time is zero."""
        return not self._counts

    @property
    def only_releases(self) -> bool:
        """Whether no count grows."""
        return all(diff < 0 for diff in self._counts.values())

    def items(self) -> Iterator[tuple[Timestamp, int]]:
        """Times and their net changes, in order of time."""
        return iter(sorted(self._counts.items()))

    def unordered(self) -> Iterable[tuple[Timestamp, int]]:
        """Times and their net changes."""
        return self._counts.items()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChangeBatch) and self._counts == other._counts

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ChangeBatch({list(self.items())})"


class MutableAntichain:
    """A counted multiset of times. Its frontier is the least time; empty if there is none.

    Looking at the frontier is constant, a change logarithmic in the number of distinct times.
    """

    __slots__ = ("_counts", "_heap")

    def __init__(self) -> None:
        self._counts: dict[Timestamp, int] = {}
        self._heap: list[Timestamp] = []

    @property
    def frontier(self) -> Frontier:
        return Frontier(self._heap[0]) if self._heap else EMPTY_FRONTIER

    @property
    def least(self) -> Timestamp | None:
        """The element of the frontier."""
        return self._heap[0] if self._heap else None

    def items(self) -> Iterator[tuple[Timestamp, int]]:
        """Times with their counts, all of them positive, in order of time."""
        return iter(sorted(self._counts.items()))

    def apply(self, batch: ChangeBatch) -> ChangeBatch:
        """Applies the delta and returns how the frontier moved: nothing, or one entry's move.

        The counts never become negative and no count appears before the frontier, which would
        let it go back: FatalError, and nothing is changed (spec controllers 2.2, I9, I12).
        """
        before = self.least
        changes = list(batch.unordered())
        for time, diff in changes:
            self._check(time, diff, before)
        for time, diff in changes:
            self._update(time, diff)
        while self._heap and self._heap[0] not in self._counts:
            heappop(self._heap)
        after = self.least
        if before == after:
            return ChangeBatch()
        return ChangeBatch.move(
            EMPTY_FRONTIER if before is None else Frontier(before),
            EMPTY_FRONTIER if after is None else Frontier(after),
        )

    def install(self, frontier: Frontier) -> None:
        """The first entry of an empty multiset."""
        if self._counts:
            raise FatalError("the first capability is installed before any other")
        if not frontier.is_empty:
            self._update(Timestamp(frontier.value), 1)

    def _check(self, time: Timestamp, diff: int, least: Timestamp | None) -> None:
        count = self._counts.get(time, 0) + diff
        if count < 0:
            raise FatalError(f"a capability at {time} was released more often than it was taken")
        if diff > 0 and (least is None or time < least):
            raise FatalError(f"a capability at {time} would move the frontier {least} back")

    def _update(self, time: Timestamp, diff: int) -> None:
        before = self._counts.get(time, 0)
        count = before + diff
        if count == 0:
            del self._counts[time]
            if len(self._heap) > 2 * len(self._counts) + _STALE_HEAP_ENTRIES:
                # One old entry would otherwise keep all times that came and went.
                self._heap = list(self._counts)
                heapify(self._heap)
            return
        self._counts[time] = count
        if before == 0:
            heappush(self._heap, time)
