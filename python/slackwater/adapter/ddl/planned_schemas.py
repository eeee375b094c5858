"""The Avro schemas in which a new source reads its topic, asked of registries at its creation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import AvroSchema, ConnectionDetails, KafkaSettings
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.adapter.catalog.render import name_of
from slackwater.adapter.external.avro import check
from slackwater.adapter.sources.kafka import KafkaSources
from slackwater.planner.parser.connection_statements import ConnectionKind
from slackwater.planner.parser.kafka_source import Decoding, GivenSchema, Payload
from slackwater.planner.parser.names import QualifiedName
from slackwater.repr.errors import invalid_option, user_error
from slackwater.storage.kafka.avro import ReaderSchemas, unreadable
from slackwater.storage.kafka.debezium import narrowed


@dataclass(frozen=True, slots=True)
class PlannedSchemas:
    """The schemas of keys and of values; None: they are not Avro.

    `shown` is the decoding with the full names of registries, `kept` that without their schemas.
    """

    key: AvroSchema | None
    value: AvroSchema | None
    shown: Decoding
    kept: Decoding

    @property
    def texts(self) -> ReaderSchemas:
        """The schemas alone."""
        return ReaderSchemas(
            None if self.key is None else self.key.schema,
            None if self.value is None else self.value.schema,
        )


class SchemaPlanner:
    """Finds the schemas of new sources."""

    def __init__(self, state: Callable[[], CatalogState], kafka: KafkaSources) -> None:
        self._state = state
        self._kafka = kafka

    def plan(self, context: Context, topic: str, decoding: Decoding) -> PlannedSchemas:
        """The schemas of what reads a topic.

        Raises SLACKWATER_UNKNOWN_OBJECT, SLACKWATER_UNKNOWN_SCHEMA, SLACKWATER_AVRO_SCHEMA,
        SLACKWATER_REGISTRY_UNREACHABLE, SLACKWATER_CONNECTOR_MISSING.
        """
        key_format = decoding.key_format if decoding.needs_keys else None
        key = self._schema(context, topic, key_format, is_key=True)
        value = self._schema(context, topic, decoding.value, is_key=False)
        if decoding.envelope == "DEBEZIUM" and value is not None and value.registry is not None:
            value = replace(value, schema=narrowed(value.schema))
        shown = replace(
            decoding,
            key=self._named(context, decoding.key),
            value=self._named(context, decoding.value) or decoding.value,
        )
        kept = replace(
            decoding,
            key=_bare(decoding.key if key is None else key_format),
            value=_bare(decoding.value) or decoding.value,
        )
        return PlannedSchemas(key, value, shown, kept)

    def _schema(
        self, context: Context, topic: str, payload: Payload | None, *, is_key: bool
    ) -> AvroSchema | None:
        if payload is None or payload.schema is None:
            return None
        what, given = "keys" if is_key else "values", payload.schema
        if isinstance(given, GivenSchema):
            check(given.schema, what)
            return AvroSchema(given.schema, None, given.has_header)
        item = connection_named(
            self._state(), context, given.connection, "CONFLUENT SCHEMA REGISTRY"
        )
        strategy = given.key if is_key else given.value
        registry = self._kafka.registry(item.id)
        found: str | None
        try:
            if strategy.schema is not None:
                found, wanted = strategy.schema, ""
            elif strategy.id is not None:
                found, wanted = registry.schema(strategy.id), f"schema {strategy.id}"
            else:
                subject = f"{topic}-{what.removesuffix('s')}"
                found, wanted = registry.latest(subject), f"subject {subject}"
        except ValueError as error:
            raise unreadable(what, str(error)) from None
        if found is None:
            raise user_error(
                "SLACKWATER_UNKNOWN_SCHEMA", connectionName=item.full_name, schema=wanted
            )
        check(found, what)
        return AvroSchema(found, item.id)

    def latest(self, config: KafkaSettings) -> AvroSchema | None:
        """The latest schema of the values of a source; None: it has them from no registry.

        Raises SLACKWATER_UNKNOWN_SCHEMA, SLACKWATER_AVRO_SCHEMA, SLACKWATER_REGISTRY_UNREACHABLE.
        """
        known = config.value_schema
        if known is None or known.registry is None:
            return None
        name, subject = self._state().item(known.registry).full_name, f"{config.topic}-value"
        try:
            found = self._kafka.registry(known.registry).latest(subject)
        except ValueError as error:
            raise unreadable("values", str(error)) from None
        if found is None:
            wanted = f"subject {subject}"
            raise user_error("SLACKWATER_UNKNOWN_SCHEMA", connectionName=name, schema=wanted)
        check(found, "values")
        is_narrow = config.decoding is not None and config.decoding.envelope == "DEBEZIUM"
        return replace(known, schema=narrowed(found) if is_narrow else found)

    def _named(self, context: Context, payload: Payload | None) -> Payload | None:
        """The format with the full name of its registry."""
        if payload is None or payload.schema is None or isinstance(payload.schema, GivenSchema):
            return payload
        item = connection_named(
            self._state(), context, payload.schema.connection, "CONFLUENT SCHEMA REGISTRY"
        )
        return replace(payload, schema=replace(payload.schema, connection=name_of(item)))


def connection_named(
    state: CatalogState,
    context: Context,
    name: QualifiedName,
    kind: ConnectionKind,
    statement: str = "CREATE SOURCE",
) -> CatalogItem:
    """The connection of that name and kind.

    Raises SLACKWATER_UNKNOWN_OBJECT, and SLACKWATER_INVALID_OPTION for another kind.
    """
    item = state.get(*context.resolve(name), ItemKind.CONNECTION)
    found = item.of(ConnectionDetails).kind
    if found != kind:
        raise invalid_option(
            f"{kind} CONNECTION", statement, item.full_name, f"it is one to {found}"
        )
    return item


def _bare(payload: Payload | None) -> Payload | None:
    return None if payload is None else replace(payload, schema=None)
