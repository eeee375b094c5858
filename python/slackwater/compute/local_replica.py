"""The replica in the leader's process: commands go in, responses come out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from slackwater.compute.controller.descriptions import DataflowDescription, SubscribeExport
from slackwater.compute.controller.history import ReplicaState
from slackwater.compute.controller.hydration import is_hydrated
from slackwater.compute.controller.protocol import (
    AllowWrites,
    CancelPeek,
    Command,
    CreateDataflow,
    DataflowStatus,
    FrontierReport,
    Heartbeat,
    IndexOpened,
    Log,
    OutputAdvanced,
    Peek,
    PeekAnswer,
    PeekAnswered,
    PeekFailed,
    PeekRows,
    Problem,
    ReplicaResponse,
    Schedule,
    SubscribeBatch,
    SubscribeDropped,
)
from slackwater.compute.dataflow import Dataflow, Shards, ViewExport
from slackwater.compute.engine import Engine
from slackwater.compute.index_peeks import IndexPeeks, IndexState
from slackwater.compute.limits import Limits
from slackwater.compute.logs import rows_of
from slackwater.compute.offers import Offers, Respond
from slackwater.compute.planned_dataflows import PlanListeners, PlannedDataflows
from slackwater.compute.planning import Planner
from slackwater.compute.records import HydrationRecords
from slackwater.compute.replica import ReportTrouble
from slackwater.compute.schedule import Failure
from slackwater.compute.subscription_updates import updates_of
from slackwater.compute.tick_outcome import Given
from slackwater.compute.worker import Listeners, Worker, WorkerOptions
from slackwater.controller.protocol import AllowCompaction
from slackwater.persist.appends import UnknownShard
from slackwater.repr.clock import wall_clock_ms
from slackwater.repr.errors import SlackwaterError, first_line
from slackwater.repr.frontier import EMPTY_FRONTIER, MINIMUM_FRONTIER, Frontier, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.spans import NoSpans, Spans

HEARTBEAT_MS = 1000
"""The least time between two heartbeats."""


@dataclass(frozen=True, slots=True)
class ReplicaParts:
    """The things that a replica in this process works with.

    `on_end` is told why it has ended by itself; `discard` deletes a file of rows that nobody wants,
    and does not raise; `dropped` is called when it was dropped and has given back all that it had.
    """

    shards: Shards
    engine: Engine
    planner: Planner
    on_end: Callable[[BaseException], None]
    discard: Callable[[str], None]
    dropped: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """A replica's name, the limits of its views, its clocks, and who takes its spans.

    `clock_ms` gives milliseconds since the epoch, and `monotonic` seconds.
    """

    name: str = "replica"
    limits: Limits = field(default_factory=Limits)
    clock_ms: Callable[[], int] = wall_clock_ms
    monotonic: Callable[[], float] = time.monotonic
    spans: Spans = field(default_factory=NoSpans)


class LocalReplica:
    """A replica that lives in this process. Thread-safe.

    `send` takes the next command and does not block; commands come one at a time, in order. What
    the replica has to say it gives to `respond`, in threads of its own or while it takes a command;
    what `respond` raises of an offer is why the offer was not taken.

    A dataflow is planned when it is scheduled, and maintained from then on. When it is dropped it
    is over at once: a computation that still runs for it is ended, and may fail, which nobody
    hears.
    """

    def __init__(self, parts: ReplicaParts, respond: Respond, options: ReplicaOptions) -> None:
        self._respond = respond
        self._options = options
        self._shards = parts.shards
        self._engine = parts.engine
        self._dropped = parts.dropped
        self._offers = Offers(respond)
        self._lock = threading.Lock()
        self._state = ReplicaState()
        self._described: dict[GlobalId, DataflowDescription] = {}
        self._reached: dict[GlobalId, Frontier] = {}
        self._programs: dict[GlobalId, str | None] = {}
        self._hydrations = HydrationRecords(options.clock_ms)
        self._beat_ms = options.clock_ms()
        self._plans = PlannedDataflows(
            parts.planner,
            PlanListeners(self._planned, self._not_planned),
            options.name,
            options.monotonic,
        )
        self._peeks = IndexPeeks(parts.engine, respond, parts.discard, self._index, options.name)
        self._log_reader = ThreadPoolExecutor(1, f"slackwater-{options.name}-logs")
        self._worker = Worker(
            parts.shards,
            self._offers,
            parts.engine,
            Listeners(self._moved, parts.on_end, self._told, self._alive, self._give),
            WorkerOptions(options.name, options.limits, options.monotonic, options.spans),
        )

    def start(self) -> None:
        """Begins to work."""
        self._plans.start()
        self._worker.start()

    def wake(self) -> None:
        """Something that dataflows read was committed."""
        self._worker.wake()

    def close(self) -> None:
        """Begins to end: no offer has an answer any more."""
        self._plans.stop()
        self._peeks.stop()
        self._log_reader.shutdown(wait=False, cancel_futures=True)
        self._offers.close()

    def join(self) -> None:
        """Ends after the computations that have begun."""
        self._worker.stop()

    def drop(self) -> None:
        """Begins to end, and gives back what it has, in a thread of its own."""
        self.close()
        threading.Thread(
            target=self._give_back, name=f"slackwater-{self._options.name}-ends", daemon=True
        ).start()

    def _give_back(self) -> None:
        self._worker.finish()
        self._dropped()

    def validate(self) -> None:
        """Raises `FatalError` when what it holds contradicts itself."""
        self._worker.validate()

    # Commands

    def send(self, command: Command) -> None:
        """Takes the command."""
        with self._lock:
            self._state.apply(command)
        match command:
            case CreateDataflow(dataflow):
                self._create(dataflow)
            case Schedule(global_id):
                self._hydrations.started(global_id)
                self._plans.add(self._described[global_id])
            case AllowWrites(global_id):
                self._worker.allow_writes(global_id)
            case OutputAdvanced(global_id, upper):
                self._offers.output_is_at(global_id, upper)
                self._worker.wake()
            case AllowCompaction(global_id, since) if since.is_empty:
                self._drop(global_id)
            case AllowCompaction(global_id, since):
                self._worker.allow_compaction(global_id, Timestamp(since.value))
            case Peek() if command.id in self._logs:
                # Who sends commands waits for nobody, least of all for a driver that hangs.
                self._log_reader.submit(self._answer_log, command)
            case Peek():
                self._peeks.add(command)
            case CancelPeek(peek_id):
                self._peeks.cancel(peek_id)
            case _:
                pass

    def _create(self, dataflow: DataflowDescription) -> None:
        for global_id in dataflow.export_ids:
            self._described[global_id] = dataflow
            self._offers.create(global_id)
            if not _is_subscription(dataflow):
                self._hydrations.installed(global_id)
            if dataflow.takes_over is not None:
                self._worker.keep_for(dataflow.takes_over, global_id)

    def _drop(self, global_id: GlobalId) -> None:
        described = self._described.pop(global_id, None)
        if described is None:
            return
        self._plans.remove(global_id)
        self._hydrations.forget(global_id)
        with self._lock:
            self._worker.remove(global_id)
        self._offers.drop(global_id)
        reached = self._reached.pop(global_id, MINIMUM_FRONTIER)
        self._programs.pop(global_id, None)
        self._peeks.moved(global_id)
        over: list[ReplicaResponse] = [
            FrontierReport(global_id, EMPTY_FRONTIER, EMPTY_FRONTIER, EMPTY_FRONTIER)
        ]
        if _is_subscription(described):
            over = [
                SubscribeDropped(global_id, reached),
                FrontierReport(global_id, input=EMPTY_FRONTIER),
            ]
        self._respond(over)

    @property
    def _logs(self) -> tuple[GlobalId, ...]:
        instance = self._state.instance
        return () if instance is None else instance.logs

    def _index(self, global_id: GlobalId) -> IndexState | None:
        described = self._described.get(global_id)
        if described is None or global_id not in {each.id for each in described.index_exports}:
            return None
        reached = self._reached.get(global_id, Frontier(0))
        return IndexState(self._programs.get(global_id), Timestamp(reached.value))

    def _answer_log(self, peek: Peek) -> None:
        self._respond([PeekAnswered(peek.peek_id, self._log(peek))])

    def _log(self, peek: Peek) -> PeekAnswer:
        try:
            match list(Log)[self._logs.index(peek.id)]:
                case Log.TICKS:
                    return PeekRows(rows_of(self._worker.records.all()))
                case Log.HYDRATION_PROGRESS:
                    return PeekRows(rows_of(self._worker.hydration_progress()))
                case Log.ARRANGEMENTS:
                    return PeekRows(rows_of(self._worker.arrangements()))
                case Log.TICK_TOTALS:
                    return PeekRows(rows_of(self._worker.records.totals()))
                case Log.ARRANGEMENT_MEMORY:
                    return PeekRows(rows_of(self._engine.arrangement_memory()))
                case Log.HYDRATIONS:
                    return PeekRows(rows_of(self._hydrations.all()))
        except SlackwaterError as error:
            return PeekFailed(error.message, _problem(error, self._options.clock_ms()))
        except Exception as error:
            # Who has asked would wait for ever.
            return PeekFailed(first_line(str(error)))

    # Threads that plan

    def _planned(self, described: DataflowDescription, flow: Dataflow) -> None:
        global_id = flow.global_id
        self._respond([DataflowStatus(global_id)])
        with self._lock:
            if self._described.get(global_id) is not described:
                return
            is_view = isinstance(flow.export, ViewExport)
            may_write = not is_view or global_id in self._state.writing
            self._worker.add(flow, read_only=not may_write)
            since = self._state.sinces.get(global_id)
        if since is not None and not since.is_empty:
            self._worker.allow_compaction(global_id, Timestamp(since.value))
        if isinstance(flow.export, ViewExport):
            try:
                upper = self._shards.reads.state(flow.export.shard_id).upper
            except UnknownShard:
                return
            if upper > flow.as_of:
                self._moved({global_id: upper})

    def _not_planned(self, global_id: GlobalId, failure: Failure) -> None:
        self._worker.records.failed(global_id, failure.error.condition)
        self._told(ReportTrouble(global_id, failure, None))

    # The worker's threads

    def _moved(self, uppers: Mapping[GlobalId, Timestamp]) -> None:
        responses: list[ReplicaResponse] = []
        for global_id, upper in uppers.items():
            described = self._described.get(global_id)
            if described is None:
                continue
            program = self._worker.program_in_driver(global_id)
            if program != self._programs.get(global_id):
                self._programs[global_id] = program
                responses.append(IndexOpened(global_id, program))
            reached = Frontier(upper)
            if _has_contents(described, program, reached):
                self._hydrations.hydrated(global_id)
            if reached <= self._reached.get(global_id, MINIMUM_FRONTIER):
                continue
            if _is_subscription(described):
                responses += self._batch(global_id, reached, Given())
            else:
                self._reached[global_id] = reached
                responses.append(FrontierReport(global_id, reached, reached, reached))
        if responses:
            self._respond(responses)
        for global_id in uppers:
            self._peeks.moved(global_id)

    def _give(self, global_id: GlobalId, upper: Timestamp, given: Given) -> None:
        if global_id in self._described:
            self._respond(self._batch(global_id, Frontier(upper), given))

    def _batch(
        self, global_id: GlobalId, reached: Frontier, given: Given
    ) -> tuple[ReplicaResponse, ...]:
        """The next part of a subscription, which is complete up to `reached` then."""
        before = self._reached.get(global_id, MINIMUM_FRONTIER)
        self._reached[global_id] = reached
        batch = SubscribeBatch(global_id, before, reached, updates_of(given.updates), given.error)
        return batch, FrontierReport(global_id, input=reached)

    def _told(self, trouble: ReportTrouble) -> None:
        failure, memory, wall_ms = trouble.failure, trouble.out_of_memory, self._options.clock_ms()
        offset_ms = wall_ms - int(self._options.monotonic() * 1000)
        self._respond(
            [
                DataflowStatus(
                    trouble.id,
                    None
                    if failure is None
                    else _problem(failure.error, failure.began_ms + offset_ms),
                    failure is not None and failure.is_stalled,
                    None if memory is None else _problem(memory.error, memory.began_ms + offset_ms),
                )
            ]
        )

    def _alive(self) -> None:
        now_ms = self._options.clock_ms()
        if now_ms - self._beat_ms >= HEARTBEAT_MS:
            self._beat_ms = now_ms
            self._respond([Heartbeat(self._worker.busy_ms())])


def _has_contents(described: DataflowDescription, program: str | None, reached: Frontier) -> bool:
    """Whether a dataflow that has `reached` so far is hydrated. An index is where it is read."""
    if described.index_exports:
        return program is not None
    return described.as_of is not None and is_hydrated(described.as_of, reached)


def _is_subscription(described: DataflowDescription) -> bool:
    return any(isinstance(each, SubscribeExport) for each in described.sink_exports)


def _problem(error: SlackwaterError, began_ms: int) -> Problem:
    return Problem(error.condition, error.sqlstate, error.message, began_ms)
