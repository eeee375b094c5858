"""Rows as JSON lines, as sinks write them.

========================  =====================================================================
BOOLEAN                   true, false
TINYINT to BIGINT         number
FLOAT, DOUBLE             number; ``"NaN"``, ``"Infinity"``, ``"-Infinity"``
DECIMAL                   string with all its digits
STRING                    string
BINARY                    string, Base64
DATE                      string, ``2026-01-31``
TIMESTAMP, TIMESTAMP_NTZ  string, milliseconds since the epoch; microseconds after a point if any
ARRAY, STRUCT             array, object
MAP                       object; keys as the text of their own JSON form
NULL                      null
========================  =====================================================================
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa


def json_lines(table: pa.Table) -> bytes:
    """One JSON object for each row, each ended by a newline."""
    writers = [(field.name, json_form(field.type)) for field in table.schema]
    columns = [_plain(column) for column in table.columns]
    lines: list[str] = []
    for cells in zip(*columns, strict=True):
        row = {
            name: None if cell is None else write(cell)
            for (name, write), cell in zip(writers, cells, strict=True)
        }
        lines.append(json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False))
    return "".join(line + "\n" for line in lines).encode()


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """Python values. Times become whole microseconds, which Python's own types may not hold."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def json_form(kind: pa.DataType) -> Callable[[Any], Any]:
    """How a value that is not NULL becomes a JSON value."""
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_decimal(kind):
        return lambda value: format(value, "f")
    if pa.types.is_timestamp(kind):
        return _instant
    if pa.types.is_date(kind):
        return lambda value: value.isoformat()
    if pa.types.is_binary(kind):
        return lambda value: base64.b64encode(value).decode()
    if pa.types.is_struct(kind):
        return _struct(kind)
    if pa.types.is_list(kind):
        element = json_form(kind.value_type)
        return lambda value: [None if item is None else element(item) for item in value]
    if pa.types.is_map(kind):
        return _map(kind)
    return lambda value: value


def _struct(kind: pa.StructType) -> Callable[[Any], Any]:
    writers = [(field.name, json_form(field.type)) for field in kind]
    return lambda value: {
        name: None if value[name] is None else write(value[name]) for name, write in writers
    }


def _map(kind: pa.MapType) -> Callable[[Any], Any]:
    key, item = json_form(kind.key_type), json_form(kind.item_type)

    def text(value: Any) -> str:
        form = key(value)
        return form if isinstance(form, str) else json.dumps(form)

    return lambda value: {text(k): None if v is None else item(v) for k, v in value}


def _float(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _instant(value: Any) -> str:
    micros = value if isinstance(value, int) else _micros(value)
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    millis, rest = divmod(micros, 1000)
    return f"{sign}{millis}.{rest:03d}" if rest else f"{sign}{millis}"


def _micros(value: Any) -> int:
    """Microseconds since the epoch of a nested time, which is a datetime."""
    kind = pa.timestamp("us", "UTC") if value.tzinfo is not None else pa.timestamp("us")
    micros: int = pa.scalar(value, kind).value
    return micros
