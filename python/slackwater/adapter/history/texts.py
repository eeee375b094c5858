"""Texts of statements without what nobody else may see.

A text in which something may be a secret loses all its literals, whatever they are; one that is no
statement besides is left out as a whole, since nobody can tell its parts. So no rule has to know
where in a statement a secret stands.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from functools import lru_cache

from slackwater.adapter.history.records import ShownText
from slackwater.planner.parser.parse import parse
from slackwater.planner.parser.redaction import without_literals
from slackwater.planner.parser.tokens import Kind, Token, tokenize
from slackwater.repr.errors import SlackwaterError

SHOWN_CHARACTERS = 2000
"""The length of the longest text that is shown."""
READ_CHARACTERS = 10_000
"""So much of a text is looked at."""
FIRST_CHARACTERS = 1000
"""So much of it, after comments, says what kind of statement it is."""

_MAY_BE_SECRET = re.compile(
    r"secret|passw|passphrase|pwd|credential|token|sasl"
    r"|(access|private|api|account|encryption|shared)[\s_.-]*key"
    r"|://[^/\s]*@",
    re.IGNORECASE,
)
_IS_ODD = re.compile(_MAY_BE_SECRET.pattern + r"|\\", re.IGNORECASE)
"""A text with a secret, or with a backslash, by which a literal may mean what it does not say."""
_QUERY = re.compile(
    r"[\s(]*(select|with|values|from|table|insert|update|delete|merge)\b", re.IGNORECASE
)
_COMMENTS = re.compile(r"\A(?:\s|--[^\n]*\n|/\*.*?\*/)+", re.DOTALL)
_INSERT = re.compile(r"\binsert\b", re.IGNORECASE)
_DEFINING = frozenset(("ALTER", "CREATE", "DROP", "VALIDATE"))
_SELECTING = frozenset(("FROM", "SELECT", "TABLE", "VALUES", "WITH"))
_OTHERS = frozenset(
    re.findall(
        r"\w+",
        "ABORT BEGIN CACHE CALL CLOSE COMMENT COMMIT COPY DECLARE DELETE DESC DESCRIBE EXECUTE"
        " EXPLAIN FETCH INSERT MERGE REFRESH REPLACE RESET ROLLBACK SET SHOW START SUBSCRIBE"
        " TRUNCATE UPDATE",
    )
)
_PASSED_OVER = frozenset(("OR", "REPLACE", "IF", "NOT", "EXISTS", "TEMPORARY", "DEFAULT"))
_OBJECTS = frozenset(
    re.findall(
        r"\w+",
        "CLUSTER CONNECTION DATABASE INDEX NAMESPACE SCHEMA SECRET SINK SOURCE SYSTEM TABLE VIEW",
    )
)
_OF_SPARK = frozenset(("delete", "insert", "merge", "select", "update"))
"""The kinds of which the parser says without a look at the rest that they are Spark's."""
_UNKNOWN = "unknown"


@lru_cache(maxsize=4096)
def shown(text: str) -> ShownText:
    """The text as the history shows it. Never raises."""
    kind = _first_kind(text)
    if _QUERY.match(text) and not _IS_ODD.search(text) and len(text) <= READ_CHARACTERS:
        # Nearly all texts are such, and tokens cost as much as all the rest.
        own = text[:SHOWN_CHARACTERS]
        return ShownText(kind, own, _digest(own))
    read = text[:READ_CHARACTERS]
    tokens = tokenize(read)
    is_statement = _is_statement(read, kind, tokens)
    if _may_hold_secret(read, tokens):
        if not is_statement:
            return ShownText(kind, None, None, is_secret=True)
    elif is_statement and len(text) <= READ_CHARACTERS:
        own = read[:SHOWN_CHARACTERS]
        return ShownText(kind, own, _digest(own))
    without = without_literals(read, tokens)[:SHOWN_CHARACTERS]
    return ShownText(kind, without, _digest(without), is_secret=True)


@lru_cache(maxsize=16_384)
def without_values(sql: str) -> str:
    """A text that is shown, without its literals. It is made when somebody asks for it."""
    return without_literals(sql, tokenize(sql))[:SHOWN_CHARACTERS]


def of_statement(text: str | None, kind: str | None, *, writes: bool) -> ShownText:
    """The shown text of a statement, whose `kind` is given where the text does not say it.

    An action of a DataFrame has the text of the query that it began with, if there is one.
    """
    own = kind_of(text, kind, writes=writes)
    return ShownText(own, None, None) if text is None else replace(shown(text), kind=own)


def kind_of(text: str | None, kind: str | None, *, writes: bool) -> str:
    """The kind that `of_statement` says, by the beginning of the text alone."""
    if text is None:
        return kind or ("dataframe_write" if writes else "dataframe")
    found = _first_kind(text)
    if found != "select" or not (kind or writes):
        return found
    several = writes and _INSERT.search(text) is not None
    return "insert" if several else kind or "dataframe_write"


@lru_cache(maxsize=4096)
def _first_kind(text: str) -> str:
    query = _QUERY.match(text)
    if query is not None:
        verb = query[1].lower()
        return verb if verb in _OF_SPARK else "select"
    return _kind(tokenize(_COMMENTS.sub("", text, count=1)[:FIRST_CHARACTERS]))


def _kind(tokens: tuple[Token, ...]) -> str:
    """The statement's kind by its first words, such as ``create_source``."""
    words = [token.upper for token in tokens[:12]]
    # A query may stand in parentheses.
    words = words[next((i for i, t in enumerate(tokens[:12]) if not t.is_symbol("(")), 0) :]
    verb = words[0] if words else ""
    if verb in _SELECTING:
        return "select"
    if verb not in _DEFINING:
        return verb.lower() if verb in _OTHERS else _UNKNOWN
    rest = [word for word in words[1:] if word not in _PASSED_OVER]
    if rest[:2] == ["MATERIALIZED", "VIEW"]:
        return f"{verb.lower()}_materialized_view"
    known = rest and rest[0] in _OBJECTS
    return f"{verb.lower()}_{rest[0].lower()}" if known else verb.lower()


def _may_hold_secret(text: str, tokens: tuple[Token, ...]) -> bool:
    """Whether the text, or what one of its literals means, names something that is kept secret."""
    return _MAY_BE_SECRET.search(text) is not None or any(
        _MAY_BE_SECRET.search(token.text) for token in tokens if token.kind is Kind.STRING
    )


def _is_statement(text: str, kind: str, tokens: tuple[Token, ...]) -> bool:
    """Whether the text is one of our statements, or none at all: then Spark has taken it."""
    if any(token.kind is Kind.BROKEN for token in tokens):
        return False
    if kind in _OF_SPARK:
        return True
    try:
        parse(text)
    except SlackwaterError:
        return False
    return True


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
