"""The files of a table that a sink's compaction writes anew.

A turn is bounded by bytes. A file grows by turns in which those that join it are about as large, so
that each row is written a few times on its way into a large file.

Source: docs/decisions 0084.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from slackwater.storage.iceberg.live_files import DataFile, DeleteFile, LiveFiles


@dataclass(frozen=True, slots=True)
class CompactionBounds:
    """A turn takes files below `small_bytes`, and `most_bytes` in all.

    A file joins smaller ones that are at least a `share`-th of it. One whose deletes are as much is
    written anew without their rows, also if it is not small.
    """

    small_bytes: int = 32 * 1024 * 1024
    most_bytes: int = 128 * 1024 * 1024
    share: int = 4


def chosen(live: LiveFiles, bounds: CompactionBounds) -> list[list[DataFile]]:
    """The data files that are written anew, each group into one of a partition."""
    left, found = bounds.most_bytes, []
    ordered = sorted(live.data, key=lambda each: (repr(each.scope), each.size_bytes, each.path))
    for _, files in groupby(ordered, key=lambda each: each.scope):
        for group in _joining(list(files), bounds):
            taken = []
            for each in group:
                is_worth = len(group) > 1 or _is_worn(live, each, bounds)
                if is_worth and each.size_bytes <= left:
                    left -= each.size_bytes
                    taken.append(each)
            if taken:
                found.append(taken)
    return found


def _joining(files: Sequence[DataFile], bounds: CompactionBounds) -> list[list[DataFile]]:
    """The files of a partition, the smallest one first, in groups that become one file."""
    found: list[list[DataFile]] = []
    total = 0
    for each in files:
        is_small = each.size_bytes < bounds.small_bytes
        if found and is_small and each.size_bytes <= bounds.share * total:
            found[-1].append(each)
            total += each.size_bytes
        else:
            found.append([each])
            total = each.size_bytes
    return found


def _is_worn(live: LiveFiles, file: DataFile, bounds: CompactionBounds) -> bool:
    deletes = live.applying(file)
    return bool(deletes) and bounds.share * _bytes(deletes) >= file.size_bytes


def mergeable(
    left: Collection[DataFile], deletes: Iterable[DeleteFile], bounds: CompactionBounds
) -> list[list[DeleteFile]]:
    """Deletes by equality that are the same as one with the number of the last of them.

    `left` are the data files to which deletes apply. None of them is between two of the deletes:
    the earlier one would then delete rows of it that it has not deleted.
    """
    found = []
    by_equality = [each for each in deletes if each.equality_ids]
    ordered = sorted(by_equality, key=lambda each: (repr(_kind(each)), each.sequence, each.path))
    for _, several in groupby(ordered, key=_kind):
        run: list[DeleteFile] = []
        for each in several:
            is_full = _bytes([*run, each]) > bounds.most_bytes
            if run and (is_full or not _are_the_same(run[-1], each, left)):
                found.append(run)
                run = []
            run.append(each)
        found.append(run)
    return [run for run in found if len(run) > 1]


def _kind(delete: DeleteFile) -> tuple[object, tuple[int, ...]]:
    return delete.within, delete.equality_ids


def _are_the_same(before: DeleteFile, after: DeleteFile, left: Collection[DataFile]) -> bool:
    return not any(after.applies_to(each) and not before.applies_to(each) for each in left)


def _bytes(files: Iterable[DeleteFile]) -> int:
    return sum(each.size_bytes for each in files)
