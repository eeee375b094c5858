"""Files of an Iceberg table that a commit of a sink writes anew.

Rows are taken from the files as these have them, so that columns of which the sink knows nothing
stay what they are. Memory is a group of rows of a file, and what its deletes have.

Source: docs/decisions 0084.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from slackwater.adapter.external.iceberg_files import CommitFiles
from slackwater.adapter.external.iceberg_listing import Listed, listed
from slackwater.adapter.external.iceberg_rows import KeptDeletes, TableFiles, schema_json
from slackwater.storage.iceberg.bounds import FileBounds, Keys
from slackwater.storage.iceberg.compaction import CompactionBounds, chosen, mergeable
from slackwater.storage.iceberg.live_files import DataFile, DeleteFile, LiveFiles


@dataclass(frozen=True, slots=True)
class Rewritten:
    """pyiceberg's new files, and those that the table has no more.

    `sequences` are numbers, by paths, of new files that count as older than their commit.
    """

    added: Sequence[Any] = ()
    removed: Sequence[Listed] = ()
    sequences: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Manifests:
    """Reads manifests; those of the last snapshot are kept."""

    library: Any
    _known: dict[str, tuple[Listed, ...]] = field(default_factory=dict, init=False)

    def read(self, table: Any, manifests: Iterable[Any]) -> dict[str, Listed]:
        """The files of manifests, by their paths. Raises `Unreadable`."""
        found = {}
        for each in manifests:
            path = each.manifest_path
            known = self._known.get(path)
            found[path] = tuple(listed(self.library, table, each)) if known is None else known
        self._known = found
        return {each.file.path: each for files in found.values() for each in files}


@dataclass(frozen=True, slots=True)
class CurrentFiles:
    """The files of a table as it was loaded. Each method raises `Unreadable`."""

    table: Any
    files: dict[str, Listed]
    live: LiveFiles
    rows: TableFiles

    @staticmethod
    def of(table: Any, files: dict[str, Listed]) -> CurrentFiles:
        """From all files of a snapshot."""
        fields = schema_json(table.metadata.schema())["fields"]
        live = LiveFiles.of(each.file for each in files.values())
        return CurrentFiles(table, files, live, TableFiles(table, fields, KeptDeletes()))

    def without(self, commit: CommitFiles, keys: Keys) -> Rewritten:
        """Writes the files anew that have live rows with one of the keys, without these."""
        gone, added = [], []
        for file in sorted(self.live.data, key=lambda each: each.path):
            entry = self.files[file.path].entry.data_file
            likely = keys.within(_bounds(entry))
            deletes = self.live.applying(file)
            if not likely.values.num_rows or not self.rows.has(file, deletes, likely):
                continue
            gone.append(file)
            rows = self.rows.remaining(file, deletes, likely)
            added += commit.rewritten(rows, entry)
        return self._rewritten(gone, added)

    def compacted(self, commit: CommitFiles, bounds: CompactionBounds) -> Rewritten:
        """Writes small files together, and files of deletes; each row of the table stays."""
        gone: list[DataFile] = []
        added: list[Any] = []
        for several in chosen(self.live, bounds):
            for group in self._alike(several):
                if len(group) == 1 and not self.live.applying(group[0]):
                    continue
                gone += group
                rows = (self.rows.remaining(each, self.live.applying(each)) for each in group)
                instead = self.files[group[0].path].entry.data_file
                added += commit.rewritten(chain.from_iterable(rows), instead)
        made = self._rewritten(gone, added)
        left = self.live.data.difference(gone)
        sequences = {}
        removed = [*made.removed]
        for run in mergeable(left, self._needed(left), bounds):
            keys = self.rows.distinct_keys(run)
            if keys is None:
                continue
            instead = self.files[run[0].path].entry.data_file
            for merged in commit.rewritten([keys], instead, run[0].equality_ids):
                added.append(merged)
                sequences[merged.file_path] = run[-1].sequence
            removed += (self.files[each.path] for each in run)
        return Rewritten(added, removed, sequences)

    def _alike(self, files: Sequence[DataFile]) -> list[list[DataFile]]:
        """The files by their columns."""
        found: dict[bytes, list[DataFile]] = {}
        for each in files:
            schema = self.rows.schema(each).remove_metadata()
            found.setdefault(schema.serialize().to_pybytes(), []).append(each)
        return list(found.values())

    def _needed(self, left: Iterable[DataFile]) -> set[DeleteFile]:
        return {each for file in left for each in self.live.applying(file)}

    def _rewritten(self, gone: Sequence[DataFile], added: Sequence[Any]) -> Rewritten:
        """With the deletes that apply to no file any more."""
        paths = [each.path for each in gone]
        if gone:
            needed = self._needed(self.live.data.difference(gone))
            paths += [each.path for each in self.live.deletes.difference(needed)]
        return Rewritten(added, [self.files[each] for each in paths])


def _bounds(file: Any) -> FileBounds:
    return FileBounds(
        file.lower_bounds or {}, file.upper_bounds or {}, file.null_value_counts or {}
    )
