"""The coordinator: opens the environment's parts, connects them, and answers the shim's calls.

What each call does is elsewhere; here is who owns what and in which order things start and stop.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from sqlalchemy import Engine as SqlEngine

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.durable import DurableCatalog
from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.adapter.controllers.collections import Collections, recovered
from slackwater.adapter.controllers.persist_shards import PersistShardStore
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.controllers.storage_log import StorageLog
from slackwater.adapter.ddl.dispatch import Definitions, object_json
from slackwater.adapter.ddl.implications import Implications
from slackwater.adapter.ddl.planned_views import Views
from slackwater.adapter.ddl.staged import StagedTables, TableDefinition
from slackwater.adapter.ddl.upgrade import upgrade
from slackwater.adapter.environment import Environment
from slackwater.adapter.maintenance import Maintenance, MaintenanceSettings
from slackwater.adapter.reading.reads import LockLease, Reads
from slackwater.adapter.reading.subscriptions import Subscriptions
from slackwater.adapter.sessions.sessions import Running, Session, Sessions
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
from slackwater.adapter.time.watch import Cancellation, FrontierWatch
from slackwater.adapter.transactions import check_outside_block, in_block
from slackwater.adapter.writing.group_commit import Committed, GroupCommitter
from slackwater.adapter.writing.writes import Writes
from slackwater.checkpoints import DatabaseStore
from slackwater.compute.compaction import EngineRewriter
from slackwater.compute.engine import Engine
from slackwater.compute.worker import Listeners, Worker
from slackwater.persist.blobs import Blobs
from slackwater.persist.client import PersistClient
from slackwater.persist.holds import SteadyClock
from slackwater.persist.leadership import Fenced
from slackwater.planner.parser import variables
from slackwater.repr.clock import wall_clock_ms
from slackwater.repr.errors import FatalError, SlackwaterError, user_error
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc
from slackwater.repr.version import VERSION
from slackwater.storage.controller.shell import Storage
from slackwater.storage.ingestion import IngestionRunner

HOUSEKEEPING_INTERVAL_S = 5.0
LOOKS_PER_LEASE = 4
"""How often locks are looked at within the lease of their applications."""
START_POLL_S = 0.2
IDLE_SESSION_MS = 24 * 3600 * 1000

Call = Callable[[Mapping[str, Any]], Any]

_log = structlog.get_logger("coordinator")


class Coordinator:
    """One leader's coordinator. `calls` are the entry points; each may run in any thread."""

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
        self._statements = Statements(
            env,
            self._reads,
            self._writes,
            self._definitions,
            self._views,
            Shows(env),
            Subscriptions(env, self._reads),
        )
        self._started = threading.Event()

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
            persist,
            clock_ms=clock,
            system_schemas=system_schemas(),
            system_items=system_items(),
        )
        upgrade(persist, catalog)
        oracle = TimestampOracle.recover(persist.tables_upper(), clock)
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
            Listeners(
                progress=views_moved,
                fatal=lambda error: on_fatal(str(error)),
                stalled=view_stalled,
                out_of_memory=view_is_out_of_memory,
            ),
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
        states = SourceStates(persist, committer)
        secrets = Secrets(persist)
        metrics = Metrics()
        checkpoints = DatabaseStore(persist, clock_ms=clock)
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

    def calls(self) -> Mapping[str, Call]:
        """The paths of protocol section 2."""
        return {
            "/v1/session/close": self._close_session,
            "/v1/plan": self._plan,
            "/v1/execute": self._execute,
            "/v1/catalog/namespaces": self._namespaces,
            "/v1/catalog/list": self._list,
            "/v1/catalog/load": self._load,
            "/v1/catalog/create_namespace": self._create_namespace,
            "/v1/catalog/alter_namespace": self._alter_namespace,
            "/v1/catalog/drop_namespace": self._drop_namespace,
            "/v1/catalog/create_table": self._create_table,
            "/v1/catalog/stage_table": self._stage_table,
            "/v1/catalog/alter_table": self._alter_table,
            "/v1/catalog/rename_table": self._rename_table,
            "/v1/catalog/drop_table": self._drop_table,
            "/v1/catalog/create_view": self._create_view,
            "/v1/catalog/drop_view": self._drop_view,
            "/v1/bind": self._bind,
            "/v1/release": self._release,
            "/v1/renew": self._renew,
            "/v1/write": self._write,
            "/v1/prepare_write": self._prepare_write,
            "/v1/cancel": self._cancel,
        }

    # Sessions

    def status(self) -> dict[str, Any]:
        """Who answers here. Waits for nothing."""
        return {"epoch": self._epoch, "location": self._env.location, "version": VERSION}

    def enter(self, body: Mapping[str, Any]) -> None:
        """Notes that a call belongs to a block which this coordinator has not seen.

        What the block has written went with the coordinator before.
        """
        self._session(body).enter(in_block=body.get("transaction") == "open")

    def is_inside_block(self, session_id: str) -> bool:
        """Whether the session is inside a transaction block, failed or not."""
        session = self._env.sessions.find(session_id)
        return session is not None and in_block(session.transaction)

    def _session(self, body: Mapping[str, Any]) -> Session:
        session = self._env.sessions.get(body["session"])
        session.used_ms = self._env.now()
        if "context" in body:
            session.user = Context.from_json(body).user
        return session

    def application_gone(self, application_id: str) -> None:
        """Ends the sessions of an application that has joined and is not there any more."""
        _log.info("application gone", application=application_id)
        for session in self._env.sessions.all():
            if session.session_id.startswith(f"{application_id}/"):
                self._end_session(session.session_id)

    def _close_session(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self._end_session(body["session"])
        return {}

    def _end_session(self, session_id: str) -> None:
        session = self._env.sessions.close(session_id)
        if session is not None:
            for cursor in session.cursors.values():
                cursor.close()
            session.roll_back()
            self._reads.release_block(session)
            for hold in list(session.holds):
                self._reads.release(hold)

    def _cancel(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Ends the statement `execution`, or one `call` of it. Begins no session."""
        session = self._env.sessions.find(body["session"])
        call, execution = body.get("call"), body.get("execution")
        if session is not None and (call is not None or execution is not None):
            session.cancel(
                lambda running: (
                    running.call == call
                    if call is not None
                    else running.execution == str(execution)
                )
            )
        return {}

    def _running(
        self,
        body: Mapping[str, Any],
        action: Callable[[Session, Cancellation], Any],
    ) -> Any:
        """Runs a statement's call so that it can be cancelled and can fail a transaction.

        It has the time that the session's statement_timeout gives, counted from now.
        """
        session = self._session(body)
        timeout_ms = variables.milliseconds(session.variable("statement_timeout"))
        cancellation = Cancellation(timeout_ms, self._env.monotonic)
        call = str(body.get("call") or uuid.uuid4().hex)
        execution = body.get("execution")
        session.running[call] = Running(
            call, None if execution is None else str(execution), cancellation
        )
        block = session.blocks
        try:
            while not self._started.wait(START_POLL_S):
                cancellation.check_deadline("the coordinator started")
            with self._env.engine.ended_by(cancellation):
                return action(session, cancellation)
        except Exception:
            # Whatever ends a statement of a block ends the block; the caller is told what it was.
            session.fail(block)
            raise
        finally:
            session.running.pop(call, None)

    # Statements

    def _plan(self, body: Mapping[str, Any]) -> dict[str, Any]:
        def action(session: Session, _: Cancellation) -> dict[str, Any]:
            desc = self._statements.plan(session, Context.from_json(body), body["text"])
            if desc is None:
                return {"kind": "spark"}
            return {"kind": "command", "schema": desc.to_json()}

        answer: dict[str, Any] = self._running(body, action)
        return answer

    def _execute(self, body: Mapping[str, Any]) -> tuple[bytes, list[dict[str, str]]]:
        def action(
            session: Session, cancellation: Cancellation
        ) -> tuple[bytes, list[dict[str, str]]]:
            context = Context.from_json(body)
            result = self._statements.execute(
                session, context, body["text"], cancellation, body.get("write_id")
            )
            return result.to_ipc(), session.take_notices()

        answer: tuple[bytes, list[dict[str, str]]] = self._running(body, action)
        return answer

    def _bind(self, body: Mapping[str, Any]) -> dict[str, Any]:
        def action(session: Session, cancellation: Cancellation) -> dict[str, Any]:
            # A cursor's query reads at the time of the cursor, and nobody has named that.
            if not body.get("internal"):
                self._reads.refuse_past(body["relations"], body.get("as_of"))
            binding = self._reads.bind(
                session,
                body["relations"],
                body.get("as_of"),
                tuple(GlobalId(target) for target in body.get("write_targets") or ()),
                cancellation,
            )
            if session.variable("emit_timestamp_notice") == "on" and binding["relations"]:
                session.notify(f"The query reads at {binding['timestamp']}.")
            return {**binding, "notices": session.take_notices()}

        answer: dict[str, Any] = self._running(body, action)
        return answer

    def _release(self, body: Mapping[str, Any]) -> dict[str, Any]:
        for hold in body.get("holds") or ():
            self._reads.release(hold)
        return {}

    def _renew(self, body: Mapping[str, Any]) -> dict[str, Any]:
        for hold in body["holds"]:
            self._reads.renew(hold)
        return {}

    def _write(self, body: Mapping[str, Any]) -> dict[str, Any]:
        def action(session: Session, cancellation: Cancellation) -> dict[str, int]:
            if body.get("definition") is None:
                return self._writes.write(session, body, cancellation)
            return self._staged.write(session, Context.from_json(body), body, cancellation)

        answer: dict[str, Any] = self._running(body, action)
        return answer

    def _prepare_write(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return {"directory": self._writes.directory(body)}

    # Catalog

    def _namespaces(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self._env.persist.confirm_leadership()
        schemas = sorted(self._env.state.schemas.values(), key=lambda schema: schema.name)
        return {"namespaces": [{"name": s.name, "comment": s.comment} for s in schemas]}

    def _list(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self._env.persist.confirm_leadership()
        schema = self._env.state.schema(_schema(body["namespace"]))
        items = self._env.state.items_in(schema.name)
        return {"objects": [{"name": i.name, "kind": i.kind.value} for i in items]}

    def _load(self, body: Mapping[str, Any]) -> dict[str, Any] | None:
        namespace = body["namespace"]
        if len(namespace) != 1:
            return None
        item = self._env.state.find(namespace[0], body["name"])
        if item is None:
            # What is there is found out about when it is bound; what is not is not asked for again.
            self._env.persist.confirm_leadership()
            return None
        return object_json(item)

    def _define(
        self,
        body: Mapping[str, Any],
        statement: str,
        action: Callable[[Context, Cancellation], Any],
    ) -> Any:
        """Runs a definition that Spark's grammar asks of its catalog; no block takes it."""

        def define(session: Session, cancellation: Cancellation) -> Any:
            check_outside_block(session.transaction, statement)
            return action(Context.from_json(body), cancellation)

        return self._running(body, define)

    def _create_namespace(self, body: Mapping[str, Any]) -> dict[str, Any]:
        def action(_: Context, cancellation: Cancellation) -> None:
            self._definitions.objects.create_namespace(
                _schema(body["namespace"]),
                body.get("properties") or {},
                bool(body.get("if_not_exists")),
                cancellation,
            )

        self._define(body, "CREATE SCHEMA", action)
        return {}

    def _alter_namespace(self, body: Mapping[str, Any]) -> dict[str, Any]:
        def action(context: Context, cancellation: Cancellation) -> None:
            self._definitions.objects.comment_on_namespace(
                _schema(body["namespace"]), body["comment"], context.user, cancellation
            )

        self._define(body, "COMMENT ON SCHEMA", action)
        return {}

    def _drop_namespace(self, body: Mapping[str, Any]) -> dict[str, Any]:
        def action(_: Context, cancellation: Cancellation) -> None:
            self._definitions.objects.drop_namespace(
                _schema(body["namespace"]), bool(body.get("cascade")), cancellation
            )

        self._define(body, "DROP SCHEMA", action)
        return {}

    def _create_table(self, body: Mapping[str, Any]) -> dict[str, Any]:
        def action(context: Context, cancellation: Cancellation) -> CatalogItem:
            return self._definitions.tables.create_table(
                context,
                _schema(body["namespace"]),
                body["name"],
                RelationDesc.from_json(schema_text(body["schema"])),
                body.get("properties") or {},
                body.get("comment"),
                cancellation,
            )

        return object_json(self._define(body, "CREATE TABLE", action))

    def _stage_table(self, body: Mapping[str, Any]) -> dict[str, Any]:
        def action(session: Session, _: Cancellation) -> dict[str, Any]:
            definition = TableDefinition.from_json(body)
            return self._staged.stage(session, Context.from_json(body), definition)

        answer: dict[str, Any] = self._running(body, action)
        return answer

    def _alter_table(self, body: Mapping[str, Any]) -> dict[str, Any]:
        def action(context: Context, cancellation: Cancellation) -> CatalogItem:
            return self._definitions.tables.alter_table(
                context,
                _schema(body["namespace"]),
                body["name"],
                body["changes"],
                cancellation,
            )

        return object_json(self._define(body, "ALTER TABLE", action))

    def _rename_table(self, body: Mapping[str, Any]) -> dict[str, Any]:
        def action(context: Context, cancellation: Cancellation) -> None:
            self._definitions.objects.rename(
                context,
                self._item(body),
                _schema(body["to_namespace"]),
                body["to_name"],
                cancellation,
            )

        self._define(body, "RENAME", action)
        return {}

    def _drop_table(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._drop(body, ItemKind.TABLE)

    def _drop_view(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._drop(body, ItemKind.VIEW)

    def _drop(self, body: Mapping[str, Any], kind: ItemKind) -> dict[str, Any]:
        def action(context: Context, cancellation: Cancellation) -> bool:
            schema = _schema(body["namespace"])
            if self._env.state.find(schema, body["name"]) is None:
                return False
            item = self._env.state.get(schema, body["name"], kind)
            self._definitions.objects.drop(context, item, cancellation)
            return True

        return {"dropped": self._define(body, f"DROP {kind.display_name.upper()}", action)}

    def _create_view(self, body: Mapping[str, Any]) -> dict[str, Any]:
        def action(context: Context, cancellation: Cancellation) -> CatalogItem:
            return self._definitions.views.create_view(
                context,
                _schema(body["namespace"]),
                body["name"],
                RelationDesc.from_json(schema_text(body["schema"])),
                body["query"],
                cancellation,
                replace_existing=bool(body.get("replace")),
                comment=body.get("comment"),
                properties=body.get("properties") or {},
            )

        return object_json(self._define(body, "CREATE VIEW", action))

    def _item(self, body: Mapping[str, Any]) -> CatalogItem:
        return self._env.state.get(_schema(body["namespace"]), body["name"])

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
                self._end_session(session.session_id)


def schema_text(schema: Any) -> str:
    """The JSON text of a schema that came as text or as an object."""
    if isinstance(schema, str):
        return schema
    return json.dumps(schema)


def _schema(namespace: Any) -> str:
    if len(namespace) != 1:
        raise user_error("SLACKWATER_SCHEMA_NOT_FOUND", schemaName=".".join(namespace))
    return str(namespace[0])
