"""The feed of a query that a dataflow follows: what comes when, and where the answer steps in."""

from __future__ import annotations

import pyarrow as pa
import pytest

from slackwater.adapter.reading.followed import FollowedFeed
from slackwater.compute.controller.effects import DeliverSubscribe
from slackwater.compute.controller.protocol import SubscribeUpdate
from slackwater.persist.ipc import to_stream
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.relation import RelationDesc

DESC = RelationDesc.of(k="long")


def table(*updates):
    """Updates as values with times and diffs."""
    columns = list(zip(*updates, strict=True)) if updates else [(), (), ()]
    schema = DESC.update_schema()
    return pa.table([pa.array(each, pa.int64()) for each in columns], schema=schema)


class Answers:
    """A query whose answer at t is t, at the times in `changed`."""

    def __init__(self):
        self.desc = DESC
        self.upper = 20
        self.asked = []
        self.released = []
        self.kept = 0

    def frontier(self):
        return Frontier(self.upper)

    def snapshot(self, time):
        self.kept += 1
        return table((time, time, 1))

    def updates(self, lower, upper):
        self.kept += 1
        self.asked.append((lower, upper))
        return table((100, lower, 1))

    def forget(self):
        self.kept = 0

    def release(self, time):
        self.released.append(time)


class Dataflow:
    """A dataflow that delivers what it is told to."""

    def __init__(self):
        self.is_there = True
        self.begun = []
        self.closed = 0

    def open(self, as_of, follow):
        if self.is_there:
            self.begun.append(as_of)
            self.lower, self.follow = 0, follow
        return self.is_there

    def close(self):
        self.closed += 1

    def deliver(self, upper, *updates, error=None):
        found = tuple(
            SubscribeUpdate(
                Timestamp(at), to_stream(table((k, at, diff)).rename_columns(list("abc")))
            )
            for k, at, diff in updates
        )
        lower, self.lower = Frontier(self.lower), upper
        self.follow(DeliverSubscribe("t1", lower, Frontier(upper), found, error))


@pytest.fixture
def answers():
    return Answers()


@pytest.fixture
def dataflow():
    return Dataflow()


@pytest.fixture
def feed(answers, dataflow):
    return FollowedFeed(answers, dataflow, Timestamp(5))


def changes(feed, lower, upper):
    return [tuple(row.values()) for row in feed.updates(lower, upper).to_pylist()]


def test_the_answer_comes_with_what_has_changed_since(feed, answers, dataflow):
    assert dataflow.begun == [5]
    assert feed.frontier() == Frontier(5)
    dataflow.deliver(9, (1, 6, 1), (1, 8, -1))
    assert feed.frontier() == Frontier(9)
    assert feed.snapshot(Timestamp(5)).num_rows == 1
    assert changes(feed, 6, 9) == [(1, 6, 1), (1, 8, -1)]
    dataflow.deliver(12)
    dataflow.deliver(15, (2, 12, 1), (3, 14, 1))
    assert feed.frontier() == Frontier(15)
    assert changes(feed, 9, 14) == [(2, 12, 1)]
    assert changes(feed, 14, 15) == [(3, 14, 1)]
    assert (answers.asked, answers.kept) == ([], 0)
    feed.release(Timestamp(14))
    feed.release(None)
    assert (answers.released, dataflow.closed) == ([14, None], 1)


def test_the_frontier_is_not_beyond_that_of_what_is_read(feed, answers, dataflow):
    dataflow.deliver(9)
    answers.upper = 7
    assert feed.frontier() == Frontier(7)


def test_the_answer_has_what_the_dataflow_cannot_follow(feed, answers, dataflow):
    dataflow.deliver(9, (1, 6, 1))
    dataflow.deliver(30, error="too much changes at once")
    dataflow.deliver(40, (7, 30, 1))
    assert feed.frontier() == Frontier(9)
    assert changes(feed, 6, 9) == [(1, 6, 1)]
    assert dataflow.begun == [5]
    assert feed.frontier() == Frontier(20)
    assert changes(feed, 9, 20) == [(100, 9, 1)]
    assert (answers.asked, answers.kept) == ([(9, 20)], 0)
    assert (dataflow.begun, dataflow.closed) == ([5, 19], 1)
    assert feed.frontier() == Frontier(20)
    answers.upper = 24
    dataflow.deliver(23, (2, 21, 1))
    assert feed.frontier() == Frontier(23)
    assert changes(feed, 20, 23) == [(2, 21, 1)]


def test_an_answer_that_fails_is_asked_again(feed, answers, dataflow):
    dataflow.deliver(9, error="12 DIV 0")
    right, answers.updates = answers.updates, None
    with pytest.raises(TypeError):
        feed.updates(6, 20)
    assert dataflow.begun == [5]
    answers.updates = right
    assert feed.frontier() == Frontier(20)
    assert changes(feed, 6, 20) == [(100, 6, 1)]
    assert dataflow.begun == [5, 19]


def test_nobody_fetches_for_long_and_nothing_is_missed(answers, dataflow):
    """What waits is bounded: the dataflow begins anew where it was, once that was fetched."""
    feed = FollowedFeed(answers, dataflow, Timestamp(5), most_waiting_bytes=1000)
    dataflow.deliver(9, *((number, 8, 1) for number in range(10)))
    dataflow.deliver(15, (2, 12, 1))
    assert feed.frontier() == Frontier(9)
    assert len(changes(feed, 6, 9)) == 10
    assert (answers.asked, dataflow.begun, dataflow.closed) == ([], [5, 8], 1)
    assert feed.frontier() == Frontier(9)
    dataflow.deliver(15, (2, 12, 1))
    assert changes(feed, 9, 15) == [(2, 12, 1)]


def test_without_a_dataflow_there_are_the_answers(answers, dataflow):
    dataflow.is_there = False
    feed = FollowedFeed(answers, dataflow, Timestamp(5))
    assert feed.frontier() == Frontier(20)
    assert changes(feed, 6, 20) == [(100, 6, 1)]
    assert changes(feed, 20, 21) == [(100, 20, 1)]


def test_a_cursor_that_is_closed_while_it_is_fetched_leaves_no_dataflow(feed, answers, dataflow):
    dataflow.deliver(9, error="too much changes at once")
    updates = answers.updates

    def closed_meanwhile(lower, upper):
        feed.release(None)
        return updates(lower, upper)

    answers.updates = closed_meanwhile
    assert changes(feed, 6, 20) == [(100, 6, 1)]
    assert (dataflow.begun, dataflow.closed) == ([5], 1)
