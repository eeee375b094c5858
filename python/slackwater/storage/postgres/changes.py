"""The changes of one table in a step: its snapshot, then what replication brings.

What happens to a table alone, such as another type of a column, is an error of that table; others
go on. Only a snapshot of everything takes such an error back.

Source: spec controllers 5.4, 5.5; docs/decisions 0072.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from slackwater.repr.dataflow_error import DataflowError, DecodeError
from slackwater.repr.relation import with_diff
from slackwater.storage.envelope import Datum
from slackwater.storage.pieces import Pieces, Stage, StagedRows
from slackwater.storage.postgres.old_rows import (
    Contents,
    Keys,
    OldRows,
    Reader,
    RowsOfKeys,
    TableBroken,
    WholeRows,
)
from slackwater.storage.postgres.pgoutput import Relation
from slackwater.storage.postgres.row_changes import Tuples, row_changes
from slackwater.storage.postgres.tables import PostgresTable, TableNow, difference

BATCH = 10_000
BATCH_BYTES = 16 * 1024 * 1024
"""So many changes are made rows at once, or as many as have so many bytes."""
KEYED_BYTES = 2 * 1024**3
"""The most that the rows of one table may take in memory that is not REPLICA IDENTITY FULL."""


@dataclass(frozen=True, slots=True)
class TableState:
    """The durable state of a table beside its contents.

    `key` None: changes have whole rows. `gone` are columns that the upstream has no more, `ignored`
    those that it has beside, `added` those that came to the table later and that the contents have.
    `broken` is the reason why nothing of it is read any more.
    """

    key: tuple[str, ...] | None = None
    member: int = 0
    gone: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    broken: str | None = None
    added: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Changed:
    """The changes of a table: rows with ``__diff``, and errors with their diffs."""

    rows: pa.Table | StagedRows | None
    errors: Sequence[tuple[DataflowError, int]]

    @property
    def count(self) -> int:
        """The number of updates."""
        return (0 if self.rows is None else self.rows.num_rows) + len(self.errors)


class TableChanges:
    """The changes of one table, step by step. Nothing counts before `committed`."""

    def __init__(
        self, table: PostgresTable, contents: Contents, stage: Stage, state: TableState
    ) -> None:
        """`state` is what the last step has left."""
        self.table = table
        self.state = state
        self._durable = state
        self._contents = contents
        self._stage = stage
        self._reader = Reader(table)
        self._old_rows = self._made(state)
        self._places: Sequence[int | None] = ()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._snapshot: Counter[Datum] | None = None
        self._is_first = False

    def _made(self, state: TableState) -> OldRows:
        if state.key is None:
            return WholeRows(self._reader, self._contents, self._stage)
        keys = Keys(state.key, KEYED_BYTES)
        return RowsOfKeys(self._reader, self._contents, self._stage, keys)

    @property
    def is_changed(self) -> bool:
        """Whether its state is another one than the durable one."""
        return self.state != self._durable

    @property
    def is_described(self) -> bool:
        """Whether it knows the columns that changes have."""
        return bool(self._places)

    def begin_snapshot(self, now: TableNow | None, is_first: bool) -> bool:
        """The step begins with all rows that the table has now. Whether these can be copied."""
        broken = _LOST if now is None else difference(self.table, now)
        own = {column.name for column in self.table.columns}
        if now is None or broken is not None:
            self.state = replace(self._durable, broken=broken)
        else:
            there = {column.name for column in now.columns}
            key = now.key if now.key is not None and own.issuperset(now.key) else None
            self.state = TableState(
                key=key,
                member=now.member,
                gone=tuple(each.name for each in self.table.columns if each.name not in there),
                ignored=tuple(sorted((there | set(now.hidden)) - own)),
                added=self.table.added,
            )
        self._old_rows = self._made(self.state)
        self._is_first = is_first
        self._snapshot = Counter()
        if not is_first:
            self._snapshot.subtract(self._reader.bytes.encode(self._reader.present(self._contents)))
            self._snapshot.subtract(self._contents.errors())
        return broken is None

    def columns_to_copy(self) -> list[str]:
        """The names of the columns that the upstream has."""
        return [each.name for each in self.table.columns if each.name not in self.state.gone]

    def copied(self, texts: pa.Table) -> None:
        """Rows of the snapshot, which have these columns as texts. Raises what files raise."""
        if self.state.broken is not None or self._snapshot is None:
            return
        nulls = pa.nulls(texts.num_rows, pa.string())
        columns = [
            nulls if each.name in self.state.gone else texts.column(each.name).combine_chunks()
            for each in self.table.columns
        ]
        found = self._reader.rows.rows(columns)
        for column, values in zip(self.table.columns, columns, strict=True):
            if column.not_null and values.null_count:
                self._break(f"its column {column.name}, which was NOT NULL, has a NULL")
                return
        rows = found.table
        if found.bad:
            places = pa.array(list(found.bad), pa.int64())
            bad = Tuples(tuple(column.take(places) for column in columns))
            self._snapshot.update(self._old_rows.read(bad))
            rows = rows.filter(pa.array(place not in found.bad for place in range(rows.num_rows)))
        if self._is_first:
            self._old_rows.pieces.add(with_diff(rows))
        else:
            self._snapshot.update(self._reader.bytes.encode(rows))

    def relation(self, found: Relation) -> None:
        """The columns of the table from here on, in the order in which changes have them."""
        if self.state.broken is not None:
            return
        at = {column.name: place for place, column in enumerate(found.columns)}
        try:
            self._apply()
            self._adopt(found, at)
        except TableBroken as broken:
            self._break(broken.reason)
        self._places = [at.get(column.name) for column in self.table.columns]

    def _adopt(self, found: Relation, at: Mapping[str, int]) -> None:
        own = {column.name for column in self.table.columns}
        added = [name for name in at if name not in own and name not in self.state.ignored]
        gone: list[int] = []
        for place, column in enumerate(self.table.columns):
            if column.name in at:
                _check(column.name, column.type_oid, found.columns[at[column.name]].type_oid)
                if column.name in self.state.gone:
                    raise TableBroken(f"its column {column.name} is another one of the same name")
            elif column.not_null:
                raise TableBroken(f"its column {column.name} is gone")
            elif column.name not in self.state.gone:
                gone.append(place)
        if gone and added:
            name = self.table.columns[gone[0]].name
            raise TableBroken(f"its column {name} was renamed, or replaced by another one")
        key = tuple(each.name for each in found.columns if each.is_key)
        wanted = self.state.key
        if wanted is not None and found.identity != "f" and set(key) != set(wanted):
            raise TableBroken("its replica identity has changed")
        if gone:
            self._old_rows.without(gone)
        self.state = replace(
            self.state,
            gone=(*self.state.gone, *(self.table.columns[place].name for place in gone)),
            ignored=(*self.state.ignored, *added),
        )

    def take(self, message: bytes) -> None:
        """A message that changes a row of the table belongs to the step."""
        if self.state.broken is not None:
            return
        self._waiting.append(message)
        self._waiting_bytes += len(message)
        if len(self._waiting) >= BATCH or self._waiting_bytes >= BATCH_BYTES:
            try:
                self._apply()
            except TableBroken as broken:
                self._break(broken.reason)

    def truncate(self) -> None:
        """All rows of the table go."""
        if self.state.broken is None:
            self._taken()
            self._old_rows.clear()

    def _taken(self) -> list[bytes]:
        """The messages that wait, which do so no longer."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        return waiting

    def _apply(self) -> None:
        waiting = self._taken()
        if waiting:
            self._old_rows.put(row_changes(waiting, self._places))

    def look(self, now: TableNow | None) -> None:
        """Compares the table with what the upstream says of it now."""
        if self.state.broken is not None:
            return
        if now is None:
            self._break(_LOST)
        elif now.member != self.state.member:
            self._break("it has left the publication, and came back")
        elif (reason := difference(self.table, now)) is not None:
            self._break(reason)

    def _break(self, reason: str) -> None:
        self._old_rows.forget()
        self._taken()
        if self._snapshot is not None:
            # Rows that are there stay: nobody can read them.
            self._snapshot = Counter()
            if not self._is_first:
                self._snapshot.subtract(self._contents.errors())
        self.state = replace(self.state, broken=reason)

    def changes(self) -> Changed:
        """The changes of the step. Raises what writing files raises, SLACKWATER_UPSERT_MEMORY."""
        try:
            self._apply()
        except TableBroken as broken:
            self._break(broken.reason)
        rows: list[tuple[bytes, int]] = []
        errors: list[tuple[DataflowError, int]] = []
        for value, diff in self._net():
            if isinstance(value, bytes):
                rows.append((value, diff))
            elif not isinstance(value, tuple):
                errors.append((value, diff))
        pieces: Pieces = self._old_rows.pieces
        for table in self._reader.tables(rows):
            pieces.add(table)
        return Changed(pieces.rows(), errors)

    def _net(self) -> Iterable[tuple[Datum, int]]:
        """The rows and errors that come and go, with their diffs."""
        broken, snapshot = self.state.broken, self._snapshot
        if snapshot is None and (broken is None or self._durable.broken is not None):
            return self._old_rows.changed()
        found = Counter({} if snapshot is None else snapshot)
        for value, diff in self._old_rows.changed():
            found[value] += diff
        if broken is not None:
            found[self._broken_error(broken)] += 1
        return ((value, diff) for value, diff in found.items() if diff)

    def _broken_error(self, reason: str) -> DecodeError:
        return DecodeError(f"table {self.table.full_name}", reason)

    def error(self) -> str | None:
        """An error that the contents have once the step is durable; None: there is none."""
        if self.state.broken is not None:
            return self._broken_error(self.state.broken).text
        if self._snapshot is not None:
            come = (e for e, diff in self._snapshot.items() if diff > 0)
            found = next((e for e in come if not isinstance(e, bytes | tuple)), None)
        else:
            found = self._old_rows.held()
        return None if found is None else found.text

    def committed(self) -> None:
        """The changes are durable; the next step begins."""
        self._durable = self.state
        if self._snapshot is not None:
            self._snapshot = None
            self._old_rows = self._made(self.state)
        else:
            self._old_rows.committed()

    def forget(self) -> None:
        """Nothing of the step counts: it begins again from what is durable."""
        self._taken()
        self._places = ()
        if self.state.key != self._durable.key or self._snapshot is not None:
            self._old_rows = self._made(self._durable)
        self._snapshot = None
        self._old_rows.forget()
        self.state = self._durable


_LOST = "it is not in the publication any more"


def _check(name: str, before: int, now: int) -> None:
    if before != now:
        raise TableBroken(f"the type of its column {name} was changed")
