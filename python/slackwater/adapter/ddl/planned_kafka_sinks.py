"""New sinks that write topics: from the statement to the item of the catalog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import SinkDetails
from slackwater.adapter.catalog.model import CatalogItem, CatalogState
from slackwater.adapter.catalog.render import name_of
from slackwater.adapter.ddl.planned_schemas import connection_named
from slackwater.adapter.sources.sink_targets import Targets
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.kafka_sink import KafkaSinkConnector
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import RelationDesc
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
        self, blank: CatalogItem, context: Context, statement: st.CreateSink, desc: RelationDesc
    ) -> PlannedSink:
        """The sink `blank` over a relation with these columns; its as-of is chosen later.

        Raises SLACKWATER_UNKNOWN_OBJECT, SLACKWATER_SINK_KEY, SLACKWATER_INVALID_OPTION,
        SLACKWATER_SINK_UNREACHABLE, SLACKWATER_SINK_PROGRESS_LOST, SLACKWATER_CONNECTOR_MISSING.
        """
        connector = statement.connector
        if not isinstance(connector, KafkaSinkConnector):
            raise AssertionError(f"{blank.full_name} writes no topic")
        connection = connection_named(
            self.state(), context, connector.connection, "KAFKA", "CREATE SINK"
        )
        config = _config(connector, statement)
        check_kafka_sink(config, desc, blank.full_name)
        notices = self.targets.ensure_topics(blank, config, connection.id)
        shown = replace(statement, connector=replace(connector, connection=name_of(connection)))
        details = SinkDetails(config, Timestamp(0), connection=connection.id)
        return PlannedSink(shown, details, tuple(notices))


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
