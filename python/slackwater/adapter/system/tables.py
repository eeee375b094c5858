"""The system relations as collections that a bind can serve: rows as of the moment of the bind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from slackwater.adapter.catalog.details import MaterializedViewDetails
from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.reading.health import Health
from slackwater.adapter.sessions.sessions import Sessions
from slackwater.adapter.sources.changefeed_sources import ChangefeedSources
from slackwater.adapter.sources.sinks import SinkRunner
from slackwater.adapter.sources.sources import Sources
from slackwater.adapter.system.notices import notices
from slackwater.adapter.system.relations import SYSTEM_RELATIONS
from slackwater.adapter.system.snapshot import (
    ClusterEntry,
    Hydration,
    ObjectFrontiers,
    ObjectStatus,
    ReplicaEntry,
    SessionEntry,
    SourceStatistics,
    SubscriptionEntry,
    SystemSnapshot,
)
from slackwater.adapter.time.timeline import Timeline
from slackwater.persist.ipc import to_stream
from slackwater.persist.usage import usage
from slackwater.planner.parser.variables import CLUSTER as CLUSTER_NAME
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import DIFF_FIELD, TIME_FIELD
from slackwater.storage.ingestion import StatusChange

CLUSTER = ClusterEntry(
    "u1", CLUSTER_NAME, replicas=(ReplicaEntry("u1", "r1", "driver"),), size="driver"
)
REPLICA_ID = CLUSTER.replicas[0].id
_WITH_AUDIT = frozenset({"mz_audit_events"})
_WITH_HISTORY = frozenset({"mz_source_status_history"})
_WITH_PROGRESS = frozenset({"mz_hydration_progress"})
_WITH_ARRANGEMENTS = frozenset({"mz_arrangement_sizes"})
_WITH_PARTITIONS = frozenset({"mz_changefeed_partitions"})
_WITH_USAGE = frozenset({"mz_recent_storage_usage", "mz_shard_usage"})


@dataclass(frozen=True, slots=True)
class Running:
    """The running parts of the environment whose state the system relations show."""

    sessions: Sessions
    health: Health
    sources: Sources
    sinks: SinkRunner
    changefeeds: ChangefeedSources


class SystemTables:
    """Serves the relations of `mz_catalog`, `mz_internal` and `mz_introspection`."""

    def __init__(self, relations: Relations, timeline: Timeline, running: Running) -> None:
        self._relations = relations
        self._timeline = timeline
        self._sessions = running.sessions
        self._health = running.health
        self._sources = running.sources
        self._sinks = running.sinks
        self._changefeeds = running.changefeeds
        self._by_id = {relation.id: relation for relation in SYSTEM_RELATIONS}

    def rows(self, times: Mapping[GlobalId, Timestamp]) -> dict[GlobalId, bytes]:
        """The rows of some relations at one moment, now.

        Each is an Arrow IPC stream of updates at the relation's time in `times`.
        """
        if not times:
            return {}
        relations = [self._by_id[global_id] for global_id in times]
        names = {relation.name for relation in relations}
        snapshot = self.snapshot(
            with_audit=not names.isdisjoint(_WITH_AUDIT),
            with_history=not names.isdisjoint(_WITH_HISTORY),
            with_usage=not names.isdisjoint(_WITH_USAGE),
            with_progress=not names.isdisjoint(_WITH_PROGRESS),
            with_arrangements=not names.isdisjoint(_WITH_ARRANGEMENTS),
            with_partitions=not names.isdisjoint(_WITH_PARTITIONS),
        )
        return {
            relation.id: _updates(relation.table(snapshot), times[relation.id])
            for relation in relations
        }

    def snapshot(
        self,
        *,
        with_audit: bool = False,
        with_history: bool = False,
        with_usage: bool = False,
        with_progress: bool = False,
        with_arrangements: bool = False,
        with_partitions: bool = False,
    ) -> SystemSnapshot:
        """The contents of the system relations now.

        `with_audit` and the others add what has to be read from the metastore or the driver.
        """
        catalog = self._relations.state
        worker, webhooks = self._health.worker, self._health.webhooks
        now_ms = self._timeline.now()
        items = [i for i in catalog.items.values() if i.kind is not ItemKind.SYSTEM_TABLE]
        statistics = {
            source_id: SourceStatistics(
                replica_id=REPLICA_ID,
                messages_received=found.messages_received,
                bytes_received=found.bytes_received,
                updates_staged=found.updates_staged,
                updates_committed=found.updates_committed,
                snapshot_committed=found.snapshot_committed,
                offset_known=found.offset_known,
                offset_committed=found.offset_committed,
                rows_skipped=found.rows_skipped,
            )
            for source_id, found in {
                **self._health.ingestion.statistics(),
                **webhooks.statistics(),
            }.items()
        }
        return SystemSnapshot(
            catalog=catalog,
            now_ms=now_ms,
            frontiers={item.id: self._frontiers(item) for item in items if _has_frontiers(item)},
            hydration=tuple(
                Hydration(item.id, REPLICA_ID, self._is_hydrated(item))
                for item in items
                if item.kind is ItemKind.MATERIALIZED_VIEW
            ),
            statuses=self._statuses(),
            source_statistics=statistics,
            clusters=(CLUSTER,),
            sessions=tuple(
                SessionEntry(s.session_id, s.connection_id, s.user, None, s.connected_ms)
                for s in self._sessions.all()
            ),
            subscriptions=self._subscriptions(),
            notices=tuple(notices(self._sessions, worker, catalog, now_ms)),
            read_holds=self._relations.storage.holds(),
            audit_events=self._relations.catalog.audit_events() if with_audit else (),
            source_history=(
                tuple((c.source_id, _shown(c)) for c in self._sources.history())
                if with_history
                else ()
            ),
            usage=self._relations.persist.transactions.query(usage) if with_usage else (),
            ticks=tuple(worker.records.all()),
            hydration_progress=tuple(worker.hydration_progress()) if with_progress else (),
            arrangements=tuple(worker.arrangements()) if with_arrangements else (),
            webhooks=webhooks.urls(),
            partitions=tuple(self._changefeeds.partitions()) if with_partitions else (),
        )

    def _frontiers(self, item: CatalogItem) -> ObjectFrontiers:
        if item.kind is ItemKind.SINK:
            return ObjectFrontiers(None, self._sinks.frontier(item.id))
        return ObjectFrontiers(self._relations.since(item), self._relations.upper(item))

    def _is_hydrated(self, item: CatalogItem) -> bool:
        return self._relations.upper(item).value > item.of(MaterializedViewDetails).as_of

    def _statuses(self) -> dict[GlobalId, ObjectStatus]:
        found = {}
        for change in self._health.source_statuses():
            found[change.source_id] = _shown(change)
        for running in self._sinks.statuses():
            name = "running" if running.error is None else "stalled"
            found[running.item.id] = ObjectStatus(name, running.changed_ms, running.error)
        return found

    def _subscriptions(self) -> tuple[SubscriptionEntry, ...]:
        return tuple(
            SubscriptionEntry(name, session.session_id, CLUSTER.id, cursor.created_ms, cursor.reads)
            for session in self._sessions.all()
            for name, cursor in list(session.cursors.items())
            if cursor.reads and not cursor.ended
        )


def _updates(table: pa.Table, time: Timestamp) -> bytes:
    """The rows as an Arrow IPC stream of updates at `time`."""
    count = table.num_rows
    table = table.append_column(TIME_FIELD, pa.repeat(pa.scalar(int(time)), count)).append_column(
        DIFF_FIELD, pa.repeat(pa.scalar(1), count)
    )
    return to_stream(table)


def _shown(change: StatusChange) -> ObjectStatus:
    status = change.status
    details = json.dumps(dict(status.details), default=str) if status.details else None
    return ObjectStatus(status.status, change.occurred_at_ms, status.error, details)


def _has_frontiers(item: CatalogItem) -> bool:
    return item.shard_id is not None or item.kind is ItemKind.SINK
