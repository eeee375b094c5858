"""The protocol between the controller and a replica. Source: spec controllers 2.3, 2.7."""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.controller.protocol import (
    AllowCompaction,
    DroppedIds,
    FrontierUppers,
    Hello,
    InitializationComplete,
    StatusUpdate,
    UpdateConfiguration,
)
from slackwater.repr.frontier import Frontier
from slackwater.repr.ids import GlobalId
from slackwater.storage.controller.descriptions import (
    ExportDescription,
    IngestionDescription,
    SinkAsOf,
)


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


Command = (
    Hello | UpdateConfiguration | InitializationComplete | RunIngestion | RunSink | AllowCompaction
)


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
