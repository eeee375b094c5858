"""Formats with a schema, as sources see them: readers of messages, and columns of their values.

Source: docs/decisions 0071, 0081.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from slackwater.repr.relation import Column
from slackwater.storage.kafka.protobuf_types import MessageTypes

Convert = Callable[[Any], Any]
"""A value as Arrow takes it. Raises ValueError for what the column cannot have."""

S = TypeVar("S", bound="Shape")


class MessageReader(Protocol):
    """Reads messages in one reader schema, whatever schemas they are written in."""

    def value(self, message: bytes) -> Any:
        """The value. Raises ValueError, which says why there is none, and when a registry has to
        be asked that does not answer, SLACKWATER_REGISTRY_UNREACHABLE."""
        ...


class Shape(Protocol):
    """The columns of a schema, and how values become them."""

    @property
    def columns(self) -> tuple[Column, ...]: ...

    def cells(self, value: Any) -> list[Any]:
        """The cells of a value. Raises ValueError."""
        ...

    def without(self: S, names: Collection[str]) -> S:
        """The shape without the columns of these names, whatever their case."""
        ...


@dataclass(frozen=True, slots=True)
class ReaderSchemas:
    """The schemas in which keys and values are read: the text of Avro, or a message of Protobuf.

    None: they have no schema.
    """

    key: str | MessageTypes | None = None
    value: str | MessageTypes | None = None


@dataclass(frozen=True, slots=True)
class MessageReaders:
    """The readers of keys and values; None: they have no schema."""

    key: MessageReader | None = None
    value: MessageReader | None = None


def kept_places(columns: tuple[Column, ...], names: Collection[str]) -> list[int]:
    """The places of the columns that have none of the names, whatever their case."""
    gone = {name.casefold() for name in names}
    return [place for place, each in enumerate(columns) if each.name.casefold() not in gone]
