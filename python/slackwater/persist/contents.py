"""Contents: what updates add up to."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.persist.consolidate import consolidate
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN


def present_rows(updates: pa.Table) -> pa.Table | None:
    """The rows that all of the updates leave, one of multiplicity n n times.

    None when a row has a negative multiplicity.
    """
    return consolidated_rows(consolidate(updates.drop_columns([TIME_COLUMN])))


def consolidated_rows(rows: pa.Table) -> pa.Table | None:
    """The same of updates that are consolidated already, and have no times."""
    counts = rows.column(DIFF_COLUMN).combine_chunks()
    rows = rows.drop_columns([DIFF_COLUMN])
    extremes = pc.min_max(counts).as_py()
    if rows.num_rows == 0 or extremes == {"min": 1, "max": 1}:
        return rows
    return None if extremes["min"] < 0 else rows.take(repeated(counts))


def advanced(updates: pa.Table, since: Timestamp) -> pa.Table:
    """The updates with times before `since` moved to it (logical compaction, spec 3.6)."""
    position = updates.schema.get_field_index(TIME_COLUMN)
    times = pc.max_element_wise(updates.column(position), pa.scalar(since, pa.int64()))
    return updates.set_column(position, updates.schema.field(position), times)


def repeated(counts: pa.Array) -> pa.Array:
    """Row numbers, each as often as its count says."""
    ends = pc.cumulative_sum(counts)
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    slots = pa.nulls(ends[-1].as_py(), pa.int8())
    return pc.list_parent_indices(pa.LargeListArray.from_arrays(offsets, slots))
