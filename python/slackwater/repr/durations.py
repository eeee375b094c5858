"""Durations of what happens often, as one value of fixed size: what a histogram is made of."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate

BOUNDS_S = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0)
"""The bounds of all histograms, in seconds, from a look-up to a hydration."""


@dataclass(frozen=True, slots=True)
class Durations:
    """The number of durations between two bounds, each, and their sum.

    `counts` has a number for each of `BOUNDS_S`, of those up to it and above the bound before, and
    one more for those above all.
    """

    counts: tuple[int, ...] = (0,) * (len(BOUNDS_S) + 1)
    sum_s: float = 0.0

    @property
    def number(self) -> int:
        """The number of all."""
        return sum(self.counts)

    @property
    def up_to(self) -> tuple[int, ...]:
        """The numbers of those up to each bound, and of all."""
        return tuple(accumulate(self.counts))

    def and_one(self, took_s: float) -> Durations:
        """These, and one of so many seconds."""
        at = bisect_left(BOUNDS_S, took_s)
        counts = (*self.counts[:at], self.counts[at] + 1, *self.counts[at + 1 :])
        return Durations(counts, self.sum_s + took_s)
