"""Programs share what they look up, whenever they begin, and nobody waits for another's job."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from tests.support.compute.incremental import end
from tests.support.compute.worked_history import a
from tests.support.waiting import PATIENCE, wait_until

from slackwater.compute.cancellation import DataflowCancellation
from slackwater.compute.cost_model import CostModel
from slackwater.compute.engine import ProgramOwner
from slackwater.compute.flow_shards import FlowShards
from slackwater.compute.limits import Limits
from slackwater.compute.maintained_program import MaintainedProgram
from slackwater.compute.schedule import Tick
from slackwater.compute.tick import RunningView
from slackwater.compute.tick_outcome import TickMeter
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Timestamp

pytestmark = pytest.mark.spark

JOIN = "SELECT a.k, a.v, b.w FROM a JOIN b ON a.k = b.k"


class OpenedTogether:
    """As `engine`, but each program is loaded when as many as `barrier` says are open."""

    def __init__(self, engine: Any, barrier: threading.Barrier) -> None:
        self._engine = engine
        self._barrier = barrier

    def open_program(self, *arguments: Any) -> Any:
        made = self._engine.open_program(*arguments)
        self._barrier.wait(PATIENCE)
        return made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


@pytest.fixture
def programs(bench):
    """Makes programs of views that no worker maintains; closes them at the end."""
    end(bench.worker)
    with ExitStack() as opened:

        def made(name, query=JOIN, engine=None, limits=None, settings=None):
            flow = bench.flows.get(name) or bench.view(name, query, settings=settings or {})
            shards = FlowShards(flow, bench.client, limits or Limits())
            engine = engine or bench.engine.under(flow.settings)
            program = MaintainedProgram(shards, engine, CostModel())
            opened.callback(program.close)
            return program

        yield made
    assert sharing(bench) == []
    assert bench.declared.memory.used_bytes() == 0


def sharing(bench):
    """For each arrangement the collections that it has, and the views that share it, sorted."""
    names = {global_id: name for name, (global_id, _, _) in bench.relations.items()}
    return sorted(
        (sorted(names[g] for g in each.collections), sorted(names[g] for g in each.readers))
        for each in bench.engine.arrangements()
    )


def open_and_close(bench, program, last):
    flow = program.shards.flow
    owner = ProgramOwner(flow.global_id, flow.name)
    kept, steps = flow.plan.kept, flow.plan.program
    bench.engine.open_program(kept, steps, owner, Timestamp(last), True).close()


def hydrate(program, last):
    program.hydrate(program.shards.flow.plan.program, Timestamp(last), TickMeter())


@contextmanager
def blocked_core(session, gate, at):
    """The session's one core runs a job until `gate` is open."""
    exec(gate.block(at), {"spark": session})
    with ThreadPoolExecutor(1) as threads:
        job = threads.submit(session.sql("SELECT block(id) FROM range(0, 1, 1, 1)").collect)
        try:
            wait_until(at.exists, what="the core is busy")
            yield job
        finally:
            gate.open()
            job.result(PATIENCE)


def tick(program, lower, upper):
    """The updates of a tick, as a multiset of rows with their times; they count as durable."""
    flow = program.shards.flow
    interval = Tick(flow.global_id, Timestamp(lower), Timestamp(upper), False)
    changes = program.shards.changes(interval.lower, interval.upper)
    followed = program.tick(flow.plan.program, interval, changes, None, TickMeter())
    program.committed(interval.upper)
    found: Counter = Counter()
    for update in followed.updates.to_pylist():
        *row, time, diff = update.values()
        found[tuple(row), time] += diff
    return dict(found)


def test_programs_that_begin_at_different_times_share_what_is_not_loaded_yet(bench, programs):
    bench.commit(5, {"a": [(a(1, 1), 1, 1)], "b": [((1, 10), 2, 1)]})
    bench.commit(10, {"b": [((1, 11), 7, 1)]})
    together = OpenedTogether(bench.engine, threading.Barrier(2))
    early, late = programs("early", engine=together), programs("late", engine=together)
    with ThreadPoolExecutor(2) as threads:
        for made in [threads.submit(hydrate, early, 4), threads.submit(hydrate, late, 9)]:
            made.result(PATIENCE)
    assert sharing(bench) == [(["a"], ["early", "late"]), (["b"], ["early", "late"])]
    bench.commit(12, {"a": [(a(1, 2), 11, 1)]})
    last = {((1, 2, 10), 11): 1, ((1, 2, 11), 11): 1}
    assert tick(late, 10, 12) == last
    assert tick(early, 5, 12) == {((1, 1, 11), 7): 1, **last}


def test_a_program_brings_forward_what_another_one_has_loaded(bench, programs):
    bench.commit(5, {"a": [(a(1, 1), 1, 1)], "b": [((1, 10), 2, 1)]})
    first, second = programs("first"), programs("second")
    hydrate(first, 4)
    bench.commit(10, {"a": [(a(1, 1), 6, -1), (a(1, 2), 6, 1)], "b": [((1, 11), 7, 1)]})
    hydrate(second, 9)
    assert sharing(bench) == [(["a"], ["first", "second"]), (["b"], ["first", "second"])]
    bench.commit(12, {"b": [((1, 10), 11, -1)]})
    assert tick(second, 10, 12) == {((1, 2, 10), 11): -1}
    assert tick(first, 5, 12) == {
        ((1, 1, 10), 6): -1,
        ((1, 2, 10), 6): 1,
        ((1, 2, 11), 7): 1,
        ((1, 2, 10), 11): -1,
    }
    first.close()
    bench.commit(20, {"b": [((1, 11), 15, -1)]})
    assert tick(second, 12, 20) == {((1, 2, 11), 15): -1}


def test_what_has_changed_by_itself_is_not_brought_forward_by_the_inputs(bench, programs):
    """A row has ended between the contents that one has loaded and those of another's begin."""
    valid = "SELECT x.k, x.v, b.w FROM (SELECT k, v FROM a WHERE mz_now() < v) x, b WHERE x.k = b.k"
    bench.commit(5, {"a": [(a(1, 7), 1, 1), (a(2, 90), 1, 1)], "b": [((1, 10), 2, 1)]})
    first, second = programs("first", valid), programs("second", valid)
    hydrate(first, 4)
    bench.commit(10)
    hydrate(second, 9)
    bench.commit(12, {"b": [((1, 11), 11, 1), ((2, 20), 11, 1)]})
    assert tick(second, 10, 12) == {((2, 90, 20), 11): 1}
    assert tick(first, 5, 12) == {((1, 7, 10), 7): -1, ((2, 90, 20), 11): 1}
    bench.commit(14, {"b": [((1, 12), 13, 1), ((2, 20), 13, -1)]})
    for program in (first, second):
        assert tick(program, 12, 14) == {((2, 90, 20), 13): -1}


def test_what_cannot_be_brought_forward_is_shared_as_soon_as_both_are_at_one_time(bench, programs):
    """Groups that are computed anew have their rows arranged, here those of a join."""
    largest = "SELECT a.k, median(b.w) AS m FROM a JOIN b ON a.k = b.k GROUP BY a.k"
    bench.commit(5, {"a": [(a(1, 1), 1, 1)], "b": [((1, 10), 2, 1)]})
    first, second = programs("first", largest), programs("second", largest)
    hydrate(first, 4)
    bench.commit(10, {"b": [((1, 12), 7, 1)]})
    hydrate(second, 9)
    both, apart = ["first", "second"], [(["a", "b"], ["first"]), (["a", "b"], ["second"])]
    assert sharing(bench) == [(["a"], both), *apart, (["b"], both)]
    bench.commit(12, {"b": [((1, 14), 11, 1)]})
    assert tick(first, 5, 12) == {
        ((1, 10.0), 7): -1,
        ((1, 11.0), 7): 1,
        ((1, 11.0), 11): -1,
        ((1, 12.0), 11): 1,
    }
    assert tick(second, 10, 12) == {((1, 11.0), 11): -1, ((1, 12.0), 11): 1}
    assert sharing(bench) == [(["a"], both), (["a", "b"], both), (["b"], both)]
    bench.commit(14, {"b": [((1, 10), 13, -1)]})
    for program in (second, first):
        assert tick(program, 12, 14) == {((1, 12.0), 13): -1, ((1, 13.0), 13): 1}


def test_a_program_that_begins_before_what_others_keep_goes_on_with_them_later(bench, programs):
    bench.commit(5, {"a": [(a(1, 1), 1, 1)], "b": [((1, 10), 2, 1)]})
    first, second = programs("first"), programs("second")
    hydrate(first, 4)
    bench.commit(10, {"b": [((1, 11), 7, 1)]})
    assert tick(first, 5, 10) == {((1, 1, 11), 7): 1}
    hydrate(second, 4)
    both, apart = ["first", "second"], [["first"], ["second"]]
    assert sharing(bench) == [(name, each) for name in (["a"], ["b"]) for each in apart]
    assert tick(second, 5, 10) == {((1, 1, 11), 7): 1}
    assert sharing(bench) == [(["a"], both), (["b"], both)]


@pytest.mark.parametrize("after_a_tick", [False, True], ids=["at once", "after a tick"])
def test_programs_share_when_nothing_changes_though_the_later_was_first(
    bench, programs, after_a_tick
):
    """As an index that is hydrated at a start does, and a view that goes on from before."""
    bench.commit(5, {"a": [(a(1, 1), 1, 1)], "b": [((1, 10), 2, 1)]})
    bench.commit(10, {"b": [((1, 11), 7, 1)]})
    later, earlier = programs("later"), programs("earlier")
    hydrate(later, 9)
    hydrate(earlier, 4)
    both, apart = ["earlier", "later"], [["earlier"], ["later"]]
    if after_a_tick:
        assert tick(earlier, 5, 9) == {((1, 1, 11), 7): 1}
    assert sharing(bench) == [(name, each) for name in (["a"], ["b"]) for each in apart]
    for upper in (12, 14):
        bench.commit(upper)
        if not after_a_tick and upper == 12:
            assert tick(earlier, 5, 12) == {((1, 1, 11), 7): 1}
        for program in (later, earlier):
            program.advanced(Timestamp(upper - 2), Timestamp(upper))
        bench.engine.unite_arrangements()
    assert sharing(bench) == [(["a"], both), (["b"], both)]
    bench.commit(16, {"a": [(a(1, 2), 15, 1)]})
    last = {((1, 2, 10), 15): 1, ((1, 2, 11), 15): 1}
    assert tick(later, 14, 16) == last
    assert tick(earlier, 14, 16) == last


def test_settings_that_only_tune_keep_nothing_apart(bench, programs):
    bench.commit(5, {"a": [(a(1, 1), 1, 1)], "b": [((1, 10), 2, 1)]})
    settings = {
        "plain": {},
        "tuned": {
            "spark.sql.files.maxPartitionBytes": "1m",
            "spark.sql.autoBroadcastJoinThreshold": "-1",
            "spark.sql.shuffle.partitions": "7",
        },
        "usual": {"spark.sql.mapKeyDedupPolicy": "EXCEPTION"},
        "elsewhere": {"spark.sql.session.timeZone": "Asia/Tokyo"},
    }
    for name, each in settings.items():
        hydrate(programs(name, settings=each), 4)
    same = ["plain", "tuned", "usual"]
    assert sharing(bench) == [(t, each) for t in (["a"], ["b"]) for each in (["elsewhere"], same)]


def test_nobody_waits_for_a_job_that_loads(bench, programs, gate, tmp_path):
    """The driver's one core is busy, so that no job gets anywhere."""
    # What is few needs no job.
    bench.commit(
        5,
        {
            "a": [(a(number, 1), 1, 1) for number in range(10_001)],
            "b": [((number, 10), 2, 1) for number in range(10_001)],
        },
    )
    by_jobs = Limits(few_rows=0)
    loading, waiting, dropped = (programs(n, limits=by_jobs) for n in ("one", "two", "three"))
    status = bench.declared.session.sparkContext.statusTracker()
    cancellation = DataflowCancellation("one")

    def hydrate_until_cancelled():
        with bench.engine.ended_by(cancellation), pytest.raises(SlackwaterError):
            hydrate(loading, 4)

    with (
        ThreadPoolExecutor(3) as threads,
        blocked_core(bench.declared.session, gate, tmp_path / "at") as blocked,
    ):
        first = threads.submit(hydrate_until_cancelled)
        wait_until(lambda: len(status.getActiveJobsIds()) == 2, what="the arrangement is loaded")
        threads.submit(open_and_close, bench, dropped, 4).result(PATIENCE)
        second = threads.submit(hydrate, waiting, 4)
        cancellation.cancel()
        first.result(PATIENCE)
        loading.close()
        assert not blocked.done()
        wait_until(lambda: len(status.getActiveJobsIds()) == 2, what="another one loads it")
        gate.open()
        assert not wait([second], PATIENCE).not_done
        second.result()
    assert sharing(bench) == [(["a"], ["two"]), (["b"], ["two"])]


def test_nobody_waits_for_a_tick_that_has_to_hydrate_its_program_anew(bench):
    """Another worker has moved the view, and the inputs do not tell any more what changed."""
    end(bench.worker)
    bench.commit(5, {"a": [(a(1, 1), 1, 1)], "b": [((1, 10), 2, 1)]})
    flow = bench.view("j", JOIN)
    view = RunningView.of(flow, bench.client, bench.engine, Limits())
    hydrate(view.program, 4)
    bench.commit(10, {"b": [((1, 11), 7, 1)]})
    assert view.is_quick(Tick(flow.global_id, Timestamp(5), Timestamp(10), False))
    bench.client.maintenance.set_since({bench.relations[t][1]: Timestamp(8) for t in ("a", "b")})
    assert not view.is_quick(Tick(flow.global_id, Timestamp(9), Timestamp(10), False))
    assert tick(view.program, 9, 10) == {}
    view.end()


def together(names):
    """All views share an arrangement of each table."""
    return [([table], sorted(names)) for table in ("a", "b")]


def test_views_share_however_quiet_their_inputs_are(bench):
    """Compaction follows the views: what was before is not in the inputs any more."""
    bench.commit(5, {"a": [(a(1, 1), 1, 1)], "b": [((1, 10), 2, 1)]})
    names = []
    for number in range(4):
        upper = 10 * (number + 1)
        bench.commit(upper)
        for name in names:
            bench.wait(name, upper - 1)
        sinces = {bench.relations[table][1]: Timestamp(upper - 1) for table in ("a", "b")}
        bench.client.maintenance.set_since(sinces)
        names.append(f"j{number}")
        query = f"SELECT a.k, a.v + {number} AS v, b.w FROM a JOIN b ON a.k = b.k"
        bench.view(names[-1], query, as_of=upper - 1)
        bench.wait(names[-1], upper - 1)
        wait_until(lambda: sharing(bench) == together(names), what=f"{names} share")
    bench.commit(100, {"b": [((1, 11), 50, 1)]})
    for number, name in enumerate(names):
        bench.wait(name, 99)
        assert bench.rows(name, 99) == {(1, 1 + number, 10): 1, (1, 1 + number, 11): 1}
    assert sharing(bench) == together(names)


def test_a_view_that_moved_has_not_failed_for_lack_of_memory_to_tidy(bench):
    """To merge a segment takes more memory for a moment than its updates do."""
    rows = [((k, 1, None, None), 1, 1) for k in range(20_000)]
    bench.commit(5, {"a": rows, "b": [((1, 10), 2, 1)]})
    bench.view("j", JOIN)
    bench.wait("j", 4)
    wait_until(lambda: len(sharing(bench)) == 2)
    with bench.declared.memory.all_left_but(250):
        more = [((20_000 + k, 1, None, None), 5, 1) for k in range(2_800)]
        bench.commit(6, {"a": more})
        bench.wait("j", 5)
        bench.commit(7, {"b": [((2, 20), 6, 1)]})
        assert bench.ticked("j", 6).steps[-1].mode != "scanned"
        assert bench.worker._replica.failures == {}
    bench.commit(8, {"a": [((20_001, 1, None, None), 7, -1)]})
    bench.wait("j", 7)
    assert bench.rows("j", 7) == {(1, 1, 10): 1, (2, 1, 20): 1}
