"""What dataflows have done: through takeovers, and where a replica or the store is silent."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from slackwater.adapter.controllers.dataflows import OfReplica
from slackwater.adapter.ddl.planned_views import Views
from slackwater.adapter.history.dataflows import DataflowLimits, Hydrated, Ticked
from slackwater.adapter.system.dataflow_history import FOLDER, DataflowHistory
from slackwater.compute.records import HydrationRecord, StepRecord, TickRecord, TickTimes
from slackwater.persist.blobs import LocalBlobs

STEPS = (StepRecord("delta", "delta", 3, 0, 10, "t"), StepRecord("union", "delta", 2, 5, 20))
HYDRATED = Hydrated("r1", "c1", HydrationRecord("u1", 5, None, 9))


def tick(upper):
    times = TickTimes(1, 2, 3, 4, 5)
    return Ticked("r1", TickRecord("u1", upper - 1, upper, upper, True, 1, 2, times, STEPS))


class Leader:
    """A history whose thread does not run, at a time given."""

    def __init__(self, blobs, epoch=1):
        limits = DataflowLimits(records=1_000)
        self.history = DataflowHistory(blobs, epoch, lambda: 1_000, limits)

    def sees(self, *records):
        self.history._told = lambda: records
        self.history.observe()
        self.history.validate()

    @property
    def told(self):
        return set(self.history.records(()))


def test_the_next_leader_has_what_was_done_before(tmp_path):
    first = Leader(LocalBlobs(tmp_path))
    first.sees(tick(10), HYDRATED)
    first.sees(tick(10), tick(11), HYDRATED)
    second = Leader(LocalBlobs(tmp_path), epoch=2)
    second.sees(tick(12))
    assert second.told == {tick(10), tick(11), tick(12), HYDRATED}
    assert tick(13) in second.history.records([tick(13)])
    assert tick(13) not in second.told, "it was shown, and is noted when replicas are asked"


def test_the_last_tick_of_a_view_is_known_under_the_next_leader(tmp_path):
    first = Leader(LocalBlobs(tmp_path))
    first.sees(tick(10), tick(11))
    second = Leader(LocalBlobs(tmp_path), epoch=2)
    second.sees()
    told = []
    dataflows = SimpleNamespace(ticks=lambda: told)
    views = Views(None, None, None, None, dataflows, second.history)
    view, other = SimpleNamespace(id="u1"), SimpleNamespace(id="u2")
    assert views.last_tick(view) == tick(11).record
    assert views.last_tick(other) is None
    told.append(OfReplica("r2", tick(12).record))
    assert views.last_tick(view) == tick(12).record


def test_a_leader_that_ends_stores_what_was_done_last(tmp_path):
    first, asked = Leader(LocalBlobs(tmp_path)), SimpleQueue()
    last = iter([(tick(10),), (tick(10), tick(11))])

    def told():
        asked.put(threading.current_thread())
        return next(last)

    first.history.start(told)
    asked.get()
    first.history.stop()
    second = Leader(LocalBlobs(tmp_path), epoch=2)
    second.sees()
    assert second.told == {tick(10), tick(11)}


@pytest.mark.parametrize("silent", ["replica", "store"])
def test_what_is_silent_for_some_time_costs_nothing_once_it_answers(tmp_path, silent):
    leader = Leader(LocalBlobs(tmp_path))
    if silent == "store":
        (tmp_path / FOLDER).write_text("no folder")
        with capture_logs() as lines:
            leader.sees(tick(10))
            leader.sees(tick(10))
        assert [each["event"] for each in lines] == ["the history of dataflows is not stored"]
        (tmp_path / FOLDER).unlink()
    else:

        def told():
            raise TimeoutError("the replica r1 does not answer")

        leader.history._told = told
        leader.history.observe()
        assert leader.told == set()
    leader.sees(tick(10), tick(11))
    again = Leader(LocalBlobs(tmp_path), epoch=2)
    again.sees()
    assert again.told == {tick(10), tick(11)}
