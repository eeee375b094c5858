"""Admission: the partitions of a source that count, and the time up to which it can be bound.

A partition is one feed. The source can be bound up to what all admitted partitions have resolved.
One that begins when the source already stands somewhere would hold it where that one is: it is
pending, and nothing of it is bound, until it has resolved as much as is bound. Then it joins, and
what it has delivered up to there is bound at that time, as a snapshot.

Source: spec checkpoint 5.3, 5.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slackwater.checkpoints.bounds import PartitionProgress, bounds
from slackwater.checkpoints.store import FIRST, GroupState
from slackwater.repr.hlc import Time
from slackwater.storage.changefeed.encoding import offset

MINIMUM = 0
"""The offset at which a source begins: nothing is bound."""


@dataclass(frozen=True, slots=True)
class AdmittedFeeds:
    """The partitions that count from now on, those that are new among them, and how far they are.

    `upper` is the first offset that cannot be bound yet.
    """

    admitted: frozenset[str]
    joining: frozenset[str]
    upper: int


def admission(
    whole: GroupState,
    window: GroupState,
    admitted: frozenset[str],
    declared: Sequence[str],
    lower: int,
) -> AdmittedFeeds:
    """The partitions that count, and how far, when the source is bound up to `lower`.

    `whole` has the checkpoints without a lookahead, `window` those that one binding may take.
    """
    tops = {each.partition: each.top for each in whole.partitions}
    resolved = {name: top for name, top in tops.items() if top > FIRST}
    if lower == MINIMUM:
        # All that have begun count, and those that were declared, whether they have or not.
        waited_for = set(resolved) | set(declared)
    else:
        waited_for = {*admitted, *(name for name, top in resolved.items() if _reaches(top, lower))}
    now = frozenset(waited_for)
    if not now or any(name not in resolved for name in now):
        return AdmittedFeeds(admitted, frozenset(), lower)
    upper = max(lower, _upper(window.partitions, now, whole.committed))
    if upper == MINIMUM:
        return AdmittedFeeds(admitted, frozenset(), lower)
    return AdmittedFeeds(now, now - admitted, upper)


def _reaches(top: Time, lower: int) -> bool:
    """Whether everything before `lower` was delivered by a partition that has resolved `top`."""
    return offset(top.next) >= lower


def _upper(
    partitions: Sequence[PartitionProgress], counted: frozenset[str], committed: Time
) -> int:
    found = [each for each in partitions if each.partition in counted]
    return offset(bounds(found, committed).max)
