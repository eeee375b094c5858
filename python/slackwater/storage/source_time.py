"""Positions in a source, and frontiers of positions.

A source is a fixed number of partitions, most have one; in each partition messages are numbered.
Positions of different partitions cannot be compared, so a frontier has one position for each
partition that may still bring messages.

Source: spec controllers 5.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


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
class SourceFrontier:
    """An antichain of positions: what is at or behind one of them may still come.

    The empty frontier is the largest: the source has ended. A frontier has no truth value, because
    an empty one is not "false". Made by `of` and `minimum`, which keep `positions` sorted.
    """

    positions: tuple[Position, ...]

    def __bool__(self) -> bool:
        raise TypeError("a frontier has no truth value; use is_empty or compare it")

    @staticmethod
    def of(positions: Iterable[Position]) -> SourceFrontier:
        """The frontier of the earliest of these positions."""
        least: dict[int, Position] = {}
        for position in positions:
            known = least.get(position.partition)
            if known is None or position.offset < known.offset:
                least[position.partition] = position
        return SourceFrontier(tuple(sorted(least.values())))

    @staticmethod
    def minimum(partitions: int = 1) -> SourceFrontier:
        """Everything may still come."""
        return SourceFrontier(tuple(Position(number, 0) for number in range(partitions)))

    @staticmethod
    def at(offset: int) -> SourceFrontier:
        """The frontier of a source with one partition, before its message number `offset`."""
        return SourceFrontier((Position(0, offset),))

    @property
    def is_empty(self) -> bool:
        return len(self.positions) == 0

    def allows(self, position: Position) -> bool:
        """Whether a message at `position` may still come."""
        return any(each.precedes(position) for each in self.positions)

    def not_after(self, other: SourceFrontier) -> bool:
        """Whether all that `other` allows is allowed by this frontier."""
        return all(self.allows(position) for position in other.positions)

    def before(self, other: SourceFrontier) -> bool:
        """Whether `other` has gone on from here."""
        return self != other and self.not_after(other)
