"""What a replica begins, tells and forgets, without threads and without a clock."""

from __future__ import annotations

import pytest
from tests.support.compute.flows import flow

from slackwater.compute.replica import (
    BACKGROUND_HYDRATIONS,
    BACKGROUND_TICKS,
    CancelWork,
    Committed,
    Failed,
    Nothing,
    OutOfMemory,
    Replica,
    ReportEnd,
    ReportTrouble,
    Slow,
    WorkKind,
)
from slackwater.compute.schedule import STALLED_AFTER, Round, Tick
from slackwater.controller.protocol import FrontierUppers
from slackwater.repr.errors import FatalError, SlackwaterError
from slackwater.repr.frontier import Frontier

ERROR = SlackwaterError("DIVIDE_BY_ZERO", "22012", "no", {})


@pytest.fixture
def replica():
    made = Replica()
    yield made
    made.validate()


def added(replica, *flows):
    for each in flows:
        replica.add(each)
    assert replica.begin_round()
    return flows


def queued(replica, *names):
    found = Round({}, tuple(Tick(name, 4, 9, False) for name in names))
    replica.planned(replica.agenda(), found)


def done(replica, work, result, now_ms=0):
    effects = replica.finish(work, result, now_ms)
    replica.end(work)
    return effects


@pytest.mark.parametrize(
    ("kind", "limit"),
    [(WorkKind.HYDRATION, BACKGROUND_HYDRATIONS), (WorkKind.TICK, BACKGROUND_TICKS)],
)
def test_so_many_computations_of_a_kind_run_at_once(replica, kind, limit):
    flows = added(replica, *(flow(f"v{n}", "t") for n in range(limit + 1)))
    works = [replica.begin(each, None, kind, 0) for each in flows]
    assert works[-1] is None
    other = WorkKind.TICK if kind is WorkKind.HYDRATION else WorkKind.HYDRATION
    assert replica.begin(flows[-1], None, other, 0) is not None
    done(replica, works[0], Nothing())
    assert replica.pause_ms(0) == 0, "the end of one is a reason to look again"
    assert replica.begin(flows[0], None, kind, 0) is not None


def test_a_dataflow_that_somebody_works_for_is_left_alone(replica):
    v, w = added(replica, flow("v", "t"), flow("w", "v"))
    work = replica.begin(v, Tick("v", 4, 9, False), WorkKind.TICK, 0)
    assert replica.agenda().flows == {"w": w}
    assert replica.begin(v, None, WorkKind.HYDRATION, 0) is None
    assert replica.may_hydrate_ahead() == {"w": w}
    told = done(replica, work, Committed(9))
    assert told == (FrontierUppers((("v", Frontier(9)),)),)
    assert replica.agenda().flows == {"v": v, "w": w}


def test_readers_of_what_has_moved_come_first(replica):
    flows = [flow("v", "t"), flow("x", "t"), flow("w", "v"), flow("y", "v", "x")]
    v, _, w, _ = added(replica, *flows)
    queued(replica, "v", "x", "y")
    assert replica.next_tick() == (v, Tick("v", 4, 9, False))
    agenda = replica.agenda(readers_of="v")
    assert agenda.flows == {"w": w}
    replica.planned(agenda, Round({}, (Tick("w", 4, 9, False),)))
    assert [replica.next_tick()[0].name for _ in range(3)] == ["w", "x", "y"]
    assert replica.next_tick() is None


def test_what_is_computed_for_a_removed_dataflow_is_cancelled_and_not_told(replica):
    (v,) = added(replica, flow("v", "t"))
    queued(replica, "v")
    work = replica.begin(v, replica.next_tick()[1], WorkKind.TICK, 0)
    assert replica.is_wanted(work)
    assert replica.remove("v") == (CancelWork(work),)
    assert replica.remove("v") == (CancelWork(work),)
    assert not replica.is_wanted(work)
    for result in (Committed(9, ERROR), Failed(ERROR)):
        assert replica.finish(work, result, 0) == ()
    replica.end(work)
    assert replica.remove("v") == ()
    assert (replica.failures, replica.out_of_memory) == ({}, {})


def test_ticks_of_a_removed_or_replaced_dataflow_are_not_begun(replica):
    added(replica, flow("v", "t"), flow("w", "t"), flow("x", "t"))
    agenda = replica.agenda()
    queued(replica, "v", "w")
    replica.remove("v")
    replica.remove("w")
    replica.add(flow("w", "t"))
    assert replica.next_tick() is None
    replica.remove("x")
    ticks = tuple(Tick(name, 4, 9, False) for name in ("v", "w", "x"))
    replica.planned(agenda, Round({}, ticks))
    assert replica.next_tick() is None


def test_a_replaced_dataflow_waits_for_the_work_of_the_earlier_one(replica):
    (old,) = added(replica, flow("v", "t"))
    work = replica.begin(old, None, WorkKind.TICK, 0)
    assert replica.remove("v") == (CancelWork(work),)
    (new,) = added(replica, flow("v", "u"))
    assert not replica.is_wanted(work)
    assert replica.begin(new, None, WorkKind.TICK, 0) is None
    assert done(replica, work, Committed(9)) == ()
    assert replica.begin(new, None, WorkKind.TICK, 0) is not None


def test_it_is_told_that_a_dataflow_does_not_go_on(replica):
    (v,) = added(replica, flow("v", "t"))

    def failed(now_ms):
        work = replica.begin(v, Tick("v", 4, 9, False), WorkKind.QUICK_TICK, now_ms)
        (told,) = done(replica, work, Failed(ERROR), now_ms)
        assert (told.id, told.failure.error, told.out_of_memory) == ("v", ERROR, None)
        return told.failure.is_stalled

    stalls = [failed(now_ms) for now_ms in range(STALLED_AFTER + 3)]
    assert stalls == [number >= STALLED_AFTER - 1 for number in range(STALLED_AFTER + 3)]
    assert replica.failures["v"].error is ERROR
    assert replica.failures["v"].began_ms == 0
    assert replica.pause_ms(STALLED_AFTER + 2) > 0
    assert replica.pause_ms(10_000_000) == 0
    work = replica.begin(v, Tick("v", 4, 9, False), WorkKind.QUICK_TICK, 0)
    told = done(replica, work, Committed(9))
    assert told[0] == ReportTrouble("v", None, None)
    assert replica.failures == {}
    assert replica.pause_ms(0) is None


def test_lack_of_memory_is_told_until_there_is_some(replica):
    (v,) = added(replica, flow("v", "t"))

    def committed(error, now_ms):
        work = replica.begin(v, Tick("v", 4, 9, False), WorkKind.QUICK_TICK, now_ms)
        *told, _ = done(replica, work, Committed(9, error), now_ms)
        return told

    assert committed(ERROR, 5) == [ReportTrouble("v", None, OutOfMemory(ERROR, 5))]
    assert committed(ERROR, 6) == []
    assert replica.out_of_memory == {"v": OutOfMemory(ERROR, 5)}
    assert committed(None, 7) == [ReportTrouble("v", None, None)]
    assert replica.out_of_memory == {}
    assert committed(ERROR, 8) == [ReportTrouble("v", None, OutOfMemory(ERROR, 8))]


def test_a_slow_tick_is_begun_again_in_the_background(replica):
    (v,) = added(replica, flow("v", "t"))
    tick = Tick("v", 4, 9, False)
    work = replica.begin(v, tick, WorkKind.QUICK_TICK, 0)
    assert done(replica, work, Slow()) == ()
    assert replica.begin(v, tick, WorkKind.TICK, 0).tick == tick


def test_all_wait_while_nothing_can_be_planned(replica):
    added(replica, flow("v", "t"), flow("w", "t"))
    told = replica.interrupted(ERROR, 1_000)
    assert [each.id for each in told] == ["v", "w"]
    assert {each.began_ms for each in replica.failures.values()} == {1_000}
    assert replica.agenda().failures.keys() == {"v", "w"}
    assert replica.may_hydrate_ahead() == {}


def test_a_replica_ends_once_and_begins_nothing_more(replica):
    (v,) = added(replica, flow("v", "t"))
    queued(replica, "v")
    work = replica.begin(v, None, WorkKind.HYDRATION, 0)
    first = FatalError("first")
    assert replica.fail(first) == (ReportEnd(first),)
    assert replica.fail(FatalError("second")) == ()
    assert replica.failed is first
    assert replica.pause_ms(0) == 0
    assert not replica.begin_round()
    assert replica.next_tick() is None
    assert not replica.is_wanted(work)
    done(replica, work, Nothing())
    assert replica.begin(v, None, WorkKind.HYDRATION, 0) is None


def test_contradictions_are_found():
    replica = Replica()
    added(replica, flow("v", "t"))
    queued(replica, "v")
    replica._flows.clear()
    with pytest.raises(FatalError, match="without a dataflow"):
        replica.validate()


def test_a_failure_is_forgotten_when_nothing_is_left_to_try(replica):
    """Another replica has done it, or the dataflow only advances: nobody is to wait for it."""
    added(replica, flow("v", "t"), flow("w", "t"), flow("x", "t"))
    replica.interrupted(ERROR, 1_000)
    agenda = replica.agenda()
    ticks = (Tick("v", 4, 9, False),)
    replica.planned(agenda, Round({}, ticks, waiting=frozenset("w")))
    assert replica.failures.keys() == {"v", "w"}
    assert "x" not in replica.failures


def test_nothing_is_looked_for_while_works_are_waited_for(replica):
    """A dataflow that somebody works for, or that waits for others to end, is no reason to."""
    (v,) = added(replica, flow("v", "t"))
    replica.interrupted(ERROR, 0)
    work = replica.begin(v, Tick("v", 4, 9, False), WorkKind.TICK, 0)
    assert replica.pause_ms(10_000_000) is None
    done(replica, work, Nothing())
    others = added(replica, *(flow(f"o{n}", "t") for n in range(BACKGROUND_TICKS)))
    works = [replica.begin(each, None, WorkKind.TICK, 0) for each in others]
    assert replica.pause_ms(10_000_000) == 0
    assert replica.begin(v, Tick("v", 4, 9, False), WorkKind.TICK, 0) is None
    assert replica.pause_ms(10_000_000) is None
    done(replica, works[0], Nothing())
    assert replica.pause_ms(10_000_000) == 0
    assert replica.begin_round()
    assert replica.pause_ms(10_000_000) == 0, "there is room now"
