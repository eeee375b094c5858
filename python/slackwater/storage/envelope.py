"""Envelopes: from messages of a source to updates of a collection.

NONE: each message is a row. UPSERT: a message has a key, and is the key's row until the next
message with that key. Both are functions of their input alone. The input of UPSERT has times (see
`reclock`) and positions. Which of the messages for a key at one time counts: within a partition the
one with the largest offset, of several partitions' the one that was sent last. Of messages at
different times the later counts, so that a key that has moved to another partition keeps the
newest. A message is never given again: an ingestion goes on where its remap ends.

A key's place may also be taken by an error, which the next message for the key replaces.

Source: spec controllers 5.4, 5.5; invariant I54; docs/decisions 0069.
"""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from slackwater.repr.dataflow_error import DataflowError
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import Timestamp
from slackwater.storage.source_time import Position

Row: TypeAlias = tuple[Any, ...] | bytes
"""A row, as its source keeps it: equal rows are equal values."""

Datum: TypeAlias = Row | DataflowError

NULL_KEY = hashlib.sha256(b"n").digest()
"""The key of messages without one."""

MARSHAL_VERSION = 2
"""The last version of `marshal` that writes equal values alike: later ones write references."""
_NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a source for one key. `value` None deletes what the key has.

    `sent_ms` is when it was sent, by the clock of the upstream.
    """

    key: bytes
    time: Timestamp
    position: Position
    value: Datum | None
    sent_ms: int = 0


@dataclass(frozen=True, slots=True)
class Update:
    """One update of the collection, or of its errors."""

    value: Datum
    time: Timestamp
    diff: int


@dataclass(frozen=True, slots=True)
class Upserted:
    """The changes that messages make: updates in the order of time, and what their keys have then.

    A key that was deleted, or never had anything, has None.
    """

    updates: tuple[Update, ...]
    values: Mapping[bytes, Datum | None]


def row_key(values: Sequence[Any]) -> bytes:
    """The key of these key columns. Values are equal as SQL groups them: NaN, 0.0 and -0.0.

    Keys are for this process alone.
    """
    return exact_key(tuple(map(_as_grouped, values)))


def exact_key(values: tuple[Any, ...]) -> bytes:
    """The same of values among which, and in which, is no float.

    It is the values themselves where these are shorter than a digest.
    """
    packed = marshal.dumps(values, MARSHAL_VERSION)
    return packed if len(packed) < len(NULL_KEY) else hashlib.sha256(b"k" + packed).digest()


def _as_grouped(value: Any) -> Any:
    if isinstance(value, float):
        return value + 0.0 if value == value else _NAN
    if isinstance(value, dict):
        return {name: _as_grouped(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_as_grouped, value))
    return value


def unread_key(raw: bytes) -> bytes:
    """The key of messages whose key cannot be read: it is their bytes."""
    return hashlib.sha256(b"r" + raw).digest()


def appended(messages: Iterable[Message]) -> tuple[Update, ...]:
    """ENVELOPE NONE: the updates of `messages`, in their order. Keys mean nothing."""
    return tuple(
        Update(message.value, message.time, 1) for message in messages if message.value is not None
    )


def upserted(before: Mapping[bytes, Datum], messages: Iterable[Message]) -> Upserted:
    """ENVELOPE UPSERT: the updates of `messages`, in any order, to keys that had `before`.

    `before` may leave out keys that have nothing.
    """
    values: dict[bytes, Datum | None] = {}
    updates: list[Update] = []
    for message in sorted(_counting(messages), key=lambda message: message.time):
        old = values[message.key] if message.key in values else before.get(message.key)
        values[message.key] = message.value
        if old != message.value:
            updates += [
                Update(value, message.time, diff)
                for value, diff in ((old, -1), (message.value, 1))
                if value is not None
            ]
    return Upserted(tuple(updates), values)


def _counting(messages: Iterable[Message]) -> Iterable[Message]:
    """Of the messages for each key at each time the one that counts."""
    last: dict[tuple[Timestamp, bytes, int], Message] = {}
    for message in messages:
        place = (message.time, message.key, message.position.partition)
        known = last.get(place)
        if known is None or known.position.offset < message.position.offset:
            last[place] = message
    newest: dict[tuple[Timestamp, bytes], Message] = {}
    for (time, key, _), message in last.items():
        other = newest.get((time, key))
        if other is None or _sent(other) < _sent(message):
            newest[time, key] = message
    return newest.values()


def _sent(message: Message) -> tuple[int, int]:
    """The order of messages for one key in several partitions."""
    return message.sent_ms, message.position.partition


def restored(contents: Iterable[tuple[bytes, Datum, int]]) -> dict[bytes, Datum]:
    """The values of the keys of a collection with these contents (key, value, diff).

    The contents need not be consolidated. Raises FatalError unless each key has one value, once.
    """
    counts: dict[tuple[bytes, Datum], int] = {}
    for key, value, diff in contents:
        counts[key, value] = counts.get((key, value), 0) + diff
    values: dict[bytes, Datum] = {}
    for (key, value), count in counts.items():
        if count == 0:
            continue
        if count != 1 or key in values:
            raise FatalError("a key of an upsert collection has more than one value")
        values[key] = value
    return values
