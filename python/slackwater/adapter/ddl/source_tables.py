"""CREATE TABLE ... FROM SOURCE and ALTER SOURCE ... REFRESH REFERENCES."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from slackwater.adapter.catalog.details import (
    ChangefeedDetails,
    GeneratorDetails,
    KafkaDetails,
    PostgresDetails,
)
from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.adapter.catalog.ops import AlterItem
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.ddl.planned_tables import (
    SourceTablePlanner,
    references_of,
    with_dead_letters,
)
from slackwater.adapter.external.kafka import Named
from slackwater.adapter.sessions.sessions import Execution
from slackwater.adapter.sources.changefeed_sources import ChangefeedSources
from slackwater.adapter.sources.kafka import KafkaSources
from slackwater.adapter.sources.source_states import SourceStates
from slackwater.planner.parser.source_tables import CreateTableFromSource, RefreshReferences
from slackwater.repr.errors import unsupported
from slackwater.storage.generators import GeneratorConfig, remembers_times
from slackwater.storage.ingestion import IngestionRunner


@dataclass(frozen=True, slots=True)
class SourceTableDefinitions:
    """Definitions of tables that sources fill, and what sources say that they have."""

    changes: Changes
    planner: SourceTablePlanner
    states: SourceStates
    ingestion: IngestionRunner
    kafka: KafkaSources
    changefeeds: ChangefeedSources
    clock_ms: Callable[[], int]

    def create_table(
        self, execution: Execution, named: tuple[str, str], statement: CreateTableFromSource
    ) -> None:
        """Adds a table to a source, which goes on meanwhile.

        Its first contents come later, in one step of the source; reads wait for that. Raises
        SLACKWATER_UNKNOWN_OBJECT, SLACKWATER_WRONG_KIND, and what the planner raises.
        """
        context = execution.context
        source = self.changes.state.get(*context.resolve(statement.source), ItemKind.SOURCE)
        if source.parent is not None:
            raise source.wrong_kind("source that is no part of another one")
        if source.is_webhook:
            raise unsupported(
                f"CREATE TABLE ... FROM SOURCE {source.full_name}",
                advice="It is itself the relation: create a view or a materialized view over it.",
            )
        blank = self.changes.new_item(ItemKind.TABLE, *named, execution.user)
        table, notices = self.planner.plan(blank, context, statement, source)
        self._refuse_forgotten(source)
        items = with_dead_letters(table, source, self.changes.state, self.changes.new_id)
        with self.changes.defining(execution.cancellation):
            self.changes.commit(self.changes.with_tables_shards(items), execution.user)
        for notice in notices:
            execution.session.notify(notice)
        self.ingestion.wake(source.id)
        self.changes.tell_if_idle(execution, source)

    def _refuse_forgotten(self, source: CatalogItem) -> None:
        match source.details:
            case GeneratorDetails(config=GeneratorConfig(kind="AUCTION")):
                if not remembers_times(self.states.reached(source.id).state):
                    raise unsupported(
                        f"Another table of {source.full_name}, which an early release made",
                        advice="It has not kept the times of its rows: create the source anew.",
                    )

    def refresh_references(self, execution: Execution, statement: RefreshReferences) -> None:
        """Asks the source again what it has.

        Raises SLACKWATER_UNSUPPORTED for a source without references, and what its upstream raises.
        """
        named = self.changes.existing_name(
            execution, ItemKind.SOURCE, statement.name, if_exists=statement.if_exists
        )
        if named is None:
            return
        source = self.changes.state.get(*named, ItemKind.SOURCE)
        if source.parent is not None or source.is_webhook:
            raise source.wrong_kind("source with references")
        if isinstance(source.details, PostgresDetails):
            found = self.planner.postgres.published(source)
            with self.changes.defining(execution.cancellation):
                published = self.changes.state.item(source.id).of(PostgresDetails)
                known = replace(published, referenced=found, referenced_ms=self.clock_ms())
                self.changes.commit([AlterItem(source.id, details=known)], execution.user)
            return
        if isinstance(source.details, ChangefeedDetails):
            seen = tuple(self.changefeeds.seen(source))
            with self.changes.defining(execution.cancellation):
                feed = self.changes.state.item(source.id).of(ChangefeedDetails)
                told = replace(feed, seen=seen, referenced_ms=self.clock_ms())
                self.changes.commit([AlterItem(source.id, details=told)], execution.user)
            return
        references_of(source)
        if isinstance(source.details, KafkaDetails):
            topic_name, connection = source.details.config.topic, source.details.connection
            shown = self.changes.state.item(connection).full_name
            with self.kafka.looked_at(Named(source.full_name, shown, topic_name), connection) as it:
                it.topic_id()
        with self.changes.defining(execution.cancellation):
            details = self.changes.state.item(source.id).details
            if isinstance(details, GeneratorDetails | KafkaDetails):
                asked = replace(details, referenced_ms=self.clock_ms())
                self.changes.commit([AlterItem(source.id, details=asked)], execution.user)
