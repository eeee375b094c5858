"""Appends to shards, and the reasons for which an append is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slackwater.persist.parts import NewPart
from slackwater.repr.frontier import Timestamp


class UpperMismatch(Exception):
    """An append expected another upper than the shard has; nothing was written.

    `shard_id` is None when it is the shared upper of the tables.
    """

    def __init__(self, shard_id: int | None, expected: Timestamp, actual: Timestamp) -> None:
        name = "the tables" if shard_id is None else f"shard {shard_id}"
        super().__init__(f"the upper of {name} is {actual}, not {expected}")
        self.shard_id = shard_id
        self.expected = expected
        self.actual = actual


class UnknownShard(Exception):
    """There is no such shard, or it was dropped; nothing was written."""

    def __init__(self, shard_id: int) -> None:
        super().__init__(f"there is no shard {shard_id}")
        self.shard_id = shard_id


class DuplicateWrite(Exception):
    """Some of the write ids, but not all, were committed before; nothing was written.

    Ask `Commits.written` about each.
    """

    def __init__(self, write_ids: tuple[str, ...]) -> None:
        super().__init__(f"already written: {', '.join(write_ids)}")
        self.write_ids = write_ids


@dataclass(frozen=True, slots=True)
class Append:
    """Parts for one shard with its own upper, which moves from `lower` to `upper`.

    For all times t, let ``contents(t)`` be the sum of all updates of the shard at or before t.
    After the append

    * ``contents(t)`` is the same as before for t < `lower`;
    * ``contents(t)`` is that before plus the updates of `parts` at or before t for
      `lower` <= t < `upper`;
    * t >= `upper` is not complete.

    It takes effect only if the shard's upper is `lower` (I4 to I6).
    """

    shard_id: int
    lower: Timestamp
    upper: Timestamp
    parts: tuple[NewPart, ...]


@dataclass(frozen=True, slots=True)
class TablesAppend:
    """Parts for shards that share the tables upper, and the move of that upper.

    The equation of `Append` holds for each of these shards, also for those without parts: their
    contents at all times of ``[lower, upper)`` are those just before `lower` (I29, I30).
    """

    lower: Timestamp
    upper: Timestamp
    parts: Mapping[int, tuple[NewPart, ...]]


def check_bounds(appends: Sequence[Append], tables: TablesAppend | None) -> None:
    """Raises ValueError unless each part's times are within its append's bounds (I5)."""
    for append in appends:
        _check(append.lower, append.upper, append.parts)
    if tables is not None:
        _check(tables.lower, tables.upper, ())
        for news in tables.parts.values():
            _check(tables.lower, tables.upper, news)


def _check(lower: Timestamp, upper: Timestamp, news: Sequence[NewPart]) -> None:
    if lower > upper:
        raise ValueError(f"the bounds [{lower}, {upper}) are reversed")
    for new in news:
        if not lower <= new.min_time <= new.max_time < upper:
            raise ValueError(
                f"a part with times {new.min_time} to {new.max_time} is outside [{lower}, {upper})"
            )
