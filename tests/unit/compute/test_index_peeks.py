"""Peeks of indexes: one answer each, when the index has the time, and none after a cancellation."""

from __future__ import annotations

import queue
import threading
from contextlib import contextmanager

import pytest
from tests.support.waiting import PATIENCE

from slackwater.compute.controller.protocol import (
    Peek,
    PeekAnswered,
    PeekFailed,
    PeekRows,
)
from slackwater.compute.engine import Lookup, WholeIndex
from slackwater.compute.index_peeks import IndexPeeks, IndexState
from slackwater.compute.peeked_rows import PeekLimits, PeekStashed, Stash
from slackwater.repr.errors import user_error
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId

INDEX = GlobalId("u7")
LIMITS = PeekLimits(10, 100)


class Engine:
    """Has `rows` for every look-up, once `gate` is open, or `file` for a whole index."""

    def __init__(self):
        self.rows = b"rows"
        self.file = PeekStashed("file:///peeks/a", 20, 80, 5, "{}")
        self.ended = []
        self.asked = queue.Queue()
        self.gate = threading.Event()
        self.gate.set()

    def look_up(self, wanted):
        self.asked.put(wanted)
        assert self.gate.wait(PATIENCE)
        if isinstance(self.rows, Exception):
            raise self.rows
        return self.rows

    def take_all(self, wanted):
        rows = self.look_up(wanted)
        return rows if wanted.stash is None else self.file

    @contextmanager
    def ended_by(self, interruption):
        with interruption.on_cancel_or_deadline(lambda: self.ended.append(interruption)):
            yield


class Room:
    def __init__(self):
        self.engine = Engine()
        self.indexes = {INDEX: IndexState("program", Timestamp(8))}
        self.said = queue.Queue()
        self.discarded = queue.Queue()
        self.peeks = IndexPeeks(self.engine, self.hear, self.discarded.put, self.indexes.get, "r1")

    def hear(self, responses):
        for each in responses:
            self.said.put(each)

    def add(self, name, time):
        self.peeks.add(Peek(name, INDEX, Timestamp(time), b"keys", LIMITS))

    def add_whole(self, name, stash):
        self.peeks.add(Peek(name, INDEX, Timestamp(7), None, LIMITS, stash))

    def next(self):
        return self.said.get(timeout=PATIENCE)

    def move(self, index):
        self.indexes[INDEX] = index
        self.peeks.moved(INDEX)


@pytest.fixture
def room():
    made = Room()
    yield made
    made.peeks.stop()
    assert made.said.empty()


def test_the_rows_at_the_time_are_looked_up(room):
    room.add("p", 7)
    assert room.next() == PeekAnswered("p", PeekRows(b"rows"))
    assert room.engine.asked.get() == Lookup("program", b"keys", Timestamp(7), Timestamp(8), LIMITS)


def test_a_peek_waits_until_the_index_is_complete_at_its_time(room):
    room.add("late", 8)
    room.move(IndexState("program", Timestamp(8)))
    room.add("now", 7)
    assert room.next().peek_id == "now"
    room.move(IndexState("program", Timestamp(9)))
    assert room.next().peek_id == "late"


def test_a_peek_is_answered_once_however_often_the_index_moves(room):
    room.engine.gate.clear()
    room.add("p", 7)
    room.engine.asked.get(timeout=PATIENCE)
    for upper in (9, 10):
        room.move(IndexState("program", Timestamp(upper)))
    room.engine.gate.set()
    assert room.next().peek_id == "p"
    room.add("q", 9)
    assert room.next().peek_id == "q"
    assert room.engine.asked.qsize() == 1


def test_one_that_was_cancelled_gets_no_answer(room):
    room.engine.gate.clear()
    room.add("running", 7)
    room.engine.asked.get(timeout=PATIENCE)
    room.add("waiting", 8)
    for each in ("running", "waiting", "unknown"):
        room.peeks.cancel(each)
    room.engine.gate.set()
    room.move(IndexState("program", Timestamp(9)))
    room.add("other", 8)
    assert room.next().peek_id == "other"


@pytest.mark.parametrize("index", [None, IndexState(None, Timestamp(5))])
def test_an_index_that_is_not_in_memory_has_no_rows(room, index):
    room.add("waiting", 8)
    room.move(index)
    room.add("p", 7)
    for name in ("waiting", "p"):
        answered = room.next()
        assert answered.peek_id == name
        assert answered.answer == PeekFailed("the index u7 is not in memory")
    assert room.engine.asked.empty()


def test_what_the_driver_has_not_got_or_refuses_is_a_failure(room):
    room.engine.rows = None
    room.add("p", 7)
    assert "has not got them" in room.next().answer.error
    room.engine.rows = user_error("SLACKWATER_CANCELED")
    room.add("q", 7)
    assert isinstance(room.next().answer, PeekFailed)


STASH = Stash("file:///peeks", PeekLimits(30, 300))


def test_all_rows_are_taken_and_put_into_a_file_if_one_is_wanted(room):
    whole = ("program", Timestamp(7), Timestamp(8), LIMITS)
    room.add_whole("few", None)
    assert room.next() == PeekAnswered("few", PeekRows(b"rows"))
    assert room.engine.asked.get() == WholeIndex(*whole)
    room.add_whole("many", STASH)
    assert room.next() == PeekAnswered("many", PeekStashed("file:///peeks/a", 20, 80, 5, "{}"))
    assert room.engine.asked.get() == WholeIndex(*whole, STASH)


def test_the_file_of_a_peek_that_was_cancelled_is_discarded(room):
    room.engine.gate.clear()
    room.add_whole("p", STASH)
    room.engine.asked.get(timeout=PATIENCE)
    room.peeks.cancel("p")
    assert len(room.engine.ended) == 1
    room.engine.gate.set()
    assert room.discarded.get(timeout=PATIENCE) == "file:///peeks/a"


def test_an_answered_peek_that_is_cancelled_keeps_its_file(room):
    room.add_whole("p", STASH)
    room.next()
    room.peeks.cancel("p")
    assert room.engine.ended == []
    assert room.discarded.empty()
