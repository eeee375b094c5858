"""The sample of files from which Spark infers the columns of a FILES source."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.repr.relation import RelationDesc
from slackwater.storage.discovery import FoundFile, in_order
from slackwater.storage.files_source import FilesConfig, bad_row, found_files, read_file, unreadable

SAMPLE_BYTES = 64 * 1024 * 1024
"""Files up to this size together are looked at, and at least one."""
_HEADER_BYTES = 64 * 1024
_MARK = b"\xef\xbb\xbf"


def sample(config: FilesConfig) -> tuple[tuple[FoundFile, ...], ...]:
    """Files that have contents now, the oldest first, in groups with one header.

    Files that have none of the columns' names are one group. Of Parquet files the oldest says
    what the columns are. Raises SLACKWATER_SOURCE_FILE_UNREADABLE.
    """
    groups: dict[bytes, list[FoundFile]] = {}
    for file in _oldest(config):
        try:
            first = _first_line(file, config)
        except (OSError, EOFError, pa.ArrowInvalid) as error:
            raise unreadable(file.path, error) from None
        if first is not None:
            groups.setdefault(first, []).append(file)
        if groups and config.format.kind == "PARQUET":
            break
    return tuple(tuple(group) for group in groups.values())


def verify(files: tuple[FoundFile, ...], config: FilesConfig, desc: RelationDesc) -> None:
    """Refuses columns by which a source could not read the files.

    Raises SLACKWATER_SOURCE_FILE_UNREADABLE, and with ON ERROR STALL SLACKWATER_SOURCE_BAD_ROW.
    """
    for file in files:
        rows = read_file(file, config.format, desc)
        if rows is not None and rows.bad and config.on_error == "STALL":
            raise bad_row(file.path, rows.bad[0])


def _oldest(config: FilesConfig) -> Iterator[FoundFile]:
    size_bytes = 0
    for file in in_order(found_files(config)):
        yield file
        size_bytes += file.size_bytes
        if size_bytes > SAMPLE_BYTES:
            return


def _first_line(file: FoundFile, config: FilesConfig) -> bytes | None:
    """The line that has the header, b"" where files have none; None for a file without contents."""
    if file.size_bytes == 0:
        return None
    if config.format.kind == "PARQUET":
        pq.read_metadata(file.path)
        return b""
    with gzip.open(file.path) if file.path.endswith(".gz") else open(file.path, "rb") as handle:
        start = handle.read(_HEADER_BYTES).removeprefix(_MARK).lstrip(b"\r\n")
    if not start:
        return None
    return re.split(rb"[\r\n]", start, maxsplit=1)[0] if config.format.header else b""
