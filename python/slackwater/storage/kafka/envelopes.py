"""The changes that the messages of a step make: appended, or upserted by their keys.

A step takes messages in several reads, then tells its changes, and is told when they are durable.

Source: spec controllers 5.4, 5.5; docs/decisions 0069.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from slackwater.planner.parser.kafka_source import Decoding
from slackwater.repr.dataflow_error import (
    DataflowError,
    DecodeError,
    KeyDecodeError,
    NullKeyError,
    ValueDecodeError,
)
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import RelationDesc, with_diff
from slackwater.storage.envelope import NULL_KEY, Datum, Message, unread_key, upserted
from slackwater.storage.kafka.decoding import Decoded, Decoder
from slackwater.storage.kafka.topic import Messages
from slackwater.storage.keyed_rows import RowsInMemory
from slackwater.storage.pieces import Pieces, Stage, StagedRows
from slackwater.storage.row_bytes import RowBytes
from slackwater.storage.source_time import Position
from slackwater.storage.text_values import shortened

DEAD_LETTERS = RelationDesc.from_json(
    '{"type": "struct", "fields": ['
    '{"name": "partition", "type": "integer", "nullable": false, "metadata": {}},'
    '{"name": "offset", "type": "long", "nullable": false, "metadata": {}},'
    '{"name": "timestamp", "type": "timestamp", "nullable": true, "metadata": {}},'
    '{"name": "key", "type": "binary", "nullable": true, "metadata": {}},'
    '{"name": "value", "type": "binary", "nullable": true, "metadata": {}},'
    '{"name": "reason", "type": "string", "nullable": false, "metadata": {}}]}'
)
"""The messages that could not be read, with the bytes that they consist of."""

_NOW = Timestamp(0)
"""A step is committed at one time, which its commit chooses."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a step: rows and dead letters with ``__diff``, and errors with their diffs.

    `left_out` counts messages that are neither.
    """

    rows: pa.Table | StagedRows | None = None
    errors: Sequence[tuple[DataflowError, int]] = ()
    letters: pa.Table | None = None
    left_out: int = 0

    @property
    def count(self) -> int:
        """The number of updates of the source itself."""
        return (0 if self.rows is None else self.rows.num_rows) + len(self.errors)


class Envelope(Protocol):
    """An envelope at work on the messages of one step after the other.

    The messages of a partition come in order.
    """

    def take(self, messages: Messages) -> None:
        """These messages belong to the step. Raises what writing files raises."""
        ...

    def begin_anew(self) -> None:
        """The step begins again, and takes everything that there is: what it does not take goes.

        Only for envelopes with keys.
        """
        ...

    def anew(self) -> Envelope:
        """One that takes everything that there is beside this one, and then takes its place.

        Its changes are the difference to what this one has made durable by then. Only for envelopes
        with keys.
        """
        ...

    def abandon(self) -> None:
        """The step begins again, and takes the messages since the last step again."""
        ...

    def changes(self) -> Changes:
        """The changes of the messages since the last step.

        Raises what writing files raises, and SLACKWATER_UPSERT_MEMORY.
        """
        ...

    def committed(self) -> None:
        """The changes are durable; the next step begins."""
        ...

    def error_after(self, changes: Changes) -> str | None:
        """An error that is in the contents once these changes are durable; None: there is none."""
        ...


@dataclass(slots=True)
class _Unread:
    """The messages of a step that could not be read, by what is to be done with them."""

    decoding: Decoding
    topic: str
    letters: list[tuple[object, ...]] = field(default_factory=list)
    left_out: int = 0

    def add(self, messages: Messages, place: int, reason: str) -> bool:
        """Whether the message is an error of the contents, which the caller has to say."""
        if self.decoding.on_error == "PROPAGATE":
            return True
        if self.decoding.on_error == "SKIP":
            self.left_out += 1
            return False
        sent = messages.sent_ms[place]
        self.letters.append(
            (
                messages.partitions[place],
                messages.offsets[place],
                None if sent is None else sent * 1000,
                messages.keys[place],
                messages.values[place],
                reason,
            )
        )
        return False

    def at(self, messages: Messages, place: int) -> str:
        """The place of the message, for errors about it."""
        partition, offset = messages.partitions[place], messages.offsets[place]
        return f"topic {self.topic}, partition {partition}, offset {offset}"

    def letter_rows(self) -> pa.Table | None:
        return DEAD_LETTERS.with_diffs((row, 1) for row in self.letters) if self.letters else None


@dataclass(frozen=True, slots=True)
class Reading:
    """The parts of both envelopes: how messages are decoded, and where many rows go."""

    topic: str
    decoding: Decoding
    decoder: Decoder
    stage: Stage


class Appended:
    """ENVELOPE NONE: each message is a row."""

    def __init__(self, reading: Reading, held: DataflowError | None = None) -> None:
        """`held` is an error that is in the contents already."""
        self._reading = reading
        self._held = held
        self._begin()

    def take(self, messages: Messages) -> None:
        decoded = self._reading.decoder.rows(messages)
        self._pieces.add(with_diff(decoded.rows))
        for place, reason in sorted(_reasons(decoded).items()):
            if self._unread.add(messages, place, reason):
                error = DecodeError(self._unread.at(messages, place), reason)
                self._errors.append((error, 1))

    def begin_anew(self) -> None:
        raise _only_appended()

    def anew(self) -> Envelope:
        raise _only_appended()

    def abandon(self) -> None:
        self._begin()

    def changes(self) -> Changes:
        unread = self._unread
        return Changes(self._pieces.rows(), self._errors, unread.letter_rows(), unread.left_out)

    def committed(self) -> None:
        if self._held is None and self._errors:
            self._held = self._errors[0][0]
        self._begin()

    def _begin(self) -> None:
        self._pieces = Pieces(self._reading.stage)
        self._errors: list[tuple[DataflowError, int]] = []
        self._unread = _Unread(self._reading.decoding, self._reading.topic)

    def error_after(self, changes: Changes) -> str | None:
        held = self._held or next((error for error, _ in changes.errors), None)
        return None if held is None else held.text


def _only_appended() -> FatalError:
    return FatalError("messages that are only appended cannot be taken again")


def _reasons(decoded: Decoded) -> Mapping[int, str]:
    keys = {place: f"a key cannot be read: {why}" for place, why in decoded.bad_keys.items()}
    return {**decoded.bad_values, **keys}


class ByKey:
    """UPSERT and DEBEZIUM: a key has the row of its last message that can be read, or its error."""

    def __init__(self, reading: Reading, desc: RelationDesc, rows: RowsInMemory) -> None:
        """`rows` are those of the collection after the last step, whose columns are `desc`."""
        self._reading = reading
        self._desc = desc
        self._bytes = RowBytes(desc)
        self._rows = rows
        self._values: Mapping[bytes, Datum | None] = {}
        self._begin()

    def take(self, messages: Messages) -> None:
        decoding = self._reading.decoding
        if decoding.on_error == "PROPAGATE" and decoding.envelope == "UPSERT":
            # Whatever the others say, only the last one for a key counts.
            messages = _last_of_keys(messages)
        decoded = self._reading.decoder.rows(messages)
        if decoded.bad_keys or decoded.bad_values:
            self._take_unread(messages, decoded)
        rows = self._bytes.encode(decoded.rows)
        for place, row in zip(decoded.places, rows, strict=True):
            if messages.keys[place] is None:
                self._without_key(messages, place)
            else:
                self._put(messages, place, decoded.keys[place], row)
        for place in decoded.deletes:
            if messages.keys[place] is None:
                self._nothing_without_key(messages, place)
            else:
                self._put(messages, place, decoded.keys[place], None)
        for place in decoded.truncates:
            self._truncate(messages, place)
        if self._rows.errors:
            self._take_back_unread(messages, decoded)

    def abandon(self) -> None:
        self._begin()

    def changes(self) -> Changes:
        keys = {key for _, key in self._last}
        last = list(self._truncated(keys))
        if self._is_anew:
            # A key that has no message any more goes, as by a message without a value.
            gone = (key for key in self._rows if key not in keys)
            last += [Message(key, _NOW, Position(0, 0), None) for key in gone]
            keys.update(message.key for message in last)
        result = upserted(self._rows.lookup(keys), last)
        self._rows.check(result.values)
        rows: list[tuple[bytes, int]] = []
        errors: list[tuple[DataflowError, int]] = []
        for update in result.updates:
            value = update.value
            if isinstance(value, bytes):
                rows.append((value, update.diff))
            elif not isinstance(value, tuple):
                errors.append((value, update.diff))
        pieces = Pieces(self._reading.stage)
        for table in self._bytes.updates(rows):
            pieces.add(table)
        unread = self._unread
        self._values = result.values
        return Changes(pieces.rows(), errors, unread.letter_rows(), unread.left_out)

    def committed(self) -> None:
        self._rows.replace(self._values)
        self._begin()

    def begin_anew(self) -> None:
        self._begin()
        self._is_anew = True

    def anew(self) -> ByKey:
        other = ByKey(self._reading, self._desc, self._rows)
        other.begin_anew()
        return other

    def _begin(self) -> None:
        self._is_anew = False
        self._last: dict[tuple[int, bytes], Message] = {}
        self._truncations: dict[int, Message] = {}
        self._unread = _Unread(self._reading.decoding, self._reading.topic)
        self._values = {}

    def error_after(self, changes: Changes) -> str | None:
        gone = {error for error, diff in changes.errors if diff < 0}
        come = [error for error, diff in changes.errors if diff > 0]
        left = (error for error in self._rows.errors.values() if error not in gone)
        return next((error.text for error in (*left, *come)), None)

    def _put(self, messages: Messages, place: int, key: bytes, value: Datum | None) -> None:
        partition, offset = messages.partitions[place], messages.offsets[place]
        known = self._last.get((partition, key))
        if known is None or known.position.offset < offset:
            sent_ms = messages.sent_ms[place] or 0
            message = Message(key, _NOW, Position(partition, offset), value, sent_ms)
            self._last[partition, key] = message

    def _truncate(self, messages: Messages, place: int) -> None:
        partition, offset = messages.partitions[place], messages.offsets[place]
        known = self._truncations.get(partition)
        if known is None or known.position.offset < offset:
            at = Position(partition, offset)
            sent_ms = messages.sent_ms[place] or 0
            self._truncations[partition] = Message(b"", _NOW, at, None, sent_ms)

    def _truncated(self, keys: set[bytes]) -> Iterable[Message]:
        """The last messages of keys, of which one that empties the table is one of each key.

        Adds the keys that have something to `keys` then.
        """
        if not self._truncations:
            return self._last.values()
        keys.update(self._rows)
        last = dict(self._last)
        for partition, emptied in self._truncations.items():
            for key in keys:
                known = last.get((partition, key))
                if known is None or known.position.offset < emptied.position.offset:
                    last[partition, key] = replace(emptied, key=key)
        return last.values()

    def _nothing_without_key(self, messages: Messages, place: int) -> None:
        """A message without a key that deletes. With UPSERT it takes back the error of those that
        have none; a table of Debezium's without keys has such messages behind others, which stay
        what they are."""
        if self._reading.decoding.envelope == "UPSERT":
            self._put(messages, place, NULL_KEY, None)
        elif messages.values[place] is not None:
            self._without_key(messages, place)

    def _without_key(self, messages: Messages, place: int) -> None:
        if self._unread.add(messages, place, "the key is NULL"):
            error = NullKeyError(self._unread.at(messages, place))
            self._put(messages, place, NULL_KEY, error)

    def _take_back_unread(self, messages: Messages, decoded: Decoded) -> None:
        """Takes back errors of keys that can be read now: a registry may have got their schema."""
        for place, raw in enumerate(messages.keys):
            if raw is not None and place not in decoded.bad_keys:
                unread = unread_key(raw)
                if unread in self._rows.errors:
                    self._put(messages, place, unread, None)

    def _take_unread(self, messages: Messages, decoded: Decoded) -> None:
        for place, reason in decoded.bad_keys.items():
            raw = messages.keys[place] or b""
            if messages.values[place] is None:
                self._put(messages, place, unread_key(raw), None)
            elif self._unread.add(messages, place, f"a key cannot be read: {reason}"):
                inner = DecodeError(self._unread.at(messages, place), reason)
                self._put(messages, place, unread_key(raw), KeyDecodeError(raw, inner))
        if self._reading.decoding.inline_errors is not None:
            return
        for place, reason in decoded.bad_values.items():
            key = messages.keys[place]
            if not self._unread.add(messages, place, reason):
                continue
            if key is None:
                self._put(messages, place, NULL_KEY, NullKeyError(self._unread.at(messages, place)))
                continue
            inner = DecodeError(self._unread.at(messages, place), reason)
            error = ValueDecodeError(inner, _shown(key), key)
            self._put(messages, place, decoded.keys[place], error)


def _shown(key: bytes) -> str:
    return shortened(key.decode(errors="backslashreplace"))


def _last_of_keys(messages: Messages) -> Messages:
    """Of the messages of each partition with equal bytes of keys the last."""
    last = {
        (partition, key): place
        for place, (partition, key) in enumerate(
            zip(messages.partitions, messages.keys, strict=True)
        )
    }
    if len(last) == len(messages):
        return messages
    return messages.at(sorted(last.values()))


def key_of_error(error: DataflowError, decoder: Decoder) -> bytes:
    """The digest of the key whose place an error of the contents takes.

    Raises what `Decoder.key_of` raises.
    """
    match error:
        case KeyDecodeError(raw, _):
            return unread_key(raw)
        case ValueDecodeError(_, _, raw):
            return decoder.key_of(raw)
        case NullKeyError():
            return NULL_KEY
        case _:
            raise FatalError(f"{error} belongs to no key")
