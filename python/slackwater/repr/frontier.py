"""Timestamps and frontiers.

A timestamp is a whole number of milliseconds since the epoch. Time is totally ordered, so an
antichain has at most one element; `Frontier` is that antichain. A frontier `f` stands for the
set of times that are still possible: ``{t : f <= t}``. The empty frontier (nothing is possible
any more, the collection is closed) is the largest value.

Source: spec controllers 1.2 and 1.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

Timestamp = NewType("Timestamp", int)

TIMESTAMP_MIN = Timestamp(0)
TIMESTAMP_MAX = Timestamp(2**63 - 1)
"""Never the time of an update: as a frontier it means "closed for ever"."""


@dataclass(frozen=True, slots=True, order=True)
class Frontier:
    """An antichain over one total order.

    For all times t and all frontiers f and g::

        f.allows(t)          =  f.value <= t, and f is not empty
        f <= g               =  every time that g allows is allowed by f
        f.join(g).allows(t)  =  f.allows(t) and g.allows(t)
        f.meet(g).allows(t)  =  f.allows(t) or g.allows(t)

    Frontiers compare by progress. A frontier has no truth value, because an empty one is not
    "false".
    """

    value: int

    def __post_init__(self) -> None:
        if not 0 <= self.value <= TIMESTAMP_MAX:
            raise ValueError(f"{self.value} is not a timestamp in milliseconds")

    def __bool__(self) -> bool:
        raise TypeError("a frontier has no truth value; use is_empty or compare it")

    @property
    def is_empty(self) -> bool:
        return self.value == TIMESTAMP_MAX

    def allows(self, time: Timestamp) -> bool:
        """Whether an update at `time` may still appear."""
        return not self.is_empty and self.value <= time

    def join(self, other: Frontier) -> Frontier:
        """The times that both allow: the later frontier."""
        return max(self, other)

    def meet(self, other: Frontier) -> Frontier:
        """The times that either allows: the earlier frontier."""
        return min(self, other)

    def last_complete(self) -> Timestamp:
        """The greatest time whose contents cannot change any more; 0 if there is none.

        MAX for the empty frontier (spec coordinator 2.4: L = upper - 1).
        """
        return TIMESTAMP_MAX if self.is_empty else Timestamp(max(0, self.value - 1))

    def as_list(self) -> list[int]:
        """The elements of the antichain, for JSON."""
        return [] if self.is_empty else [self.value]

    def as_nullable(self) -> int | None:
        """The element, or None for the empty frontier, for SQL columns."""
        return None if self.is_empty else self.value


EMPTY_FRONTIER = Frontier(TIMESTAMP_MAX)
MINIMUM_FRONTIER = Frontier(TIMESTAMP_MIN)
