"""The columns of a source that reads a topic.

In this order: the key, the value's columns, the error of the value if it is a column, and what else
is included of a message, as it is listed.

Source: surface 4; docs/decisions 0069.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from slackwater.planner.parser.kafka_source import Decoding, Included, Payload
from slackwater.repr.relation import Column, RelationDesc

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
    """The columns by what they are made of. `key` and `error` None: there is no such column.

    `declared` are those of the value as they were declared, if they were. `value` are all nullable
    where errors are a column.
    """

    key: Column | None
    declared: RelationDesc | None
    value: RelationDesc
    error: Column | None
    metadata: tuple[tuple[Included, Column], ...]

    @property
    def desc(self) -> RelationDesc:
        """All of them, in order."""
        first = () if self.key is None else (self.key,)
        error = () if self.error is None else (self.error,)
        rest = tuple(column for _, column in self.metadata)
        return RelationDesc((*first, *self.value.columns, *error, *rest))


def source_columns(decoding: Decoding, declared: RelationDesc | None) -> SourceColumns:
    """The columns of a source. `declared` are those of its values, if they were declared."""
    upsert = decoding.envelope == "UPSERT"
    # A message without a value deletes nothing of a source to which is only appended: it is a row.
    value = declared or value_columns(decoding.value, nullable=not upsert)
    if decoding.inline_errors is not None:
        columns = (Column(c.name, c.type_json, True, c.metadata_json) for c in value.columns)
        value = RelationDesc(tuple(columns))
    included = [each for each in decoding.included if each.what == "KEY"]
    key = None
    if decoding.key is not None and (upsert or included):
        name = included[0].column if included else "key"
        key = _column(name, _VALUE_COLUMNS[decoding.key.kind][1], nullable=not upsert)
    error = None
    if decoding.inline_errors is not None:
        error = _column(decoding.inline_errors, _ERROR, nullable=True)
    return SourceColumns(
        key,
        declared,
        value,
        error,
        tuple((each, _metadata(each)) for each in decoding.included if each.what != "KEY"),
    )


def value_columns(payload: Payload, *, nullable: bool) -> RelationDesc:
    """The columns of values for which none are declared. Fields of CSV may always be NULL."""
    if payload.kind != "CSV":
        name, kind = _VALUE_COLUMNS[payload.kind]
        return RelationDesc((_column(name, kind, nullable=nullable),))
    names = payload.header or tuple(f"column{n}" for n in range(1, (payload.columns or 0) + 1))
    return RelationDesc(tuple(_column(name, "string", nullable=True) for name in names))


def _metadata(each: Included) -> Column:
    match each.what:
        case "PARTITION":
            return _column(each.column, "integer", nullable=False)
        case "OFFSET":
            return _column(each.column, "long", nullable=False)
        case "TIMESTAMP":
            return _column(each.column, "timestamp", nullable=True)
        case "HEADERS":
            return _column(each.column, _HEADERS, nullable=False)
        case _:
            return _column(each.column, "binary" if each.is_bytes else "string", nullable=True)


def _column(name: str, kind: object, *, nullable: bool) -> Column:
    return Column(name, json.dumps(kind, sort_keys=True), nullable=nullable)
