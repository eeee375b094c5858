"""Reading the errors beside a collection: whether it can be read at the times of an interval.

Source: spec controllers 5.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.persist.consolidate import consolidate
from slackwater.persist.parts import NewPart, Part
from slackwater.repr.dataflow_error import ERRORS, refusal
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN, RelationDesc


class PartReader(Protocol):
    """Lists and reads parts (`ShardReads`)."""

    def parts_at(self, shard_id: int, as_of: Timestamp) -> tuple[Part, ...]: ...

    def read(
        self,
        parts: Sequence[Part | NewPart],
        desc: RelationDesc,
        *,
        lower: Timestamp | None = None,
        upper: Timestamp | None = None,
    ) -> pa.Table: ...


@dataclass(frozen=True, slots=True)
class Standing:
    """The error for which a collection cannot be read now, and the time at which it came.

    Times up to the since of the shard may have become one: then it came at that time or before.
    """

    error: SlackwaterError
    since: Timestamp


def first_refusal(
    shards: PartReader, shard_id: int, object_name: str, lower: Timestamp, upper: Timestamp
) -> SlackwaterError | None:
    """Why the collection cannot be read at the first time in ``[lower, upper)`` with an error.

    None: there are no errors at any of these times. `shard_id` is the shard of its errors.
    """
    found = first_standing(shards, shard_id, object_name, lower, upper)
    return None if found is None else found.error


def first_standing(
    shards: PartReader, shard_id: int, object_name: str, lower: Timestamp, upper: Timestamp
) -> Standing | None:
    """The error at the first time in ``[lower, upper)`` with one, and that time; None: as above."""
    parts = shards.parts_at(shard_id, Timestamp(upper - 1))
    if not parts or lower >= upper:
        return None
    updates = shards.read(parts, ERRORS, upper=upper)
    for time in _times(updates, lower):
        error = refusal(_present(updates, time), object_name, time)
        if error is not None:
            return Standing(error, time)
    return None


def standing(
    shards: PartReader, shard_id: int, object_name: str, time: Timestamp
) -> Standing | None:
    """The error at `time`; None: there is none. `shard_id` is the shard of the errors."""
    parts = shards.parts_at(shard_id, time)
    if not parts:
        return None
    updates = shards.read(parts, ERRORS, upper=Timestamp(time + 1))
    present = _present(updates, time)
    error = refusal(present, object_name, time) if present.num_rows else None
    if error is None:
        return None
    is_present = pc.is_in(updates.column("error"), value_set=present.column("error"))
    added = updates.filter(pc.and_(is_present, pc.greater(updates.column(DIFF_COLUMN), 0)))
    came = pc.max(added.column(TIME_COLUMN)).as_py()
    return Standing(error, Timestamp(came))


def errors_at(shards: PartReader, shard_id: int, time: Timestamp) -> tuple[str, ...]:
    """The errors of the shard at `time`, as `encode` writes them, each one once."""
    return tuple(error for error, _ in _counted(shards, shard_id, time))


def all_errors_at(shards: PartReader, shard_id: int, time: Timestamp) -> tuple[str, ...]:
    """The same, but each as often as it is there."""
    return tuple(error for error, n in _counted(shards, shard_id, time) for _ in range(n))


def _counted(shards: PartReader, shard_id: int, time: Timestamp) -> list[tuple[str, int]]:
    parts = shards.parts_at(shard_id, time)
    if not parts:
        return []
    present = _present(shards.read(parts, ERRORS, upper=Timestamp(time + 1)), time)
    errors, counts = (present.column(name).to_pylist() for name in ("error", DIFF_COLUMN))
    return list(zip(errors, counts, strict=True))


def _times(updates: pa.Table, lower: Timestamp) -> list[Timestamp]:
    """`lower` and the times after it at which errors change."""
    times = updates.column(TIME_COLUMN)
    later = pc.unique(times.filter(pc.greater(times, lower))).to_pylist()
    return [lower, *(Timestamp(time) for time in sorted(later))]


def _present(updates: pa.Table, time: Timestamp) -> pa.Table:
    before = updates.filter(pc.less_equal(updates.column(TIME_COLUMN), time))
    held = consolidate(before.drop_columns([TIME_COLUMN]))
    return held.filter(pc.greater(held.column(DIFF_COLUMN), 0))
