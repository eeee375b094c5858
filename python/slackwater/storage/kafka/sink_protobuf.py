"""Keys and values of a sink's messages in Protobuf, with the schemas that a registry gets.

Source: Confluent's wire format; docs/decisions 0086.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.repr.relation import Column
from slackwater.storage.kafka.avro_writing import is_full_name
from slackwater.storage.kafka.protobuf_types import LENGTH
from slackwater.storage.kafka.protobuf_writing import (
    TIMESTAMP_FILE,
    NoProtobuf,
    ProtobufRows,
    delimited,
    protobuf_rows,
    tag,
)
from slackwater.storage.kafka.sink_avro import SinkSchema, header

_KEY, _VALUE, _ENVELOPE = "Key", "Row", "Envelope"
_FIRST = b"\0"
"""The message is the first one of its schema."""
_BEFORE, _AFTER = 1, 2


@dataclass(frozen=True, slots=True)
class ProtobufForm:
    """The form of keys, or of values. See `MessageForm`."""

    schema: str
    rows: ProtobufRows

    def begin(self, schema: int) -> bytes:
        return header(schema) + _FIRST

    def alone(self, rows: pa.Table) -> list[bytes]:
        return self.rows.encode(rows)

    def pairs(self, rows: pa.Table, before: pa.Array, after: pa.Array) -> list[bytes]:
        sides = (
            self._optional(tag(number, LENGTH), rows, positions)
            for number, positions in ((_BEFORE, before), (_AFTER, after))
        )
        return list(map(b"".join, zip(*sides, strict=True)))

    def _optional(self, begin: bytes, rows: pa.Table, positions: pa.Array) -> list[bytes]:
        found = iter(self.rows.encode(rows.take(positions.drop_null())))
        return [
            begin + delimited(next(found)) if there else b""
            for there in pc.is_valid(positions).to_pylist()
        ]


def protobuf_key(schema: SinkSchema, columns: Sequence[Column]) -> ProtobufForm:
    """The form of keys with these columns. Raises NoProtobuf."""
    return _alone(schema, columns, _KEY)


def protobuf_value(schema: SinkSchema, columns: Sequence[Column], *, is_pair: bool) -> ProtobufForm:
    """The form of values, which are rows with these columns or pairs of them. Raises NoProtobuf."""
    if not is_pair:
        return _alone(schema, columns, _VALUE)
    package, name = _named(schema.fullname, _ENVELOPE)
    rows = _rows(schema, columns, _VALUE)
    sides = (("before", _BEFORE), ("after", _AFTER))
    fields = [f"  {_VALUE} {side} = {number};" for side, number in sides]
    lines = (f"message {name} {{", *(f"  {line}" for line in rows.lines), *fields, "}")
    return ProtobufForm(_file(package, lines, rows), rows)


def _alone(schema: SinkSchema, columns: Sequence[Column], otherwise: str) -> ProtobufForm:
    package, name = _named(schema.fullname, otherwise)
    rows = _rows(schema, columns, name)
    return ProtobufForm(_file(package, rows.lines, rows), rows)


def _rows(schema: SinkSchema, columns: Sequence[Column], name: str) -> ProtobufRows:
    return protobuf_rows(columns, name, schema.doc, dict(schema.column_docs))


def _file(package: str, lines: Sequence[str], rows: ProtobufRows) -> str:
    """The text of a schema with one message."""
    head = ['syntax = "proto3";']
    head += [f"package {package};"] if package else []
    head += [f'import "{TIMESTAMP_FILE}";'] if rows.has_times else []
    return "\n".join((*head, "", *lines, ""))


def _named(given: str | None, otherwise: str) -> tuple[str, str]:
    """The package and the name of a message."""
    full = otherwise if given is None else given
    if not is_full_name(full):
        raise NoProtobuf(f"{full} is no name of a message")
    package, _, name = full.rpartition(".")
    return package, name
