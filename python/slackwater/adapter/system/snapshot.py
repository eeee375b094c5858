"""The contents of the system relations as one frozen value, gathered for each read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slackwater.adapter.catalog.durable import AuditEvent
from slackwater.adapter.catalog.model import CatalogState
from slackwater.adapter.controllers.dataflows import OfReplica
from slackwater.adapter.controllers.parameters import ParameterEntry
from slackwater.adapter.history.dataflows import Hydrated, Ticked
from slackwater.adapter.history.lags import LagsOfMinute
from slackwater.adapter.history.records import SessionBegan, Statement
from slackwater.adapter.sources.changefeed_sources import PartitionEntry
from slackwater.adapter.sources.slots import WaitingSlot
from slackwater.compute.controller.protocol import Peek
from slackwater.compute.controller.shell import ReplicaStatus
from slackwater.compute.records import ArrangementSize, HydrationProgress
from slackwater.controller.holds import ReadHold
from slackwater.persist.usage import ShardUsage
from slackwater.repr.frontier import Frontier
from slackwater.repr.ids import GlobalId
from slackwater.storage.ingestion import PartitionOffsets, SourceStatistics, StatusChange
from slackwater.storage.sink_statistics import SinkStatistics


@dataclass(frozen=True, slots=True)
class ObjectFrontiers:
    """The frontiers of an object. `since` is None for sinks, which cannot be read, and indexes."""

    since: Frontier | None
    upper: Frontier

    def behind_ms(self, now_ms: int) -> int:
        """Milliseconds by which the object is behind the wall clock; 0 once it has ended."""
        return 0 if self.upper.is_empty else max(0, now_ms - self.upper.value)


@dataclass(frozen=True, slots=True)
class SessionEntry:
    id: str
    connection_id: int
    user: str
    client_ip: str | None
    connected_ms: int


@dataclass(frozen=True, slots=True)
class WaitEntry:
    """A statement that waits, and what for, in one sentence."""

    session_id: str
    statement: str
    waits_for: str


@dataclass(frozen=True, slots=True)
class SubscriptionEntry:
    id: str
    session_id: str
    cluster_id: str
    created_ms: int
    reads: tuple[GlobalId, ...]


@dataclass(frozen=True, slots=True)
class NoticeEntry:
    id: str
    notice_type: str
    message: str
    hint: str
    action: str | None
    action_type: str | None
    object_id: GlobalId | None
    created_ms: int


@dataclass(frozen=True, slots=True)
class SystemSnapshot:
    """Everything that the rows of system relations are made of, at the wall clock time `now_ms`."""

    catalog: CatalogState
    now_ms: int
    frontiers: Mapping[GlobalId, ObjectFrontiers] = field(default_factory=dict)
    hydrated: Mapping[GlobalId, Mapping[str, bool]] = field(default_factory=dict)
    """Whether each replica has the contents of a view or index, by the replica's id."""
    replica_uppers: tuple[tuple[GlobalId, str, Frontier], ...] = ()
    replica_statuses: Mapping[str, ReplicaStatus] = field(default_factory=dict)
    """By the replicas' ids."""
    peeks: tuple[Peek, ...] = ()
    running_on: Mapping[GlobalId, str] = field(default_factory=dict)
    """The replicas that run sources, by the sources' ids."""
    statuses: Mapping[GlobalId, StatusChange] = field(default_factory=dict)
    source_statistics: Mapping[GlobalId, SourceStatistics] = field(default_factory=dict)
    source_partitions: Mapping[GlobalId, tuple[PartitionOffsets, ...]] = field(default_factory=dict)
    sink_statistics: Mapping[GlobalId, SinkStatistics] = field(default_factory=dict)
    sessions: tuple[SessionEntry, ...] = ()
    subscriptions: tuple[SubscriptionEntry, ...] = ()
    notices: tuple[NoticeEntry, ...] = ()
    read_holds: tuple[ReadHold, ...] = ()
    audit_events: tuple[AuditEvent, ...] = ()
    source_history: tuple[StatusChange, ...] = ()
    usage: tuple[ShardUsage, ...] = ()
    ticks: tuple[Ticked, ...] = ()
    hydrations: tuple[Hydrated, ...] = ()
    hydration_progress: tuple[OfReplica[HydrationProgress], ...] = ()
    arrangements: tuple[OfReplica[ArrangementSize], ...] = ()
    webhooks: Mapping[GlobalId, str] = field(default_factory=dict)
    """The URL to which requests for a source go, by its id."""
    partitions: tuple[PartitionEntry, ...] = ()
    parameters: tuple[ParameterEntry, ...] = ()
    waiting_slots: tuple[WaitingSlot, ...] = ()
    statements: tuple[Statement, ...] = ()
    past_sessions: tuple[SessionBegan, ...] = ()
    lag_minutes: tuple[LagsOfMinute, ...] = ()
    waits: tuple[WaitEntry, ...] = ()
