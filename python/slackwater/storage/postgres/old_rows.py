"""The rows of a table that updates and deletes take back: in a multiset, or by the table's key.

With REPLICA IDENTITY FULL a change has the whole row that it takes back. Otherwise it has its key,
and the row is looked up in what is there.

Source: docs/decisions 0072.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from slackwater.repr.dataflow_error import (
    DataflowError,
    DecodeError,
    KeyDecodeError,
    ValueDecodeError,
)
from slackwater.repr.errors import FatalError
from slackwater.storage.envelope import Datum, row_key, unread_key
from slackwater.storage.keyed_rows import RowsInMemory, add_rows
from slackwater.storage.pieces import Pieces, Stage, StagedRows
from slackwater.storage.postgres.pgoutput import UNSENT, Unsent
from slackwater.storage.postgres.tables import PostgresTable
from slackwater.storage.postgres.types import RowReader
from slackwater.storage.row_bytes import RowBytes, plain_rows
from slackwater.storage.text_values import shortened

Texts = Sequence[str | Unsent | None]
"""The values of a row, by the columns of its collection."""

_FIRST_CHECK = 50_000
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


@dataclass(frozen=True, slots=True)
class Put:
    """A row comes, one goes, or both. `old` may be a key only. `is_new`: nothing goes.

    A row that comes, is not new, and has no `old`, takes the place of what its key has.
    """

    new: Texts | None
    old: Texts | None = None
    is_new: bool = False


class OldRows(Protocol):
    """The changes of a step to one table."""

    def read(self, rows: Sequence[Texts]) -> list[Datum]:
        """The rows, or the errors that take their places. Raises `TableBroken`."""
        ...

    def put(self, changes: Sequence[Put]) -> None:
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


class Reader:
    """Reads rows of texts as bytes, or says why they are none."""

    def __init__(self, table: PostgresTable) -> None:
        self.table = table
        self.rows = RowReader(table)
        self.bytes = RowBytes(self.rows.desc)

    def present(self, contents: Contents) -> pa.Table:
        """The rows that are there, with the columns that are read."""
        return contents.rows().select(self.rows.desc.names)

    def read(self, rows: Sequence[Texts]) -> list[bytes | str]:
        """The bytes of each row, or the reason why it is none. Raises `TableBroken`."""
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self.table.columns)
        texts = [
            pa.array([None if each is UNSENT else each for each in column], pa.string())
            for column in columns
        ]
        self._check(columns)
        found = self.rows.rows(texts)
        encoded: list[bytes | str] = list(self.bytes.encode(found.table))
        for number, reason in found.bad.items():
            encoded[number] = reason
        return encoded

    def _check(self, columns: Sequence[Sequence[str | Unsent | None]]) -> None:
        for column, values in zip(self.table.columns, columns, strict=True):
            if column.not_null and None in values:
                raise TableBroken(f"its column {column.name}, which was NOT NULL, has a NULL")

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

    def read(self, rows: Sequence[Texts]) -> list[Datum]:
        return [
            self._reader.error(found) if isinstance(found, str) else found
            for found in self._reader.read(rows)
        ]

    def put(self, changes: Sequence[Put]) -> None:
        rows: list[Texts] = []
        diffs: list[int] = []
        for change in changes:
            if change.old is not None:
                rows.append(change.old)
                diffs.append(-1)
            elif not change.is_new:
                raise TableBroken("a change has not sent the row before it")
            if change.new is not None:
                rows.append(_whole(change.new, change.old))
                diffs.append(1)
        for value, diff in zip(self.read(rows), diffs, strict=True):
            self._net[value] += diff
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


def _whole(new: Texts, old: Texts | None) -> Texts:
    """The row with the large values that it was not sent with, from the row before it."""
    if UNSENT not in new:
        return new
    if old is None:
        raise TableBroken("an update has not sent a large value, nor the row before it")
    return [before if now is UNSENT else now for now, before in zip(new, old, strict=True)]


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

    def read(self, rows: Sequence[Texts]) -> list[Datum]:
        found = zip(self._reader.read(rows), self._digests(rows), strict=True)
        return [self._value(row, key) for row, key in found]

    def put(self, changes: Sequence[Put]) -> None:
        present = self._present()
        come = [change.new for change in changes if change.new is not None]
        gone = [change.old for change in changes if change.old is not None]
        rows, keys = iter(self._reader.read(come)), iter(self._digests(come))
        old_keys = iter(self._digests(gone))
        for change in changes:
            old = None if change.old is None else next(old_keys).digest
            if change.new is not None:
                row, key = next(rows), next(keys)
                value = self._value(row, key)
                if change.is_new:
                    self._refuse_double(present, key.digest)
                else:
                    before = self._taken(present, old or key.digest)
                    value = self._filled(change.new, value, before, key)
            else:
                key = None
            if old is not None and (key is None or key.digest != old):
                self._taken(present, old)
                self._after[old] = None
            if key is not None:
                self._after[key.digest] = value
        if len(self._after) >= self._checked_at:
            # Each look takes all keys of the step: so few are made, and one at its end.
            present.check(self._after)
            self._checked_at = 2 * len(self._after)

    def _value(self, row: bytes | str, key: _Key) -> Datum:
        if key.wrong is not None:
            return KeyDecodeError(key.raw, self._reader.error(key.wrong))
        if isinstance(row, str):
            return ValueDecodeError(self._reader.error(row), _shown(key.raw), key.raw)
        return row

    def _filled(self, new: Texts, value: Datum, before: Datum, key: _Key) -> Datum:
        """The row with the large values that it was not sent with, from the row before it."""
        if UNSENT not in new or not isinstance(value, bytes):
            return value
        if not isinstance(before, bytes):
            return self._value(_NOT_SENT, key)
        then = RowBytes.plain(before)
        unsent = (place for place, text in enumerate(new) if text is UNSENT)
        return RowBytes.replaced(value, {place: then[place] for place in unsent})

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
        return self._after[key] if key in self._after else present.lookup((key,)).get(key)

    def _digests(self, rows: Sequence[Texts]) -> list[_Key]:
        keys = [tuple(row[place] for place in self._places) for row in rows]
        if not keys:
            return []
        if any(UNSENT in key for key in keys):
            raise TableBroken("an update has not sent a large value of its key")
        texts = [pa.array(column, pa.string()) for column in zip(*keys, strict=True)]
        found = self._keys.rows(texts)
        made = []
        for number, (key, plain) in enumerate(zip(keys, plain_rows(found.table), strict=True)):
            raw, wrong = json.dumps(key, ensure_ascii=False).encode(), found.bad.get(number)
            made.append(_Key(row_key(plain) if wrong is None else unread_key(raw), raw, wrong))
        return made

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
                row: list[str | None] = [None] * len(self._reader.table.columns)
                for place, text in zip(self._places, json.loads(raw), strict=True):
                    row[place] = text
                return self._digests([row])[0].digest
            case _:
                raise FatalError(f"{error} belongs to no key")


@dataclass(frozen=True, slots=True)
class Keys:
    """The columns of a key, and the most that the rows of all keys may take in memory."""

    columns: tuple[str, ...]
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class _Key:
    """A key: its digest, the texts that errors keep of it, and why it cannot be read."""

    digest: bytes
    raw: bytes
    wrong: str | None


def _shown(raw: bytes) -> str:
    text = ", ".join("NULL" if each is None else each for each in json.loads(raw))
    return shortened(text)
