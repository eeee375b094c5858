"""Messages of Protobuf as their descriptors declare them, and what a change of them means.

Source: Protobuf's guide of its language, and of its encoding; docs/decisions 0081.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

VARINT, FIXED64, LENGTH, GROUP, FIXED32 = 0, 1, 2, 3, 5
"""Forms in which values are written, by their numbers."""

_FORMS: Mapping[str, int] = {
    "double": FIXED64,
    "float": FIXED32,
    "int64": VARINT,
    "uint64": VARINT,
    "int32": VARINT,
    "fixed64": FIXED64,
    "fixed32": FIXED32,
    "bool": VARINT,
    "string": LENGTH,
    "group": GROUP,
    "message": LENGTH,
    "bytes": LENGTH,
    "uint32": VARINT,
    "enum": VARINT,
    "sfixed32": FIXED32,
    "sfixed64": FIXED64,
    "sint32": VARINT,
    "sint64": VARINT,
}
_WIDER = {
    ("int32", "int64"),
    ("uint32", "uint64"),
    ("uint32", "int64"),
    ("sint32", "sint64"),
    ("enum", "int32"),
    ("enum", "int64"),
    ("string", "bytes"),
}
"""Every value that is written as the first means the same when it is read as the second."""


@dataclass(frozen=True, slots=True)
class MessageField:
    """A field. `kind` is Protobuf's word for its type, `of` the full name of a message or an enum.

    `has_presence`: a message says whether it has the field. `has_default`: its declaration has a
    value for messages that have not. `symbols` are those of an enum by their numbers. Texts may be
    anything, unless decoders check that they are UTF-8 (`is_checked`).
    """

    name: str
    number: int
    kind: str
    of: str = ""
    is_repeated: bool = False
    is_required: bool = False
    has_presence: bool = False
    has_default: bool = False
    symbols: Mapping[int, str] = field(default_factory=dict)
    is_checked: bool = False

    @property
    def form(self) -> int:
        """The form of one value."""
        return _FORMS[self.kind]

    @property
    def forms(self) -> tuple[int, ...]:
        """The forms in which it may be written: numbers that are repeated may be packed."""
        packable = self.is_repeated and self.form not in (LENGTH, GROUP)
        return (self.form, LENGTH) if packable else (self.form,)

    @property
    def is_message(self) -> bool:
        return self.kind in ("message", "group")


@dataclass(frozen=True, slots=True)
class MessageTypes:
    """A message by its full name, and the fields of all messages that it is made of.

    `maps` are the names of messages that are entries of maps.
    """

    message: str
    types: Mapping[str, tuple[MessageField, ...]]
    maps: frozenset[str] = frozenset()


def changed_field(writer: MessageTypes, reader: MessageTypes) -> str | None:
    """The first field whose values mean something else to the reader; None: there is none.

    Fields are the same by their numbers, whatever their names.
    """
    return next(_changes(writer, reader, (writer.message, reader.message), "", set()), None)


def _changes(
    writer: MessageTypes,
    reader: MessageTypes,
    pair: tuple[str, str],
    path: str,
    seen: set[tuple[str, str]],
) -> Iterator[str]:
    if pair in seen:
        return
    seen.add(pair)
    written = {each.number: each for each in writer.types[pair[0]]}
    for read in reader.types[pair[1]]:
        each = written.get(read.number)
        if each is None:
            continue
        place = f"{path}.{read.name}".lstrip(".")
        was, now = _described(each, writer), _described(read, reader)
        if each.is_repeated != read.is_repeated or not _is_same(each, read):
            yield f"{place} is {was}, and not {now}"
        elif each.is_message:
            if (each.of in writer.maps) != (read.of in reader.maps):
                yield f"{place} is {was}, and not {now}"
            yield from _changes(writer, reader, (each.of, read.of), place, seen)


def _is_same(written: MessageField, read: MessageField) -> bool:
    if written.kind == read.kind == "enum":
        return all(
            read.symbols.get(number, name) == name for number, name in written.symbols.items()
        )
    if written.kind == read.kind:
        return True
    # A packed list of strings is none; numbers that are wider are packed in the same way.
    return (written.kind, read.kind) in _WIDER


def _described(each: MessageField, types: MessageTypes) -> str:
    if each.of in types.maps:
        return "a map"
    kind = f"{each.kind} {each.of}" if each.of else each.kind
    return f"repeated {kind}" if each.is_repeated else kind
