"""Arithmetic on tables of updates: grouping by key for the envelopes.

Columns of any type (nested ones too) can be grouped, as `persist.consolidate` says what is equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.persist.consolidate import comparable
from slackwater.repr.relation import DIFF_COLUMN


@dataclass(frozen=True, slots=True)
class KeyChanges:
    """The changes of each key at each time, in the order of first occurrence.

    The arrays are positions in the table of updates. `old` and `new` are NULL where the key had,
    or has, no row; `any_row` is one of the key's rows. `violation` is true where the key has more
    than one old or new row, then `old` and `new` mean nothing.
    """

    any_row: pa.Array
    old: pa.Array
    new: pa.Array
    violation: pa.Array

    def violated(self) -> int | None:
        """The position of a row whose key is violated, or None."""
        bad = self.any_row.filter(self.violation)
        return None if len(bad) == 0 else int(bad[0].as_py())


def changes_by_key(updates: pa.Table, time_column: str, key: Sequence[str]) -> KeyChanges:
    """`updates` (consolidated) grouped by time and `key`."""
    diffs = updates.column(DIFF_COLUMN)
    positions = pa.array(range(len(updates)), pa.int64())
    inserted = pc.greater(diffs, 0)
    none = pa.scalar(None, pa.int64())
    grouped = _grouped(
        updates.select([time_column, *key]),
        [time_column, *key],
        {
            "added": (pc.max_element_wise(diffs, 0), "sum"),
            "removed": (pc.min_element_wise(diffs, 0), "sum"),
            "new": (pc.if_else(inserted, positions, none), "max"),
            "old": (pc.if_else(inserted, none, positions), "max"),
        },
    ).sort_by("position_min")
    violation = pc.or_(pc.greater(grouped["added_sum"], 1), pc.less(grouped["removed_sum"], -1))
    return KeyChanges(
        any_row=grouped["position_min"].combine_chunks(),
        old=grouped["old_max"].combine_chunks(),
        new=grouped["new_max"].combine_chunks(),
        violation=violation.combine_chunks(),
    )


def _grouped(
    rows: pa.Table, names: Sequence[str], measures: dict[str, tuple[pa.ChunkedArray, str]]
) -> pa.Table:
    """`rows` grouped by `names`, with ``position_min`` and ``<measure>_<aggregate>``."""
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        f"key{i}": comparable(rows.column(name)) for i, name in enumerate(names)
    }
    keys = list(columns)
    columns["position"] = pa.array(range(len(rows)), pa.int64())
    columns |= {name: values for name, (values, _) in measures.items()}
    aggregates = [("position", "min"), *((name, how) for name, (_, how) in measures.items())]
    return pa.table(columns).group_by(keys, use_threads=False).aggregate(aggregates)
