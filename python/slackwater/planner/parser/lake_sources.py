"""The grammar of ``FROM DELTA`` and ``FROM ICEBERG``, and its canonical text.

Source: surface 4, docs/decisions 0079.
"""

from __future__ import annotations

from typing import cast

from slackwater.planner.parser.lake_source import DeltaSource, IcebergSource, LakeSource
from slackwater.planner.parser.lake_tables import iceberg_table_sql, read_iceberg_table, require
from slackwater.planner.parser.options import integer, read_options, text
from slackwater.planner.parser.tokens import TokenCursor
from slackwater.repr.relation import quote_string


def read_lake_source(cursor: TokenCursor) -> LakeSource:
    """Reads DELTA or ICEBERG and the statement's rest, up to EXPOSE or WITH."""
    if cursor.accept("DELTA"):
        return _delta(cursor)
    cursor.expect("ICEBERG")
    return IcebergSource(read_iceberg_table(cursor))


def _delta(cursor: TokenCursor) -> DeltaSource:
    options = read_options(cursor, {"PATH": text, "START VERSION": integer})
    require(cursor, options, "PATH")
    return DeltaSource(str(options["PATH"]), cast("int | None", options.get("START VERSION")))


def lake_source_sql(source: LakeSource) -> str:
    """The canonical text from DELTA or ICEBERG to the end of what names the table."""
    match source:
        case DeltaSource(path=path, start_version=version):
            start = "" if version is None else f", START VERSION {version}"
            return f"DELTA (PATH {quote_string(path)}{start})"
        case IcebergSource(table=table):
            return iceberg_table_sql(table)
