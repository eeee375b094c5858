"""Columns with names of ours, and odd ones."""

from __future__ import annotations

OURS = ("__time", "__DIFF", "__t\u0131me'", "__row", "_metadata", "__empty")
OF_ENVELOPES = ("mz_timestamp", "mz_diff", "mz_progressed", "Mz_State", "mz_op")
OTHERS = (
    "key",
    "value",
    "element",
    "before",
    "before_key",
    "after",
    "select",
    "a b",
    "a`b",
    "a.b",
    'e"f',
    "\u00fc,;(){}=",
    "\u0130",
    "'",
)
NAMES = (*OURS, *OF_ENVELOPES, *OTHERS)


def quoted(name):
    return "`" + name.replace("`", "``") + "`"


def declared(names, kind="BIGINT"):
    return ", ".join(f"{quoted(name)} {kind}" for name in names)


def row(number, names=NAMES):
    """The number of the row, and other numbers in all other columns."""
    return [number, *(number * 1000 + at for at in range(1, len(names)))]


def values(numbers, names=NAMES):
    return ", ".join(f"({', '.join(map(str, row(number, names)))})" for number in numbers)
