"""Names of columns: plain ones, and such that are ours, words of the language, or odd."""

from __future__ import annotations

import re
from random import Random

from tests.fuzz.query import both

ODD = (
    "__Time",
    "__diff",
    "__diff'",
    "__row",
    "__empty",
    "_metadata",
    "mz_timestamp",
    "key",
    "value",
    "select",
    "a b",
    "a.b",
    "a`b",
    'e"f',
    "\u00fc,;(){}",
    "x\u0130",
    "y\u0131",
)
"""No two of them are the same to either engine, whatever the case is."""

_PLAIN = re.compile(r"\w\d+")


def chosen(random: Random, count: int) -> list[str]:
    """Names of the columns of one relation; in most relations all are plain."""
    plain = [f"c{i}" for i in range(count)]
    if random.random() < 0.7:
        return plain
    odd = random.sample(ODD, min(count, len(ODD)))
    return [random.choice(pair) for pair in zip(plain, odd, strict=False)] + plain[len(odd) :]


def quoted(name: str) -> str:
    """The name as a query has it, in the words of both engines."""
    if _PLAIN.fullmatch(name):
        return name
    return both(in_spark(name), in_duck(name))


def in_spark(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def in_duck(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
