"""Envelopes: from messages of a source to updates of a collection.

NONE: each message is a row. UPSERT: a message has a key, and is the key's row until the next
message with that key. Both are functions of their input alone. The input of UPSERT has times (see
`reclock`) and positions; of the messages for a key at one time the one with the largest position
counts. A message that is not behind the last one for its key is left out, so that what was seen
before may be seen again. Deleted keys keep their position for that.

A key's place may also be taken by an error, which the next message for the key replaces.

Source: spec controllers 5.4, 5.5; invariant I54.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from slackwater.repr.dataflow_error import DataflowError
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import Timestamp
from slackwater.storage.source_time import Position

Row: TypeAlias = tuple[Any, ...]
Datum: TypeAlias = Row | DataflowError

NULL_KEY = hashlib.sha256(b"n").digest()
"""The key of messages without one."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a source for one key. `value` None deletes what the key has."""

    key: bytes
    time: Timestamp
    position: Position
    value: Datum | None


@dataclass(frozen=True, slots=True)
class Slot:
    """The present value of a key. `value` None: it was deleted. `position` None: before all."""

    value: Datum | None
    position: Position | None


@dataclass(frozen=True, slots=True)
class Update:
    """One update of the collection, or of its errors."""

    value: Datum
    time: Timestamp
    diff: int


@dataclass(frozen=True, slots=True)
class Upserted:
    """The changes that messages make: updates in the order of time, and slots of their keys."""

    updates: tuple[Update, ...]
    slots: Mapping[bytes, Slot]


def row_key(values: Sequence[Any]) -> bytes:
    """The key of these key columns. Values are equal as SQL groups them: NaN, 0.0 and -0.0."""
    told = [value + 0.0 if isinstance(value, float) else value for value in values]
    return hashlib.sha256(b"k" + repr(told).encode()).digest()


def unread_key(raw: bytes) -> bytes:
    """The key of messages whose key cannot be read: it is their bytes."""
    return hashlib.sha256(b"r" + raw).digest()


def appended(messages: Iterable[Message]) -> tuple[Update, ...]:
    """ENVELOPE NONE: the updates of `messages`, in their order. Keys mean nothing."""
    return tuple(
        Update(message.value, message.time, 1) for message in messages if message.value is not None
    )


def upserted(slots: Mapping[bytes, Slot], messages: Iterable[Message]) -> Upserted:
    """ENVELOPE UPSERT: the updates of `messages`, in any order, after those that made `slots`.

    `slots` may leave out keys that never had a message.
    """
    last: dict[tuple[Timestamp, bytes], Message] = {}
    for message in messages:
        known = last.get((message.time, message.key))
        if known is None or known.position < message.position:
            last[message.time, message.key] = message
    updates: list[Update] = []
    touched: dict[bytes, Slot] = {}
    for message in sorted(last.values(), key=lambda message: message.time):
        slot = touched.get(message.key, slots.get(message.key))
        if slot is not None and slot.position is not None and message.position <= slot.position:
            continue
        before = None if slot is None else slot.value
        touched[message.key] = Slot(message.value, message.position)
        if before != message.value:
            updates += [
                Update(value, message.time, diff)
                for value, diff in ((before, -1), (message.value, 1))
                if value is not None
            ]
    return Upserted(tuple(updates), touched)


def restored(contents: Iterable[tuple[bytes, Datum, int]]) -> dict[bytes, Slot]:
    """The slots that a collection with these contents (key, value, diff) has left behind.

    The contents need not be consolidated. Their positions are not known: what is read again has to
    be left out by time. Raises FatalError unless each key has one value, once.
    """
    counts: dict[tuple[bytes, Datum], int] = {}
    for key, value, diff in contents:
        counts[key, value] = counts.get((key, value), 0) + diff
    slots: dict[bytes, Slot] = {}
    for (key, value), count in counts.items():
        if count == 0:
            continue
        if count != 1 or key in slots:
            raise FatalError("a key of an upsert collection has more than one value")
        slots[key] = Slot(value, None)
    return slots
