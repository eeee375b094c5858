"""The seam below a group: the store that keeps its checkpoints.

A store knows names as they are given; `Group` gives it canonical ones. All of its methods may be
called from several threads. Source: spec checkpoint 2.1, 5.2, 5.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from slackwater.checkpoints.bounds import PartitionProgress
from slackwater.repr.errors import FatalError
from slackwater.repr.hlc import ZERO, Range, Time

FIRST = Time(1, 1)
"""The applied checkpoint of a partition that was declared and has delivered nothing yet."""


@dataclass(frozen=True, slots=True)
class GroupState:
    """The state of a group in a store, at one moment."""

    committed: Time = ZERO
    partitions: tuple[PartitionProgress, ...] = ()

    def validate(self) -> None:
        """Raises `FatalError` when a partition is there twice, or contradicts itself."""
        names = [each.partition for each in self.partitions]
        if len(set(names)) < len(names) or self.committed < ZERO:
            raise FatalError(f"a group cannot be at {self.committed}, with partitions {names}")
        for each in self.partitions:
            each.validate()


class GoingBackwards(Exception):
    """A partition was reported complete up to a time before one that was already recorded.

    Nothing was recorded. The feed breaks its promise, or two feeds share the partition.
    """

    def __init__(self, group: str, partition: str, proposed: Time, newest: Time) -> None:
        super().__init__(
            f"the checkpoint {proposed} of partition {partition} of group {group} is going "
            f"backwards: {newest} was recorded before. Give each feed a partition of its own, or "
            "start the feed from a cursor that is not before that time."
        )
        self.group = group
        self.partition = partition
        self.proposed = proposed
        self.newest = newest


class GroupSubscription(Protocol):
    """A subscription to the changes of a group, until it is closed."""

    def close(self) -> None: ...


class Store(Protocol):
    """Checkpoints of any number of groups, durable when a method that writes has returned.

    Each of these is one transaction. When one fails, other than with an error that is named here,
    it may have happened; repeating it is safe and changes nothing then. `committed` of a group is
    kept with it, beside the checkpoints, and only grows.
    """

    def advance(self, group: str, partition: str, time: Time) -> None:
        """Records a checkpoint that is not applied. Raises `GoingBackwards`.

        If it is the partition's newest one already, that stays as it is.
        """

    def commit(self, group: str, done: Range) -> None:
        """Marks the checkpoints in `done` as applied, of all partitions.

        `committed` follows to where the bounds without a lookahead now begin.
        """

    def ensure(self, group: str, partitions: Sequence[str]) -> None:
        """Gives each partition that has no checkpoint an applied one at `FIRST`."""

    def raise_committed(self, group: str, committed: Time) -> None:
        """Moves `committed` of the group forward; not back."""

    def state(self, group: str, lookahead: int | None) -> GroupState:
        """The state of the group, with no more than `lookahead` checkpoints proposed."""

    def pending(self) -> list[str]:
        """The names, in order, of the groups with a checkpoint that is not applied."""

    def prune(self, group: str) -> int:
        """Deletes the applied checkpoints before each partition's `lead`; returns their number.

        Nothing depends on them. Those that are applied after one that is not stay until it is.
        """

    def listen(self, group: str, wake: Callable[[], None]) -> GroupSubscription:
        """Calls `wake` soon after the group has changed, by whomever, and when in doubt.

        `wake` must return at once. A store may miss changes of others: listeners poll as well.
        """
