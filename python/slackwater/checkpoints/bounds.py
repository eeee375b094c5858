"""The bounds of a group: before the first all is done, and before the second it may be done.

Values in, values out. A checkpoint is *applied* when what came before it has been written to where
the group writes. Of each partition only three times matter, which a store can look up without
reading its rows; so neither the applied history nor the work that waits makes the answer slower.

Source: spec checkpoint 2.4, 5.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from slackwater.repr.errors import FatalError
from slackwater.repr.hlc import ZERO, Range, Time


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A time up to and with which a partition has delivered everything."""

    time: Time
    applied: bool


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """A partition's part in the bounds.

    `lead` is the last checkpoint of the applied ones that it begins with, None if it begins with
    one that is not. The *run* is the checkpoints after it that are not applied, up to one that is:
    `first` is its first, None if there is none. `top` is the last checkpoint that may be proposed:
    the last of the run, or of as much of it as the lookahead allows, or else `lead`.
    """

    partition: str
    lead: Time | None
    first: Time | None
    top: Time

    def validate(self) -> None:
        """Raises `FatalError` when its times contradict each other."""
        known = [each for each in (self.lead, self.first) if each is not None]
        in_order = known and known == sorted(set(known)) and known[-1] <= self.top
        if not in_order or (self.first is None and self.lead != self.top):
            times = f"{self.lead}, {self.first} and {self.top}"
            raise FatalError(f"the partition {self.partition} cannot stand at {times}")


def progress(
    partition: str, checkpoints: Sequence[Checkpoint], lookahead: int | None
) -> PartitionProgress | None:
    """The progress of a partition with these checkpoints, which ascend; None: it has none.

    `lookahead` is how many checkpoints may be proposed after `lead`, and one more where nothing is
    applied; None: all.
    """
    if not checkpoints:
        return None
    applied = list(takewhile(lambda each: each.applied, checkpoints))
    run = list(takewhile(lambda each: not each.applied, checkpoints[len(applied) :]))
    window = ([*applied[-1:], *run])[: None if lookahead is None else lookahead + 1]
    return PartitionProgress(
        partition,
        applied[-1].time if applied else None,
        run[0].time if run else None,
        window[-1].time,
    )


def bounds(partitions: Iterable[PartitionProgress], committed: Time) -> Range:
    """The bounds of a group for which everything up to and with `committed` was said to be done.

    ``max`` is just after the least of the partitions' tops: no partition outruns the others.
    ``min`` is the least `lead` of the partitions with checkpoints to apply up to that top, or that
    top itself if no partition has any. Neither is before `committed`.

    The bounds deviate from those of CockroachDB Replicator, which remembers nothing: a reader there
    looks at the checkpoints from its own last ``min`` on, and takes a partition without an applied
    one among them to be at zero. So its ``min`` goes back in a group whose partitions do not
    receive the same times, and when a partition is added. A partition there also counts only if its
    top is the common one, and with a lookahead the answer depends on the applied history that is
    left.
    """
    found = list(partitions)
    if not found:
        return Range.including(committed, committed)
    common = min(each.top for each in found)
    behind = [
        each.lead or ZERO for each in found if each.first is not None and each.first <= common
    ]
    done = min(behind, default=common)
    return Range.including(max(done, committed), max(common, committed))
