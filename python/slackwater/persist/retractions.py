"""Whether what a write retracts is there.

A multiplicity below zero cannot be read, so a write that would leave one must not be committed.
A write that only adds is not looked at. Else, of the shard only rows that share a value with a
retracted one have to be read as a whole. What is in memory at once is bounded: many changes are
looked at in ranges of one column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.persist.blobs import Blobs
from slackwater.persist.consolidate import consolidate
from slackwater.persist.parts import NewPart, Part
from slackwater.persist.reading import read, read_column, read_where
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN, RelationDesc

ROWS_AT_ONCE = 1_000_000
"""About how many changes are in memory at once."""

_SAMPLE = 100_000
"""The number of values that decide where ranges begin."""

Wanted = Callable[[pa.ChunkedArray], pa.ChunkedArray]


def unmatched_retractions(
    stored: Sequence[Part],
    changes: Sequence[NewPart | Part],
    desc: RelationDesc,
    blobs: Blobs,
    *,
    rows_at_once: int = ROWS_AT_ONCE,
) -> int:
    """The number of retractions of `changes` whose rows neither `stored` nor `changes` have.

    `stored` are all parts of the shard that are needed for its contents now. Rows are equal as in
    `consolidate`. Reads nothing when there is no retraction. Raises what `read` does.
    """
    if not any(change.has_retractions for change in changes):
        return 0
    key = _key(changes, desc, blobs)
    if key is None:
        changed = read(changes, desc, blobs=blobs)
        return _lacking(changed, read(stored, desc, blobs=blobs))
    count = 0
    for within in _ranges(changes, key, desc, blobs, rows_at_once):
        changed = read_where(changes, desc, key, within, blobs=blobs)
        retracted = changed.filter(pc.less(changed.column(DIFF_COLUMN), 0))
        if retracted.num_rows:
            found = read_where(stored, desc, key, _among(retracted.column(key)), blobs=blobs)
            count += _lacking(changed, found)
    return count


def _lacking(changed: pa.Table, found: pa.Table) -> int:
    """The number of rows that are there less than zero times with the changes."""
    rows = consolidate(pa.concat_tables([changed, found]).drop_columns([TIME_COLUMN]))
    return -int(pc.sum(pc.min_element_wise(rows.column(DIFF_COLUMN), 0)).as_py() or 0)


def _key(changes: Sequence[NewPart | Part], desc: RelationDesc, blobs: Blobs) -> str | None:
    """The column with the most different values in the first part with retractions.

    Of those whose equal values have equal bytes; None when there is none.
    """
    schema = desc.arrow_schema()
    usable = [field.name for field in schema if _is_usable(field.type)]
    first = next(change for change in changes if change.has_retractions)
    distinct = {
        name: pc.count_distinct(read_column(first, desc, name, blobs=blobs), mode="all").as_py()
        for name in usable
    }
    return max(usable, key=lambda name: distinct[name], default=None)


def _is_usable(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind) and not pa.types.is_floating(kind)


def _ranges(
    changes: Sequence[NewPart | Part], key: str, desc: RelationDesc, blobs: Blobs, rows_at_once: int
) -> Iterator[Wanted]:
    """Conditions on the key, of which each value meets one, and about as many changes each."""
    total = sum(change.rows for change in changes)
    bounds = _bounds(changes, key, desc, blobs, -(-total // rows_at_once))
    ends = [None, *bounds, None]
    for low, high in pairwise(ends):
        yield _between(low, high)


def _bounds(
    changes: Sequence[NewPart | Part], key: str, desc: RelationDesc, blobs: Blobs, ranges: int
) -> list[pa.Scalar]:
    """The values of the key at which a new range begins."""
    if ranges <= 1:
        return []
    step = max(1, sum(change.rows for change in changes) // _SAMPLE)
    drawn = []
    for change in changes:
        values = read_column(change, desc, key, blobs=blobs)
        drawn.append(values.take(pa.array(range(0, len(values), step), pa.int64())))
    chunks = [chunk for values in drawn for chunk in values.chunks]
    sample = pc.drop_null(pa.chunked_array(chunks, type=drawn[0].type))
    ordered = sample.take(pc.sort_indices(sample))
    places = [len(ordered) * number // ranges for number in range(1, ranges)]
    if not len(ordered):
        return []
    return [ordered[place] for place in places]


def _between(low: pa.Scalar | None, high: pa.Scalar | None) -> Wanted:
    """``low <= value < high``; NULL is below all values."""

    def wanted(values: pa.ChunkedArray) -> pa.ChunkedArray:
        kept = pa.chunked_array([pa.repeat(pa.scalar(True), len(values))])
        if low is not None:
            kept = pc.fill_null(pc.greater_equal(values, low), False)
        if high is not None:
            kept = pc.and_(kept, pc.fill_null(pc.less(values, high), True))
        return kept

    return wanted


def _among(values: pa.ChunkedArray) -> Wanted:
    searched = pc.unique(values)
    return lambda found: pc.is_in(found, value_set=searched)
