"""The grammar of ``FROM POSTGRES``. Source: surface 4, docs/decisions 0072."""

from __future__ import annotations

from collections.abc import Mapping

from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.options import (
    OptionValue,
    ReadValue,
    invalid_value,
    positive_integer_to,
    read_options,
    text,
)
from slackwater.planner.parser.postgres_source import PostgresSource, UpstreamTable
from slackwater.planner.parser.tokens import TokenCursor

MOST_CONNECTIONS = 32
"""The most connections over which one table is copied."""
_FOR = "FOR ALL TABLES, FOR SCHEMAS (...) or FOR TABLES (...)"


def read_postgres(cursor: TokenCursor) -> PostgresSource:
    """Reads the statement's rest after POSTGRES, up to EXPOSE or WITH."""
    cursor.expect("CONNECTION")
    connection = cursor.name("a connection")
    columns: dict[str, tuple[QualifiedName, ...]] = {}

    def column_names(cursor: TokenCursor, option: str) -> OptionValue:
        columns[option] = _columns(cursor, option)
        return True

    known: Mapping[str, ReadValue] = {
        "PUBLICATION": text,
        "SNAPSHOT CONNECTIONS": positive_integer_to(MOST_CONNECTIONS),
        "TEXT COLUMNS": column_names,
        "EXCLUDE COLUMNS": column_names,
    }
    options = read_options(cursor, known)
    if "PUBLICATION" not in options:
        raise cursor.syntax_error("the option PUBLICATION", cursor.at(cursor.mark - 1))
    tables: tuple[UpstreamTable, ...] = ()
    schemas: tuple[str, ...] = ()
    is_bare = not cursor.accept("FOR")
    if is_bare:
        for option in columns:
            advice = f"Say which tables it has, by {_FOR}, or give the option to CREATE TABLE."
            raise cursor.unsupported(f"{option} of a source without tables", advice)
    elif cursor.accept("TABLES"):
        tables = _tables(cursor)
    elif cursor.accept("SCHEMAS"):
        schemas = cursor.identifiers()
    elif not cursor.accept("ALL", "TABLES"):
        raise cursor.syntax_error("ALL TABLES, SCHEMAS (...) or TABLES (...)")
    return PostgresSource(
        connection,
        str(options["PUBLICATION"]),
        tables,
        schemas,
        columns.get("TEXT COLUMNS", ()),
        columns.get("EXCLUDE COLUMNS", ()),
        is_bare,
        int(options["SNAPSHOT CONNECTIONS"]) if "SNAPSHOT CONNECTIONS" in options else None,
    )


def _columns(cursor: TokenCursor, option: str) -> tuple[QualifiedName, ...]:
    cursor.expect_symbol("(")
    found: list[QualifiedName] = []
    while not found or cursor.accept_symbol(","):
        at = cursor.token
        name = cursor.name("a column with its table")
        if len(name.parts) not in (2, 3):
            raise invalid_value(cursor, at, option, str(name), "write it as schema.table.column")
        found.append(name)
    cursor.expect_symbol(")")
    return tuple(found)


def _tables(cursor: TokenCursor) -> tuple[UpstreamTable, ...]:
    cursor.expect_symbol("(")
    found: list[UpstreamTable] = []
    while not found or cursor.accept_symbol(","):
        at = cursor.token
        name = cursor.name("a table")
        if len(name.parts) > 2:
            raise invalid_value(cursor, at, "FOR TABLES", str(name), "write it as schema.table")
        alias = cursor.identifier("a name") if cursor.accept("AS") else None
        found.append(UpstreamTable(name, alias))
    cursor.expect_symbol(")")
    return tuple(found)
