"""Rows as Avro: the schema of a relation's columns, and the bytes of its rows in that schema.

Types are those that Spark's own ``to_avro`` chooses, but for DECIMAL, which is bytes. A name that
Avro does not allow becomes another one, always the same; two that become one are refused.

Source: Avro 1.12's specification; Materialize's documented types; docs/decisions 0075.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from functools import partial
from typing import Any

import pyarrow as pa

from slackwater.repr.relation import Column, stored_names
from slackwater.storage.kafka.row_writing import Encode, encoded_rows, varint

_OTHER = re.compile(r"[^A-Za-z0-9_]")
_FULL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_EXACT = Context(prec=76)
NESTED = "slackwater.sink"
"""The namespace of records that are values of a column, by the path to them."""


class NoAvro(Exception):
    """The columns have no Avro schema; the text says why."""


@dataclass(frozen=True, slots=True)
class AvroRows:
    """The form of rows with some columns: a record of that schema."""

    schema: Mapping[str, Any]
    _encodes: tuple[Encode, ...]

    def encode(self, rows: pa.Table) -> list[bytes]:
        """The bytes of each row of a table that has the columns, in their order."""
        return encoded_rows(self._encodes, rows)


def avro_rows(columns: Sequence[Column], name: str, *, null_defaults: bool = False) -> AvroRows:
    """The form of rows with these columns, as a record of that full name.

    With `null_defaults` fields that can be NULL are NULL where a writer does not have them. Raises
    NoAvro.
    """
    forms = _Forms(null_defaults)
    fields, encodes = forms.fields(
        [(each.name, each.spark_type, each.nullable) for each in columns], ()
    )
    return AvroRows({"type": "record", "name": name, "fields": fields}, encodes)


def valid_name(name: str) -> str:
    """The name, if Avro allows it, or that which stands for it."""
    found = _OTHER.sub("_", name)
    return f"_{found}" if not found or found[0].isdigit() else found


def is_full_name(text: str) -> bool:
    """Whether Avro allows that name of a record, which may have a namespace."""
    return _FULL_NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class _Forms:
    """Makes schemas and encoders of types."""

    null_defaults: bool = field(default=False)

    def fields(
        self, named: Sequence[tuple[str, Any, bool]], path: tuple[str, ...]
    ) -> tuple[list[Mapping[str, Any]], tuple[Encode, ...]]:
        """The fields of a record, of (name, type, whether it can be NULL)."""
        fields: dict[str, Mapping[str, Any]] = {}
        known: dict[str, str] = {}
        encodes = []
        for name, kind, nullable in named:
            valid = valid_name(name)
            if valid in fields:
                raise NoAvro(f"{known[valid]} and {name} would both be {valid}")
            schema, encode = self.form(kind, nullable, (*path, valid))
            made: dict[str, Any] = {"name": valid, "type": schema}
            if nullable and self.null_defaults:
                made["default"] = None
            fields[valid], known[valid] = made, name
            encodes.append(encode)
        return list(fields.values()), tuple(encodes)

    def form(self, kind: Any, nullable: bool, path: tuple[str, ...]) -> tuple[Any, Encode]:
        """The schema of a type, and how its values are encoded."""
        schema, encode = self._form(kind, path)
        if not nullable:
            return schema, encode
        return ["null", schema], partial(_optional, encode)

    def _form(self, kind: Any, path: tuple[str, ...]) -> tuple[Any, Encode]:
        if isinstance(kind, str):
            if (found := DECIMAL.fullmatch(kind)) is not None:
                precision, scale = map(int, found.groups())
                decimal_type = {"type": "bytes", "logicalType": "decimal"}
                digits = {"precision": precision, "scale": scale}
                return {**decimal_type, **digits}, partial(_decimal, scale)
            return _PRIMITIVES.get(kind, ("string", _string))
        match kind:
            case {"type": "array", "elementType": element, "containsNull": nullable}:
                inner, encode = self.form(element, nullable, (*path, "element"))
                return {"type": "array", "items": inner}, partial(_array, encode)
            case {"type": "map", "keyType": key, "valueType": value}:
                if not _is_text(key):
                    shown = ".".join(path)
                    raise NoAvro(
                        f"the keys of maps are texts in Avro, and those of {shown} are not"
                    )
                nullable = kind["valueContainsNull"]
                inner, encode = self.form(value, nullable, (*path, "value"))
                return {"type": "map", "values": inner}, partial(_map, encode)
            case {"type": "struct", "fields": listed}:
                named = [(each["name"], each["type"], each["nullable"]) for each in listed]
                fields, encodes = self.fields(named, path)
                stored = stored_names([name for name, _, _ in named])
                full = ".".join((NESTED, *path))
                record = {"type": "record", "name": full, "fields": fields}
                return record, partial(_struct, list(zip(stored, encodes, strict=True)))
            case _:
                raise NoAvro(f"no Avro type is like that of {'.'.join(path)}")


def _is_text(kind: Any) -> bool:
    """Whether a type is STRING, whatever its collation or length."""
    return isinstance(kind, str) and kind not in _PRIMITIVES and not DECIMAL.fullmatch(kind)


def _optional(encode: Encode, value: Any) -> bytes:
    return b"\0" if value is None else b"\2" + encode(value)


def _boolean(value: bool) -> bytes:
    return b"\1" if value else b"\0"


def _long(value: int) -> bytes:
    return varint(value << 1 ^ value >> 63)


def _string(value: str) -> bytes:
    return _bytes(value.encode())


def _bytes(value: bytes) -> bytes:
    return _long(len(value)) + value


def _decimal(scale: int, value: Decimal) -> bytes:
    unscaled = int(_EXACT.scaleb(value, scale))
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return _bytes(unscaled.to_bytes(size, "big", signed=True))


def _array(encode: Encode, value: Sequence[Any]) -> bytes:
    if not value:
        return b"\0"
    return b"".join((_long(len(value)), *map(encode, value), b"\0"))


def _map(encode: Encode, value: Sequence[tuple[str, Any]]) -> bytes:
    if not value:
        return b"\0"
    entries = (_string(key) + encode(each) for key, each in sorted(value, key=lambda e: e[0]))
    return b"".join((_long(len(value)), *entries, b"\0"))


def _struct(encodes: Sequence[tuple[str, Encode]], value: Mapping[str, Any]) -> bytes:
    return b"".join(encode(value[name]) for name, encode in encodes)


_PRIMITIVES: Mapping[str, tuple[Any, Encode]] = {
    "boolean": ("boolean", _boolean),
    "byte": ("int", _long),
    "short": ("int", _long),
    "integer": ("int", _long),
    "long": ("long", _long),
    "float": ("float", struct.Struct("<f").pack),
    "double": ("double", struct.Struct("<d").pack),
    "binary": ("bytes", _bytes),
    "date": ({"type": "int", "logicalType": "date"}, _long),
    "timestamp": ({"type": "long", "logicalType": "timestamp-micros"}, _long),
    "timestamp_ntz": ({"type": "long", "logicalType": "local-timestamp-micros"}, _long),
}
