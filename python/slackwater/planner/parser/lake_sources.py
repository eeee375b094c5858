"""The grammar of ``FROM DELTA`` and ``FROM ICEBERG``, and its canonical text.

Source: surface 4, docs/decisions 0079.
"""

from __future__ import annotations

from typing import cast

from slackwater.planner.parser.lake_source import DeltaSource, IcebergSource, LakeSource
from slackwater.planner.parser.options import (
    OptionValue,
    integer,
    read_options,
    text,
)
from slackwater.planner.parser.tokens import TokenCursor
from slackwater.repr.relation import quote_string


def read_lake_source(cursor: TokenCursor) -> LakeSource:
    """Reads DELTA or ICEBERG and the statement's rest, up to EXPOSE or WITH."""
    if cursor.accept("DELTA"):
        return _delta(cursor)
    cursor.expect("ICEBERG")
    return _iceberg(cursor)


def _delta(cursor: TokenCursor) -> DeltaSource:
    options = read_options(cursor, {"PATH": text, "START VERSION": integer})
    _require(cursor, options, "PATH")
    return DeltaSource(str(options["PATH"]), cast("int | None", options.get("START VERSION")))


def _iceberg(cursor: TokenCursor) -> IcebergSource:
    cursor.expect("CATALOG", "CONNECTION")
    connection = cursor.name("a connection")
    options = read_options(cursor, {"NAMESPACE": text, "TABLE": text})
    _require(cursor, options, "NAMESPACE", "TABLE")
    aws = None
    if cursor.accept("USING"):
        cursor.expect("AWS", "CONNECTION")
        aws = cursor.name("a connection")
    return IcebergSource(connection, str(options["NAMESPACE"]), str(options["TABLE"]), aws)


def _require(cursor: TokenCursor, options: dict[str, OptionValue], *required: str) -> None:
    for option in required:
        if option not in options:
            raise cursor.syntax_error(f"the option {option}", cursor.at(cursor.mark - 1))


def lake_source_sql(source: LakeSource) -> str:
    """The canonical text from DELTA or ICEBERG to the end of what names the table."""
    match source:
        case DeltaSource(path=path, start_version=version):
            start = "" if version is None else f", START VERSION {version}"
            return f"DELTA (PATH {quote_string(path)}{start})"
        case IcebergSource():
            namespace, name = quote_string(source.namespace), quote_string(source.table)
            files = "" if source.aws is None else f" USING AWS CONNECTION {source.aws.sql}"
            named = f"NAMESPACE {namespace}, TABLE {name}"
            return f"ICEBERG CATALOG CONNECTION {source.connection.sql} ({named}){files}"
