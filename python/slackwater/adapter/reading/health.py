"""The health of sources and views: the reasons for which they do not go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from slackwater.adapter.catalog.clusters import ClusterEntry
from slackwater.adapter.catalog.details import FilesDetails, KafkaDetails
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.adapter.controllers.dataflows import Dataflows
from slackwater.adapter.sessions.sessions import Session
from slackwater.adapter.sources.webhooks import Webhooks
from slackwater.adapter.time.timeline import Timeline
from slackwater.compute.controller.protocol import Problem
from slackwater.compute.records import HydrationProgress
from slackwater.planner.parser.refresh import LAST_TIME_MS, format_time
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.storage.ingestion import IngestionRunner, SourceStatus, StatusChange

WARNING, CODE = "WARNING", "01000"


@dataclass(frozen=True, slots=True)
class Health:
    """The present health of sources and views. Thread-safe, as its parts are."""

    ingestion: IngestionRunner
    webhooks: Webhooks
    dataflows: Dataflows
    state: Callable[[], CatalogState]
    timeline: Timeline

    def source_status(self, source: CatalogItem) -> StatusChange | None:
        """The last change of a source's status; for a table of a source, that of the source."""
        owner = source.feeder or source.id
        told = self.ingestion.status(owner) or self.webhooks.status(source)
        if told is None and not source.is_webhook and self.idle_cluster(source) is not None:
            return StatusChange(self.timeline.now(), owner, SourceStatus("paused"))
        return told

    def paused(self) -> Iterator[StatusChange]:
        """The status of each source and sink that no replica runs."""
        for item in self.state().items.values():
            runs = item.kind in (ItemKind.SOURCE, ItemKind.SINK) and not item.is_webhook
            if runs and item.parent is None and self.idle_cluster(item) is not None:
                yield StatusChange(self.timeline.now(), item.id, SourceStatus("paused"))

    def idle_cluster(self, item: CatalogItem) -> ClusterEntry | None:
        """The cluster that is to run the item and has no replicas; None: one runs it."""
        cluster = self.state().cluster_running(item)
        return None if cluster is None or cluster.replicas else cluster

    def source_statuses(self) -> Iterator[StatusChange]:
        """The last change of each source's status; some sources have none."""
        yield from self.ingestion.statuses()
        yield from self.webhooks.statuses()

    def waits_for(self, source: CatalogItem) -> str:
        """A sentence on why a source has not read what there was at first."""
        idle = self.idle_cluster(source)
        if idle is not None:
            return f"The cluster {idle.name}, which reads it, has no replicas."
        change = self.source_status(source)
        if change is not None and change.status.error is not None:
            return f"It has stopped: {change.status.error}"
        counted = self.ingestion.statistics().get(source.id)
        if counted is None or counted.snapshot_records_staged is None:
            return "It has just begun."
        of = "messages" if isinstance(source.details, KafkaDetails) else "rows"
        read, known = counted.snapshot_records_staged, counted.snapshot_records_known
        if known is None and isinstance(source.details, FilesDetails):
            return f"It has read {counted.offset_committed:,} of {counted.offset_known:,} files."
        return f"It has read {read:,}{'' if known is None else f' of {known:,}'} {of}."

    def hydrations(self) -> dict[GlobalId, HydrationProgress]:
        """The progress of what reads whole inputs now, on the replica that has read most of it."""
        told = [each.record for each in self.dataflows.hydration_progress()]
        told.sort(key=lambda each: each.rows_read)
        return {each.global_id: each for each in told}

    def awaited(
        self, state: CatalogState, item: CatalogItem, last: Timestamp, time: Timestamp
    ) -> str:
        """A sentence on what a reader of the item at `time` waits for, which has `last` already."""
        reading = self.hydrations()
        for each in state.below([item.id]):
            if each.id in reading:
                return f"{each.full_name} is hydrating, {reading[each.id]}."
        reason = self.failing_below(state, item) or self.next_refresh(state, item, time)
        behind = f"{item.full_name} is {(time - last) / 1000:,.1f} s behind the time of the read."
        return f"{behind}{reason}"

    def failure(self, view: CatalogItem) -> Problem | None:
        """The error of the last attempt to maintain a view; None: it did not fail."""
        return self.dataflows.failure(view.id)

    def failing_below(self, state: CatalogState, item: CatalogItem) -> str:
        """A sentence on why the item, or a view below it, does not go on; "" if none is known."""
        idle = self.idle_cluster(item) if item.kind.is_maintained else None
        if idle is not None:
            return f" The cluster {idle.name}, which maintains {item.full_name}, has no replicas."
        failure = self.failure(item)
        if failure is not None:
            return f" The last attempt to maintain {item.full_name} failed: {failure.message}"
        below = (state.items.get(each) for each in item.depends_on)
        found = (self.failing_below(state, each) for each in below if each is not None)
        return next(filter(None, found), "")

    def next_refresh(self, state: CatalogState, item: CatalogItem, time: Timestamp) -> str:
        """A sentence on the refresh that a reader of the item at `time` waits for; "" without one.

        It is that of the item, or of a view below it.
        """
        found = (each.refresh for each in state.below([item.id]))
        coming = [each.before(Timestamp(time + 1)) for each in found if each is not None]
        known = [each for each in coming if each is not None and each > self.timeline.read_ts()]
        if not known:
            return ""
        return f" It is refreshed at {format_time(min(max(known), LAST_TIME_MS))} UTC."

    def tell_of_stalled(
        self, session: Session, state: CatalogState, items: Iterable[CatalogItem]
    ) -> None:
        """Gives the session a notice for each stalled source below `items`.

        The contents of such a source are right, and do not grow. A session gets the notice once,
        until the source stalls anew.
        """
        found = state.below(item.id for item in items)
        owners = {item.feeder for item in found if item.feeder is not None}
        for source in map(state.item, sorted(owners)):
            change = self.ingestion.status(source.id) or self.webhooks.status(source)
            if change is None or change.status.status != "stalled":
                continue
            if session.is_news((source.id, change.occurred_at_ms)):
                session.notify(
                    f"The source {source.full_name} has stopped, and its contents stay as they"
                    f" are: {change.status.error}",
                    WARNING,
                    CODE,
                )
