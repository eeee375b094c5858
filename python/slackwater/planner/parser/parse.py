"""The statement parser: text in, a statement of ours out, or nothing when it is Spark's.

Recursive descent over sqlglot's tokens. Queries are cut out of the text by offsets, so Spark
parses exactly what the user wrote. Source: architecture 5, surface 4 and 7.
"""

from __future__ import annotations

from slackwater.planner.parser.connections import read_validate
from slackwater.planner.parser.create import read_create
from slackwater.planner.parser.objects import read_alter, read_comment, read_drop, read_show
from slackwater.planner.parser.query import (
    read_close,
    read_declare,
    read_explain,
    read_fetch,
    read_subscribe,
)
from slackwater.planner.parser.session import read_begin, read_reset, read_set, read_transaction_end
from slackwater.planner.parser.statements import Statement
from slackwater.planner.parser.tokens import TokenCursor

_REFUSED = ("COPY", "PREPARE", "EXECUTE", "DEALLOCATE", "DISCARD", "INSPECT", "RAISE")
_MAINTAINED = ("MATERIALIZED VIEW", "SOURCE", "SINK")


def parse(text: str) -> Statement | None:
    """The statement of ours that `text` is, or None when it is Spark's business.

    Nothing is resolved. Where Spark's grammar has the statement as well (`is_spark_grammar`), the
    caller hands it to Spark when its target is not ours. Raises SLACKWATER_SYNTAX_ERROR,
    SLACKWATER_UNKNOWN_OPTION, SLACKWATER_DUPLICATE_OPTION, SLACKWATER_INVALID_OPTION and
    SLACKWATER_UNSUPPORTED, each with a position.
    """
    cursor = TokenCursor(text)
    statement = _read(cursor)
    if statement is not None:
        cursor.expect_end()
    return statement


def _read(cursor: TokenCursor) -> Statement | None:
    match cursor.token.upper:
        case "CREATE":
            return read_create(cursor)
        case "DROP":
            return read_drop(cursor)
        case "ALTER":
            return read_alter(cursor)
        case "COMMENT":
            return read_comment(cursor)
        case "SHOW":
            return read_show(cursor)
        case "SUBSCRIBE":
            return read_subscribe(cursor)
        case "DECLARE":
            return read_declare(cursor)
        case "FETCH":
            return read_fetch(cursor)
        case "CLOSE":
            return read_close(cursor)
        case "EXPLAIN":
            return read_explain(cursor)
        case "BEGIN" | "START":
            return read_begin(cursor)
        case "COMMIT" | "ROLLBACK" | "ABORT":
            return read_transaction_end(cursor)
        case "VALIDATE" if cursor.looking_at("CONNECTION", ahead=1):
            return read_validate(cursor)
        case "SET":
            return read_set(cursor)
        case "RESET":
            return read_reset(cursor)
        case word:
            _refuse(cursor, word)
            return None


def _refuse(cursor: TokenCursor, word: str) -> None:
    """Statements of Materialize's and of other products, which Spark does not have either."""
    for kind in _MAINTAINED:
        if cursor.looking_at("REFRESH", *kind.split()):
            raise cursor.unsupported(f"REFRESH {kind}", "It is kept up to date without.")
    if word in _REFUSED and not cursor.looking_at("EXECUTE", "IMMEDIATE"):
        raise cursor.unsupported(word, "Leave it out.")
    if cursor.looking_at("REASSIGN", "OWNED"):
        raise cursor.unsupported("REASSIGN OWNED", "Leave it out.")
