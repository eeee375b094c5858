"""The schemas in which a new source reads its topic, asked of registries at its creation."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, replace

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import (
    AvroSchema,
    ConnectionDetails,
    MessageSchema,
    MessageSettings,
    ProtobufSchema,
)
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.adapter.catalog.render import name_of
from slackwater.adapter.external.avro import check
from slackwater.adapter.external.protobuf import Described, described
from slackwater.adapter.external.protobuf_files import files_by_id, latest_files
from slackwater.adapter.sources.kafka import KafkaSources
from slackwater.adapter.sources.message_schemas import reader_schemas
from slackwater.planner.parser.connection_statements import ConnectionKind
from slackwater.planner.parser.kafka_source import Decoding, GivenSchema, Payload
from slackwater.planner.parser.names import QualifiedName
from slackwater.repr.errors import SlackwaterError, invalid_option, user_error
from slackwater.repr.ids import GlobalId
from slackwater.storage.kafka.avro import unreadable
from slackwater.storage.kafka.debezium import narrowed
from slackwater.storage.kafka.protobuf import unreadable as unreadable_message
from slackwater.storage.kafka.shapes import ReaderSchemas


@dataclass(frozen=True, slots=True)
class PlannedSchemas:
    """The schemas of keys and of values; None: they have none.

    `shown` is the decoding with the full names of registries, `kept` that without their schemas.
    """

    key: MessageSchema | None
    value: MessageSchema | None
    shown: Decoding
    kept: Decoding

    @property
    def read_in(self) -> ReaderSchemas:
        """The schemas as columns are made of them."""
        return reader_schemas(self.key, self.value)


class SchemaPlanner:
    """Finds the schemas of new sources."""

    def __init__(self, state: Callable[[], CatalogState], kafka: KafkaSources) -> None:
        self._state = state
        self._kafka = kafka

    def plan(self, context: Context, topic: str, decoding: Decoding) -> PlannedSchemas:
        """The schemas of what reads a topic.

        Raises SLACKWATER_UNKNOWN_OBJECT, SLACKWATER_UNKNOWN_SCHEMA, SLACKWATER_AVRO_SCHEMA,
        SLACKWATER_PROTOBUF_SCHEMA, SLACKWATER_REGISTRY_UNREACHABLE, SLACKWATER_CONNECTOR_MISSING.
        """
        key_format = decoding.key_format if decoding.needs_keys else None
        key = self._schema(context, topic, key_format, is_key=True)
        value = self._schema(context, topic, decoding.value, is_key=False)
        if (
            decoding.envelope == "DEBEZIUM"
            and isinstance(value, AvroSchema)
            and value.registry is not None
        ):
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
    ) -> MessageSchema | None:
        if payload is None or payload.schema is None:
            return None
        what, given = "keys" if is_key else "values", payload.schema
        if isinstance(given, GivenSchema):
            if payload.kind == "PROTOBUF":
                found = described(bytes.fromhex(given.schema), payload.message, what)
                return _protobuf(found, None, given.has_header)
            check(given.schema, what)
            return AvroSchema(given.schema, None, given.has_header)
        item = connection_named(
            self._state(), context, given.connection, "CONFLUENT SCHEMA REGISTRY"
        )
        strategy = given.key if is_key else given.value
        if strategy.schema is not None:
            check(strategy.schema, what)
            return AvroSchema(strategy.schema, item.id)
        wanted = f"{topic}-{what.removesuffix('s')}" if strategy.id is None else strategy.id
        if payload.kind == "PROTOBUF":
            return self._in_protobuf(item.id, wanted, payload.message, what)
        return self._in_avro(item.id, wanted, what)

    def _in_avro(self, connection: GlobalId, wanted: int | str, what: str) -> AvroSchema:
        """The schema of that id, or the last one of that subject."""
        registry = self._kafka.registry(connection)
        try:
            found = registry.latest(wanted) if isinstance(wanted, str) else registry.schema(wanted)
        except ValueError as error:
            raise unreadable(what, str(error)) from None
        if found is None:
            raise self._unknown(connection, wanted)
        check(found, what)
        return AvroSchema(found, connection)

    def _in_protobuf(
        self, connection: GlobalId, wanted: int | str, message: str | None, what: str
    ) -> ProtobufSchema:
        """The message of the schema of that id, or of the last one of that subject."""
        registry = self._kafka.registry(connection)
        try:
            if isinstance(wanted, str):
                found = latest_files(registry, wanted)
            else:
                found = files_by_id(registry, wanted)
        except ValueError as error:
            raise unreadable_message(what, str(error)) from None
        if found is None:
            raise self._unknown(connection, wanted)
        return _protobuf(described(found, message, what), connection, True)

    def _unknown(self, connection: GlobalId, wanted: int | str) -> SlackwaterError:
        return user_error(
            "SLACKWATER_UNKNOWN_SCHEMA",
            connectionName=self._state().item(connection).full_name,
            schema=f"subject {wanted}" if isinstance(wanted, str) else f"schema {wanted}",
        )

    def latest(self, topic: str, read: MessageSettings) -> MessageSchema | None:
        """The latest schema of the values of a topic that are read so; None: they have it from no
        registry.

        Raises SLACKWATER_UNKNOWN_SCHEMA, SLACKWATER_AVRO_SCHEMA, SLACKWATER_PROTOBUF_SCHEMA,
        SLACKWATER_REGISTRY_UNREACHABLE.
        """
        known = read.value_schema
        if known is None or known.registry is None:
            return None
        subject = f"{topic}-value"
        if isinstance(known, ProtobufSchema):
            return self._in_protobuf(known.registry, subject, known.message, "values")
        found = self._in_avro(known.registry, subject, "values")
        is_narrow = read.decoding.envelope == "DEBEZIUM"
        return replace(found, schema=narrowed(found.schema)) if is_narrow else found

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
    return None if payload is None else replace(payload, schema=None, message=None)


def _protobuf(found: Described, registry: GlobalId | None, has_header: bool) -> ProtobufSchema:
    files = base64.b64encode(found.files).decode()
    return ProtobufSchema(found.message, files, registry, has_header)
