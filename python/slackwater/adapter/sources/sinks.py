"""The threads that write sinks: each follows its input's frontier and commits range after range."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import structlog

from slackwater.adapter.catalog.details import SinkDetails
from slackwater.adapter.catalog.model import CatalogItem
from slackwater.adapter.controllers.feeds import CollectionFeed
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.time.watch import Cancellation, FrontierWatch
from slackwater.persist.client import UnknownShard
from slackwater.persist.leadership import Fenced
from slackwater.repr.durations import Durations
from slackwater.repr.errors import FatalError, SlackwaterError, user_error
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.read_policy import STEP_BACK
from slackwater.repr.relation import RelationDesc
from slackwater.repr.spans import Attributes, NoSpans, Spans
from slackwater.storage.controller.protocol import RunSink
from slackwater.storage.ingestion import SourceStatus, StatusChange
from slackwater.storage.sink_folder import Claim
from slackwater.storage.sink_statistics import SinkStatistics

PROGRESS = RelationDesc.of(frontier="long")
"""The columns of a sink's progress shard, which has no rows: its upper is the sink's frontier."""

RETRY_S = 1.0
MOST_RETRY_S = 30.0
"""A sink that fails is tried again after the first of these, then after twice as long each time, up
to the second."""
IDLE_S = 1.0
STOP_S = 5.0
"""Seconds that a statement waits for the range that a sink is writing when it is to end."""

_log = structlog.get_logger("sink")


class OpenSink(Protocol):
    """The place where a sink's ranges of updates go, and how far it is. For one thread.

    Who opens it keeps earlier writers out. After an error nothing but `close` may be called.
    """

    @property
    def frontier(self) -> Frontier | None:
        """Every update before this time is durably out. None: the sink has not begun."""
        ...

    @property
    def statistics(self) -> SinkStatistics:
        """The counts since it was opened."""
        ...

    @property
    def is_in_range(self) -> bool:
        """Whether a part of a range is out."""
        ...

    @property
    def is_due(self) -> bool:
        """Whether another range may be written now; else time has to pass."""
        ...

    def end_of_range(self, upper: Frontier) -> Frontier:
        """The end of the next range, which may be `upper`: a range that was begun is finished."""
        ...

    def write(self, lower: Frontier, upper: Frontier, updates: Iterable[pa.Table]) -> None:
        """Commits all updates with lower <= __time < upper. See `FilesSink.write`."""
        ...

    def tell(self) -> None:
        """Makes the frontier of empty ranges known, when it is time."""
        ...

    def flush(self) -> None:
        """Makes the frontier of empty ranges durable."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Opening:
    """The columns of a sink's input, whose it is, and when it is to stop between two parts of a
    range."""

    desc: RelationDesc
    claim: Claim
    is_stopped: Callable[[], bool]


class SinkTargets(Protocol):
    """The targets of sinks, by their items in the catalog. Thread-safe."""

    def open(self, item: CatalogItem, opening: Opening) -> OpenSink:
        """Raises what is in the way, and `Fenced`."""
        ...

    def place(self, item: CatalogItem) -> str:
        """The place that two threads must not write at once, as a text."""
        ...

    def version(self, item: CatalogItem) -> str:
        """Another one when what is open is to be opened again, because the way has changed."""
        ...

    def close(self) -> None:
        """Ends what sinks share, when none runs any more."""
        ...


@dataclass(slots=True)
class RunningSink:
    """One sink, the command by which it runs, and its state. `error` is the last problem, if any.

    `after` are threads that were told to end and may still write the same place: this sink begins
    when they have ended. `failures` counts those since something was last written. `is_settled`:
    the sink is open, writes nothing, and is in no range. `reads`: as many rows as parts have of
    what its input held at first, while these are made a range.
    """

    item: CatalogItem
    command: RunSink
    stop: Cancellation = field(default_factory=Cancellation)
    sink: OpenSink | None = None
    is_open: bool = False
    error: str | None = None
    changed_ms: int = 0
    failures: int = 0
    is_settled: bool = False
    reads: int | None = None
    thread: threading.Thread | None = None
    after: tuple[threading.Thread, ...] = ()


@dataclass(slots=True)
class SinkRunner:
    """Runs the sinks of the environment. A failing sink retries and holds up no other.

    `awaited` has the times that statements wait for: until such a time is on record, the sink
    does not wait for more, and flushes what it writes after each step.
    `clock_ms` gives wall clock milliseconds.
    """

    relations: Relations
    watch: FrontierWatch
    awaited: Mapping[GlobalId, Timestamp]
    targets: SinkTargets
    clock_ms: Callable[[], int]
    on_fatal: Callable[[str], None]
    spans: Spans = field(default_factory=NoSpans)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _running: dict[GlobalId, RunningSink] = field(default_factory=dict, init=False)
    _counted: dict[GlobalId, SinkStatistics] = field(default_factory=dict, init=False)
    _took: dict[GlobalId, Durations] = field(default_factory=dict, init=False)
    """The durations of the ranges of each sink."""
    _paused: dict[GlobalId, int] = field(default_factory=dict, init=False)
    _ending: list[tuple[str, threading.Thread]] = field(default_factory=list, init=False)

    def run(self, command: RunSink) -> None:
        """Runs the sink as the command says, in place of how it ran before."""
        self.remove(command.id)
        item = self.relations.item(command.id)
        running = RunningSink(item, command, changed_ms=self.clock_ms())
        thread = threading.Thread(
            target=self._run, args=(running,), name=f"sink-{item.id}", daemon=True
        )
        running.thread = thread
        with self._lock:
            self._running[item.id] = running
            running.after = self._writers_of(self.targets.place(item))
        _log.info("status", object=item.id, status="running", error=None)
        thread.start()

    def _writers_of(self, place: str) -> tuple[threading.Thread, ...]:
        """The threads that were told to end and may still write there."""
        self._ending = [(other, each) for other, each in self._ending if each.is_alive()]
        return tuple(each for other, each in self._ending if other == place)

    def remove(self, global_id: GlobalId) -> None:
        """Stops a sink, and waits up to `STOP_S` for the range that it is writing.

        A system that does not answer holds up the sink's thread, and not the statement that
        drops or alters the sink. Other ids are ignored.
        """
        with self._lock:
            running = self._running.pop(global_id, None)
        if running is None:
            return
        running.stop.cancel()
        self.watch.signal()
        thread = running.thread
        if thread is None:
            return
        thread.join(STOP_S)
        if thread.is_alive():
            _log.warning("sink is still writing", sink=global_id, waited_s=STOP_S)
            with self._lock:
                self._ending.append((self.targets.place(running.item), thread))
        self._forget_dropped(global_id)

    def _forget_dropped(self, global_id: GlobalId) -> None:
        """Forgets what is known of a sink, unless it is only stopped for another command."""
        if global_id not in self.relations.state.items:
            self._counted.pop(global_id, None)
            self._took.pop(global_id, None)

    def close(self) -> None:
        for global_id in list(self._running):
            self.remove(global_id)
        if not self._ending:
            self.targets.close()

    @contextmanager
    def at_end_of_range(self, global_id: GlobalId, cancellation: Cancellation) -> Iterator[bool]:
        """Lets the sink begin no range while the block runs.

        Gives whether the sink runs and the range that it has begun is out, which is waited for
        until the cancellation.
        """
        paused = self._paused
        paused[global_id] = paused.get(global_id, 0) + 1
        try:
            yield self.watch.wait_until(
                lambda: self._is_settled(global_id), cancellation.left_s(), cancellation
            )
        finally:
            paused[global_id] -= 1
            if not paused[global_id]:
                del paused[global_id]
            self.watch.signal()

    def _is_settled(self, global_id: GlobalId) -> bool:
        running = self._running.get(global_id)
        return running is not None and running.is_settled

    def frontier(self, global_id: GlobalId) -> Frontier:
        """The time before which everything is written; the as-of while the sink has not begun."""
        running = self._running.get(global_id)
        if running is None:
            return Frontier(0)
        reached = None if running.sink is None else running.sink.frontier
        return Frontier(running.item.of(SinkDetails).as_of) if reached is None else reached

    def statistics(self) -> dict[GlobalId, SinkStatistics]:
        """The counts of each sink since this process has begun."""
        with self._lock:
            running = tuple(self._running.items())
        found = {}
        for global_id, each in running:
            sink = each.sink if each.is_open else None
            now = SinkStatistics() if sink is None else sink.statistics
            if now.snapshot_records_known is None and each.reads is not None:
                now = now.and_of_snapshot(0, each.reads)
            found[global_id] = self._counts(global_id).and_more(now)
        return found

    def _counts(self, global_id: GlobalId) -> SinkStatistics:
        """Those of writers that have ended."""
        return self._counted.get(global_id, SinkStatistics())

    def took(self) -> dict[GlobalId, Durations]:
        """The durations of the ranges of each sink that runs, since this process has begun."""
        with self._lock:
            running = tuple(self._running)
        return {each: self._took.get(each, Durations()) for each in running}

    def statuses(self) -> list[StatusChange]:
        """The last change of each sink's status."""
        with self._lock:
            running = tuple(self._running.values())
        return [
            StatusChange(
                sink.changed_ms,
                sink.item.id,
                SourceStatus("running" if sink.error is None else "stalled", sink.error),
            )
            for sink in running
        ]

    def _run(self, running: RunningSink) -> None:
        try:
            self._write(running)
        finally:
            self._forget_dropped(running.item.id)

    def _write(self, running: RunningSink) -> None:
        self._await_writers(running)
        while not running.stop.is_cancelled:
            try:
                self._follow(running)
            except (FatalError, Fenced) as error:
                self.on_fatal(str(error))
                return
            except SlackwaterError as error:
                self._failed(running, str(error))
            except Exception as error:  # one sink's defect must not end it without a word
                self._failed(running, f"{type(error).__name__}: {error}")

    def _failed(self, running: RunningSink, error: str) -> None:
        """Says that a sink has stalled, and waits before the next attempt."""
        if running.stop.is_cancelled:
            return
        if running.error != error:
            _log.warning("status", object=running.item.id, status="stalled", error=error)
            running.changed_ms = self.clock_ms()
        running.error = error
        self._pause(running)

    def _pause(self, running: RunningSink) -> None:
        """Waits before the next attempt: longer after each failure, and not when the way has
        changed."""
        version = self._version(running.item)
        until = RETRY_S * 2**running.failures
        running.failures = min(running.failures + 1, 10)
        left = min(until, MOST_RETRY_S)
        while left > 0 and not running.stop.is_cancelled:
            running.stop.pause(min(left, IDLE_S))
            left -= IDLE_S
            if self._version(running.item) != version:
                running.failures = 0
                return

    def _version(self, item: CatalogItem) -> str:
        try:
            return self.targets.version(item)
        except SlackwaterError as error:
            return str(error)

    def _await_writers(self, running: RunningSink) -> None:
        for thread in running.after:
            running.error = "waiting for a write to the same place that began before"
            while thread.is_alive() and not running.stop.is_cancelled:
                thread.join(IDLE_S)
        running.error = None

    def _follow(self, running: RunningSink) -> None:
        """Writes range after range until the sink is to stop, or the way to its target changes."""
        item, description = running.item, running.command.description
        source = self.relations.item(description.from_id)
        as_of = Timestamp(description.as_of.value)
        transactions, progress = self.relations.persist.transactions, self._progress(item, as_of)
        confirm = transactions.confirm_leadership
        claim = Claim(item.id, item.full_name, transactions.epoch, confirm, progress)
        version = self.targets.version(item)
        opening = Opening(source.stored.desc, claim, lambda: running.stop.is_cancelled)
        running.sink = sink = self.targets.open(item, opening)
        running.is_open = True
        try:
            reached = sink.frontier
            _refuse_gap(running, source, reached)
            running.is_settled = not sink.is_in_range
            # The export holds its input, also while it fails, one step behind what it has reported.
            feed = CollectionFeed(self.relations, source, None)
            while not running.stop.is_cancelled and self.targets.version(item) == version:
                reached = self._step(running, sink, feed, reached)
                if self._is_awaited(item, sink):
                    sink.flush()
                self._record(item, sink)
                running.is_settled = not sink.is_in_range
                running.reads = None
                running.failures = 0
                if running.error is not None:
                    running.error = None
                    running.changed_ms = self.clock_ms()
                    _log.info("status", object=item.id, status="running", error=None)
        finally:
            running.is_settled = running.is_open = False
            running.reads = None
            self._counted[item.id] = self._counts(item.id).and_more(sink.statistics)
            sink.close()

    def _progress(self, item: CatalogItem, as_of: Timestamp) -> Frontier | None:
        """The frontier that the sink has recorded; None as long as it has recorded none."""
        if item.progress_shard is None:
            return None
        upper = self.relations.persist.reads.upper(item.progress_shard)
        return Frontier(upper) if upper > as_of else None

    def _record(self, item: CatalogItem, sink: OpenSink) -> None:
        """Records the sink's frontier durably; its input need not be readable before it any more.

        The files are the authority; the record may lag behind them, never the other way round.
        """
        shard_id = item.progress_shard
        if shard_id is None or sink.frontier is None:
            return
        if sink.frontier.value <= self.relations.persist.reads.upper(shard_id):
            return
        try:
            self.relations.persist.commits.advance({shard_id: Timestamp(sink.frontier.value)})
        except UnknownShard:
            # The sink was dropped meanwhile, and is about to be told to stop.
            return
        self.relations.storage.report([(item.id, sink.frontier)])
        self.watch.signal()

    def _step(
        self, running: RunningSink, sink: OpenSink, feed: CollectionFeed, reached: Frontier | None
    ) -> Frontier | None:
        """Writes the times that have become complete; returns the sink's new frontier."""
        as_of = running.command.as_of
        begin = Timestamp(as_of.frontier.value)
        seen = begin if reached is None else reached.value

        def has_come() -> bool:
            # With the lock of the watch, under which others look whether the sink is settled.
            if feed.frontier().value <= seen:
                return False
            if self._paused.get(running.item.id) and not sink.is_in_range:
                return False
            if not sink.is_due and not self._is_awaited(running.item, sink):
                return False
            running.is_settled = False
            return True

        if not self.watch.wait_until(has_come, IDLE_S, running.stop):
            sink.tell()
            return reached
        upper = sink.end_of_range(feed.frontier())
        began_s = self.watch.now_s()
        if reached is None:
            later = feed.updates(Timestamp(begin + 1), Timestamp(upper.value))
            first = []
            if not as_of.strict:
                running.reads = feed.stored_rows(begin)
                first = [feed.snapshot(begin)]
            lower, updates = Frontier(begin), [*first, later]
        else:
            lower = reached
            updates = [feed.updates(Timestamp(reached.value), Timestamp(upper.value))]
        with self.spans.span("sink range", _named(running.item.id, lower, upper)):
            sink.write(lower, upper, updates)
        took_s = self.watch.now_s() - began_s
        known = self._took.get(running.item.id, Durations())
        self._took[running.item.id] = known.and_one(took_s)
        return upper

    def _is_awaited(self, item: CatalogItem, sink: OpenSink) -> bool:
        """Whether a statement waits for a time that the sink has not recorded yet."""
        awaited = self.awaited.get(item.id)
        return awaited is not None and (sink.frontier is None or sink.frontier.value <= awaited)


def _named(sink: GlobalId, lower: Frontier, upper: Frontier) -> Attributes:
    return {"sink": sink, "lower": lower.value, "upper": upper.as_nullable()}


def _refuse_gap(running: RunningSink, source: CatalogItem, reached: Frontier | None) -> None:
    """Raises SLACKWATER_NO_VALID_TIMESTAMP if the input has lost changes that are not written.

    A command whose as-of is later than that of the description says that the input can be read from
    there on (spec controllers 2.5); what is out, or the sink's beginning, has to reach so far.
    """
    readable, begin = running.command.as_of.frontier, running.command.description.as_of
    needed = begin if reached is None else STEP_BACK.frontier(reached)
    if readable > max(begin, needed):
        raise user_error(
            "SLACKWATER_NO_VALID_TIMESTAMP",
            details=f"the sink {running.item.full_name} goes on from {needed.value}, "
            f"and {source.full_name} can be read from {readable.value} on",
        )
