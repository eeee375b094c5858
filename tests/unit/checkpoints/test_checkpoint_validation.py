"""The `validate` of what a store says of a group finds what must not be."""

from dataclasses import replace

import pytest
from tests.support.checkpoints.checkpoints import t

from slackwater.checkpoints.bounds import PartitionProgress
from slackwater.checkpoints.store import GroupState
from slackwater.repr.errors import FatalError

WHOLE = GroupState(
    t(3),
    (
        PartitionProgress("a", t(1), t(2), t(4)),
        PartitionProgress("b", None, t(5), t(5)),
        PartitionProgress("c", t(7), None, t(7)),
    ),
)


def damaged(number, **changes):
    partitions = list(WHOLE.partitions)
    partitions[number] = replace(partitions[number], **changes)
    return replace(WHOLE, partitions=tuple(partitions))


def test_what_is_whole_passes():
    WHOLE.validate()
    GroupState().validate()


@pytest.mark.parametrize(
    "state",
    [
        damaged(1, partition="a"),
        damaged(0, lead=t(2)),
        damaged(0, lead=t(3)),
        damaged(0, top=t(1)),
        damaged(1, first=None),
        damaged(2, top=t(8)),
        damaged(2, top=t(6)),
        replace(WHOLE, committed=t(0).before),
    ],
    ids=[
        "a partition that is there twice",
        "an applied checkpoint that waits",
        "what waits lies before what is applied",
        "less is proposed than waits",
        "a partition without a checkpoint",
        "more is proposed than there is",
        "less is proposed than is applied",
        "a group that is committed before all",
    ],
)
def test_damage_is_found(state):
    with pytest.raises(FatalError):
        state.validate()
