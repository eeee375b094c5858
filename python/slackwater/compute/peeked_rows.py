"""The most that a peek may answer, and the file for what is more: words of the engine and of the
protocol with replicas."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PeekLimits:
    """The most rows, and bytes of rows, that the answer to a peek may have."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Stash:
    """A directory of the environment, as a URI, for the file of a peek's rows.

    The file has at most what `limits` allow, whose bytes are those of rows in memory.
    """

    directory: str
    limits: PeekLimits


@dataclass(frozen=True, slots=True)
class PeekStashed:
    """The rows of a peek are too many to be sent: they are in a Parquet file, which has a URI.

    It has each row as often as it is there, with the columns of `schema` (Spark's JSON). From now
    on the file is the controller's, which deletes it; also when nobody waits for the answer any
    more.
    """

    uri: str
    rows: int
    size_bytes: int
    modified_ms: int
    schema: str
