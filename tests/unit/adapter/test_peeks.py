"""Peeks of indexes as applications ask for them: at a time that the index has, or not at all."""

from __future__ import annotations

import base64
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from tests.support.clock import MovableClock

from slackwater.adapter.catalog.model import ItemKind
from slackwater.adapter.controllers.dataflows import IndexOffer
from slackwater.adapter.protocol import Peek as Asked
from slackwater.adapter.reading.peeks import FILE_LIMITS, IndexFile, IndexRows, Peeks
from slackwater.adapter.time.watch import Cancellation
from slackwater.compute.controller.errors import ComputeError, Variant
from slackwater.compute.controller.protocol import (
    Peek,
    PeekCanceled,
    PeekFailed,
    PeekRows,
)
from slackwater.compute.controller.shell import OpenPeek
from slackwater.compute.peeked_rows import PeekLimits, PeekStashed, Stash
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
        if not peek.answer.done():
            peek.answer.set_result(PeekCanceled())


@pytest.fixture
def indexes():
    return Indexes()


class Stashed:
    """Keeps files for the hold `open`."""

    directory = "file:///peeks/1"

    def __init__(self):
        self.kept = []

    def keep(self, hold, uri):
        self.kept.append((hold, uri))
        return hold == "open"


def rows(indexes, as_of=9, index=INDEX, cancellation=None, **asked):
    items = {
        INDEX: SimpleNamespace(id=INDEX, kind=ItemKind.INDEX),
        TABLE: SimpleNamespace(id=TABLE, kind=ItemKind.TABLE),
    }
    indexes.stashed = Stashed()
    peeks = Peeks(SimpleNamespace(state=SimpleNamespace(items=items)), indexes, indexes.stashed)
    fields = {"keys": base64.b64encode(b"keys").decode(), "hold": None, **asked}
    wanted = Asked(index, as_of=Timestamp(as_of), rows=10, bytes=100, **fields)
    return peeks.rows(wanted, cancellation or Cancellation())


@pytest.mark.parametrize(("as_of", "time"), [(5, 5), (7, 7), (8, 7), (20, 7)])
def test_the_last_time_that_the_index_has_is_read(indexes, as_of, time):
    assert rows(indexes, as_of) == IndexRows(b"rows", Timestamp(time + 1))
    assert indexes.asked == [(Peek("", INDEX, Timestamp(time), b"keys", LIMITS), "r2")]


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


STASHED = PeekStashed("file:///peeks/1/a.parquet", 20, 80, 5, "{}")


def test_many_rows_come_as_a_file_that_the_hold_keeps(indexes):
    indexes.answer = STASHED
    found = rows(indexes, as_of=7, keys=None, hold="open")
    assert found == IndexFile(
        {
            "uri": STASHED.uri,
            "rows": 20,
            "size_bytes": 80,
            "modified_ms": 5,
            "time": 7,
            "diff": 1,
            "max_time": 7,
            "retractions": False,
            "schema": "{}",
        },
        Timestamp(8),
    )
    assert indexes.stashed.kept == [("open", STASHED.uri)]
    stash = Stash("file:///peeks/1", FILE_LIMITS)
    assert indexes.asked == [(Peek("", INDEX, Timestamp(7), None, LIMITS, stash), "r2")]


def test_a_file_for_a_hold_that_is_over_is_no_answer(indexes):
    indexes.answer = STASHED
    assert rows(indexes, hold="over") is None
    assert indexes.stashed.kept == [("over", STASHED.uri)]


def test_a_file_that_came_before_the_cancellation_is_kept_for_the_end_of_the_hold(indexes):
    cancellation = Cancellation()

    def answered():
        indexes.opened.answer.set_result(STASHED)
        cancellation.cancel()

    indexes.waits = answered
    with pytest.raises(SlackwaterError) as ended:
        rows(indexes, cancellation=cancellation, hold="open")
    assert ended.value.condition == "SLACKWATER_CANCELED"
    assert indexes.stashed.kept == [("open", STASHED.uri)]
