"""A replica's decisions over random tables, dataflows, faults and orders of threads."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.property.histories import settings_of
from tests.support.compute.flows import flow

from slackwater.compute.replica import (
    CancelWork,
    Committed,
    Failed,
    Nothing,
    Replica,
    ReportTrouble,
    Slow,
    WorkKind,
)
from slackwater.compute.schedule import Flow, in_order, plan_round
from slackwater.controller.protocol import FrontierUppers
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Timestamp

ERROR = SlackwaterError("SLACKWATER_STORAGE_UNREADABLE", "58030", "no answer", {})
TABLES = ("t", "u")
VIEWS = ("v", "w", "x", "y", "z")
ROUNDS = 200
"""After so many rounds without a fault every dataflow is where its inputs are."""

ends = st.sampled_from(["commit", "commit a part", "another was first", "fail", "slow"])


@dataclass
class Collection:
    """A durable collection: its upper, and the times at which it changes."""

    upper: int = 0
    changes: set = field(default_factory=set)


class Decisions(RuleBasedStateMachine):
    """The shell is this machine: it reads frontiers, commits and lets threads end in any order."""

    @initialize(first=st.integers(1, 5))
    def begin(self, first):
        self.replica = Replica()
        self.collections = {name: Collection(first, {first - 1}) for name in TABLES}
        self.now_ms = 0
        self.works = []
        self.cancelled = set()

    # What others do

    @rule(name=st.sampled_from(TABLES), by=st.integers(1, 4), changes=st.booleans())
    def write(self, name, by, changes):
        table = self.collections[name]
        if changes:
            table.changes.add(table.upper + by - 1)
        table.upper += by
        self.replica.wake()

    @rule(name=st.sampled_from(VIEWS), data=st.data())
    def add(self, name, data):
        """A new view, or another one under an id that there was already."""
        below = [*TABLES, *(v for v in VIEWS[: VIEWS.index(name)] if v in self.replica.flows)]
        inputs = data.draw(st.lists(st.sampled_from(below), min_size=1, max_size=3, unique=True))
        if name not in self.replica.flows:
            as_of = data.draw(st.integers(0, 8))
            self.collections[name] = Collection(as_of)
            self.replica.add(flow(name, *inputs, as_of=as_of))

    @rule(name=st.sampled_from(VIEWS))
    def remove(self, name):
        if any(name in each.inputs for each in self.replica.flows.values()):
            return
        told = self.replica.remove(name)
        assert all(isinstance(each, CancelWork) for each in told)
        assert [each.work for each in told] == [w for w in self.works if w.flow.global_id == name]
        self.cancelled.update(each.work for each in told)

    @rule(name=st.sampled_from(VIEWS))
    def another_replica_commits(self, name):
        known = self.replica.flows.get(name)
        if known is not None:
            output, upper = self.collections[name], self._upper_of_inputs(known)
            if upper > max(output.upper, known.as_of):
                self._record(known, output.upper, upper)
                self.replica.wake()

    @rule(ms=st.sampled_from([1, 100, 1_000, 60_000]))
    def time_passes(self, ms):
        self.now_ms += ms

    # What the shell does

    @rule(data=st.data())
    def round(self, data):
        kinds = st.sampled_from(list(WorkKind))
        for _ in range(3):
            if not self._round(lambda: data.draw(kinds), lambda: data.draw(ends)):
                break
        while self._round(lambda: data.draw(kinds), lambda: "commit"):
            pass
        pause_ms = self.replica.pause_ms(self.now_ms)
        assert pause_ms is None or pause_ms > 0, "there is nothing to do now"

    @rule()
    def metastore_is_away(self):
        if self.replica.begin_round():
            self.replica.interrupted(ERROR, self.now_ms)

    @rule(name=st.sampled_from(VIEWS))
    def hydrate_ahead(self, name):
        known = self.replica.may_hydrate_ahead().get(name)
        if known is not None:
            self._begin(known, None, WorkKind.HYDRATION)

    @precondition(lambda self: self.works)
    @rule(data=st.data(), how=ends)
    def a_thread_ends(self, data, how):
        self._end(data.draw(st.sampled_from(self.works)), how)

    # What holds

    @invariant()
    def it_does_not_contradict_itself(self):
        self.replica.validate()
        assert set(self.replica.works()) == set(self.works)

    @invariant()
    def what_fails_is_known(self):
        known = self.replica.flows.keys()
        assert self.replica.failures.keys() <= known
        assert self.replica.out_of_memory.keys() <= known

    def teardown(self):
        """Without further faults every dataflow comes to where its inputs are."""
        if not hasattr(self, "replica"):
            return
        for _ in range(ROUNDS):
            while self.works:
                self._end(self.works[0], "commit")
            pause_ms = self.replica.pause_ms(self.now_ms)
            if pause_ms is None:
                break
            self.now_ms += pause_ms
            while self._round(lambda: WorkKind.TICK, lambda: "commit"):
                pass
        assert pause_ms is None, "it goes on without an end"
        assert self.replica.failures == {}
        for name, known in self.replica.flows.items():
            upper = self._upper_of_inputs(known)
            if upper > known.as_of:
                assert self.collections[name].upper == upper

    # The shell

    def _round(self, kind, end):
        if not self.replica.begin_round():
            return False
        moved = self._plan(None)
        while (chosen := self.replica.next_tick()) is not None:
            known, tick = chosen
            work = self._begin(known, tick, kind())
            if work is None or work.kind is not WorkKind.QUICK_TICK:
                continue
            result = self._end(work, end())
            if isinstance(result, Slow):
                self._begin(known, tick, WorkKind.TICK)
                continue
            moved = not isinstance(result, Failed) or moved
            moved = self._plan(known.global_id) or moved
        return moved

    def _plan(self, readers_of):
        agenda = self.replica.agenda(readers_of)
        assert not agenda.flows.keys() & {work.flow.global_id for work in self.works}

        def has_data(name, lower, upper):
            changes = (self.collections[i].changes for i in agenda.flows[name].inputs)
            return any(lower <= at < upper for each in changes for at in each)

        flows = in_order(Flow(f.global_id, tuple(f.inputs), f.as_of) for f in agenda.flows.values())
        uppers = {name: each.upper for name, each in self.collections.items()}
        found = plan_round(flows, uppers, agenda.failures, has_data, self.now_ms)
        for tick in found.ticks:
            failure = agenda.failures.get(tick.global_id)
            assert failure is None or failure.retry_at_ms <= self.now_ms
        self.replica.planned(agenda, found)
        for name, upper in found.advances.items():
            self.collections[name].upper = upper
        told = self.replica.advanced(found.advances)
        assert len(told) == bool(found.advances)
        return bool(found.advances)

    def _begin(self, known, tick, kind):
        work = self.replica.begin(known, tick, kind, self.now_ms)
        if work is not None:
            self.works.append(work)
        return work

    def _end(self, work, how):
        """The work ends so, if it can; nobody hears of what was removed meanwhile."""
        result = self._result(work, how)
        told = self.replica.finish(work, result, self.now_ms)
        assert work in self.replica.works(), "until the end nothing else is begun"
        self.replica.end(work)
        self.works.remove(work)
        if self.replica.flows.get(work.flow.global_id) is not work.flow:
            assert told == ()
            assert work in self.cancelled
        elif isinstance(result, Committed):
            assert isinstance(told[-1], FrontierUppers)
            assert work.flow.global_id not in self.replica.failures
        elif isinstance(result, Failed):
            assert isinstance(told[0], ReportTrouble)
        return result

    def _result(self, work, how):
        tick = work.tick
        if tick is None or not self.replica.is_wanted(work):
            return Nothing()
        if how == "slow" and work.kind is WorkKind.QUICK_TICK:
            return Slow()
        if how == "fail":
            return Failed(ERROR)
        output = self.collections[tick.global_id]
        lower = min(tick.lower, output.upper) if tick.first else tick.lower
        if how == "another was first" or output.upper != lower:
            return Nothing()
        upper = tick.lower + 1 if how == "commit a part" else tick.upper
        self._record(work.flow, lower, upper)
        return Committed(Timestamp(upper))

    def _record(self, known, lower, upper):
        output = self.collections[known.global_id]
        assert output.upper == lower
        changes = (at for i in known.inputs for at in self.collections[i].changes)
        output.changes.update(at for at in changes if lower <= at < upper)
        output.upper = upper

    def _upper_of_inputs(self, known):
        return min(self.collections[i].upper for i in known.inputs)


def test_a_replica_goes_on_whatever_threads_and_others_do():
    name = "test_a_replica_goes_on_whatever_threads_and_others_do"
    run_state_machine_as_test(Decisions, settings=settings_of(name, stateful_step_count=40))
