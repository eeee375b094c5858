"""``FROM POSTGRES`` as canonical text."""

from __future__ import annotations

from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.postgres_source import PostgresSource, UpstreamTable
from slackwater.repr.relation import quote_identifier, quote_string


def postgres_sql(source: PostgresSource) -> str:
    """The text from POSTGRES on."""
    options = [f"PUBLICATION {quote_string(source.publication)}"]
    for option, columns in (
        ("TEXT COLUMNS", source.text_columns),
        ("EXCLUDE COLUMNS", source.exclude_columns),
    ):
        options += [f"{option} ({_names(columns)})"] if columns else []
    if source.snapshot_connections is not None:
        options.append(f"SNAPSHOT CONNECTIONS {source.snapshot_connections}")
    begin = f"POSTGRES CONNECTION {source.connection.sql} ({', '.join(options)})"
    if source.is_bare:
        return begin
    if source.tables:
        return f"{begin} FOR TABLES ({', '.join(map(_table, source.tables))})"
    if source.schemas:
        return f"{begin} FOR SCHEMAS ({', '.join(map(quote_identifier, source.schemas))})"
    return f"{begin} FOR ALL TABLES"


def _names(names: tuple[QualifiedName, ...]) -> str:
    return ", ".join(name.sql for name in names)


def _table(table: UpstreamTable) -> str:
    alias = "" if table.alias is None else f" AS {quote_identifier(table.alias)}"
    return f"{table.name.sql}{alias}"
