"""The files that a snapshot of a table consists of: what deletes what, and what has changed.

Source: docs/decisions 0080.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass

Scope = tuple[int, tuple[Hashable, ...]]
"""A partition: the id of its spec, and its values."""
Within = Scope | str | None
"""A partition, the path of a data file, or all of the table."""
EVERYWHERE = None
Partitioning = Mapping[int, Set[int]]
"""The ids of the fields of which the partitions of each spec are made."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file with rows. `sequence` is the number of the snapshot that its rows are of."""

    path: str
    sequence: int
    scope: Scope
    size_bytes: int


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A file that deletes rows of others: those of one partition, of one file, or of all.

    With `equality_ids` it has values of these fields, without it has positions.
    """

    path: str
    sequence: int
    within: Within
    size_bytes: int
    equality_ids: tuple[int, ...] = ()

    def applies_to(self, file: DataFile) -> bool:
        """Whether it may delete rows of the file. Rows of its own snapshot go by position alone."""
        if self.within not in (EVERYWHERE, file.scope, file.path):
            return False
        if self.equality_ids:
            return self.sequence > file.sequence
        return self.sequence >= file.sequence


@dataclass(frozen=True, slots=True)
class FileChange:
    """A data file, and the deletes that apply to it before and after; None: it is not there."""

    file: DataFile
    before: tuple[DeleteFile, ...] | None
    after: tuple[DeleteFile, ...] | None

    @property
    def size_bytes(self) -> int:
        """About how much is to be read."""
        deletes = {*(self.before or ()), *(self.after or ())}
        return self.file.size_bytes + sum(each.size_bytes for each in deletes)


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """The files of one snapshot."""

    data: frozenset[DataFile]
    deletes: frozenset[DeleteFile]
    _by_place: Mapping[Within, tuple[DeleteFile, ...]]

    @staticmethod
    def of(files: Iterable[DataFile | DeleteFile]) -> LiveFiles:
        """From all files."""
        data, deletes = set(), set()
        for each in files:
            if isinstance(each, DataFile):
                data.add(each)
            else:
                deletes.add(each)
        return LiveFiles(frozenset(data), frozenset(deletes), _by_place(deletes))

    def applying(self, file: DataFile) -> tuple[DeleteFile, ...]:
        """The deletes that apply to a data file."""
        return _applying(self._by_place, file)

    def without(self, deletes: Collection[DeleteFile]) -> LiveFiles:
        """The same without some of the deletes."""
        return LiveFiles.of((*self.data, *self.deletes.difference(deletes)))

    def contents(self) -> Iterator[FileChange]:
        """All data files, as if there had been none."""
        return differences(LiveFiles.of(()), self)


def differences(before: LiveFiles, after: LiveFiles) -> Iterator[FileChange]:
    """The data files whose rows may be others in `after`, those that went first."""
    for file in _ordered(before.data - after.data):
        yield FileChange(file, before.applying(file), None)
    changed = _by_place(before.deletes ^ after.deletes)
    if changed:
        for file in _ordered(before.data & after.data):
            if _applying(changed, file):
                yield FileChange(file, before.applying(file), after.applying(file))
    for file in _ordered(after.data - before.data):
        yield FileChange(file, None, after.applying(file))


def by_value_alone(
    before: LiveFiles, after: LiveFiles, ids: Collection[int], partitioning: Partitioning
) -> list[DeleteFile]:
    """The deletes that come with `after` and that the values of rows tell: no file has to be read.

    Each row of `before` with such values goes, in whatever file it is, and no other. The values are
    those of fields among `ids`. Of a partition that is so when the values say which one it is.
    """
    came = after.deletes - before.deletes
    known = max((each.sequence for each in before.data), default=-1)
    first = min((each.sequence for each in after.data - before.data), default=None)
    specs = {each.scope[0] for each in before.data}

    def is_told(delete: DeleteFile) -> bool:
        if not delete.equality_ids or not set(delete.equality_ids) <= set(ids):
            return False
        if delete.sequence <= known or (first is not None and first < delete.sequence):
            return False
        if not isinstance(delete.within, tuple):
            return delete.within is EVERYWHERE
        spec_id, _ = delete.within
        return specs <= {spec_id} and partitioning[spec_id] <= set(delete.equality_ids)

    return sorted(filter(is_told, came), key=lambda each: each.path)


def _applying(
    within: Mapping[Within, tuple[DeleteFile, ...]], file: DataFile
) -> tuple[DeleteFile, ...]:
    found = (each for key in (file.scope, file.path, EVERYWHERE) for each in within.get(key, ()))
    return tuple(each for each in found if each.applies_to(file))


def _by_place(deletes: Iterable[DeleteFile]) -> Mapping[Within, tuple[DeleteFile, ...]]:
    found: dict[Within, list[DeleteFile]] = {}
    for each in deletes:
        found.setdefault(each.within, []).append(each)
    return {
        place: tuple(sorted(several, key=lambda each: (each.sequence, each.path)))
        for place, several in found.items()
    }


def _ordered(files: Iterable[DataFile]) -> list[DataFile]:
    return sorted(files, key=lambda each: (each.sequence, each.path))
