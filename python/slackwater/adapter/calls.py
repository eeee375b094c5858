"""The calls of the shim: from a request of protocol section 2 to the part that answers it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import structlog

from slackwater.adapter import protocol
from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import ViewDetails
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.ddl.dispatch import Definitions
from slackwater.adapter.ddl.staged import StagedTables
from slackwater.adapter.ddl.tables import RETAIN_HISTORY
from slackwater.adapter.protocol import Caller
from slackwater.adapter.reading.reads import Reads
from slackwater.adapter.sessions.sessions import Running, Session, Sessions
from slackwater.adapter.statements import Statements
from slackwater.adapter.time.timeline import Timeline
from slackwater.adapter.time.watch import Cancellation
from slackwater.adapter.transactions import check_outside_block, in_block
from slackwater.adapter.writing.writes import Writes
from slackwater.compute.engine import Engine
from slackwater.persist.rows import WriteResult
from slackwater.planner.parser import variables
from slackwater.repr.relation import RelationDesc

START_POLL_S = 0.2

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
Notices = tuple[Mapping[str, str], ...]

_log = structlog.get_logger("statement")


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[Asked]):
    """The type of the requests of a path, and the function that answers them, in any thread.

    The answer is `Rows`, or JSON; None: there is no such object.
    """

    request: type[Asked]
    answer: Callable[[Caller, Asked], Rows | Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Rows:
    """An Arrow IPC stream with the planned columns, and the session's new notices."""

    ipc: bytes
    notices: Notices


@dataclass(frozen=True, slots=True)
class Performers:
    """The parts that answer the calls."""

    sessions: Sessions
    reads: Reads
    writes: Writes
    staged: StagedTables
    statements: Statements
    definitions: Definitions


class Calls:
    """Answers the calls of the shim once `started` is set: a statement waits for that."""

    def __init__(
        self,
        relations: Relations,
        timeline: Timeline,
        engine: Engine,
        performers: Performers,
        started: threading.Event,
    ) -> None:
        self._relations = relations
        self._timeline = timeline
        self._engine = engine
        self._sessions = performers.sessions
        self._reads = performers.reads
        self._writes = performers.writes
        self._staged = performers.staged
        self._statements = performers.statements
        self._definitions = performers.definitions
        self._started = started

    def endpoints(self) -> Mapping[str, Endpoint[Any]]:
        """The endpoints, by the paths of protocol section 2."""
        return {
            "/v1/session/close": Endpoint(protocol.CloseSession, self._close_session),
            "/v1/plan": Endpoint(protocol.Plan, self._plan),
            "/v1/execute": Endpoint(protocol.Execute, self._execute),
            "/v1/catalog/namespaces": Endpoint(protocol.ListSchemas, self._list_schemas),
            "/v1/catalog/list": Endpoint(protocol.ListObjects, self._list),
            "/v1/catalog/load": Endpoint(protocol.Load, self._load),
            "/v1/catalog/create_namespace": Endpoint(
                protocol.CreateNamespace, self._create_namespace
            ),
            "/v1/catalog/alter_namespace": Endpoint(protocol.AlterNamespace, self._alter_namespace),
            "/v1/catalog/drop_namespace": Endpoint(protocol.DropNamespace, self._drop_namespace),
            "/v1/catalog/create_table": Endpoint(protocol.CreateTable, self._create_table),
            "/v1/catalog/stage_table": Endpoint(protocol.StageTable, self._stage_table),
            "/v1/catalog/alter_table": Endpoint(protocol.AlterTable, self._alter_table),
            "/v1/catalog/rename_table": Endpoint(protocol.RenameTable, self._rename_table),
            "/v1/catalog/drop_table": Endpoint(protocol.DropRelation, self._drop_table),
            "/v1/catalog/create_view": Endpoint(protocol.CreateView, self._create_view),
            "/v1/catalog/drop_view": Endpoint(protocol.DropRelation, self._drop_view),
            "/v1/bind": Endpoint(protocol.Bind, self._bind),
            "/v1/release": Endpoint(protocol.Release, self._release),
            "/v1/renew": Endpoint(protocol.Renew, self._renew),
            "/v1/write": Endpoint(protocol.Write, self._write),
            "/v1/prepare_write": Endpoint(protocol.PrepareWrite, self._prepare_write),
            "/v1/cancel": Endpoint(protocol.Cancel, self._cancel),
        }

    # Sessions

    def enter(self, caller: Caller) -> None:
        """Notes the call, and whether it belongs to a block.

        A block that this coordinator has not seen is lost, with its writes.
        """
        self._session(caller).enter(in_block=caller.transaction == "open")

    def is_inside_block(self, session_id: str) -> bool:
        """Whether the session is inside a transaction block, failed or not."""
        session = self._sessions.find(session_id)
        return session is not None and in_block(session.transaction)

    def _session(self, caller: Caller) -> Session:
        session = self._sessions.get(caller.session_id)
        session.used_ms = self._timeline.now()
        if caller.context is not None:
            session.user = caller.context.user
        return session

    def end_session(self, session_id: str) -> None:
        """Ends a session, its block, its cursors, its holds and its locks."""
        session = self._sessions.close(session_id)
        if session is not None:
            for cursor in session.cursors.values():
                cursor.close()
            session.roll_back()
            self._reads.release_block(session)
            for hold in list(session.holds):
                self._reads.release(hold)

    def _close_session(self, caller: Caller, _: protocol.CloseSession) -> Mapping[str, Any]:
        self.end_session(caller.session_id)
        return {}

    def _cancel(self, caller: Caller, asked: protocol.Cancel) -> Mapping[str, Any]:
        """Ends the caller's statement, or one call of it. Begins no session."""
        session = self._sessions.find(caller.session_id)
        call, execution = asked.named_call, caller.execution
        if session is not None and call is not None:
            session.cancel(lambda running: running.call == call)
        elif session is not None and execution is not None:
            session.cancel(lambda running: running.execution == execution)
        return {}

    def _running(self, caller: Caller, action: Callable[[Session, Cancellation], Answer]) -> Answer:
        """Runs a statement's call so that it can be cancelled and can fail a transaction.

        It has the time that the session's statement_timeout gives, counted from now. Lines of the
        log that are written meanwhile have the session and the statement.
        """
        session = self._session(caller)
        timeout_ms = variables.milliseconds(session.variable("statement_timeout"))
        cancellation = Cancellation(timeout_ms, self._timeline.monotonic)
        session.running[caller.call] = Running(caller.call, caller.execution, cancellation)
        block = session.blocks
        try:
            while not self._started.wait(START_POLL_S):
                cancellation.check_deadline("the coordinator started")
            with (
                structlog.contextvars.bound_contextvars(
                    session=caller.session, statement=caller.execution
                ),
                self._engine.ended_by(cancellation),
            ):
                return action(session, cancellation)
        except Exception:
            # Whatever ends a statement of a block ends the block; the caller is told what it was.
            session.fail(block)
            raise
        finally:
            session.running.pop(caller.call, None)

    # Statements

    def _plan(self, caller: Caller, asked: protocol.Plan) -> Mapping[str, Any]:
        desc = self._running(
            caller, lambda session, _: self._statements.plan(session, caller.where, asked.text)
        )
        if desc is None:
            return {"kind": "spark"}
        return {"kind": "command", "schema": desc.to_json()}

    def _execute(self, caller: Caller, asked: protocol.Execute) -> Rows:
        def action(session: Session, cancellation: Cancellation) -> Rows:
            result = self._statements.execute(
                session, caller.where, asked.text, cancellation, asked.write_id
            )
            return Rows(result.to_ipc(), tuple(session.take_notices()))

        return self._running(caller, action)

    def _bind(self, caller: Caller, asked: protocol.Bind) -> Mapping[str, Any]:
        def action(session: Session, cancellation: Cancellation) -> Mapping[str, Any]:
            # A cursor's query reads at the time of the cursor, and nobody has named that.
            if not caller.internal:
                self._reads.refuse_past(asked)
            bound = self._reads.bind(session, asked, cancellation)
            if session.variable("emit_timestamp_notice") == "on" and bound.relations:
                session.notify(f"The query reads at {bound.timestamp}.")
            lease = {} if bound.lease_ms is None else {"lease_ms": bound.lease_ms}
            return {
                "timestamp": bound.timestamp,
                "hold": bound.hold,
                "relations": bound.relations,
                **lease,
                "notices": session.take_notices(),
            }

        return self._running(caller, action)

    def _release(self, _: Caller, asked: protocol.Release) -> Mapping[str, Any]:
        for hold in asked.holds:
            self._reads.release(hold)
        return {}

    def _renew(self, _: Caller, asked: protocol.Renew) -> Mapping[str, Any]:
        for hold in asked.holds:
            self._reads.renew(hold)
        return {}

    def _write(self, caller: Caller, asked: protocol.Write) -> Mapping[str, Any]:
        def action(session: Session, cancellation: Cancellation) -> WriteResult:
            if asked.definition is None:
                return self._writes.write(session, asked, cancellation)
            return self._staged.write(session, caller.where, asked, cancellation)

        done = self._running(caller, action)
        return {
            "timestamp": done.timestamp,
            "inserted": done.inserted,
            "deleted": done.deleted,
        }

    def _prepare_write(self, _: Caller, asked: protocol.PrepareWrite) -> Mapping[str, Any]:
        return {"directory": self._writes.directory(asked)}

    # Catalog

    @property
    def _state(self) -> CatalogState:
        return self._relations.state

    def _list_schemas(self, _: Caller, asked: protocol.ListSchemas) -> Mapping[str, Any]:
        self._relations.persist.transactions.confirm_leadership()
        schemas = sorted(self._state.schemas.values(), key=lambda schema: schema.name)
        return {"namespaces": [{"name": s.name, "comment": s.comment} for s in schemas]}

    def _list(self, _: Caller, asked: protocol.ListObjects) -> Mapping[str, Any]:
        self._relations.persist.transactions.confirm_leadership()
        schema = self._state.schema(protocol.schema_of(asked.namespace))
        items = self._state.items_in(schema.name)
        return {"objects": [{"name": i.name, "kind": i.kind.value} for i in items]}

    def _load(self, _: Caller, asked: protocol.Load) -> Mapping[str, Any] | None:
        if len(asked.namespace) != 1:
            return None
        item = self._state.find(asked.namespace[0], asked.name)
        if item is None:
            # What is there is found out about when it is bound; what is not is not asked for again.
            self._relations.persist.transactions.confirm_leadership()
            return None
        return object_json(item)

    def _define(
        self, caller: Caller, statement: str, action: Callable[[Context, Cancellation], Answer]
    ) -> Answer:
        """Runs a definition that Spark's grammar asks of its catalog; no block takes it."""

        def define(session: Session, cancellation: Cancellation) -> Answer:
            check_outside_block(session.transaction, statement)
            return action(caller.where, cancellation)

        return self._running(caller, define)

    def _create_namespace(
        self, caller: Caller, asked: protocol.CreateNamespace
    ) -> Mapping[str, Any]:
        objects = self._definitions.objects
        self._define(caller, "CREATE SCHEMA", lambda _, c: objects.create_namespace(asked, c))
        return {}

    def _alter_namespace(self, caller: Caller, asked: protocol.AlterNamespace) -> Mapping[str, Any]:
        def action(context: Context, cancellation: Cancellation) -> None:
            self._definitions.objects.comment_on_namespace(
                protocol.schema_of(asked.namespace), asked.comment, context.user, cancellation
            )

        self._define(caller, "COMMENT ON SCHEMA", action)
        return {}

    def _drop_namespace(self, caller: Caller, asked: protocol.DropNamespace) -> Mapping[str, Any]:
        def action(_: Context, cancellation: Cancellation) -> None:
            self._definitions.objects.drop_namespace(
                protocol.schema_of(asked.namespace), asked.cascade, cancellation
            )

        self._define(caller, "DROP SCHEMA", action)
        return {}

    def _create_table(self, caller: Caller, asked: protocol.CreateTable) -> Mapping[str, Any]:
        tables = self._definitions.tables
        made = self._define(
            caller, "CREATE TABLE", lambda context, c: tables.create_table(context, asked, c)
        )
        return object_json(made)

    def _stage_table(self, caller: Caller, asked: protocol.StageTable) -> Mapping[str, Any]:
        target = self._running(
            caller, lambda session, _: self._staged.stage(session, caller.where, asked)
        )
        return {
            "id": target.id,
            "replaces": target.replaces,
            "shard": target.shard,
            "schema": json.loads(target.schema.to_json()),
        }

    def _alter_table(self, caller: Caller, asked: protocol.AlterTable) -> Mapping[str, Any]:
        tables = self._definitions.tables
        altered = self._define(
            caller, "ALTER TABLE", lambda context, c: tables.alter_table(context, asked, c)
        )
        return object_json(altered)

    def _rename_table(self, caller: Caller, asked: protocol.RenameTable) -> Mapping[str, Any]:
        def action(context: Context, cancellation: Cancellation) -> None:
            item = self._state.get(protocol.schema_of(asked.namespace), asked.name)
            schema = protocol.schema_of(asked.to_namespace)
            self._definitions.objects.rename(context, item, schema, asked.to_name, cancellation)

        self._define(caller, "RENAME", action)
        return {}

    def _drop_table(self, caller: Caller, asked: protocol.DropRelation) -> Mapping[str, Any]:
        return self._drop(caller, asked, ItemKind.TABLE)

    def _drop_view(self, caller: Caller, asked: protocol.DropRelation) -> Mapping[str, Any]:
        return self._drop(caller, asked, ItemKind.VIEW)

    def _drop(
        self, caller: Caller, asked: protocol.DropRelation, kind: ItemKind
    ) -> Mapping[str, Any]:
        def action(context: Context, cancellation: Cancellation) -> bool:
            schema = protocol.schema_of(asked.namespace)
            if self._state.find(schema, asked.name) is None:
                return False
            item = self._state.get(schema, asked.name, kind)
            self._definitions.objects.drop(context, item, cancellation)
            return True

        statement = f"DROP {kind.display_name.upper()}"
        return {"dropped": self._define(caller, statement, action)}

    def _create_view(self, caller: Caller, asked: protocol.CreateView) -> Mapping[str, Any]:
        views = self._definitions.views
        made = self._define(
            caller, "CREATE VIEW", lambda context, c: views.create_view(context, asked, c)
        )
        return object_json(made)


def object_json(item: CatalogItem) -> Mapping[str, Any]:
    """The object of protocol section 2."""
    desc = item.desc or RelationDesc(())
    view = None
    if item.kind is ItemKind.VIEW:
        stored = item.of(ViewDetails)
        view = {
            "query": stored.query,
            "catalog": stored.catalog,
            "namespace": stored.namespace,
        }
    properties = dict(item.properties)
    if item.retain_history_ms is not None:
        properties[RETAIN_HISTORY] = f"{item.retain_history_ms} ms"
    return {
        "id": item.id,
        "kind": item.kind.value,
        "schema_name": item.schema_name,
        "name": item.name,
        "schema": json.loads(desc.to_json()),
        "writable": item.kind is ItemKind.TABLE,
        "properties": properties,
        "comment": item.comment,
        "view": view,
    }
