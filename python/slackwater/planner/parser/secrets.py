"""The grammar of secrets. No error shows any of their value. Source: spec coordinator 5.3, 5.4."""

from __future__ import annotations

from slackwater.planner.parser.statements import AlterSecret, CreateSecret
from slackwater.planner.parser.tokens import Kind, TokenCursor

_VALUE = "a value such as 'text', or X'00ff'"


def read_create_secret(cursor: TokenCursor) -> CreateSecret:
    """Reads the statement's rest after CREATE SECRET."""
    cursor.statement = "CREATE SECRET"
    cursor.hides_text = True
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name()
    cursor.expect("AS")
    return CreateSecret(name, _value(cursor), if_not_exists)


def read_alter_secret(cursor: TokenCursor) -> AlterSecret | None:
    """``ALTER SECRET s AS value``; None for what other objects know too."""
    start = cursor.mark
    if_exists = cursor.accept("IF", "EXISTS")
    name = cursor.name()
    if not cursor.accept("AS"):
        cursor.rewind(start)
        return None
    cursor.statement = "ALTER SECRET"
    cursor.hides_text = True
    return AlterSecret(name, _value(cursor), if_exists)


def _value(cursor: TokenCursor) -> bytes:
    token = cursor.token
    if token.kind is Kind.STRING:
        try:
            value = token.text.encode()
        except UnicodeEncodeError:
            raise cursor.syntax_error(_VALUE) from None
    elif token.as_bytes is not None:
        value = token.as_bytes
    else:
        raise cursor.syntax_error(_VALUE)
    cursor.advance()
    return value
