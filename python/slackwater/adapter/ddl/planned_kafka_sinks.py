"""New sinks that write topics: from the statement to the item of the catalog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import SinkDetails
from slackwater.adapter.catalog.model import CatalogItem, CatalogState
from slackwater.adapter.catalog.render import name_of
from slackwater.adapter.ddl.planned_schemas import connection_named
from slackwater.adapter.ddl.sink_docs import Docs
from slackwater.adapter.sources.sink_targets import Targets
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.connection_statements import ConnectionKind
from slackwater.planner.parser.kafka_sink import KafkaSinkConnector, SinkRegistry
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.storage.kafka.sink_avro import SinkSchema
from slackwater.storage.kafka.sink_messages import KafkaSinkConfig, check_kafka_sink

DEFAULT_COMPRESSION = "lz4"


@dataclass(frozen=True, slots=True)
class PlannedSink:
    """A sink as its definition has it, and the notices that come with it.

    `statement` has the full name of the connection, which means the same everywhere.
    """

    statement: st.CreateSink
    details: SinkDetails
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KafkaSinkPlanner:
    """Plans the catalog items of sinks that write topics, which it makes if they are not there."""

    state: Callable[[], CatalogState]
    targets: Targets

    def plan(
        self, blank: CatalogItem, context: Context, statement: st.CreateSink, written: CatalogItem
    ) -> PlannedSink:
        """The sink `blank` over a relation; its as-of is chosen later.

        Raises SLACKWATER_UNKNOWN_OBJECT, SLACKWATER_SINK_KEY, SLACKWATER_INVALID_OPTION,
        SLACKWATER_SINK_UNREACHABLE, SLACKWATER_SINK_PROGRESS_LOST, SLACKWATER_CONNECTOR_MISSING,
        SLACKWATER_REGISTRY_UNREACHABLE, SLACKWATER_SCHEMA_REFUSED.
        """
        connector = statement.connector
        if not isinstance(connector, KafkaSinkConnector):
            raise AssertionError(f"{blank.full_name} writes no topic")
        desc = written.stored.desc
        connection = connection_named(
            self.state(), context, connector.connection, "KAFKA", "CREATE SINK"
        )
        key, key_shown = self._registry(context, connector.key_registry)
        value, value_shown = self._registry(context, connector.value_registry)
        docs = Docs(written, context.resolve, statement.envelope.key)
        config = replace(
            _config(connector, statement),
            key_schema=_schema(
                key if connector.key_format else value, connector, docs, is_key=True
            ),
            value_schema=_schema(value, connector, docs, is_key=False),
        )
        check_kafka_sink(config, desc, blank.full_name)
        self.targets.registered(config, desc)
        notices = self.targets.ensure_topics(blank, config, connection.id)
        named = replace(
            connector,
            connection=name_of(connection),
            key_registry=key_shown,
            value_registry=value_shown,
        )
        shown = replace(statement, connector=named)
        details = SinkDetails(config, Timestamp(0), connection=connection.id)
        return PlannedSink(shown, details, tuple(notices))

    def _registry(
        self, context: Context, named: SinkRegistry | None
    ) -> tuple[GlobalId | None, SinkRegistry | None]:
        """The connection to a registry, and what names it with its full name."""
        if named is None:
            return None, None
        kind: ConnectionKind = "CONFLUENT SCHEMA REGISTRY"
        item = connection_named(self.state(), context, named.connection, kind, "CREATE SINK")
        return item.id, replace(named, connection=name_of(item))


def _schema(
    registry: GlobalId | None, connector: KafkaSinkConnector, docs: Docs, *, is_key: bool
) -> SinkSchema | None:
    """The declaration of the schema of keys, or of values."""
    given = connector.value_registry
    if is_key and connector.key_format is not None:
        given = connector.key_registry
    if registry is None or given is None:
        return None
    name = given.key_fullname if is_key else given.value_fullname
    level = given.key_compatibility if is_key else given.value_compatibility
    schema = SinkSchema(registry, name, given.null_defaults, level)
    return docs.added(schema, given.docs, "KEY" if is_key else "VALUE")


def _config(connector: KafkaSinkConnector, statement: st.CreateSink) -> KafkaSinkConfig:
    envelope = statement.envelope
    if envelope.kind == "DIFF":
        raise AssertionError("no topic has ENVELOPE DIFF")
    return KafkaSinkConfig(
        topic=connector.topic,
        key_format=connector.key_format or connector.value_format,
        value_format=connector.value_format,
        envelope=envelope.kind,
        key=envelope.key,
        is_enforced=connector.is_enforced,
        headers=connector.headers,
        partition_by=connector.partition_by,
        snapshot=statement.snapshot,
        transactional_id_prefix=connector.transactional_id_prefix or "",
        compression=connector.compression or DEFAULT_COMPRESSION,
        partitions=connector.partitions,
        replication_factor=connector.replication_factor,
        topic_config=connector.topic_config,
    )
