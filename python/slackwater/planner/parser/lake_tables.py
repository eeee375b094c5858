"""The grammar of what names a table of a lake in sources and sinks, and its canonical text.

Source: surface 4, docs/decisions 0076, 0077, 0079, 0080.
"""

from __future__ import annotations

from collections.abc import Mapping

from slackwater.planner.parser.lake_table import DeltaTable, IcebergTable
from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.options import OptionValue, ReadValue, read_options, text
from slackwater.planner.parser.tokens import TokenCursor
from slackwater.repr.relation import quote_string


def read_delta_table(
    cursor: TokenCursor, more: Mapping[str, ReadValue]
) -> tuple[DeltaTable, dict[str, OptionValue]]:
    """Reads what stands behind DELTA, among options that it leaves to the caller."""
    named: list[QualifiedName] = []

    def connection(cursor: TokenCursor, option: str) -> OptionValue:
        named.append(cursor.name("a connection"))
        return True

    options = read_options(cursor, {"PATH": text, "AWS CONNECTION": connection, **more})
    require(cursor, options, "PATH")
    return DeltaTable(str(options["PATH"]), named[0] if named else None), options


def delta_table_sql(table: DeltaTable, *more: str) -> str:
    """The canonical text from DELTA on, with the texts of more options."""
    files = () if table.aws is None else (f"AWS CONNECTION {table.aws.sql}",)
    return f"DELTA ({', '.join((f'PATH {quote_string(table.path)}', *files, *more))})"


def read_iceberg_table(cursor: TokenCursor) -> IcebergTable:
    """Reads what stands behind ICEBERG, up to the connection to the table's files."""
    cursor.expect("CATALOG", "CONNECTION")
    connection = cursor.name("a connection")
    options = read_options(cursor, {"NAMESPACE": text, "TABLE": text})
    require(cursor, options, "NAMESPACE", "TABLE")
    aws = None
    if cursor.accept("USING"):
        cursor.expect("AWS", "CONNECTION")
        aws = cursor.name("a connection")
    return IcebergTable(connection, str(options["NAMESPACE"]), str(options["TABLE"]), aws)


def require(cursor: TokenCursor, options: dict[str, OptionValue], *required: str) -> None:
    """Raises SLACKWATER_SYNTAX_ERROR for an option that was not among those just read."""
    for option in required:
        if option not in options:
            raise cursor.syntax_error(f"the option {option}", cursor.at(cursor.mark - 1))


def iceberg_table_sql(table: IcebergTable) -> str:
    """The canonical text from ICEBERG on."""
    named = f"NAMESPACE {quote_string(table.namespace)}, TABLE {quote_string(table.table)}"
    files = "" if table.aws is None else f" USING AWS CONNECTION {table.aws.sql}"
    return f"ICEBERG CATALOG CONNECTION {table.connection.sql} ({named}){files}"
