"""The cache's `validate` finds what must not be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.persist.persistence import DESC

from slackwater.persist.cache import ShardCache
from slackwater.persist.part_index import PartIndex
from slackwater.persist.parts import FileBody, Part, Uniform
from slackwater.persist.rows import ShardState
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import TIMESTAMP_MAX, Timestamp


def part(number, time, diff=1, shard=1):
    body = FileBody("file:///f", 1, 0, Uniform(Timestamp(time), diff))
    time = Timestamp(time)
    return Part(number, shard, time, Timestamp(time + 1), body, 1, time, time, diff < 0)


@pytest.fixture
def cache():
    made = ShardCache(
        tables_upper=Timestamp(9),
        next_shard_id=4,
        next_part_id=5,
        states={
            1: ShardState(1, DESC, Timestamp(0), Timestamp(9), True),
            2: ShardState(2, DESC, Timestamp(0), Timestamp(5), False),
            3: ShardState(3, DESC, TIMESTAMP_MAX, TIMESTAMP_MAX, False),
        },
        dropped={2, 3},
        unfinalized={2},
        indexes={1: PartIndex.of([part(1, 1), part(2, 3, -1), part(3, 4), part(4, 2)])},
    )
    made.validate()
    return made


def a_finalization_without_a_drop(cache):
    cache.unfinalized.add(1)


def a_drop_of_an_unknown_shard(cache):
    cache.dropped.add(9)


def an_id_that_is_still_to_be_given(cache):
    cache.next_shard_id = 3


def a_tombstone_that_can_be_read(cache):
    cache.states[3] = replace(cache.states[3], since=Timestamp(0))


def a_part_of_another_shard(cache):
    cache.indexes[1].add(part(0, 8, shard=2))


def a_part_with_an_id_to_come(cache):
    cache.next_part_id = 4


def a_run_that_does_not_ascend(cache):
    cache.indexes[1]._runs[0].parts.reverse()


def bounds_that_are_not_those_of_the_parts(cache):
    cache.indexes[1]._runs[0].lasts[0] = Timestamp(7)


def a_part_that_is_nowhere(cache):
    cache.indexes[1]._unpaired.pop()


def parts_out_of_order(cache):
    cache.indexes[1]._unpaired.reverse()


@pytest.mark.parametrize(
    "damage",
    [
        a_finalization_without_a_drop,
        a_drop_of_an_unknown_shard,
        an_id_that_is_still_to_be_given,
        a_tombstone_that_can_be_read,
        a_part_of_another_shard,
        a_part_with_an_id_to_come,
        a_run_that_does_not_ascend,
        bounds_that_are_not_those_of_the_parts,
        a_part_that_is_nowhere,
        parts_out_of_order,
    ],
)
def test_damage_is_found(cache, damage):
    damage(cache)
    with pytest.raises(FatalError):
        cache.validate()
