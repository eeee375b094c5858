"""What the controller and a replica say to each other. Source: spec controllers 2.3, 2.7."""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.repr.frontier import Frontier
from slackwater.repr.ids import GlobalId
from slackwater.storage.controller.descriptions import (
    ExportDescription,
    IngestionDescription,
    SinkAsOf,
)

Parameters = tuple[tuple[str, str], ...]
"""Configuration as sorted pairs of name and value."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A connection begins; `nonce` tells it from earlier ones of the same replica."""

    nonce: int


@dataclass(frozen=True, slots=True)
class UpdateConfiguration:
    """Sets these parameters and leaves the others as they are."""

    parameters: Parameters


@dataclass(frozen=True, slots=True)
class InitializationComplete:
    """What was sent so far is everything there is: drop what is not in it."""


@dataclass(frozen=True, slots=True)
class RunIngestion:
    """Runs the ingestion, in place of an earlier description. `exports` are its collections."""

    id: GlobalId
    ingestion: IngestionDescription
    exports: tuple[GlobalId, ...]

    @property
    def collections(self) -> tuple[GlobalId, ...]:
        """The collections that it writes."""
        return (self.id, *self.exports)


@dataclass(frozen=True, slots=True)
class RunSink:
    """Runs the sink, in place of an earlier description."""

    id: GlobalId
    description: ExportDescription
    as_of: SinkAsOf


@dataclass(frozen=True, slots=True)
class AllowCompaction:
    """Times before `since` are not needed any more; the empty frontier ends the object."""

    id: GlobalId
    since: Frontier


Command = (
    Hello | UpdateConfiguration | InitializationComplete | RunIngestion | RunSink | AllowCompaction
)


@dataclass(frozen=True, slots=True)
class FrontierUppers:
    """The collections and sinks have been written up to here."""

    uppers: tuple[tuple[GlobalId, Frontier], ...]


@dataclass(frozen=True, slots=True)
class DroppedIds:
    """The replica does not work on these any more and will not speak of them again."""

    replica: ReplicaKey
    ids: tuple[GlobalId, ...]


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """How an object is: "running", "stalled", ..."""

    id: GlobalId
    status: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class AppendDone:
    """The append with this ticket is durable."""

    ticket: int


@dataclass(frozen=True, slots=True)
class AppendRefused:
    """The append with this ticket did not happen: these collections have other uppers.

    `tables_upper`: where the shared upper is, when it is that one.
    """

    ticket: int
    uppers: tuple[tuple[GlobalId, Frontier], ...]
    tables_upper: Frontier | None = None


@dataclass(frozen=True, slots=True)
class AppendFailed:
    """The append with this ticket failed; whether it happened, the next one will be told."""

    ticket: int


@dataclass(frozen=True, slots=True)
class SnapshotRead:
    """The snapshot with this ticket has been read, or nobody wants it any more."""

    ticket: int


@dataclass(frozen=True, slots=True)
class ShardFinalized:
    """The shard is gone; nothing but its tombstone is left."""

    shard_id: int


@dataclass(frozen=True, slots=True)
class ReplicaKey:
    instance: str
    replica: str


Response = (
    FrontierUppers
    | DroppedIds
    | StatusUpdate
    | AppendDone
    | AppendRefused
    | AppendFailed
    | SnapshotRead
    | ShardFinalized
)
