"""ALTER SOURCE ... SKIP LOST and ALTER SOURCE ... RESNAPSHOT."""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.adapter.catalog.details import KafkaDetails, PostgresDetails
from slackwater.adapter.catalog.lock import LOOK_S
from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.sessions.sessions import Execution
from slackwater.adapter.sources.kafka import KafkaSources
from slackwater.adapter.sources.postgres import PostgresSources
from slackwater.planner.parser.kafka_source import ResnapshotSource, SkipLost
from slackwater.repr.errors import SlackwaterError, unsupported, user_error
from slackwater.storage.ingestion import IngestionRunner
from slackwater.storage.kafka.ingestion import KafkaIngestion
from slackwater.storage.postgres.ingestion import PostgresIngestion, Resnapshot


@dataclass(frozen=True, slots=True)
class TopicDefinitions:
    """Changes of the sources that read topics."""

    changes: Changes
    kafka: KafkaSources
    postgres: PostgresSources
    ingestion: IngestionRunner

    def skip_lost(self, execution: Execution, statement: SkipLost) -> None:
        """Lets a source go on that has stopped because messages are gone.

        Raises SLACKWATER_WRONG_KIND, SLACKWATER_NOTHING_LOST.
        """
        found = self._source(execution, statement)
        if found is None:
            return
        source, running = found
        if running is None or running.skip_lost() is None:
            raise user_error("SLACKWATER_NOTHING_LOST", objectName=source.full_name)
        self.ingestion.wake(source.id)

    def resnapshot(self, execution: Execution, statement: ResnapshotSource) -> None:
        """Lets a source read its topic again; returns when the difference is durable.

        Raises SLACKWATER_WRONG_KIND, SLACKWATER_UNSUPPORTED, SLACKWATER_STATEMENT_TIMEOUT.
        """
        published = self._named(execution, statement)
        if published is not None and isinstance(published.details, PostgresDetails):
            self._copy_again(execution, published)
            return
        found = self._source(execution, statement)
        if found is None:
            return
        source, running = found
        if source.of(KafkaDetails).config.decoding.envelope == "NONE":
            raise unsupported(
                "RESNAPSHOT of a source with ENVELOPE NONE",
                advice="Its rows have no keys to tell which of them are there already: create a "
                "source anew.",
            )
        if running is None:
            raise _idle()
        wanted = running.resnapshot()
        self.ingestion.wake(source.id)
        while not wanted.done.wait(LOOK_S):
            execution.cancellation.check_deadline(f"{source.full_name} was read again")

    def _copy_again(self, execution: Execution, source: CatalogItem) -> None:
        """Lets a source copy its tables again; returns when the difference is durable."""
        wanted: Resnapshot | None = None
        asked: PostgresIngestion | None = None
        while wanted is None or not wanted.done.wait(LOOK_S):
            running = self.postgres.running.get(source.id)
            if running is None and wanted is None:
                raise _idle()
            if running is not None and running is not asked:
                # Another ingestion goes on with the source, which was not asked.
                wanted, asked = running.resnapshot(), running
                self.ingestion.wake(source.id)
            execution.cancellation.check_deadline(f"{source.full_name} was read again")

    def _named(
        self, execution: Execution, statement: SkipLost | ResnapshotSource
    ) -> CatalogItem | None:
        """The source; None: it need not exist."""
        named = self.changes.existing_name(
            execution, ItemKind.SOURCE, statement.name, if_exists=statement.if_exists
        )
        return None if named is None else self.changes.state.get(*named, ItemKind.SOURCE)

    def _source(
        self, execution: Execution, statement: SkipLost | ResnapshotSource
    ) -> tuple[CatalogItem, KafkaIngestion | None] | None:
        """The source that reads a topic, and its ingestion if it runs; None: it need not exist."""
        source = self._named(execution, statement)
        if source is None:
            return None
        if not isinstance(source.details, KafkaDetails):
            raise user_error(
                "SLACKWATER_WRONG_KIND",
                objectName=source.full_name,
                actualKind="source of another kind",
                expectedKind="source FROM KAFKA",
            )
        return source, self.kafka.running.get(source.id)


def _idle() -> SlackwaterError:
    return unsupported(
        "RESNAPSHOT of a source that does not run", advice="Give its cluster a replica first."
    )
