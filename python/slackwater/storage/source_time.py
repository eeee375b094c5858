"""Positions in a source, and frontiers of positions.

A source consists of partitions, most have one; in each partition messages are numbered. Positions
of different partitions cannot be compared, so a frontier has one position for each partition that
may still bring messages. Partitions may be added while a source runs: then a frontier also says
from which number on nothing was read of any partition.

Source: spec controllers 5.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The place of a message: its number within its partition. Both count from 0.

    The order of the class is only for sorting; `precedes` is the order of time.
    """

    partition: int
    offset: int

    def __post_init__(self) -> None:
        if self.partition < 0 or self.offset < 0:
            raise ValueError(f"{self} is not a position")

    def precedes(self, other: Position) -> bool:
        """Whether `other` is at this position or behind it."""
        return self.partition == other.partition and self.offset <= other.offset


@dataclass(frozen=True, slots=True)
class Unread:
    """All partitions from the number `first` on, of which nothing was read; most may not exist."""

    first: int

    def __post_init__(self) -> None:
        if self.first < 0:
            raise ValueError(f"{self} are no partitions")


Element: TypeAlias = Position | Unread
"""One element of a frontier."""


@dataclass(frozen=True, slots=True)
class SourceFrontier:
    """An antichain of elements: what is at or behind one of them may still come.

    `unread` None: no partition comes that has no position here. The empty frontier is the largest:
    the source has ended. A frontier has no truth value, because an empty one is not "false". Made
    by `of` and `minimum`, which keep `positions` sorted, and what is unread in one element.
    """

    positions: tuple[Position, ...]
    unread: Unread | None = None

    def __bool__(self) -> bool:
        raise TypeError("a frontier has no truth value; use is_empty or compare it")

    @staticmethod
    def of(elements: Iterable[Element]) -> SourceFrontier:
        """The frontier of the earliest of these elements."""
        least: dict[int, int] = {}
        firsts: list[int] = []
        for each in elements:
            if isinstance(each, Unread):
                firsts.append(each.first)
            else:
                least[each.partition] = min(each.offset, least.get(each.partition, each.offset))
        if not firsts:
            return SourceFrontier(tuple(Position(*each) for each in sorted(least.items())))
        first = min(firsts)
        while first > 0 and least.get(first - 1) == 0:
            first -= 1
        known = (Position(*each) for each in sorted(least.items()) if each[0] < first)
        return SourceFrontier(tuple(known), Unread(first))

    @staticmethod
    def minimum(partitions: int | None = 1) -> SourceFrontier:
        """Everything may still come. `partitions` None: of as many partitions as there will be."""
        if partitions is None:
            return SourceFrontier((), Unread(0))
        return SourceFrontier(tuple(Position(number, 0) for number in range(partitions)))

    @staticmethod
    def at(offset: int) -> SourceFrontier:
        """The frontier of a source with one partition, before its message number `offset`."""
        return SourceFrontier((Position(0, offset),))

    @property
    def elements(self) -> tuple[Element, ...]:
        return self.positions if self.unread is None else (*self.positions, self.unread)

    @property
    def is_empty(self) -> bool:
        return not self.positions and self.unread is None

    def offset(self, partition: int) -> int | None:
        """The first offset of the partition that may still come; None: none does."""
        found = (each.offset for each in self.positions if each.partition == partition)
        unread = self.unread is not None and self.unread.first <= partition
        return next(found, 0 if unread else None)

    def allows(self, position: Position) -> bool:
        """Whether a message at `position` may still come."""
        first = self.offset(position.partition)
        return first is not None and first <= position.offset

    def not_after(self, other: SourceFrontier) -> bool:
        """Whether all that `other` allows is allowed by this frontier."""
        if not all(self.allows(position) for position in other.positions):
            return False
        if other.unread is None:
            return True
        # Of the partitions that are unread there, those that have a position here were read.
        return self.unread is not None and self.unread.first <= other.unread.first

    def before(self, other: SourceFrontier) -> bool:
        """Whether `other` has gone on from here."""
        return self != other and self.not_after(other)
