"""The shell of a replica: threads that compute what it begins, commit, and report frontiers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import structlog
from structlog.contextvars import bound_contextvars

from slackwater.compute import schedule
from slackwater.compute.cancellation import DataflowCancellation
from slackwater.compute.dataflow import (
    Dataflow,
    IndexExport,
    Outputs,
    Shards,
    SubscriptionExport,
    ViewExport,
    upper_of,
)
from slackwater.compute.engine import Engine, TickEnded
from slackwater.compute.limits import Limits
from slackwater.compute.maintained_index import MaintainedIndex
from slackwater.compute.maintained_subscription import MaintainedSubscription
from slackwater.compute.records import (
    ArrangementSize,
    HydrationProgress,
    TickRecord,
    TickRecords,
    TickTimes,
)
from slackwater.compute.refreshed_view import RefreshedView
from slackwater.compute.replica import (
    COMMITTED_TOGETHER,
    Agenda,
    CancelWork,
    Committed,
    Effect,
    Failed,
    Nothing,
    Replica,
    ReportEnd,
    ReportTrouble,
    Result,
    Slow,
    Work,
    WorkKind,
)
from slackwater.compute.schedule import Flow, Round, Tick
from slackwater.compute.tick import RunningView
from slackwater.compute.tick_outcome import Given, TickMeter, TickOutcome
from slackwater.controller.protocol import FrontierUppers
from slackwater.persist.client import UnknownShard
from slackwater.persist.leadership import Fenced
from slackwater.repr.clock import wall_clock_ms
from slackwater.repr.errors import LOG_FILE, FatalError, SlackwaterError, first_line, user_error
from slackwater.repr.frontier import TIMESTAMP_MAX, TIMESTAMP_MIN, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.spans import Fail, Moves, NoSpans, Spans

Progress = Callable[[Mapping[GlobalId, Timestamp]], None]
Fatal = Callable[[BaseException], None]
Trouble = Callable[[ReportTrouble], None]
Give = Callable[[GlobalId, Timestamp, Given], None]

Maintained: TypeAlias = RunningView | RefreshedView | MaintainedIndex | MaintainedSubscription

LONGEST_WAIT_S = 0.02
"""Computed updates wait no longer for a quick tick that would make them wait longer than that."""

_LOG = structlog.get_logger("slackwater.compute")


@dataclass(frozen=True, slots=True)
class _Run:
    """A work, and what the thread that does it shares with others."""

    work: Work
    meter: TickMeter
    cancellation: DataflowCancellation


@dataclass(frozen=True, slots=True)
class _Computed:
    """The outcome of a tick; `times_s`: when it began and when it was computed, in seconds."""

    view: Maintained
    run: _Run
    tick: Tick
    outcome: TickOutcome
    times_s: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Listeners:
    """Callbacks of a worker. Its own threads call them, without its lock.

    `progress` is called with uppers after they were committed; `fatal` once, with what ended the
    worker: another leader, a broken invariant; `trouble` when a dataflow has failed, or goes on
    again, or when its program begins or ceases to keep nothing; `alive` at the end of each round.
    `give` is called with what a subscription gives before the time, from where it gave the last.
    """

    progress: Progress
    fatal: Fatal
    trouble: Trouble = lambda trouble: None
    alive: Callable[[], None] = lambda: None
    give: Give = lambda global_id, upper, given: None


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """A worker's name in logs and in names of threads, its views' limits, its clock, its spans.

    `monotonic` returns seconds, by which pauses and what ticks cost are measured.
    """

    name: str = "replica"
    limits: Limits = field(default_factory=Limits)
    monotonic: Callable[[], float] = time.monotonic
    spans: Spans = field(default_factory=NoSpans)


class Worker:
    """Keeps the dataflows of one replica up to date, in a thread of its own. Thread-safe.

    A tick that may take long, because it reads whole inputs or follows many changes, is made in a
    thread of its own: meanwhile the others go on. Until it is done, the worker leaves that dataflow
    alone. It ends when the dataflow is removed.

    Several workers may maintain the same dataflow: the first append wins, the others go on
    from there.

    A view that can be read at a time is exact then. While a row makes its query fail, the view has
    an error, and so has each view that reads it; at the times before and after it can be read.
    """

    def __init__(
        self,
        shards: Shards,
        outputs: Outputs,
        engine: Engine,
        listeners: Listeners,
        options: WorkerOptions | None = None,
    ) -> None:
        """`options`: None: the usual ones."""
        options = options or WorkerOptions()
        self._shards = shards
        self._outputs = outputs
        self._engine = engine
        self._listeners = listeners
        self._name = options.name
        self._limits = options.limits
        self._monotonic = options.monotonic
        self._spans = options.spans
        self._changed = threading.Condition()
        self._replica = Replica()
        self._runs: dict[Work, _Run] = {}
        self._threads: set[threading.Thread] = set()
        self._thread = threading.Thread(
            target=self._run, name=f"slackwater-{self._name}", daemon=True
        )
        self._views: dict[GlobalId, Maintained] = {}
        self._sinces: dict[GlobalId, Timestamp] = {}
        self._heirs: dict[GlobalId, GlobalId] = {}
        """For dataflows that are about to be removed, those that take over what they leave."""
        self._records = TickRecords()
        self._uncommitted: list[_Computed] = []
        """Of quick ticks, for the next commit; only the thread of rounds uses it."""
        self._took_s: dict[GlobalId, float] = {}
        """The time that the last quick tick of each view took."""

    # Any thread

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_ms: int = 10_000) -> None:
        """Ends after the ticks that are being computed."""
        with self._changed:
            self._replica.stop()
            self._changed.notify_all()
            threads = [self._thread, *self._threads]
        deadline = time.monotonic() + timeout_ms / 1000
        for thread in threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def finish(self) -> None:
        """Forgets all dataflows, and ends when nothing of them is left."""
        with self._changed:
            flows = list(self._replica.flows)
        for global_id in flows:
            self.remove(global_id)
        with self._changed:
            while (self._views or self._runs) and self._thread.is_alive():
                self._changed.wait(1)
        self.stop()

    def wake(self) -> None:
        """Something was committed, or an upper moved."""
        with self._changed:
            self._replica.wake()
            self._changed.notify_all()

    def add(self, flow: Dataflow, *, read_only: bool = False) -> None:
        """Maintains the dataflow from now on. Its shards exist, and its id is not in use.

        `read_only`: nothing is written for it before `allow_writes`.
        """
        with self._changed:
            self._replica.add(flow, read_only=read_only)
            self._changed.notify_all()

    def allow_writes(self, global_id: GlobalId) -> None:
        """The output of the dataflow may be written from now on."""
        with self._changed:
            self._replica.allow_writes(global_id)
            self._changed.notify_all()

    def allow_compaction(self, global_id: GlobalId, since: Timestamp) -> None:
        """Nobody reads the index at times before `since` any more."""
        with self._changed:
            self._sinces[global_id] = since
            known = self._views.get(global_id)
            if isinstance(known, MaintainedIndex):
                known.since = since

    def keep_for(self, earlier: GlobalId, heir: GlobalId) -> None:
        """Leaves what is kept for a dataflow that is about to be removed to another one.

        It is given up when the other one is removed.
        """
        with self._changed:
            self._heirs[earlier] = heir

    def remove(self, global_id: GlobalId) -> None:
        """Forgets the dataflow. A tick of it that is being computed ends, and is not committed."""
        with self._changed:
            effects = self._replica.remove(global_id)
            self._sinces.pop(global_id, None)
            self._took_s.pop(global_id, None)
            self._heirs = {old: new for old, new in self._heirs.items() if new != global_id}
            self._changed.notify_all()
        self._carry_out(effects)
        self._records.forget(global_id)

    @property
    def records(self) -> TickRecords:
        """The ticks that were committed here."""
        return self._records

    def hydration_progress(self) -> Sequence[HydrationProgress]:
        """The progress of the dataflows that read whole inputs at the moment."""
        with self._changed:
            runs = [r for w, r in self._runs.items() if w.kind is WorkKind.HYDRATION]
        now_ms = self._now_ms()
        return [
            HydrationProgress(
                run.work.flow.global_id,
                self._engine.rows_read(run.cancellation),
                run.meter.scanned,
                now_ms - run.work.began_ms,
            )
            for run in runs
        ]

    def program_in_driver(self, global_id: GlobalId) -> str | None:
        """The name by which queries find that index; None: the driver does not have it."""
        known = self._views.get(global_id)
        return known.program_in_driver if isinstance(known, MaintainedIndex) else None

    def arrangements(self) -> Sequence[ArrangementSize]:
        """The arrangements in which ticks look rows up. Raises what Spark raises."""
        return self._engine.arrangements()

    def busy_ms(self) -> int:
        """For how long the oldest work has been reading files of parts; 0: there is none."""
        with self._changed:
            began = [work.began_ms for work in self._replica.works()]
        now_ms = self._now_ms()
        return now_ms - min(began, default=now_ms)

    def validate(self) -> None:
        """Raises `FatalError` when what the worker holds contradicts itself."""
        with self._changed:
            self._replica.validate()
            if set(self._replica.works()) != self._runs.keys():
                raise FatalError(f"{self._name} runs other work than it has begun")

    def _now_ms(self) -> int:
        return int(self._monotonic() * 1000)

    # The worker's threads

    def _run(self) -> None:
        try:
            while self._wait():
                while self._round():
                    pass
                self._hydrate_ahead()
                self._listeners.alive()
        except (FatalError, Fenced) as error:
            self._fail(error)
        except Exception as error:
            _LOG.exception("worker_failed", worker=self._name)
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            effects = self._replica.fail(error)
            self._changed.notify_all()
        self._carry_out(effects)

    def _wait(self) -> bool:
        """Until there may be something to do; False: it is time to stop."""
        with self._changed:
            # Another worker may have moved what somebody waits for.
            self._changed.notify_all()
            while (pause_ms := self._replica.pause_ms(self._now_ms())) != 0:
                self._changed.wait(None if pause_ms is None else pause_ms / 1000)
            return not self._replica.is_stopping

    def _round(self) -> bool:
        """One round; whether another one may have something to do."""
        with self._changed:
            if not self._replica.begin_round():
                return False
        self._close_removed()
        try:
            moved = self._plan(None)
            while (chosen := self._next_tick()) is not None or self._uncommitted:
                if chosen is not None:
                    moved = self._make(*chosen) or moved
                if chosen is None or len(self._uncommitted) == COMMITTED_TOGETHER:
                    moved = self._commit_computed() or moved
        except SlackwaterError as error:
            # The metastore is away: it is asked again when a dataflow's pause ends.
            with self._changed:
                effects = self._replica.interrupted(error, self._now_ms())
            _LOG.warning("round_failed", worker=self._name, condition=error.condition)
            self._carry_out(effects)
            return False
        except UnknownShard:
            # A shard was dropped meanwhile; its dataflow is removed next, which wakes the worker.
            return False
        finally:
            # What waits still when the round has failed is computed again.
            self._end([each.run for each in self._uncommitted])
            self._uncommitted = []
        return moved

    def _make(self, flow: Dataflow, tick: Tick) -> bool:
        """Makes a tick of the round, or begins it; whether somebody moved on.

        What others have computed does not wait for one that is expected to take its time.
        """
        view = self._view(flow)
        if not view.is_quick(tick):
            self._start_background(view, tick)
            return False
        began_s = self._monotonic()
        moved = False
        if self._uncommitted:
            waited_s = began_s - self._uncommitted[0].times_s[1]
            if waited_s + self._took_s.get(flow.global_id, 0.0) > LONGEST_WAIT_S:
                moved = self._commit_computed()
        result = self._quick_tick(view, tick)
        self._took_s[flow.global_id] = self._monotonic() - began_s
        if isinstance(result, Slow):
            self._start_background(view, tick)
        elif result is not None:
            moved = _may_have_moved(result) or moved
            moved = self._plan(tick.global_id) or moved
        return moved

    def _commit_computed(self) -> bool:
        """Commits what quick ticks have computed, together; whether somebody moved on.

        The outputs of those whose append was refused stay where they are, as if it came alone.
        """
        waiting, self._uncommitted = self._uncommitted, []
        moved = False
        with self._changed:
            computed = [c for c in waiting if self._replica.is_wanted(c.run.work)]
        try:
            results = self._committed(computed)
            for each, result in zip(computed, results, strict=True):
                with bound_contextvars(**_named(each.run.work)):
                    self._tell_all(each.run.work, result)
        finally:
            self._end([each.run for each in waiting])
        for each, result in zip(computed, results, strict=True):
            moved = _may_have_moved(result) or moved
            moved = self._plan(each.tick.global_id) or moved
        return moved

    def _next_tick(self) -> tuple[Dataflow, Tick] | None:
        with self._changed:
            return self._replica.next_tick()

    def _plan(self, readers_of: GlobalId | None) -> bool:
        """Queues ticks, and moves on the dataflows that only advance; whether one did."""
        with self._changed:
            agenda = self._replica.agenda(readers_of)
        planned = self._planned(agenda)
        with self._changed:
            effects = self._replica.planned(agenda, planned)
        self._carry_out(effects)
        return self._advance(agenda.flows, planned)

    def _planned(self, agenda: Agenda) -> Round:
        flows = agenda.flows

        def has_data(global_id: GlobalId, lower: Timestamp, upper: Timestamp) -> bool:
            if self._first_due(flows[global_id], lower, upper) < upper:
                return True
            inputs = flows[global_id].inputs.values()
            return any(
                self._shards.reads.parts_between(shard_id, lower, upper)
                for source in inputs
                for shard_id, _ in source.shards
            )

        uppers: dict[GlobalId, Timestamp] = {}
        chosen: list[Flow] = []
        for flow in flows.values():
            try:
                inputs = {g: upper_of(self._shards, i.shard_id) for g, i in flow.inputs.items()}
                uppers |= inputs | {flow.global_id: self._upper(flow)}
            except UnknownShard:
                # It was dropped, and is removed next.
                continue
            present = self._present(flow)
            chosen.append(
                Flow(flow.global_id, tuple(flow.inputs), flow.as_of, flow.refresh, present)
            )
        ordered = schedule.in_order(chosen)
        return schedule.plan_round(ordered, uppers, agenda.failures, has_data, self._now_ms())

    def _present(self, flow: Dataflow) -> Timestamp:
        """The time that the dataflow does not go beyond, though its inputs may be final there.

        A refresh is not made before its time has come. What an index does not keep any more is
        behind its upper, and it is read at the present time.
        """
        if flow.refresh is None and not isinstance(flow.export, IndexExport):
            return TIMESTAMP_MAX
        return self._shards.reads.tables_upper()

    def _upper(self, flow: Dataflow) -> Timestamp:
        """The upper of the output: that of a view is durable, the others are the worker's."""
        if isinstance(flow.export, ViewExport):
            return self._shards.reads.state(flow.export.shard_id).upper
        known = self._views.get(flow.global_id)
        return TIMESTAMP_MIN if known is None or known.flow is not flow else known.upper

    def _first_due(self, flow: Dataflow, lower: Timestamp, upper: Timestamp) -> Timestamp:
        """The first time in the interval at which it may change though no input does then.

        `upper`: there is none. Asks no view where none is needed.
        """
        if flow.refresh is None and not flow.plan.is_temporal:
            return upper
        return self._view(flow).first_due(lower, upper)

    def _advance(self, flows: Mapping[GlobalId, Dataflow], planned: Round) -> bool:
        if not planned.advances:
            return False
        lowers = {g: self._upper(flows[g]) for g in planned.advances}
        views = [
            (flows[g], lowers[g], upper)
            for g, upper in planned.advances.items()
            # Another replica may have come as far meanwhile.
            if isinstance(flows[g].export, ViewExport) and lowers[g] < upper
        ]
        if views:
            self._outputs.advance(views)
        for global_id, upper in planned.advances.items():
            self._view(flows[global_id]).advanced(lowers[global_id], upper)
        self._unite_arrangements()
        with self._changed:
            effects = self._replica.advanced(planned.advances)
            self._changed.notify_all()
        self._carry_out(effects)
        return True

    def _unite_arrangements(self) -> None:
        try:
            self._engine.unite_arrangements()
        except SlackwaterError as error:
            # What is kept twice for longer is no failure of a dataflow.
            _LOG.warning("driver_not_told", error=str(error))

    def _begin(self, flow: Dataflow, tick: Tick | None, kind: WorkKind) -> _Run | None:
        """Called with the condition held."""
        work = self._replica.begin(flow, tick, kind, self._now_ms())
        if work is None:
            return None
        run = _Run(work, TickMeter(self._monotonic), DataflowCancellation(flow.name))
        self._runs[work] = run
        return run

    def _start_background(self, view: Maintained, tick: Tick | None) -> None:
        """Begins a tick that may take long, or without one makes ready for the next.

        Not if too many do that already: their end wakes us.
        """
        hydrates = tick is None or tick.first or view.needs_hydration
        kind = WorkKind.HYDRATION if hydrates else WorkKind.TICK
        with self._changed:
            run = self._begin(view.flow, tick, kind)
            if run is None:
                return
            thread = threading.Thread(
                target=self._run_background,
                args=(view, run),
                name=f"slackwater-{self._name}-{view.flow.global_id}",
                daemon=True,
            )
            self._threads.add(thread)
            thread.start()

    def _hydrate_ahead(self) -> None:
        """Nothing is to be ticked now: what the next ticks need is made ready."""
        with self._changed:
            flows = self._replica.may_hydrate_ahead()
        for flow in flows.values():
            try:
                view = self._view(flow)
                if view.can_hydrate_ahead:
                    self._start_background(view, None)
            except UnknownShard:
                # It has been dropped, and is removed next.
                continue

    def _run_background(self, view: Maintained, run: _Run) -> None:
        try:
            self._do(view, run, None)
        except (FatalError, Fenced) as error:
            self._fail(error)
        except Exception as error:
            _LOG.exception("worker_failed", worker=self._name)
            self._fail(error)
        finally:
            with self._changed:
                self._threads.discard(threading.current_thread())

    def _quick_tick(self, view: Maintained, tick: Tick) -> Result | None:
        """The result; None: it waits for the next commit."""
        with self._changed:
            run = self._begin(view.flow, tick, WorkKind.QUICK_TICK)
        return Nothing() if run is None else self._do(view, run, self._limits.quick_ms)

    def _do(self, view: Maintained, run: _Run, most_ms: int | None) -> Result | None:
        """Does the work and tells its result, in the thread that called.

        None: it was computed, and has no result before what waits is committed.
        """
        named, moves = _named(run.work), _moves(run.work)
        with bound_contextvars(**named), self._spans.span("tick", named, moves) as fail:
            return self._done(view, run, most_ms, fail)

    def _done(self, view: Maintained, run: _Run, most_ms: int | None, fail: Fail) -> Result | None:
        waits = False
        try:
            with self._engine.ended_by(run.cancellation):
                result = self._result(view, run, most_ms)
            if isinstance(result, _Computed):
                self._uncommitted.append(result)
                waits = True
                return None
            if isinstance(result, Failed):
                fail(result.error.condition)
            self._tell_all(run.work, result)
        finally:
            if not waits:
                self._end([run])
        return result

    def _end(self, runs: Sequence[_Run]) -> None:
        """The works are over, with or without results."""
        with self._changed:
            for run in runs:
                self._replica.end(run.work)
                del self._runs[run.work]
            self._changed.notify_all()

    def _tell_all(self, work: Work, result: Result) -> None:
        """Tells the result, or that it could not be told: the dataflow is looked at again later."""
        try:
            self._tell(work, result)
        except SlackwaterError as error:
            # The metastore is away, say.
            self._tell(work, Failed(error))

    def _tell(self, work: Work, result: Result) -> None:
        if isinstance(result, Failed):
            _LOG.warning("tick_failed", view=work.flow.global_id, error=str(result.error))
            self._records.failed(work.flow.global_id, result.error.condition)
        with self._changed:
            effects = self._replica.finish(work, result, self._now_ms())
            self._changed.notify_all()
        self._carry_out(effects)

    def _result(self, view: Maintained, run: _Run, most_ms: int | None) -> Result | _Computed:
        """Raises what ends the replica, and nothing else."""
        flow, tick = run.work.flow, run.work.tick
        try:
            if tick is None:
                self._hydrate(view, run.meter)
                return Nothing()
            return self._tick(view, run, tick, most_ms)
        except UnknownShard:
            # It was dropped, and is removed next.
            return Nothing(look_again=False)
        except (FatalError, Fenced):
            raise
        except TickEnded:
            with self._changed:
                wanted = self._replica.is_wanted(run.work)
            if wanted and run.work.kind is not WorkKind.QUICK_TICK:
                raise
            return Slow() if wanted else Nothing()
        except SlackwaterError as error:
            return Failed(error)
        except Exception as error:
            _LOG.exception("tick_failed", view=flow.global_id)
            return Failed(_internal(error))

    def _tick(
        self, view: Maintained, run: _Run, tick: Tick, most_ms: int | None
    ) -> Result | _Computed:
        began_s = self._monotonic()
        outcome = view.tick(tick, run.meter, most_ms)
        with self._changed:
            if not self._replica.is_wanted(run.work):
                return Nothing()
        computed = _Computed(view, run, tick, outcome, (began_s, self._monotonic()))
        if outcome.appends and run.work.kind is WorkKind.QUICK_TICK:
            return computed
        (result,) = self._appended([computed])
        return result

    def _committed(self, computed: Sequence[_Computed]) -> Sequence[Result]:
        """The results of what was computed. Raises what ends the replica, and nothing else."""
        try:
            return self._appended(computed)
        except UnknownShard:
            # One was dropped, and is removed next; the others are made again.
            return [Nothing() for _ in computed]
        except (FatalError, Fenced):
            raise
        except SlackwaterError as error:
            return [Failed(error) for _ in computed]
        except Exception as error:
            _LOG.exception("commit_failed", worker=self._name)
            return [Failed(_internal(error)) for _ in computed]

    def _appended(self, computed: Sequence[_Computed]) -> Sequence[Result]:
        """Appends what was computed, in one commit. Raises what `Outputs.append` raises."""
        offered = [c for c in computed if c.outcome.appends]
        offers = [(each.run.work.flow, each.outcome.appends) for each in offered]
        refusals = self._outputs.append(offers) if offers else ()
        refused = {
            each.run.work
            for each, refusal in zip(offered, refusals, strict=True)
            if refusal is not None
        }
        results: list[Result] = []
        for each in computed:
            if each.run.work in refused:
                results.append(Nothing())
                continue
            if each.outcome.given is not None:
                flow = each.run.work.flow
                self._listeners.give(flow.global_id, each.outcome.upper, each.outcome.given)
            self._record(each.run, each.tick, each.outcome, each.times_s)
            each.view.committed(each.outcome.upper)
            results.append(Committed(each.outcome.upper, each.outcome.out_of_memory))
        return results

    def _hydrate(self, view: Maintained, meter: TickMeter) -> None:
        try:
            view.hydrate(meter)
        except (FatalError, Fenced):
            raise
        except (SlackwaterError, UnknownShard) as error:
            # Nobody waits for it: the next tick tries again, and tells its failure to who waits.
            _LOG.warning("not_hydrated_ahead", view=view.flow.name, error=str(error))
        except Exception:
            # The next tick tries again as well, but this should not be: the log has all of it.
            _LOG.exception("not_hydrated_ahead", view=view.flow.name)

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        """Called without the condition: what it calls may call the worker."""
        for effect in effects:
            match effect:
                case CancelWork(work):
                    with self._changed:
                        run = self._runs.get(work)
                    if run is not None:
                        run.cancellation.cancel()
                case FrontierUppers(uppers):
                    self._listeners.progress({g: Timestamp(upper.value) for g, upper in uppers})
                case ReportTrouble() as trouble:
                    self._listeners.trouble(trouble)
                case ReportEnd(cause):
                    self._listeners.fatal(cause)

    def _record(
        self, run: _Run, tick: Tick, outcome: TickOutcome, times_s: tuple[float, float]
    ) -> None:
        """Keeps a record of the tick; `times_s`: when it began and when it was computed."""
        meter, (began_s, computed_s) = run.meter, times_s
        before_us = int((computed_s - began_s) * 1_000_000)
        self._records.add(
            TickRecord(
                global_id=tick.global_id,
                lower=min((append.lower for append in outcome.appends), default=tick.lower),
                upper=outcome.upper,
                committed_ms=wall_clock_ms(),
                by_program=outcome.by_program,
                scanned=meter.scanned,
                emitted=outcome.emitted,
                times=TickTimes(
                    meter.plan_us,
                    meter.load_us,
                    before_us - meter.plan_us - meter.load_us - meter.encode_us,
                    meter.encode_us,
                    int((self._monotonic() - computed_s) * 1_000_000),
                ),
                steps=outcome.steps,
            )
        )

    def _view(self, flow: Dataflow) -> Maintained:
        known = self._views.get(flow.global_id)
        if known is None or known.flow is not flow:
            if known is not None:
                known.end()
            engine = self._engine.under(flow.settings)
            if flow.refresh is not None:
                known = RefreshedView.of(flow, self._shards, engine, self._limits)
            else:
                known = self._begun(flow, engine)
            with self._changed:
                self._views[flow.global_id] = known
                if isinstance(known, MaintainedIndex):
                    known.since = self._sinces.get(flow.global_id, TIMESTAMP_MIN)
        return known

    def _begun(self, flow: Dataflow, engine: Engine) -> Maintained:
        match flow.export:
            case ViewExport():
                return self._heir(RunningView.of(flow, self._shards, engine, self._limits))
            case IndexExport():
                return MaintainedIndex.of(flow, self._shards, engine, self._limits)
            case SubscriptionExport():
                return MaintainedSubscription.of(flow, self._shards, engine, self._limits)

    def _heir(self, view: RunningView) -> RunningView:
        """The view, with what was kept for the one that it takes over."""
        earlier_id = view.flow.takes_over
        with self._changed:
            if earlier_id is None or self._heirs.pop(earlier_id, None) is None:
                return view
        earlier = self._views.pop(earlier_id, None)
        if isinstance(earlier, RunningView) and view.inherit(earlier):
            return view
        if earlier is not None:
            earlier.end()
        return view

    def _close_removed(self) -> None:
        with self._changed:
            # What another thread works for is not touched: its end wakes us.
            needed = {*self._replica.flows, *(w.flow.global_id for w in self._replica.works())}
            needed |= self._heirs.keys()
        for global_id in [g for g in self._views if g not in needed]:
            self._views.pop(global_id).end()


def _named(work: Work) -> dict[str, str | int]:
    """The names by which log lines tell for what they were written."""
    if (tick := work.tick) is None:
        return {"dataflow": work.flow.global_id}
    return {"dataflow": work.flow.global_id, "lower": tick.lower, "upper": tick.upper}


def _moves(work: Work) -> Moves:
    if (tick := work.tick) is None:
        return Moves(work.flow.global_id)
    return Moves(tick.global_id, tick.lower, tick.upper)


def _may_have_moved(result: Result) -> bool:
    match result:
        case Committed():
            return True
        case Nothing(look_again):
            return look_again
        case _:
            return False


def _internal(error: BaseException) -> SlackwaterError:
    reason = first_line(str(error).strip() or type(error).__name__).removesuffix(".")
    return user_error("SLACKWATER_INTERNAL", reason=reason, log=LOG_FILE)
