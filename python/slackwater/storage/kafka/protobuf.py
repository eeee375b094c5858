"""Values of Protobuf as columns, with the types of Spark's own ``from_protobuf``.

Of its rules those count that lose nothing: numbers without a sign have room, what a message leaves
out because it is the default is the default, and wrappers are what they wrap.

Source: Spark's SchemaConverters of Protobuf; Protobuf's guide of field presence; docs/decisions
0081.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from operator import attrgetter
from typing import Any

from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.repr.relation import Column, stored_names
from slackwater.storage.kafka.protobuf_types import MessageField, MessageTypes
from slackwater.storage.kafka.shapes import Convert, kept_places

Read = Callable[[Any], Any]
"""A message to the cell of one of its fields. Raises ValueError."""

_PACKAGE = "google.protobuf."
TIMESTAMP = f"{_PACKAGE}Timestamp"
_WRAPPERS = frozenset(
    f"{_PACKAGE}{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_UNSIGNED = "decimal(20,0)"
_SCALARS: Mapping[str, str] = {
    "double": "double",
    "float": "float",
    "int64": "long",
    "uint64": _UNSIGNED,
    "int32": "integer",
    "fixed64": _UNSIGNED,
    "fixed32": "long",
    "bool": "boolean",
    "string": "string",
    "bytes": "binary",
    "uint32": "long",
    "enum": "string",
    "sfixed32": "integer",
    "sfixed64": "long",
    "sint32": "integer",
    "sint64": "long",
}
_LONG = range(-(2**63), 2**63)
_MICROS, _NANOS = 10**6, 1000


@dataclass(frozen=True, slots=True)
class ProtobufShape:
    """The columns of a message, one for each of its fields, or of one within it.

    `types` are those of what is read of messages. See `Shape`.
    """

    columns: tuple[Column, ...]
    types: MessageTypes
    _reads: tuple[Read, ...]

    def cells(self, value: Any) -> list[Any]:
        return [read(value) for read in self._reads]

    def without(self, names: Collection[str]) -> ProtobufShape:
        kept = kept_places(self.columns, names)
        return replace(
            self,
            columns=tuple(self.columns[n] for n in kept),
            _reads=tuple(self._reads[n] for n in kept),
        )


def protobuf_shape(types: MessageTypes, *, is_key: bool, name: str | None = None) -> ProtobufShape:
    """The columns of keys or of values that are such messages.

    With a `name` there is one column of that name: the message as a STRUCT in it, but one of a
    single field is that field. Raises SLACKWATER_PROTOBUF_SCHEMA.
    """
    what = "keys" if is_key else "values"
    made = _Shapes(what, types)
    fields = made.fields(types.message)
    if not fields:
        raise unreadable(what, f"the message {types.message} has no field")
    if is_key and made.has_map:
        raise unreadable(what, "maps have no equality, so they are in no key")
    if name is not None and len(fields) > 1:
        column = Column(name, json.dumps(_struct_type(fields), sort_keys=True), False)
        return ProtobufShape((column,), types, (partial(_struct, _reads(fields)),))
    columns = tuple(
        Column(name or each.name, json.dumps(each.type, sort_keys=True), each.nullable)
        for each in fields
    )
    return ProtobufShape(columns, types, tuple(each.read for each in fields))


def protobuf_row_shape(types: MessageTypes) -> ProtobufShape:
    """The columns of the rows in such messages of Debezium, of which nothing but `op` and `after`
    is read. Raises SLACKWATER_PROTOBUF_SCHEMA."""
    read = [each for each in types.types[types.message] if each.name in ("op", "after")]
    found = {each.name: each for each in read if not each.is_repeated}
    op, after = found.get("op"), found.get("after")
    if after is None or not after.is_message:
        raise unreadable(
            "values", f"{types.message} has no message as its field after, as those of Debezium"
        )
    if op is not None and op.kind != "string" and op.of != f"{_PACKAGE}StringValue":
        raise unreadable("values", f"the field op of {types.message} is no text, as of Debezium")
    shape = protobuf_shape(replace(types, message=after.of), is_key=False)
    narrow = {**types.types, types.message: tuple(read)}
    return replace(shape, types=replace(types, types=narrow))


def unreadable(what: str, reason: str) -> SlackwaterError:
    """The error of a schema of keys or values from which no columns can be made."""
    return user_error("SLACKWATER_PROTOBUF_SCHEMA", what=what, reason=reason)


@dataclass(frozen=True, slots=True)
class _Field:
    """A field as Spark has it. `read` makes its cell of a message."""

    name: str
    type: Any
    nullable: bool
    read: Read


@dataclass(slots=True)
class _Shapes:
    """The fields of the messages of one schema; `path` are those within which one is."""

    what: str
    types: MessageTypes
    has_map: bool = False
    path: list[str] = field(default_factory=list)

    def fields(self, message: str) -> list[_Field]:
        """The fields of a message; those whose messages have none are left out."""
        if message in self.path:
            raise unreadable(self.what, f"the message {message} contains itself, and no column can")
        self.path.append(message)
        found = [self._field(each) for each in self.types.types[message]]
        self.path.pop()
        return [each for each in found if each is not None]

    def _field(self, each: MessageField) -> _Field | None:
        if each.of in self.types.maps:
            return self._map(each)
        value = self._value(each)
        if value is None:
            return None
        kind, convert = value
        if each.is_repeated:
            array = {"type": "array", "elementType": kind, "containsNull": False}
            return _Field(each.name, array, True, partial(_list, attrgetter(each.name), convert))
        return _Field(each.name, kind, not each.is_required, _one(each, convert))

    def _map(self, each: MessageField) -> _Field | None:
        self.has_map = True
        key, value = self.types.types[each.of]
        keys, values = self._value(key), self._value(value)
        if keys is None or values is None:
            return None
        kind = {
            "type": "map",
            "keyType": keys[0],
            "valueType": values[0],
            "valueContainsNull": False,
        }
        get = attrgetter(each.name)
        return _Field(each.name, kind, True, partial(_pairs, get, keys[1], values[1]))

    def _value(self, each: MessageField) -> tuple[Any, Convert | None] | None:
        """The type of one value, and what makes its cell; None: it is that already."""
        if not each.is_message:
            return _SCALARS[each.kind], _converted(each)
        if each.of == TIMESTAMP:
            return "timestamp", _micros
        fields = self.fields(each.of)
        if each.of in _WRAPPERS:
            return fields[0].type, fields[0].read
        if not fields:
            return None
        return _struct_type(fields), partial(_struct, _reads(fields))


def _converted(each: MessageField) -> Convert | None:
    match each.kind:
        case "uint64" | "fixed64":
            return Decimal
        case "enum":
            return partial(_symbol, each.symbols, each.of.rpartition(".")[2])
        case "string" if not each.is_checked:
            return _text
        case _:
            return None


def _one(each: MessageField, convert: Convert | None) -> Read:
    """Reads a field that is not repeated."""
    get = attrgetter(each.name)
    may_be_missing = each.has_presence and not (each.is_required or each.has_default)
    if may_be_missing:
        return partial(_present, each.name, get, convert)
    return get if convert is None else partial(_converting, get, convert)


def _converting(get: Read, convert: Convert, message: Any) -> Any:
    return convert(get(message))


def _present(name: str, get: Read, convert: Convert | None, message: Any) -> Any:
    # A field may be called as a method of messages is, so that of the type is meant.
    if not type(message).HasField(message, name):
        return None
    return get(message) if convert is None else convert(get(message))


def _list(get: Read, convert: Convert | None, message: Any) -> list[Any]:
    found = get(message)
    return list(found) if convert is None else [convert(each) for each in found]


def _pairs(get: Read, key: Convert | None, value: Convert | None, message: Any) -> list[Any]:
    return [
        (k if key is None else key(k), v if value is None else value(v))
        for k, v in get(message).items()
    ]


def _reads(fields: Sequence[_Field]) -> tuple[tuple[str, Read], ...]:
    names = stored_names([each.name for each in fields])
    return tuple((name, each.read) for name, each in zip(names, fields, strict=True))


def _struct(reads: Sequence[tuple[str, Read]], message: Any) -> dict[str, Any]:
    return {name: read(message) for name, read in reads}


def _struct_type(fields: Sequence[_Field]) -> dict[str, Any]:
    listed = [
        {"name": each.name, "type": each.type, "nullable": each.nullable, "metadata": {}}
        for each in fields
    ]
    return {"type": "struct", "fields": listed}


def _symbol(symbols: Mapping[int, str], enum: str, number: int) -> str:
    """The symbol of a number; one that the enum does not have is named as Java names it."""
    return symbols.get(number) or f"UNKNOWN_ENUM_VALUE_{enum}_{number}"


def _text(found: str | bytes) -> str:
    # A decoder gives bytes for what is no text, where it does not refuse it.
    if isinstance(found, bytes):
        raise ValueError("it has a string that is not UTF-8 text")
    return found


def _micros(message: Any) -> int:
    found = int(message.seconds) * _MICROS + int(message.nanos) // _NANOS
    if found not in _LONG:
        raise ValueError(f"{message.seconds} seconds are no time that a TIMESTAMP can have")
    return found
