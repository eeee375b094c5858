"""ALTER SOURCE ... REFRESH SCHEMA of a source that reads a publication.

The catalog gets the columns at once, NULL in all rows. The source then copies the tables that it
follows without them, whoever leads by then: nothing else is kept of the statement.

Source: docs/decisions 0097.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from slackwater.adapter.catalog.details import (
    PostgresDetails,
    SourceTableDetails,
    SubsourceDetails,
)
from slackwater.adapter.catalog.model import CatalogItem, CatalogState
from slackwater.adapter.catalog.ops import AlterItem, CatalogOp
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.ddl.columns import refuse_refreshed_columns
from slackwater.adapter.ddl.planned_postgres import PostgresPlanner, columns_of
from slackwater.adapter.sessions.sessions import Execution
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.parse import parse
from slackwater.planner.parser.postgres_source import PostgresSource
from slackwater.planner.parser.source_tables import CreateTableFromSource
from slackwater.repr.relation import RelationDesc
from slackwater.storage.postgres.tables import PostgresTable, Tables, widened


@dataclass(frozen=True, slots=True)
class _Widened:
    """A table that gets columns: its item, what it reads of the upstream, and all its columns."""

    item: CatalogItem
    table: PostgresTable
    desc: RelationDesc


@dataclass(frozen=True, slots=True)
class PublishedColumns:
    """The columns that tables of a publication have by now."""

    changes: Changes
    planner: PostgresPlanner

    def take(
        self, execution: Execution, source: CatalogItem, exports: Collection[str] | None
    ) -> frozenset[str]:
        """Gives tables of a source the columns that they have upstream besides.

        `exports` None: all of them. All of them change, or none. Returns the exports of those that
        do. Raises SLACKWATER_DEPENDENT_OBJECTS, SLACKWATER_DUPLICATE_COLUMN, and what
        `PostgresPlanner.upstream` raises.
        """
        upstream = self.planner.upstream(source)
        with self.changes.defining(execution.cancellation):
            state = self.changes.state
            found = [
                each
                for each in _widened_tables(state, source, upstream)
                if exports is None or each.table.export in exports
            ]
            for each in found:
                refuse_refreshed_columns(each.item, state)
            if found:
                made = self._altered(state.item(source.id), found)
                self.changes.commit(
                    lambda conn: [op for make in made for op in make(conn)], execution.user
                )
        return frozenset(each.table.export for each in found)

    def _altered(
        self, source: CatalogItem, found: Sequence[_Widened]
    ) -> list[Callable[[Connection], Sequence[CatalogOp]]]:
        details = source.of(PostgresDetails)
        by_export = {each.table.export: each.table for each in found}
        tables = tuple(by_export.get(each.export, each) for each in details.config.tables)
        known = replace(details, config=replace(details.config, tables=tables))
        altered = [AlterItem(source.id, details=known)] if known != details else []
        made: list[Callable[[Connection], Sequence[CatalogOp]]] = [lambda _: altered]
        for each in found:
            own = each.item.details
            if isinstance(own, SourceTableDetails):
                own = replace(own, upstream=each.table)
            alter = AlterItem(each.item.id, details=own)
            made.append(self.changes.with_columns(each.item, each.desc, alter))
        return made


def _widened_tables(
    state: CatalogState, source: CatalogItem, upstream: Tables
) -> Sequence[_Widened]:
    """The tables of a source that have more columns upstream than here.

    Raises SLACKWATER_DUPLICATE_COLUMN.
    """
    details = state.item(source.id).of(PostgresDetails)
    followed = [
        (state.item(details.exports[each.export]), each)
        for each in details.config.tables
        if each.export in details.exports
    ]
    for item in state.tables_of(source.id).values():
        table = item.of(SourceTableDetails).upstream
        if table is not None:
            followed.append((item, table))
    found = []
    for item, table in followed:
        now = upstream.get(table.oid)
        if now is None:
            continue
        wide = widened(table, now, _left_out(source, item, table))
        if wide != table:
            before = item.stored.desc.columns
            added = columns_of(wide).columns[len(before) :]
            found.append(_Widened(item, wide, RelationDesc((*before, *added))))
    return found


def _left_out(source: CatalogItem, item: CatalogItem, table: PostgresTable) -> frozenset[str]:
    """The columns that EXCLUDE COLUMNS names for a table, in lower case."""
    statement = parse(
        source.create_sql if isinstance(item.details, SubsourceDetails) else item.create_sql
    )
    match statement:
        case CreateTableFromSource(exclude_columns=names):
            return frozenset(each.casefold() for each in names)
        case st.CreateSource(connector=PostgresSource(exclude_columns=of_tables)):
            return frozenset(each.last.casefold() for each in of_tables if _is_of(each, table))
        case _:
            raise AssertionError(f"the statement of {item.id} reads no publication")


def _is_of(column: QualifiedName, table: PostgresTable) -> bool:
    """Whether a name, as `schema.table.column` or shorter, is that of a column of the table."""
    above = [part.casefold() for part in column.parts[:-1]]
    return above == [table.schema.casefold(), table.name.casefold()][-len(above) :]
