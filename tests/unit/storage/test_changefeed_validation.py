"""The `validate` of a changefeed's ingestion, and of a binding, finds what must not be."""

import json
from dataclasses import replace

import pytest
from tests.support.storage.changefeed_world import World, config_of
from tests.support.storage.changefeeds import Message

from slackwater.repr.errors import FatalError
from slackwater.repr.hlc import Time


def change(number, time, balance=1):
    after = None if balance is None else {"id": number, "owner": "o", "balance": balance}
    return {"after": after, "key": [number], "topic": "a", "updated": str(Time(time))}


@pytest.fixture
def ingestion():
    """It has bound two keys, of which one replaced another row, and one change waits."""
    world = World(config_of(["a"]))
    for time, changes in ((100, [(1, 90)]), (200, [(1, 190), (2, 195), (3, 250)])):
        payload = [change(*each) for each in changes]
        world.send(Message("x", json.dumps({"payload": payload}).encode()))
        world.send(Message("x", json.dumps({"resolved": str(Time(time))}).encode(), Time(time)))
        while world.step():
            pass
    assert len(world.ingestion._waiting) == 1
    assert len(world.ingestion._last.bound.replaced) == 1
    world.ingestion.validate()
    return world.ingestion


def any_image(ingestion):
    return next(iter(ingestion._images.items()))


def a_change_that_is_not_counted(ingestion):
    ingestion._waiting.clear()


def an_image_of_another_key(ingestion):
    slot, image = any_image(ingestion)
    ingestion._images[slot] = replace(image, key="[9]")


def an_image_that_is_not_bound_yet(ingestion):
    slot, image = any_image(ingestion)
    ingestion._images[slot] = replace(image, updated=ingestion._lower)


def a_deletion_that_is_kept_for_nothing(ingestion):
    slot, image = any_image(ingestion)
    ingestion._images[slot] = replace(image, after=None)


def a_frontier_that_is_not_shown(ingestion):
    ingestion._lower += 1


def changed(ingestion, **changes):
    ingestion._last = replace(ingestion._last, bound=replace(ingestion._last.bound, **changes))


def an_image_replaced_by_none(ingestion):
    slot = next(each for each in ingestion._images if each[1] == "[1]")
    images = dict(ingestion._last.bound.images)
    del images[slot]
    changed(ingestion, images=images, rows={"x": len(images)})


def an_image_replaced_by_an_older_one(ingestion):
    (image,) = ingestion._last.bound.replaced
    changed(ingestion, replaced=[replace(image, updated=10**40)])


def another_number_of_rows(ingestion):
    changed(ingestion, rows={"x": 7})


def a_row_that_is_there_twice(ingestion):
    found = {topic: [(row, 2 * d) for row, d in rows] for topic, rows in changes_of(ingestion)}
    changed(ingestion, changes=found)


def changes_of(ingestion):
    return ingestion._last.bound.changes.items()


def a_change_that_is_dead_and_bound(ingestion):
    image = next(iter(ingestion._last.bound.images.values()))
    changed(ingestion, dead=[(image, "a reason")])


@pytest.mark.parametrize(
    "damage",
    [
        a_change_that_is_not_counted,
        an_image_of_another_key,
        an_image_that_is_not_bound_yet,
        a_deletion_that_is_kept_for_nothing,
        a_frontier_that_is_not_shown,
        an_image_replaced_by_none,
        an_image_replaced_by_an_older_one,
        another_number_of_rows,
        a_row_that_is_there_twice,
        a_change_that_is_dead_and_bound,
    ],
)
def test_damage_is_found(ingestion, damage):
    damage(ingestion)
    with pytest.raises(FatalError):
        ingestion.validate()
