"""Writing parts: as Arrow bytes for the metastore, or as one durable Parquet file.

A file is written under a temporary name, synchronised, renamed, and its directory synchronised,
before any transaction names it. A crash in between leaves a file that nobody names, never a name
without its file. Source: spec controllers 3.9.
"""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.persist.parts import FileBody, InlineBody, NewPart, Uniform
from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN

INLINE_LIMIT_BYTES = 2 * 1024 * 1024
"""The most that one inline part may hold."""


def local_path(uri: str) -> Path:
    """The path that a ``file:`` URI (or a plain path) names.

    Raises SLACKWATER_UNSUPPORTED for other schemes.
    """
    split = urlsplit(uri)
    if split.scheme == "file":
        return Path(unquote(split.path))
    if split.scheme == "" or "://" not in uri:
        return Path(uri).absolute()
    raise user_error(
        "SLACKWATER_UNSUPPORTED",
        feature=f"A location of the scheme {split.scheme}",
        advice="Use a directory that all processes of the environment share.",
    )


def file_uri(path: Path) -> str:
    """The absolute ``file:///`` URI of a path."""
    return path.absolute().as_uri()


def inline_part(updates: pa.Table) -> NewPart:
    """A part with the updates as an uncompressed Arrow IPC stream.

    `updates` has at least one row and the relation's update schema. Raises ValueError if empty.
    """
    return _described(updates, InlineBody(_ipc(updates)))


def file_part(updates: pa.Table, directory: str) -> NewPart:
    """A part with the updates in one new Parquet file below the directory, a ``file:`` URI.

    The file is on disk when this returns. Raises SLACKWATER_NO_SPACE or
    SLACKWATER_STORAGE_UNAVAILABLE, and then leaves nothing; ValueError if there are no rows.
    """
    return _described(updates, _stored(updates, directory, None))


def uniform_file(rows: pa.Table, directory: str, uniform: Uniform) -> FileBody:
    """Rows without time and diff, which all have those of `uniform`, as one new Parquet file.

    Promises and raises what `file_part` does.
    """
    return _stored(rows, directory, uniform)


def _stored(table: pa.Table, directory: str, uniform: Uniform | None) -> FileBody:
    folder = local_path(directory)
    path = folder / f"{uuid.uuid4().hex}.parquet"
    temporary = folder / f".{path.name}.writing"
    try:
        _make_directory(folder)
        _write_file(table, temporary)
        os.rename(temporary, path)
        _sync_directory(folder)
        status = path.stat()
    except OSError as error:
        temporary.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        raise _storage_error(error, folder) from None
    return FileBody(file_uri(path), status.st_size, status.st_mtime_ns // 1_000_000, uniform)


def new_parts(updates: pa.Table, directory: str) -> tuple[NewPart, ...]:
    """The updates as an inline part up to 2 MB, else as a file; nothing for no rows.

    Raises what `file_part` raises.
    """
    if updates.num_rows == 0:
        return ()
    # The stream is never much smaller than the buffers, so a large table is not encoded in vain.
    if updates.nbytes <= INLINE_LIMIT_BYTES:
        encoded = _ipc(updates)
        if len(encoded) <= INLINE_LIMIT_BYTES:
            return (_described(updates, InlineBody(encoded)),)
    return (file_part(updates, directory),)


def _ipc(updates: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, updates.schema) as writer:
        writer.write_table(updates.combine_chunks())
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def _described(updates: pa.Table, body: InlineBody | FileBody) -> NewPart:
    if updates.num_rows == 0:
        raise ValueError("a part has at least one row")
    times = pc.min_max(updates.column(TIME_COLUMN)).as_py()
    return NewPart(
        body=body,
        rows=updates.num_rows,
        min_time=Timestamp(times["min"]),
        max_time=Timestamp(times["max"]),
        has_retractions=pc.any(pc.not_equal(updates.column(DIFF_COLUMN), 1)).as_py(),
    )


def _write_file(updates: pa.Table, path: Path) -> None:
    with open(path, "xb") as file:
        pq.write_table(updates, file, compression="zstd")
        file.flush()
        os.fsync(file.fileno())


def _make_directory(folder: Path) -> None:
    """Makes the directory durable: its entry in each new parent is synchronised too."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(exist_ok=True)
        _sync_directory(new.parent)


def _sync_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _storage_error(error: OSError, folder: Path) -> SlackwaterError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return user_error("SLACKWATER_NO_SPACE", what="a data file", path=str(folder))
    reason = error.strerror or type(error).__name__
    return user_error(
        "SLACKWATER_STORAGE_UNAVAILABLE", what=f"a data file below {folder}", reason=reason
    )
