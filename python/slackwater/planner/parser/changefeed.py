"""The grammar of ``FROM CHANGEFEED``. Source: spec checkpoint 5, docs/decisions 0027."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from slackwater.planner.parser.options import (
    OptionValue,
    ReadValue,
    choice,
    invalid_value,
    positive_integer,
    read_options,
    text,
)
from slackwater.planner.parser.query import read_key
from slackwater.planner.parser.statements import ChangefeedSource, ChangefeedTable
from slackwater.planner.parser.tokens import TokenCursor


def read_changefeed(cursor: TokenCursor) -> ChangefeedSource:
    """Reads the statement's rest after CHANGEFEED."""
    feeds: list[str] = []

    def listed(cursor: TokenCursor, option: str) -> str:
        cursor.expect_symbol("(")
        feeds.append(text(cursor, option))
        while cursor.accept_symbol(","):
            feeds.append(text(cursor, option))
        cursor.expect_symbol(")")
        return option

    is_files = cursor.accept("FILES")
    own: Mapping[str, ReadValue] = {"PATH": text} if is_files else {"FEEDS": listed}
    at = cursor.token
    options = read_options(
        cursor,
        {
            "FORMAT": choice("COCKROACH"),
            **own,
            "LOOKAHEAD": positive_integer,
            "ON LATE": choice("DROP", "FAIL"),
        },
    )
    for option in ("FORMAT", *(["PATH"] if is_files else [])):
        if option not in options:
            raise cursor.syntax_error(f"the option {option}", cursor.at(cursor.mark - 1))
    lowered = [feed.lower() for feed in feeds]
    for feed in lowered:
        if lowered.count(feed) > 1:
            raise invalid_value(cursor, at, "FEEDS", feed, "it is there twice")
    cursor.expect("FOR", "TABLES")
    return ChangefeedSource(
        _tables(cursor),
        tuple(lowered),
        cast("int | None", options.get("LOOKAHEAD")),
        cast("Literal['DROP', 'FAIL']", options.get("ON LATE", "DROP")),
        _path(options),
    )


def _path(options: Mapping[str, OptionValue]) -> str | None:
    return None if "PATH" not in options else str(options["PATH"])


def _tables(cursor: TokenCursor) -> tuple[ChangefeedTable, ...]:
    cursor.expect_symbol("(")
    found = [read_changefeed_table(cursor)]
    while cursor.accept_symbol(","):
        at = cursor.token
        table = read_changefeed_table(cursor)
        if table.name.casefold() in {each.name.casefold() for each in found}:
            raise invalid_value(cursor, at, "FOR TABLES", table.name, "it is there twice")
        found.append(table)
    cursor.expect_symbol(")")
    return tuple(found)


def read_changefeed_table(cursor: TokenCursor) -> ChangefeedTable:
    """``name (columns) KEY (columns) [EXTRAS column]``."""
    name = cursor.identifier("a table")
    if not cursor.token.is_symbol("("):
        raise cursor.syntax_error("columns in parentheses")
    start = cursor.mark
    cursor.skip_group()
    if cursor.mark == start + 2:
        raise cursor.syntax_error("columns", cursor.at(start + 1))
    columns = cursor.slice(start + 1, cursor.mark - 1)
    if not cursor.looking_at("KEY"):
        raise cursor.syntax_error("KEY (...)")
    key = read_key(cursor)
    extras = cursor.identifier("a column") if cursor.accept("EXTRAS") else None
    return ChangefeedTable(name, columns, key, extras)
