"""Avro values as columns, with the types that Spark's own ``from_avro`` gives them.

A schema is JSON, as text. What it says is taken apart once (`avro_shape`); then each value, as a
decoder of Avro gives it without logical types, becomes cells that Arrow takes.

Source: Avro 1.12's specification; Spark's SchemaConverters; docs/decisions 0071.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any

from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.repr.relation import Column, stored_names
from slackwater.storage.kafka.avro_meaning import full_name
from slackwater.storage.kafka.shapes import Convert, kept_places

BRANCH = "slackwater_branch"
"""A field that records have in the schema for decoders, to tell those of a union apart."""

_PRIMITIVES: Mapping[str, object] = {
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "binary",
}
_NAMED = ("record", "error", "enum", "fixed")
_INT = range(-(2**31), 2**31)
_LONG = range(-(2**63), 2**63)
_MOST_DIGITS = 38


@dataclass(frozen=True, slots=True)
class AvroShape:
    """The columns of a schema. A record's fields are columns, anything else is one. See `Shape`.

    `schema` is the schema for a decoder: it marks the records of unions, and has no logical types.
    """

    columns: tuple[Column, ...]
    schema: str
    _names: tuple[str, ...] | None
    _converts: tuple[Convert, ...]

    def cells(self, value: Any) -> list[Any]:
        names = self._names
        parts = [value] if names is None else [value[name] for name in names]
        return [convert(part) for convert, part in zip(self._converts, parts, strict=True)]

    def without(self, names: Collection[str]) -> AvroShape:
        kept = kept_places(self.columns, names)
        return replace(
            self,
            columns=tuple(self.columns[n] for n in kept),
            _names=None if self._names is None else tuple(self._names[n] for n in kept),
            _converts=tuple(self._converts[n] for n in kept),
        )


def avro_shape(schema: str, *, is_key: bool, name: str | None = None) -> AvroShape:
    """The columns of keys or of values in that schema.

    With a `name` there is one column of that name: a record is a STRUCT in it, but one of a single
    field is that field. Raises SLACKWATER_AVRO_SCHEMA.
    """
    what = "keys" if is_key else "values"
    try:
        found = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise unreadable(what, f"it is not JSON: {error}") from None
    types = _Types(what)
    top = types.read(found, "")
    if is_key and types.has_map:
        raise unreadable(what, "maps have no equality, so they are in no key")
    plain = json.dumps(types.plain(found, ""))
    fields = top.fields
    if fields is not None and (name is None or len(fields) == 1):
        columns = tuple(
            Column(name or each, json.dumps(kind.type, sort_keys=True), kind.nullable)
            for each, kind in fields.items()
        )
        if not columns:
            raise unreadable(what, "the record has no field")
        converts = tuple(kind.convert for kind in fields.values())
        return AvroShape(columns, plain, tuple(fields), converts)
    column = Column(
        name or ("key" if is_key else "data"), json.dumps(top.type, sort_keys=True), top.nullable
    )
    return AvroShape((column,), plain, None, (top.convert,))


def unreadable(what: str, reason: str) -> SlackwaterError:
    """The error of a schema of keys or values from which no columns can be made."""
    return user_error("SLACKWATER_AVRO_SCHEMA", what=what, reason=reason)


@dataclass(frozen=True, slots=True)
class _Type:
    """A schema as Spark has it. `python` is what a decoder gives, to tell branches apart.

    `fields` are those of a record.
    """

    type: Any
    nullable: bool
    convert: Convert
    python: str
    fields: Mapping[str, _Type] | None = None


@dataclass(slots=True)
class _Types:
    """The types of one schema, in which names stand for what was defined before."""

    what: str
    has_map: bool = False
    marks_records: bool = False
    named: dict[str, _Type | None] = field(default_factory=dict)

    def read(self, schema: Any, namespace: str) -> _Type:
        match schema:
            case str():
                return self._primitive_or_named(schema, namespace)
            case list():
                return self._union([self.read(e, namespace) for e in schema if e != "null"], schema)
            case {"type": (dict() | list()) as inner}:
                return self.read(inner, namespace)
            case {"type": "array", "items": items}:
                return self._array(self.read(items, namespace))
            case {"type": "map", "values": values}:
                self.has_map = True
                return self._map(self.read(values, namespace))
            case {"type": ("record" | "error" | "enum" | "fixed") as kind, "name": str(name)}:
                return self._define(
                    kind, full_name(name, schema.get("namespace"), namespace), schema
                )
            case {"type": str(name)}:
                plain = self._primitive_or_named(name, namespace)
                return self._logical(schema, name, plain)
            case _:
                raise self.refused(f"{json.dumps(schema)[:80]} is no schema")

    def refused(self, reason: str) -> SlackwaterError:
        return unreadable(self.what, reason)

    def plain(self, schema: Any, namespace: str) -> Any:
        """The schema without logical types; records have a mark if a union tells them apart."""
        if isinstance(schema, list):
            # A decoder takes the first type that fits, and a long would fit into a double.
            members = [self.plain(each, namespace) for each in schema]
            return sorted(members, key=_is_fraction)
        if not isinstance(schema, dict):
            return schema
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.plain(kind, namespace)
        dropped = ("logicalType", "precision", "scale")
        found = {name: value for name, value in schema.items() if name not in dropped}
        if kind in _NAMED:
            full = full_name(schema["name"], schema.get("namespace"), namespace)
            namespace = full.rpartition(".")[0]
        if kind in ("record", "error"):
            found["fields"] = [
                {**each, "type": self.plain(each["type"], namespace)} for each in schema["fields"]
            ]
            if self.marks_records:
                found["fields"].append({"name": BRANCH, "type": "string", "default": full})
        for part in ("items", "values"):
            if part in found:
                found[part] = self.plain(schema[part], namespace)
        return found

    def _primitive_or_named(self, name: str, namespace: str) -> _Type:
        if name in _PRIMITIVES:
            return _Type(_PRIMITIVES[name], False, _CHECKS.get(name, _same), _PYTHON[name])
        if name == "null":
            raise self.refused("a type that is null alone has no column")
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        known = full if full in self.named else name
        if known not in self.named:
            raise self.refused(f"it names {full}, which it does not define before")
        found = self.named[known]
        if found is None:
            raise self.refused(f"the record {known} contains itself, and no column can")
        return found

    def _define(self, kind: str, full: str, schema: Mapping[str, Any]) -> _Type:
        if full in self.named:
            raise self.refused(f"it defines {full} twice")
        if kind == "enum":
            found = _Type("string", False, _same, "str")
        elif kind == "fixed":
            found = self._logical(schema, "fixed", _Type("binary", False, _bytes, "bytes"))
        else:
            self.named[full] = None
            found = self._record(full, schema)
        self.named[full] = found
        return found

    def _record(self, full: str, schema: Mapping[str, Any]) -> _Type:
        fields: dict[str, _Type] = {}
        for each in schema.get("fields", ()):
            match each:
                case {"name": str(name), "type": kind}:
                    fields[name] = self.read(kind, full.rpartition(".")[0])
                    has_default = each.get("default") is not None
                    if has_default and fields[name].python == "union":
                        raise self.refused(f"a union of several types has a default ({name})")
                case _:
                    raise self.refused(f"{json.dumps(each)[:80]} is no field")
        listed = [_field(name, kind.type, kind.nullable) for name, kind in fields.items()]
        defaults = {each["name"]: each.get("default") for each in schema.get("fields", ())}
        stored = stored_names(list(fields))
        converts = {
            name: (at, kind.convert, defaults[name])
            for at, (name, kind) in zip(stored, fields.items(), strict=True)
        }
        struct = {"type": "struct", "fields": listed}
        return _Type(struct, False, partial(_struct, converts), f"record {full}", fields)

    def _array(self, element: _Type) -> _Type:
        kind = {
            "type": "array",
            "elementType": element.type,
            "containsNull": element.nullable,
        }
        return _Type(kind, False, partial(_list, element.convert), "list")

    def _map(self, value: _Type) -> _Type:
        kind = {
            "type": "map",
            "keyType": "string",
            "valueType": value.type,
            "valueContainsNull": value.nullable,
        }
        return _Type(kind, False, partial(_pairs, value.convert), "map")

    def _union(self, members: Sequence[_Type], schema: Sequence[Any]) -> _Type:
        nullable = len(members) < len(schema)
        if not members:
            raise self.refused("a type that is null alone has no column")
        if len(members) == 1:
            only = members[0]
            convert = partial(_optional, only.convert) if nullable else only.convert
            return _Type(only.type, nullable or only.nullable, convert, only.python)
        kinds = {str(each.type) for each in members}
        for narrow, wide in (("integer", "long"), ("float", "double")):
            if len(members) == 2 and kinds == {narrow, wide}:
                convert = _long if wide == "long" else _same
                return _Type(wide, nullable, partial(_optional, convert), _PYTHON[wide])
        places = {each.python: place for place, each in enumerate(members)}
        records = [each for each in places if each.startswith("record ")]
        clash = (records and "map" in places) or {"str", "bytes"} <= set(places)
        if len(places) < len(members) or clash:
            raise self.refused(
                "a union has types whose values look the same (int and long with others, float and "
                "double, string and enum, text and bytes, bytes and fixed, record and map)"
            )
        self.marks_records = self.marks_records or bool(records)
        listed = [_field(f"member{n}", each.type, True) for n, each in enumerate(members)]
        convert = partial(_member, places, [each.convert for each in members])
        return _Type({"type": "struct", "fields": listed}, nullable, convert, "union")

    def _logical(self, schema: Mapping[str, Any], base: str, plain: _Type) -> _Type:
        match base, schema.get("logicalType"):
            case "int", "date":
                return _Type("date", False, _int, "int")
            case "int", "time-millis":
                return _Type("string", False, partial(_time_of_day, 1000), "int")
            case "long", "time-micros":
                return _Type("string", False, partial(_time_of_day, 1), "int")
            case "long", "timestamp-millis":
                return _Type("timestamp", False, partial(_micros, 1000), "int")
            case "long", "timestamp-micros":
                return _Type("timestamp", False, partial(_micros, 1), "int")
            case "long", "local-timestamp-millis":
                return _Type("timestamp_ntz", False, partial(_micros, 1000), "int")
            case "long", "local-timestamp-micros":
                return _Type("timestamp_ntz", False, partial(_micros, 1), "int")
            case (("bytes" | "fixed"), "decimal"):
                return self._decimal(schema)
            case _:
                return plain

    def _decimal(self, schema: Mapping[str, Any]) -> _Type:
        match schema.get("precision"), schema.get("scale", 0):
            case int(precision), int(scale) if 0 <= scale <= precision <= _MOST_DIGITS:
                convert = partial(_decimal_of, precision, scale)
                return _Type(f"decimal({precision},{scale})", False, convert, "bytes")
            case precision, scale:
                raise self.refused(f"there is no DECIMAL({precision}, {scale})")


def _is_fraction(schema: Any) -> bool:
    return schema in ("float", "double") or (
        isinstance(schema, dict) and schema.get("type") in ("float", "double")
    )


def _field(name: str, kind: Any, nullable: bool) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}


def _same(value: Any) -> Any:
    return value


def _int(value: int) -> int:
    if value not in _INT:
        raise ValueError(f"{value} is not an int")
    return value


def _long(value: int) -> int:
    if value not in _LONG:
        raise ValueError(f"{value} is not a long")
    return value


def _micros(factor: int, value: int) -> int:
    micros = value * factor
    if micros not in _LONG:
        raise ValueError(f"{value} is no time that a TIMESTAMP can have")
    return micros


def _time_of_day(factor: int, value: int) -> str:
    micros = value * factor
    seconds, fraction = divmod(micros, 10**6)
    if not 0 <= seconds < 86_400:
        raise ValueError(f"{value} is no time of day")
    minutes, second = divmod(seconds, 60)
    shown = f"{minutes // 60:02}:{minutes % 60:02}:{second:02}"
    return f"{shown}.{fraction:06}" if factor == 1 else f"{shown}.{fraction // 1000:03}"


def _bytes(value: bytes | str) -> bytes:
    """The bytes of a value, or of a default, which is a text with a character for each."""
    return value.encode("latin-1") if isinstance(value, str) else value


def _decimal_of(precision: int, scale: int, value: bytes | str) -> Decimal:
    unscaled = int.from_bytes(_bytes(value), "big", signed=True)
    if abs(unscaled) >= 10**precision:
        raise ValueError(f"a number has more digits than DECIMAL({precision}, {scale})")
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))


def _optional(convert: Convert, value: Any) -> Any:
    return None if value is None else convert(value)


def _list(convert: Convert, value: list[Any]) -> list[Any]:
    return [convert(each) for each in value]


def _pairs(convert: Convert, value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(key, convert(each)) for key, each in value.items()]


def _struct(
    converts: Mapping[str, tuple[str, Convert, Any]], value: Mapping[str, Any]
) -> dict[str, Any]:
    # A record that is itself a default may lack fields, which have their own.
    return {
        stored: convert(value.get(name, default))
        for name, (stored, convert, default) in converts.items()
    }


def _member(
    places: Mapping[str, int], converts: Sequence[Convert], value: Any
) -> dict[str, Any] | None:
    """The value of a union with several types, in the field of its type."""
    if value is None:
        return None
    kind = type(value).__name__
    if kind == "dict":
        kind = "map" if "map" in places else f"record {value[BRANCH]}"
    place = places[kind]
    return {f"member{n}": None for n in range(len(converts))} | {
        f"member{place}": converts[place](value)
    }


_PYTHON: Mapping[str, str] = {
    "boolean": "bool",
    "int": "int",
    "long": "int",
    "float": "float",
    "double": "float",
    "string": "str",
    "bytes": "bytes",
}
_CHECKS: Mapping[str, Convert] = {"int": _int, "long": _long, "bytes": _bytes}
