"""Rows as Protobuf: the schema of a relation's columns, and the bytes of its rows in that schema.

A column has the number of its place, so one that is added behind the others changes none. A row has
the bytes that Protobuf's own libraries write: fields by their numbers, what is the default of a
field without presence left out, numbers of a list packed.

Source: Protobuf's guides of its language and of its encoding; docs/decisions 0086.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa

from slackwater.repr.relation import Column, stored_names
from slackwater.storage.kafka.avro_writing import DECIMAL, valid_name
from slackwater.storage.kafka.protobuf import TIMESTAMP
from slackwater.storage.kafka.protobuf_types import FIXED32, FIXED64, LENGTH, VARINT
from slackwater.storage.kafka.row_writing import Encode, encoded_rows, varint

TIMESTAMP_FILE = "google/protobuf/timestamp.proto"
_EPOCH = date(1970, 1, 1).toordinal()
_CYCLE_DAYS, _CYCLE_YEARS = 146_097, 400
"""The calendar repeats itself."""
_SECOND, _DAY_SECONDS = 10**6, 86_400


class NoProtobuf(Exception):
    """The columns have no schema in Protobuf; the text says why."""


@dataclass(frozen=True, slots=True)
class ProtobufRows:
    """The form of rows with some columns: a message. `lines` are its declaration."""

    lines: tuple[str, ...]
    has_times: bool
    _encodes: tuple[Encode, ...]

    def encode(self, rows: pa.Table) -> list[bytes]:
        """The bytes of each row of a table that has the columns, in their order."""
        return encoded_rows(self._encodes, rows)


def protobuf_rows(
    columns: Sequence[Column], name: str, doc: str | None, docs: Mapping[str, str]
) -> ProtobufRows:
    """The form of rows with these columns, as a message of that name.

    `doc` is said of the message, `docs` of columns. Raises NoProtobuf.
    """
    forms = _Forms()
    named = [_Named(c.name, c.spark_type, c.nullable, docs.get(c.name)) for c in columns]
    lines, encodes = forms.message(name, named, ())
    return ProtobufRows((*_comment(doc), *lines), forms.has_times, encodes)


def field_name(name: str) -> str:
    """The name of a column, if Protobuf allows it, or that which stands for it.

    Names that compilers make of it begin with a letter.
    """
    valid = valid_name(name)
    return valid if _camel(valid)[:1].isalpha() else f"c{valid}"


def delimited(content: bytes) -> bytes:
    """The bytes behind their number, as a message within another has them."""
    return _varint(len(content)) + content


def tag(number: int, form: int) -> bytes:
    """The bytes with which a field of that number begins."""
    return _varint(number << 3 | form)


@dataclass(frozen=True, slots=True)
class _Named:
    """A column, or a field of a STRUCT."""

    name: str
    kind: Any
    nullable: bool
    doc: str | None = None


@dataclass(frozen=True, slots=True)
class _Type:
    """The type of one value: Protobuf's word for it, and the form in which it is written.

    `lines` declare a message that it is.
    """

    word: str
    form: int
    encode: Encode
    is_message: bool = False
    lines: tuple[str, ...] = ()


@dataclass(slots=True)
class _Scope:
    """The names that one message has given: of its fields, and of what is declared within it."""

    fields: dict[str, str] = field(default_factory=dict)
    types: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Forms:
    """Makes declarations and encoders of types."""

    has_times: bool = False

    def message(
        self, name: str, named: Sequence[_Named], path: tuple[str, ...]
    ) -> tuple[tuple[str, ...], tuple[Encode, ...]]:
        """The declaration of a message, and the encoders of its fields with their numbers."""
        valid = _field_names(named)
        scope = _Scope(dict(zip(valid, (each.name for each in named), strict=True)))
        for each, its_name in zip(named, valid, strict=True):
            if isinstance(each.kind, dict) and each.kind["type"] == "map":
                _take_entry(scope, its_name)
        lines: list[str] = []
        encodes = []
        for number, (each, its_name) in enumerate(zip(named, valid, strict=True), start=1):
            declared, encode = self._field(each, number, its_name, (*path, its_name), scope)
            lines += [*_comment(each.doc), *declared]
            encodes.append(encode)
        return (f"message {name} {{", *_indented(lines), "}"), tuple(encodes)

    def _field(
        self, each: _Named, number: int, name: str, path: tuple[str, ...], scope: _Scope
    ) -> tuple[Sequence[str], Encode]:
        match each.kind:
            case {"type": "array", "elementType": element, "containsNull": has_nulls}:
                if has_nulls:
                    raise NoProtobuf(
                        f"a list of Protobuf has no NULL, and {'.'.join(path)} may have some: "
                        "array_compact takes them out"
                    )
                value = self._value(element, path, scope)
                line = f"repeated {value.word} {name} = {number};"
                return (*value.lines, line), _repeated(number, value)
            case {"type": "map", "keyType": key, "valueType": element}:
                if each.kind["valueContainsNull"]:
                    raise NoProtobuf(
                        f"a map of Protobuf has no NULL, and {'.'.join(path)} may have some: "
                        "transform_values and coalesce put other values in their places"
                    )
                keys = _key(key, path)
                value = self._value(element, path, scope)
                line = f"map<{keys.word}, {value.word}> {name} = {number};"
                return (*value.lines, line), _entries(number, keys, value)
        value = self._value(each.kind, path, scope)
        begin = tag(number, value.form)
        if value.is_message or each.nullable:
            word = "" if value.is_message else "optional "
            encode = partial(_present, begin, value.encode)
        else:
            word = ""
            encode = partial(_unless, _ZEROS[value.form], begin, value.encode)
        return (*value.lines, f"{word}{value.word} {name} = {number};"), encode

    def _value(self, kind: Any, path: tuple[str, ...], scope: _Scope) -> _Type:
        """The type of one value, which is no list and no map."""
        if isinstance(kind, str):
            if kind == "timestamp":
                self.has_times = True
                return _Type(TIMESTAMP, LENGTH, _timestamp, is_message=True)
            return _Type("string", LENGTH, _decimal) if DECIMAL.fullmatch(kind) else _scalar(kind)
        match kind:
            case {"type": "struct", "fields": listed}:
                named = [_Named(f["name"], f["type"], f["nullable"]) for f in listed]
                word = _free_type(scope, path[-1])
                lines, encodes = self.message(word, named, path)
                stored = stored_names([each.name for each in named])
                encode = partial(_struct, list(zip(stored, encodes, strict=True)))
                return _Type(word, LENGTH, encode, is_message=True, lines=lines)
            case {"type": "array" | "map"}:
                raise NoProtobuf(
                    f"{'.'.join(path)} has lists or maps in a list or a map, which Protobuf does "
                    "not have: a STRUCT around the inner one makes a message of it"
                )
            case _:
                raise NoProtobuf(f"no type of Protobuf is like that of {'.'.join(path)}")


def _field_names(named: Sequence[_Named]) -> list[str]:
    """The names of fields, which differ in Protobuf and in its form in JSON. Raises NoProtobuf."""
    found: list[str] = []
    known: dict[str, str] = {}
    for each in named:
        valid = field_name(each.name)
        for form in (valid, _camel(valid)):
            other = known.setdefault(form, each.name)
            if other != each.name:
                raise NoProtobuf(f"{other} and {each.name} would both be {form}")
        found.append(valid)
    return found


def _take_entry(scope: _Scope, name: str) -> None:
    """Takes the name that compilers give to the entries of a map."""
    camel = _camel(name)
    entry = f"{camel[:1].upper()}{camel[1:]}Entry"
    if entry in scope.types or entry in scope.fields:
        raise NoProtobuf(
            f"the entries of the map {scope.fields[name]} would be called {entry}, as another"
        )
    scope.types.add(entry)


def _free_type(scope: _Scope, name: str) -> str:
    """A name for the messages of a field, which no other one within its message has."""
    camel = _camel(name)
    wanted = f"{camel[:1].upper()}{camel[1:]}"
    while wanted in scope.fields or wanted in scope.types:
        wanted += "_"
    scope.types.add(wanted)
    return wanted


def _camel(name: str) -> str:
    """The name of a field in Protobuf's form in JSON."""
    first, *rest = name.split("_")
    return first + "".join(each[:1].upper() + each[1:] for each in rest)


def _comment(text: str | None) -> list[str]:
    return [] if text is None else [f"// {line}".rstrip() for line in text.splitlines()]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _key(kind: Any, path: tuple[str, ...]) -> _Type:
    """The type of the keys of a map."""
    found = _scalar(kind) if isinstance(kind, str) else None
    if found is None or kind in _NO_KEYS or DECIMAL.fullmatch(kind):
        raise NoProtobuf(
            f"keys of maps are texts, whole numbers or booleans in Protobuf, and those of "
            f"{'.'.join(path)} are not"
        )
    return found


def _repeated(number: int, value: _Type) -> Encode:
    if value.form == LENGTH:
        return partial(_each, tag(number, LENGTH), value.encode)
    return partial(_packed, tag(number, LENGTH), value.encode)


def _entries(number: int, key: _Type, value: _Type) -> Encode:
    sides = (tag(1, key.form), key.encode), (tag(2, value.form), value.encode)
    return partial(_map, tag(number, LENGTH), *sides)


def _present(begin: bytes, encode: Encode, value: Any) -> bytes:
    return b"" if value is None else begin + encode(value)


def _unless(zero: bytes, begin: bytes, encode: Encode, value: Any) -> bytes:
    found = encode(value)
    return b"" if found == zero else begin + found


def _each(begin: bytes, encode: Encode, value: Sequence[Any] | None) -> bytes:
    return b"".join(begin + encode(each) for each in value or ())


def _packed(begin: bytes, encode: Encode, value: Sequence[Any] | None) -> bytes:
    return begin + delimited(b"".join(map(encode, value))) if value else b""


def _map(
    begin: bytes,
    key: tuple[bytes, Encode],
    side: tuple[bytes, Encode],
    value: Sequence[tuple[Any, Any]] | None,
) -> bytes:
    (key_tag, key_of), (value_tag, value_of) = key, side
    return b"".join(
        begin + delimited(key_tag + key_of(k) + value_tag + value_of(v))
        for k, v in sorted(value or (), key=lambda entry: entry[0])
    )


def _struct(encodes: Sequence[tuple[str, Encode]], value: Mapping[str, Any]) -> bytes:
    return delimited(b"".join(encode(value[name]) for name, encode in encodes))


def _varint(value: int) -> bytes:
    return varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def _string(value: str) -> bytes:
    return delimited(value.encode())


def _decimal(value: Decimal) -> bytes:
    return _string(format(value, "f"))


def _timestamp(value: int) -> bytes:
    seconds, micros = divmod(value, _SECOND)
    return delimited(
        _unless(b"\0", b"\x08", _varint, seconds) + _unless(b"\0", b"\x10", _varint, micros * 1000)
    )


def _date(value: int) -> bytes:
    return _string(_day(value))


def _local(value: int) -> bytes:
    seconds, micros = divmod(value, _SECOND)
    days, second = divmod(seconds, _DAY_SECONDS)
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    fraction = f".{micros:06}" if micros else ""
    return _string(f"{_day(days)}T{clock}{fraction}")


def _day(days: int) -> str:
    """The day in the form of ISO 8601, as Spark casts it: ``+10000-01-01`` and ``-0001-01-01``."""
    # The day of the same place in the years 1 to 400, which Python's dates have.
    cycles, place = divmod(days + _EPOCH - 1, _CYCLE_DAYS)
    found = date.fromordinal(place + 1)
    year = found.year + cycles * _CYCLE_YEARS
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04}-{found.month:02}-{found.day:02}"


def _scalar(kind: str) -> _Type:
    return _SCALARS.get(kind, _TEXT)


_ZEROS = {VARINT: b"\0", FIXED64: bytes(8), FIXED32: bytes(4), LENGTH: b"\0"}
_TEXT = _Type("string", LENGTH, _string)
_INT = _Type("int32", VARINT, _varint)
_SCALARS: Mapping[str, _Type] = {
    "boolean": _Type("bool", VARINT, _varint),
    "byte": _INT,
    "short": _INT,
    "integer": _INT,
    "long": _Type("int64", VARINT, _varint),
    "float": _Type("float", FIXED32, struct.Struct("<f").pack),
    "double": _Type("double", FIXED64, struct.Struct("<d").pack),
    "binary": _Type("bytes", LENGTH, delimited),
    "date": _Type("string", LENGTH, _date),
    "timestamp_ntz": _Type("string", LENGTH, _local),
}
_NO_KEYS = frozenset({"float", "double", "binary", "date", "timestamp", "timestamp_ntz"})
