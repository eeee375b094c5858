"""Compaction: which parts of a shard become fewer, and how.

Parts are merged like the runs of a log-structured merge tree: when there are enough parts of about
one size they become one of the next size. So a row is rewritten a logarithmic number of times, and
a shard has O(log n) parts besides those of the target size. Parts whose times are all at or before
the since are *settled*: nobody can tell their times apart any more, so any of them may be merged,
with their times advanced to the since and equal rows summed. Others are merged with neighbours in
time only, so that who reads an interval does not meet parts of far away times.

A merge is prepared beside the writers and takes effect in one transaction, if exactly the parts
that it read are still there; else it is thrown away. Source: spec controllers 3.6, invariant I3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.persist.blobs import file_part, inline_part
from slackwater.persist.client import PersistClient
from slackwater.persist.consolidate import consolidate
from slackwater.persist.contents import advanced, repeated
from slackwater.persist.parts import FileBody, InlineBody, NewPart, Part
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN, RelationDesc


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """`target_bytes` is the size of a part that is not merged with others for its size alone.

    Level 0 ends at `base_bytes`, each further level is `fan_in` times as large and full with
    `fan_in` parts. Of inline parts, which cost a reader little, level 0 takes `inline_fan_in`. But
    `inline_level_bytes` in them fill any level, because every reader is sent all of them.
    When parts with retractions have `retraction_share` of a shard's settled rows, all of them are
    merged. A merge of more than `memory_bytes` or `memory_rows` is left to a `Rewriter`. A result
    up to `inline_bytes` is inline.
    """

    target_bytes: int = 128 * 1024 * 1024
    base_bytes: int = 64 * 1024
    fan_in: int = 8
    inline_fan_in: int = 64
    inline_level_bytes: int = 4 * 1024 * 1024
    retraction_share: float = 0.25
    memory_bytes: int = 64 * 1024 * 1024
    memory_rows: int = 2_000_000
    inline_bytes: int = 64 * 1024

    @property
    def final_bytes(self) -> int:
        """From this size on a part is merged no more, so that results stay near the target."""
        return self.target_bytes // 2


UNIT_LIMIT = 8
"""Up to so many equal rows stay rows of their own, so that a scan needs no consolidation."""

_SORT_COLUMNS = 4


class Rewriter(Protocol):
    """Merges parts that are too large for one process (Spark)."""

    def rewrite(
        self,
        parts: Sequence[Part],
        desc: RelationDesc,
        since: Timestamp,
        directory: str,
        files: int,
    ) -> tuple[NewPart, ...]:
        """The updates of the parts with times advanced to `since`, consolidated, in new files.

        They are sorted by the row and in about `files` files in the directory, a URI.
        """
        ...


@dataclass(frozen=True, slots=True)
class Merge:
    """`removed` are to be replaced by what the updates of `read`, some of them, add up to.

    The rest of `removed` adds up to nothing.
    """

    removed: tuple[Part, ...]
    read: tuple[Part, ...]

    @property
    def bytes(self) -> int:
        """The bytes that are to be read."""
        return sum(part_bytes(part) for part in self.read)

    @property
    def rows(self) -> int:
        """The number of updates that are to be read."""
        return sum(part.rows for part in self.read)

    @property
    def first(self) -> Timestamp:
        """The earliest time of a part that is replaced."""
        return min(part.min_time for part in self.removed)


def part_bytes(part: Part) -> int:
    """The size of a part, as it is stored."""
    return part.body.size_bytes


def choose(parts: Sequence[Part], since: Timestamp, settings: CompactionSettings) -> Merge | None:
    """The merge that a shard with these parts needs most, if any.

    `parts` are all parts of the shard; `since` is where its since is or may be moved to.
    """
    settled = [part for part in parts if part.max_time <= since]
    unsettled = sorted(
        (part for part in parts if part.max_time > since),
        key=lambda part: (part.min_time, part.part_id),
    )
    cancelled = _cancelled(settled)
    if cancelled:
        return Merge(tuple(cancelled), ())
    paired = {_uniform_uri(part) for part in unsettled} - {None}
    free = [part for part in settled if _uniform_uri(part) not in paired]
    if _has_many_retractions(free, settings):
        return Merge(tuple(free), tuple(free))
    chosen = _full_levels(free, settings) or _full_run(unsettled, settings)
    return Merge(tuple(chosen), tuple(chosen)) if chosen else None


@dataclass(frozen=True, slots=True)
class Compactor:
    """Carries out merges in the shards of `client`. Without a `rewriter` it leaves large ones.

    It does not guarantee that a merge takes effect: a writer or another merge may be first.
    """

    client: PersistClient
    settings: CompactionSettings
    rewriter: Rewriter | None = None

    def compact(self, shard_id: int, merge: Merge, since: Timestamp) -> bool:
        """Carries the merge out; False when a part was replaced meanwhile, or it is too large.

        The shard's since moves to `since` with it, so nobody may hold the shard before. Raises
        `UnknownShard`, and what reading, writing and `ShardMaintenance.replace_parts` raise.
        """
        news = self._rewritten(shard_id, merge, since)
        if news is None:
            return False
        removed = frozenset(part.part_id for part in merge.removed)
        replaced = self.client.maintenance.replace_parts(shard_id, removed, news, since=since)
        if not replaced:
            self.client.files.discard(news)
        return replaced

    def _rewritten(
        self, shard_id: int, merge: Merge, since: Timestamp
    ) -> tuple[NewPart, ...] | None:
        client, settings = self.client, self.settings
        desc = client.reads.state(shard_id).desc
        directory = client.files.shard_directory(shard_id)
        if is_large(merge, settings):
            if self.rewriter is None:
                return None
            files = -(-merge.bytes // settings.target_bytes)
            news = self.rewriter.rewrite(merge.read, desc, since, directory, files)
            client.blobs.settle(new.body.uri for new in news if isinstance(new.body, FileBody))
            return news
        updates = merged(client.reads.read(merge.read, desc), merge.read, since)
        if not updates.num_rows:
            return ()
        if updates.nbytes <= settings.inline_bytes:
            return (inline_part(updates),)
        return (file_part(client.blobs, updates, directory),)


def is_large(merge: Merge, settings: CompactionSettings) -> bool:
    """Whether the merge is left to a `Rewriter`."""
    return merge.bytes > settings.memory_bytes or merge.rows > settings.memory_rows


def merged(updates: pa.Table, parts: Sequence[Part], since: Timestamp) -> pa.Table:
    """The updates of the parts with times advanced to `since`, consolidated and sorted.

    Without retractions there is nothing to sum: equal rows stay rows of their own.
    """
    updates = advanced(updates, since)
    if any(part.has_retractions for part in parts):
        updates = _in_units(consolidate(updates))
    return _sorted(updates)


def _in_units(updates: pa.Table) -> pa.Table:
    """The same with each diff of 2 to `UNIT_LIMIT` as that many rows."""
    diffs = updates.column(DIFF_COLUMN).combine_chunks()
    several = pc.and_(pc.greater(diffs, 1), pc.less_equal(diffs, UNIT_LIMIT))
    if not pc.any(several).as_py():
        return updates
    position = updates.schema.get_field_index(DIFF_COLUMN)
    one = pa.scalar(1, pa.int64())
    units = updates.set_column(
        position, updates.schema.field(position), pc.if_else(several, one, diffs)
    )
    return units.take(repeated(pc.if_else(several, diffs, one)))


def _sorted(updates: pa.Table) -> pa.Table:
    """By time where times differ, then by the first columns that have an order."""
    columns = sort_columns(updates.schema)
    times = pc.min_max(updates.column(TIME_COLUMN)).as_py()
    keys = columns if times["min"] == times["max"] else [TIME_COLUMN, *columns]
    return updates.sort_by([(name, "ascending") for name in keys]) if keys else updates


def sort_columns(schema: pa.Schema) -> list[str]:
    """The columns by which rows are sorted, so that the statistics of files tell them apart."""
    names = [
        field.name
        for field in schema
        if not pa.types.is_nested(field.type) and field.name not in (TIME_COLUMN, DIFF_COLUMN)
    ]
    return names[:_SORT_COLUMNS]


# What is chosen


def _uniform_uri(part: Part) -> str | None:
    match part.body:
        case FileBody(uri, _, _, uniform) if uniform is not None:
            return uri
    return None


def _cancelled(settled: Sequence[Part]) -> list[Part]:
    """Uniform parts over one file that add up to nothing: they go without being read."""
    sums: Counter[str] = Counter()
    for part in settled:
        if isinstance(part.body, FileBody) and part.body.uniform is not None:
            sums[part.body.uri] += part.body.uniform.diff
    return [part for part in settled if sums.get(_uniform_uri(part) or "") == 0]


def _has_many_retractions(settled: Sequence[Part], settings: CompactionSettings) -> bool:
    """Whether reading all of them again now costs little for what it takes away.

    The largest part is what retractions are about, and a part of the target size that may be the
    result of an earlier merge says nothing: it only counts if it certainly is no such result.
    """
    if len(settled) < 2:
        return False
    largest = max(settled, key=lambda part: (part.rows, part.part_id))
    retracting = [
        part
        for part in settled
        if part is not largest
        and part.has_retractions
        and (_uniform_uri(part) is not None or part_bytes(part) < settings.final_bytes)
    ]
    rows = sum(part.rows for part in retracting)
    if rows < settings.retraction_share * sum(part.rows for part in settled):
        return False
    size = sum(part_bytes(part) for part in retracting)
    return len(settled) >= settings.fan_in or size >= settings.base_bytes


def _level(part: Part, settings: CompactionSettings) -> int:
    return _level_of(part_bytes(part), settings)


def _level_of(size: int, settings: CompactionSettings) -> int:
    level, bound = 0, settings.base_bytes
    while size >= bound:
        level, bound = level + 1, bound * settings.fan_in
    return level


def _share(part: Part, settings: CompactionSettings) -> float:
    """The share of its level's capacity that the part takes."""
    if not isinstance(part.body, InlineBody):
        return 1 / settings.fan_in
    size = part_bytes(part)
    of_number = settings.inline_fan_in if size < settings.base_bytes else settings.fan_in
    return max(1 / of_number, size / settings.inline_level_bytes)


def _full_levels(settled: Sequence[Part], settings: CompactionSettings) -> list[Part]:
    """The parts of the lowest level that is full, those below it, and the levels this fills."""
    small = [part for part in settled if part_bytes(part) < settings.final_bytes]
    levels: dict[int, list[Part]] = {}
    for part in small:
        levels.setdefault(_level(part, settings), []).append(part)
    for level in sorted(levels):
        if not _is_full(levels[level], settings):
            continue
        top = level
        while True:
            chosen = [part for part in small if _level(part, settings) <= top]
            result = _level_of(sum(part_bytes(part) for part in chosen), settings)
            above = levels.get(result, [])
            if result <= top or not _is_full(above, settings, 1 / settings.fan_in):
                return chosen
            top = result
    return []


def _is_full(parts: Sequence[Part], settings: CompactionSettings, more: float = 0.0) -> bool:
    return sum(_share(part, settings) for part in parts) + more >= 1


def _full_run(ordered: Sequence[Part], settings: CompactionSettings) -> list[Part]:
    """Neighbours up to some level that fill it, the smallest first."""
    small = (part for part in ordered if part_bytes(part) < settings.final_bytes)
    for level in sorted({_level(part, settings) for part in small}):
        for run in _runs(ordered, level, settings):
            if _is_full([part for part in run if _level(part, settings) == level], settings):
                return run
    return []


def _runs(
    ordered: Sequence[Part], level: int, settings: CompactionSettings
) -> Iterator[list[Part]]:
    run: list[Part] = []
    for part in ordered:
        if part_bytes(part) < settings.final_bytes and _level(part, settings) <= level:
            run.append(part)
        elif run:
            yield run
            run = []
    if run:
        yield run
