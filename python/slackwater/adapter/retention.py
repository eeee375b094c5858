"""Since by policy: how much history a collection keeps.

A since is never stored for each tick. It follows from the upper by a pure, monotone function, so
that a tick, which moves one shared upper, costs nothing for each collection.

Source: spec controllers 1.7, coordinator 2.10; surface section 7.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slackwater.repr.frontier import Frontier, Timestamp

DEFAULT_RETAIN_MS = 1000


@dataclass(frozen=True, slots=True)
class Retention:
    """What a collection promises to keep.

    `since_floor` is where its history begins at all: the time of its creation, later the since
    to which its parts have been compacted. `retain_ms` is RETAIN HISTORY.
    """

    since_floor: Timestamp
    retain_ms: int = DEFAULT_RETAIN_MS

    def __post_init__(self) -> None:
        if self.retain_ms < 0:
            raise ValueError(f"history of {self.retain_ms} ms cannot be kept")


def policy_since(retention: Retention, upper: Frontier) -> Frontier:
    """The since that the policy alone asks for.

    Closing a collection says nothing about its history, so an empty upper gives the floor
    (spec controllers 1.7); `effective_since` then keeps what was reached before.
    """
    if upper.is_empty:
        return Frontier(retention.since_floor)
    return Frontier(max(retention.since_floor, upper.value - 1 - retention.retain_ms))


def effective_since(
    retention: Retention,
    upper: Frontier,
    holds: Iterable[Timestamp] = (),
    *,
    reached: Frontier | None = None,
) -> Frontier:
    """The since of a collection: the policy's, held back to the earliest hold.

    `reached` is a since that was announced before, below which the result never falls. The floor
    wins over a hold below it, because the floor's history is gone already. Monotone in `upper`
    (an empty one aside), in each hold, and in `reached`.
    """
    floor = Frontier(retention.since_floor)
    if reached is not None:
        floor = floor.join(reached)
    since = policy_since(retention, upper)
    for hold in holds:
        since = since.meet(Frontier(hold))
    return since.join(floor)
