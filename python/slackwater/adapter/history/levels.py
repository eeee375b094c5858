"""The files of the history: their names, which are merged, and which are too old.

Small files come each second; `MERGED` of a level become one of the next, so a record is written a
few times in all, and there are few files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

MERGED = 16
"""So many files of a level become one."""
MOST_LEVEL = 4
"""Files of this level are not merged."""
SUFFIX = ".jsonl.gz"
_NAME = re.compile(r".*-l(\d{1,2})-e(\d{1,18})-n(\d{1,18})" + re.escape(SUFFIX))


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """The place of a file in time: the leader's epoch, and a number that its files count up."""

    epoch: int
    number: int


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """A file: its level, its place, how many records it has, and when the newest was written."""

    uri: str
    level: int
    place: Place
    records: int
    written_ms: int


def suffix(level: int, place: Place) -> str:
    """The end of the name of a new file."""
    return f"-l{level}-e{place.epoch}-n{place.number}{SUFFIX}"


def named(uri: str) -> tuple[int, Place] | None:
    """The level and the place of a file of this name; None: it is none of the history."""
    found = _NAME.fullmatch(uri.rpartition("/")[2])
    return None if found is None else (int(found[1]), Place(int(found[2]), int(found[3])))


def to_merge(files: Sequence[HistoryFile]) -> tuple[HistoryFile, ...]:
    """The files that become one now, in the order of their places; none if there is no need."""
    for level in range(MOST_LEVEL):
        found = sorted((f for f in files if f.level == level), key=lambda f: f.place)
        if len(found) >= MERGED:
            return tuple(found[:MERGED])
    return ()


def outdated(files: Sequence[HistoryFile], records: int, oldest_ms: int) -> tuple[HistoryFile, ...]:
    """The files that nobody needs: all in them is older, or newer files have that many records."""
    found: list[HistoryFile] = []
    newer = 0
    for file in sorted(files, key=lambda f: f.place, reverse=True):
        if newer >= records or file.written_ms < oldest_ms:
            found.append(file)
        newer += file.records
    return tuple(found)
