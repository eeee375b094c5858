"""The choice between following a change and recomputing the view. No I/O, no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from slackwater.persist.parts import Part
from slackwater.repr.frontier import Timestamp

INCREMENTAL_BELOW_ROWS = 100_000
"""Fewer changes than these are followed: what they cost is not worth a question."""

TICK_US_PER_CHANGE = 30.0
WHOLE_US_PER_ROW = 3.0
HYDRATE_US_PER_ROW = 4.0
"""Cost per row in microseconds, assumed until this view has been measured."""

READ_BELIEVED = 0.95
"""The share of a reading tick's cost that still counts after each recomputation since."""


@dataclass(slots=True)
class CostModel:
    """The measured costs of one view's ticks, in microseconds. Not thread-safe.

    A view that is recomputed has to hydrate its program again before it follows changes: the cost
    of a recomputation includes that of the hydration.

    Not guaranteed: that its choice is the cheaper one. Rows that a join multiplies, or that a tick
    looks up, are in no estimate; who recomputes or ticks bounds it by time and by memory.
    """

    incremental_below_rows: int = INCREMENTAL_BELOW_ROWS
    """Fewer changes are followed, and tell nothing of what many cost."""
    tick_us_per_change: float = TICK_US_PER_CHANGE
    whole_us_per_row: float = WHOLE_US_PER_ROW
    hydrate_us_per_row: float = HYDRATE_US_PER_ROW
    _read_us: float = field(default=0.0, init=False)
    """Of the last tick that read what it looked up; believed less whenever it is not done again."""
    _whole_us: float = field(default=0.0, init=False)
    """To compute the view, the last time."""

    def ticked(self, changes: int, took_us: int) -> None:
        """A tick of the program has followed so many changes."""
        if changes >= self.incremental_below_rows:
            self.tick_us_per_change = took_us / changes

    def computed(self, rows: int, took_us: int) -> None:
        """The view was computed out of so many rows of its inputs."""
        self._whole_us = took_us
        self._read_us *= READ_BELIEVED
        if rows >= self.incremental_below_rows:
            self.whole_us_per_row = took_us / rows

    def hydrated(self, rows: int, took_us: int) -> None:
        """The program was hydrated out of so many rows of its inputs."""
        if rows >= self.incremental_below_rows:
            self.hydrate_us_per_row = took_us / rows

    def read(self, took_us: int) -> None:
        """A tick of the program has read what it looked up."""
        self._read_us = took_us

    def recompute_and_not_read(self) -> bool:
        """Whether to recompute where a tick would have to read what it looks up."""
        return 0 < self._whole_us < self._read_us

    def may_recompute(self, changes: int) -> bool:
        """Whether it is worth asking."""
        return changes >= self.incremental_below_rows

    def recompute(self, changes: int, rows: int) -> bool:
        """Whether to recompute over `rows` of input, and not to follow so many changes."""
        if not self.may_recompute(changes):
            return False
        whole_us = rows * (self.whole_us_per_row + self.hydrate_us_per_row)
        return changes * self.tick_us_per_change > whole_us

    def most_whole_us(self, rows: int) -> int:
        """The time after which it was wrong to recompute over `rows` of input: twice the estimate.

        A join may have far more rows than its inputs, which no measure of these tells.
        """
        return int(2 * rows * self.whole_us_per_row)


def changed_rows(parts: Iterable[Part]) -> list[tuple[Timestamp, int]]:
    """The times at which rows change, ascending, and how many.

    Parts over several times do not say when: their rows, and the times that they span, are not
    among it.
    """
    parts = tuple(parts)
    spanning = [part for part in parts if part.min_time < part.max_time]
    found: Counter[Timestamp] = Counter()
    for part in parts:
        at = part.min_time
        if at == part.max_time and not any(s.min_time <= at <= s.max_time for s in spanning):
            found[at] += part.rows
    return sorted(found.items())
