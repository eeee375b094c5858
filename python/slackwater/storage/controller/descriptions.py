"""Descriptions of collections and exports. Source: spec controllers 2.5, 2.8."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slackwater.repr.frontier import Frontier
from slackwater.repr.ids import GlobalId


@dataclass(frozen=True, slots=True)
class Table:
    """Written by the group committer."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Written by the remap operator of an ingestion: when which source time was bound."""


@dataclass(frozen=True, slots=True)
class OtherWriter:
    """Written by somebody else: a materialized view, by its dataflow."""


@dataclass(frozen=True, slots=True)
class IngestionDescription:
    """Written by a replica of `instance`, which reads `connection` (opaque here).

    `remap` is the collection of its bindings, which may be the ingestion's own; None if the
    ingestion is bound by the tables' clock alone.
    """

    instance: str
    connection: str
    remap: GlobalId | None = None


@dataclass(frozen=True, slots=True)
class IngestionExport:
    """One output of the ingestion `ingestion`, written by it."""

    ingestion: GlobalId
    name: str


DataSource = Table | Progress | OtherWriter | IngestionDescription | IngestionExport


@dataclass(frozen=True, slots=True)
class CollectionDescription:
    """The description of a collection. Two descriptions of one id must be equal.

    `since`, if given, is where its history begins at the earliest: the time of its creation.
    `runs_ahead`: it may be complete for times to come. What its read policy asks for follows the
    tables' upper there, so that it can still be read at the present time.
    """

    data_source: DataSource
    since: Frontier | None = None
    runs_ahead: bool = False


@dataclass(frozen=True, slots=True)
class CollectionMetadata:
    """The shards of a collection, as its durable state says.

    `shares_tables_upper`: its upper is the one that all tables and sources share, and `upper` is
    ignored. The shards `error_shards` live and die with it, and are read at the same times.
    """

    shard_id: int
    since: Frontier
    upper: Frontier
    shares_tables_upper: bool = False
    error_shards: tuple[int, ...] = ()

    @property
    def shards(self) -> tuple[int, ...]:
        """All shards of the collection."""
        return (self.shard_id, *self.error_shards)


@dataclass(frozen=True, slots=True)
class SinkAsOf:
    """The beginning of a sink: the snapshot at `frontier`, then the changes.

    `strict`: only the changes after it.
    """

    frontier: Frontier
    strict: bool = False

    def downgraded(self, since: Frontier) -> SinkAsOf:
        """The as-of at which the sink goes on when history before `since` is gone.

        A since that only equals the frontier leaves a new sink its snapshot (spec 2.5, the `lt`
        form). Skipping is safe: the sink's hold lags what it has written out.
        """
        return SinkAsOf(since, strict=True) if self.frontier < since else self


@dataclass(frozen=True, slots=True)
class ExportDescription:
    """The input and the target of a sink; `connection` is opaque here.

    `as_of` is where it begins when it is created; `with_snapshot` False leaves the snapshot out.
    """

    from_id: GlobalId
    instance: str
    connection: str
    as_of: Frontier
    with_snapshot: bool = True


@dataclass(frozen=True, slots=True)
class DurableState:
    """The durable records of shards.

    `mappings`: which object a shard belongs to. `unfinalized`: shards that nobody may use any more
    and that are not gone yet. `unclaimed`: shards that are neither mapped, registered nor gone.
    `lost`: mapped shards that nobody can read: there is none, or its finalization has begun.
    """

    mappings: Mapping[int, GlobalId] = field(default_factory=dict)
    unfinalized: frozenset[int] = frozenset()
    unclaimed: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()
