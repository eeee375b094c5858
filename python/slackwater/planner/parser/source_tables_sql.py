"""CREATE TABLE ... FROM SOURCE and FOR TABLES: their grammar and their canonical text.

Source: surface 4; docs/decisions 0073.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from slackwater.planner.parser.kafka import read_decoding, reads_decoding, refuse_missing_columns
from slackwater.planner.parser.kafka_sql import decoding_sql
from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.options import OptionValue, ReadValue, read_options
from slackwater.planner.parser.source_tables import CreateTableFromSource, ReferencedTable
from slackwater.planner.parser.tokens import TokenCursor
from slackwater.repr.relation import quote_identifier

_TEXTS, _LEFT_OUT = "TEXT COLUMNS", "EXCLUDE COLUMNS"


def read_table_from_source(
    cursor: TokenCursor, name: QualifiedName, retain_history: ReadValue, *, if_not_exists: bool
) -> CreateTableFromSource:
    """Reads the statement's rest after the table's name."""
    declared = cursor.inside("columns")
    columns = None if declared is None else declared.text
    cursor.expect("FROM", "SOURCE")
    source = cursor.name("a source")
    reference = None
    if cursor.accept_symbol("("):
        cursor.expect("REFERENCE")
        cursor.accept_symbol("=")
        reference = cursor.name("what the source has")
        cursor.expect_symbol(")")
    made = CreateTableFromSource(name, source, reference, columns, if_not_exists=if_not_exists)
    if cursor.looking_at("KEY") and cursor.peek().is_symbol("("):
        return _of_changefeed(cursor, made, retain_history)
    at = cursor.token
    decoding = read_decoding(cursor) if reads_decoding(cursor) else None
    if columns is not None and (decoding is None or decoding.value.kind not in ("JSON", "CSV")):
        what = "a table without FORMAT"
        if decoding is not None:
            what = f"values in the format {decoding.value.kind}"
        advice = "Leave them out, or read the values as JSON or CSV."
        raise cursor.unsupported(f"Columns of {what}", advice, at)
    if columns is None and decoding is not None:
        refuse_missing_columns(cursor, decoding)
    history = None
    chosen: dict[str, tuple[str, ...]] = {}
    if cursor.accept("WITH"):

        def names(cursor: TokenCursor, option: str) -> OptionValue:
            chosen[option] = cursor.identifiers()
            return True

        known = {"RETAIN HISTORY": retain_history, _TEXTS: names, _LEFT_OUT: names}
        history = cast("int | None", read_options(cursor, known).get("RETAIN HISTORY"))
    return replace(
        made,
        decoding=decoding,
        retain_history_ms=history,
        text_columns=chosen.get(_TEXTS, ()),
        exclude_columns=chosen.get(_LEFT_OUT, ()),
    )


def _of_changefeed(
    cursor: TokenCursor, made: CreateTableFromSource, retain_history: ReadValue
) -> CreateTableFromSource:
    """Reads the rest of a table with a key, from KEY on."""
    at = cursor.token
    cursor.expect("KEY")
    key = cursor.identifiers()
    if made.columns is None:
        raise cursor.syntax_error("columns behind the table's name, because of KEY", at)
    extras = cursor.identifier("a column") if cursor.accept("EXTRAS") else None
    history = None
    if cursor.accept("WITH"):
        options = read_options(cursor, {"RETAIN HISTORY": retain_history})
        history = cast("int | None", options.get("RETAIN HISTORY"))
    return replace(made, key=key, extras=extras, retain_history_ms=history)


def read_for_tables(cursor: TokenCursor) -> tuple[ReferencedTable, ...]:
    """Reads ``FOR TABLES (a [AS b], ...)``; none: it is not next."""
    if not cursor.accept("FOR", "TABLES"):
        return ()
    cursor.expect_symbol("(")
    found = [_referenced(cursor)]
    while cursor.accept_symbol(","):
        found.append(_referenced(cursor))
    cursor.expect_symbol(")")
    return tuple(found)


def _referenced(cursor: TokenCursor) -> ReferencedTable:
    reference = cursor.name("what the source has")
    named = cursor.accept("AS")
    return ReferencedTable(reference, cursor.identifier("the name of a table") if named else None)


def for_tables_sql(tables: tuple[ReferencedTable, ...]) -> str:
    """``FOR TABLES (...)``; "" for none."""
    return f"FOR TABLES ({', '.join(map(_shown, tables))})" if tables else ""


def _shown(table: ReferencedTable) -> str:
    name = "" if table.name is None else f" AS {quote_identifier(table.name)}"
    return f"{table.reference.sql}{name}"


def table_from_source_sql(made: CreateTableFromSource) -> Iterator[str]:
    """The words of the statement, without its options."""
    yield from ("CREATE TABLE", "IF NOT EXISTS" if made.if_not_exists else "", made.name.sql)
    yield "" if made.columns is None else f"({made.columns})"
    yield f"FROM SOURCE {made.source.sql}"
    yield "" if made.reference is None else f"(REFERENCE {made.reference.sql})"
    if made.decoding is not None:
        yield from decoding_sql(made.decoding)
    yield f"KEY ({', '.join(map(quote_identifier, made.key))})" if made.key else ""
    yield "" if made.extras is None else f"EXTRAS {quote_identifier(made.extras)}"


def table_options_sql(made: CreateTableFromSource) -> Iterator[str]:
    """The options that choose columns; "" for none."""
    for option, names in ((_TEXTS, made.text_columns), (_LEFT_OUT, made.exclude_columns)):
        yield f"{option} ({', '.join(map(quote_identifier, names))})" if names else ""
