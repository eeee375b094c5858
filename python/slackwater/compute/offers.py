"""Offers: a replica gives the leader what it has computed, and learns how far the output is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from slackwater.compute.controller.protocol import Computed, ReplicaResponse
from slackwater.compute.dataflow import Dataflow, Offered
from slackwater.compute.staged_parts import bytes_of
from slackwater.persist.appends import Append, UpperMismatch
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.ids import GlobalId

Respond = Callable[[Sequence[ReplicaResponse]], None]


class Offers:
    """`slackwater.compute.dataflow.Outputs` of a replica, which writes nothing itself.

    Each call waits until the leader has said how far the outputs are: that is the answer to an
    offer, whoever's was taken. The leader is `respond`; one in this process raises what its commit
    raised.
    """

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self._said = threading.Condition()
        self._uppers: dict[GlobalId, Frontier] = {}
        self._answers: dict[GlobalId, int] = {}
        """Counts how often the leader has said where each output is."""
        self._is_closed = False

    # What the replica is told

    def create(self, global_id: GlobalId) -> None:
        """There is such an output from now on."""
        with self._said:
            self._answers[global_id] = 0

    def output_is_at(self, global_id: GlobalId, upper: Frontier) -> None:
        """The output is complete up to `upper`."""
        with self._said:
            if global_id in self._answers:
                self._answers[global_id] += 1
                self._uppers[global_id] = max(upper, self._uppers.get(global_id, upper))
                self._said.notify_all()

    def drop(self, global_id: GlobalId) -> None:
        """Nobody wants the output any more."""
        with self._said:
            self._answers.pop(global_id, None)
            self._uppers.pop(global_id, None)
            self._said.notify_all()

    def close(self) -> None:
        """There will be no answers any more."""
        with self._said:
            self._is_closed = True
            self._said.notify_all()

    # What the worker does

    def append(self, offered: Sequence[Offered]) -> Sequence[UpperMismatch | None]:
        """Offers the rows and the errors of views, each over one interval."""
        self._offer([_computed(flow, *appends) for flow, appends in offered])
        return [self._refusal(flow, rows) for flow, (rows, _) in offered]

    def _refusal(self, flow: Dataflow, rows: Append) -> UpperMismatch | None:
        with self._said:
            reached = self._uppers.get(flow.global_id, Frontier(rows.lower))
        # The interval of another replica may have another end: then this one was not taken.
        if reached < Frontier(rows.upper):
            return UpperMismatch(rows.shard_id, rows.lower, Timestamp(reached.value))
        return None

    def advance(self, moves: Sequence[tuple[Dataflow, Timestamp, Timestamp]]) -> None:
        """Offers intervals in which nothing happens."""
        self._offer(
            [
                Computed(flow.global_id, Frontier(lower), Frontier(upper))
                for flow, lower, upper in moves
            ]
        )

    def _offer(self, offers: Sequence[Computed]) -> None:
        with self._said:
            before = {
                each.id: self._answers[each.id] for each in offers if each.id in self._answers
            }
        self._respond(offers)
        with self._said:
            self._said.wait_for(lambda: self._is_closed or self._are_answered(before))

    def _are_answered(self, before: Mapping[GlobalId, int]) -> bool:
        return all(self._answers.get(each) != answers for each, answers in before.items())


def _computed(flow: Dataflow, rows: Append, errors: Append) -> Computed:
    lower, upper = Frontier(rows.lower), Frontier(rows.upper)
    return Computed(flow.global_id, lower, upper, bytes_of(rows.parts), bytes_of(errors.parts))
