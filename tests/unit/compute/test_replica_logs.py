"""What a replica says of itself: who asks for it waits for the answer alone."""

from __future__ import annotations

import threading
from dataclasses import replace
from queue import SimpleQueue

import pytest
from tests.support.waiting import PATIENCE

from slackwater.compute.controller.protocol import (
    CreateInstance,
    Log,
    Peek,
    PeekAnswered,
    PeekRows,
)
from slackwater.compute.local_replica import LocalReplica, ReplicaOptions, ReplicaParts
from slackwater.compute.logs import records_of, rows_of
from slackwater.compute.records import (
    ArrangementMemory,
    ArrangementSize,
    FailureCount,
    HydrationProgress,
    HydrationRecord,
    HydrationRecords,
    StepRecord,
    TickRecord,
    TickTimes,
    TickTotals,
)
from slackwater.repr.durations import Durations
from slackwater.repr.frontier import Timestamp

LOGS = tuple(f"si{number}" for number, _ in enumerate(Log))
SIZE = ArrangementSize(1, ("u1",), 2, 3, ("u4",))
TIMES = TickTimes(1, 2, 3, 4, 5)
STEPS = (StepRecord("join", "delta", 1, 2, 3, None), StepRecord("sum", "scanned", 1, 2, 3, "t"))
TICK = TickRecord("u1", 3, 4, 5, True, 6, 7, TIMES, STEPS)
TOTALS = TickTotals("u1", Durations().and_one(0.02), Durations(), 5, 6, 7, (FailureCount("X", 2),))
RECORDS = (
    TICK,
    TOTALS,
    HydrationProgress("u1", 10, 5, 300),
    HydrationRecord("u1", 1, 2, 3),
    ArrangementSize(1, ("u1", "é"), 2, 3, ("u4",)),
    ArrangementMemory("memory", 1, 2**62),
)
LESS = {
    TickRecord: replace(TICK, global_id="u2", steps=()),
    TickTotals: replace(TOTALS, global_id="u2", failures=()),
    HydrationRecord: HydrationRecord("u2", 1),
    ArrangementSize: ArrangementSize(2, (), 0, 0, ()),
}
"""Records that lack what may be missing."""


class Engine:
    """A driver that hangs until `answers` is set."""

    def __init__(self):
        self.answers = threading.Event()

    def arrangements(self):
        assert self.answers.wait(PATIENCE)
        return [SIZE]


def test_a_driver_that_hangs_does_not_hang_who_sends_commands():
    engine, said = Engine(), SimpleQueue()
    parts = ReplicaParts(None, engine, None, lambda error: None, lambda uri: None)
    replica = LocalReplica(
        parts, lambda responses: [said.put(r) for r in responses], ReplicaOptions("r1")
    )
    replica.send(CreateInstance(logs=LOGS))
    replica.send(Peek("p", LOGS[list(Log).index(Log.ARRANGEMENTS)], Timestamp(0)))
    assert said.empty()
    engine.answers.set()
    answered = said.get(timeout=PATIENCE)
    assert isinstance(answered, PeekAnswered)
    assert isinstance(answered.answer, PeekRows)
    assert list(records_of(answered.answer.rows, ArrangementSize)) == [SIZE]
    replica.close()


def test_a_hydration_is_recorded_once_for_each_time_that_a_dataflow_comes():
    clock = iter(range(10, 100))
    records = HydrationRecords(lambda: next(clock))
    records.installed("u1")
    assert records.all() == [HydrationRecord("u1", 10)]
    records.started("u1")
    records.started("u1")
    records.hydrated("u1")
    records.hydrated("u1")
    assert records.all() == [HydrationRecord("u1", 10, 11, 12)]
    records.installed("u1")
    assert records.all() == [HydrationRecord("u1", 13)]
    records.forget("u1")
    records.hydrated("u1")
    assert records.all() == []


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_records_are_the_same_behind_their_rows(record):
    less = LESS.get(type(record), record)
    for records in ([], [record], [less], [record, less], [less, record, less]):
        assert records_of(rows_of(records), type(record)) == records
