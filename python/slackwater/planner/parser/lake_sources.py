"""The grammar of ``FROM DELTA`` and ``FROM ICEBERG``, and its canonical text.

Source: surface 4, docs/decisions 0079.
"""

from __future__ import annotations

from typing import cast

from slackwater.planner.parser.lake_source import DeltaSource, IcebergSource, LakeSource
from slackwater.planner.parser.lake_tables import (
    delta_table_sql,
    iceberg_table_sql,
    read_delta_table,
    read_iceberg_table,
)
from slackwater.planner.parser.options import integer
from slackwater.planner.parser.tokens import TokenCursor


def read_lake_source(cursor: TokenCursor) -> LakeSource:
    """Reads DELTA or ICEBERG and the statement's rest, up to EXPOSE or WITH."""
    if cursor.accept("DELTA"):
        return _delta(cursor)
    cursor.expect("ICEBERG")
    return IcebergSource(read_iceberg_table(cursor))


def _delta(cursor: TokenCursor) -> DeltaSource:
    table, options = read_delta_table(cursor, {"START VERSION": integer})
    return DeltaSource(table, cast("int | None", options.get("START VERSION")))


def lake_source_sql(source: LakeSource) -> str:
    """The canonical text from DELTA or ICEBERG to the end of what names the table."""
    match source:
        case DeltaSource(table=delta, start_version=version):
            return delta_table_sql(
                delta, *([] if version is None else [f"START VERSION {version}"])
            )
        case IcebergSource(table=table):
            return iceberg_table_sql(table)
