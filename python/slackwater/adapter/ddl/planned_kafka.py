"""New sources that read topics: from the statement to the item of the catalog."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import KafkaDetails, KafkaSettings, MessageSettings
from slackwater.adapter.catalog.model import CatalogItem, CatalogState
from slackwater.adapter.catalog.render import name_of
from slackwater.adapter.ddl.planned_schemas import SchemaPlanner, connection_named
from slackwater.adapter.external.kafka import Named
from slackwater.adapter.sources.descriptions import DEFAULT_INTERVAL_MS
from slackwater.adapter.sources.kafka import KafkaSources
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.kafka_source import Decoding, KafkaSource, Payload
from slackwater.repr.errors import invalid_option, user_error
from slackwater.repr.relation import RelationDesc
from slackwater.storage.kafka.columns import source_columns
from slackwater.storage.kafka.topic import Topic

LEAST_INTERVAL_MS = 50
"""A source that looks more often asks brokers and commits without end."""


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """The details of a new source that reads a topic, and its columns; None: it has none.

    `statement` has the full name of the connection, which means the same everywhere.
    """

    statement: st.CreateSource
    desc: RelationDesc | None
    details: KafkaDetails


@dataclass(frozen=True, slots=True)
class PlannedMessages:
    """The rules by which messages become rows, and the columns of these.

    `shown` has the full names of registries.
    """

    settings: MessageSettings
    desc: RelationDesc
    shown: Decoding


class KafkaPlanner:
    """Plans the catalog items of sources that read topics, which it looks at."""

    def __init__(self, state: Callable[[], CatalogState], kafka: KafkaSources) -> None:
        self._state = state
        self._kafka = kafka
        self._schemas = SchemaPlanner(state, kafka)

    def plan(
        self,
        blank: CatalogItem,
        context: Context,
        statement: st.CreateSource,
        declared: RelationDesc | None,
    ) -> PlannedTopic:
        """The source `blank`. `declared` are the columns of its values, if they are declared.

        Raises SLACKWATER_UNKNOWN_OBJECT, SLACKWATER_UNKNOWN_TOPIC, SLACKWATER_SOURCE_UNREACHABLE,
        SLACKWATER_CONNECTOR_MISSING, and errors of options and columns.
        """
        connector = statement.connector
        if not isinstance(connector, KafkaSource):
            raise AssertionError(f"{blank.full_name} reads no topic")
        interval = statement.timestamp_interval_ms or DEFAULT_INTERVAL_MS
        if interval < LEAST_INTERVAL_MS:
            raise invalid_option(
                "TIMESTAMP INTERVAL",
                "CREATE SOURCE",
                f"{interval} ms",
                f"the least is {LEAST_INTERVAL_MS} ms",
            )
        connection = connection_named(self._state(), context, connector.connection, "KAFKA")
        decoding, topic_name = connector.decoding, connector.topic
        messages = (
            None
            if decoding is None
            else self.messages(blank, context, topic_name, decoding, declared)
        )
        named = Named(blank.full_name, connection.full_name, connector.topic)
        with self._kafka.looked_at(named, connection.id) as topic:
            state = topic.state()
            offsets = _start(topic, state.partitions, connector)
        details = KafkaDetails(
            KafkaSettings(
                topic=connector.topic,
                cluster=state.identity.cluster,
                topic_id=state.identity.topic,
                decoding=None if messages is None else messages.settings.decoding,
                declared=None if messages is None else messages.settings.declared,
                start_offsets=offsets,
                group_id_prefix=connector.group_id_prefix or "",
                key_schema=None if messages is None else messages.settings.key_schema,
                value_schema=None if messages is None else messages.settings.value_schema,
            ),
            connection.id,
            interval_ms=interval,
            retain_history_ms=statement.retain_history_ms,
        )
        shown_decoding = None if messages is None else messages.shown
        named_fully = replace(connector, connection=name_of(connection), decoding=shown_decoding)
        shown = replace(statement, connector=named_fully)
        return PlannedTopic(shown, None if messages is None else messages.desc, details)

    def messages(
        self,
        blank: CatalogItem,
        context: Context,
        topic: str,
        decoding: Decoding,
        declared: RelationDesc | None,
    ) -> PlannedMessages:
        """The rules by which messages of a topic become rows of `blank`.

        `declared` are the columns of values, if they are declared. Raises what `plan` raises of
        columns and schemas.
        """
        schemas = self._schemas.plan(context, topic, decoding)
        columns = source_columns(decoding, declared, schemas.read_in)
        _check_names(columns.desc, declared, decoding.value, blank.full_name)
        columns.desc.arrow_schema()
        kept = None if declared is None else declared.to_json()
        settings = MessageSettings(schemas.kept, kept, schemas.key, schemas.value)
        return PlannedMessages(settings, columns.desc, schemas.shown)


def _check_names(
    desc: RelationDesc, declared: RelationDesc | None, payload: Payload, source: str
) -> None:
    width = payload.columns or len(payload.header or ())
    if payload.kind == "CSV" and declared is not None and len(declared.columns) != width:
        raise user_error(
            "SLACKWATER_COLUMN_MISMATCH",
            objectName=source,
            details=f"{len(declared.columns)} columns are declared, and values have {width} fields",
        )
    seen: set[str] = set()
    for name in desc.names:
        if name.casefold() in seen:
            raise user_error("SLACKWATER_DUPLICATE_COLUMN", columnName=name, objectName=source)
        seen.add(name.casefold())


def _start(topic: Topic, partitions: int, connector: KafkaSource) -> tuple[int, ...]:
    """The offsets of the partitions from which the source reads. Without an option there are none.

    Raises SLACKWATER_INVALID_OPTION for an offset that is not there, and not the next to come.
    """
    numbers = range(partitions)
    if connector.start_timestamp_ms is not None:
        given = connector.start_timestamp_ms
        moment = given if given >= 0 else int(time.time() * 1000) + given
        found = topic.offsets_at(moment, numbers)
        return tuple(found[each] for each in numbers)
    if not connector.start_offsets:
        return ()
    if len(connector.start_offsets) > partitions:
        raise invalid_option(
            "START OFFSET",
            "CREATE SOURCE",
            str(connector.start_offsets[-1]),
            f"the topic {connector.topic} has {partitions} partitions",
        )
    first, end = topic.beginnings(numbers), topic.ends(numbers)
    for partition, offset in enumerate(connector.start_offsets):
        if offset and not first[partition] <= offset <= end[partition]:
            raise invalid_option(
                "START OFFSET",
                "CREATE SOURCE",
                str(offset),
                f"the messages of the partition {partition} of the topic {connector.topic} go from "
                f"{first[partition]} to {end[partition]}",
            )
    return connector.start_offsets
