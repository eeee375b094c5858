"""The coordinator: opens the environment's parts, connects them, and answers the shim's calls.

What each call does is elsewhere; here is who owns what and in which order things start and stop.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from sqlalchemy import Engine as SqlEngine

from slackwater.adapter.calls import Calls, Performers
from slackwater.adapter.catalog.durable import DurableCatalog
from slackwater.adapter.controllers.collections import Collections, recovered
from slackwater.adapter.controllers.persist_shards import PersistShardStore
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.controllers.storage_log import StorageLog
from slackwater.adapter.ddl.dispatch import Definitions
from slackwater.adapter.ddl.implications import Implications
from slackwater.adapter.ddl.planned_views import Views
from slackwater.adapter.ddl.staged import StagedTables
from slackwater.adapter.ddl.upgrade import upgrade
from slackwater.adapter.environment import Environment
from slackwater.adapter.maintenance import Maintenance, MaintenanceSettings
from slackwater.adapter.reading.reads import LockLease, Reads
from slackwater.adapter.reading.subscriptions import Subscriptions
from slackwater.adapter.sessions.sessions import Sessions
from slackwater.adapter.sources.changefeed_sources import ChangefeedSources
from slackwater.adapter.sources.changefeeds import Changefeeds
from slackwater.adapter.sources.checks import Checks
from slackwater.adapter.sources.metrics import Metrics
from slackwater.adapter.sources.replica import Replica
from slackwater.adapter.sources.replica_inbox import ReplicaInbox
from slackwater.adapter.sources.secrets import Secrets
from slackwater.adapter.sources.sinks import SinkRunner
from slackwater.adapter.sources.source_states import SourceStates
from slackwater.adapter.sources.source_steps import SourceSteps
from slackwater.adapter.sources.sources import Sources
from slackwater.adapter.sources.webhooks import Webhooks
from slackwater.adapter.statements import Statements
from slackwater.adapter.system.notices import stalled, unindexed
from slackwater.adapter.system.relations import system_items, system_schemas
from slackwater.adapter.system.shows import Shows
from slackwater.adapter.system.tables import SystemTables
from slackwater.adapter.time.oracle import TimestampOracle
from slackwater.adapter.time.watch import FrontierWatch
from slackwater.adapter.writing.group_commit import Committed, GroupCommitter
from slackwater.adapter.writing.writes import Writes
from slackwater.checkpoints import DatabaseStore
from slackwater.compute.compaction import EngineRewriter
from slackwater.compute.engine import Engine
from slackwater.compute.worker import Worker
from slackwater.persist.blobs import Blobs
from slackwater.persist.client import PersistClient
from slackwater.persist.holds import SteadyClock
from slackwater.persist.leadership import Fenced
from slackwater.repr.clock import wall_clock_ms
from slackwater.repr.errors import FatalError, SlackwaterError
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.version import VERSION
from slackwater.storage.controller.shell import Storage
from slackwater.storage.ingestion import IngestionRunner

HOUSEKEEPING_INTERVAL_S = 5.0
LOOKS_PER_LEASE = 4
"""How often locks are looked at within the lease of their applications."""
IDLE_SESSION_MS = 24 * 3600 * 1000

_log = structlog.get_logger("coordinator")


class Coordinator:
    """One leader's coordinator. `calls` answers the shim; each call may run in any thread."""

    def __init__(
        self,
        env: Environment,
        epoch: int,
        on_fatal: Callable[[str], None],
        maintenance: MaintenanceSettings | None = None,
        lease: LockLease | None = None,
    ) -> None:
        self.log = env.log
        self.location = env.location
        self._env = env
        self._epoch = epoch
        self._lease = lease or LockLease()
        self._on_fatal = on_fatal
        self._closing = threading.Event()
        self._sinks = SinkRunner(env.relations, env.watch, env.awaited_sinks, env.clock, on_fatal)
        self._maintenance = Maintenance(
            env,
            EngineRewriter(env.engine),
            epoch=epoch,
            clock_ms=env.steady_ms,
            on_fatal=on_fatal,
            settings=maintenance,
        )
        self._changefeed_sources = ChangefeedSources(
            env.relations, env.changefeeds, env.committer, env.checkpoints, env.metrics
        )
        self._sources = Sources(
            env.relations,
            env.ingestion,
            env.source_states,
            env.committer,
            self._changefeed_sources,
        )
        self._replica = Replica(env.replica_inbox, self._sources, self._sinks, env.storage.respond)
        self._system = SystemTables(env, self._sinks, self._sources, self._changefeed_sources)
        self._reads = Reads(env, self._system, self._lease)
        self._writes = Writes(env.relations, env.committer, self._reads)
        self._views = Views(env)
        self._implications = Implications(env, self._views, self._replica)
        self._definitions = Definitions(env, self._views, self._sources, self._implications)
        self._staged = StagedTables(
            env, self._reads, self._writes, self._definitions.tables, self._definitions.changes
        )
        statements = Statements(
            env,
            self._reads,
            self._writes,
            self._definitions,
            self._views,
            Shows(env),
            Subscriptions(env, self._reads),
        )
        self._started = threading.Event()
        self.calls = Calls(
            env,
            Performers(self._reads, self._writes, self._staged, statements, self._definitions),
            self._started,
        )

    @staticmethod
    def open(
        *,
        engine: SqlEngine,
        location: str,
        blobs: Blobs,
        epoch: int,
        spark: Engine,
        log: str,
        on_fatal: Callable[[str], None],
        clock: Callable[[], int] = wall_clock_ms,
        monotonic: Callable[[], float] = time.monotonic,
        maintenance: MaintenanceSettings | None = None,
        lease: LockLease | None = None,
    ) -> Coordinator:
        """Opens the environment for the leader of `epoch`. Nothing runs until `start`.

        `location` is what users read of it, `blobs` the access to its files. `monotonic` gives
        seconds, by which statements wait. `lease` is that of an application that has a write lock.
        """
        steady_ms = SteadyClock(clock)
        persist = PersistClient(engine, blobs, epoch, clock=steady_ms)
        catalog = DurableCatalog.open(
            persist.transactions,
            clock_ms=clock,
            system_schemas=system_schemas(),
            system_items=system_items(),
        )
        upgrade(persist, catalog)
        oracle = TimestampOracle.recover(persist.reads.tables_upper(), clock)
        watch = FrontierWatch(monotonic)
        replica_inbox = ReplicaInbox()
        storage = Storage(
            recovered(persist, catalog.state),
            PersistShardStore(persist),
            steady_ms,
            replica_inbox.push,
        )
        collections = Collections(storage, persist, lambda: catalog.state)

        def views_moved(uppers: Mapping[GlobalId, Timestamp]) -> None:
            collections.report(uppers)
            watch.signal()

        sessions = Sessions(clock)

        def view_stalled(global_id: GlobalId, error: SlackwaterError) -> None:
            item = catalog.state.items.get(global_id)
            if item is not None:
                sessions.notify(stalled(item.full_name, error), "WARNING", error.sqlstate)

        def view_is_out_of_memory(global_id: GlobalId, error: SlackwaterError) -> None:
            item = catalog.state.items.get(global_id)
            if item is not None:
                sessions.notify(unindexed(item.full_name, error), "WARNING", error.sqlstate)

        worker = Worker(
            persist,
            spark,
            on_progress=views_moved,
            on_fatal=lambda error: on_fatal(str(error)),
            on_stalled=view_stalled,
            on_out_of_memory=view_is_out_of_memory,
        )

        def committed(_: Committed) -> None:
            worker.wake()
            watch.signal()

        committer = GroupCommitter(
            StorageLog(storage, persist),
            oracle,
            location=location,
            clock_ms=clock,
            monotonic=monotonic,
            on_committed=committed,
            on_fatal=lambda error: on_fatal(f"{type(error).__name__}: {error}"),
        )
        states = SourceStates(persist.transactions, committer)
        secrets = Secrets(persist.transactions)
        metrics = Metrics()
        checkpoints = DatabaseStore(persist.transactions, clock_ms=clock)
        ingestion = IngestionRunner(
            SourceSteps(persist, catalog, states, clock, metrics).commit, states.record, clock
        )
        webhooks = Webhooks(
            lambda: catalog.state,
            persist=persist,
            committer=committer,
            states=states,
            checks=Checks(spark, secrets, lambda: catalog.state),
            clock_ms=clock,
        )
        env = Environment(
            location=location,
            log=log,
            persist=persist,
            catalog=catalog,
            oracle=oracle,
            committer=committer,
            worker=worker,
            source_states=states,
            ingestion=ingestion,
            secrets=secrets,
            webhooks=webhooks,
            changefeeds=Changefeeds(
                lambda: catalog.state,
                persist=persist,
                committer=committer,
                store=checkpoints,
                wake=ingestion.wake,
                listening=lambda: webhooks.listening,
                metrics=metrics,
            ),
            checkpoints=checkpoints,
            metrics=metrics,
            replica_inbox=replica_inbox,
            engine=spark,
            watch=watch,
            sessions=sessions,
            storage=storage,
            relations=Relations(catalog, storage, persist),
            collections=collections,
            clock=clock,
            steady_ms=steady_ms,
            monotonic=monotonic,
        )
        coordinator = Coordinator(env, epoch, on_fatal, maintenance, lease)
        collections.open()
        return coordinator

    def start(self) -> None:
        """Starts the committer, then what the catalog says should run. Returns when it does."""
        self._env.committer.start()
        self._env.committer.flush()
        self._env.worker.start()
        self._env.webhooks.start()
        self._env.changefeeds.start()
        self._started.set()
        with self._env.ddl:
            self._implications.start_all()
        self._maintenance.start()
        threading.Thread(target=self._keep_house, name="housekeeping", daemon=True).start()
        threading.Thread(target=self._watch_locks, name="write-locks", daemon=True).start()

    def close(self) -> None:
        """Stops everything. What is not stopped in time is not lost: state is in the metastore."""
        self._closing.set()
        self._env.webhooks.stop()
        self._env.changefeeds.stop()
        self._maintenance.stop()
        self._env.ingestion.close()
        self._sinks.close()
        self._env.worker.stop()
        self._env.committer.stop()

    @property
    def webhooks(self) -> Webhooks:
        """What the ingress hands requests to."""
        return self._env.webhooks

    @property
    def changefeeds(self) -> Changefeeds:
        """What the ingress hands requests of changefeeds to."""
        return self._env.changefeeds

    def metrics(self) -> bytes:
        """The metrics now, as Prometheus reads them."""
        return self._changefeed_sources.metrics_text(self._env.clock())

    def status(self) -> Mapping[str, Any]:
        """Who answers here. Waits for nothing."""
        return {"epoch": self._epoch, "location": self._env.location, "version": VERSION}

    def application_gone(self, application_id: str) -> None:
        """Ends the sessions of an application that has joined and is not there any more."""
        _log.info("application gone", application=application_id)
        for session in self._env.sessions.all():
            if session.session_id.startswith(f"{application_id}/"):
                self.calls.end_session(session.session_id)

    # Housekeeping

    def _keep_house(self) -> None:
        while not self._closing.wait(HOUSEKEEPING_INTERVAL_S):
            self._end_idle_sessions()
            if not self._catalog_is_certain():
                return
            self._implications.retry()

    def _watch_locks(self) -> None:
        while not self._closing.wait(self._lease.ms / LOOKS_PER_LEASE / 1000):
            for session_id in self._reads.end_expired():
                _log.warning("write lock lost", session=session_id)

    def _catalog_is_certain(self) -> bool:
        """False: the coordinator has to start again, with the catalog as it is."""
        try:
            self._env.catalog.resolve()
        except FatalError as error:
            self._on_fatal(str(error))
            return False
        except (SlackwaterError, Fenced):
            # The metastore is still away, or the committer ends the coordinator anyway.
            return True
        return True

    def _end_idle_sessions(self) -> None:
        oldest_ms = self._env.now() - IDLE_SESSION_MS
        for session in self._env.sessions.all():
            if session.used_ms < oldest_ms and not session.running:
                self.calls.end_session(session.session_id)
