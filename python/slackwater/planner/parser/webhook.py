"""The grammar of ``FROM WEBHOOK``. Source: spec coordinator 6.4.

The clauses stand in parentheses and are separated by commas, or follow each other without either,
as they do in Materialize.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.statements import (
    CheckInput,
    HeaderColumn,
    HeaderRule,
    WebhookCheck,
    WebhookFormat,
    WebhookSource,
)
from slackwater.planner.parser.tokens import Token, TokenCursor

_CLAUSES = "BODY FORMAT, INCLUDE HEADER, INCLUDE HEADERS or CHECK"


@dataclass(slots=True)
class _Clauses:
    """The clauses that were read so far."""

    format: WebhookFormat | None = None
    columns: list[HeaderColumn] = field(default_factory=list)
    rules: tuple[HeaderRule, ...] | None = None
    check: WebhookCheck | None = None


def read_webhook(cursor: TokenCursor) -> WebhookSource:
    """Reads the statement's rest after WEBHOOK."""
    found = _Clauses()
    at = cursor.token
    if cursor.accept_symbol("("):
        _clause(cursor, found)
        while cursor.accept_symbol(","):
            _clause(cursor, found)
        cursor.expect_symbol(")")
    else:
        _clause(cursor, found)
        while any(cursor.looking_at(word) for word in ("BODY", "INCLUDE", "CHECK")):
            _clause(cursor, found)
    if found.format is None:
        raise cursor.syntax_error("BODY FORMAT", at)
    _refuse_two_of_one_name(cursor, at, found)
    return WebhookSource(found.format, tuple(found.columns), found.rules, found.check)


def _clause(cursor: TokenCursor, found: _Clauses) -> None:
    at = cursor.token
    if cursor.accept("BODY"):
        cursor.expect("FORMAT")
        _once(cursor, at, "BODY FORMAT", found.format is None)
        found.format = _format(cursor)
    elif cursor.accept("INCLUDE", "HEADER"):
        found.columns.append(_column(cursor))
    elif cursor.accept("INCLUDE", "HEADERS"):
        _once(cursor, at, "INCLUDE HEADERS", found.rules is None)
        found.rules = _listed(cursor, _rule) if cursor.token.is_symbol("(") else ()
    elif cursor.accept("CHECK"):
        _once(cursor, at, "CHECK", found.check is None)
        found.check = _check(cursor)
    else:
        raise cursor.syntax_error(_CLAUSES)


def _once(cursor: TokenCursor, at: Token, clause: str, is_first: bool) -> None:
    if not is_first:
        raise cursor.error(
            "SLACKWATER_DUPLICATE_OPTION", at, statement=cursor.statement, option=clause
        )


def _format(cursor: TokenCursor) -> WebhookFormat:
    if cursor.accept("JSON"):
        return "JSON ARRAY" if cursor.accept("ARRAY") else "JSON"
    if cursor.accept("TEXT"):
        return "TEXT"
    if cursor.accept("BYTES"):
        return "BYTES"
    for other in ("AVRO", "CSV", "PROTOBUF", "REGEX"):
        if cursor.looking_at(other):
            raise cursor.unsupported(
                f"BODY FORMAT {other}", "Take TEXT or BYTES, and decode it in a view."
            )
    raise cursor.syntax_error("TEXT, JSON, JSON ARRAY or BYTES")


def _header_name(cursor: TokenCursor) -> str:
    """Names of headers have no case: HTTP says so, and proxies change it."""
    at = cursor.token
    name = cursor.string("the name of a header as a string").lower()
    if not name:
        raise cursor.syntax_error("the name of a header", at)
    return name


def _column(cursor: TokenCursor) -> HeaderColumn:
    header = _header_name(cursor)
    cursor.expect("AS")
    return HeaderColumn(header, cursor.identifier("a column"), cursor.accept("BYTES"))


def _rule(cursor: TokenCursor) -> HeaderRule:
    is_blocked = cursor.accept("NOT")
    return HeaderRule(_header_name(cursor), is_blocked)


def _listed(
    cursor: TokenCursor, read: Callable[[TokenCursor], HeaderRule]
) -> tuple[HeaderRule, ...]:
    cursor.expect_symbol("(")
    if cursor.accept_symbol(")"):
        return ()
    found = [read(cursor)]
    while cursor.accept_symbol(","):
        found.append(read(cursor))
    cursor.expect_symbol(")")
    return tuple(found)


def _check(cursor: TokenCursor) -> WebhookCheck:
    cursor.expect_symbol("(")
    inputs: list[CheckInput] = []
    if cursor.accept("WITH"):
        cursor.expect_symbol("(")
        inputs.append(_input(cursor))
        while cursor.accept_symbol(","):
            inputs.append(_input(cursor))
        cursor.expect_symbol(")")
    condition = cursor.rest("a condition", stop=lambda: cursor.token.is_symbol(")"))
    cursor.expect_symbol(")")
    return WebhookCheck(tuple(inputs), condition)


def _input(cursor: TokenCursor) -> CheckInput:
    kind: Literal["BODY", "HEADERS", "SECRET"]
    secret: QualifiedName | None = None
    if cursor.accept("BODY"):
        kind = "BODY"
    elif cursor.accept("HEADERS"):
        kind = "HEADERS"
    elif cursor.accept("SECRET"):
        kind, secret = "SECRET", cursor.name("a secret")
    else:
        raise cursor.syntax_error("BODY, HEADERS or SECRET")
    alias = cursor.identifier("a name") if cursor.accept("AS") else None
    return CheckInput(kind, secret, alias, cursor.accept("BYTES"))


def _refuse_two_of_one_name(cursor: TokenCursor, at: Token, found: _Clauses) -> None:
    """Columns of one relation, and names of one condition, are told apart by their names."""
    columns = ["body", *([] if found.rules is None else ["headers"])]
    columns += [each.column for each in found.columns]
    names = [] if found.check is None else [each.name for each in found.check.inputs]
    for where, given in (("column", columns), ("name in CHECK", names)):
        seen: set[str] = set()
        for name in given:
            if name.casefold() in seen:
                raise cursor.error(
                    "SLACKWATER_INVALID_OPTION",
                    at,
                    option=where,
                    statement=cursor.statement,
                    value=name,
                    reason="it is there twice",
                )
            seen.add(name.casefold())
