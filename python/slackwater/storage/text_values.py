"""Text to typed columns, with the rules of Spark's CSV reader and of its casts.

A vectorised path converts whole columns; where it fails, each distinct text is converted by
itself, which says what is wrong with which. Both give the same values. Texts without a time zone
are UTC.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_SHOWN = 60
_INTEGER = r"^[+-]?[0-9]+$"
_FLOAT = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})"
    r"(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?)?)?"
    r"\s*(Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2})?)?"
)
_LOOSE_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T].*)?")
_WIDE = Context(prec=120)
_JAVA_SPACE = "".join(map(chr, range(0x21)))
_SPECIAL_FLOATS: Mapping[str, float] = {
    "NaN": float("nan"),
    "Inf": float("inf"),
    "+Inf": float("inf"),
    "-Inf": float("-inf"),
    "Infinity": float("inf"),
    "+Infinity": float("inf"),
    "-Infinity": float("-inf"),
}
_SQL_NAMES: Mapping[str, str] = {
    "bool": "BOOLEAN", "int8": "TINYINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT",
    "float": "FLOAT", "double": "DOUBLE", "date32[day]": "DATE", "binary": "BINARY",
    "timestamp[us, tz=UTC]": "TIMESTAMP", "timestamp[us]": "TIMESTAMP_NTZ",
}  # fmt: skip

_AS_THEY_ARE = (
    (pa.types.is_string, str),
    (pa.types.is_boolean, bool),
    (pa.types.is_integer, int),
)
"""The types of columns that take values of JSON as they are decoded."""


@dataclass(frozen=True, slots=True)
class Converted:
    """A converted column. `bad` maps the positions that do not convert to the reason."""

    values: pa.Array
    bad: Mapping[int, str]


def convert(texts: pa.Array, kind: pa.DataType) -> Converted:
    """`texts` (STRING, NULL for NULL) as `kind`. Positions in `bad` are NULL in the result."""
    if pa.types.is_string(kind):
        return Converted(texts, {})
    try:
        values = _vectorised(texts, kind)
    except pa.ArrowInvalid:
        values = None
    return Converted(values, {}) if values is not None else _one_by_one(texts, kind)


def parse(text: str, kind: pa.DataType) -> Any:
    """One text as a Python value that Arrow takes for `kind`. Raises ValueError with the reason."""
    try:
        value = _parser(kind)(text)
        pa.scalar(value, kind)
    except (ValueError, OverflowError, InvalidOperation, pa.ArrowInvalid):
        name = _SQL_NAMES.get(str(kind), str(kind).replace("decimal128", "DECIMAL"))
        raise ValueError(f"'{shortened(text)}' is not {_article(name)} {name}") from None
    return value


def _article(name: str) -> str:
    return "an" if name[0] in "AEIO" else "a"


def shown(text: str) -> str:
    """The text as it can be stored: half of a surrogate pair, as JSON may have, is escaped."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def shortened(text: str) -> str:
    """The text as messages show it: its begin, where it is long, as it can be stored."""
    return shown(text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}...")


def _all_match(texts: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py())


def _vectorised(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The whole column, or None (or pa.ArrowInvalid) where texts must be looked at one by one."""
    if pa.types.is_boolean(kind):
        lowered = pc.utf8_lower(texts)
        true = pc.equal(lowered, "true")
        known = pc.or_(true, pc.equal(lowered, "false"))
        return true if bool(pc.all(known, min_count=0).as_py()) else None
    if pa.types.is_integer(kind):
        return _unsigned_plus(texts).cast(kind) if _all_match(texts, _INTEGER) else None
    if pa.types.is_float64(kind):
        return texts.cast(kind) if _all_match(texts, _FLOAT) else None
    if pa.types.is_date(kind):
        return texts.cast(kind) if _all_match(texts, _DATE) else None
    if pa.types.is_timestamp(kind) and _all_match(texts, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T]|$)"):
        return _timestamps(texts, kind)
    return None


def _unsigned_plus(texts: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(texts, r"^\+", "")


def _timestamps(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    naive = pa.timestamp("us")
    zoned = pa.timestamp("us", "UTC")
    if not bool(pc.any(pc.match_substring_regex(texts, r":.*[Z+-]"), min_count=0).as_py()):
        return texts.cast(naive).cast(kind)
    if pa.types.is_timestamp(kind) and kind.tz is None:
        raise pa.ArrowInvalid("a zone, which TIMESTAMP_NTZ drops")
    return texts.cast(zoned)


def _one_by_one(texts: pa.Array, kind: pa.DataType) -> Converted:
    seen: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    bad: dict[int, str] = {}
    values: list[Any] = []
    for position, text in enumerate(texts.to_pylist()):
        if text is not None and text not in seen:
            try:
                seen[text] = parse(text, kind)
            except ValueError as error:
                seen[text] = None
                reasons[text] = str(error)
        if text in reasons:
            bad[position] = reasons[text]
        values.append(None if text is None else seen[text])
    return Converted(pa.array(values, type=kind), bad)


def _parser(kind: pa.DataType) -> Callable[[str], Any]:
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_integer(kind):
        return _integer
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_decimal(kind):
        return lambda text: _decimal(text, kind.precision, kind.scale)
    if pa.types.is_date(kind):
        return _date
    if pa.types.is_timestamp(kind):
        return _timestamp if kind.tz else lambda text: _timestamp_ntz(text)
    if pa.types.is_binary(kind):
        return str.encode
    if pa.types.is_string(kind):
        return str
    raise ValueError("a nested type has no text form")


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(text)
    return lowered == "true"


def _integer(text: str) -> int:
    if not re.fullmatch(_INTEGER, text) or not text.isascii():
        raise ValueError(text)
    return int(text)


def _float(text: str) -> float:
    """As `java.lang.Double.parseDouble` has it, but for hexadecimal numbers."""
    if text in _SPECIAL_FLOATS:
        return _SPECIAL_FLOATS[text]
    text = text.strip(_JAVA_SPACE)
    if text[-1:] in ("d", "D", "f", "F"):
        text = text[:-1]
    if not re.fullmatch(_FLOAT, text) or not text.isascii():
        raise ValueError(text)
    return float(text)


def _decimal(text: str, precision: int, scale: int) -> Decimal:
    if not re.fullmatch(_FLOAT, text) or not text.isascii():
        raise ValueError(text)
    return fit_decimal(Decimal(text), precision, scale)


def fit_decimal(value: Decimal, precision: int, scale: int) -> Decimal:
    """`value` rounded half up to `scale`, as Spark does. Raises ValueError if it does not fit."""
    if not value.is_finite() or (value and value.adjusted() > precision - scale):
        raise ValueError(str(value))
    rounded = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _WIDE)
    if len(rounded.as_tuple().digits) > precision:
        raise ValueError(str(value))
    return rounded


def _date(text: str) -> date:
    match = _LOOSE_DATE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return date(int(match[1]), int(match[2]), int(match[3]))


def _civil(text: str) -> tuple[datetime, str | None]:
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(text)
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    micros = int(((fraction or "") + "000000")[:6])
    civil = datetime(
        int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), micros
    )
    return civil, zone


def _timestamp_ntz(text: str) -> datetime:
    return _civil(text)[0]


def _timestamp(text: str) -> datetime:
    civil, zone = _civil(text)
    return civil.replace(tzinfo=timezone.utc) - _offset(zone)


def _offset(zone: str | None) -> timedelta:
    if zone is None or zone[0] not in "+-":
        return timedelta(0)
    digits = zone[1:].replace(":", "")
    hours, minutes = (digits[:-2], digits[-2:]) if len(digits) > 2 else (digits, "0")
    if int(hours) > 18 or int(minutes) > 59:
        raise ValueError(zone)
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    return -offset if zone[0] == "-" else offset


def from_json(value: Any, kind: pa.DataType) -> Any:
    """A decoded JSON value as a Python value that Arrow takes for `kind`.

    Numbers must have been decoded as int and Decimal. Objects lose keys that `kind` does not name
    and get NULL for those that are missing; anything becomes text for STRING. BINARY is Base64.
    Raises ValueError with the reason.
    """
    if value is None:
        return None
    if pa.types.is_string(kind):
        return _text(value if isinstance(value, str) else json_text(value))
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {field.name: from_json(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind) and isinstance(value, list):
        return [from_json(item, kind.value_type) for item in value]
    if pa.types.is_map(kind) and isinstance(value, dict):
        return [
            (parse(key, kind.key_type), from_json(item, kind.item_type))
            for key, item in value.items()
        ]
    return _json_scalar(value, kind)


def from_json_cells(cells: Sequence[Any], kind: pa.DataType) -> Converted:
    """The values that `from_json` makes of the cells, as a column that is NULL where one is bad.

    Cells of one kind are converted together; where that fails, each by itself.
    """
    values = _json_together(cells, kind)
    if values is not None:
        return values
    converted: list[Any] = []
    bad: dict[int, str] = {}
    for position, cell in enumerate(cells):
        try:
            converted.append(from_json(cell, kind))
        except ValueError as error:
            converted.append(None)
            bad[position] = str(error)
    return Converted(pa.array(converted, kind), bad)


def _json_together(cells: Sequence[Any], kind: pa.DataType) -> Converted | None:
    """The column, or None where cells must be looked at one by one."""
    types = set(map(type, cells)) - {type(None)}
    try:
        if types == {str} and (pa.types.is_temporal(kind) or pa.types.is_decimal(kind)):
            return convert(pa.array(cells, pa.string()), kind)
        if pa.types.is_decimal(kind) and types <= {int, Decimal}:
            exact = [Decimal(cell) if type(cell) is int else cell for cell in cells]
            return Converted(pa.array(exact, kind), {})
        if any(holds(kind) and types <= {of} for holds, of in _AS_THEY_ARE):
            return Converted(pa.array(cells, kind), {})
    except (ValueError, OverflowError, pa.ArrowException):
        # A text that is none, a number that is too large or has to be rounded.
        return None
    return None


def _text(text: str) -> str:
    try:
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"'{shortened(text)}' has half of a surrogate pair") from None
    return text


def _json_scalar(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, bool):
        if pa.types.is_boolean(kind):
            return value
    elif isinstance(value, int | Decimal):
        if pa.types.is_decimal(kind) or pa.types.is_floating(kind):
            return parse(str(value), kind)
        if pa.types.is_integer(kind) and isinstance(value, int):
            return parse(str(value), kind)
    elif isinstance(value, str):
        if pa.types.is_binary(kind):
            return base64.b64decode(value, validate=True)
        textual = pa.types.is_temporal(kind) or pa.types.is_decimal(kind)
        if textual or (pa.types.is_floating(kind) and value in _SPECIAL_FLOATS):
            return parse(value, kind)
    name = _SQL_NAMES.get(str(kind), str(kind))
    raise ValueError(f"{shortened(json_text(value))} is not {_article(name)} {name}")


def json_text(value: Any) -> str:
    """A decoded JSON value as compact JSON text; numbers keep their digits."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        inner = ",".join(f"{json.dumps(k)}:{json_text(v)}" for k, v in value.items())
        return "{" + inner + "}"
    if isinstance(value, list):
        return "[" + ",".join(json_text(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)
