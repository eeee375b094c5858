"""Read policies: how far a collection's own read capability follows its write frontier.

A policy only proposes: whoever applies it never moves the capability back (`advance_by_policy`).
Source: spec controllers 1.7, 1.8, trap 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from slackwater.repr.frontier import EMPTY_FRONTIER, MINIMUM_FRONTIER, Frontier


class ReadPolicy(Protocol):
    """A monotone function of the upper, except that an empty upper says nothing."""

    def frontier(self, upper: Frontier) -> Frontier:
        """The read frontier that the policy asks for when the write frontier is `upper`."""
        ...


@dataclass(frozen=True, slots=True)
class NoPolicy:
    """Nobody has asked for a policy yet: the collection stays readable from `initial_since`."""

    initial_since: Frontier

    def frontier(self, upper: Frontier) -> Frontier:
        return self.initial_since


@dataclass(frozen=True, slots=True)
class ValidFrom:
    """Readable from `since` on, whatever is written. The empty frontier drops the collection."""

    since: Frontier

    def frontier(self, upper: Frontier) -> Frontier:
        return self.since


@dataclass(frozen=True, slots=True)
class LagWriteFrontier:
    """Readable from `lag_ms` before the upper, rounded down to a multiple of the granularity.

    The granularity is at most the lag. A closed collection keeps its since: the answer is the
    minimum, which no capability moves back to. A lag of 0 means since == upper: nothing is
    readable yet. ``granularity_ms=0`` is allowed only without a lag (ValueError), because there is
    nothing to round to.
    """

    lag_ms: int
    granularity_ms: int = 1

    def __post_init__(self) -> None:
        if self.lag_ms < 0 or self.granularity_ms < 0:
            raise ValueError("a lag and its granularity are not negative")
        if self.lag_ms and not self.granularity_ms:
            raise ValueError("a lag needs a granularity of at least 1 ms")

    def frontier(self, upper: Frontier) -> Frontier:
        if upper.is_empty:
            return MINIMUM_FRONTIER
        if not self.lag_ms:
            return upper
        lagged = max(upper.value - self.lag_ms, 0)
        return Frontier(lagged - lagged % min(self.lag_ms, self.granularity_ms))


STEP_BACK = LagWriteFrontier(1, 1)
"""Readable from the last complete time on: what whoever continues a collection needs of it."""

DROPPED = ValidFrom(EMPTY_FRONTIER)


def advance_by_policy(implied: Frontier, policy: ReadPolicy, upper: Frontier) -> Frontier:
    """The capability after the policy was asked: a policy can never win back history (1.8)."""
    return max(implied, policy.frontier(upper))
