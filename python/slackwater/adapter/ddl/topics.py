"""ALTER SOURCE ... SKIP LOST and ALTER SOURCE ... RESNAPSHOT."""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.adapter.catalog.details import KafkaDetails
from slackwater.adapter.catalog.lock import LOOK_S
from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.sessions.sessions import Execution
from slackwater.adapter.sources.kafka import KafkaSources
from slackwater.planner.parser.kafka_source import ResnapshotSource, SkipLost
from slackwater.repr.errors import unsupported, user_error
from slackwater.storage.ingestion import IngestionRunner
from slackwater.storage.kafka.ingestion import KafkaIngestion


@dataclass(frozen=True, slots=True)
class TopicDefinitions:
    """Changes of the sources that read topics."""

    changes: Changes
    kafka: KafkaSources
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
        found = self._source(execution, statement)
        if found is None:
            return
        source, running = found
        decoding = source.of(KafkaDetails).config.decoding
        if decoding is None:
            raise unsupported(
                "RESNAPSHOT of a source without FORMAT",
                advice="Drop its table and create it anew: it reads the topic from its beginning.",
            )
        if decoding.envelope == "NONE":
            raise unsupported(
                "RESNAPSHOT of a source with ENVELOPE NONE",
                advice="Its rows have no keys to tell which of them are there already: create a "
                "source anew.",
            )
        if running is None:
            raise unsupported(
                "RESNAPSHOT of a source that does not run",
                advice="Give its cluster a replica first.",
            )
        wanted = running.resnapshot()
        self.ingestion.wake(source.id)
        while not wanted.done.wait(LOOK_S):
            execution.cancellation.check_deadline(f"{source.full_name} was read again")

    def _source(
        self, execution: Execution, statement: SkipLost | ResnapshotSource
    ) -> tuple[CatalogItem, KafkaIngestion | None] | None:
        """The source that reads a topic, and its ingestion if it runs; None: it need not exist."""
        named = self.changes.existing_name(
            execution, ItemKind.SOURCE, statement.name, if_exists=statement.if_exists
        )
        if named is None:
            return None
        source = self.changes.state.get(*named, ItemKind.SOURCE)
        if not isinstance(source.details, KafkaDetails):
            raise user_error(
                "SLACKWATER_WRONG_KIND",
                objectName=source.full_name,
                actualKind="source of another kind",
                expectedKind="source FROM KAFKA",
            )
        return source, self.kafka.running.get(source.id)
