"""Copies of tables while their source runs: for tables that come later, and for RESNAPSHOT of some.

A slot of its own, which goes with its connection, gives a position of the log and what the tables
have there. That is copied, and then followed on that slot, until both are at one position: there
the tables join the source, which never waits for a copy.

Source: docs/decisions 0073, 0078.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from slackwater.repr.dataflow_error import DataflowError
from slackwater.storage.copying import Room
from slackwater.storage.pieces import Pieces, Stage, StagedRows
from slackwater.storage.postgres.changes import Changed, TableChanges, TableState
from slackwater.storage.postgres.following import Follower
from slackwater.storage.postgres.old_rows import Contents, Reader
from slackwater.storage.postgres.pgoutput import Begin, decoded
from slackwater.storage.postgres.replication import Keepalive, Received, Replication, Upstream
from slackwater.storage.postgres.tables import PostgresTable

READ_MESSAGES = 20_000
WAIT_MS = 200


@dataclass(frozen=True, slots=True)
class FollowedTable:
    """A table of a source, with its durable contents and the place for its files.

    `is_later`: it was made by itself, and begins with its first contents.
    """

    table: PostgresTable
    contents: Contents
    stage: Stage
    is_later: bool = False

    def changes(self, state: TableState | None) -> TableChanges:
        """The changes of the table from that state on; None: it has nothing yet.

        Columns that the table got later, and that its contents do not have yet, do not come.
        """
        table = self.table if state is None else self.table.with_added(state.added)
        return TableChanges(table, self.contents, self.stage, state or TableState())

    def anew(self, state: TableState) -> TableChanges:
        """The changes of the table, all of which is read again, with all of its columns."""
        return TableChanges(self.table, self.contents, self.stage, state)


def copied(
    replication: Replication, tables: Iterable[TableChanges], *, is_first: bool
) -> Iterator[pa.Table]:
    """Lets tables take what the server has of them, and gives each piece that they took.

    `is_first`: they have nothing yet; otherwise what they have is taken back.
    """
    upstream = replication.tables()
    for table in tables:
        now = upstream.get(table.table.oid)
        can_be_read = table.begin_snapshot(now, is_first)
        if now is None or not can_be_read:
            continue
        for texts in replication.copy(now, table.columns_to_copy()):
            table.copied(texts)
            yield texts


class _Unsettled:
    """The contents that a copy has so far, until they are durable. See `Contents`."""

    def __init__(self, stored: Contents) -> None:
        self._stored = stored
        self._updates: list[pa.Table | StagedRows] | None = []
        self._errors: Counter[DataflowError] = Counter()

    def add(self, changed: Changed) -> None:
        if self._updates is None:
            raise AssertionError("the copy is durable already")
        if changed.rows is not None:
            self._updates.append(changed.rows)
        for error, diff in changed.errors:
            self._errors[error] += diff

    @property
    def updates(self) -> Sequence[pa.Table | StagedRows]:
        return self._updates or ()

    def rows(self) -> pa.Table:
        return self._stored.rows() if self._updates is None else self.left(self._updates)

    def errors(self) -> Sequence[DataflowError]:
        return self._stored.errors() if self._updates is None else list(self._errors.elements())

    def left(self, updates: Sequence[pa.Table | StagedRows]) -> pa.Table:
        return self._stored.left(updates)

    def settle(self) -> None:
        self._updates = None
        self._errors.clear()


class CopiedTable:
    """A table that is copied. `replaces`: it takes the place of contents that there are."""

    def __init__(self, found: FollowedTable, *, replaces: bool) -> None:
        self._found = found
        self._contents = _Unsettled(found.contents)
        self.replaces = replaces
        self.changes = TableChanges(found.table, self._contents, found.stage, TableState())

    def settle_changes(self) -> None:
        """The changes that the table took belong to the copy; its next ones are changes of that.

        Raises what `TableChanges.changes` raises.
        """
        self._contents.add(self.changes.changes())
        self.changes.committed()

    def contents(self) -> Changed:
        """The changes by which the collection gets what was copied.

        Raises what reading and writing files raises.
        """
        pieces = Pieces(self._found.stage)
        if not self.replaces:
            for each in self._contents.updates:
                pieces.add_all(each)
            return Changed(pieces.rows(), [(error, 1) for error in self._contents.errors()])
        reader, stored = Reader(self._found.table), self._found.contents
        rows = Counter(reader.bytes.encode(reader.present(self._contents)))
        rows.subtract(reader.bytes.encode(reader.present(stored)))
        for table in reader.tables([(row, diff) for row, diff in rows.items() if diff]):
            pieces.add(table)
        errors = Counter(self._contents.errors())
        errors.subtract(stored.errors())
        return Changed(pieces.rows(), [(each, diff) for each, diff in errors.items() if diff])

    def committed(self) -> None:
        """The contents are durable."""
        self._contents.settle()


class Copy:
    """The rows of some tables, on their way to where their source is. Not thread-safe.

    No copy survives an error: another one begins anew.
    """

    def __init__(
        self,
        tables: Mapping[str, CopiedTable],
        upstream: Upstream,
        check: Callable[[Replication], None],
    ) -> None:
        """`tables` are by the names of their exports. `check` raises for another server."""
        self.tables = dict(tables)
        self._upstream = upstream
        self._check = check
        self._replication: Replication | None = None
        self._pieces: Iterator[pa.Table] | None = None
        self._begins_at = 0
        self._follower: Follower | None = None
        self._queue: deque[Received] = deque()
        self.rows = 0
        """So many rows were copied, of about so many as `known_rows` says, if the server knows."""
        self.known_rows: int | None = None

    def keep(self, names: Collection[str]) -> None:
        """Goes on without the tables that are not among these."""
        self.tables = {name: each for name, each in self.tables.items() if name in names}

    def is_ahead_of(self, position: int) -> bool:
        """Whether it waits for a source that was read up to there."""
        return position < self._begins_at

    def read(self, until: int, room: Room) -> bool:
        """Reads on. Whether the tables have what was committed before `until`, and nothing else.

        Raises what the server, the tables and their files raise.
        """
        if self._replication is None:
            self._replication = self._upstream.replication()
            self._check(self._replication)
        replication = self._replication
        if self._pieces is None:
            position = replication.create_slot()
            if position is None:
                return False
            self._begins_at = position
            tables = [each.changes for each in self.tables.values()]
            self.known_rows = replication.known_rows([each.table.oid for each in tables])
            self._pieces = copied(replication, tables, is_first=True)
        if self._follower is None:
            taken = 0
            for piece in self._pieces:
                taken += piece.nbytes
                self.rows += piece.num_rows
                if taken >= room.size_bytes:
                    return False
            self._settle()
            replication.start(self._begins_at)
            self._follower = Follower(self._begins_at)
        return self._follow(self._follower, replication, until, room)

    def _follow(self, follower: Follower, replication: Replication, until: int, room: Room) -> bool:
        if self.is_ahead_of(until):
            return False
        follower.begin_step()
        by_oid = readers(each.changes for each in self.tables.values())
        while not self._is_at(follower, until):
            is_full = follower.messages >= room.messages or follower.size_bytes >= room.size_bytes
            if is_full:
                break
            if self._queue:
                follower.take(self._queue.popleft(), by_oid)
                continue
            # The first of what comes may be behind the end already.
            self._queue.extend(replication.read(READ_MESSAGES, WAIT_MS))
            if not self._queue:
                break
        self._settle()
        return self._is_at(follower, until)

    def _is_at(self, follower: Follower, until: int) -> bool:
        """Whether all transactions before `until` were taken, as the next one is not."""
        if follower.in_transaction:
            return False
        if follower.position >= until:
            return True
        following = self._queue[0] if self._queue else None
        if following is None or isinstance(following, Keepalive):
            return False
        message = decoded(following)
        return isinstance(message, Begin) and message.commit_lsn >= until

    def _settle(self) -> None:
        for each in self.tables.values():
            each.settle_changes()

    def close(self) -> None:
        """Ends what it has open; the slot goes with it."""
        self._upstream.forget()


def readers(tables: Iterable[TableChanges]) -> dict[int, list[TableChanges]]:
    """The tables by the oids of what they read."""
    found: dict[int, list[TableChanges]] = {}
    for table in tables:
        found.setdefault(table.table.oid, []).append(table)
    return found
