"""The grammar of REFRESH, an option of materialized views. Source: surface 4.1 and 7.

Times are strings such as '2026-06-01 22:00:00', in UTC unless they name an offset, or whole
milliseconds since the epoch.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from slackwater.planner.parser.options import invalid, positive_duration
from slackwater.planner.parser.statements import (
    Refresh,
    RefreshAt,
    RefreshAtCreation,
    RefreshEach,
)
from slackwater.planner.parser.tokens import Kind, Token, TokenCursor

_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?"
    r" ?(Z|UTC|[+-]\d\d(?::?\d\d)?)?",
    re.IGNORECASE | re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
LAST_TIME_MS = 253_402_300_799_999
"""The end of the year 9999."""
_EXPECTED = "a time as a string, such as '2026-06-01 22:00:00', in UTC unless it has an offset"


class RefreshOptions:
    """Reads the REFRESH options of one statement; `read` has them in their order."""

    def __init__(self) -> None:
        self.read: list[Refresh] = []
        self._is_on_commit = False

    def option(self, cursor: TokenCursor, option: str) -> str:
        """The value of one option.

        Raises SLACKWATER_INVALID_OPTION for a time or an interval that is none, and for ON COMMIT
        beside another REFRESH; SLACKWATER_UNSUPPORTED for a time that is computed.
        """
        at = cursor.token
        if cursor.accept("ON", "COMMIT"):
            if self.read or self._is_on_commit:
                raise _alone(cursor, option, at)
            self._is_on_commit = True
            return "ON COMMIT"
        if self._is_on_commit:
            raise _alone(cursor, option, at)
        if cursor.accept("AT"):
            if cursor.accept("CREATION"):
                self.read.append(RefreshAtCreation())
            else:
                self.read.append(RefreshAt(_time(cursor, f"{option} AT")))
            return "AT"
        if cursor.accept("EVERY"):
            interval_ms = positive_duration(cursor, f"{option} EVERY")
            aligned = cursor.accept("ALIGNED", "TO")
            aligned_to_ms = _time(cursor, "ALIGNED TO") if aligned else None
            self.read.append(RefreshEach(interval_ms, aligned_to_ms))
            return "EVERY"
        raise cursor.syntax_error("ON COMMIT, AT or EVERY")


def _alone(cursor: TokenCursor, option: str, at: Token) -> Exception:
    return invalid(cursor, option, at, "ON COMMIT stands alone: with it there is no other REFRESH")


def _time(cursor: TokenCursor, option: str) -> int:
    """A time in milliseconds since the epoch."""
    token = cursor.token
    if token.kind is Kind.NUMBER and token.text.isascii() and token.text.isdecimal():
        if len(token.text) > 15 or int(token.text) > LAST_TIME_MS:
            raise invalid(cursor, option, token, "times end with the year 9999")
        cursor.advance()
        return int(token.text)
    if token.kind is Kind.WORD and cursor.peek().is_symbol("("):
        raise cursor.unsupported(
            f"{option} {token.text}(...)", "Say a time, or REFRESH AT CREATION for the present one."
        )
    if token.kind is not Kind.STRING:
        raise cursor.syntax_error(_EXPECTED)
    try:
        time_ms = parse_time(token.text)
    except ValueError as reason:
        raise invalid(cursor, option, token, str(reason)) from None
    cursor.advance()
    return time_ms


def parse_time(text: str) -> int:
    """The time `text` in milliseconds since the epoch. Raises ValueError with a reason for users.

    It is UTC unless it names an offset; without a time of day it is midnight.
    """
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{_EXPECTED}, is expected")
    year, month, day, hour, minute, second, fraction, offset = found.groups()
    micros = (fraction or "").ljust(9, "0")
    if int(micros) % 1_000_000:
        raise ValueError("times have whole milliseconds")
    try:
        local = datetime(
            int(year),
            int(month),
            int(day),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            tzinfo=timezone.utc,
        )
    except ValueError:
        raise ValueError("there is no such day, or no such time of day") from None
    whole_ms = (local - _EPOCH) // timedelta(milliseconds=1)
    time_ms = whole_ms + int(micros) // 1_000_000 - _offset_ms(offset)
    if not 0 <= time_ms <= LAST_TIME_MS:
        raise ValueError("times begin with 1970 and end with the year 9999, in UTC")
    return time_ms


def format_time(time_ms: int) -> str:
    """The text in UTC that `parse_time` reads back as `time_ms`, which is up to LAST_TIME_MS."""
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    fraction = f".{time_ms % 1000:03}" if time_ms % 1000 else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction}"


def _offset_ms(offset: str | None) -> int:
    if offset is None or offset.upper() in ("Z", "UTC"):
        return 0
    digits = offset[1:].replace(":", "")
    hours, minutes = int(digits[:2]), int(digits[2:] or 0)
    if hours > 18 or minutes > 59:
        raise ValueError("an offset is at most 18 hours")
    sign = -1 if offset[0] == "-" else 1
    return sign * (hours * 60 + minutes) * 60_000
