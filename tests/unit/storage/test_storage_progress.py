"""The progress relation of a source whose partitions grow."""

import pytest

from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import Timestamp
from slackwater.storage.progress import PARTITIONED, binding_rows, remap_at
from slackwater.storage.source_time import Position, SourceFrontier, Unread

MINIMUM = SourceFrontier.minimum(None)
TWO = SourceFrontier.of([Position(0, 7), Position(1, 2), Unread(2)])
THREE = SourceFrontier.of([Position(0, 7), Position(1, 2), Position(2, 4), Unread(3)])


def test_the_rows_name_what_is_unread_without_a_partition():
    rows = binding_rows(PARTITIONED, TWO, THREE)
    assert set(map(tuple, zip(*(column.to_pylist() for column in rows.columns), strict=True))) == {
        (None, 2, -1),
        (None, 3, 1),
        (2, 4, 1),
    }


@pytest.mark.parametrize("frontier", [MINIMUM, TWO, THREE])
def test_the_relation_gives_the_frontier_back(frontier):
    rows = binding_rows(PARTITIONED, None, frontier).drop_columns(["__diff"])
    remap = remap_at(rows, Timestamp(9), MINIMUM)
    assert remap.source_upper_at_frontier(remap.upper) == frontier


def test_a_relation_with_two_beginnings_is_damaged():
    rows = binding_rows(PARTITIONED, None, TWO).drop_columns(["__diff"])
    with pytest.raises(FatalError):
        remap_at(rows.take([0, 0, 1, 2]), Timestamp(9), MINIMUM)
