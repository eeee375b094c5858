"""Peeks of indexes as applications ask for them: at a time that the index has, or not at all."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from tests.support.clock import MovableClock

from slackwater.adapter.catalog.model import ItemKind
from slackwater.adapter.controllers.dataflows import IndexOffer
from slackwater.adapter.reading.peeks import IndexRows, Peeks
from slackwater.adapter.time.watch import Cancellation
from slackwater.compute.controller.errors import ComputeError, Variant
from slackwater.compute.controller.protocol import PeekCanceled, PeekFailed, PeekLimits, PeekRows
from slackwater.compute.controller.shell import OpenPeek, Wanted
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId

INDEX, TABLE = GlobalId("u1"), GlobalId("u2")
LIMITS = PeekLimits(10, 100)


class Indexes:
    """One index, complete before 8 on the replica `r2`, whose peeks have `answer`."""

    def __init__(self):
        self.offer = IndexOffer("program", Timestamp(8), "r2")
        self.answer = PeekRows(b"rows")
        self.asked, self.cancelled = [], []
        self.waits = None

    def index(self, global_id):
        return self.offer if global_id == INDEX else None

    def peek(self, index, wanted, replica):
        if isinstance(self.answer, ComputeError):
            raise self.answer
        self.asked.append((wanted, replica))
        opened = OpenPeek(str(len(self.asked)), Future())
        if self.waits is None:
            opened.answer.set_result(self.answer)
        else:
            self.opened = opened
            self.waits()
        return opened

    def cancel_peek(self, peek):
        self.cancelled.append(peek.peek_id)
        peek.answer.set_result(PeekCanceled())


@pytest.fixture
def indexes():
    return Indexes()


def rows(indexes, as_of=9, index=INDEX, cancellation=None):
    items = {
        INDEX: SimpleNamespace(id=INDEX, kind=ItemKind.INDEX),
        TABLE: SimpleNamespace(id=TABLE, kind=ItemKind.TABLE),
    }
    peeks = Peeks(SimpleNamespace(state=SimpleNamespace(items=items)), indexes)
    return peeks.rows(index, Timestamp(as_of), b"keys", LIMITS, cancellation or Cancellation())


@pytest.mark.parametrize(("as_of", "time"), [(5, 5), (7, 7), (8, 7), (20, 7)])
def test_the_last_time_that_the_index_has_is_read(indexes, as_of, time):
    assert rows(indexes, as_of) == IndexRows(b"rows", Timestamp(time + 1))
    assert indexes.asked == [(Wanted(INDEX, Timestamp(time), b"keys", LIMITS), "r2")]


@pytest.mark.parametrize("index", [TABLE, GlobalId("u9")])
def test_what_is_no_index_has_no_rows(indexes, index):
    assert rows(indexes, index=index) is None


def test_an_index_that_no_replica_has_has_no_rows(indexes):
    indexes.offer = None
    assert rows(indexes) is None
    assert not indexes.asked


@pytest.mark.parametrize(
    "answer",
    [
        PeekFailed("too many"),
        ComputeError(Variant.SINCE_VIOLATION, ["u1"]),
        ComputeError(Variant.COLLECTION_MISSING, ["u1"]),
        ComputeError(Variant.REPLICA_MISSING, ["r2"]),
    ],
)
def test_whatever_the_replica_cannot_answer_leaves_the_other_way(indexes, answer):
    indexes.answer = answer
    assert rows(indexes) is None


def test_the_end_of_the_statement_ends_the_peek(indexes):
    cancellation = Cancellation()
    indexes.waits = cancellation.cancel
    with pytest.raises(SlackwaterError) as ended:
        rows(indexes, cancellation=cancellation)
    assert ended.value.condition == "SLACKWATER_CANCELED"
    assert indexes.cancelled == ["1"]


def test_a_deadline_ends_the_peek(indexes):
    clock = MovableClock()
    cancellation = Cancellation(3_600_000, clock)
    indexes.waits = lambda: clock.passes(3_600)
    assert rows(indexes, cancellation=cancellation) is None
    assert indexes.cancelled == ["1"]
