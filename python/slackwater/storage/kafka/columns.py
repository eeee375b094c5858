"""The columns of a source that reads a topic.

In this order: the key, the value's columns, the error of the value if it is a column, and what else
is included of a message, as it is listed.

Source: surface 4; docs/decisions 0069.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from slackwater.planner.parser.kafka_source import Decoding, Included, Payload
from slackwater.repr.relation import Column, RelationDesc
from slackwater.storage.kafka.avro import avro_shape
from slackwater.storage.kafka.debezium import row_shape
from slackwater.storage.kafka.protobuf import protobuf_row_shape, protobuf_shape
from slackwater.storage.kafka.protobuf_types import MessageTypes
from slackwater.storage.kafka.shapes import ReaderSchemas, Shape

_VALUE_COLUMNS = {
    "TEXT": ("text", "string"),
    "BYTES": ("data", "binary"),
    "JSON": ("data", "string"),
}
_ERROR = {
    "type": "struct",
    "fields": [
        {"name": "description", "type": "string", "nullable": False, "metadata": {}},
    ],
}
_HEADERS = {
    "type": "array",
    "containsNull": False,
    "elementType": {
        "type": "struct",
        "fields": [
            {"name": "key", "type": "string", "nullable": False, "metadata": {}},
            {"name": "value", "type": "binary", "nullable": True, "metadata": {}},
        ],
    },
}


@dataclass(frozen=True, slots=True)
class SourceColumns:
    """The columns by what they are made of. `key` may have none; `error` None: there is none.

    `declared` are those of the value as they were declared, if they were. `value` are all nullable
    where errors are a column. The shapes are those of formats with a schema.
    """

    key: RelationDesc
    declared: RelationDesc | None
    value: RelationDesc
    error: Column | None
    metadata: tuple[tuple[Included, Column], ...]
    key_shape: Shape | None = None
    value_shape: Shape | None = None

    @property
    def desc(self) -> RelationDesc:
        """All of them, in order."""
        error = () if self.error is None else (self.error,)
        rest = tuple(column for _, column in self.metadata)
        return RelationDesc((*self.key.columns, *self.value.columns, *error, *rest))


def source_columns(
    decoding: Decoding, declared: RelationDesc | None, schemas: ReaderSchemas | None = None
) -> SourceColumns:
    """The columns of a source. `declared` are those of its values, if they were declared.

    `schemas` are those in which messages are read that have one. Raises SLACKWATER_AVRO_SCHEMA and
    SLACKWATER_PROTOBUF_SCHEMA.
    """
    upsert = decoding.is_by_key
    # A message without a value deletes nothing of a source to which is only appended: it is a row.
    value_shape: Shape | None = None
    if decoding.value.has_schema and schemas is not None and schemas.value is not None:
        if decoding.envelope != "DEBEZIUM":
            value_shape = _shape(schemas.value, is_key=False)
        elif isinstance(schemas.value, str):
            value_shape = row_shape(schemas.value)
        else:
            value_shape = protobuf_row_shape(schemas.value)
        value = _nullable(value_shape.columns, not upsert)
    else:
        value = declared or value_columns(decoding.value, nullable=not upsert)
    if decoding.inline_errors is not None:
        value = _nullable(value.columns, True)
    name = next((each.column for each in decoding.included if each.what == "KEY"), None)
    key = RelationDesc(())
    key_shape: Shape | None = None
    if decoding.key_format is not None and decoding.needs_keys:
        if not decoding.key_format.has_schema:
            kind = _VALUE_COLUMNS[decoding.key_format.kind][1]
            key = RelationDesc((_column(name or "key", kind, nullable=not upsert),))
        elif schemas is not None and schemas.key is not None:
            key_shape = _shape(schemas.key, is_key=True, name=name)
            key = _nullable(key_shape.columns, not upsert)
    if decoding.envelope == "DEBEZIUM" and key_shape is not None and value_shape is not None:
        # A row of Debezium's has its key too.
        value_shape = value_shape.without(key.names)
        value = RelationDesc(value_shape.columns)
    error = None
    if decoding.inline_errors is not None:
        error = _column(decoding.inline_errors, _ERROR, nullable=True)
    return SourceColumns(
        key,
        declared,
        value,
        error,
        tuple((each, _metadata(each)) for each in decoding.included if each.what != "KEY"),
        key_shape,
        value_shape,
    )


def _shape(schema: str | MessageTypes, *, is_key: bool, name: str | None = None) -> Shape:
    if isinstance(schema, str):
        return avro_shape(schema, is_key=is_key, name=name)
    return protobuf_shape(schema, is_key=is_key, name=name)


def _nullable(columns: Sequence[Column], all_are: bool) -> RelationDesc:
    """The columns, of which all can be NULL if `all_are`."""
    return RelationDesc(
        tuple(
            Column(each.name, each.type_json, each.nullable or all_are, each.metadata_json)
            for each in columns
        )
    )


def value_columns(payload: Payload, *, nullable: bool) -> RelationDesc:
    """The columns of values for which none are declared. Fields of CSV may always be NULL."""
    if payload.kind != "CSV":
        name, kind = _VALUE_COLUMNS[payload.kind]
        return RelationDesc((_column(name, kind, nullable=nullable),))
    names = payload.header or tuple(f"column{n}" for n in range(1, (payload.columns or 0) + 1))
    return RelationDesc(tuple(_column(name, "string", nullable=True) for name in names))


def _metadata(each: Included) -> Column:
    name = each.column or each.what.lower()
    match each.what:
        case "PARTITION":
            return _column(name, "integer", nullable=False)
        case "OFFSET":
            return _column(name, "long", nullable=False)
        case "TIMESTAMP":
            return _column(name, "timestamp", nullable=True)
        case "HEADERS":
            return _column(name, _HEADERS, nullable=False)
        case _:
            return _column(name, "binary" if each.is_bytes else "string", nullable=True)


def _column(name: str, kind: object, *, nullable: bool) -> Column:
    return Column(name, json.dumps(kind, sort_keys=True), nullable=nullable)
