"""Changefeeds into a folder: files of rows, and files that say up to when all is there.

A sink of CockroachDB writes ``<day>/<time>-<session>-<node>-<sink>-<file>-<topic>-<schema>.ndjson``
and ``<day>/<time>.RESOLVED``. Names order as the feed has written: the files before a RESOLVED
have everything up to and with its time. So a read takes the files up to the last RESOLVED, those
alone that are behind the last one it took, and files behind that wait.

Source: spec checkpoint 5.6.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.repr.hlc import Time
from slackwater.storage.changefeed.ingestion import Files
from slackwater.storage.changefeed.messages import (
    BadMessage,
    ChangeRecord,
    MessageTarget,
    Payloads,
    message_of,
    target_of,
)

FILES_FEED = "files"
"""The partition of a feed into a folder."""
MOST_BYTES = 64 * 1024 * 1024
"""A read stops at the first RESOLVED behind so much."""
_PACKED = ".gz"


@dataclass(frozen=True, slots=True)
class _Found:
    name: str
    target: MessageTarget


@dataclass(frozen=True, slots=True)
class FolderReader:
    """Reads a folder. `advance` records a time up to which the feed has delivered everything.

    A read takes no more than `lookahead` RESOLVED, None: any number.
    """

    path: str
    keys: Mapping[str, Sequence[str]]
    advance: Callable[[Time, str], None]
    lookahead: int | None = None

    def read(self, last: str | None) -> Files:
        """Reads what is behind the file `last`, which was read before, up to a RESOLVED.

        Raises SLACKWATER_SOURCE_FILE_UNREADABLE.
        """
        rows: list[ChangeRecord] = []
        reached: tuple[str, Time, int] | None = None
        size_bytes = ends = 0
        for found in self._behind(last):
            if found.target.resolved is not None:
                reached = (found.name, found.target.resolved, len(rows))
                ends += 1
                if size_bytes > MOST_BYTES or ends == self.lookahead:
                    break
                continue
            data = self._data(found.name)
            size_bytes += len(data)
            rows += self._rows(found, data)
        if reached is None:
            return Files((), last)
        name, resolved, count = reached
        self.advance(resolved, FILES_FEED)
        return Files(tuple(rows[:count]), name, size_bytes)

    def _behind(self, last: str | None) -> list[_Found]:
        """The files of the feed, in their order, up to the last RESOLVED."""
        found = []
        for day in self._listed(self.path):
            folder = os.path.join(self.path, day)
            if not os.path.isdir(folder) or (last is not None and day < last.partition("/")[0]):
                continue
            for file in self._listed(folder):
                name = f"{day}/{file}"
                target = _target(day, file.removesuffix(_PACKED))
                if target is not None and (last is None or name > last):
                    found.append(_Found(name, target))
        found.sort(key=lambda each: each.name)
        ends = [at for at, each in enumerate(found) if each.target.resolved is not None]
        return found[: ends[-1] + 1] if ends else []

    def _listed(self, folder: str) -> list[str]:
        try:
            return os.listdir(folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unreadable(folder, error) from None

    def _data(self, name: str) -> bytes:
        path = os.path.join(self.path, name)
        try:
            with open(path, "rb") as file:
                data = file.read()
            return gzip.decompress(data) if name.endswith(_PACKED) else data
        except (OSError, EOFError, zlib.error) as error:
            raise _unreadable(path, error) from None

    def _rows(self, found: _Found, data: bytes) -> Sequence[ChangeRecord]:
        try:
            message = message_of(found.target, data, FILES_FEED, self.keys)
        except BadMessage as error:
            raise user_error(
                "SLACKWATER_SOURCE_FILE_UNREADABLE",
                file=os.path.join(self.path, found.name),
                reason=error.reason,
            ) from None
        return message.rows if isinstance(message, Payloads) else ()


def _target(day: str, file: str) -> MessageTarget | None:
    try:
        return target_of((day, file))
    except BadMessage:
        return None


def _unreadable(path: str, error: Exception) -> SlackwaterError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return user_error("SLACKWATER_SOURCE_FILE_UNREADABLE", file=path, reason=reason)
