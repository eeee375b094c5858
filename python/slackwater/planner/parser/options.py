"""Lists of options in parentheses: ``NAME value`` or ``NAME = value``, separated by commas.

Source: surface 7. Unknown options and options that are given twice are errors: an option that
has no effect would be a lie.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from slackwater.planner.parser.durations import parse_duration
from slackwater.planner.parser.redaction import REDACTED
from slackwater.planner.parser.tokens import Kind, Token, TokenCursor
from slackwater.repr.errors import SlackwaterError

OptionValue = int | float | str | bool
ReadValue = Callable[[TokenCursor, str], OptionValue]
"""Reads the value of the named option at the cursor; raises SLACKWATER_INVALID_OPTION."""

_LARGEST = 2**63 - 1
_DECIMAL = re.compile(r"\d{1,6}(\.\d{0,6})?|\.\d{1,6}")
_TRUE = frozenset({"TRUE", "ON", "YES", "1"})
_FALSE = frozenset({"FALSE", "OFF", "NO", "0"})


def read_options(
    cursor: TokenCursor,
    known: Mapping[str, ReadValue],
    repeated: Collection[str] = (),
    refused: Collection[str] = (),
) -> dict[str, OptionValue]:
    """The options of the parenthesised list at the cursor, by their names in upper case.

    Those of `repeated` may be given several times; the last value is in the answer. Those of
    `refused` are read to be refused, and no error lists them.
    Raises SLACKWATER_UNKNOWN_OPTION, SLACKWATER_DUPLICATE_OPTION, SLACKWATER_INVALID_OPTION,
    SLACKWATER_SYNTAX_ERROR, each at the option that it is about.
    """
    cursor.expect_symbol("(")
    found: dict[str, OptionValue] = {}
    while True:
        at = cursor.token
        option = _option_name(cursor, known, refused)
        if option in found and option not in repeated:
            raise cursor.error(
                "SLACKWATER_DUPLICATE_OPTION", at, statement=cursor.statement, option=option
            )
        cursor.accept_symbol("=")
        found[option] = known[option](cursor, option)
        if not cursor.accept_symbol(","):
            break
    if not cursor.token.is_symbol(")"):
        raise cursor.syntax_error(", or )")
    cursor.advance()
    return found


def _option_name(
    cursor: TokenCursor, known: Mapping[str, ReadValue], refused: Collection[str]
) -> str:
    for option in sorted(known, key=len, reverse=True):
        if cursor.accept(*option.split()):
            return option
    at = cursor.token
    words: list[str] = []
    usual = {word for option in known for word in option.split()} if cursor.hides_text else None
    while cursor.token.kind is Kind.WORD:
        words.append(cursor.advance().text.upper())
        # What follows the first strange word may be a value.
        if usual is not None and words[-1] not in usual:
            break
    if not words:
        raise cursor.syntax_error("an option")
    raise cursor.error(
        "SLACKWATER_UNKNOWN_OPTION",
        at,
        statement=cursor.statement,
        option=" ".join(words),
        options=", ".join(option for option in known if option not in refused),
    )


def invalid(cursor: TokenCursor, option: str, token: Token, reason: str) -> SlackwaterError:
    """SLACKWATER_INVALID_OPTION at the token, which is the value of the option."""
    value = repr(token.text) if token.kind is Kind.STRING else token.text or token.kind.value
    return invalid_value(cursor, token, option, value, reason)


def invalid_value(
    cursor: TokenCursor, at: Token, option: str, value: str, reason: str
) -> SlackwaterError:
    """SLACKWATER_INVALID_OPTION at a token, for an option whose value is shown as `value`."""
    return cursor.error(
        "SLACKWATER_INVALID_OPTION",
        at,
        option=option,
        statement=cursor.statement,
        value=REDACTED if cursor.hides_text else value,
        reason=reason,
    )


def duration(cursor: TokenCursor, option: str) -> int:
    """A string such as '1 hour', as milliseconds; zero is allowed."""
    token = cursor.token
    if token.kind is not Kind.STRING:
        raise cursor.syntax_error("a duration as a string, such as '1 hour'")
    try:
        value = parse_duration(token.text)
    except ValueError as reason:
        raise invalid(cursor, option, token, str(reason)) from None
    cursor.advance()
    return value


def positive_duration(cursor: TokenCursor, option: str) -> int:
    token = cursor.token
    value = duration(cursor, option)
    if value == 0:
        raise invalid(cursor, option, token, "it must be longer than zero")
    return value


def integer(cursor: TokenCursor, option: str) -> int:
    """A whole number, not negative, below 2^63."""
    token = cursor.token
    digits = token.text if token.kind in (Kind.NUMBER, Kind.WORD) else ""
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 30):
        raise invalid(cursor, option, token, "a whole number from 0 on is expected")
    if int(digits) > _LARGEST:
        raise invalid(cursor, option, token, f"the greatest is {_LARGEST}")
    cursor.advance()
    return int(digits)


def positive_integer(cursor: TokenCursor, option: str) -> int:
    """A whole number from 1 on."""
    token = cursor.token
    value = integer(cursor, option)
    if value == 0:
        raise invalid(cursor, option, token, "a whole number from 1 on is expected")
    return value


def positive_integer_to(most: int) -> ReadValue:
    """A whole number from 1 on, and at most `most`."""

    def read(cursor: TokenCursor, option: str) -> int:
        token = cursor.token
        value = positive_integer(cursor, option)
        if value > most:
            raise invalid(cursor, option, token, f"the greatest is {most}")
        return value

    return read


def positive_number(most: float) -> ReadValue:
    """A number that is greater than zero, and at most `most`; digits with or without a point."""

    def read(cursor: TokenCursor, option: str) -> float:
        token = cursor.token
        if token.kind is not Kind.NUMBER or not _DECIMAL.fullmatch(token.text):
            raise invalid(cursor, option, token, "a number greater than zero is expected")
        value = float(token.text)
        if not 0 < value <= most:
            reason = f"a number greater than zero is expected, up to {most:g}"
            raise invalid(cursor, option, token, reason)
        cursor.advance()
        return value

    return read


def text(cursor: TokenCursor, option: str) -> str:
    """A string that is not empty."""
    token = cursor.token
    if token.kind is not Kind.STRING:
        raise cursor.syntax_error("a string")
    if not token.text:
        raise invalid(cursor, option, token, "it is empty")
    return cursor.advance().text


def boolean(cursor: TokenCursor, option: str) -> bool:
    """true or false, as a word or a string; nothing at all means true."""
    token = cursor.token
    if token.is_symbol(",") or token.is_symbol(")"):
        return True
    word = token.text.upper()
    if token.kind not in (Kind.WORD, Kind.STRING, Kind.NUMBER) or word not in _TRUE | _FALSE:
        raise invalid(cursor, option, token, "true or false is expected")
    cursor.advance()
    return word in _TRUE


def choice(*allowed: str) -> ReadValue:
    """One of these words, in upper case; a string with the same text means the word."""

    def read(cursor: TokenCursor, option: str) -> str:
        token = cursor.token
        word = token.text.upper()
        if token.kind not in (Kind.WORD, Kind.STRING) or word not in allowed:
            raise invalid(cursor, option, token, f"one of {', '.join(allowed)} is expected")
        cursor.advance()
        return word

    return read
