"""Values as people read them, and tables of such texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from slackwater.console.snapshot import Row

NONE = "—"
CUT = 2_000
"""Longer texts are cut on a page."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts. `empty` is said where there are no rows."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    empty: str = "none"


def table(
    caption: str, columns: Sequence[tuple[str, str]], rows: Iterable[Row], *, empty: str = "none"
) -> Table:
    """The columns, each a name in the rows and its heading; those that no row has are left out."""
    found = list(rows)
    shown = [(name, heading) for name, heading in columns if not found or name in found[0]]
    texts = tuple(tuple(cell(name, row[name]) for name, _ in shown) for row in found)
    return Table(caption, tuple(heading for _, heading in shown), texts, empty)


def cell(name: str, value: Any) -> str:
    """A value of a column as text; the end of the column's name says its unit."""
    if value is None:
        return NONE
    if isinstance(value, datetime):
        return moment(int(value.timestamp() * 1000))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return _NUMBERS.get(name.rpartition("_")[2], count)(value)
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= CUT else text[:CUT] + " …"


def moment(ms: int | None) -> str:
    """A time in milliseconds since the epoch, by UTC; NULL is the empty frontier."""
    if ms is None:
        return NONE
    try:
        at = datetime.fromtimestamp(ms // 1000, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return str(ms)
    return f"{at:%Y-%m-%d %H:%M:%S}"


def clock(ms: int | None) -> str:
    """The time of the day, by UTC."""
    return NONE if ms is None else moment(ms)[11:]


def count(number: float | None) -> str:
    """A number with spaces between thousands."""
    return NONE if number is None else f"{number:,.0f}".replace(",", " ")


def rate(number: float | None) -> str:
    """Rows a second."""
    if number is None:
        return NONE
    return f"{number:.1f}" if 0 < number < 10 else count(number)


def seconds(ms: int | None) -> str:
    """Milliseconds as seconds, to a tenth."""
    return NONE if ms is None else f"{ms / 1000:,.1f}".replace(",", " ")


def size(number: int | None) -> str:
    """Bytes, in the unit that fits."""
    if number is None:
        return NONE
    value, units = float(number), ["bytes", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.0f} {units[0]}" if units[0] == "bytes" else f"{value:.1f} {units[0]}"


_NUMBERS: dict[str, Callable[[int], str]] = {"bytes": size, "frontier": moment, "time": moment}
