"""The schemas that are kept of sources, as columns and readers are made of them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from slackwater.adapter.catalog.details import AvroSchema, MessageSchema, ProtobufSchema
from slackwater.adapter.external.avro import AvroMessages
from slackwater.adapter.external.protobuf import Described, ProtobufMessages, described
from slackwater.adapter.external.protobuf_files import files_by_id
from slackwater.adapter.external.registry import SchemaRegistry
from slackwater.repr.ids import GlobalId
from slackwater.storage.kafka.avro import AvroShape
from slackwater.storage.kafka.protobuf import ProtobufShape
from slackwater.storage.kafka.protobuf_types import MessageTypes
from slackwater.storage.kafka.shapes import MessageReader, ReaderSchemas, Shape


def reader_schemas(key: MessageSchema | None, value: MessageSchema | None) -> ReaderSchemas:
    """The schemas in which keys and values are read."""
    return ReaderSchemas(_read_in(key), _read_in(value))


def message_reader(
    schema: MessageSchema | None,
    shape: Shape | None,
    registry: Callable[[GlobalId], SchemaRegistry],
) -> MessageReader | None:
    """The reader of keys or values that have that schema and shape; None: they have none."""
    asked = None if schema is None or schema.registry is None else registry(schema.registry)
    match schema:
        case ProtobufSchema() if isinstance(shape, ProtobufShape):
            files = None if asked is None else partial(files_by_id, asked)
            read = replace(_described(schema), types=shape.types)
            return ProtobufMessages(read, schema.has_header, files)
        case AvroSchema() if isinstance(shape, AvroShape):
            writer = None if asked is None else asked.schema
            return AvroMessages(shape.schema, schema.schema, schema.has_header, writer)
        case _:
            return None


def _read_in(schema: MessageSchema | None) -> str | MessageTypes | None:
    match schema:
        case ProtobufSchema():
            return _described(schema).types
        case AvroSchema():
            return schema.schema
        case _:
            return None


def _described(schema: ProtobufSchema) -> Described:
    # What is kept was described before, so no words are needed for keys and values.
    return described(base64.b64decode(schema.files), schema.message, "messages")
