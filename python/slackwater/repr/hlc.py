"""Times of a hybrid logical clock, as CockroachDB's changefeeds write them, and ranges of them.

A time is wall clock nanoseconds and a number that orders events within one nanosecond. Its text is
``<nanos>.<logical, ten digits>``. It looks like a decimal number and is none: as a float it loses
digits, and as a decimal the zeros that belong to it. Source: spec checkpoint 1.1 to 1.3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_MOST = 2**63 - 1
_LAST_LOGICAL = 2**31 - 1
_TEXT = re.compile(r"([0-9]+)\.(0+|[0-9]{10})", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Time:
    """A moment: `nanos` since the epoch, and the `logical` number of the event in it.

    Times order by nanos, then logical. `nanos` is negative only for what is before `ZERO`, which
    has no text that `parse` reads. Raises ValueError for numbers that do not fit into 64 bits and
    for a negative `logical`.
    """

    nanos: int = 0
    logical: int = 0

    def __post_init__(self) -> None:
        if not (-_MOST <= self.nanos <= _MOST and 0 <= self.logical <= _MOST):
            raise ValueError(f"({self.nanos}, {self.logical}) is no time that fits into 64 bits")

    @classmethod
    def parse(cls, text: str) -> Time:
        """The time that `text` says: ``<nanos>.<logical>``, of ten digits or all zeros.

        Raises ValueError for anything else, also for signs, blanks and what Go would read as
        octal or hexadecimal.
        """
        found = _TEXT.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise ValueError(
                f"cannot parse timestamp {text!r}: it must be <nanoseconds>.<ten digits or zeros>"
            )
        nanos = int(found[1]) if len(found[1].lstrip("0")) <= 19 else _MOST + 1
        if nanos > _MOST:
            raise ValueError(f"cannot parse timestamp {text!r}: its nanoseconds exceed 64 bits")
        return cls(nanos, int(found[2]))

    def __str__(self) -> str:
        return f"{self.nanos}.{self.logical:010d}"

    @property
    def next(self) -> Time:
        """The least time after this one; `logical` never carries into `nanos`."""
        return Time(self.nanos, self.logical + 1)

    @property
    def before(self) -> Time:
        """A time before this one: logical - 1, or the end of the nanosecond before.

        It undoes `next`. `next` does not undo it where `logical` is 0: a nanosecond counts as
        ended at 2147483647, as CockroachDB has it.
        """
        if self.logical > 0:
            return Time(self.nanos, self.logical - 1)
        return Time(self.nanos - 1, _LAST_LOGICAL)


ZERO = Time()
"""Before every event."""


@dataclass(frozen=True, slots=True)
class Range:
    """The times from `min` on and before `max`.

    As the bounds of a checkpoint group it says that everything up to and with `min` is done, and
    that everything before `max` may be. So `Range.including(t, t)`, which is not empty, has
    nothing left to do.
    """

    min: Time = ZERO
    max: Time = ZERO

    @classmethod
    def empty_at(cls, time: Time) -> Range:
        """The range without times at `time`; `Range()` is the one at `ZERO`."""
        return cls(time, time)

    @classmethod
    def including(cls, first: Time, last: Time) -> Range:
        """The smallest range that holds both."""
        return cls(first, last.next)

    @property
    def is_empty(self) -> bool:
        """Whether it holds no time."""
        return self.min >= self.max

    def __contains__(self, time: Time) -> bool:
        return self.min <= time < self.max

    @property
    def max_inclusive(self) -> Time:
        """The last time in it."""
        return self.max.before

    def extend(self, time: Time) -> Range:
        """The range as it has to be to hold `time` too."""
        if time < self.min:
            return Range(time, self.max)
        if time >= self.max:
            return Range(self.min, time.next)
        return self

    def with_min(self, time: Time) -> Range:
        """The part of the range after `time`.

        It is empty if `time` is the last one in the range, or later.
        """
        return Range.empty_at(time) if time >= self.max_inclusive else Range(time, self.max)

    def __str__(self) -> str:
        return f"[ {self.min} -> {self.max} )"
