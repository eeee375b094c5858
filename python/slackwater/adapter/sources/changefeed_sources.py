"""The ingestions of changefeeds, made of their durable state, and their rows in system relations.

Source: spec checkpoint 5.4, 5.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from slackwater.adapter.catalog.details import ChangefeedDetails
from slackwater.adapter.catalog.model import CatalogItem
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.sources.changefeeds import Changefeeds
from slackwater.adapter.sources.checkpoint_counts import CheckpointCounts, CheckpointTotals
from slackwater.adapter.sources.feed_tables import FedTable, fed_tables, feed_keys
from slackwater.adapter.writing.group_commit import GroupCommitter
from slackwater.checkpoints import Store
from slackwater.checkpoints.store import FIRST, GroupState
from slackwater.repr.frontier import Timestamp
from slackwater.repr.hlc import Time
from slackwater.repr.ids import GlobalId
from slackwater.storage.changefeed.admission import MINIMUM
from slackwater.storage.changefeed.encoding import time_at
from slackwater.storage.changefeed.files import FolderReader
from slackwater.storage.changefeed.ingestion import (
    ChangefeedConfig,
    ChangefeedIngestion,
    Durable,
    FeedCounters,
    Inputs,
)
from slackwater.storage.changefeed.landing import contents, letters
from slackwater.storage.changefeed.tables import FeedTable
from slackwater.storage.ingestion import Reached, StepSuperseded


@dataclass(frozen=True, slots=True)
class PartitionEntry:
    """The progress of one feed of a source. Times are None before the first.

    `waiting` counts the changes that wait.
    """

    source_id: GlobalId
    partition: str
    status: str
    resolved: Time | None
    committed: Time | None
    proposed: Time | None
    waiting: int
    counters: FeedCounters


@dataclass(frozen=True, slots=True)
class CheckpointProgress:
    """The progress of the checkpoint group of a source, and its dead letters since it was read.

    Times are None before the first.
    """

    committed: Time | None
    proposed: Time | None
    dead: int


@dataclass(frozen=True, slots=True)
class ChangefeedSources:
    """The changefeeds of one environment, as sources. Thread-safe, as its parts are."""

    relations: Relations
    changefeeds: Changefeeds
    committer: GroupCommitter
    checkpoints: Store
    counts: CheckpointCounts

    def resumed(self, item: CatalogItem, reached: Reached) -> ChangefeedIngestion:
        """The ingestion of a source, from its landing and with what lands from now on."""
        inbox = self.changefeeds.inbox(item.id)
        inbox.begin()
        # A write whose answer was lost has happened before this, or never.
        self.committer.flush()
        rows, upper = self._rows(item, "landing")
        inbox.read_before(upper)
        waiting, images = contents(rows)
        details = item.of(ChangefeedDetails)
        config = details.config
        store = self.checkpoints
        if config.feeds:
            store.ensure(item.id, config.feeds)

        def state(lookahead: int | None) -> GroupState:
            with self.counts.timed("refresh", item.id):
                return store.state(item.id, lookahead)

        path = config.path
        reader = None
        if path is not None:
            reader = FolderReader(
                path,
                feed_keys(self.relations.state, item),
                lambda time, feed: store.advance(item.id, feed, time),
                config.lookahead,
            )
        tables = fed_tables(self.relations.state, item)
        begun = frozenset(reached.statistics.begun)
        ingestion = ChangefeedIngestion(
            item.id,
            self._config(item, tables),
            Inputs(
                state,
                inbox,
                reader,
                lambda: letters(self._rows(item, "dead_letters")[0]),
                lambda: self._check(item, tables),
            ),
            Durable(waiting, images, reached.frontier, reached.state, begun),
        )
        inbox.progress = lambda: ingestion.progress
        return ingestion

    def _rows(self, source: CatalogItem, which: str) -> tuple[pa.Table, Timestamp]:
        """All rows of the source's landing or dead letters, and the upper they were read at."""
        details = source.of(ChangefeedDetails)
        name = details.landing if which == "landing" else details.dead_letters
        item = self.relations.item(details.exports[name])
        upper = Timestamp(self.relations.upper(item).value)
        return self.relations.present(item, Timestamp(upper - 1)), upper

    def seen(self, source: CatalogItem) -> Sequence[str]:
        """The tables of the source's dead letters."""
        rows, _ = self._rows(source, "dead_letters")
        return sorted(set(rows["topic"].to_pylist()))

    def _check(self, item: CatalogItem, tables: Sequence[FedTable]) -> None:
        """Raises `StepSuperseded` when the source has other tables than these."""
        state = self.relations.state
        if fed_tables(state, state.items.get(item.id, item)) != tables:
            raise StepSuperseded(item.id, 0, 0)

    def _config(self, item: CatalogItem, fed: Sequence[FedTable]) -> ChangefeedConfig:
        details = item.of(ChangefeedDetails)
        tables = {}
        for each in fed:
            desc, settings = self.relations.item(each.item).stored.desc, each.settings
            tables[settings.name] = FeedTable(desc, settings.key, settings.extras)
        return ChangefeedConfig(
            name=item.full_name,
            tables=tables,
            later={each.settings.name: each.export for each in fed if each.is_later},
            landing=details.landing,
            dead_letters=details.dead_letters,
            feeds=details.config.feeds,
            lookahead=details.config.lookahead,
            is_strict=details.config.on_late == "FAIL",
        )

    def totals(self) -> CheckpointTotals:
        """The counts of the sources that there are."""
        return self.counts.totals(self.relations.state.items.keys())

    def progress(self) -> dict[GlobalId, CheckpointProgress]:
        """The progress of each source that runs."""
        return {
            source: CheckpointProgress(
                _moment(each.lower),
                None if each.lower == MINIMUM else time_at(each.proposed),
                sum(feed.dead for feed in each.admitted.values()),
            )
            for source, each in self.changefeeds.changefeed_progress().items()
        }

    def partitions(self) -> Iterator[PartitionEntry]:
        """The partitions of all sources that run. Raises SLACKWATER_METASTORE_UNAVAILABLE."""
        for source_id, progress in self.changefeeds.changefeed_progress().items():
            item = self.relations.state.items.get(source_id)
            if item is None:
                continue
            tops = {
                each.partition: each.top
                for each in self.checkpoints.state(item.id, None).partitions
            }
            known = {
                *tops,
                *progress.admitted,
                *progress.waiting,
                *item.of(ChangefeedDetails).config.feeds,
            }
            for name in sorted(known):
                top = tops.get(name, FIRST)
                yield PartitionEntry(
                    source_id=source_id,
                    partition=name,
                    status="admitted" if name in progress.admitted else "pending",
                    resolved=top if top > FIRST else None,
                    committed=_moment(progress.lower),
                    proposed=_moment(progress.proposed),
                    waiting=progress.waiting.get(name, 0),
                    counters=progress.admitted.get(name, FeedCounters()),
                )


def _moment(place: int) -> Time | None:
    """The last time before a frontier; None at the beginning."""
    return None if place == MINIMUM else time_at(place).before
