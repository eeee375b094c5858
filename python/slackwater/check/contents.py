"""Whether a part has the updates that the state says. No I/O: the updates are given."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.persist.parts import FileBody, Part, Uniform
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN


def part_problem(part: Part, updates: Iterable[pa.Table]) -> str | None:
    """A difference between the updates of the part and what the state says; None: there is none."""
    rows = 0
    for table in updates:
        rows += table.num_rows
        problem = _problem(part, table) if table.num_rows else None
        if problem is not None:
            return f"part {part.part_id} {problem}"
    if rows != part.rows:
        return f"part {part.part_id} has {rows} rows, not {part.rows}"
    return None


def _problem(part: Part, table: pa.Table) -> str | None:
    for name in (TIME_COLUMN, DIFF_COLUMN):
        if table.column(name).null_count:
            return f"has rows without {name}"
    times = pc.min_max(table.column(TIME_COLUMN)).as_py()
    if times["min"] < part.min_time or times["max"] > part.max_time:
        return (
            f"has times from {times['min']} to {times['max']}, "
            f"not within {part.min_time} and {part.max_time}"
        )
    if not part.has_retractions and _has_others_than_ones(part, table):
        return "has retractions, of which its readers are not told"
    return None


def _has_others_than_ones(part: Part, table: pa.Table) -> bool:
    match part.body:
        case FileBody(uniform=Uniform(diff=diff)):
            # What takes back a retraction several times is told of as if it were once.
            return diff < 0
        case _:
            return bool(pc.any(pc.not_equal(table.column(DIFF_COLUMN), 1)).as_py())
