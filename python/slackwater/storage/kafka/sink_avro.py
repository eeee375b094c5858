"""Keys and values of a sink's messages in Avro, with the schemas that a registry gets.

Source: Materialize's documentation of its sinks; Confluent's wire format; docs/decisions 0075.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import Column
from slackwater.storage.kafka.avro_writing import AvroRows, NoAvro, avro_rows, is_full_name

_KEY, _VALUE, _ROW = "row", "envelope", "row"


@dataclass(frozen=True, slots=True)
class SinkSchema:
    """The declaration of the schema of keys, or of values.

    `registry` is the connection to the registry that gets it, `compatibility` what the registry is
    to ask of a subject for which nothing else is said. `doc` is what the schema says of rows,
    `column_docs` what it says of columns.
    """

    registry: GlobalId
    fullname: str | None = None
    null_defaults: bool = False
    compatibility: str | None = None
    doc: str | None = None
    column_docs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaIds:
    """The ids that a registry has given to the schemas of keys and values; None: it has none."""

    key: int | None = None
    value: int | None = None


@dataclass(frozen=True, slots=True)
class AvroForm:
    """The form of keys, or of values. `is_pair`: of the rows before and after a change, each of
    which may be missing. See `MessageForm`."""

    schema: str
    rows: AvroRows
    is_pair: bool = False

    def begin(self, schema: int) -> bytes:
        return header(schema)

    def alone(self, rows: pa.Table) -> list[bytes]:
        return self.rows.encode(rows)

    def pairs(self, rows: pa.Table, before: pa.Array, after: pa.Array) -> list[bytes]:
        sides = (self._optional(rows, positions) for positions in (before, after))
        return list(map(b"".join, zip(*sides, strict=True)))

    def _optional(self, rows: pa.Table, positions: pa.Array) -> list[bytes]:
        found = iter(self.rows.encode(rows.take(positions.drop_null())))
        return [
            b"\2" + next(found) if there else b"\0" for there in pc.is_valid(positions).to_pylist()
        ]


def header(schema: int) -> bytes:
    """The bytes with which a message in that schema of a registry begins."""
    return b"\0" + schema.to_bytes(4, "big")


def key_form(schema: SinkSchema, columns: Sequence[Column]) -> AvroForm:
    """The form of keys with these columns. Raises NoAvro."""
    rows = _rows(schema, columns, _checked(schema.fullname, _KEY))
    return AvroForm(json.dumps(rows.schema), rows)


def value_form(schema: SinkSchema, columns: Sequence[Column], *, is_pair: bool) -> AvroForm:
    """The form of values, which are rows with these columns or pairs of them. Raises NoAvro."""
    name = _checked(schema.fullname, _VALUE)
    if not is_pair:
        rows = _rows(schema, columns, name)
        return AvroForm(json.dumps(rows.schema), rows)
    space = name.rpartition(".")[0]
    inner = f"{space}.{_ROW}" if space else _ROW
    if inner == name:
        raise NoAvro(f"{name} is the name of the rows in it, so it needs another one")
    rows = _rows(schema, columns, inner)
    default = {"default": None} if schema.null_defaults else {}
    fields = [
        {"name": "before", "type": ["null", rows.schema], **default},
        {"name": "after", "type": ["null", inner], **default},
    ]
    found = {"type": "record", "name": name, "fields": fields}
    return AvroForm(json.dumps(found), rows, is_pair=True)


def _rows(schema: SinkSchema, columns: Sequence[Column], name: str) -> AvroRows:
    rows = avro_rows(columns, name, null_defaults=schema.null_defaults)
    docs = dict(schema.column_docs)
    fields = [
        field if column.name not in docs else {**field, "doc": docs[column.name]}
        for column, field in zip(columns, rows.schema["fields"], strict=True)
    ]
    doc = {} if schema.doc is None else {"doc": schema.doc}
    return replace(rows, schema={**rows.schema, **doc, "fields": fields})


def _checked(given: str | None, otherwise: str) -> str:
    name = otherwise if given is None else given
    if not is_full_name(name):
        raise NoAvro(f"{name} is no name of a record")
    return name
