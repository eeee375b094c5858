"""The rows of a table that updates and deletes take back: in a multiset, or by the table's key.

With REPLICA IDENTITY FULL a change has the whole row that it takes back. Otherwise it has its key,
and the row is looked up in what is there.

Source: docs/decisions 0072.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.repr.dataflow_error import (
    DataflowError,
    DecodeError,
    KeyDecodeError,
    ValueDecodeError,
)
from slackwater.repr.errors import FatalError
from slackwater.storage.envelope import Datum, unread_key
from slackwater.storage.keyed_rows import RowsInMemory, add_rows
from slackwater.storage.pieces import Pieces, Stage, StagedRows
from slackwater.storage.postgres.row_changes import (
    DELETE,
    INSERT,
    REPLACEMENT,
    RowChanges,
    Tuples,
)
from slackwater.storage.postgres.tables import PostgresTable
from slackwater.storage.postgres.types import RowReader
from slackwater.storage.row_bytes import RowBytes, row_keys
from slackwater.storage.text_values import shortened

_FIRST_CHECK = 50_000
_NEEDS_FULL = "a row was changed without its values before: it needs REPLICA IDENTITY FULL or a key"
_NOT_SENT = "a large value was not sent, and the row before it could not be read"


class TableBroken(Exception):
    """A table cannot be followed any more. `reason` ends no sentence."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Contents(Protocol):
    """The durable contents of a collection, also with columns that its source does not read yet."""

    def rows(self) -> pa.Table: ...

    def errors(self) -> Sequence[DataflowError]: ...

    def left(self, updates: Sequence[pa.Table | StagedRows]) -> pa.Table:
        """The rows that updates leave which are not durable. Raises what reading files raises."""
        ...


class OldRows(Protocol):
    """The changes of a step to one table."""

    def read(self, rows: Tuples) -> list[Datum]:
        """The rows, or the errors that take their places. Raises `TableBroken`."""
        ...

    def put(self, changes: RowChanges) -> None:
        """Raises `TableBroken`, SLACKWATER_UPSERT_MEMORY, and what writing files raises."""
        ...

    def clear(self) -> None:
        """All rows go."""
        ...

    def without(self, columns: Sequence[int]) -> None:
        """All rows have NULL in these columns from now on. Raises `TableBroken`."""
        ...

    def changed(self) -> Iterator[tuple[Datum, int]]:
        """The rows and errors that come and go, with their diffs, beside those in `pieces`."""
        ...

    @property
    def pieces(self) -> Pieces:
        """The rows of the step that are put away already; more may be added."""
        ...

    def committed(self) -> None:
        """The changes are durable."""
        ...

    def forget(self) -> None:
        """The changes do not count: the step begins again."""
        ...

    def held(self) -> DataflowError | None:
        """An error that the contents have once the step is durable; None: there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Read:
    """The bytes of rows, and the reasons of those that are none, by their numbers."""

    rows: list[bytes]
    bad: Mapping[int, str]


class Reader:
    """Reads rows of texts as bytes, or says why they are none."""

    def __init__(self, table: PostgresTable) -> None:
        self.table = table
        self.rows = RowReader(table)
        self.bytes = RowBytes(self.rows.desc)

    def present(self, contents: Contents) -> pa.Table:
        """The rows that are there, with the columns that are read."""
        return contents.rows().select(self.rows.desc.names)

    def read(self, rows: Tuples) -> Read:
        """Raises `TableBroken`."""
        for place, column in enumerate(self.table.columns):
            if column.not_null and rows.nulls(place):
                raise TableBroken(f"its column {column.name}, which was NOT NULL, has a NULL")
        found = self.rows.rows(rows.columns)
        return Read(self.bytes.encode(found.table), found.bad)

    def error(self, reason: str) -> DecodeError:
        """The error of a row."""
        return DecodeError(f"table {self.table.full_name}", reason)

    def tables(self, rows: Sequence[tuple[bytes, int]]) -> Iterator[pa.Table]:
        """Rows of bytes as tables with ``__diff``, in pieces; diffs are 1 and -1."""
        single = [(row, 1 if diff > 0 else -1) for row, diff in rows for _ in range(abs(diff))]
        return self.bytes.updates(single)


class WholeRows:
    """For changes that have the whole row. Of a step with many rows the last are in memory."""

    def __init__(
        self, reader: Reader, contents: Contents, stage: Stage, most: int = 500_000
    ) -> None:
        self._reader = reader
        self._contents = contents
        self._stage = stage
        self._most = most
        self._errors: Counter[Datum] | None = None
        self.forget()

    def forget(self) -> None:
        self._net: Counter[Datum] = Counter()
        self._is_put_away = False
        self.pieces = Pieces(self._stage)

    def read(self, rows: Tuples) -> list[Datum]:
        found = self._reader.read(rows)
        values: list[Datum] = list(found.rows)
        for number, reason in found.bad.items():
            values[number] = self._reader.error(reason)
        return values

    def put(self, changes: RowChanges) -> None:
        if not changes.has_all:
            raise TableBroken(_NEEDS_FULL)
        self._net.subtract(self.read(changes.old))
        self._net.update(self.read(_whole(changes)))
        if len(self._net) > self._most:
            self._put_away()

    def clear(self) -> None:
        self.forget()
        self._net.subtract(self._reader.bytes.encode(self._reader.present(self._contents)))
        self._net.subtract(self._contents.errors())

    def without(self, columns: Sequence[int]) -> None:
        if self._is_put_away:
            raise TableBroken("a column was dropped beside very many changes")
        stored = self._reader.present(self._contents)
        present: Counter[Datum] = Counter(self._reader.bytes.encode(stored))
        present.update({row: diff for row, diff in self._net.items() if isinstance(row, bytes)})
        for row, count in present.items():
            if isinstance(row, bytes) and count:
                self._net[row] -= count
                self._net[RowBytes.replaced(row, dict.fromkeys(columns))] += count

    def changed(self) -> Iterator[tuple[Datum, int]]:
        return ((value, diff) for value, diff in self._net.items() if diff)

    def committed(self) -> None:
        self._errors = self._errors_after()
        self.forget()

    def held(self) -> DataflowError | None:
        after = self._errors_after()
        return next((each for each in after if not isinstance(each, bytes | tuple)), None)

    def _errors_after(self) -> Counter[Datum]:
        if self._errors is None:
            self._errors = Counter(self._contents.errors())
        after = Counter(self._errors)
        for value, diff in self._net.items():
            if not isinstance(value, bytes):
                after[value] += diff
        return +after

    def _put_away(self) -> None:
        rows = [(row, diff) for row, diff in self._net.items() if isinstance(row, bytes)]
        for table in self._reader.tables(rows):
            self.pieces.add(table)
        for row, _ in rows:
            del self._net[row]
        self._is_put_away = True


def _whole(changes: RowChanges) -> Tuples:
    """The new rows with the large values that they were not sent with, from the rows before."""
    new = changes.new
    if not new.unsent:
        return new
    before = dict(changes.replaced())
    columns = list(new.columns)
    for place in {place for places in new.unsent.values() for place in places}:
        is_unsent = [place in new.unsent.get(number, ()) for number in range(len(columns[place]))]
        old = [before[number] if each else None for number, each in enumerate(is_unsent)]
        then = changes.old.columns[place].take(pa.array(old, pa.int64()))
        columns[place] = pc.if_else(pa.array(is_unsent), then, columns[place])
    return Tuples(tuple(columns))


class RowsOfKeys:
    """For changes that have a key: what the key has is in memory."""

    def __init__(self, reader: Reader, contents: Contents, stage: Stage, key: Keys) -> None:
        self._reader = reader
        self._contents = contents
        self._stage = stage
        self._limit_bytes = key.limit_bytes
        table = reader.table
        names = [column.name for column in table.columns]
        self._places = [names.index(each) for each in key.columns]
        self._keys = RowReader(
            replace(table, columns=tuple(table.columns[place] for place in self._places))
        )
        self._memory: RowsInMemory | None = None
        self._stored_errors: tuple[DataflowError, ...] | None = None
        self.forget()

    def forget(self) -> None:
        self._after: dict[bytes, Datum | None] = {}
        self._checked_at = _FIRST_CHECK
        self.pieces = Pieces(self._stage)

    def read(self, rows: Tuples) -> list[Datum]:
        return self._values(rows, self._keys_of(rows))

    def _values(self, rows: Tuples, keys: _KeysOfRows) -> list[Datum]:
        found = self._reader.read(rows)
        values: list[Datum] = list(found.rows)
        for number in {*found.bad, *keys.wrong}:
            values[number] = self._wrong(keys, number, found.bad.get(number, ""))
        return values

    def _wrong(self, keys: _KeysOfRows, number: int, reason: str) -> DataflowError:
        """The error in the place of a row that is wrong for that reason, unless its key is."""
        raw, wrong = keys.raw(number), keys.wrong.get(number)
        if wrong is not None:
            return KeyDecodeError(raw, self._reader.error(wrong))
        return ValueDecodeError(self._reader.error(reason), _shown(raw), raw)

    def put(self, changes: RowChanges) -> None:
        present, after = self._present(), self._after
        keys = self._keys_of(changes.new)
        values = self._values(changes.new, keys)
        come = enumerate(zip(keys.digests, values, strict=True))
        gone = iter(self._keys_of(changes.old).digests)
        for kind in changes.kinds:
            if kind == DELETE:
                old = next(gone)
                self._taken(present, old)
                after[old] = None
                continue
            number, (key, value) = next(come)
            if kind == INSERT:
                self._refuse_double(present, key)
            else:
                old = next(gone) if kind == REPLACEMENT else key
                before = self._taken(present, old)
                unsent = changes.new.unsent.get(number)
                if unsent is not None and isinstance(value, bytes):
                    value = _filled(value, before, unsent) or self._wrong(keys, number, _NOT_SENT)
                after[old] = None
            after[key] = value
        if len(self._after) >= self._checked_at:
            # Each look takes all keys of the step: so few are made, and one at its end.
            present.check(self._after)
            self._checked_at = 2 * len(self._after)

    def _taken(self, present: RowsInMemory, key: bytes) -> Datum:
        """The present value of a key, which is there: an upstream changes nothing else.

        Raises `TableBroken` otherwise.
        """
        found = self._now(present, key)
        if found is None:
            raise TableBroken("a row was changed that is not there")
        return found

    def _refuse_double(self, present: RowsInMemory, key: bytes) -> None:
        if self._now(present, key) is not None:
            raise TableBroken("its key is not unique")

    def _now(self, present: RowsInMemory, key: bytes) -> Datum | None:
        return self._after[key] if key in self._after else present.get(key)

    def _keys_of(self, rows: Tuples) -> _KeysOfRows:
        if any(place in self._places for places in rows.unsent.values() for place in places):
            raise TableBroken("an update has not sent a large value of its key")
        return self._keys_in([rows.columns[place] for place in self._places])

    def _keys_in(self, texts: Sequence[pa.Array]) -> _KeysOfRows:
        found = self._keys.rows(texts)
        keys = _KeysOfRows(texts, row_keys(found.table), found.bad)
        for number in found.bad:
            keys.digests[number] = unread_key(keys.raw(number))
        return keys

    def clear(self) -> None:
        present = self._present()
        self._after = dict.fromkeys((*self._after, *present))

    def without(self, columns: Sequence[int]) -> None:
        present = self._present()
        for key in (*present, *self._after):
            value = self._now(present, key)
            if isinstance(value, bytes):
                self._after[key] = RowBytes.replaced(value, dict.fromkeys(columns))

    def changed(self) -> Iterator[tuple[Datum, int]]:
        if not self._after:
            return
        self._present().check(self._after)
        before = self._present().lookup(self._after.keys())
        for key, value in self._after.items():
            old = before.get(key)
            if old != value:
                if old is not None:
                    yield old, -1
                if value is not None:
                    yield value, 1

    def committed(self) -> None:
        if self._after:
            self._present().replace(self._after)
        self.forget()

    def held(self) -> DataflowError | None:
        for value in self._after.values():
            if value is not None and not isinstance(value, bytes | tuple):
                return value
        if self._memory is not None:
            left = (each for key, each in self._memory.errors.items() if key not in self._after)
            return next(left, None)
        if self._stored_errors is None:
            self._stored_errors = tuple(self._contents.errors())
        return next(iter(self._stored_errors), None)

    def _present(self) -> RowsInMemory:
        if self._memory is None:
            stored = self._stored()
            self._memory = RowsInMemory(stored, self._limit_bytes, self._reader.table.export)
        return self._memory

    def _stored(self) -> dict[bytes, Datum]:
        rows = self._reader.present(self._contents)
        values: dict[bytes, Datum] = {self._of(each): each for each in self._contents.errors()}
        name = self._reader.table.full_name
        add_rows(values, rows.select(self._places), self._reader.bytes.encode(rows), name)
        return values

    def _of(self, error: DataflowError) -> bytes:
        """The digest of the key whose place an error takes."""
        match error:
            case KeyDecodeError(raw, _):
                return unread_key(raw)
            case ValueDecodeError(_, _, raw):
                texts = [pa.array([text], pa.string()) for text in json.loads(raw)]
                return self._keys_in(texts).digests[0]
            case _:
                raise FatalError(f"{error} belongs to no key")


@dataclass(frozen=True, slots=True)
class Keys:
    """The columns of a key, and the most that the rows of all keys may take in memory."""

    columns: tuple[str, ...]
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class _KeysOfRows:
    """The keys of rows: their texts, by columns, their digests, and why some cannot be read."""

    texts: Sequence[pa.Array]
    digests: list[bytes]
    wrong: Mapping[int, str]

    def raw(self, number: int) -> bytes:
        """The texts that errors keep of a key."""
        key = [column[number].as_py() for column in self.texts]
        return json.dumps(key, ensure_ascii=False).encode()


def _filled(value: bytes, before: Datum, unsent: Sequence[int]) -> bytes | None:
    """The row with the large values that it was not sent with, from the row before it.

    None: the row before it could not be read.
    """
    if not isinstance(before, bytes):
        return None
    then = RowBytes.plain(before)
    return RowBytes.replaced(value, {place: then[place] for place in unsent})


def _shown(raw: bytes) -> str:
    text = ", ".join("NULL" if each is None else each for each in json.loads(raw))
    return shortened(text)
