"""The system relations as collections that a bind can serve: rows as of the moment of the bind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.adapter.controllers.parameters import SystemParameters
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.history.dataflows import Hydrated, Kept, Ticked, hydrations, ticks
from slackwater.adapter.history.recorder import History
from slackwater.adapter.reading.health import Health
from slackwater.adapter.sessions.sessions import Sessions
from slackwater.adapter.sources.changefeed_sources import ChangefeedSources
from slackwater.adapter.sources.postgres import PostgresSources
from slackwater.adapter.sources.sinks import SinkRunner
from slackwater.adapter.sources.source_states import SourceStates
from slackwater.adapter.system.dataflow_history import DataflowHistory
from slackwater.adapter.system.lag_history import LagHistory
from slackwater.adapter.system.notices import notices, of_logs, of_slots
from slackwater.adapter.system.relations import SYSTEM_RELATIONS
from slackwater.adapter.system.snapshot import (
    ObjectFrontiers,
    SessionEntry,
    SubscriptionEntry,
    SystemSnapshot,
    WaitEntry,
)
from slackwater.adapter.time.timeline import Timeline
from slackwater.persist.ipc import to_stream
from slackwater.persist.usage import usage
from slackwater.repr.frontier import EMPTY_FRONTIER, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import updates_at
from slackwater.storage.ingestion import StatusChange

_WITH_TICKS = frozenset({"mz_recent_ticks", "mz_recent_tick_steps"})
SILENT_S = 2.0
"""A replica that does not say in so many seconds what it has done is asked again later."""
WRITING_S = 15.0
"""So many seconds after a driver has told how far a write is, that is shown."""
_RUNNING = frozenset({"mz_source_statistics", "mz_sink_statistics"})
_WITH_REPLICAS = frozenset({"mz_cluster_replica_statuses", "mz_cluster_replica_metrics"})
_WITH_ARRANGEMENTS = frozenset({"mz_arrangement_sizes", "mz_cluster_replica_metrics"})
_WITH_STATEMENTS = frozenset({"mz_recent_activity_log", "mz_statement_lifecycle_history"})
_WITH_PAST_SESSIONS = frozenset({"mz_recent_activity_log", "mz_session_history"})
_WITH_USAGE = frozenset({"mz_recent_storage_usage", "mz_shard_usage"})


@dataclass(frozen=True, slots=True)
class RunningParts:
    """The running parts of the environment whose state the system relations show."""

    sessions: Sessions
    health: Health
    states: SourceStates
    sinks: SinkRunner
    changefeeds: ChangefeedSources
    parameters: SystemParameters
    postgres: PostgresSources
    history: History
    lags: LagHistory
    done: DataflowHistory


class SystemTables:
    """Serves the relations of `mz_catalog`, `mz_internal` and `mz_introspection`."""

    def __init__(self, relations: Relations, timeline: Timeline, running: RunningParts) -> None:
        self._relations = relations
        self._timeline = timeline
        self._sessions = running.sessions
        self._health = running.health
        self._states = running.states
        self._sinks = running.sinks
        self._changefeeds = running.changefeeds
        self._parameters = running.parameters
        self._postgres = running.postgres
        self._history = running.history
        self._lags = running.lags
        self._done = running.done
        self._by_id = {relation.id: relation for relation in SYSTEM_RELATIONS}

    def rows(self, times: Mapping[GlobalId, Timestamp]) -> dict[GlobalId, bytes]:
        """The rows of some relations at one moment, now.

        Each is an Arrow IPC stream of updates at the relation's time in `times`.
        """
        if not times:
            return {}
        relations = [self._by_id[global_id] for global_id in times]
        snapshot = self.snapshot(frozenset(relation.name for relation in relations))
        return {
            relation.id: to_stream(updates_at(relation.table(snapshot), times[relation.id]))
            for relation in relations
        }

    def snapshot(self, names: frozenset[str]) -> SystemSnapshot:
        """The contents of the system relations now.

        What has to be read from the metastore or the driver is there for those in `names` alone.
        """
        catalog = self._relations.state
        dataflows, webhooks = self._health.dataflows, self._health.webhooks
        now_ms = self._timeline.now()
        waiting_slots = self._postgres.removals.waiting()
        items = [i for i in catalog.items.values() if i.kind is not ItemKind.SYSTEM_TABLE]
        return SystemSnapshot(
            catalog=catalog,
            now_ms=now_ms,
            frontiers=self._frontiers(items),
            hydrated=dataflows.hydrated(item for item in items if item.kind.is_maintained),
            replica_uppers=tuple(dataflows.replica_uppers())
            if "mz_cluster_replica_frontiers" in names
            else (),
            replica_statuses=dataflows.replica_statuses() if names & _WITH_REPLICAS else {},
            peeks=tuple(dataflows.open_peeks()) if "mz_active_peeks" in names else (),
            running_on=self._relations.storage.running_on() if names & _RUNNING else {},
            statuses=self._statuses(),
            source_statistics={**self._health.ingestion.statistics(), **webhooks.statistics()},
            source_partitions=self._health.ingestion.partitions(),
            sink_statistics=self._sinks.statistics(),
            sessions=tuple(
                SessionEntry(s.session_id, s.connection_id, s.user, None, s.connected_ms)
                for s in self._sessions.all()
            ),
            subscriptions=self._subscriptions(),
            notices=(
                *notices(self._sessions, dataflows.statuses(), catalog),
                *of_logs(self._postgres.retained(), catalog),
                *of_slots(waiting_slots),
            ),
            waiting_slots=waiting_slots,
            read_holds=self._relations.storage.holds(),
            audit_events=self._relations.catalog.audit_events()
            if "mz_audit_events" in names
            else (),
            source_history=self._states.history() if "mz_source_status_history" in names else (),
            usage=self._relations.persist.transactions.query(usage) if names & _WITH_USAGE else (),
            ticks=self._ticks(catalog) if names & _WITH_TICKS else (),
            hydrations=self._hydrations() if "mz_object_hydration_history" in names else (),
            hydration_progress=tuple(dataflows.hydration_progress())
            if "mz_hydration_progress" in names
            else (),
            arrangements=tuple(dataflows.arrangements()) if names & _WITH_ARRANGEMENTS else (),
            webhooks=webhooks.urls(),
            partitions=tuple(self._changefeeds.partitions())
            if "mz_changefeed_partitions" in names
            else (),
            parameters=self._parameters.entries(),
            statements=self._history.statements() if names & _WITH_STATEMENTS else (),
            past_sessions=self._history.sessions() if names & _WITH_PAST_SESSIONS else (),
            waits=tuple(self._waits()) if "mz_statement_waits" in names else (),
            lag_minutes=self._lags.minutes()
            if "mz_wallclock_global_lag_recent_history" in names
            else (),
        )

    def records(self) -> list[Kept]:
        """All that the objects' dataflows have done of late, as replicas say.

        Raises TimeoutError when a replica is silent.
        """
        items = self._relations.state.items
        told = self._health.dataflows.ticks(SILENT_S)
        ticked = [Ticked(t.replica, t.record) for t in told if t.record.global_id in items]
        return [*ticked, *self._hydrated(SILENT_S)]

    def _ticks(self, catalog: CatalogState) -> tuple[Ticked, ...]:
        """The last ticks of the dataflows that are there, also under leaders before."""
        told = [Ticked(each.replica, each.record) for each in self._health.dataflows.ticks()]
        there = {*catalog.items, *(each.record.global_id for each in told)}
        found = ticks(self._done.records(told))
        return tuple(each for each in found if each.record.global_id in there)

    def _hydrations(self) -> tuple[Hydrated, ...]:
        return tuple(hydrations(self._done.records(list(self._hydrated()))))

    def _hydrated(self, timeout_s: float | None = None) -> Iterator[Hydrated]:
        """The hydrations that are over, of the dataflows that replicas have."""
        items = self._relations.state.items
        for told in self._health.dataflows.hydrations(timeout_s):
            item = items.get(told.record.global_id)
            if item is not None and told.record.hydrated_ms is not None:
                yield Hydrated(told.replica, item.cluster or "", told.record)

    def _waits(self) -> Iterator[WaitEntry]:
        now_s = self._timeline.monotonic()
        for session in self._sessions.all():
            for statement, write in tuple(session.writing.items()):
                # Drivers tell each second, unless they are stopped, or gone.
                if now_s - write.told_s < WRITING_S:
                    yield WaitEntry(session.session_id, statement, str(write))
            for running in tuple(session.running.values()):
                told = running.cancellation.waits_for()
                if told is not None:
                    yield WaitEntry(session.session_id, running.statement, told)

    def lags(self) -> dict[GlobalId, int]:
        """Milliseconds by which each object is behind the wall clock now; not of what has ended."""
        now_ms = self._timeline.now()
        items = self._relations.state.items.values()
        found = self._frontiers(i for i in items if i.kind is not ItemKind.SYSTEM_TABLE)
        return {
            global_id: each.behind_ms(now_ms)
            for global_id, each in found.items()
            if not each.upper.is_empty
        }

    def _frontiers(self, items: Iterable[CatalogItem]) -> dict[GlobalId, ObjectFrontiers]:
        """The frontiers of all that have some; of what has lost its contents, empty ones."""
        there = tuple(items)
        stored = self._relations.storage.frontiers_of_all()
        indexes = self._health.dataflows.uppers(i.id for i in there if i.kind is ItemKind.INDEX)
        lost = (EMPTY_FRONTIER, EMPTY_FRONTIER)
        found = {}
        for item in there:
            if item.kind is ItemKind.SINK:
                found[item.id] = ObjectFrontiers(None, self._sinks.frontier(item.id))
            elif item.kind is ItemKind.INDEX:
                found[item.id] = ObjectFrontiers(None, indexes[item.id])
            elif item.shard_id is not None:
                found[item.id] = ObjectFrontiers(*stored.get(item.id, lost))
        return found

    def _statuses(self) -> dict[GlobalId, StatusChange]:
        paused = self._health.paused()
        changes = [*paused, *self._health.source_statuses(), *self._sinks.statuses()]
        return {change.source_id: change for change in changes}

    def _subscriptions(self) -> tuple[SubscriptionEntry, ...]:
        return tuple(
            SubscriptionEntry(
                name,
                session.session_id,
                cursor.cluster or "",
                cursor.created_ms,
                cursor.reads,
            )
            for session in self._sessions.all()
            for name, cursor in list(session.cursors.items())
            if cursor.reads and not cursor.ended
        )
