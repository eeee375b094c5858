"""Messages of Protobuf, decoded by Google's library. The seam is `slackwater.storage.kafka.shapes`.

Source: docs/decisions 0081; Confluent's wire format; Protobuf's guide of its encoding.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from slackwater.adapter.external.libraries import protobuf
from slackwater.adapter.external.wire_format import HEADER_BYTES, Writers, schema_of
from slackwater.storage.kafka.protobuf import unreadable
from slackwater.storage.kafka.protobuf_types import MessageField, MessageTypes, changed_field

_KNOWN = "google/protobuf/"
"""Files that everybody has need not be in a descriptor set: the library has them."""
_KINDS = (
    "double",
    "float",
    "int64",
    "uint64",
    "int32",
    "fixed64",
    "fixed32",
    "bool",
    "string",
    "group",
    "message",
    "bytes",
    "uint32",
    "enum",
    "sfixed32",
    "sfixed64",
    "sint32",
    "sint64",
)
"""Types by their numbers in descriptors, which begin at 1."""
_MOST_INDEXES = 100
_VARINT_BYTES = 10


class _Files:
    """The files of a descriptor set. The last one is that of the schema; others are what it needs.

    Raises ValueError for what is no descriptor set, or lacks files.
    """

    def __init__(self, files: bytes) -> None:
        self._library = protobuf()
        try:
            found = self._library.descriptor_pb2.FileDescriptorSet.FromString(files)
        except self._library.message.DecodeError:
            raise ValueError("it is no descriptor set") from None
        if not found.file:
            raise ValueError("it is an empty descriptor set")
        self._pool = self._library.descriptor_pool.DescriptorPool()
        self._given = {each.name: each for each in found.file}
        self._added: set[str] = set()
        for each in found.file:
            self._add(each.name, ())
        self.main = self._pool.FindFileByName(found.file[-1].name)

    def message(self, name: str) -> Any:
        """The descriptor of a message by its full name."""
        try:
            return self._pool.FindMessageTypeByName(name.lstrip("."))
        except KeyError:
            listed = ", ".join(sorted(self._messages())) or "none"
            raise ValueError(f"it has no message {name}; it has {listed}") from None

    def only_message(self) -> Any:
        """The message of the schema, if it declares one outside of others."""
        found = list(self.main.message_types_by_name.values())
        if len(found) != 1:
            listed = ", ".join(each.full_name for each in found) or "none"
            raise ValueError(f"MESSAGE does not say which message is meant; there is {listed}")
        return found[0]

    def at(self, indexes: tuple[int, ...]) -> Any:
        """The message at these places: one of the schema, one within it, and so on."""
        siblings = list(self.main.message_types_by_name.values())
        found = None
        for place in indexes:
            if not 0 <= place < len(siblings):
                raise ValueError(f"its schema has no message at {list(indexes)}")
            found = siblings[place]
            siblings = list(found.nested_types)
        return found

    def types(self, message: Any) -> MessageTypes:
        """The message as values, with all that it is made of."""
        types: dict[str, tuple[MessageField, ...]] = {}
        maps: set[str] = set()
        left = [message]
        while left:
            each = left.pop()
            if each.full_name in types:
                continue
            is_checked = self._is_checked(each.file)
            types[each.full_name] = tuple(_field(f, is_checked) for f in each.fields)
            if each.GetOptions().map_entry:
                maps.add(each.full_name)
            left.extend(f.message_type for f in each.fields if f.message_type is not None)
        return MessageTypes(message.full_name, types, frozenset(maps))

    def _is_checked(self, file: Any) -> bool:
        """Whether decoders refuse texts that are not UTF-8, as the library does of one syntax."""
        made = self._library.descriptor_pb2.FileDescriptorProto.FromString(file.serialized_pb)
        return bool(made.syntax == "proto3")

    def _messages(self) -> Iterator[str]:
        for name in self._given:
            if name.startswith(_KNOWN):
                continue
            for each in self._pool.FindFileByName(name).message_types_by_name.values():
                yield each.full_name

    def _add(self, name: str, within: tuple[str, ...]) -> None:
        if name in self._added:
            return
        if name in within:
            raise ValueError(f"the file {name} imports itself")
        file = self._given.get(name)
        if file is None:
            file = self._known(name)
        for imported in file.dependency:
            self._add(imported, (*within, name))
        try:
            self._pool.Add(file)
        except TypeError as error:
            raise ValueError(" ".join(str(error).split())) from None
        self._added.add(name)

    def _known(self, name: str) -> Any:
        if name.startswith(_KNOWN) and name.endswith(".proto"):
            module = name.removesuffix(".proto").replace("/", ".")
            try:
                found = importlib.import_module(f"{module}_pb2").DESCRIPTOR
            except ImportError:
                pass
            else:
                return self._library.descriptor_pb2.FileDescriptorProto.FromString(
                    found.serialized_pb
                )
        raise ValueError(f"it imports {name}, which it does not have")


@dataclass(frozen=True, slots=True)
class Described:
    """A message of a descriptor set by its full name, and as values."""

    files: bytes
    message: str
    types: MessageTypes


def described(files: bytes, message: str | None, what: str) -> Described:
    """The message of that name, or the only one of the schema, of keys or of values.

    Raises SLACKWATER_PROTOBUF_SCHEMA and SLACKWATER_CONNECTOR_MISSING.
    """
    try:
        found = _Files(files)
        descriptor = found.only_message() if message is None else found.message(message)
        return Described(files, descriptor.full_name, found.types(descriptor))
    except ValueError as error:
        raise unreadable(what, str(error)) from None


def _field(each: Any, is_checked: bool) -> MessageField:
    symbols: dict[int, str] = {}
    of = each.message_type
    if each.enum_type is not None:
        of = each.enum_type
        for symbol in of.values:
            symbols.setdefault(symbol.number, symbol.name)
    return MessageField(
        each.name,
        each.number,
        _KINDS[each.type - 1],
        "" if of is None else of.full_name,
        each.is_repeated,
        each.is_required,
        each.has_presence,
        each.has_default_value,
        symbols,
        is_checked,
    )


WriterFiles = Callable[[int], bytes | None]
"""The descriptor set of the schema with that id; None: the registry has none.

Raises ValueError for what is no schema of Protobuf, and SLACKWATER_REGISTRY_UNREACHABLE.
"""


@dataclass(slots=True)
class ProtobufMessages:
    """Messages as values of one reader's message. See `MessageReader`.

    With `writer` they begin with the id of their schema, whose message must mean the same; without
    it they are written as the reader's, behind a header if `has_header`.
    """

    reader: Described
    has_header: bool = True
    writer: WriterFiles | None = None
    _library: Any = field(init=False)
    _type: Any = field(init=False)
    _check: _Check = field(init=False)
    _has_required: bool = field(init=False)
    _writers: Writers[_Files] = field(init=False)
    _reasons: dict[tuple[int, tuple[int, ...]], str | None] = field(init=False)

    def __post_init__(self) -> None:
        self._library = protobuf()
        descriptor = _Files(self.reader.files).message(self.reader.message)
        self._type = self._library.message_factory.GetMessageClass(descriptor)
        types = self.reader.types
        self._check = _Check(self._library.unknown_fields.UnknownFieldSet, types)
        self._has_required = any(f.is_required for each in types.types.values() for f in each)
        self._writers = Writers(self._asked)
        self._reasons = {}

    def value(self, message: bytes) -> Any:
        begin = 0
        if self.has_header:
            schema = schema_of(message)
            indexes, begin = _indexes(message)
            if self.writer is not None:
                self._refuse_other(schema, indexes)
        try:
            found = self._type.FromString(message[begin:] if begin else message)
        except self._library.message.DecodeError as error:
            raise ValueError(f"it is no message {self.reader.message}: {_words(error)}") from None
        if self.writer is None:
            self._check.whole(found, self.reader.message)
        if self._has_required and not self._type.IsInitialized(found):
            missing = ", ".join(self._type.FindInitializationErrors(found))
            raise ValueError(f"it is no message {self.reader.message}: it lacks {missing}")
        return found

    def _refuse_other(self, schema: int, indexes: tuple[int, ...]) -> None:
        """Raises ValueError for messages that mean something else than the reader's."""
        place = schema, indexes
        if place not in self._reasons:
            self._reasons[place] = self._difference(self._writers.of(schema), indexes)
        reason = self._reasons[place]
        if reason is not None:
            raise ValueError(f"its schema is none of the source's: {reason}")

    def _difference(self, files: _Files, indexes: tuple[int, ...]) -> str | None:
        try:
            written = files.at(indexes)
        except ValueError as error:
            return str(error)
        if written.full_name != self.reader.message:
            return f"it is a message {written.full_name}, and not {self.reader.message}"
        return changed_field(files.types(written), self.reader.types)

    def _asked(self, schema: int) -> _Files:
        """The schema, of the registry. Raises ValueError."""
        files = None if self.writer is None else self.writer(schema)
        if files is None:
            raise ValueError(f"the registry has no schema {schema}")
        try:
            return _Files(files)
        except ValueError as error:
            raise ValueError(f"the schema {schema} cannot be used: {error}") from None


@dataclass(slots=True)
class _Check:
    """Finds fields that are written in another form than the reader's, which decoders pass over."""

    unknown: Any
    types: MessageTypes
    _forms: dict[str, dict[int, tuple[int, ...]]] = field(init=False)
    _inner: dict[str, list[MessageField]] = field(init=False)

    def __post_init__(self) -> None:
        self._forms = {
            name: {each.number: self._readable(each) for each in fields}
            for name, fields in self.types.types.items()
        }
        self._inner = {
            name: [each for each in fields if each.is_message]
            for name, fields in self.types.types.items()
        }

    def _readable(self, each: MessageField) -> tuple[int, ...]:
        """The forms in which a decoder may pass over values of the field that are right."""
        if each.of not in self.types.maps:
            return each.forms
        # It passes over entries whose values it cannot read, or that are no symbols of an enum.
        return each.forms if self.types.types[each.of][1].kind == "enum" else ()

    def whole(self, message: Any, name: str) -> None:
        """Raises ValueError for such a field in the message, or in one within it."""
        for found in self.unknown(message):
            forms = self._forms[name].get(found.field_number)
            if forms is not None and found.wire_type not in forms:
                raise ValueError(
                    f"the field {found.field_number} of {name} is written as another type"
                )
        for each in self._inner[name]:
            for inner in self._values(message, each):
                self.whole(inner, each.of)

    def _values(self, message: Any, each: MessageField) -> Any:
        if each.of in self.types.maps:
            found = getattr(message, each.name)
            entry = self.types.types[each.of][1]
            # The entry of a map is no message to the library, so its value is looked at alone.
            if not entry.is_message:
                return ()
            for inner in found.values():
                self.whole(inner, entry.of)
            return ()
        if each.is_repeated:
            return getattr(message, each.name)
        # A field may be called as a method is.
        is_there = type(message).HasField(message, each.name)
        return (getattr(message, each.name),) if is_there else ()


def _indexes(message: bytes) -> tuple[tuple[int, ...], int]:
    """The places by which a message says which of its schema it is, and where its fields begin.

    Raises ValueError.
    """
    count, at = _zigzag(message, HEADER_BYTES)
    if count == 0:
        return (0,), at
    if not 0 < count <= _MOST_INDEXES:
        raise ValueError("it does not say which message of its schema it is")
    found = []
    for _ in range(count):
        place, at = _zigzag(message, at)
        found.append(place)
    return tuple(found), at


def _zigzag(message: bytes, at: int) -> tuple[int, int]:
    """The number that is written there, and where the next one begins. Raises ValueError."""
    found = 0
    for shift in range(_VARINT_BYTES):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        found |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at
    raise ValueError("it does not say which message of its schema it is")


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
