"""New sources that read tables of PostgreSQL: from the statement to the items of the catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import PostgresDetails, PostgresSettings, PublishedTable
from slackwater.adapter.catalog.model import CatalogItem, CatalogState
from slackwater.adapter.catalog.render import name_of
from slackwater.adapter.ddl.planned_schemas import connection_named
from slackwater.adapter.external.postgres_replication import (
    Named,
    PostgresReplication,
    Publication,
    ServerState,
    quoted,
)
from slackwater.adapter.sources.descriptions import DEFAULT_INTERVAL_MS
from slackwater.adapter.sources.postgres import PostgresSources
from slackwater.adapter.sources.references import found_reference
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.postgres_source import PostgresSource
from slackwater.planner.parser.source_tables import CreateTableFromSource
from slackwater.repr.errors import SlackwaterError, invalid_option, unsupported, user_error
from slackwater.repr.relation import RelationDesc, quote_identifier
from slackwater.storage.postgres.replication import ServerIdentity, refuse_another
from slackwater.storage.postgres.tables import PostgresTable, TableNow, Tables
from slackwater.storage.postgres.types import source_columns

LEAST_INTERVAL_MS = 50
MOST_INTERVAL_MS = 30_000
"""A server ends the connection of who is silent for a minute."""
LEAST_VERSION = 130000
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class PlannedPublication:
    """The details of a new source that reads a publication, and the columns of its tables.

    `statement` has the full name of the connection, which means the same everywhere. `notices` is
    what is to be told.
    """

    statement: st.CreateSource
    tables: tuple[tuple[PostgresTable, RelationDesc], ...]
    details: PostgresDetails
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """A table that a source reads, its columns, and what is to be told of it."""

    table: PostgresTable
    desc: RelationDesc
    notices: tuple[str, ...]


class PostgresPlanner:
    """Plans sources that read publications, at which it looks."""

    def __init__(self, state: Callable[[], CatalogState], postgres: PostgresSources) -> None:
        self._state = state
        self._postgres = postgres

    def plan(
        self, blank: CatalogItem, context: Context, statement: st.CreateSource
    ) -> PlannedPublication:
        """The source `blank`.

        Raises SLACKWATER_UNKNOWN_OBJECT, SLACKWATER_SOURCE_UNREACHABLE,
        SLACKWATER_UNKNOWN_PUBLICATION, SLACKWATER_UNKNOWN_UPSTREAM_TABLE,
        SLACKWATER_UPSTREAM_SETTING, SLACKWATER_UPSTREAM_PERMISSION, SLACKWATER_CONNECTOR_MISSING,
        and errors of options and columns.
        """
        connector = statement.connector
        if not isinstance(connector, PostgresSource):
            raise AssertionError(f"{blank.full_name} reads no publication")
        interval = statement.timestamp_interval_ms or DEFAULT_INTERVAL_MS
        if not LEAST_INTERVAL_MS <= interval <= MOST_INTERVAL_MS:
            raise invalid_option(
                "TIMESTAMP INTERVAL",
                "CREATE SOURCE",
                f"{interval} ms",
                f"the least is {LEAST_INTERVAL_MS} ms, the most {MOST_INTERVAL_MS} ms",
            )
        connection = connection_named(self._state(), context, connector.connection, "POSTGRES")
        slot = self._postgres.slot_of(blank.id)
        named = Named(blank.full_name, connection.full_name, connector.publication, slot)
        with self._postgres.looked_at(named, connection.id) as server:
            check(blank.full_name, server.server(), server.publication(), server)
            identity = server.identity()
            upstream = server.tables()
            tables = chosen(connector, upstream)
            refuse_unreadable(server, tables)
        settings = PostgresSettings(
            connector.publication,
            slot,
            identity.system,
            identity.timeline,
            tables,
            connector.snapshot_connections,
        )
        details = PostgresDetails(
            settings,
            connection.id,
            interval_ms=interval,
            retain_history_ms=statement.retain_history_ms,
            referenced=published(upstream),
        )
        shown = replace(statement, connector=replace(connector, connection=name_of(connection)))
        described = tuple((each, columns_of(each)) for each in tables)
        return PlannedPublication(shown, described, details, tuple(_notices(tables, upstream)))

    def table(
        self, source: CatalogItem, statement: CreateTableFromSource, export: str
    ) -> PlannedTable:
        """A table of that source, which reads the publication, with the name of its export.

        Raises SLACKWATER_UNKNOWN_REFERENCE, SLACKWATER_SOURCE_REPLACED, and what `plan` raises of
        the server, of options and columns.
        """
        with self._looked_at(source) as server:
            check(source.full_name, server.server(), server.publication(), server)
            upstream = server.tables()
            by_name: dict[tuple[str, ...], TableNow] = {
                (each.schema, each.name): each for each in upstream.values()
            }
            reference = found_reference(source.full_name, by_name, statement.reference)
            found = by_name[reference]
            of_columns = {
                option: [(found.oid, _named(found, name, option, "CREATE TABLE")) for name in names]
                for option, names in (
                    ("TEXT COLUMNS", statement.text_columns),
                    ("EXCLUDE COLUMNS", statement.exclude_columns),
                )
            }
            table = _kept(found, export, of_columns)
            refuse_unreadable(server, [table])
        return PlannedTable(table, columns_of(table), tuple(_notices([table], upstream)))

    def published(self, source: CatalogItem) -> tuple[PublishedTable, ...]:
        """The tables that the publication of a source has now.

        Raises SLACKWATER_SOURCE_UNREACHABLE, SLACKWATER_UNKNOWN_PUBLICATION,
        SLACKWATER_SOURCE_REPLACED, SLACKWATER_CONNECTOR_MISSING.
        """
        return published(self.upstream(source))

    def upstream(self, source: CatalogItem) -> Tables:
        """The tables that the publication of a source has now. Raises what `published` raises."""
        with self._looked_at(source) as server:
            return server.tables()

    @contextmanager
    def _looked_at(self, source: CatalogItem) -> Iterator[PostgresReplication]:
        """The server of a source, which is the one that it was created for."""
        details = source.of(PostgresDetails)
        config, connection = details.config, self._state().item(details.connection)
        named = Named(source.full_name, connection.full_name, config.publication, config.slot)
        with self._postgres.looked_at(named, connection.id) as server:
            before = ServerIdentity(config.system, config.timeline)
            refuse_another(source.full_name, before, server.identity())
            yield server


def published(tables: Tables) -> tuple[PublishedTable, ...]:
    """The tables of a publication with the names of their columns."""
    return tuple(
        PublishedTable(each.schema, each.name, tuple(column.name for column in each.columns))
        for each in tables.values()
    )


def refuse_unreadable(server: PostgresReplication, tables: Sequence[PostgresTable]) -> None:
    """Raises SLACKWATER_UPSTREAM_PERMISSION for tables that the user may not read."""
    unreadable = server.unreadable([each.oid for each in tables])
    if unreadable:
        user = server.server().user
        raise user_error(
            "SLACKWATER_UPSTREAM_PERMISSION",
            user=user,
            connectionName=server.named.connection,
            what=f"it may not read {_listed(unreadable)}",
            advice=f"Say there: GRANT SELECT ON {', '.join(unreadable)} TO "
            f"{quoted(user)}, and GRANT USAGE ON their schemas.",
        )


def check(
    source: str,
    state: ServerState,
    publication: Publication | None,
    server: PostgresReplication,
) -> None:
    """Raises what is wrong with the server's settings, or with the publication."""

    def refused(what: str, advice: str) -> SlackwaterError:
        return user_error(
            "SLACKWATER_UPSTREAM_SETTING", objectName=source, what=what, advice=advice
        )

    if state.version < LEAST_VERSION:
        raise refused(
            f"the server's version is {state.version // 10000}", "Servers from 13 on are read."
        )
    if state.is_standby:
        raise refused("the server is a standby", "Let the connection lead to the primary.")
    if state.wal_level != "logical":
        raise refused(
            f"its wal_level is {state.wal_level}",
            "Say there: ALTER SYSTEM SET wal_level = 'logical', and restart the server.",
        )
    if state.free_slots <= 0:
        raise refused(
            "all its replication slots are taken",
            "SELECT * FROM pg_replication_slots shows them; ALTER SYSTEM SET max_replication_slots"
            " = ... and a restart give it more.",
        )
    if state.free_senders <= 0:
        raise refused(
            "as many clients follow its log as may",
            "ALTER SYSTEM SET max_wal_senders = ... and a restart allow more.",
        )
    if state.encoding == "SQL_ASCII":
        raise refused(
            "the encoding of the database is SQL_ASCII", "Its texts may be anything; use UTF8."
        )
    if publication is None:
        raise server.unknown_publication()
    name = quoted(server.named.publication)
    if publication.via_root:
        raise refused(
            "the publication says publish_via_partition_root",
            f"Say there: ALTER PUBLICATION {name} SET (publish_via_partition_root = false); the "
            "source then has each partition.",
        )
    if publication.left_out:
        raise refused(
            f"the publication leaves out {' and '.join(publication.left_out)}",
            f"Say there: ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, "
            "truncate').",
        )


def chosen(connector: PostgresSource, upstream: Tables) -> tuple[PostgresTable, ...]:
    """The tables that the statement chooses of those of the publication.

    Raises SLACKWATER_UNKNOWN_UPSTREAM_TABLE, and SLACKWATER_INVALID_OPTION for names that two
    tables would have, and for columns that cannot be left out.
    """
    picked: list[tuple[TableNow, str]] = []
    if connector.is_bare:
        return ()
    if connector.tables:
        for each in connector.tables:
            found = _table(connector, upstream, each.name)
            picked.append((found, each.alias or found.name))
    elif connector.schemas:
        for schema in connector.schemas:
            found_in = [each for each in upstream.values() if each.schema == schema]
            if not found_in:
                schemas = sorted({table.schema for table in upstream.values()})
                raise _unknown(connector, f"tables in the schema {schema}", schemas)
            picked += [(each, each.name) for each in found_in]
    else:
        if not upstream:
            raise _unknown(connector, "tables", [])
        picked = [(each, each.name) for each in upstream.values()]
    _refuse_doubles(picked)
    of_columns = {
        option: [_column(connector, upstream, option, name) for name in names]
        for option, names in (
            ("TEXT COLUMNS", connector.text_columns),
            ("EXCLUDE COLUMNS", connector.exclude_columns),
        )
    }
    oids = {table.oid for table, _ in picked}
    for option, columns in of_columns.items():
        for oid, name in columns:
            if oid not in oids:
                raise _invalid(option, name, "the source does not have its table")
    return tuple(_kept(table, export, of_columns) for table, export in picked)


def _kept(
    table: TableNow, export: str, of_columns: dict[str, list[tuple[int, str]]]
) -> PostgresTable:
    texts, left_out = (
        {name for oid, name in of_columns[option] if oid == table.oid}
        for option in ("TEXT COLUMNS", "EXCLUDE COLUMNS")
    )
    for name in table.key or ():
        if name in left_out:
            reason = f"it belongs to the key of {table.schema}.{table.name}"
            raise _invalid("EXCLUDE COLUMNS", name, reason)
    columns = tuple(each for each in table.columns if each.name not in left_out)
    if not columns:
        raise unsupported(
            f"The table {table.schema}.{table.name}, which has no columns to read",
            advice="Choose the other tables by FOR TABLES (...).",
        )
    return PostgresTable(
        export,
        table.schema,
        table.name,
        table.oid,
        columns,
        tuple(each.name for each in columns if each.name in texts),
    )


def _refuse_doubles(picked: Sequence[tuple[TableNow, str]]) -> None:
    seen: dict[str, TableNow] = {}
    for table, export in picked:
        other = seen.setdefault(export.casefold(), table)
        if other is not table:
            raise invalid_option(
                "FOR TABLES",
                "CREATE SOURCE",
                export,
                f"{other.schema}.{other.name} and {table.schema}.{table.name} would have this "
                "name; FOR TABLES (a.b AS c, ...) gives others",
            )
    oids = [table.oid for table, _ in picked]
    for table, export in picked:
        if oids.count(table.oid) > 1:
            reason = f"the source has {table.schema}.{table.name} twice"
            raise invalid_option("FOR TABLES", "CREATE SOURCE", export, reason)


def _table(connector: PostgresSource, upstream: Tables, name: QualifiedName) -> TableNow:
    """The table of the publication that a name means: as it is written, or in any case."""
    names = {(each.schema, each.name): each for each in upstream.values()}
    wanted = name.parts
    for same in (lambda text: text, str.casefold):
        found = [
            table
            for parts, table in names.items()
            if tuple(map(same, parts[-len(wanted) :])) == tuple(map(same, wanted))
        ]
        if len(found) == 1:
            return found[0]
        if found:
            schemas = _listed([table.schema for table in found])
            reason = f"the publication has tables of this name in {schemas}"
            raise invalid_option("FOR TABLES", "CREATE SOURCE", str(name), reason)
    known = [f"{schema}.{own}" for schema, own in names]
    raise _unknown(connector, f"table {name}", known)


def _column(
    connector: PostgresSource, upstream: Tables, option: str, name: QualifiedName
) -> tuple[int, str]:
    table = _table(connector, upstream, QualifiedName(name.parts[:-1]))
    return table.oid, _named(table, name.last, option, "CREATE SOURCE")


def _named(table: TableNow, wanted: str, option: str, statement: str) -> str:
    """The column that a name means: as it is written, or in any case."""
    for same in (lambda text: text, str.casefold):
        found = [each.name for each in table.columns if same(each.name) == same(wanted)]
        if len(found) == 1:
            return found[0]
    reason = f"{table.schema}.{table.name} has no such column"
    raise invalid_option(option, statement, wanted, reason)


def _invalid(option: str, name: str, reason: str) -> SlackwaterError:
    return invalid_option(option, "CREATE SOURCE", name, reason)


def _unknown(connector: PostgresSource, what: str, known: Sequence[str]) -> SlackwaterError:
    return user_error(
        "SLACKWATER_UNKNOWN_UPSTREAM_TABLE",
        publication=connector.publication,
        what=what,
        known=_listed(known) or "none",
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def columns_of(table: PostgresTable) -> RelationDesc:
    """The columns of a table. Raises SLACKWATER_DUPLICATE_COLUMN: here case does not count."""
    desc = source_columns(table)
    seen: set[str] = set()
    for name in desc.names:
        if name.casefold() in seen:
            raise user_error(
                "SLACKWATER_DUPLICATE_COLUMN", columnName=name, objectName=table.full_name
            )
        seen.add(name.casefold())
    desc.arrow_schema()
    return desc


def _notices(tables: Sequence[PostgresTable], upstream: Tables) -> Sequence[str]:
    """Tells of columns and of changes that do not come."""
    found = []
    for table in tables:
        now = upstream[table.oid]
        if now.hidden:
            names = ", ".join(map(quote_identifier, now.hidden))
            found.append(f"The publication leaves out columns of {table.full_name}: {names}.")
        if now.key is None and now.identity != "f":
            found.append(
                f"{table.full_name} has no replica identity: only rows that are added can come. "
                "A primary key, or REPLICA IDENTITY FULL, lets it change."
            )
    return found
