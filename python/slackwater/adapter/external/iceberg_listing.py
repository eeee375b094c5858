"""The files of an Iceberg table's snapshot, as its manifests list them.

Source: docs/decisions 0080.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from slackwater.storage.iceberg.live_files import (
    EVERYWHERE,
    DataFile,
    DeleteFile,
    Scope,
    Within,
)
from slackwater.storage.iceberg.projection import Unreadable

_PATH_ID = 2147483546
"""The id of the column of a file of positions that names data files."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A file, and pyiceberg's entry of it in the manifest with that path."""

    file: DataFile | DeleteFile
    entry: Any
    manifest: str


def listed(library: Any, table: Any, manifest: Any) -> Iterator[Listed]:
    """The files of a manifest that are the table's. Raises `Unreadable` for one that is no
    Parquet."""
    known = library.manifest
    spec = table.metadata.specs()[manifest.partition_spec_id]
    is_whole = all(str(each.transform) == "void" for each in spec.fields)
    for entry in manifest.fetch_manifest_entry(table.io):
        file = entry.data_file
        if file.file_format != known.FileFormat.PARQUET:
            reason = f"its format is {file.file_format.value}, and not PARQUET"
            raise Unreadable(f"{file.file_path}: {reason}")
        values = tuple(file.partition[place] for place in range(len(spec.fields)))
        scope: Scope = (spec.spec_id, values)
        sequence = entry.sequence_number or 0
        size = file.file_size_in_bytes
        if file.content == known.DataFileContent.DATA:
            found: DataFile | DeleteFile = DataFile(file.file_path, sequence, scope, size)
        elif file.content == known.DataFileContent.POSITION_DELETES:
            within: Within = _data_path(file.lower_bounds, file.upper_bounds) or scope
            found = DeleteFile(file.file_path, sequence, within, size)
        else:
            ids = tuple(file.equality_ids or ())
            within = EVERYWHERE if is_whole else scope
            found = DeleteFile(file.file_path, sequence, within, size, ids)
        yield Listed(found, entry, manifest.manifest_path)


def _data_path(lower: Mapping[int, bytes] | None, upper: Mapping[int, bytes] | None) -> str | None:
    """The one data file whose positions a file has, if its bounds tell."""
    found = (lower or {}).get(_PATH_ID)
    return found.decode() if found is not None and found == (upper or {}).get(_PATH_ID) else None
