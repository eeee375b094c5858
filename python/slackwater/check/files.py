"""Whether the files of parts are there, and which files nobody names. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from rich.filesize import decimal

from slackwater.persist.blobs import Blob
from slackwater.persist.garbage import name_of_data
from slackwater.persist.parts import FileBody, Part

Found: TypeAlias = int | str | None
"""A file that was looked at: its size; why it cannot be read; None: it is not there."""


def to_look_at(parts: Iterable[Part], sizes: Mapping[str, int]) -> tuple[Part, ...]:
    """The parts whose files are not as `sizes`, of all listed files, say: a look at each tells."""
    return tuple(
        part
        for part in parts
        if isinstance(part.body, FileBody) and sizes.get(part.body.uri) != part.body.size_bytes
    )


def broken_files(parts: Iterable[Part], found: Mapping[str, Found]) -> Mapping[int, str]:
    """The damages of the parts' files, which were looked at, by the ids of the parts."""
    broken = {}
    for part in parts:
        if isinstance(part.body, FileBody):
            problem = _problem(part.body, found[part.body.uri])
            if problem is not None:
                broken[part.part_id] = problem
    return broken


def _problem(body: FileBody, found: Found) -> str | None:
    match found:
        case None:
            return f"{body.uri} is missing"
        case str(reason):
            return f"{body.uri} cannot be read: {reason}"
        case size if size != body.size_bytes:
            return f"{body.uri} has {size} bytes, not {body.size_bytes}"
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Unnamed:
    """Files below the shards that neither a part nor the list of garbage names.

    `orphans` are in directories of shards: a leader deletes them when they are old. `foreign` are
    elsewhere: nobody does.
    """

    orphans: tuple[Blob, ...]
    foreign: tuple[Blob, ...]

    def described(self) -> tuple[str, ...]:
        """The files as texts, one for each kind that there is."""
        kinds = (
            (self.orphans, "that nothing names: writes that run or broke off, deleted later"),
            (self.foreign, "in no directory of a shard, which nobody deletes"),
        )
        return tuple(
            f"{len(blobs)} files, {decimal(sum(blob.size_bytes for blob in blobs))}, {what}; "
            f"one is {blobs[0].uri}"
            for blobs, what in kinds
            if blobs
        )


def unnamed(blobs: Iterable[Blob], root: str, names: Collection[str]) -> Unnamed:
    """Those of the files below `root`, a URI, whose names are not among `names`."""
    orphans: list[Blob] = []
    foreign: list[Blob] = []
    for blob in blobs:
        if name_of_data(blob.uri) not in names:
            directory = blob.uri.removeprefix(root.rstrip("/") + "/").partition("/")[0]
            (orphans if directory.isdigit() else foreign).append(blob)
    return Unnamed(tuple(orphans), tuple(foreign))
