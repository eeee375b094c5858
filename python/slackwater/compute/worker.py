"""The replica's thread: runs the rounds that `schedule` plans, commits, reports frontiers."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from slackwater.compute import schedule
from slackwater.compute.cancellation import DataflowCancellation
from slackwater.compute.dataflow import Dataflow, Shards, upper_of
from slackwater.compute.engine import Engine, TickEnded
from slackwater.compute.limits import Limits
from slackwater.compute.records import HydrationProgress, TickRecord, TickRecords, TickTimes
from slackwater.compute.schedule import Failure, Flow, Round, Tick
from slackwater.compute.tick import RunningView
from slackwater.compute.tick_outcome import TickMeter, TickOutcome
from slackwater.persist.client import UnknownShard, UpperMismatch
from slackwater.persist.leadership import Fenced
from slackwater.repr.clock import wall_clock_ms
from slackwater.repr.errors import LOG_FILE, FatalError, SlackwaterError, user_error
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId

Progress = Callable[[Mapping[GlobalId, Timestamp]], None]
Fatal = Callable[[BaseException], None]
Stalled = Callable[[GlobalId, SlackwaterError], None]

_LOG = structlog.get_logger("slackwater.compute")


@dataclass(frozen=True, slots=True)
class _BackgroundWork:
    """A thread that works for one dataflow; `hydrates`: it reads whole inputs to keep them.

    Other threads may read what `meter` has counted so far.
    """

    thread: threading.Thread
    hydrates: bool
    meter: TickMeter
    cancellation: DataflowCancellation
    began_ms: int


@dataclass(slots=True)
class _Shared:
    """What threads share, guarded by `changed`."""

    flows: dict[GlobalId, Dataflow] = field(default_factory=dict)
    cancellations: dict[GlobalId, DataflowCancellation] = field(default_factory=dict)
    failures: dict[GlobalId, Failure] = field(default_factory=dict)
    out_of_memory: dict[GlobalId, tuple[SlackwaterError, int]] = field(default_factory=dict)
    background: dict[GlobalId, _BackgroundWork] = field(default_factory=dict)
    tick_began_ms: dict[GlobalId, int] = field(default_factory=dict)
    awake: bool = False
    stopping: bool = False
    failed: BaseException | None = None
    changed: threading.Condition = field(default_factory=threading.Condition)


BACKGROUND_HYDRATIONS = 2
"""So many dataflows at most are hydrated at the same time, which bounds the memory it takes."""

BACKGROUND_TICKS = 2
"""So many ticks that may take long are made at the same time; quick ones do not wait for them."""


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
        engine: Engine,
        *,
        on_progress: Progress,
        on_fatal: Fatal,
        on_stalled: Stalled = lambda global_id, error: None,
        on_out_of_memory: Stalled = lambda global_id, error: None,
        name: str = "replica",
        limits: Limits | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_progress` is called in a worker's thread with uppers after they were committed.

        `on_fatal` is called once, with what ended the worker: another leader, a broken invariant;
        `on_stalled` when a dataflow has failed several times running, once until it goes on again;
        `on_out_of_memory` when one begins to be recomputed for lack of memory.
        `name` is part of the names of its temporary views; `limits` are those of its views, None:
        the usual ones; `monotonic` gives seconds, by which pauses and what ticks cost are measured.
        """
        self._shards = shards
        self._engine = engine
        self._on_progress = on_progress
        self._on_fatal = on_fatal
        self._on_stalled = on_stalled
        self._on_out_of_memory = on_out_of_memory
        self._name = name
        self._limits = limits or Limits()
        self._monotonic = monotonic
        self._shared = _Shared()
        self._thread = threading.Thread(target=self._run, name=f"slackwater-{name}", daemon=True)
        self._running: dict[GlobalId, RunningView] = {}
        self._records = TickRecords()

    # Any thread

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_ms: int = 10_000) -> None:
        """Ends after the ticks that are being computed."""
        with self._shared.changed:
            self._shared.stopping = True
            self._shared.changed.notify_all()
            threads = [self._thread, *(each.thread for each in self._shared.background.values())]
        deadline = time.monotonic() + timeout_ms / 1000
        for thread in threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def wake(self) -> None:
        """Something was committed, or an upper moved."""
        with self._shared.changed:
            self._shared.awake = True
            self._shared.changed.notify_all()

    def add(self, flow: Dataflow) -> None:
        """Maintains the dataflow from now on. Its shards exist."""
        with self._shared.changed:
            self._shared.flows[flow.global_id] = flow
            self._shared.cancellations[flow.global_id] = DataflowCancellation(flow.name)
        self.wake()

    def remove(self, global_id: GlobalId) -> None:
        """Forgets the dataflow. A tick of it that is being computed ends, and is not committed."""
        with self._shared.changed:
            self._shared.flows.pop(global_id, None)
            self._shared.failures.pop(global_id, None)
            self._shared.out_of_memory.pop(global_id, None)
            cancellation = self._shared.cancellations.pop(global_id, None)
            self._shared.changed.notify_all()
        if cancellation is not None:
            cancellation.cancel()
        self._records.forget(global_id)

    @property
    def records(self) -> TickRecords:
        """The last ticks that were committed here."""
        return self._records

    def wait_for(self, global_id: GlobalId, at: Timestamp, timeout_ms: int) -> bool:
        """Waits until the contents of the dataflow at `at` are complete; False: it took too long.

        Raises SLACKWATER_DEPENDENCY_DROPPED when the dataflow is removed, and what ended the
        worker.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        shared = self._shared
        with shared.changed:
            while True:
                if shared.failed is not None:
                    raise shared.failed
                flow = shared.flows.get(global_id)
                if flow is None:
                    raise user_error("SLACKWATER_DEPENDENCY_DROPPED", objectName=str(global_id))
                if self._shards.state(flow.output_shard).upper > at:
                    return True
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    return False
                shared.changed.wait(remaining)

    def failure(self, global_id: GlobalId) -> SlackwaterError | None:
        """Why the dataflow itself does not go on at the moment."""
        with self._shared.changed:
            failure = self._shared.failures.get(global_id)
            return None if failure is None else failure.error

    def stalled(self) -> Mapping[GlobalId, tuple[SlackwaterError, int]]:
        """What does not go on at the moment: why, and for how many milliseconds."""
        now_ms = self._now_ms()
        with self._shared.changed:
            return {g: (t.error, now_ms - t.began_ms) for g, t in self._shared.failures.items()}

    def out_of_memory(self) -> Mapping[GlobalId, tuple[SlackwaterError, int]]:
        """What is recomputed for lack of memory: of which, and for how many milliseconds."""
        now_ms = self._now_ms()
        with self._shared.changed:
            return {
                g: (e, now_ms - began_ms) for g, (e, began_ms) in self._shared.out_of_memory.items()
            }

    def hydration_progress(self) -> Sequence[HydrationProgress]:
        """How far those dataflows are that read whole inputs at the moment."""
        with self._shared.changed:
            hydrating = {g: each for g, each in self._shared.background.items() if each.hydrates}
        now_ms = self._now_ms()
        return [
            HydrationProgress(
                global_id,
                self._engine.rows_read(each.cancellation),
                each.meter.scanned,
                now_ms - each.began_ms,
            )
            for global_id, each in hydrating.items()
        ]

    def busy_ms(self) -> int | None:
        """For how long the oldest running tick has been reading files of parts; None: none runs."""
        with self._shared.changed:
            began_ms = min(self._shared.tick_began_ms.values(), default=None)
        return None if began_ms is None else self._now_ms() - began_ms

    def _now_ms(self) -> int:
        return int(self._monotonic() * 1000)

    # The worker's threads

    def _run(self) -> None:
        try:
            while self._wait():
                while self._round():
                    pass
                self._hydrate_ahead()
        except (FatalError, Fenced) as error:
            self._fail(error)
        except Exception as error:
            _LOG.exception("worker_failed", worker=self._name)
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._shared.changed:
            is_first = self._shared.failed is None
            self._shared.failed = self._shared.failed or error
            self._shared.stopping = True
            self._shared.changed.notify_all()
        if is_first:
            self._on_fatal(error)

    def _wait(self) -> bool:
        """Until there may be something to do; False: it is time to stop."""
        shared = self._shared
        with shared.changed:
            # Another worker may have moved what somebody waits for.
            shared.changed.notify_all()
            while not shared.awake and not shared.stopping:
                retry_ms = schedule.next_retry_ms(shared.failures.values())
                if retry_ms is None:
                    shared.changed.wait()
                    continue
                pause_ms = retry_ms - self._now_ms()
                if pause_ms <= 0:
                    break
                shared.changed.wait(pause_ms / 1000)
            shared.awake = False
            return not shared.stopping

    def _round(self) -> bool:
        """One round; whether another one may have something to do."""
        with self._shared.changed:
            if self._shared.stopping:
                return False
            flows = dict(self._shared.flows)
        self._close_removed(flows)
        try:
            ticks, moved = self._begin(flows, flows)
            while ticks:
                tick = ticks.popleft()
                view = self._view(flows[tick.global_id])
                if not view.is_quick(tick):
                    self._start_background(view, tick)
                    continue
                try:
                    moved = self._quick_tick(view, tick) or moved
                except TickEnded:
                    self._start_background(view, tick)
                    continue
                with self._shared.changed:
                    if self._shared.stopping:
                        return False
                # What reads this view comes next: a chain of views shows a change soonest so.
                waiting = {other.global_id for other in ticks}
                readers = {
                    g: f
                    for g, f in flows.items()
                    if tick.global_id in f.inputs and g not in waiting
                }
                following, advanced = self._begin(flows, readers)
                ticks.extendleft(reversed(following))
                moved = moved or advanced
        except SlackwaterError as error:
            # The metastore is away: it is asked again when a dataflow's pause ends.
            self._pause_all(flows, error)
            return False
        except UnknownShard:
            return self._forget_dropped(flows)
        return moved

    def _begin(
        self, flows: Mapping[GlobalId, Dataflow], some: Mapping[GlobalId, Dataflow]
    ) -> tuple[deque[Tick], bool]:
        """Moves on those of `some` that only advance, and gives the ticks of the others.

        Also whether one moved.
        """
        with self._shared.changed:
            failures = dict(self._shared.failures)
            background = frozenset(self._shared.background)
        # What another thread works for may just have moved: its end wakes us.
        planned = self._plan({g: f for g, f in some.items() if g not in background}, failures)
        return deque(planned.ticks), self._advance(flows, planned)

    def _plan(
        self, flows: Mapping[GlobalId, Dataflow], failures: Mapping[GlobalId, Failure]
    ) -> Round:
        def has_data(global_id: GlobalId, lower: Timestamp, upper: Timestamp) -> bool:
            if self._first_due(flows[global_id], lower, upper) < upper:
                return True
            inputs = flows[global_id].inputs.values()
            return any(
                self._shards.parts_between(shard_id, lower, upper)
                for source in inputs
                for shard_id, _ in source.shards
            )

        ordered = schedule.in_order(
            Flow(f.global_id, tuple(f.inputs), f.as_of) for f in flows.values()
        )
        uppers = {
            g: upper_of(self._shards, i.shard_id)
            for f in flows.values()
            for g, i in f.inputs.items()
        }
        uppers.update({f.global_id: upper_of(self._shards, f.output_shard) for f in flows.values()})
        return schedule.plan_round(ordered, uppers, failures, has_data, self._now_ms())

    def _first_due(self, flow: Dataflow, lower: Timestamp, upper: Timestamp) -> Timestamp:
        """See `RunningView.first_due`."""
        return self._view(flow).first_due(lower, upper) if flow.plan.is_temporal else upper

    def _advance(self, flows: Mapping[GlobalId, Dataflow], planned: Round) -> bool:
        if not planned.advances:
            return False
        uppers: dict[int, Timestamp] = {}
        for global_id, upper in planned.advances.items():
            flow = flows[global_id]
            uppers |= {flow.output_shard: upper, flow.errors_shard: upper}
        lowers = {g: self._shards.state(flows[g].output_shard).upper for g in planned.advances}
        self._shards.advance(uppers)
        for global_id, upper in planned.advances.items():
            self._view(flows[global_id]).advanced(lowers[global_id], upper)
        self._report(planned.advances)
        return True

    def _start_background(self, view: RunningView, tick: Tick | None) -> None:
        """Begins a tick that may take long, or without one makes ready for the next.

        Not if too many do that already: their end wakes us.
        """
        global_id = view.flow.global_id
        hydrates = tick is None or tick.first or view.needs_hydration
        limit = BACKGROUND_HYDRATIONS if hydrates else BACKGROUND_TICKS
        with self._shared.changed:
            others = sum(each.hydrates == hydrates for each in self._shared.background.values())
            cancellation = self._shared.cancellations.get(global_id)
            if self._shared.stopping or cancellation is None or others >= limit:
                return
            meter = TickMeter(self._monotonic)
            thread = threading.Thread(
                target=self._run_background,
                args=(view, tick, meter, cancellation),
                name=f"slackwater-{self._name}-{global_id}",
                daemon=True,
            )
            background = _BackgroundWork(thread, hydrates, meter, cancellation, self._now_ms())
            self._shared.background[global_id] = background
            thread.start()

    def _hydrate_ahead(self) -> None:
        """Nothing is to be ticked now: what the next ticks need is made ready."""
        with self._shared.changed:
            flows = dict(self._shared.flows)
            busy = {*self._shared.background, *self._shared.failures}
        for flow in flows.values():
            if flow.global_id in busy:
                continue
            try:
                view = self._view(flow)
                if view.can_hydrate_ahead:
                    self._start_background(view, None)
            except UnknownShard:
                # It has been dropped, and is removed next.
                continue

    def _run_background(
        self,
        view: RunningView,
        tick: Tick | None,
        meter: TickMeter,
        cancellation: DataflowCancellation,
    ) -> None:
        flow = view.flow
        try:
            with self._engine.ended_by(cancellation):
                if tick is None:
                    self._hydrating_ahead(view, meter)
                else:
                    self._timed_tick(view, tick, meter)
        except (FatalError, Fenced) as error:
            self._fail(error)
        except SlackwaterError as error:
            self._pause_all({flow.global_id: flow}, error)
        except Exception as error:
            _LOG.exception("worker_failed", worker=self._name)
            self._fail(error)
        finally:
            with self._shared.changed:
                del self._shared.background[flow.global_id]
            self.wake()

    def _hydrating_ahead(self, view: RunningView, meter: TickMeter) -> None:
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

    def _quick_tick(self, view: RunningView, tick: Tick) -> bool:
        """Raises `TickEnded` when it takes longer than others may wait."""
        with self._shared.changed:
            cancellation = self._shared.cancellations.get(view.flow.global_id)
        if cancellation is None:
            return True
        with self._engine.ended_by(cancellation):
            return self._timed_tick(view, tick, TickMeter(self._monotonic), self._limits.quick_ms)

    def _timed_tick(
        self, view: RunningView, tick: Tick, meter: TickMeter, most_ms: int | None = None
    ) -> bool:
        global_id = view.flow.global_id
        with self._shared.changed:
            self._shared.tick_began_ms[global_id] = self._now_ms()
        try:
            return self._tick(view, tick, meter, most_ms)
        finally:
            with self._shared.changed:
                del self._shared.tick_began_ms[global_id]

    def _tick(self, view: RunningView, tick: Tick, meter: TickMeter, most_ms: int | None) -> bool:
        """Whether the dataflow moved, or may be tried again at once."""
        flow = view.flow
        try:
            began_s = self._monotonic()
            outcome = view.tick(tick, meter, most_ms)
            with self._shared.changed:
                if self._shared.stopping or self._shared.flows.get(flow.global_id) is not flow:
                    return True
            computed_s = self._monotonic()
            self._shards.commit([outcome.rows, outcome.errors])
            self._record(flow.global_id, outcome, began_s, computed_s)
            view.committed(outcome.rows.upper)
        except UpperMismatch:
            return True
        except UnknownShard:
            return self._forget_dropped({flow.global_id: flow})
        except (FatalError, Fenced):
            raise
        except TickEnded:
            with self._shared.changed:
                if self._shared.flows.get(flow.global_id) is flow:
                    raise
            return True
        except SlackwaterError as error:
            return self._back_off(flow, error)
        except Exception as error:
            _LOG.exception("tick_failed", view=flow.global_id)
            return self._back_off(flow, error)
        with self._shared.changed:
            self._shared.failures.pop(flow.global_id, None)
        self._note_out_of_memory(flow.global_id, outcome.out_of_memory)
        self._report({flow.global_id: outcome.rows.upper})
        return True

    def _note_out_of_memory(self, global_id: GlobalId, error: SlackwaterError | None) -> None:
        with self._shared.changed:
            out_of_memory = self._shared.out_of_memory
            is_new = error is not None and global_id not in out_of_memory
            if error is None:
                out_of_memory.pop(global_id, None)
            elif is_new and global_id in self._shared.flows:
                out_of_memory[global_id] = (error, self._now_ms())
        if error is not None and is_new:
            self._on_out_of_memory(global_id, error)

    def _record(
        self, global_id: GlobalId, outcome: TickOutcome, began_s: float, computed_s: float
    ) -> None:
        """Keeps a record of the tick, which began at `began_s` and was computed at `computed_s`."""
        costs, append = outcome.costs, outcome.rows
        before_us = int((computed_s - began_s) * 1_000_000)
        self._records.add(
            TickRecord(
                global_id=global_id,
                lower=append.lower,
                upper=append.upper,
                committed_ms=wall_clock_ms(),
                by_program=outcome.by_program,
                scanned=costs.scanned,
                emitted=sum(part.rows for part in append.parts),
                times=TickTimes(
                    costs.plan_us,
                    costs.load_us,
                    before_us - costs.plan_us - costs.load_us - costs.encode_us,
                    costs.encode_us,
                    int((self._monotonic() - computed_s) * 1_000_000),
                ),
                steps=outcome.steps,
            )
        )

    def _view(self, flow: Dataflow) -> RunningView:
        known = self._running.get(flow.global_id)
        if known is None or known.flow is not flow:
            if known is not None:
                known.end()
            engine = self._engine.under(flow.settings)
            known = RunningView.of(flow, self._shards, engine, self._limits)
            self._running[flow.global_id] = known
        return known

    def _close_removed(self, flows: Mapping[GlobalId, Dataflow]) -> None:
        with self._shared.changed:
            background = frozenset(self._shared.background)
        # What another thread works for is not touched: its end wakes us.
        for global_id in [g for g in self._running if g not in flows and g not in background]:
            self._running.pop(global_id).end()

    def _back_off(self, flow: Dataflow, error: Exception) -> bool:
        """The dataflow is left alone for a while. False: it did not move."""
        if not isinstance(error, SlackwaterError):
            reason = _first_line(error).removesuffix(".")
            error = user_error("SLACKWATER_INTERNAL", reason=reason, log=LOG_FILE)
        with self._shared.changed:
            if self._shared.flows.get(flow.global_id) is not flow:
                return False
            earlier = self._shared.failures.get(flow.global_id)
            failure = schedule.after_failure(error, earlier, self._now_ms())
            self._shared.failures[flow.global_id] = failure
            self._shared.changed.notify_all()
        _LOG.warning("tick_failed", view=flow.global_id, error=str(error))
        if failure.is_new_stall:
            self._on_stalled(flow.global_id, error)
        return False

    def _pause_all(self, flows: Mapping[GlobalId, Dataflow], error: SlackwaterError) -> None:
        now_ms = self._now_ms()
        with self._shared.changed:
            for flow in flows.values():
                earlier = self._shared.failures.get(flow.global_id)
                failure = schedule.after_failure(error, earlier, now_ms)
                self._shared.failures[flow.global_id] = failure
        _LOG.warning("round_failed", worker=self._name, condition=error.condition)

    def _forget_dropped(self, flows: Mapping[GlobalId, Dataflow]) -> bool:
        """Removes dataflows one of whose shards was dropped; whether there was one."""
        dropped = [g for g, flow in flows.items() if not self._is_whole(flow)]
        for global_id in dropped:
            self.remove(global_id)
        return bool(dropped)

    def _is_whole(self, flow: Dataflow) -> bool:
        try:
            shard = flow.output_shard
            self._shards.advance({shard: self._shards.state(shard).upper})
        except UnknownShard:
            return False
        return True

    def _report(self, uppers: Mapping[GlobalId, Timestamp]) -> None:
        with self._shared.changed:
            self._shared.changed.notify_all()
        self._on_progress(uppers)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
