"""A case of the engine's fuzz test: tables with histories, views over them, ways to run them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from slackwater.compute.limits import Limits

LAST = 9
"""The last time at which something happens."""

Update = tuple[tuple, int, int]
"""A row, its time, its diff."""


@dataclass(frozen=True, slots=True)
class View:
    """One query in the words of both engines. It may read tables and earlier views."""

    spark: str
    duck: str
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LowMemory:
    """While the tables' upper is below `until`, all arrangements together have `pages` of memory.

    It ends before that when a view stands still that cannot go on without memory.
    """

    pages: int
    until: int = LAST + 2


@dataclass(frozen=True, slots=True)
class Run:
    """How a history is maintained.

    The tables' uppers are `boundaries`, one after the other. Each worker ends at the steps `kills`,
    counted from its start, and another one begins anew.
    """

    boundaries: tuple[int, ...] = (LAST + 1,)
    limits: Limits = field(default_factory=Limits)
    workers: int = 1
    kills: tuple[int, ...] = ()
    low_memory: LowMemory | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """`tables` have the kinds of columns by their names, see `kinds.KINDS`.

    The views are exact from `as_of` on, and created as soon as the tables are complete then. All
    `runs` give the same shards.
    """

    tables: Mapping[str, Mapping[str, str]]
    histories: Mapping[str, Sequence[Update]]
    views: Mapping[str, View]
    as_of: int
    runs: Sequence[Run]


def reads(text: str, name: str) -> bool:
    """Whether a query reads the relation."""
    return name in text.replace("(", " ").replace(")", " ").split()


def difference(found: Counter, wanted: Counter) -> str:
    """How the rows that were found differ from those that should be."""
    return f"too many: {dict(found - wanted)}, missing: {dict(wanted - found)}"


def contents(updates: Sequence[Update], time: int) -> list[tuple]:
    """The rows at a time, as often as they occur. ValueError: there are less than none of one."""
    counts: Counter[str] = Counter()
    rows: dict[str, tuple] = {}
    for row, at, diff in updates:
        if at <= time:
            rows[repr(row)] = row
            counts[repr(row)] += diff
    if any(count < 0 for count in counts.values()):
        raise ValueError(f"a row that is gone more often than it came, at {time}")
    return [rows[text] for text, count in counts.items() for _ in range(count)]


def is_possible(updates: Sequence[Update]) -> bool:
    try:
        for time in {at for _, at, _ in updates}:
            contents(updates, time)
    except ValueError:
        return False
    return True


SCRIPT = """\
import datetime
from decimal import Decimal

from tests.fuzz.cases import Case, Run, LowMemory, View
from tests.fuzz.running import failure_of

from slackwater.compute.limits import Limits

nan, inf = float("nan"), float("inf")


def test_{name}(declared):
    case = {case}
    assert failure_of(declared, case) is None
"""


def script(case: Case, name: str) -> str:
    """A test of the case, to be pasted into ``tests/fuzz/test_found_cases.py``."""
    return SCRIPT.format(name=name, case=_written(case, 1))


def _written(value: Any, depth: int) -> str:
    """The value as it is written in Python, over several lines where it is long."""
    plain = repr(value)
    if len(plain) + 4 * depth < 88:
        return plain
    inner, outer = "    " * (depth + 1), "    " * depth
    match value:
        case Case() | View() | Run():
            pairs = [(f"{each.name}=", getattr(value, each.name)) for each in fields(value)]
            opening, closing = f"{type(value).__name__}(", ")"
        case dict():
            pairs = [(f"{key!r}: ", each) for key, each in value.items()]
            opening, closing = "{", "}"
        case list() | tuple():
            pairs = [("", each) for each in value]
            opening, closing = "[", "]"
        case _:
            return plain
    lines = [f"{inner}{name}{_written(each, depth + 1)}," for name, each in pairs]
    return "\n".join([opening, *lines, outer + closing])
