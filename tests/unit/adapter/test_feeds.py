"""Feeds of queries: the changes of an answer at each time at which an input changed."""

import re

import pytest
from tests.support.adapter.coordination import NoSpark, Place

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.controllers.feeds import FeedHold
from slackwater.adapter.reading.feeds import FeedQuery, QueryFeed
from slackwater.controller.holds import Holder, HoldKind
from slackwater.repr.relation import RelationDesc

READER = Holder(HoldKind.SUBSCRIPTION, "app/1")


@pytest.fixture
def place(env):
    place = Place(env)
    yield place
    place.close()


class Keys(NoSpark):
    """Answers ``SELECT k FROM t`` at the time that the text ends with."""

    def __init__(self, place):
        self.place = place

    def under(self, settings):
        return self

    def collect(self, text, catalog, namespace):
        time = int(re.search(r"AS OF (\d+)$", text)[1])
        shard = self.place.item("t").shard_id
        return self.place.env.persist.reads.snapshot(shard, time).select(["k"])


def test_a_query_feed_brings_the_changes_of_the_answer_at_their_times(place):
    place.table("t", k="long", v="string")
    as_of = place.write("t", {"k": 1, "v": "a"})
    place.env.engine = Keys(place)
    item = place.item("t")
    desc = RelationDesc.of(k="long")
    hold = FeedHold(place.env.relations, [item], READER, as_of)
    query = FeedQuery("SELECT k FROM t", Context(), desc, (item.id,))
    feed = QueryFeed(place.env.relations, place.env.engine, query, hold)
    assert feed.snapshot(as_of).to_pylist() == [{"k": 1, "__time": as_of, "__diff": 1}]
    first = place.write("t", {"k": 2, "v": "b"})
    second = place.write("t", {"k": 1, "v": "a"}, diff=-1)
    found = feed.updates(as_of + 1, feed.frontier().value).to_pylist()
    assert [(row["k"], row["__time"], row["__diff"]) for row in found] == [
        (2, first, 1),
        (1, second, -1),
    ]
    feed.release(None)
