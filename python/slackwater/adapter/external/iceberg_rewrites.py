"""Files of an Iceberg table that a commit of a sink writes anew.

Rows are taken from the files as these have them, so that columns of which the sink knows nothing
stay what they are. Memory is a group of rows of a file, and what its deletes have.

Source: docs/decisions 0084.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from slackwater.adapter.external.iceberg_files import CommitFiles
from slackwater.adapter.external.iceberg_listing import Listed, listed
from slackwater.adapter.external.iceberg_rows import KeptDeletes, TableFiles, schema_json
from slackwater.storage.iceberg.bounds import FileBounds, Keys
from slackwater.storage.iceberg.live_files import DataFile, LiveFiles


@dataclass(frozen=True, slots=True)
class Rewritten:
    """pyiceberg's new files, and those that the table has no more."""

    added: Sequence[Any] = ()
    removed: Sequence[Listed] = ()


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

    def _rewritten(self, gone: Sequence[DataFile], added: Sequence[Any]) -> Rewritten:
        """With the deletes that apply to no file any more."""
        left = self.live.data.difference(gone)
        needed = {each for file in left for each in self.live.applying(file)}
        paths = [each.path for each in gone]
        if gone:
            paths += [each.path for each in self.live.deletes.difference(needed)]
        return Rewritten(added, [self.files[each] for each in paths])


def _bounds(file: Any) -> FileBounds:
    return FileBounds(
        file.lower_bounds or {}, file.upper_bounds or {}, file.null_value_counts or {}
    )
