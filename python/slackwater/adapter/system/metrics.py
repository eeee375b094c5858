"""The metrics of a leader, gathered when they are asked for: no gauge is set by hand.

A scrape takes the locks of the parts one after the other, each for as long as it copies numbers. A
part that does not answer, such as a driver that hangs, makes its own metrics missing and no other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from slackwater.adapter.catalog.model import ItemKind, shards_of
from slackwater.adapter.controllers.dataflows import Dataflows
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.sessions.statement_counts import StatementCounts
from slackwater.adapter.sources.changefeed_sources import ChangefeedSources
from slackwater.adapter.sources.postgres import PostgresSources
from slackwater.adapter.sources.sinks import SinkRunner
from slackwater.adapter.system.metric_families import MetricsSnapshot, Totals, metrics_text
from slackwater.adapter.system.objects import items
from slackwater.adapter.system.snapshot import SystemSnapshot
from slackwater.adapter.system.tables import SystemTables
from slackwater.adapter.writing.group_commit import GroupCommitter
from slackwater.persist.error_shards import errors_at
from slackwater.persist.leadership import Fenced
from slackwater.persist.usage import ShardUsage, usage
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.storage.ingestion import IngestionRunner

ANSWER_S = 1.0
"""A replica that has not said anything after so many seconds is left out of a scrape."""

Told = TypeVar("Told")


@dataclass(frozen=True, slots=True)
class CountingParts:
    """The running parts that count what they do, and say it."""

    statements: StatementCounts
    committer: GroupCommitter
    dataflows: Dataflows
    ingestion: IngestionRunner
    changefeeds: ChangefeedSources
    postgres: PostgresSources
    sinks: SinkRunner


@dataclass(frozen=True, slots=True)
class Metrics:
    """The metrics of the leader with this `epoch`. Thread-safe, as its parts are."""

    system: SystemTables
    relations: Relations
    parts: CountingParts
    epoch: int

    def text(self) -> bytes:
        """The metrics now, as Prometheus reads them.

        Waits for the metastore once, and for replicas up to `ANSWER_S` each.
        """
        return metrics_text(self.snapshot())

    def snapshot(self) -> MetricsSnapshot:
        """The snapshot of which the metrics are made now."""
        parts, answers = self.parts, {}

        def asked(part: str, question: Callable[[], Told]) -> Told | None:
            try:
                found = question()
            except (SlackwaterError, Fenced, TimeoutError, OSError):
                answers[part] = False
                return None
            answers[part] = True
            return found

        system = self.system.snapshot(frozenset())
        system = replace(system, usage=asked("metastore", self._usage) or ())
        ticks = asked("replicas", lambda: parts.dataflows.tick_totals(ANSWER_S))
        memory = asked("driver", lambda: parts.dataflows.arrangement_memory(ANSWER_S))
        return MetricsSnapshot(
            system=system,
            epoch=self.epoch,
            totals=Totals(
                parts.statements.totals(),
                parts.committer.totals,
                parts.changefeeds.totals(),
                tuple(ticks or ()),
                parts.sinks.took(),
            ),
            failing=asked("errors", lambda: self._failing(system)) or frozenset(),
            answers=answers,
            memory=tuple(memory or ()),
            shards=_shards(system),
            checkpoints=parts.changefeeds.progress(),
            retained_bytes=parts.postgres.retained_bytes(),
        )

    def _usage(self) -> tuple[ShardUsage, ...]:
        return self.relations.persist.transactions.query(usage)

    def _failing(self, system: SystemSnapshot) -> frozenset[GlobalId]:
        """Views and indexes that do not go on, and views with an error at their last time."""
        told = {each.id for each in self.parts.dataflows.statuses() if each.failure is not None}
        rows = {each.shard_id: each.rows for each in system.usage}
        reads = self.relations.persist.reads
        for item in system.catalog.items.values():
            shard, reached = item.errors_shard, system.frontiers.get(item.id)
            if item.kind is not ItemKind.MATERIALIZED_VIEW or shard is None or reached is None:
                continue
            if not rows.get(shard) or reached.upper.is_empty:
                # Most views never had an error: only of the others the shard is read.
                continue
            if errors_at(reads, shard, Timestamp(reached.upper.value - 1)):
                told.add(item.id)
        return frozenset(told)


def _shards(system: SystemSnapshot) -> dict[GlobalId, tuple[int, ...]]:
    """The shards of each object that has some."""
    found = ((item.id, shards_of(item)) for item in items(system))
    return {object_id: shards for object_id, shards in found if shards}
