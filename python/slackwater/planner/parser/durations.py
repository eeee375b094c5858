"""Durations as users write them, as whole milliseconds.

Source: surface 4.1 ("intervals in options are strings").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([a-zA-Z]+)\s*")
_CLOCK = re.compile(r"\s*([0-9]+):([0-9]{2})(?::([0-9]{2}(?:\.[0-9]+)?))?\s*")
_INTERVAL = re.compile(r"\s*interval\b", re.IGNORECASE)
_LONGEST_MS = 2**63 - 1

_UNITS: Mapping[str, Fraction] = {
    word: Fraction(length)
    for words, length in (
        ("us usec usecs microsecond microseconds", "1/1000"),
        ("ms msec msecs millisecond milliseconds", "1"),
        ("s sec secs second seconds", "1000"),
        ("m min mins minute minutes", "60000"),
        ("h hr hrs hour hours", "3600000"),
        ("d day days", "86400000"),
        ("w week weeks", "604800000"),
    )
    for word in words.split()
}
_CALENDAR = frozenset(
    ["mon", "mons", "month", "months", "y", "yr", "yrs", "year", "years", "decade", "century"]
)


def parse_duration(text: str) -> int:
    """The duration `text` in milliseconds: ``500ms``, ``1m30s``, ``1 day``, ``01:30:00``.

    Raises ValueError with a reason for users when it is none, is no whole number of
    milliseconds, is too long, or has a unit without a fixed length (months, years).
    """
    introduced = _INTERVAL.match(text)
    rest = text[introduced.end() :] if introduced else text
    if "-" in rest:
        raise ValueError("a duration cannot be negative")
    total = _parts(rest)
    if total.denominator != 1:
        raise ValueError("it is no whole number of milliseconds")
    if total > _LONGEST_MS:
        raise ValueError("it is too long")
    return int(total)


def _parts(text: str) -> Fraction:
    total = Fraction(0)
    position = 0
    while position < len(text) or position == 0:
        part = _PART.match(text, position)
        if part is None:
            clock = _CLOCK.fullmatch(text, position)
            if clock is None:
                raise ValueError("a duration is a number with a unit, such as '500ms' or '1 hour'")
            return total + _clock(clock)
        total += _quantity(part[1], part[2])
        position = part.end()
    return total


def _clock(clock: re.Match[str]) -> Fraction:
    hours, minutes, seconds = _number(clock[1]), _number(clock[2]), _number(clock[3] or "0")
    if minutes >= 60 or seconds >= 60:
        raise ValueError("minutes and seconds of a clock time go up to 59")
    return hours * _UNITS["h"] + minutes * _UNITS["m"] + seconds * _UNITS["s"]


def _quantity(number: str, unit: str) -> Fraction:
    word = unit.lower()
    if word in _CALENDAR:
        raise ValueError(f"{word} has no fixed length; use days or hours")
    if word not in _UNITS:
        raise ValueError(f"{unit} is no unit; use ms, s, m, h, d or w, or their full words")
    return _number(number) * _UNITS[word]


def _number(text: str) -> Fraction:
    # Longer numbers cannot be durations, and turning them into integers takes quadratic time.
    if len(text) > 40:
        raise ValueError("it is too long")
    return Fraction(text)


def format_duration(duration_ms: int) -> str:
    """The shortest text in one unit that `parse_duration` reads back as `duration_ms`."""
    for unit, word in (("d", "day"), ("h", "hour"), ("m", "minute"), ("s", "second")):
        count, remainder = divmod(duration_ms, int(_UNITS[unit]))
        if count and not remainder:
            return f"{count} {word}" if count == 1 else f"{count} {word}s"
    return f"{duration_ms} ms"
