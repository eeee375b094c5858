"""The files of parts, local or in S3, and how parts are written.

A file is whole before it has its name, and durable before a transaction names it: so a crash leaves
a file that nobody names, never a name without its file. Names are unique and files never change.
What a location holds is known from the metastore alone; it is listed only to find such leftovers.
Source: spec controllers 3.1, 3.9.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.persist.ipc import to_stream
from slackwater.persist.parts import FileBody, InlineBody, NewPart, Uniform
from slackwater.persist.uris import file_uri, local_path
from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN

PLAIN_NAME = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z._=+-]{0,254}")
"""The names that files may have which another process has written for us."""

INLINE_LIMIT_BYTES = 2 * 1024 * 1024
"""The most that one inline part holds, unless a parameter says otherwise."""


@dataclass(frozen=True, slots=True)
class Blob:
    """A file: its absolute URI, its size, and when it was written."""

    uri: str
    size_bytes: int
    modified_ms: int


class Blobs(Protocol):
    """The files of one environment, local (`LocalBlobs`) or in S3 (`slackwater.persist.s3`).

    Methods may be called by any thread. URIs are ``file:///...`` or ``s3://bucket/key``.
    """

    def uri(self, *names: str) -> str:
        """The URI of what the names lead to from the location on; it need not exist."""
        ...

    def put(self, directory: str, suffix: str, write: Callable[[BinaryIO], object]) -> Blob:
        """A new file in the directory with what `write` writes; durable when this returns.

        Its name, which is unique, ends in `suffix`. Raises SLACKWATER_NO_SPACE or
        SLACKWATER_STORAGE_UNAVAILABLE, and then leaves nothing that somebody could see.
        """
        ...

    def own(self, uri: str, directory: str) -> str | None:
        """The URI, as this class writes it, of a file that lies directly in the directory.

        `uri` may be written otherwise, as other programs do. None: it leads anywhere else, by its
        name or by a symbolic link below the location, or is no file. One that does not exist is
        not told apart.
        """
        ...

    def settle(self, uris: Iterable[str]) -> None:
        """Makes files durable that other processes wrote. To be called before they are named.

        Raises what `put` raises.
        """
        ...

    def open(self, uri: str) -> pa.NativeFile:
        """The file for reading, at any position. Raises OSError; see `outage`."""
        ...

    def outage(self, uri: str, error: OSError) -> SlackwaterError | None:
        """The error that a user sees when a file cannot be read because the store does not answer.

        None when the error is about the file itself: it is missing or damaged.
        """
        ...

    def delete(self, uri: str) -> None:
        """Removes the file; no effect if there is none. Raises SLACKWATER_STORAGE_UNAVAILABLE."""
        ...

    def remove_directory(self, directory: str) -> None:
        """Removes the directory and those below it, as far as they are empty.

        The caller makes sure that nobody begins to write there. S3 has no directories, so there it
        does nothing. Raises SLACKWATER_STORAGE_UNAVAILABLE.
        """
        ...

    def list(self, directory: str) -> Iterator[Blob]:
        """All files at any depth below the directory, also unfinished ones, in no order.

        To search for leftovers only. Raises SLACKWATER_STORAGE_UNREADABLE.
        """
        ...


def _checksum_of(path: Path) -> Path:
    """The file that Hadoop puts beside a local file that executors write."""
    return path.with_name(f".{path.name}.crc")


@dataclass(frozen=True, slots=True)
class LocalBlobs:
    """Files below a directory that all processes of the environment share.

    A file is written under a temporary name, synchronised, renamed, and its directory synchronised.
    """

    root: Path

    def uri(self, *names: str) -> str:
        return file_uri(self.root.joinpath(*names))

    def put(self, directory: str, suffix: str, write: Callable[[BinaryIO], object]) -> Blob:
        folder = local_path(directory)
        path = folder / f"{uuid.uuid4().hex}{suffix}"
        temporary = folder / f".{path.name}.writing"
        try:
            _make_directory(folder)
            with open(temporary, "xb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, path)
            _sync(folder)
            return _blob(path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            raise _storage_error(error, folder) from None

    def own(self, uri: str, directory: str) -> str | None:
        split = urlsplit(uri)
        if split.scheme != "file" or split.netloc or split.query or split.fragment:
            return None
        given, _, name = unquote(split.path).rpartition("/")
        folder = local_path(directory)
        # Hadoop takes dots out of paths. What is written after them is compared as a whole.
        if PLAIN_NAME.fullmatch(name) is None or os.path.normpath(given) != os.path.normpath(
            folder
        ):
            return None
        within = os.path.relpath(folder, self.root)
        if os.path.realpath(folder) != os.path.join(os.path.realpath(self.root), within):
            return None
        path = folder / name
        if path.is_symlink() or (path.exists() and not path.is_file()):
            return None
        return file_uri(path)

    def settle(self, uris: Iterable[str]) -> None:
        files = [local_path(uri) for uri in uris]
        folders = {folder for file in files for folder in self._above(file)}
        for path in (*files, *folders):
            try:
                _sync(path)
            except OSError as error:
                raise _storage_error(error, path.parent) from None

    def open(self, uri: str) -> pa.NativeFile:
        return pa.OSFile(str(local_path(uri)), "rb")

    def outage(self, uri: str, error: OSError) -> SlackwaterError | None:
        return None

    def delete(self, uri: str) -> None:
        path = local_path(uri)
        try:
            path.unlink(missing_ok=True)
            _checksum_of(path).unlink(missing_ok=True)
        except OSError as error:
            raise _storage_error(error, path.parent) from None

    def remove_directory(self, directory: str) -> None:
        for folder, _, _ in os.walk(local_path(directory), topdown=False):
            try:
                os.rmdir(folder)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                    raise _storage_error(error, Path(folder)) from None

    def list(self, directory: str) -> Iterator[Blob]:
        def failed(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise user_error(
                    "SLACKWATER_STORAGE_UNREADABLE", path=directory, reason=_reason(error)
                )

        for folder, _, names in os.walk(local_path(directory), onerror=failed):
            for name in names:
                # Writers rename and remove files meanwhile.
                with contextlib.suppress(FileNotFoundError):
                    yield _blob(Path(folder, name))

    def _above(self, path: Path) -> Iterator[Path]:
        """The directories of which an entry may be new: up to the location."""
        for parent in path.parents:
            yield parent
            if parent == self.root or self.root not in parent.parents:
                return


def inline_part(updates: pa.Table) -> NewPart:
    """A part with the updates as an uncompressed Arrow IPC stream.

    `updates` has at least one row and the relation's update schema. Raises ValueError if empty.
    """
    return _described(updates, InlineBody(to_stream(updates.combine_chunks())))


def file_part(blobs: Blobs, updates: pa.Table, directory: str) -> NewPart:
    """A part with the updates in one new Parquet file in the directory, a URI.

    The file is durable when this returns. Raises SLACKWATER_NO_SPACE or
    SLACKWATER_STORAGE_UNAVAILABLE, and then leaves nothing; ValueError if there are no rows.
    """
    return _described(updates, _stored(blobs, updates, directory, None))


def uniform_file(blobs: Blobs, rows: pa.Table, directory: str, uniform: Uniform) -> FileBody:
    """Rows without time and diff, which all have those of `uniform`, as one new Parquet file.

    Promises and raises what `file_part` does.
    """
    return _stored(blobs, rows, directory, uniform)


def _stored(blobs: Blobs, table: pa.Table, directory: str, uniform: Uniform | None) -> FileBody:
    blob = blobs.put(
        directory,
        ".parquet",
        # With checksums, as Spark writes them: without, two of three damages would not be seen.
        lambda file: pq.write_table(table, file, compression="zstd", write_page_checksum=True),
    )
    return FileBody(blob.uri, blob.size_bytes, blob.modified_ms, uniform)


def new_parts(
    blobs: Blobs, updates: pa.Table, directory: str, inline_bytes: int
) -> tuple[NewPart, ...]:
    """The updates as an inline part up to `inline_bytes`, else as a file; nothing for no rows.

    Raises what `file_part` raises.
    """
    if updates.num_rows == 0:
        return ()
    # The stream is never much smaller than the buffers, so a large table is not encoded in vain.
    if updates.nbytes <= inline_bytes:
        encoded = to_stream(updates.combine_chunks())
        if len(encoded) <= inline_bytes:
            return (_described(updates, InlineBody(encoded)),)
    return (file_part(blobs, updates, directory),)


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


def _blob(path: Path) -> Blob:
    status = path.stat()
    return Blob(file_uri(path), status.st_size, status.st_mtime_ns // 1_000_000)


def _make_directory(folder: Path) -> None:
    """Makes the directory durable: its entry in each new parent is synchronised too."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(exist_ok=True)
        _sync(new.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _storage_error(error: OSError, folder: Path) -> SlackwaterError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return user_error("SLACKWATER_NO_SPACE", what="a data file", path=str(folder))
    return user_error(
        "SLACKWATER_STORAGE_UNAVAILABLE", what=f"a data file below {folder}", reason=_reason(error)
    )


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__
