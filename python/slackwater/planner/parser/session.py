"""The grammar of transactions, session variables and the parameters of the system.

Source: spec coordinator 1.9, 5.2, 5.4, 5.6.
"""

from __future__ import annotations

from slackwater.planner.parser.parameters import PARAMETERS
from slackwater.planner.parser.statements import (
    AlterSystem,
    Begin,
    Commit,
    ResetVariable,
    Rollback,
    SetVariable,
    ShowVariable,
)
from slackwater.planner.parser.tokens import Kind, TokenCursor
from slackwater.planner.parser.variables import KNOWN_NAMES, PREFIX

_LEVELS = (
    "READ UNCOMMITTED",
    "READ COMMITTED",
    "REPEATABLE READ",
    "SERIALIZABLE",
    "STRICT SERIALIZABLE",
    "STRONG SESSION SERIALIZABLE",
)
_BOUNDED = "BOUNDED STALENESS"
_LEVELS_TEXT = (
    "the isolation level STRICT SERIALIZABLE, STRONG SESSION SERIALIZABLE, SERIALIZABLE or "
    "BOUNDED STALENESS '5s'"
)


def read_begin(cursor: TokenCursor) -> Begin | None:
    """BEGIN or START TRANSACTION; None for the compound statements of Spark's scripts."""
    if cursor.accept("START"):
        if not cursor.accept("TRANSACTION"):
            return None
        cursor.statement = "START TRANSACTION"
    else:
        cursor.expect("BEGIN")
        cursor.statement = "BEGIN"
        named = cursor.accept("TRANSACTION") or cursor.accept("WORK")
        if not (named or cursor.at_end or _is_mode(cursor)):
            return None
    return _modes(cursor)


def _is_mode(cursor: TokenCursor) -> bool:
    return any(
        cursor.looking_at(*words)
        for words in (("ISOLATION", "LEVEL"), ("READ", "ONLY"), ("READ", "WRITE"))
    )


def _modes(cursor: TokenCursor) -> Begin:
    isolation: str | None = None
    read_only: bool | None = None
    while not cursor.at_end:
        at = cursor.token
        if isolation is None and cursor.accept("ISOLATION", "LEVEL"):
            isolation = _level(cursor)
        elif read_only is None and cursor.accept("READ", "ONLY"):
            read_only = True
        elif read_only is None and cursor.accept("READ", "WRITE"):
            read_only = False
        else:
            raise cursor.syntax_error("ISOLATION LEVEL, READ ONLY or READ WRITE, each once", at)
        if cursor.accept_symbol(",") and cursor.at_end:
            raise cursor.syntax_error("ISOLATION LEVEL, READ ONLY or READ WRITE")
    return Begin(isolation, read_only)


def _level(cursor: TokenCursor) -> str:
    for level in _LEVELS:
        if cursor.accept(*level.split()):
            return level.lower()
    if cursor.accept(*_BOUNDED.split()):
        return f"{_BOUNDED} {cursor.string('how stale reads may be, as in 5s')}".lower()
    raise cursor.syntax_error(_LEVELS_TEXT)


def read_transaction_end(cursor: TokenCursor) -> Commit | Rollback:
    cursor.statement = cursor.advance().upper
    _ = cursor.accept("TRANSACTION") or cursor.accept("WORK")
    if cursor.looking_at("AND", "CHAIN"):
        raise cursor.unsupported(f"{cursor.statement} AND CHAIN", "BEGIN the next one yourself.")
    if cursor.looking_at("TO"):
        raise cursor.unsupported("ROLLBACK TO a savepoint", "ROLLBACK ends the transaction.")
    if cursor.accept("AND"):
        cursor.expect("NO", "CHAIN")
    return Commit() if cursor.statement == "COMMIT" else Rollback()


def read_variable_name(cursor: TokenCursor) -> str | None:
    """The name of a variable of ours, in lower case and without prefix, if it is next.

    Any name behind the prefix is ours, so that a mistyped one is told.
    """
    if cursor.token.kind not in (Kind.WORD, Kind.QUOTED):
        return None
    if cursor.token.text.lower() == PREFIX and cursor.peek().is_symbol("."):
        cursor.advance()
        cursor.advance()
        return cursor.identifier("the name of a variable").lower()
    name = cursor.token.text.lower()
    if not (name in KNOWN_NAMES or name in PARAMETERS) or cursor.peek().is_symbol("."):
        return None
    cursor.advance()
    return name


def read_set(cursor: TokenCursor) -> SetVariable | ShowVariable | None:
    """SET of our variables; None for Spark's configuration."""
    cursor.expect("SET")
    cursor.statement = "SET"
    at = cursor.token
    if cursor.looking_at("TRANSACTION", "ISOLATION") or cursor.looking_at("TRANSACTION", "READ"):
        raise cursor.unsupported(
            "SET TRANSACTION",
            "Say it of a block with BEGIN ISOLATION LEVEL ..., of the session with SET SESSION "
            "CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL ...",
            at,
        )
    if cursor.accept("SESSION", "CHARACTERISTICS", "AS", "TRANSACTION"):
        return _set_characteristics(cursor)
    scoped = cursor.looking_at("LOCAL") or cursor.looking_at("SESSION")
    local = cursor.looking_at("LOCAL")
    if scoped:
        cursor.advance()
    name = read_variable_name(cursor)
    if name is None:
        return None
    if cursor.at_end and not scoped:
        return ShowVariable(name)
    if not (cursor.accept_symbol("=") or cursor.accept("TO")):
        raise cursor.syntax_error("= or TO")
    return SetVariable(name, _value(cursor), local)


def _set_characteristics(cursor: TokenCursor) -> SetVariable:
    cursor.statement = "SET SESSION CHARACTERISTICS"
    at = cursor.token
    modes = _modes(cursor)
    if modes.read_only is not None:
        raise cursor.unsupported(
            "Changing the access mode of a transaction", "Say it with BEGIN READ ONLY.", at
        )
    if modes.isolation is None:
        raise cursor.syntax_error("ISOLATION LEVEL")
    return SetVariable("transaction_isolation", modes.isolation)


def _value(cursor: TokenCursor) -> str | None:
    """The text of a value: a string, or words as they stand; None for DEFAULT."""
    token = cursor.token
    start = cursor.mark
    cursor.rest("a value")
    if cursor.mark == start + 1:
        if token.is_word("DEFAULT"):
            return None
        if token.kind in (Kind.STRING, Kind.QUOTED):
            return token.text
    # Comments and line ends between words are no part of a value.
    pieces = [cursor.slice(start, start + 1).text]
    for mark in range(start + 1, cursor.mark):
        pieces.append(" " if cursor.at(mark - 1).end < cursor.at(mark).start else "")
        pieces.append(cursor.slice(mark, mark + 1).text)
    return "".join(pieces)


def read_reset(cursor: TokenCursor) -> ResetVariable | None:
    """RESET of our variables; None for Spark's configuration."""
    cursor.expect("RESET")
    cursor.statement = "RESET"
    name = read_variable_name(cursor)
    return None if name is None else ResetVariable(name)


def read_alter_system(cursor: TokenCursor) -> AlterSystem:
    """SYSTEM SET or RESET, after ALTER. It takes any name, so that a mistyped one is told."""
    cursor.expect("SYSTEM")
    cursor.statement = "ALTER SYSTEM"
    if cursor.accept("RESET"):
        if cursor.token.is_word("ALL"):
            cursor.advance()
            return AlterSystem(None, None)
        return AlterSystem(_parameter_name(cursor), None)
    if not cursor.accept("SET"):
        raise cursor.syntax_error("SET or RESET")
    name = _parameter_name(cursor)
    if not (cursor.accept_symbol("=") or cursor.accept("TO")):
        raise cursor.syntax_error("= or TO")
    return AlterSystem(name, _value(cursor))


def _parameter_name(cursor: TokenCursor) -> str:
    if cursor.token.text.lower() == PREFIX and cursor.peek().is_symbol("."):
        cursor.advance()
        cursor.advance()
    return cursor.identifier("the name of a parameter").lower()
