"""Statements without their literals, for those who may see how an object is made and no data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from slackwater.planner.parser.tokens import Kind, Token, tokenize

REDACTED = "'<REDACTED>'"
_QUOTES = ("'", '"')


@lru_cache(maxsize=4096)
def redacted(text: str) -> str:
    """The statement with `REDACTED` for each string and number. Comments are left out.

    Sizes in types are numbers, too, so what this gives need not be a statement.
    """
    return without_literals(text, tokenize(text))


def without_literals(text: str, tokens: Sequence[Token]) -> str:
    """As `redacted`, of a text whose tokens are known."""
    shown: list[str] = []
    behind = 0
    for token in tokens:
        if token.start > behind and shown:
            shown.append(" ")
        behind = max(behind, token.end)
        shown.append(REDACTED if _is_literal(text, token) else text[token.start : token.end])
    return "".join(shown).rstrip()


def _is_literal(text: str, token: Token) -> bool:
    """Strings with a prefix, such as ``x'00'``, are symbols to the tokenizer, ``0x1`` is a word."""
    match token.kind:
        case Kind.STRING | Kind.NUMBER | Kind.BROKEN:
            return True
        case Kind.WORD | Kind.SYMBOL:
            piece = text[token.start : token.end]
            return piece[:1].isdigit() or any(quote in piece for quote in _QUOTES)
        case _:
            return False
