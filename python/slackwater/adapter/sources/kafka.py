"""The sources that read topics: their ingestions, made of their durable state.

Source: spec controllers 5.1 to 5.5; docs/decisions 0069.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from slackwater.adapter.catalog.details import (
    KafkaDetails,
    KafkaSettings,
    MessageSettings,
    SourceTableDetails,
    SubsourceDetails,
)
from slackwater.adapter.catalog.model import CatalogItem
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.external.kafka import KafkaTopic, KafkaUpstream, Named
from slackwater.adapter.external.registry import SchemaRegistry
from slackwater.adapter.sources.connections import Connections
from slackwater.adapter.sources.message_schemas import message_reader, reader_schemas
from slackwater.adapter.writing.staged_files import staged_piece
from slackwater.persist.error_shards import errors_at
from slackwater.repr.dataflow_error import decode
from slackwater.repr.errors import FatalError, SlackwaterError, user_error
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc
from slackwater.storage.envelope import Datum
from slackwater.storage.ingestion import Reached, Resumed, StepSuperseded
from slackwater.storage.kafka.columns import source_columns
from slackwater.storage.kafka.decoding import Decoder
from slackwater.storage.kafka.envelopes import Appended, ByKey, Envelope, Reading, key_of_error
from slackwater.storage.kafka.ingestion import KafkaConfig, KafkaIngestion
from slackwater.storage.kafka.shapes import MessageReaders
from slackwater.storage.kafka.topic import Topic, TopicIdentity
from slackwater.storage.keyed_rows import RowsInMemory, add_rows
from slackwater.storage.row_bytes import RowBytes

UPSERT_BYTES = 2 * 1024**3
"""The most that the rows of one source with ENVELOPE UPSERT may take in memory."""


@dataclass(frozen=True, slots=True)
class KafkaSources:
    """The topics of one environment, whose name is in those of its consumers' groups."""

    relations: Relations
    connections: Connections
    environment: str
    running: dict[GlobalId, KafkaIngestion]

    @contextmanager
    def looked_at(self, named: Named, connection: GlobalId) -> Iterator[Topic]:
        """The topic for as long as the block asks about it.

        Raises SLACKWATER_CONNECTOR_MISSING and what the connection raises.
        """
        topic = KafkaTopic(self.connections.kafka(connection), named, self._group("", "creation"))
        try:
            yield topic
        finally:
            topic.close()

    def resumed(self, item: CatalogItem, reached: Reached) -> Resumed:
        """The ingestion of a source, from where its collections end.

        Raises SLACKWATER_DEPENDENCY_DROPPED.
        """
        details = item.of(KafkaDetails)
        config = details.config
        messages = config.messages
        tables = _Tables(self, item.id, frozenset(reached.statistics.begun))
        ingestion = KafkaIngestion(
            KafkaConfig(
                item.full_name,
                config.topic,
                TopicIdentity(config.cluster, config.topic_id),
                export=None if messages is None else item.name,
                dead_letters=details.dead_letters,
                start_offsets=config.start_offsets,
            ),
            self.upstream(item, item.id),
            None if messages is None else self.envelope(item, config.topic, messages),
            reached.frontier,
            tables if messages is None else None,
            lambda: self._check(item.id, config, tables),
        )
        self.running[item.id] = ingestion
        return Resumed(ingestion, reached, ingestion.close, ingestion.ends)

    def _check(self, source: GlobalId, config: KafkaSettings, tables: _Tables) -> None:
        """Raises `StepSuperseded` when the source, or a table of it that is read, is not declared
        like that any more."""
        if (
            self.relations.item(source).of(KafkaDetails).config != config
            or not tables.are_as_read()
        ):
            raise StepSuperseded(source, 0, 0)

    def upstream(self, source: CatalogItem, name: str) -> KafkaUpstream:
        """The topic of a source, over a client of its own, whose group has that name."""
        details = source.of(KafkaDetails)
        config, connection = details.config, details.connection
        named = Named(source.full_name, self.relations.item(connection).full_name, config.topic)
        return KafkaUpstream(
            named,
            self._group(config.group_id_prefix, name),
            access=lambda: self.connections.kafka(connection),
            version=lambda: self.connections.version(connection),
        )

    def envelope(self, item: CatalogItem, topic: str, config: MessageSettings) -> Envelope:
        """The envelope of a relation that a topic fills, with what the relation has.

        Raises SLACKWATER_SOURCE_BAD_MESSAGE.
        """
        stored = item.stored
        declared = None if config.declared is None else RelationDesc.from_json(config.declared)
        schemas = reader_schemas(config.key_schema, config.value_schema)
        columns = source_columns(config.decoding, declared, schemas)
        readers = MessageReaders(
            message_reader(config.key_schema, columns.key_shape, self.registry),
            message_reader(config.value_schema, columns.value_shape, self.registry),
        )
        decoder = Decoder(config.decoding, columns, readers)
        reading = Reading(
            topic,
            config.decoding,
            decoder,
            partial(staged_piece, self.relations.persist, stored.shard_id),
        )
        time = Timestamp(self.relations.upper(item).value - 1)
        errors: tuple[str, ...] = ()
        if stored.errors_shard is not None:
            errors = errors_at(self.relations.persist.reads, stored.errors_shard, time)
        found = [decode(each) for each in errors]
        if config.decoding.envelope == "NONE":
            return Appended(reading, found[0] if found else None)
        rows = self.relations.present(item, time)
        try:
            values: dict[bytes, Datum] = {key_of_error(each, decoder): each for each in found}
        except ValueError as error:
            raise user_error(
                "SLACKWATER_SOURCE_BAD_MESSAGE", objectName=item.full_name, cause=str(error)
            ) from None
        encoded = RowBytes(stored.desc).encode(rows)
        add_rows(values, rows.select(columns.key.names), encoded, f"{item.full_name} at {time}")
        return ByKey(reading, stored.desc, RowsInMemory(values, UPSERT_BYTES, item.full_name))

    def registry(self, connection: GlobalId) -> SchemaRegistry:
        """The schema registry of that connection, as it is at each question."""
        name = self.relations.item(connection).full_name
        return SchemaRegistry(name, lambda: self.connections.registry(connection))

    def _group(self, prefix: str, name: str) -> str:
        return f"{prefix}slackwater-{self.environment}-{name}"


@dataclass(frozen=True, slots=True)
class _Tables:
    """The tables of a source that reads a topic. See `TopicTables`.

    `read` has the rules by which messages became rows of those whose envelopes were asked for.
    """

    kafka: KafkaSources
    source: GlobalId
    begun: frozenset[str]
    read: dict[str, MessageSettings] = field(default_factory=dict)

    def are_as_read(self) -> bool:
        """Whether the tables that there are have the rules that they are read by."""
        found = self.kafka.relations.state.tables_of(self.source) if self.read else {}
        return all(
            table.of(SourceTableDetails).messages == self.read.get(name)
            for name, table in found.items()
            if name in self.read
        )

    def names(self) -> frozenset[str]:
        return frozenset(self.kafka.relations.state.tables_of(self.source))

    def envelope(self, name: str) -> Envelope | None:
        state = self.kafka.relations.state
        source, table = state.items.get(self.source), state.tables_of(self.source).get(name)
        if source is None or table is None:
            return None
        messages = table.of(SourceTableDetails).messages
        if messages is None:
            raise FatalError(f"{table.full_name} does not say how messages become its rows")
        self.read[name] = messages
        try:
            return self.kafka.envelope(table, source.of(KafkaDetails).config.topic, messages)
        except SlackwaterError as error:
            if error.condition == "SLACKWATER_DEPENDENCY_DROPPED":
                return None
            raise

    def letters(self, name: str) -> str | None:
        state = self.kafka.relations.state
        table = state.tables_of(self.source).get(name)
        found = None if table is None else state.dead_letters_of(table)
        return None if found is None else found.of(SubsourceDetails).export

    def upstream(self, name: str) -> KafkaUpstream:
        return self.kafka.upstream(self.kafka.relations.item(self.source), f"{self.source}-{name}")
