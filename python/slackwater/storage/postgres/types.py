"""Types of PostgreSQL as Spark's, and its texts as their values.

What Spark has no type for, such as times of day, intervals, UUIDs and JSON, is text. A value that
does not fit its type is told with its reason, and is NULL in what is converted.

Source: PostgreSQL's manual, "Data Types"; docs/decisions 0072.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.repr.relation import Column, JsonType, RelationDesc, sql_type
from slackwater.storage.postgres.tables import PostgresColumn, PostgresTable
from slackwater.storage.text_values import shortened

_SIMPLE: Mapping[str, str] = {
    "bool": "boolean",
    "int2": "short",
    "int4": "integer",
    "int8": "long",
    "oid": "long",
    "float4": "float",
    "float8": "double",
    "bytea": "binary",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
}
_DIGITS = 38
_DECIMAL_SCALE = 18
_ELEMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}"\\]+)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def source_columns(table: PostgresTable) -> RelationDesc:
    """The columns of the relation that has the rows of a table."""
    return RelationDesc(
        tuple(
            Column(each.name, json.dumps(spark_type(each, table)), nullable=not each.not_null)
            for each in table.columns
        )
    )


def spark_type(column: PostgresColumn, table: PostgresTable) -> JsonType:
    """The type of a column. With TEXT COLUMNS it is a text."""
    if column.name in table.text_columns:
        return "string"
    element = _element_type(column)
    if column.is_array:
        return {"type": "array", "elementType": element, "containsNull": True}
    return element


def _element_type(column: PostgresColumn) -> str:
    if column.base != "numeric":
        return _SIMPLE.get(column.base, "string")
    if column.modifier < 0:
        return f"decimal({_DIGITS},{_DECIMAL_SCALE})"
    packed = column.modifier - 4
    precision, scale = (packed >> 16) & 0xFFFF, packed & 0x7FF
    scale = scale - 0x800 if scale >= 0x400 else scale
    if scale < 0:
        precision, scale = precision - scale, 0
    scale = min(scale, _DIGITS)
    return f"decimal({min(max(precision, scale), _DIGITS)},{scale})"


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table. `bad` has the reasons of those that are none, by their numbers; these have
    NULL for what does not fit."""

    table: pa.Table
    bad: Mapping[int, str]


class RowReader:
    """Makes rows of a table out of texts."""

    def __init__(self, table: PostgresTable) -> None:
        self.desc = source_columns(table)
        self._schema = self.desc.arrow_schema()
        self._readers = [_reader(column, field.type) for column, field in self._pairs(table)]
        self._types = [sql_type(each.spark_type) for each in self.desc.columns]

    def _pairs(self, table: PostgresTable) -> Sequence[tuple[PostgresColumn, pa.Field]]:
        kept = [
            PostgresColumn(each.name, each.number, each.type_oid, "text")
            if each.name in table.text_columns
            else each
            for each in table.columns
        ]
        return list(zip(kept, self._schema, strict=True))

    def rows(self, texts: Sequence[pa.Array]) -> Rows:
        """The rows whose values are these texts, by columns."""
        arrays: list[pa.Array] = []
        bad: dict[int, str] = {}
        for place, column in enumerate(texts):
            values, wrong = self._readers[place](column)
            arrays.append(values)
            for number in wrong:
                bad.setdefault(number, self._reason(place, column[number].as_py()))
        return Rows(pa.Table.from_arrays(arrays, schema=self._schema), bad)

    def _reason(self, place: int, text: str) -> str:
        name, kind = self.desc.names[place], self._types[place]
        return (
            f"the column {name} has the value '{shortened(text)}', which is no {kind}; TEXT "
            "COLUMNS takes it as a text"
        )


Read = Callable[[pa.Array], tuple[pa.Array, Sequence[int]]]
"""Converts texts; tells the places of those that do not fit, which are NULL then."""


def _reader(column: PostgresColumn, kind: pa.DataType) -> Read:
    if column.is_array and pa.types.is_list(kind):
        inner = _reader_of(column.base, kind.value_type)
        return lambda texts: _arrays(texts, kind, inner)
    return _reader_of(column.base, kind)


def _reader_of(base: str, kind: pa.DataType) -> Read:
    if pa.types.is_string(kind):
        return lambda texts: (texts, ())
    if base == "bool":
        return _booleans
    if base == "bytea":
        return _bytes
    return lambda texts: _cast(texts, kind)


def _cast(texts: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Sequence[int]]:
    try:
        return texts.cast(kind), ()
    except pa.ArrowInvalid:
        pass
    values: list[pa.Scalar] = []
    wrong: list[int] = []
    for number, each in enumerate(texts):
        try:
            values.append(each.cast(kind).as_py())
        except pa.ArrowInvalid:
            values.append(None)
            wrong.append(number)
    return pa.array(values, kind), wrong


def _booleans(texts: pa.Array) -> tuple[pa.Array, Sequence[int]]:
    return pc.equal(texts, "t"), ()


def _bytes(texts: pa.Array) -> tuple[pa.Array, Sequence[int]]:
    found = (each if each is None else bytes.fromhex(each[2:]) for each in texts.to_pylist())
    return pa.array(list(found), pa.binary()), ()


def _arrays(texts: pa.Array, kind: pa.DataType, inner: Read) -> tuple[pa.Array, Sequence[int]]:
    """Arrays of one dimension; others do not fit."""
    offsets: list[int | None] = [0]
    elements: list[str | None] = []
    owners: list[int] = []
    wrong: set[int] = set()
    for number, text in enumerate(texts.to_pylist()):
        found = None if text is None else _elements(text)
        if found is None:
            if text is not None:
                wrong.add(number)
            offsets[-1] = None
            offsets.append(len(elements))
            continue
        elements += found
        owners += [number] * len(found)
        offsets.append(len(elements))
    values, bad = inner(pa.array(elements, pa.string()))
    wrong.update(owners[each] for each in bad)
    arrays = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), values.cast(kind.value_type)
    ).cast(kind)
    if bad:
        mask = pa.array([number in wrong for number in range(len(texts))])
        arrays = pc.if_else(mask, pa.scalar(None, kind), arrays)
    return arrays, sorted(wrong)


def _elements(text: str) -> list[str | None] | None:
    """The elements of an array as text; None: it has several dimensions, or counts from elsewhere
    than 1."""
    if not text.startswith("{"):
        return None
    found: list[str | None] = []
    at, end = 1, len(text) - 1
    while at < end:
        match = _ELEMENT.match(text, at)
        if match is None:
            return None
        quoted, plain = match.groups()
        if plain is None:
            found.append(_ESCAPED.sub(r"\1", quoted))
        else:
            found.append(None if plain == "NULL" else plain)
        at = match.end()
        if at < end and text[at] != ",":
            return None
        at += 1
    return found
