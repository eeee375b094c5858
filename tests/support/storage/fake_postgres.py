"""A server of PostgreSQL in memory, below the seam of `slackwater.storage.postgres.replication`.

It has two tables: `keyed`, with a primary key, and `whole`, with REPLICA IDENTITY FULL. It encodes
its changes as `pgoutput` does, and can misbehave. Slots for copies go with their connections.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace

import pyarrow as pa

from slackwater.repr.errors import user_error
from slackwater.storage.postgres.replication import Keepalive, ServerIdentity, SlotState
from slackwater.storage.postgres.tables import PostgresColumn, PostgresTable, TableNow

INT4, TEXT, NUMERIC = 23, 25, 1700
UNSENT = object()
NUMBER, LARGE = 'the "number"', "Größe"
MORE = "more"
"""A column that tables may get later. Rows have values of it before."""
COLUMNS = {
    "keyed": (
        PostgresColumn("k", 1, INT4, "int4", not_null=True),
        PostgresColumn(NUMBER, 2, NUMERIC, "numeric"),
        PostgresColumn(LARGE, 3, TEXT, "text"),
    ),
    "whole": (
        PostgresColumn(NUMBER, 1, NUMERIC, "numeric"),
        PostgresColumn(LARGE, 2, TEXT, "text"),
    ),
}
OIDS = {"keyed": 10, "whole": 20, "foreign": 30}


def begin(commit_lsn):
    return b"B" + struct.pack(">QqI", commit_lsn, 0, 7)


def commit(commit_lsn, end_lsn):
    return b"C" + struct.pack(">BQQq", 0, commit_lsn, end_lsn, 0)


def relation(oid, schema, name, identity, columns):
    """`columns` are (name, oid of its type, whether it belongs to the key)."""
    found = b"R" + struct.pack(">I", oid) + schema.encode() + b"\0" + name.encode() + b"\0"
    found += identity.encode() + struct.pack(">H", len(columns))
    for column, type_oid, is_key in columns:
        found += bytes([is_key]) + column.encode() + b"\0" + struct.pack(">Ii", type_oid, -1)
    return found


def values(row):
    found = struct.pack(">H", len(row))
    for each in row:
        if each is None:
            found += b"n"
        elif each is UNSENT:
            found += b"u"
        else:
            data = each.encode()
            found += b"t" + struct.pack(">I", len(data)) + data
    return found


def insert(oid, new):
    return b"I" + struct.pack(">I", oid) + b"N" + values(new)


def update(oid, new, old=None, kind="O"):
    before = b"" if old is None else kind.encode() + values(old)
    return b"U" + struct.pack(">I", oid) + before + b"N" + values(new)


def delete(oid, old, kind="O"):
    return b"D" + struct.pack(">I", oid) + kind.encode() + values(old)


def truncate(*oids):
    return b"T" + struct.pack(">IB", len(oids), 0) + struct.pack(f">{len(oids)}I", *oids)


@dataclass(frozen=True)
class Row:
    """A row. Who follows the server from a position up to `unread` on lacks values of it."""

    cells: tuple
    unread: int = 0

    def cell(self, name):
        return dict(self.cells).get(name)

    def is_read_from(self, position):
        return self.unread < position


ALWAYS = 1 << 60


def row(unread=0, **cells):
    return Row(tuple(cells.items()), unread)


@dataclass
class FakeTable:
    name: str
    columns: list
    member: int = 1
    rows: list = field(default_factory=list)

    @property
    def oid(self):
        return OIDS[self.name]

    @property
    def key(self):
        return ("k",) if self.name == "keyed" else None

    def now(self):
        identity = "d" if self.key else "f"
        return TableNow(
            self.oid, "public", self.name, self.member, identity, self.key, tuple(self.columns)
        )

    def message(self):
        identity = "d" if self.key else "f"
        columns = [(c.name, c.type_oid, not self.key or c.name in self.key) for c in self.columns]
        return relation(self.oid, "public", self.name, identity, columns)

    def texts(self, found):
        return [found.cell(column.name) for column in self.columns]


@dataclass(frozen=True)
class Transaction:
    commit_lsn: int
    end_lsn: int
    changes: tuple
    """Pairs: the message of the relation, and that of the change."""


def unreachable(reason):
    return user_error(
        "SLACKWATER_SOURCE_UNREACHABLE",
        objectName="s",
        upstream="the publication p",
        connectionName="pg",
        reason=reason,
    )


@dataclass
class FakeServer:
    """`fails`: so many of the next questions are not answered. `is_slow`: after each read that
    brings something, one brings nothing. It sends again what was not confirmed, whatever it is
    asked for. `meanwhile` are transactions that others commit while a copy begins and goes on."""

    tables: dict = field(
        default_factory=lambda: {n: FakeTable(n, list(c)) for n, c in COLUMNS.items()}
    )
    lsn: int = 100
    log: list = field(default_factory=list)
    states: list = field(default_factory=list)
    announced: dict = field(default_factory=dict)
    slot: SlotState | None = None
    fails: int = 0
    waits: int = 0
    is_slow: bool = False
    told: int = 0
    columns_at: dict = field(default_factory=dict)
    meanwhile: list = field(default_factory=list)
    copied_at: int = 0
    copies_fail: int = 0

    def __post_init__(self):
        self.announced = {name: (0, self.names(name)) for name in self.tables}
        self.remember(0)

    def taken(self):
        """The position of a new slot, and what the tables have there."""
        position = self.lsn + 1
        self.lsn += 10
        self.remember(position - 1)
        self.columns_at[position] = {name: self.names(name) for name in self.tables}
        return position, {t.oid: (t.now(), list(t.rows)) for t in self.tables.values()}

    def told_columns(self, announced, name, position):
        """The columns that who follows a table from a position on was told of."""
        at, columns = announced[name]
        return columns if at >= position else self.columns_at[position][name]

    def names(self, table):
        return frozenset(column.name for column in self.tables[table].columns)

    def remember(self, commit_lsn):
        rows = {name: tuple(table.rows) for name, table in self.tables.items()}
        self.states.append((commit_lsn, rows, dict(self.announced)))

    def state_before(self, position):
        """The rows of the tables, and the columns that were told, before a position."""
        return next((r, a) for lsn, r, a in reversed(self.states) if lsn < position)

    def transact(self, changes):
        """`changes` are functions that change a table and return what is sent of it."""
        sent = []
        for change in changes:
            for table, message in change(self):
                head = None if table is None else table.message()
                if table is not None:
                    self.announced[table.name] = (self.lsn, self.names(table.name))
                sent.append((head, message))
        commit_lsn, self.lsn = self.lsn, self.lsn + 10
        self.log.append(Transaction(commit_lsn, commit_lsn + 5, tuple(sent)))
        self.remember(commit_lsn)

    def foreign(self):
        """A transaction of other tables."""
        other = relation(30, "s", "foreign", "f", [("x", INT4, True)])
        commit_lsn, self.lsn = self.lsn, self.lsn + 10
        changes = ((other, insert(30, ["1"])),)
        self.log.append(Transaction(commit_lsn, commit_lsn + 5, changes))

    def answer(self):
        if self.fails:
            self.fails -= 1
            raise unreachable("it is away")


def inserted(name, number, large, key="0"):
    def change(server):
        table = server.tables[name]
        cells = {NUMBER: number, LARGE: large, MORE: f"more than {number}"}
        if table.key:
            if any(each.cell("k") == key for each in table.rows):
                return []
            cells = {"k": key, **cells}
        made = row(ALWAYS if number == "NaN" else 0, **cells)
        table.rows.append(made)
        return [(table, insert(table.oid, table.texts(made)))]

    return change


def updated(name, place, number, large, key=None):
    """`large` None: it stays, and is not sent again if it is large indeed."""

    def change(server):
        table = server.tables[name]
        if not table.rows:
            return []
        at = place % len(table.rows)
        before = table.rows[at]
        cells = {**dict(before.cells), NUMBER: number, MORE: f"changed to {number}"}
        if large is not None:
            cells[LARGE] = large
        moves = table.key and key is not None and all(e.cell("k") != key for e in table.rows)
        if moves:
            cells["k"] = key
        is_unsent = large is None and len(before.cell(LARGE) or "") > 3
        is_there = LARGE in server.names(name)
        unread = ALWAYS if number == "NaN" else 0
        if table.key and is_unsent and is_there and not unread:
            # The row before it is not there for those who follow from before this transaction on.
            unread = min(before.unread, server.lsn)
        after = row(unread, **cells)
        table.rows[at] = after
        new = [
            UNSENT if is_unsent and column.name == LARGE else text
            for column, text in zip(table.columns, table.texts(after), strict=True)
        ]
        if not table.key:
            return [(table, update(table.oid, new, table.texts(before)))]
        if not moves:
            return [(table, update(table.oid, new))]
        old = [before.cell("k") if c.name == "k" else None for c in table.columns]
        return [(table, update(table.oid, new, old, "K"))]

    return change


def deleted(name, place):
    def change(server):
        table = server.tables[name]
        if not table.rows:
            return []
        gone = table.rows.pop(place % len(table.rows))
        if not table.key:
            return [(table, delete(table.oid, table.texts(gone)))]
        old = [gone.cell("k") if c.name == "k" else None for c in table.columns]
        return [(table, delete(table.oid, old, "K"))]

    return change


def truncated(*names):
    def change(server):
        tables = [server.tables[name] for name in names]
        for table in tables:
            table.rows.clear()
            server.announced[table.name] = (server.lsn, server.names(table.name))
        oids = [table.oid for table in tables]
        return [*((table, None) for table in tables), (None, truncate(*oids))]

    return change


class FakeReplication:
    """One client. `size` is the most that one read brings. `is_copy`: its slot is its own."""

    def __init__(self, server: FakeServer, size: int, is_copy: bool = False) -> None:
        self._server = server
        self._size = size
        self._is_copy = is_copy
        self._begins_at: int | None = None
        self._next: int | None = None
        self._queue: list = []
        self._heads: set = set()
        self._snapshot: dict | None = None
        self._alive = 0
        self._rests = False

    def _answer(self):
        if self._is_copy and self._server.copies_fail:
            self._server.copies_fail -= 1
            raise unreachable("all replication slots are in use")
        self._server.answer()

    def identity(self):
        self._answer()
        return ServerIdentity("system", 1)

    def slot(self):
        self._answer()
        return self._server.slot

    def create_slot(self):
        server = self._server
        self._answer()
        if server.waits:
            server.waits -= 1
            return None
        self._let_others_commit()
        self._begins_at, self._snapshot = server.taken()
        if self._is_copy:
            server.copied_at = self._begins_at
        else:
            server.slot = SlotState(self._begins_at)
        return self._begins_at

    def _let_others_commit(self):
        if self._is_copy and self._server.meanwhile:
            self._server.transact(self._server.meanwhile.pop(0))

    def tables(self):
        self._answer()
        if self._snapshot is not None:
            return {oid: now for oid, (now, _) in self._snapshot.items()}
        return {table.oid: table.now() for table in self._server.tables.values()}

    def known_rows(self, oids):
        return sum(len(self._snapshot[oid][1]) for oid in oids if oid in self._snapshot)

    def copy(self, table, columns):
        _, rows = self._snapshot[table.oid]
        for start in range(0, len(rows), self._size):
            self._answer()
            self._let_others_commit()
            chunk = rows[start : start + self._size]
            arrays = [
                pa.array([each.cell(name) for each in chunk], pa.string()) for name in columns
            ]
            yield pa.table(arrays, names=list(columns))

    def start(self, position):
        server = self._server
        self._answer()
        if self._is_copy:
            assert position == self._begins_at
            self._snapshot, self._next = None, position
            return
        assert server.slot is not None
        self._snapshot = None
        assert position >= server.slot.confirmed
        self._next = server.slot.confirmed

    def read(self, limit, wait_ms):
        server = self._server
        self._answer()
        assert self._next is not None, "it was not started"
        self._let_others_commit()
        self._rests = server.is_slow and not self._rests
        if server.is_slow and not self._rests:
            return []
        while len(self._queue) < self._size:
            found = next((t for t in server.log if t.commit_lsn >= self._next), None)
            if found is None:
                break
            self._next = found.commit_lsn + 1
            self._queue += [begin(found.commit_lsn), *self._changes(found)]
            self._queue += [
                Keepalive(server.lsn),
                commit(found.commit_lsn, found.end_lsn),
            ]
        if not self._queue and self._alive != server.lsn:
            self._alive = server.lsn
            self._queue.append(Keepalive(server.lsn))
        taken, self._queue = self._queue[: self._size], self._queue[self._size :]
        return taken

    def _changes(self, transaction):
        for head, message in transaction.changes:
            if head is not None and head not in self._heads:
                self._heads = {h for h in self._heads if h[1:5] != head[1:5]} | {head}
                yield head
            if message is not None:
                yield message

    def confirm(self, position):
        server = self._server
        self._answer()
        assert server.slot is not None
        assert not self._is_copy
        server.told = max(server.told, position)
        server.slot = replace(server.slot, confirmed=max(server.slot.confirmed, position))


class FakeUpstream:
    """The server over a client that is made anew after each `forget`."""

    def __init__(self, server: FakeServer, size: int = 1000, is_copy: bool = False) -> None:
        self._server = server
        self._size = size
        self._is_copy = is_copy
        self._open: FakeReplication | None = None

    def replication(self):
        if self._open is None:
            self._server.answer()
            self._open = FakeReplication(self._server, self._size, self._is_copy)
        return self._open

    def forget(self):
        self._open = None


def source_table(name, export=None):
    return PostgresTable(export or name, "public", name, OIDS[name], COLUMNS[name])
