"""PostgreSQL's logical replication by psycopg.

The seam is `slackwater.storage.postgres.replication`.

Two connections: one for queries and copies, and one that makes the slot, and that the server then
sends its log over. Both belong to one thread at a time. Large tables are copied over some more.

Source: docs/decisions 0072; PostgreSQL's manual, "Streaming Replication Protocol".
"""

from __future__ import annotations

import select
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from slackwater.adapter.external.libraries import psycopg
from slackwater.adapter.external.postgres import CONNECT_S, connection_options
from slackwater.adapter.external.postgres_copies import (
    ConnectionReader,
    ParallelCopy,
    Selection,
    TableSize,
    ranges,
)
from slackwater.adapter.external.trials.postgres import said
from slackwater.adapter.external.trials.steps import StepFailed
from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.storage.access import PostgresAccess
from slackwater.storage.postgres.replication import (
    Keepalive,
    Received,
    ServerIdentity,
    SlotState,
)
from slackwater.storage.postgres.tables import PostgresColumn, TableNow, Tables

SLOT_WAIT_S = 1.0
_COLUMN_LISTS_SINCE = 150000
_RANGES_SINCE = 140000
"""Earlier servers read the whole table for each range."""
_ZERO = "'0/0'::pg_catalog.pg_lsn"
_EPOCH_S = 946_684_800
_STATUS = struct.Struct(">cQQQqB")
_HEAD = struct.Struct(">QQQ")
_ALIVE = struct.Struct(">QQB")
_SETTINGS: dict[str, str] = {
    "client_encoding": "UTF8",
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "search_path": "pg_catalog",
    "row_security": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}
"""The settings under which values have the texts that are read here."""

_TABLES = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relreplident,
  coalesce((SELECT r.oid FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid),
    p.oid)::bigint, {names}, {filter}
FROM pg_publication_tables t JOIN pg_publication p ON p.pubname = t.pubname
JOIN pg_namespace n ON n.nspname = t.schemaname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
WHERE t.pubname = %s ORDER BY n.nspname, c.relname
"""
_COLUMNS = """
WITH RECURSIVE base AS (
  SELECT a.attrelid, a.attnum, a.atttypid AS oid, a.atttypmod AS modifier FROM pg_attribute a
  WHERE a.attrelid = ANY(%s) AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
  SELECT b.attrelid, b.attnum, t.typbasetype,
    CASE WHEN t.typtypmod >= 0 THEN t.typtypmod ELSE b.modifier END
  FROM base b JOIN pg_type t ON t.oid = b.oid AND t.typtype = 'd')
SELECT a.attrelid::bigint, a.attname, a.attnum, a.atttypid::bigint,
  CASE WHEN coalesce(e.typnamespace, t.typnamespace) <> 'pg_catalog'::regnamespace THEN 'text'
    ELSE coalesce(e.typname, t.typname) END,
  b.modifier, e.oid IS NOT NULL AND e.typname <> 'box', a.attnotnull, a.attgenerated <> ''
FROM base b JOIN pg_type t ON t.oid = b.oid AND t.typtype <> 'd'
JOIN pg_attribute a ON a.attrelid = b.attrelid AND a.attnum = b.attnum
LEFT JOIN pg_type e ON e.oid = t.typelem AND e.typarray = t.oid
ORDER BY a.attrelid, a.attnum
"""
_KEYS = """
SELECT i.indrelid::bigint, a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = ANY(%s) AND i.indisvalid AND k.place <= i.indnkeyatts AND (
  c.relreplident = 'd' AND i.indisprimary AND i.indimmediate
  OR c.relreplident = 'i' AND i.indisreplident)
ORDER BY i.indrelid, k.place
"""


@dataclass(frozen=True, slots=True)
class Named:
    """A publication as its source names it, for messages. `connection` is the name of its
    connection, `slot` that of its replication slot, which goes with what made it if it
    `is_temporary`."""

    source: str
    connection: str
    publication: str
    slot: str
    is_temporary: bool = False


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication: whether it says of rows of partitions that they are those of the whole table,
    and which kinds of changes it leaves out."""

    via_root: bool
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServerState:
    """The settings of a server that count, and its user."""

    version: int
    encoding: str
    wal_level: str
    is_standby: bool
    free_slots: int
    free_senders: int
    user: str


class PostgresReplication:
    """One server over its connections. See `Replication`."""

    def __init__(
        self,
        access: PostgresAccess,
        named: Named,
        confirm: Callable[[], None] = lambda: None,
        connections: int = 1,
    ) -> None:
        """`confirm` raises when somebody else leads, who may use the slot. A large table is copied
        over so many `connections`."""
        self._library = psycopg()
        self._access = access
        self.named = named
        self._confirm = confirm
        self._connections = connections
        self._snapshot = ""
        self._copying: ParallelCopy | None = None
        self._log: Any = None
        self._is_asked = self._is_streaming = False
        self._confirmed = 0
        self._sql = self._connected()

    def close(self) -> None:
        """Ends the connections."""
        self._end_copy()
        for each in (self._log, self._sql):
            if each is not None:
                each.close()

    def server(self) -> ServerState:
        """The settings of the server that count."""
        row = self._rows(
            "SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),"
            " current_setting('wal_level'), pg_is_in_recovery(),"
            " current_setting('max_replication_slots')::int"
            " - (SELECT count(*) FROM pg_replication_slots)::int,"
            " current_setting('max_wal_senders')::int"
            " - (SELECT count(*) FROM pg_stat_replication)::int, current_user"
        )[0]
        return ServerState(*row)

    def publication(self) -> Publication | None:
        """The publication; None: there is none of that name."""
        rows = self._rows(
            "SELECT pubviaroot, pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_publication"
            " WHERE pubname = %s",
            (self.named.publication,),
        )
        if not rows:
            return None
        via_root, *has = rows[0]
        kinds = zip(("insert", "update", "delete", "truncate"), has, strict=True)
        return Publication(via_root, tuple(kind for kind, is_there in kinds if not is_there))

    def unreadable(self, oids: Sequence[int]) -> list[str]:
        """The names of those of the tables that the user may not read, as SQL."""
        rows = self._rows(
            "SELECT format('%%I.%%I', n.nspname, c.relname) FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY(%s::oid[]) AND NOT"
            " (has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'))",
            (list(oids),),
        )
        return [name for (name,) in rows]

    def identity(self) -> ServerIdentity:
        """Raises SLACKWATER_UPSTREAM_PERMISSION besides."""
        found = self._command("IDENTIFY_SYSTEM")
        return ServerIdentity(found[0], int(found[1]))

    def slot(self) -> SlotState | None:
        rows = self._rows(
            f"SELECT (confirmed_flush_lsn - {_ZERO})::bigint, wal_status = 'lost',"
            " CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_lsn() - restart_lsn END::bigint"
            " FROM pg_replication_slots WHERE slot_name = %s",
            (self.named.slot,),
        )
        if not rows:
            return None
        confirmed, is_lost, retained = rows[0]
        return SlotState(confirmed or 0, bool(is_lost), retained or 0)

    def create_slot(self) -> int | None:
        if not self._is_asked:
            if self.named.is_temporary:
                self._free_slot()
            else:
                self.drop_slot()
            slot = quoted(self.named.slot) + (" TEMPORARY" if self.named.is_temporary else "")
            command = f"CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput EXPORT_SNAPSHOT"
            self._tried(lambda: self._stream.send_query(command.encode()))
            self._is_asked = True
        result = self._tried(self._answer)
        if result is None:
            return None
        self._is_asked = False
        _, position, snapshot, _ = self._values(result)
        self._snapshot = snapshot
        self._tried(lambda: self._join(self._sql))
        return _position(position)

    def drop_slot(self) -> None:
        """Removes the slot, if there is one. What is connected to it is an earlier self."""
        self._rows("SELECT 1")
        if self._free_slot():
            self._rows("SELECT pg_drop_replication_slot(%s)", (self.named.slot,))

    def remove_others(self, prefix: str, is_known: Callable[[str], bool]) -> None:
        """Removes slots whose names begin so, that nobody reads, and that are not known."""
        rows = self._rows(
            "SELECT slot_name FROM pg_replication_slots WHERE NOT active"
            " AND database = current_database() AND starts_with(slot_name::text, %s)",
            (prefix,),
        )
        for name in (name for (name,) in rows if not is_known(name)):
            self._confirm()
            self._rows("SELECT pg_drop_replication_slot(%s)", (name,))

    def tables(self) -> Tables:
        has_lists = self._sql.info.server_version >= _COLUMN_LISTS_SINCE
        query = _TABLES.format(
            names="t.attnames::text[]" if has_lists else "NULL",
            filter="t.rowfilter" if has_lists else "NULL",
        )
        found = self._rows(query, (self.named.publication,))
        oids = [row[0] for row in found]
        keys: dict[int, list[str]] = defaultdict(list)
        for oid, name in self._rows(_KEYS, (oids,)):
            keys[oid].append(name)
        columns: dict[int, list[tuple[PostgresColumn, bool]]] = defaultdict(list)
        for oid, *column, is_generated in self._rows(_COLUMNS, (oids,)):
            columns[oid].append((PostgresColumn(*column), is_generated))
        if not found and self.publication() is None:
            raise self.unknown_publication()
        made = {}
        for oid, schema, name, identity, member, names, row_filter in found:
            chosen = [
                column
                for column, is_generated in columns[oid]
                if (column.name in names if names is not None else not is_generated)
            ]
            hidden = [column.name for column, _ in columns[oid] if column not in chosen]
            key = tuple(keys[oid]) or None
            made[oid] = TableNow(
                oid, schema, name, member, identity, key, tuple(chosen), tuple(hidden), row_filter
            )
        return made

    def known_rows(self, oids: Collection[int]) -> int | None:
        found = self._rows(
            "SELECT sum(reltuples)::bigint FROM pg_class WHERE oid = ANY(%s)"
            # Of a table that was never analyzed, servers say so in one of two ways.
            " HAVING NOT bool_or(reltuples < 0 OR reltuples = 0 AND relpages > 0)",
            (list(oids),),
        )
        return int(found[0][0]) if found else None

    def copy(self, table: TableNow, columns: Sequence[str]) -> Iterator[pa.Table]:
        selection = Selection(
            tuple(columns),
            ", ".join(map(quoted, columns)),
            f"{quoted(table.schema)}.{quoted(table.name)}",
            table.row_filter,
        )
        wanted = ranges(self._size(table.oid), self._connections)
        others = self._joined(min(self._connections, len(wanted)) - 1)
        readers = [ConnectionReader(each, selection) for each in (self._sql, *others)]
        try:
            if others:
                self._copying = ParallelCopy(readers, wanted)
                yield from self._copying.pieces()
            else:
                yield from readers[0].rows(None)
        except self._library.Error as error:
            raise self._unreachable(error) from None
        finally:
            self._end_copy()
            for reader in readers:
                reader.close()
            for each in others:
                each.close()

    def _size(self, oid: int) -> TableSize:
        """The size of a table; nothing where ranges of it cannot be read by themselves."""
        found = self._rows(
            "SELECT pg_relation_size(c.oid) / current_setting('block_size')::bigint,"
            " pg_table_size(c.oid) FROM pg_class c JOIN pg_am a ON a.oid = c.relam"
            " WHERE c.oid = %s AND a.amname = 'heap'",
            (oid,),
        )
        has_ranges = found and self._sql.info.server_version >= _RANGES_SINCE
        return TableSize(*found[0]) if has_ranges else TableSize(0, 0)

    def _joined(self, count: int) -> list[Any]:
        """So many more connections that have the snapshot, or as many as the server gives."""
        found: list[Any] = []
        while len(found) < count:
            try:
                connection = self._connected()
            except SlackwaterError:
                break
            found.append(connection)
        try:
            for each in found:
                self._join(each)
        except self._library.Error as error:
            for each in found:
                each.close()
            raise self._unreachable(error) from None
        return found

    def _join(self, connection: Any) -> None:
        """Lets a connection see what the slot's snapshot has."""
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute(f"SET TRANSACTION SNAPSHOT {_literal(self._snapshot)}")

    def _end_copy(self) -> None:
        """Ends the threads that copy, after which nobody uses the connections."""
        if self._copying is not None:
            self._copying.end()
            self._copying = None

    def start(self, position: int) -> None:
        if self._sql.info.transaction_status != self._library.pq.TransactionStatus.IDLE:
            self._tried(self._sql.rollback)
        if not self.named.is_temporary:
            self._free_slot()
        publication = _literal(quoted(self.named.publication))
        slot, at = quoted(self.named.slot), f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"
        options = f"proto_version '1', publication_names {publication}"
        command = f"START_REPLICATION SLOT {slot} LOGICAL {at} ({options})"
        stream = self._stream
        result = self._tried(lambda: stream.exec_(command.encode()))
        if result.status != self._library.pq.ExecStatus.COPY_BOTH:
            raise self._refused(result)
        self._confirmed, self._is_streaming = position, True

    def read(self, limit: int, wait_ms: int) -> Sequence[Received]:
        found: list[Received] = []
        try:
            while len(found) < limit:
                size, data = self._stream.get_copy_data(1)
                if size > 0:
                    self._take(bytes(data), found)
                elif size < 0:
                    raise self._refused(self._stream.get_result())
                elif found or not self._arrives(wait_ms):
                    break
        except self._library.Error as error:
            raise self._unreachable(error) from None
        return found

    def _take(self, data: bytes, found: list[Received]) -> None:
        if data[:1] == b"w":
            found.append(data[1 + _HEAD.size :])
        elif data[:1] == b"k":
            end, _, wants_answer = _ALIVE.unpack_from(data, 1)
            found.append(Keepalive(end))
            if wants_answer:
                self.confirm(self._confirmed)

    def _arrives(self, wait_ms: int) -> bool:
        """Whether something comes within that time."""
        waiting = select.poll()
        waiting.register(self._stream.socket, select.POLLIN)
        if not waiting.poll(wait_ms):
            return False
        self._stream.consume_input()
        return True

    def confirm(self, position: int) -> None:
        if not self._is_streaming:
            return
        self._confirmed = max(self._confirmed, position)
        at, now_us = self._confirmed, int((time.time() - _EPOCH_S) * 1e6)
        status = _STATUS.pack(b"r", at, at, at, now_us, 0)
        self._tried(lambda: (self._stream.put_copy_data(status), self._stream.flush()))

    def unknown_publication(self) -> SlackwaterError:
        """SLACKWATER_UNKNOWN_PUBLICATION."""
        return user_error(
            "SLACKWATER_UNKNOWN_PUBLICATION",
            connectionName=self.named.connection,
            publication=self.named.publication,
        )

    @property
    def _stream(self) -> Any:
        """The connection of the log, as libpq has it."""
        if self._log is None:
            self._log = self._connected(replication="database")
        return self._log.pgconn

    def _connected(self, **more: str) -> Any:
        options = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
        try:
            with connection_options(self._access) as found:
                return self._library.connect(
                    **found, **more, options=options, connect_timeout=CONNECT_S, autocommit=True
                )
        except StepFailed as failed:
            raise self._unreachable(failed) from None
        except self._library.Error as error:
            reason = said(str(error))
            if more and ("walsender" in reason.lower() or "wal sender" in reason.lower()):
                raise self._without_permission(reason) from None
            raise self._unreachable(error) from None

    def _without_permission(self, reason: str) -> SlackwaterError:
        user = quoted(self._access.user)
        return user_error(
            "SLACKWATER_UPSTREAM_PERMISSION",
            user=self._access.user,
            connectionName=self.named.connection,
            what=self._access.scrubbed(reason).rstrip("."),
            advice=f"Say there: ALTER ROLE {user} REPLICATION",
        )

    def _free_slot(self) -> bool:
        """Whether there is the slot. Who is connected to it, an earlier self, is disconnected."""
        rows = self._rows(
            "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", (self.named.slot,)
        )
        if rows and rows[0][0] is not None:
            self._confirm()
            self._rows("SELECT pg_terminate_backend(%s)", (rows[0][0],))
            gone = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active"
            until = time.monotonic() + SLOT_WAIT_S
            while self._rows(gone, (self.named.slot,)) and time.monotonic() < until:
                select.poll().poll(10)
        return bool(rows)

    def _answer(self) -> Any:
        """The answer to the command that was sent; None: there is none yet."""
        until = time.monotonic() + SLOT_WAIT_S
        stream = self._stream
        while stream.is_busy():
            left_ms = int(1000 * (until - time.monotonic()))
            if left_ms <= 0 or not self._arrives(left_ms):
                return None
        result = stream.get_result()
        while stream.get_result() is not None:
            pass
        return result

    def _command(self, command: str) -> list[str]:
        """The values of the answer's row. Raises what the server says."""
        stream = self._stream
        return self._values(self._tried(lambda: stream.exec_(command.encode())))

    def _values(self, result: Any) -> list[str]:
        if result is None or result.status != self._library.pq.ExecStatus.TUPLES_OK:
            raise self._refused(result)
        return [(result.get_value(0, n) or b"").decode() for n in range(result.nfields)]

    def _rows(self, query: str, parameters: Sequence[object] = ()) -> list[Any]:
        found: list[Any] = self._tried(
            lambda: self._sql.execute(query, parameters or None).fetchall()
        )
        return found

    def _tried(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except self._library.Error as error:
            raise self._unreachable(error) from None

    def _refused(self, result: Any) -> SlackwaterError:
        message = b"" if result is None else result.error_message
        return self._unreachable(message.decode(errors="replace") or "it has closed the connection")

    def _unreachable(self, error: object) -> SlackwaterError:
        return user_error(
            "SLACKWATER_SOURCE_UNREACHABLE",
            objectName=self.named.source,
            upstream=f"the publication {self.named.publication}",
            connectionName=self.named.connection,
            reason=self._access.scrubbed(said(str(error))).rstrip("."),
        )


def _position(text: str) -> int:
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def quoted(name: str) -> str:
    """`name` as an identifier of PostgreSQL's, which keeps its case."""
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@dataclass(slots=True)
class PostgresUpstream:
    """The server over the connection as it is now. See `slackwater.storage.postgres.replication`.

    `version` says without asking for secrets whether the connection was altered. `opened` is called
    for each server that was connected to. A large table is copied over so many `connections`.
    """

    named: Named
    access: Callable[[], PostgresAccess]
    version: Callable[[], str]
    confirm: Callable[[], None]
    opened: Callable[[PostgresReplication], None] = lambda _: None
    connections: int = 1
    _open: PostgresReplication | None = field(default=None, init=False)
    _opened: str = field(default="", init=False)

    def replication(self) -> PostgresReplication:
        if self._open is not None and self._opened != self.version():
            self.forget()
        if self._open is None:
            access = self.access()
            self._open = PostgresReplication(access, self.named, self.confirm, self.connections)
            self._opened = access.version
            self.opened(self._open)
        return self._open

    def forget(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
