"""What a replica says of itself: who asks for it waits for the answer alone."""

from __future__ import annotations

import threading
from queue import SimpleQueue

from tests.support.waiting import PATIENCE

from slackwater.compute.controller.protocol import (
    CreateInstance,
    Log,
    Peek,
    PeekAnswered,
    PeekRows,
)
from slackwater.compute.local_replica import LocalReplica, ReplicaOptions, ReplicaParts
from slackwater.compute.logs import records_of
from slackwater.compute.records import ArrangementSize, HydrationRecord, HydrationRecords
from slackwater.repr.frontier import Timestamp

LOGS = tuple(f"si{number}" for number, _ in enumerate(Log))
SIZE = ArrangementSize(1, ("u1",), 2, 3, ("u4",))


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
