"""ALTER SOURCE ... SKIP LOST."""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.adapter.catalog.details import KafkaDetails
from slackwater.adapter.catalog.model import ItemKind
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.sessions.sessions import Execution
from slackwater.adapter.sources.kafka import KafkaSources
from slackwater.planner.parser.kafka_source import SkipLost
from slackwater.repr.errors import user_error
from slackwater.storage.ingestion import IngestionRunner


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
        named = self.changes.existing_name(
            execution, ItemKind.SOURCE, statement.name, if_exists=statement.if_exists
        )
        if named is None:
            return
        source = self.changes.state.get(*named, ItemKind.SOURCE)
        if not isinstance(source.details, KafkaDetails):
            raise user_error(
                "SLACKWATER_WRONG_KIND",
                objectName=source.full_name,
                actualKind="source of another kind",
                expectedKind="source FROM KAFKA",
            )
        running = self.kafka.running.get(source.id)
        lost = None if running is None else running.skip_lost()
        if lost is None:
            raise user_error("SLACKWATER_NOTHING_LOST", objectName=source.full_name)
        self.ingestion.wake(source.id)
