"""The assembly of a coordinator: makes its parts and gives them to each other, room by room.

Each part takes what it uses. Nothing runs yet: `Coordinator.start` starts what is made here.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from sqlalchemy import Connection
from sqlalchemy import Engine as SqlEngine

from slackwater.adapter.calls import Calls, Performers
from slackwater.adapter.catalog.clusters import SIZES
from slackwater.adapter.catalog.durable import DurableCatalog
from slackwater.adapter.catalog.lineage import lineage_of
from slackwater.adapter.catalog.mark import LeaderMark, Unmarked
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.adapter.catalog.ops import CatalogDiff
from slackwater.adapter.controllers.collections import Collections, recovered
from slackwater.adapter.controllers.dataflows import Dataflows
from slackwater.adapter.controllers.outputs import StoredOutputs
from slackwater.adapter.controllers.parameters import ParameterFile, SystemParameters
from slackwater.adapter.controllers.persist_shards import PersistShardStore, persist_configured
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.controllers.storage_log import StorageLog
from slackwater.adapter.coordinator import Coordinator, Identity, Parts
from slackwater.adapter.ddl.changefeeds import ChangefeedDefinitions
from slackwater.adapter.ddl.changes import Changed, Changes
from slackwater.adapter.ddl.clusters import ClusterDefinitions
from slackwater.adapter.ddl.connections import ConnectionDefinitions, Validate
from slackwater.adapter.ddl.dispatch import Definitions
from slackwater.adapter.ddl.implications import Implications
from slackwater.adapter.ddl.indexes import IndexDefinitions
from slackwater.adapter.ddl.objects import Objects
from slackwater.adapter.ddl.parameters import ParameterDefinitions
from slackwater.adapter.ddl.planned_columns import DeclaredColumns
from slackwater.adapter.ddl.planned_indexes import Indexes
from slackwater.adapter.ddl.planned_kafka import KafkaPlanner
from slackwater.adapter.ddl.planned_kafka_sinks import KafkaSinkPlanner
from slackwater.adapter.ddl.planned_lake_sinks import LakeSinkPlanner, SinkPlanners
from slackwater.adapter.ddl.planned_lake_sources import LakeSourcePlanner, SourcePlanners
from slackwater.adapter.ddl.planned_postgres import PostgresPlanner
from slackwater.adapter.ddl.planned_schemas import SchemaPlanner
from slackwater.adapter.ddl.planned_sources import ConnectorPlanner
from slackwater.adapter.ddl.planned_tables import SourceTablePlanner
from slackwater.adapter.ddl.planned_views import Views
from slackwater.adapter.ddl.published_columns import PublishedColumns
from slackwater.adapter.ddl.repair import repair
from slackwater.adapter.ddl.replacements import Replacements
from slackwater.adapter.ddl.schedules import ClusterSchedules
from slackwater.adapter.ddl.schema_names import SchemaNames
from slackwater.adapter.ddl.secrets import SecretDefinitions
from slackwater.adapter.ddl.sinks import SinkDefinitions
from slackwater.adapter.ddl.source_tables import SourceTableDefinitions
from slackwater.adapter.ddl.sources import SourceDefinitions
from slackwater.adapter.ddl.staged import StagedTables
from slackwater.adapter.ddl.tables import Tables
from slackwater.adapter.ddl.topics import TopicDefinitions
from slackwater.adapter.ddl.upgrade import upgrade
from slackwater.adapter.ddl.views import ViewDefinitions
from slackwater.adapter.external.lineage import LineageSender, emitter, is_asked_for
from slackwater.adapter.external.trials.validation import validate
from slackwater.adapter.external.tunnels import Tunnels
from slackwater.adapter.history.recorder import History
from slackwater.adapter.maintenance import Maintenance, MaintenanceSettings
from slackwater.adapter.reading.followed import FollowedQueries
from slackwater.adapter.reading.health import Health
from slackwater.adapter.reading.peeks import Peeks
from slackwater.adapter.reading.reads import LockLease, Reads
from slackwater.adapter.reading.stashed_rows import StashedRows
from slackwater.adapter.reading.subscriptions import Subscriptions
from slackwater.adapter.sessions.sessions import Advice, Sessions
from slackwater.adapter.sessions.statement_counts import StatementCounts
from slackwater.adapter.sources.changefeed_sources import ChangefeedSources
from slackwater.adapter.sources.changefeeds import Changefeeds
from slackwater.adapter.sources.checkpoint_counts import CheckpointCounts
from slackwater.adapter.sources.checks import Checks
from slackwater.adapter.sources.connections import Connections
from slackwater.adapter.sources.kafka import KafkaSources
from slackwater.adapter.sources.lakes import LakeSources
from slackwater.adapter.sources.postgres import PostgresSources
from slackwater.adapter.sources.replica import StorageReplicas
from slackwater.adapter.sources.replica_inbox import ReplicaInbox
from slackwater.adapter.sources.secrets import Secrets
from slackwater.adapter.sources.sink_targets import Targets
from slackwater.adapter.sources.sinks import SinkRunner
from slackwater.adapter.sources.slots import SlotRemovals
from slackwater.adapter.sources.source_states import SourceStates
from slackwater.adapter.sources.source_steps import SourceSteps
from slackwater.adapter.sources.sources import Sources
from slackwater.adapter.sources.tunnel_keys import TunnelKeys
from slackwater.adapter.sources.webhooks import Webhooks
from slackwater.adapter.statements import Rooms, Statements
from slackwater.adapter.system.dataflow_history import DataflowHistory
from slackwater.adapter.system.lag_history import LagHistory
from slackwater.adapter.system.looks import Looks
from slackwater.adapter.system.metrics import CountingParts, Metrics
from slackwater.adapter.system.notices import (
    STALLED_HINT,
    UNINDEXED_HINT,
    stalled,
    unindexed,
)
from slackwater.adapter.system.relations import system_items, system_schemas
from slackwater.adapter.system.shows import Shows
from slackwater.adapter.system.tables import RunningParts, SystemTables
from slackwater.adapter.time.oracle import TimestampOracle
from slackwater.adapter.time.timeline import Timeline
from slackwater.adapter.time.watch import FrontierWatch
from slackwater.adapter.writing.group_commit import GroupCommit, GroupCommitter
from slackwater.adapter.writing.writes import Writes
from slackwater.checkpoints import DatabaseStore
from slackwater.compute.compaction import EngineRewriter
from slackwater.compute.controller.protocol import DataflowStatus, Problem
from slackwater.compute.controller.shell import Compute, Respond, Seams
from slackwater.compute.engine import Engine, ReplicaShare
from slackwater.compute.limits import Limits
from slackwater.compute.local_replica import LocalReplica, ReplicaOptions, ReplicaParts
from slackwater.compute.planning import Planner
from slackwater.controller.holds import Holder, HoldKind
from slackwater.controller.protocol import ReplicaKey
from slackwater.persist.blobs import Blobs
from slackwater.persist.client import PersistClient
from slackwater.persist.holds import SteadyClock
from slackwater.persist.metastore import environment_name
from slackwater.repr.clock import wall_clock_ms
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.spans import NoSpans, Spans
from slackwater.storage.controller.shell import Storage
from slackwater.storage.ingestion import IngestionRunner
from slackwater.storage.postgres.ingestion import PostgresIngestion

Configure = Callable[[Mapping[str, str]], None]


@dataclass(frozen=True, slots=True)
class Given:
    """The parts and settings that a coordinator is given.

    `engine` reaches the metastore, `blobs` the files of the environment, `spark` the driver.
    `location` is the environment's name for users. `clock` gives wall clock milliseconds, and
    `monotonic` seconds, by which statements wait. `lease` is that of an application that has a
    write lock. `on_fatal` is told of a broken invariant. `mark` is told of what
    others know who do not ask. `parameters_file` may have parameters of the system, and may change.
    `validate` tries a connection. `spans` takes those of statements, ticks, steps of sources and
    ranges of sinks.
    """

    engine: SqlEngine
    location: str
    blobs: Blobs
    epoch: int
    spark: Engine
    log: str
    on_fatal: Callable[[str], None]
    clock: Callable[[], int] = wall_clock_ms
    monotonic: Callable[[], float] = time.monotonic
    maintenance: MaintenanceSettings | None = None
    lease: LockLease = field(default_factory=LockLease)
    mark: LeaderMark = field(default_factory=Unmarked)
    parameters_file: Path | None = None
    validate: Validate = validate
    spans: Spans = field(default_factory=NoSpans)


@dataclass(frozen=True, slots=True)
class _Base:
    """The catalog with its collections and dataflows, the timeline and the committer."""

    relations: Relations
    collections: Collections
    timeline: Timeline
    steady_ms: SteadyClock
    sessions: Sessions
    history: History
    lag_history: LagHistory
    dataflow_history: DataflowHistory
    statement_counts: StatementCounts
    spans: Spans
    planner: Planner
    dataflows: Dataflows
    committer: GroupCommitter
    replica_inbox: ReplicaInbox
    stashed: StashedRows
    parameters: SystemParameters
    configured: list[Configure]
    """The parts of this process that go by parameters; the storage controller tells them."""


@dataclass(frozen=True, slots=True)
class _Connectors:
    """The sources, which bring rows in, and the sinks, which take them out."""

    secrets: Secrets
    connections: Connections
    tunnels: Tunnels
    kafka: KafkaSources
    postgres: PostgresSources
    lakes: LakeSources
    states: SourceStates
    ingestion: IngestionRunner
    webhooks: Webhooks
    changefeeds: Changefeeds
    changefeed_sources: ChangefeedSources
    sources: Sources
    sinks: SinkRunner
    targets: Targets
    awaited_sinks: dict[GlobalId, Timestamp]


@dataclass(frozen=True, slots=True)
class _Planners:
    """The planners of dataflows."""

    views: Views
    indexes: Indexes


def open_coordinator(given: Given) -> Coordinator:
    """The coordinator of the leader of `given.epoch`. Nothing runs until it is started.

    Objects of earlier versions in the environment are upgraded first.
    """
    base = _base(given)
    connectors = _connectors(given, base)
    health = Health(
        connectors.ingestion,
        connectors.webhooks,
        base.dataflows,
        lambda: base.relations.state,
        base.timeline,
    )
    system = _system(base, connectors, health)
    reads = Reads(
        base.relations,
        base.timeline,
        base.committer,
        health,
        given.lease,
        system=system,
        indexes=base.dataflows,
        stashed=base.stashed,
        snapshots=connectors.states,
        spans=base.spans,
    )
    writes = Writes(base.relations, base.committer, reads)
    views = Views(
        base.relations,
        base.timeline,
        given.spark,
        base.planner,
        base.dataflows,
        base.dataflow_history,
    )
    indexes = Indexes(base.relations, given.spark, base.planner)
    replicas = _replicas(base, connectors)
    implications = _implications(given, base, connectors, replicas)
    lineage = LineageSender(emitter, given.clock) if is_asked_for(os.environ) else None
    changes = _changes(base, connectors, implications, _told_as_lineage(given, lineage))
    parameters = _parameters(given, base, changes, replicas)
    maintenance = _maintenance(given, base)
    definitions = _definitions(
        given, base, connectors, _Defining(changes, parameters, _Planners(views, indexes), reads)
    )
    rooms = Rooms(
        reads,
        writes,
        definitions,
        views,
        Shows(base.relations, health, base.parameters),
        Subscriptions(
            base.relations,
            base.timeline,
            given.spark,
            reads,
            FollowedQueries(base.planner, base.dataflows),
        ),
    )
    metrics = _metrics(given, base, connectors, system)
    looks = Looks(base.relations, system)
    performers = _performers(base, rooms, changes, metrics, looks)
    started = threading.Event()
    base.configured.append(maintenance.configure)
    parameters.read_file()
    base.parameters.alter(base.relations.state.parameters)
    base.collections.open()
    base.dataflows.open(base.collections.is_whole)
    base.collections.allow_compaction()
    return Coordinator(
        Identity(given.location, given.log, given.epoch),
        Parts(
            relations=base.relations,
            timeline=base.timeline,
            sessions=base.sessions,
            history=base.history,
            lag_history=base.lag_history,
            dataflow_history=base.dataflow_history,
            committer=base.committer,
            compute=base.dataflows.compute,
            ingestion=connectors.ingestion,
            postgres=connectors.postgres,
            tunnels=connectors.tunnels,
            webhooks=connectors.webhooks,
            changefeeds=connectors.changefeeds,
            sinks=connectors.sinks,
            reads=reads,
            system=system,
            metrics=metrics,
            lineage=lineage,
            changes=changes,
            implications=implications,
            maintenance=maintenance,
            parameters=parameters,
            schedules=ClusterSchedules(
                changes, definitions.clusters, base.relations.upper, base.timeline.read_ts
            ),
            calls=Calls(base.relations, base.timeline, given.spark, performers, started),
        ),
        started,
        given.lease,
        given.on_fatal,
    )


def _performers(
    base: _Base, rooms: Rooms, changes: Changes, metrics: Metrics, looks: Looks
) -> Performers:
    tables = rooms.definitions.tables
    return Performers(
        base.sessions,
        base.history,
        base.statement_counts,
        base.spans,
        rooms.reads,
        Peeks(base.relations, base.dataflows, base.stashed),
        rooms.writes,
        StagedTables(rooms.reads, rooms.writes, tables, changes, base.committer),
        Statements(rooms, base.relations, base.timeline),
        rooms.definitions,
        metrics,
        looks,
    )


def _metrics(given: Given, base: _Base, connectors: _Connectors, system: SystemTables) -> Metrics:
    parts = CountingParts(
        base.statement_counts,
        base.committer,
        base.dataflows,
        connectors.ingestion,
        connectors.changefeed_sources,
        connectors.postgres,
        connectors.sinks,
    )
    return Metrics(system, base.relations, parts, given.epoch)


def _system(base: _Base, connectors: _Connectors, health: Health) -> SystemTables:
    running = RunningParts(
        base.sessions,
        health,
        connectors.states,
        connectors.sinks,
        connectors.changefeed_sources,
        base.parameters,
        connectors.postgres,
        base.history,
        base.lag_history,
        base.dataflow_history,
    )
    return SystemTables(base.relations, base.timeline, running)


def _told_as_lineage(given: Given, lineage: LineageSender | None) -> Changed:
    """Gives the changes of the catalog to the sender, if there is one."""
    namespace = os.environ.get("OPENLINEAGE_NAMESPACE") or given.location

    def changed(diff: CatalogDiff, before: CatalogState, after: CatalogState) -> None:
        if lineage is None:
            return
        try:
            lineage.tell(lineage_of(diff, before, after, namespace))
        except Exception:
            # The change is durable: its statement does not fail because nobody could be told.
            structlog.get_logger("lineage").exception("change not told")

    return changed


def _changes(
    base: _Base, connectors: _Connectors, implications: Implications, changed: Changed
) -> Changes:
    def forget_source(conn: Connection, source: GlobalId) -> None:
        connectors.states.forget(conn, source)
        connectors.postgres.abandon(conn, source)

    on_drop = {
        ItemKind.SOURCE: forget_source,
        ItemKind.SECRET: connectors.secrets.forget,
        ItemKind.CONNECTION: TunnelKeys.forget,
    }
    relations = base.relations
    return Changes(
        relations.catalog, relations.persist, base.timeline, implications, on_drop, changed
    )


def _base(given: Given) -> _Base:
    steady_ms = SteadyClock(given.clock)
    persist = PersistClient(
        given.engine,
        given.blobs,
        given.epoch,
        clock=steady_ms,
        adding_errors=given.mark.adding_errors,
    )
    catalog = DurableCatalog.open(
        persist.transactions,
        clock_ms=given.clock,
        system_schemas=system_schemas(),
        system_items=system_items(),
        mark=given.mark,
    )
    upgrade(persist, catalog)
    repair(persist, catalog)
    oracle = TimestampOracle.recover(persist.reads.tables_upper(), given.clock, given.mark.reads_at)
    timeline = Timeline(oracle, FrontierWatch(given.monotonic), given.clock, given.monotonic)
    replica_inbox = ReplicaInbox()
    configured: list[Configure] = []

    def configure(parameters: Mapping[str, str]) -> None:
        for part in configured:
            part(parameters)

    storage = Storage(
        recovered(persist, catalog.state),
        PersistShardStore(persist),
        steady_ms,
        replica_inbox.push,
        configure,
    )

    def update_configuration(parameters: Mapping[str, str]) -> None:
        storage.do(lambda core: core.placement.update_configuration(parameters))

    relations = Relations(catalog, storage, persist)
    collections = Collections(storage, persist, lambda: catalog.state)
    sessions = Sessions(given.clock)
    history = History(given.blobs, given.epoch, given.clock, spans=given.spans)
    planner = Planner(given.spark)
    stashed = StashedRows(given.blobs, given.epoch)
    compute = Compute(
        Seams(
            storage,
            StoredOutputs(persist, lambda: catalog.state),
            _connecting(given, persist, planner, stashed, steady_ms),
            _Told(relations, timeline.watch, sessions),
            steady_ms,
            stashed.discard,
        )
    )

    @contextmanager
    def held(items: Iterable[CatalogItem]) -> Iterator[None]:
        hold = relations.hold(items, Holder(HoldKind.DEFINITION, "move"))
        try:
            yield
        finally:
            storage.release(hold)

    dataflows = Dataflows(compute, lambda: catalog.state, oracle.read_ts, held)

    def committed(_: GroupCommit) -> None:
        compute.committed()
        timeline.watch.signal()

    committer = GroupCommitter(
        StorageLog(storage, persist),
        oracle,
        location=given.location,
        clock_ms=given.clock,
        monotonic=given.monotonic,
        on_committed=committed,
        on_fatal=lambda error: given.on_fatal(f"{type(error).__name__}: {error}"),
    )
    configured += [
        persist_configured(persist),
        sessions.configure,
        history.configure,
        committer.configure,
        collections.configure,
    ]
    return _Base(
        relations,
        collections,
        timeline,
        steady_ms,
        sessions,
        history,
        LagHistory(given.blobs, given.epoch, given.clock),
        DataflowHistory(given.blobs, given.epoch, given.clock),
        StatementCounts(given.monotonic),
        given.spans,
        planner,
        dataflows,
        committer,
        replica_inbox,
        stashed,
        SystemParameters([update_configuration, compute.update_configuration, dataflows.configure]),
        configured,
    )


@dataclass(frozen=True, slots=True)
class _Told:
    """Whom the compute controller tells: those who wait, and the sessions."""

    relations: Relations
    watch: FrontierWatch
    sessions: Sessions

    def moved(self) -> None:
        self.watch.signal()

    def told(self, before: DataflowStatus, now: DataflowStatus) -> None:
        if now.is_stalled and not before.is_stalled:
            self._notify(now.id, stalled, now.failure, STALLED_HINT)
        if before.out_of_memory is None:
            self._notify(now.id, unindexed, now.out_of_memory, UNINDEXED_HINT)

    def _notify(
        self,
        global_id: GlobalId,
        text: Callable[[CatalogItem, Problem], str],
        problem: Problem | None,
        hint: str,
    ) -> None:
        item = self.relations.state.items.get(global_id)
        if item is not None and problem is not None:
            advice = Advice(hint, about=item.id)
            self.sessions.notify(text(item, problem), "WARNING", problem.sqlstate, advice)


def _connecting(
    given: Given,
    persist: PersistClient,
    planner: Planner,
    stashed: StashedRows,
    clock_ms: SteadyClock,
) -> Callable[[ReplicaKey, str, Respond], LocalReplica]:
    """The function that makes the replicas of this process, and starts them."""

    def connect(key: ReplicaKey, size: str, respond: Respond) -> LocalReplica:
        share = _share(key, size)
        parts = ReplicaParts(
            persist,
            given.spark.on_replica(share),
            planner,
            lambda error: given.on_fatal(str(error)),
            stashed.discard,
            lambda: given.spark.end_replica(share.name),
        )
        options = ReplicaOptions(
            share.name, clock_ms=clock_ms, monotonic=given.monotonic, spans=given.spans
        )
        replica = LocalReplica(parts, respond, options)
        replica.start()
        return replica

    return connect


def _connectors(given: Given, base: _Base) -> _Connectors:
    relations, persist = base.relations, base.relations.persist
    states = SourceStates(persist.transactions, base.committer)
    secrets = Secrets(persist.transactions)
    counts = CheckpointCounts(given.monotonic)
    checkpoints = DatabaseStore(persist.transactions, clock_ms=given.clock)
    steps = SourceSteps(
        persist,
        relations.catalog,
        states,
        clock_ms=given.clock,
        counts=counts,
        begin=base.collections.begin,
        signal=base.timeline.watch.signal,
        spans=given.spans,
    )
    ingestion = IngestionRunner(steps.commit, states.record, given.clock)
    webhooks = Webhooks(
        lambda: relations.state,
        persist=persist,
        committer=base.committer,
        states=states,
        checks=Checks(given.spark, secrets, lambda: relations.state),
        clock_ms=given.clock,
    )
    changefeeds = Changefeeds(
        lambda: relations.state,
        persist=persist,
        committer=base.committer,
        store=checkpoints,
        wake=ingestion.wake,
        listening=lambda: webhooks.listening,
        counts=counts,
    )
    changefeed_sources = ChangefeedSources(
        relations, changefeeds, base.committer, checkpoints, counts
    )
    tunnels = Tunnels()
    keys = TunnelKeys(persist.transactions)
    connections = Connections(lambda: relations.state, secrets, keys, tunnels, given.clock)
    environment = persist.transactions.query(lambda conn: environment_name(conn, given.location))
    kafka = KafkaSources(relations, connections, environment, {})
    reading: dict[GlobalId, PostgresIngestion] = {}
    removals = SlotRemovals(reading.__contains__, given.clock)
    postgres = PostgresSources(relations, connections, environment, reading, removals)
    lakes = LakeSources(relations, connections, {})
    awaited: dict[GlobalId, Timestamp] = {}
    targets = Targets(relations, connections, environment, given.clock)
    return _Connectors(
        secrets=secrets,
        connections=connections,
        tunnels=tunnels,
        kafka=kafka,
        postgres=postgres,
        lakes=lakes,
        states=states,
        ingestion=ingestion,
        webhooks=webhooks,
        changefeeds=changefeeds,
        changefeed_sources=changefeed_sources,
        sources=Sources(
            relations,
            ingestion,
            states,
            base.committer,
            changefeed_sources,
            kafka,
            postgres,
            lakes,
        ),
        sinks=SinkRunner(
            relations,
            base.timeline.watch,
            awaited,
            targets,
            given.clock,
            given.on_fatal,
            given.spans,
        ),
        targets=targets,
        awaited_sinks=awaited,
    )


def _replicas(base: _Base, connectors: _Connectors) -> StorageReplicas:
    return StorageReplicas(
        base.replica_inbox,
        connectors.sources,
        connectors.sinks,
        base.relations.storage.respond,
        connectors.states.configure,
    )


def _parameters(
    given: Given, base: _Base, changes: Changes, replicas: StorageReplicas
) -> ParameterDefinitions:
    def refused(error: SlackwaterError) -> None:
        structlog.get_logger("parameters").warning("file ignored", error=error.message)
        base.sessions.notify(error.message, "WARNING", error.sqlstate)

    path = given.parameters_file
    file = None if path is None else ParameterFile(path, refused)
    return ParameterDefinitions(changes, base.parameters, replicas.apply_commands, file)


def _implications(
    given: Given, base: _Base, connectors: _Connectors, replicas: StorageReplicas
) -> Implications:
    def resize(cluster: str, replica: str, size: str) -> None:
        given.spark.on_replica(_share(ReplicaKey(cluster, replica), size))

    return Implications(
        base.relations.catalog,
        base.collections,
        base.dataflows,
        replicas,
        resize,
        connectors.postgres.dropped,
    )


def _share(key: ReplicaKey, size: str) -> ReplicaShare:
    return ReplicaShare(f"{key.instance}.{key.replica}", SIZES[size])


@dataclass(frozen=True, slots=True)
class _Defining:
    """The parts by which definitions are made, whatever their kind."""

    changes: Changes
    parameters: ParameterDefinitions
    planners: _Planners
    reads: Reads


def _definitions(
    given: Given, base: _Base, connectors: _Connectors, defining: _Defining
) -> Definitions:
    changes, planners = defining.changes, defining.planners
    relations = base.relations
    topics = KafkaPlanner(lambda: relations.state, connectors.kafka)
    published = PostgresPlanner(lambda: relations.state, connectors.postgres)
    source_tables = SourceTableDefinitions(
        changes,
        SourceTablePlanner(lambda: changes.state, topics, published, DeclaredColumns(given.spark)),
        connectors.states,
        connectors.ingestion,
        connectors.kafka,
        connectors.changefeed_sources,
        given.clock,
    )
    planner = ConnectorPlanner(
        changes,
        relations,
        base.timeline,
        given.spark,
        SourcePlanners(
            topics, published, LakeSourcePlanner(lambda: relations.state, connectors.lakes)
        ),
        SinkPlanners(
            KafkaSinkPlanner(lambda: relations.state, connectors.targets),
            LakeSinkPlanner(lambda: relations.state, connectors.targets),
        ),
    )
    return Definitions(
        changes=changes,
        tables=Tables(changes, given.spark),
        views=ViewDefinitions(changes, planners.views),
        objects=Objects(changes),
        schema_names=SchemaNames(changes, given.spark),
        indexes=IndexDefinitions(changes, planners.indexes),
        sources=SourceDefinitions(
            changes, planner, connectors.sources, connectors.webhooks, connectors.changefeeds
        ),
        sinks=SinkDefinitions(
            changes,
            planner,
            base.collections,
            base.relations,
            base.timeline,
            awaited=connectors.awaited_sinks,
            runner=connectors.sinks,
        ),
        secrets=SecretDefinitions(changes, connectors.secrets),
        connections=ConnectionDefinitions(changes, connectors.connections, given.validate),
        changefeeds=ChangefeedDefinitions(
            changes, source_tables, connectors.changefeeds, connectors.ingestion
        ),
        source_tables=source_tables,
        topics=TopicDefinitions(
            changes,
            connectors.kafka,
            connectors.postgres,
            connectors.lakes,
            connectors.ingestion,
            SchemaPlanner(lambda: changes.state, connectors.kafka),
            PublishedColumns(changes, published),
        ),
        parameters=defining.parameters,
        clusters=ClusterDefinitions(changes),
        replacements=Replacements(
            changes,
            base.relations,
            base.timeline,
            defining.reads,
            base.committer,
            given.spark,
            base.planner,
            base.dataflows,
            Limits(),
        ),
    )


def _maintenance(given: Given, base: _Base) -> Maintenance:
    return Maintenance(
        base.relations,
        base.timeline.oracle,
        base.dataflows.compute,
        EngineRewriter(given.spark),
        base.stashed,
        epoch=given.epoch,
        clock_ms=base.steady_ms,
        on_fatal=given.on_fatal,
        settings=given.maintenance,
    )
