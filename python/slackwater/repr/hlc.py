"""A hybrid logical clock: wall clock time that never goes back and orders cause before effect.

A value is a wall clock time in milliseconds and a counter for events within one of them. Values
order by time, then counter. `tick` and `observe` are pure: the caller keeps the last value.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class HybridTime:
    """A moment: `physical_ms` since the epoch, and the `logical` number of the event in it."""

    physical_ms: int
    logical: int = 0

    def __post_init__(self) -> None:
        if self.physical_ms < 0 or self.logical < 0:
            raise ValueError(f"({self.physical_ms}, {self.logical}) is not a moment")


def tick(last: HybridTime, now_ms: int) -> HybridTime:
    """The moment of a local event: after `last`, and not before the wall clock."""
    if now_ms > last.physical_ms:
        return HybridTime(now_ms)
    return HybridTime(last.physical_ms, last.logical + 1)


def observe(last: HybridTime, received: HybridTime, now_ms: int) -> HybridTime:
    """The moment at which a message with the moment `received` arrives: after both."""
    return tick(max(last, received), now_ms)
