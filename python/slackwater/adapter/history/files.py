"""The durable part of the history: records as lines of JSON, in files of the location.

A file is written once and replaced by others as a whole, as those of collections are. Nothing in
the metastore names them: a leader lists them once, when it has started.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import structlog
from cattrs import Converter

from slackwater.adapter.history.levels import (
    HistoryFile,
    Place,
    named,
    outdated,
    suffix,
    to_merge,
)
from slackwater.persist.blobs import Blob, Blobs
from slackwater.repr.errors import first_line

_LEFT_MS = 3600 * 1000
"""A file that a leader has begun and not ended is removed after so long."""
_DAMAGED = (OSError, EOFError, ValueError, zlib.error)
_converter = Converter()
_log = structlog.get_logger("history")

Kept = TypeVar("Kept")


class HistoryFiles(Generic[Kept]):
    """The files of one leader, of `epoch`, and of those before. One caller at a time.

    They are in `folder` of the location, and have records of `kinds`, by the names that their lines
    have. Each method that writes or lists raises what `Blobs` raises.
    """

    def __init__(
        self, blobs: Blobs, epoch: int, folder: str, kinds: Mapping[str, type[Kept]]
    ) -> None:
        self._folder = folder
        self._kinds = kinds
        self._blobs = blobs
        self._epoch = epoch
        self._number = 0
        self._files: list[HistoryFile] = []

    def write(self, records: Iterable[Kept]) -> None:
        """Makes the records durable, in a new file."""
        lines = [self._encoded(record) for record in records]
        self._number += 1
        self._put(0, Place(self._epoch, self._number), lines)

    def tidy(self, records: int, oldest_ms: int) -> None:
        """Removes files that the newest `records` do not need, or whose all is older; merges."""
        for file in outdated(self._files, records, oldest_ms):
            self._remove(file)
        if merged := to_merge(self._files):
            lines = [line for file in merged for line in self._lines(file.uri)]
            self._put(merged[0].level + 1, merged[-1].place, lines)
            for file in merged:
                self._remove(file)

    def recovered(self, records: int, oldest_ms: int, now_ms: int) -> list[Kept]:
        """The records of the leaders before, from the newest file on, until there are enough.

        Files that are not needed any more are removed. To be called again when it has failed.
        """
        files: list[HistoryFile] = []
        found: list[Kept] = []
        for blob, level, place in sorted(self._listed(now_ms), key=lambda f: f[2], reverse=True):
            if len(found) >= records or blob.modified_ms < oldest_ms:
                self._blobs.delete(blob.uri)
                continue
            lines = self._lines(blob.uri)
            found.extend(each for each in map(self._decoded, lines) if each is not None)
            files.append(HistoryFile(blob.uri, level, place, len(lines), blob.modified_ms))
        self._files.extend(files)
        return found

    def _listed(self, now_ms: int) -> Iterator[tuple[Blob, int, Place]]:
        own = {file.uri for file in self._files}
        for blob in self._blobs.list(self._blobs.uri(self._folder)):
            found = named(blob.uri)
            if found is not None and blob.uri not in own:
                yield blob, *found
            elif found is None and blob.modified_ms < now_ms - _LEFT_MS:
                self._blobs.delete(blob.uri)

    def _lines(self, uri: str) -> list[bytes]:
        """The lines of a file; none of one that is damaged or gone."""
        try:
            return _unpacked(self._blobs, uri)
        except _DAMAGED as error:
            outage = self._blobs.outage(uri, error) if isinstance(error, OSError) else None
            if outage is not None:
                raise outage from None
            _log.warning("file of the history ignored", file=uri, error=str(error))
            return []

    def _put(self, level: int, place: Place, lines: list[bytes]) -> None:
        packed = gzip.compress(b"\n".join(lines), compresslevel=1, mtime=0)
        write: Callable[[Any], object] = lambda file: file.write(packed)  # noqa: E731
        blob = self._blobs.put(self._blobs.uri(self._folder), suffix(level, place), write)
        self._files.append(HistoryFile(blob.uri, level, place, len(lines), blob.modified_ms))

    def _remove(self, file: HistoryFile) -> None:
        self._blobs.delete(file.uri)
        self._files.remove(file)

    def _encoded(self, record: Kept) -> bytes:
        kind = next(name for name, each in self._kinds.items() if isinstance(record, each))
        return json.dumps({"kind": kind, **_converter.unstructure(record)}).encode()

    def _decoded(self, line: bytes) -> Kept | None:
        """The record of a line; None: another version wrote it, and this one does not know it."""
        try:
            return _structured(line, self._kinds)
        except Exception as error:
            _log.warning("record of the history ignored", error=str(error))
            return None


def damage(blobs: Blobs, uri: str, kinds: Mapping[str, type[Any]]) -> str | None:
    """Why not all records of a file can be read; None: they can, or the file has gone.

    Raises SLACKWATER_STORAGE_UNREADABLE when the store of `blobs` does not answer.
    """
    try:
        for line in _unpacked(blobs, uri):
            _structured(line, kinds)
    except FileNotFoundError:
        return None
    except Exception as error:
        # Of a record that is damaged any exception may come, as in `_decoded`.
        outage = blobs.outage(uri, error) if isinstance(error, OSError) else None
        if outage is not None:
            raise outage from None
        return f"{type(error).__name__}: {first_line(str(error))}"
    return None


def _unpacked(blobs: Blobs, uri: str) -> list[bytes]:
    """The lines of a file. Raises one of `_DAMAGED`."""
    with blobs.open(uri) as file:
        return gzip.decompress(file.read()).splitlines()


def _structured(line: bytes, kinds: Mapping[str, type[Kept]]) -> Kept | None:
    """The record of a line; None: of a kind of another version. Raises whatever decoding does."""
    fields = json.loads(line)
    kind = kinds.get(fields.pop("kind", None))
    return None if kind is None else _converter.structure(fields, kind)
