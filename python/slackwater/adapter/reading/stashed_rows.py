"""The files in which replicas put the rows of peeks, for the statements that read them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import structlog

from slackwater.persist.blobs import Blobs
from slackwater.repr.errors import SlackwaterError

_log = structlog.get_logger("peeks")

FOLDER = "peeks"
"""The folder of the location that has nothing else."""


@dataclass(slots=True)
class StashedRows:
    """Files of rows, each of which is there as long as a statement's hold. Thread-safe.

    Each leader has a directory of its own for them. What a leader has left that is no more,
    `clear_others` deletes.
    """

    blobs: Blobs
    epoch: int
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: dict[str, list[str]] = field(default_factory=dict)
    """The files of holds, by the names of these."""

    @property
    def directory(self) -> str:
        """The URI of the directory for new files. It need not exist yet."""
        return self.blobs.uri(FOLDER, str(self.epoch))

    def begin(self, hold: str) -> None:
        """The hold may have files from now on."""
        with self._lock:
            self._open[hold] = []

    def keep(self, hold: str, uri: str) -> bool:
        """The file is the hold's; False: the hold is over, and the file is deleted."""
        with self._lock:
            files = self._open.get(hold)
            if files is not None:
                files.append(uri)
        if files is None:
            self.discard(uri)
        return files is not None

    def end(self, hold: str) -> None:
        """The hold is over: its files are deleted."""
        with self._lock:
            files = self._open.pop(hold, [])
        for uri in files:
            self.discard(uri)

    def discard(self, uri: str) -> None:
        """Deletes the file. One that cannot be deleted is left to the next leader."""
        try:
            self.blobs.delete(uri)
        except SlackwaterError as error:
            _log.warning("a file could not be deleted", uri=uri, error=str(error))

    def clear_others(self) -> None:
        """Deletes the files of other leaders, and their directories. Nobody may read them any more.

        Raises SLACKWATER_STORAGE_UNAVAILABLE.
        """
        own = self.directory.rstrip("/") + "/"
        listed = self.blobs.list(self.blobs.uri(FOLDER))
        others = [blob.uri for blob in listed if not blob.uri.startswith(own)]
        for uri in others:
            self.blobs.delete(uri)
        for directory in {uri.rpartition("/")[0] for uri in others}:
            self.blobs.remove_directory(directory)
