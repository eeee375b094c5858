"""The threads that write sinks: each follows its input's frontier and commits range after range."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from slackwater.adapter.catalog.details import SinkDetails
from slackwater.adapter.catalog.model import CatalogItem
from slackwater.adapter.controllers.feeds import CollectionFeed
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.time.watch import Cancellation, FrontierWatch
from slackwater.persist.client import UnknownShard
from slackwater.persist.leadership import Fenced
from slackwater.repr.errors import FatalError, SlackwaterError, user_error
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.read_policy import STEP_BACK
from slackwater.repr.relation import RelationDesc
from slackwater.storage.controller.protocol import RunSink
from slackwater.storage.ingestion import SourceStatus, StatusChange
from slackwater.storage.sink_files import FilesSink, SinkConfig
from slackwater.storage.sink_folder import Claim

PROGRESS = RelationDesc.of(frontier="long")
"""The columns of a sink's progress shard, which has no rows: its upper is the sink's frontier."""

RETRY_S = 1.0
IDLE_S = 1.0
STOP_S = 5.0
"""Seconds that a statement waits for the range that a sink is writing when it is to end."""

_log = structlog.get_logger("sink")


@dataclass(slots=True)
class RunningSink:
    """One sink, the command by which it runs, and its state. `error` is the last problem, if any.

    `after` are threads that were told to end and may still write the same folder: this sink begins
    when they have ended.
    """

    item: CatalogItem
    command: RunSink
    stop: Cancellation = field(default_factory=Cancellation)
    sink: FilesSink | None = None
    error: str | None = None
    changed_ms: int = 0
    thread: threading.Thread | None = None
    after: tuple[threading.Thread, ...] = ()


def sink_config(item: CatalogItem) -> SinkConfig:
    """The configuration that the catalog keeps for a sink."""
    return item.of(SinkDetails).config


@dataclass(slots=True)
class SinkRunner:
    """Runs the sinks of the environment. A failing sink retries and holds up no other.

    `awaited` has the times that statements wait for: until such a time is on record, the sink
    flushes its files after each step.
    `clock_ms` gives wall clock milliseconds.
    """

    relations: Relations
    watch: FrontierWatch
    awaited: Mapping[GlobalId, Timestamp]
    clock_ms: Callable[[], int]
    on_fatal: Callable[[str], None]
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _running: dict[GlobalId, RunningSink] = field(default_factory=dict, init=False)
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
            running.after = self._writers_of(sink_config(item).path)
        _log.info("status", object=item.id, status="running", error=None)
        thread.start()

    def _writers_of(self, path: str) -> tuple[threading.Thread, ...]:
        """The threads that were told to end and may still write below `path`."""
        self._ending = [(folder, each) for folder, each in self._ending if each.is_alive()]
        return tuple(each for folder, each in self._ending if folder == path)

    def remove(self, global_id: GlobalId) -> None:
        """Stops a sink, and waits up to `STOP_S` for the range that it is writing.

        A file system that does not answer holds up the sink's thread, and not the statement that
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
                self._ending.append((sink_config(running.item).path, thread))

    def close(self) -> None:
        for global_id in list(self._running):
            self.remove(global_id)

    def frontier(self, global_id: GlobalId) -> Frontier:
        """The time before which everything is written; the as-of while the sink has not begun."""
        running = self._running.get(global_id)
        if running is None:
            return Frontier(0)
        reached = None if running.sink is None else running.sink.frontier
        return Frontier(running.item.of(SinkDetails).as_of) if reached is None else reached

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
        self._await_writers(running)
        while not running.stop.is_cancelled:
            try:
                self._follow(running)
            except SlackwaterError as error:
                if running.stop.is_cancelled:
                    return
                if running.error != str(error):
                    _log.warning(
                        "status", object=running.item.id, status="stalled", error=str(error)
                    )
                    running.changed_ms = self.clock_ms()
                running.error = str(error)
                running.stop.pause(RETRY_S)
            except (FatalError, Fenced) as error:
                self.on_fatal(str(error))
                return

    def _await_writers(self, running: RunningSink) -> None:
        for thread in running.after:
            running.error = "waiting for a write to the same folder that began before"
            while thread.is_alive() and not running.stop.is_cancelled:
                thread.join(IDLE_S)
        running.error = None

    def _follow(self, running: RunningSink) -> None:
        item, description = running.item, running.command.description
        source = self.relations.item(description.from_id)
        as_of = Timestamp(description.as_of.value)
        transactions, progress = self.relations.persist.transactions, self._progress(item, as_of)
        confirm = transactions.confirm_leadership
        claim = Claim(item.id, item.full_name, transactions.epoch, confirm, progress)
        running.sink = FilesSink(sink_config(item), source.stored.desc, claim, clock=self.clock_ms)
        reached = running.sink.frontier
        _refuse_gap(running, source, reached)
        # The export holds its input, also while it fails, one step behind what it has reported.
        feed = CollectionFeed(self.relations, source, None)
        while not running.stop.is_cancelled:
            reached = self._step(running, running.sink, feed, reached)
            if self._is_awaited(item, running.sink):
                running.sink.flush()
            self._record(item, running.sink)
            if running.error is not None:
                running.error = None
                running.changed_ms = self.clock_ms()
                _log.info("status", object=item.id, status="running", error=None)
        running.sink.close()

    def _progress(self, item: CatalogItem, as_of: Timestamp) -> Frontier | None:
        """The frontier that the sink has recorded; None as long as it has recorded none."""
        if item.progress_shard is None:
            return None
        upper = self.relations.persist.reads.upper(item.progress_shard)
        return Frontier(upper) if upper > as_of else None

    def _record(self, item: CatalogItem, sink: FilesSink) -> None:
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
        self, running: RunningSink, sink: FilesSink, feed: CollectionFeed, reached: Frontier | None
    ) -> Frontier | None:
        """Writes the times that have become complete; returns the sink's new frontier."""
        as_of = running.command.as_of
        begin = Timestamp(as_of.frontier.value)
        seen = begin if reached is None else reached.value
        if not self.watch.wait_until(lambda: feed.frontier().value > seen, IDLE_S, running.stop):
            sink.tell()
            return reached
        upper = feed.frontier()
        if reached is None:
            later = feed.updates(Timestamp(begin + 1), Timestamp(upper.value))
            first = [] if as_of.strict else [feed.snapshot(begin)]
            sink.write(Frontier(begin), upper, [*first, later])
        else:
            sink.write(
                reached, upper, [feed.updates(Timestamp(reached.value), Timestamp(upper.value))]
            )
        return upper

    def _is_awaited(self, item: CatalogItem, sink: FilesSink) -> bool:
        """Whether a statement waits for a time that the sink has not recorded yet."""
        awaited = self.awaited.get(item.id)
        return awaited is not None and (sink.frontier is None or sink.frontier.value <= awaited)


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
