"""Rows as JSON lines, as sinks write them.

========================  =====================================================================
BOOLEAN                   true, false
TINYINT to BIGINT         number
FLOAT, DOUBLE             number; ``"NaN"``, ``"Infinity"``, ``"-Infinity"``
DECIMAL                   string with all its digits
STRING                    string; U+FFFD for bytes that are no UTF-8
BINARY                    string, Base64
DATE                      string, ``2026-01-31``, ``-0044-03-15``, ``+10000-01-01``
TIMESTAMP, TIMESTAMP_NTZ  string, milliseconds since the epoch; microseconds after a point if any
ARRAY, STRUCT             array, object
MAP                       object; keys as the text of their own JSON form
NULL                      null
========================  =====================================================================
"""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Any

import pyarrow as pa

from slackwater.persist.nested import as_type, with_leaves
from slackwater.repr.relation import EMPTY

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_ascii_encoder = json.JSONEncoder(separators=(",", ":"))


def json_lines(table: pa.Table) -> bytes:
    """One JSON object for each row, each ended by a newline."""
    names = [encode_basestring(field.name).replace("%", "%%") for field in table.schema]
    line = f"{{{','.join(f'{name}:%s' for name in names)}}}\n"
    columns = [_texts(column) for column in table.columns]
    return "".join([line % cells for cells in zip(*columns, strict=True)]).encode()


def text_values(column: pa.ChunkedArray) -> list[str | None]:
    """The values alone: texts as they are, others as JSON writes them in ASCII."""
    text = _writer(column.type, str, _ascii_encoder.encode)
    return [None if cell is None else text(cell) for cell in _plain(column)]


def _texts(column: pa.ChunkedArray) -> list[str]:
    """The values in JSON."""
    # Of whole numbers it is what Python shows.
    is_whole = pa.types.is_integer(column.type)
    text = str if is_whole else _writer(column.type, encode_basestring, _encoder.encode)
    return ["null" if cell is None else text(cell) for cell in _plain(column)]


def _writer(
    kind: pa.DataType, of_text: Callable[[str], str], of_other: Callable[[Any], str]
) -> Callable[[Any], str]:
    """The function that makes text of a value that is not NULL, as `_plain` gives it."""
    form = _json_form(kind)

    def text(cell: Any) -> str:
        value = form(cell)
        return of_text(value) if isinstance(value, str) else of_other(value)

    return text


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """Python values, with days and moments as whole numbers, and texts as bytes if one is no UTF-8.

    Python's own dates are those of the years 1 to 9999, its texts have all their characters.
    """
    try:
        return _listed(column, _plain_type(column.type, pa.string()))
    except UnicodeDecodeError:
        return _listed(column, _plain_type(column.type, pa.binary()))


def _listed(column: pa.ChunkedArray, kind: pa.DataType) -> list[Any]:
    chunks = [as_type(chunk, kind) for chunk in column.chunks]
    values: list[Any] = pa.chunked_array(chunks, kind).to_pylist()
    return values


def _plain_type(kind: pa.DataType, texts: pa.DataType) -> pa.DataType:
    def leaf(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_date(kind):
            return pa.int32()
        if pa.types.is_timestamp(kind):
            return pa.int64()
        return texts if pa.types.is_string(kind) else kind

    return with_leaves(kind, leaf)


def _json_form(kind: pa.DataType) -> Callable[[Any], Any]:
    """The function that makes a JSON value of one that is not NULL, as `_plain` gives it."""
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_decimal(kind):
        return lambda value: format(value, "f")
    if pa.types.is_timestamp(kind):
        return _instant
    if pa.types.is_date(kind):
        return _day
    if pa.types.is_binary(kind):
        return lambda value: base64.b64encode(value).decode()
    if pa.types.is_struct(kind):
        return _struct(kind)
    if pa.types.is_list(kind):
        element = _json_form(kind.value_type)
        return lambda value: [None if item is None else element(item) for item in value]
    if pa.types.is_map(kind):
        return _map(kind)
    if pa.types.is_string(kind):
        return _text
    return lambda value: value


def _struct(kind: pa.StructType) -> Callable[[Any], Any]:
    writers = [(field.name, _json_form(field.type)) for field in kind]

    def fields(value: Any) -> dict[str, Any]:
        return {
            name: None if value[name] is None else write(value[name]) for name, write in writers
        }

    if kind.names != [EMPTY]:
        return fields
    # It stands for no field, or is a user's column of this name, which may be something.
    return lambda value: {} if value[EMPTY] is None else fields(value)


def _map(kind: pa.MapType) -> Callable[[Any], Any]:
    key, item = _json_form(kind.key_type), _json_form(kind.item_type)

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


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


_FIRST_DAY = datetime.date(1, 1, 1).toordinal() - datetime.date(1970, 1, 1).toordinal()
_CYCLE_DAYS, _CYCLE_YEARS = 146_097, 400
"""After so many days the calendar is the same again."""


def _day(days: int) -> str:
    """The date of a day since 1970 as Spark shows it."""
    cycles, within = divmod(days - _FIRST_DAY, _CYCLE_DAYS)
    date = datetime.date.fromordinal(1 + within)
    year = date.year + _CYCLE_YEARS * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{date.month:02d}-{date.day:02d}"


def _instant(micros: int) -> str:
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    millis, rest = divmod(micros, 1000)
    return f"{sign}{millis}.{rest:03d}" if rest else f"{sign}{millis}"
