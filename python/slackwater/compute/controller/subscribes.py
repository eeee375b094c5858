"""Subscriptions and copies that have not ended: one output from many replicas.

Source: spec controllers 4.9, I45.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from slackwater.compute.controller.effects import DeliverSubscribe
from slackwater.compute.controller.protocol import SubscribeBatch
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import MINIMUM_FRONTIER, Frontier
from slackwater.repr.ids import GlobalId


@dataclass(slots=True)
class Subscribes:
    """The subscriptions, each with its frontier, and the copies. Not thread-safe.

    Whatever replicas send, what is delivered for a subscription are the updates of one replica that
    never fails: intervals that follow on one another from 0 on, each update once, none at or after
    `until`. An error is the last that is delivered.
    """

    _frontiers: dict[GlobalId, Frontier] = field(default_factory=dict)
    _until: dict[GlobalId, Frontier] = field(default_factory=dict)
    _copies: set[GlobalId] = field(default_factory=set)

    def open(self, global_id: GlobalId, until: Frontier) -> None:
        """A subscription begins."""
        self._frontiers[global_id] = MINIMUM_FRONTIER
        self._until[global_id] = until

    def open_copy(self, global_id: GlobalId) -> None:
        """A copy begins."""
        self._copies.add(global_id)

    def frontier(self, global_id: GlobalId) -> Frontier | None:
        """The frontier up to which updates were delivered; None when nobody follows it."""
        return self._frontiers.get(global_id)

    def deliver(self, batch: SubscribeBatch) -> DeliverSubscribe | None:
        """The new part of the batch, if it has any."""
        reached = self._frontiers.get(batch.id)
        if reached is None or batch.upper <= reached:
            return None
        until = self._until[batch.id]
        if batch.upper.is_empty or batch.error is not None:
            self.close(batch.id)
        else:
            self._frontiers[batch.id] = batch.upper
        if batch.error is not None:
            return DeliverSubscribe(batch.id, reached, batch.upper, error=batch.error)
        new = tuple(u for u in batch.updates if reached.value <= u.time < until.value)
        return DeliverSubscribe(batch.id, reached, batch.upper, new)

    def fail(self, global_id: GlobalId, error: str) -> DeliverSubscribe | None:
        """The last that is delivered for a subscription, if it has not ended."""
        reached = self._frontiers.get(global_id)
        if reached is None:
            return None
        self.close(global_id)
        return DeliverSubscribe(global_id, reached, reached, error=error)

    def close(self, global_id: GlobalId) -> bool:
        """Nobody follows the subscription or copy any more. False if nobody did."""
        self._until.pop(global_id, None)
        was_copy = global_id in self._copies
        self._copies.discard(global_id)
        return self._frontiers.pop(global_id, None) is not None or was_copy

    def is_copied(self, global_id: GlobalId) -> bool:
        """True while the copy has no answer."""
        return global_id in self._copies

    def validate(self) -> None:
        """Raises FatalError unless each subscription that has not ended can go on."""
        for global_id, frontier in self._frontiers.items():
            if frontier.is_empty or global_id not in self._until:
                raise FatalError(f"the subscription {global_id} has ended")
