"""The ingestions that fill the sources of the catalog.

Source: spec controllers 5.1 to 5.3, docs/decisions 0002 and 0011.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from slackwater.adapter.catalog.details import (
    FilesDetails,
    GeneratorDetails,
    KafkaDetails,
    LakeDetails,
    PostgresDetails,
    SourceTableDetails,
)
from slackwater.adapter.catalog.model import CatalogItem
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.sessions.sessions import Session
from slackwater.adapter.sources.changefeed_sources import ChangefeedSources
from slackwater.adapter.sources.descriptions import DEFAULT_INTERVAL_MS, partitions
from slackwater.adapter.sources.kafka import KafkaSources
from slackwater.adapter.sources.lakes import LakeSources
from slackwater.adapter.sources.postgres import PostgresSources
from slackwater.adapter.sources.source_states import SourceStates, frontier_of_state
from slackwater.adapter.time.watch import Cancellation
from slackwater.adapter.writing.group_commit import GroupCommitter
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.storage.controller.protocol import RunIngestion
from slackwater.storage.files_source import FilesIngestion
from slackwater.storage.generators import GeneratedTables, GeneratorConfig, GeneratorIngestion
from slackwater.storage.ingestion import Ingestion, IngestionRunner, Reached, Resumed
from slackwater.storage.key_value import KeyValueConfig, KeyValueIngestion
from slackwater.storage.progress import remap_at
from slackwater.storage.source_time import SourceFrontier

DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Sources:
    """Runs the ingestions of the environment."""

    relations: Relations
    ingestion: IngestionRunner
    states: SourceStates
    committer: GroupCommitter
    changefeeds: ChangefeedSources
    kafka: KafkaSources
    postgres: PostgresSources
    lakes: LakeSources
    _running: dict[GlobalId, GlobalId] = field(default_factory=dict, init=False)

    def run(self, command: RunIngestion) -> None:
        """Runs an ingestion from its durable state on: the source that its connection names.

        One that runs already finds its exports anew at each step: those that the command names are
        what the catalog has by then. Called, as `stop` is, by one thread at a time.
        """
        if command.id in self._running:
            return
        source_id, remap = GlobalId(command.ingestion.connection), command.ingestion.remap
        if remap is None:
            raise AssertionError(f"{command.id} has no remap")
        source = self.relations.item(source_id)
        interval = source.ingested.interval_ms or DEFAULT_INTERVAL_MS
        self.ingestion.add(
            source_id, lambda: self._resume(self.relations.item(source_id), remap), interval
        )
        self._running[command.id] = source_id

    def stop(self, ingestion: GlobalId) -> None:
        """Stops an ingestion and waits for the step that it is in. Others are ignored."""
        source_id = self._running.pop(ingestion, None)
        if source_id is not None:
            self.ingestion.remove(source_id)
            self.kafka.running.pop(source_id, None)
            self.postgres.stopped(source_id)
            self.lakes.running.pop(source_id, None)
            self.changefeeds.changefeeds.forget(source_id)

    def wait_for_snapshot(
        self, session: Session, item: CatalogItem, cancellation: Cancellation
    ) -> None:
        """Returns when the first contents of the source can be read, so that no read misses them.

        At the deadline, or when the statement is cancelled, a notice says that the source still
        reads: it exists from its definition on.
        """
        ingestion = self.ingestion
        with cancellation.on_cancel(ingestion.signal):
            begun = ingestion.wait_for(
                item.id,
                lambda status: status.status != "starting",
                min(cancellation.left_s(), DAY_MS / 1000),
                lambda: cancellation.is_cancelled,
            )
        if not begun:
            session.notify(f"{item.full_name} is still reading what it found first.")

    def _resume(self, item: CatalogItem, remap: GlobalId) -> Resumed:
        """The ingestion from where its durable collections end.

        A commit goes first: it settles whether an earlier one of this source, whose answer was
        lost, has happened, so that the state and the remap are of the same step.
        """
        self.committer.flush()
        self.states.arrived(item.id)
        reached = replace(self.states.reached(item.id), frontier=self._source_upper(item, remap))
        if reached.frontier is None and reached.state is not None:
            # Of the first version, which kept the frontier in the state; the next step binds it.
            begun = replace(reached, frontier=frontier_of_state(reached.state))
            return Resumed(self._begun(item, begun), reached)
        if isinstance(item.details, KafkaDetails):
            return self.kafka.resumed(item, reached)
        if isinstance(item.details, PostgresDetails):
            return self.postgres.resumed(item, reached)
        if isinstance(item.details, LakeDetails):
            return self.lakes.resumed(item, reached)
        return Resumed(self._begun(item, reached), reached)

    def _source_upper(self, item: CatalogItem, remap_id: GlobalId) -> SourceFrontier | None:
        """The source frontier up to which its exports have its data; None: nothing is bound yet."""
        progress = self.relations.item(remap_id)
        upper = Timestamp(self.relations.upper(progress).value)
        rows = self.relations.present(progress, Timestamp(upper - 1))
        remap = remap_at(rows, upper, SourceFrontier.minimum(partitions(item)))
        # All exports share the upper of the tables, and the remap does too.
        return remap.source_upper_at_frontier(Frontier(upper)) if remap.bindings else None

    def _generated(self, item: CatalogItem, reached: Reached) -> GeneratedTables:
        """The tables of a load generator, as the catalog has them by the time that it looks."""

        def references() -> dict[str, str]:
            state = self.relations.state
            source = state.items.get(item.id, item)
            made = {name: name for name in source.ingested.exports}
            added = state.tables_of(item.id).items()
            return {
                **made,
                **{name: table.of(SourceTableDetails).reference[-1] for name, table in added},
            }

        begun = frozenset((*item.ingested.exports, *reached.statistics.begun))
        return GeneratedTables(references, begun)

    def _begun(self, item: CatalogItem, reached: Reached) -> Ingestion:
        if item.is_changefeed:
            return self.changefeeds.resumed(item, reached)
        match item.details:
            case GeneratorDetails(config=KeyValueConfig() as config):
                return KeyValueIngestion(config, reached.frontier, reached.state)
            case GeneratorDetails(config=GeneratorConfig() as config):
                tables = self._generated(item, reached) if item.shard_id is None else None
                return GeneratorIngestion(config, reached.frontier, reached.state, tables)
            case _:
                files, columns = item.of(FilesDetails).config, item.stored.desc
                has_begun = reached.statistics.snapshot_committed
                return FilesIngestion(files, item.name, columns, reached.state, has_begun=has_begun)
