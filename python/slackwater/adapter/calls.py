"""The calls of the shim: from a request of protocol section 2 to the part that answers it."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import structlog

from slackwater.adapter import protocol
from slackwater.adapter.catalog import search
from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import ViewDetails
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.ddl.dispatch import Definitions
from slackwater.adapter.ddl.staged import StagedTables
from slackwater.adapter.ddl.tables import RETAIN_HISTORY
from slackwater.adapter.history.events import Bound, Done, Failure, Key, Said, Wrote
from slackwater.adapter.history.recorder import CallHistory, History
from slackwater.adapter.history.texts import kind_of
from slackwater.adapter.protocol import Caller
from slackwater.adapter.reading.advice import tell_of_index
from slackwater.adapter.reading.peeks import IndexFile, IndexRows, Peeks
from slackwater.adapter.reading.reads import Reads, refuse_stale_write
from slackwater.adapter.sessions.sessions import (
    Execution,
    RunningCall,
    RunningWrite,
    Session,
    Sessions,
)
from slackwater.adapter.sessions.statement_counts import StatementCounts
from slackwater.adapter.statements import Statements
from slackwater.adapter.system.exposition import CONTENT_TYPE
from slackwater.adapter.system.looks import Looks
from slackwater.adapter.system.metrics import Metrics
from slackwater.adapter.time.timeline import Timeline
from slackwater.adapter.time.watch import Cancellation
from slackwater.adapter.transactions import check_outside_block, in_block
from slackwater.adapter.writing.writes import Writes
from slackwater.compute.engine import Engine
from slackwater.persist.leadership import Fenced
from slackwater.persist.rows import WriteResult
from slackwater.planner.parser import variables
from slackwater.planner.parser.parse import parse
from slackwater.planner.parser.queries import query_of
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.relation import RelationDesc
from slackwater.repr.spans import Fail, Spans
from slackwater.repr.version import MZ_VERSION

START_POLL_S = 0.2

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
Defined = TypeVar("Defined")
Notices = tuple[Mapping[str, str], ...]

_log = structlog.get_logger("statement")


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[Asked]):
    """The type of the requests of a path, and the function that answers them, in any thread.

    The answer is `Rows`, a text, or JSON; None: there is no such object.
    """

    request: type[Asked]
    answer: Callable[[Caller, Asked], Rows | Text | Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Rows:
    """An Arrow IPC stream with the planned columns, and the session's new notices."""

    ipc: bytes
    notices: Notices


@dataclass(frozen=True, slots=True)
class Text:
    """A text of this type of media."""

    text: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class Told(Generic[Answer]):
    """A call, as the history of statements is told of it.

    `result` is what an answer means for its statement. Without it, the call is told of only when it
    fails, which ends the statement; of one that is a part of another one, not even then. The text
    is the request's own, or what the caller says. Metrics count it as a statement if it is
    `counted`, by the same kind. `name` is that of its span.
    """

    result: Callable[[Answer], Bound | Wrote | Done] | None = None
    text: str | None = None
    kind: str | None = None
    writes: bool = False
    planned_ms: int | None = None
    is_part: bool = False
    counted: bool = False
    name: str = "call"


@dataclass(frozen=True, slots=True)
class Performers:
    """The parts that answer the calls, and the history, which is told of them."""

    sessions: Sessions
    history: History
    counts: StatementCounts
    spans: Spans
    reads: Reads
    peeks: Peeks
    writes: Writes
    staged: StagedTables
    statements: Statements
    definitions: Definitions
    metrics: Metrics
    looks: Looks


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
        self._history = performers.history
        self._counts = performers.counts
        self._spans = performers.spans
        self._reads = performers.reads
        self._peeks = performers.peeks
        self._writes = performers.writes
        self._staged = performers.staged
        self._statements = performers.statements
        self._definitions = performers.definitions
        self._metrics = performers.metrics
        self._looks = performers.looks
        self._started = started

    def endpoints(self) -> Mapping[str, Endpoint[Any]]:
        """The endpoints, by the paths of protocol section 2."""
        tables, objects = self._definitions.tables, self._definitions.objects
        defining = self._defining
        return {
            "/v1/session/close": Endpoint(protocol.CloseSession, self._close_session),
            "/v1/query": Endpoint(protocol.QueryIn, _query),
            "/v1/plan": Endpoint(protocol.Plan, self._plan),
            "/v1/execute": Endpoint(protocol.Execute, self._execute),
            "/v1/catalog/namespaces": Endpoint(protocol.ListSchemas, self._list_schemas),
            "/v1/catalog/list": Endpoint(protocol.ListObjects, self._list),
            "/v1/catalog/load": Endpoint(protocol.Load, self._load),
            "/v1/catalog/find_schemas": Endpoint(protocol.FindSchemas, self._find_schemas),
            "/v1/catalog/find_relations": Endpoint(protocol.FindRelations, self._find_relations),
            "/v1/catalog/find_columns": Endpoint(protocol.FindColumns, self._find_columns),
            "/v1/catalog/create_namespace": Endpoint(
                protocol.CreateNamespace, defining("CREATE SCHEMA", objects.create_namespace)
            ),
            "/v1/catalog/alter_namespace": Endpoint(
                protocol.AlterNamespace, defining("COMMENT ON SCHEMA", objects.alter_namespace)
            ),
            "/v1/catalog/drop_namespace": Endpoint(
                protocol.DropNamespace, defining("DROP SCHEMA", objects.drop_namespace)
            ),
            "/v1/catalog/create_table": Endpoint(
                protocol.NewTable, defining("CREATE TABLE", tables.create_table, object_json)
            ),
            "/v1/catalog/stage_table": Endpoint(protocol.StageTable, self._stage_table),
            "/v1/catalog/alter_table": Endpoint(
                protocol.AlterTable, defining("ALTER TABLE", tables.alter_table, object_json)
            ),
            "/v1/catalog/rename_table": Endpoint(
                protocol.RenameTable, defining("RENAME", objects.rename_table)
            ),
            "/v1/catalog/drop_table": Endpoint(
                protocol.DropRelation, defining("DROP TABLE", objects.drop_table, _dropped)
            ),
            "/v1/catalog/create_view": Endpoint(
                protocol.NewView,
                defining("CREATE VIEW", self._definitions.views.create_view, object_json),
            ),
            "/v1/catalog/drop_view": Endpoint(
                protocol.DropRelation, defining("DROP VIEW", objects.drop_view, _dropped)
            ),
            "/v1/bind": Endpoint(protocol.Bind, self._bind),
            "/v1/peek": Endpoint(protocol.Peek, self._peek),
            "/v1/scanned": Endpoint(protocol.Scanned, self._scanned),
            "/v1/release": Endpoint(protocol.Release, self._release),
            "/v1/reads": Endpoint(protocol.UnboundReads, self._unbound),
            "/v1/renew": Endpoint(protocol.Renew, self._renew),
            "/v1/write": Endpoint(protocol.WriteTables, self._write),
            "/v1/prepare_write": Endpoint(protocol.PrepareWrite, self._prepare_write),
            "/v1/cancel": Endpoint(protocol.Cancel, self._cancel),
            "/v1/waits": Endpoint(protocol.Waits, self._waits),
            "/v1/writing": Endpoint(protocol.Writing, self._writing),
            "/v1/metrics": Endpoint(protocol.ReadMetrics, self._read_metrics),
            "/v1/system": Endpoint(protocol.System, self._system),
        }

    def _defining(
        self,
        statement: str,
        define: Callable[[Execution, Asked], Defined],
        answer: Callable[[Defined], Mapping[str, Any]] = lambda _: {},
    ) -> Callable[[Caller, Asked], Mapping[str, Any]]:
        """The function for a definition that Spark's grammar asks of its catalog.

        No block takes it.
        """

        told: Told[Defined] = Told(
            lambda _: Done(),
            kind=statement.lower().replace(" ", "_"),
            counted=True,
            name="define",
        )

        def run(caller: Caller, asked: Asked) -> Mapping[str, Any]:
            def action(execution: Execution) -> Defined:
                check_outside_block(execution.session.transaction, statement)
                return define(execution, asked)

            return answer(self._running(caller, action, told))

        return run

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
        is_new, session.used_ms = session.used_ms == 0, self._timeline.now()
        if caller.context is not None:
            session.user = caller.context.user
        if is_new and not caller.internal:
            self._history.connected(session.session_id, caller.application, session.user)
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
            self._history.disconnected(session_id)

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

    def _waits(self, caller: Caller, _: protocol.Waits) -> Mapping[str, Any]:
        """Says what the statement of the caller waits for. Begins no session."""
        session = self._sessions.find(caller.session_id)
        running = () if session is None else tuple(session.running.values())
        own = (each for each in running if each.execution == caller.execution)
        told = (each.cancellation.waits_for() for each in own)
        return {"waits_for": next(filter(None, told), None)}

    def _writing(self, caller: Caller, asked: protocol.Writing) -> Mapping[str, Any]:
        """Notes how far a write of the caller is, and says it. Begins no session."""
        session, execution = self._sessions.find(caller.session_id), caller.execution
        if session is None or execution is None:
            return {"waits_for": None}
        if asked.tasks is None:
            session.stop_writing(execution)
            return {"waits_for": None}
        before = session.writing.get(execution)
        if before is None:
            said = self._said(session, caller.context, caller.application, caller.sql)
            said = replace(said, writes=True)
            over = self._history.writing(Key(session.session_id, execution), said)
        else:
            over = before.over
        now_s = self._timeline.monotonic()
        told = RunningWrite(asked.rows, asked.tasks, asked.tasks_done, now_s, over)
        session.writing[execution] = told
        return {"waits_for": str(told)}

    def _running(
        self,
        caller: Caller,
        action: Callable[[Execution], Answer],
        told: Told[Answer],
    ) -> Answer:
        """Runs a statement's call so that it can be cancelled and can fail a transaction.

        It has the time that the session's statement_timeout gives, counted from now. Lines of the
        log that are written meanwhile have the session and the statement. The history is told of
        it, and it is counted, unless the coordinator itself makes the call.
        """
        session = self._session(caller)
        timeout_ms = variables.milliseconds(session.variable("statement_timeout"))
        cancellation = Cancellation(timeout_ms, self._timeline.monotonic)
        session.running[caller.call] = RunningCall(caller.call, caller.execution, cancellation)
        block = session.blocks
        result = None if caller.internal else told.result
        begun = None if result is None else self._told(session, caller, told)
        try:
            while not self._started.wait(START_POLL_S):
                cancellation.check_deadline("the coordinator started")
            named = {"session": caller.session, "statement": caller.statement}
            kind = _kind(caller, told) if told.counted else None
            with (
                structlog.contextvars.bound_contextvars(**named),
                self._engine.ended_by(cancellation),
                self._counts.counted(None if caller.internal else kind, cancellation),
                self._span(session, caller, told.name),
            ):
                answer = action(Execution(session, caller.where, cancellation))
        except Exception as error:
            # Whatever ends a statement of a block ends the block; the caller is told what it was.
            session.fail(block)
            if not (caller.internal or told.is_part):
                begun = begun or self._told(session, caller, told)
                begun.ended(_failure(error), cancellation)
            raise
        finally:
            session.running.pop(caller.call, None)
        if begun is not None and result is not None:
            begun.ended(result(answer), cancellation)
        return answer

    def _span(self, session: Session, caller: Caller, name: str) -> AbstractContextManager[Fail]:
        """The span of a call: below that of its statement, if a statement has made it."""
        named = {"session": caller.session, "statement": caller.statement}
        if caller.internal or caller.execution is None:
            return self._spans.span(name, named)
        return self._spans.call(Key(session.session_id, caller.statement), name, named)

    def _told(self, session: Session, caller: Caller, told: Told[Any]) -> CallHistory:
        """Tells the history that the call begins."""
        said = replace(
            self._said(session, caller.context, caller.application, told.text or caller.sql),
            kind=told.kind,
            writes=told.writes,
            planned_ms=told.planned_ms,
        )
        return self._history.call(Key(session.session_id, caller.statement), said)

    def _said(
        self, session: Session, where: Context | None, application: str | None, text: str | None
    ) -> Said:
        """A statement of the session, as the session is now."""
        cluster = session.variable("cluster")
        return Said(
            text,
            application=application,
            user=session.user,
            cluster=cluster,
            isolation=session.variable("transaction_isolation"),
            rate=float(session.variable("statement_logging_sample_rate")),
            cluster_id=self._state.id_of_cluster(cluster),
            database=None if where is None else where.catalog,
            search_path=None if where is None else (".".join(where.namespace),),
            version=MZ_VERSION,
        )

    # Statements

    def _plan(self, caller: Caller, asked: protocol.Plan) -> Mapping[str, Any]:
        told: Told[RelationDesc | None] = Told(text=asked.text, name="plan")
        desc = self._running(
            caller, lambda execution: self._statements.plan(execution, asked.text), told
        )
        if desc is None:
            return {"kind": "spark"}
        return {"kind": "command", "schema": desc.to_json(), "planned_at": self._timeline.now()}

    def _execute(self, caller: Caller, asked: protocol.Execute) -> Rows:
        def action(execution: Execution) -> tuple[Rows, int | None]:
            result = self._statements.execute(execution, asked.text, asked.write_id)
            count = result.table.num_rows if result.desc.columns else None
            return Rows(result.to_ipc(), tuple(execution.session.take_notices())), count

        told: Told[tuple[Rows, int | None]] = Told(
            lambda answer: Done(answer[1]),
            asked.text,
            planned_ms=asked.planned_at,
            counted=True,
            name="execute",
        )
        return self._running(caller, action, told)[0]

    def _bind(self, caller: Caller, asked: protocol.Bind) -> Mapping[str, Any]:
        def action(execution: Execution) -> Mapping[str, Any]:
            session = execution.session
            # The history knows of this bind by now: a statement that binds again goes on.
            self._tell_of_ends(asked.released, asked.ended)
            # A cursor's query reads at the time of the cursor, and nobody has named that.
            if not caller.internal:
                self._reads.refuse_past(asked)
            bound = self._reads.bind(session, asked, execution.cancellation)
            if session.variable("emit_timestamp_notice") == "on" and bound.relations:
                session.notify(f"The query reads at {bound.timestamp}.")
            lease = {} if bound.lease_ms is None else {"lease_ms": bound.lease_ms}
            return {
                "timestamp": bound.timestamp,
                "hold": bound.hold,
                "relations": bound.relations,
                "views": bound.views,
                "result_bytes": bound.result_bytes,
                "again": bound.again,
                **lease,
                "notices": session.take_notices(),
            }

        self._end_holds(asked.released)
        told: Told[Mapping[str, Any]] = Told(
            lambda answer: Bound(answer["timestamp"], answer["hold"]),
            writes=bool(asked.write_targets),
            # What a statement reads that writes as well is a part of it.
            counted=not asked.write_targets,
            name="bind",
        )
        return self._running(caller, action, told)

    def _peek(self, caller: Caller, asked: protocol.Peek) -> Mapping[str, Any]:
        """The rows of the keys, if the index has them and they are few enough."""

        def action(execution: Execution) -> Mapping[str, Any]:
            match self._peeks.rows(asked, execution.cancellation):
                case IndexRows(rows, upper):
                    return {"rows": base64.b64encode(rows).decode(), "file": None, "upper": upper}
                case IndexFile(file, upper):
                    return {"rows": None, "file": file, "upper": upper}
                case None:
                    return {"rows": None, "file": None, "upper": None}

        return self._running(caller, action, Told(is_part=True, name="peek"))

    def _scanned(self, caller: Caller, asked: protocol.Scanned) -> Mapping[str, Any]:
        session = self._session(caller)
        for scan in asked.scans:
            tell_of_index(session, self._state, scan)
        return {"notices": [] if asked.later else session.take_notices()}

    def _release(self, _: Caller, asked: protocol.Release) -> Mapping[str, Any]:
        self._end_holds(asked.holds)
        self._tell_of_ends(asked.holds, asked.ended)
        return {}

    def _unbound(self, _: Caller, asked: protocol.UnboundReads) -> Mapping[str, Any]:
        for read in asked.reads:
            session = self._sessions.find(read.session)
            # One that has ended began with a bind, and its end was told.
            if session is not None:
                session.used_ms = self._timeline.now()
                said = self._said(session, read.context, read.application, read.sql)
                self._history.unbound(Key(session.session_id, read.execution), said, read)
            kind = kind_of(read.sql, None, writes=False)
            self._counts.count(kind, "success", read.took_us / 1_000_000)
        return {}

    def _tell_of_ends(self, holds: Sequence[str], ended: Sequence[protocol.EndedRead]) -> None:
        """Tells the history of the statements that read under the holds, as far as Spark says."""
        said = {each.hold: each for each in ended}
        for hold in holds:
            self._history.released(said.get(hold) or protocol.EndedRead(hold))

    def _end_holds(self, holds: Sequence[str]) -> None:
        for hold in holds:
            self._reads.release(hold)

    def _renew(self, _: Caller, asked: protocol.Renew) -> Mapping[str, Any]:
        for hold in asked.holds:
            self._reads.renew(hold)
        return {}

    def _write(self, caller: Caller, asked: protocol.WriteTables) -> Mapping[str, Any]:
        def action(execution: Execution) -> WriteResult:
            session = execution.session
            session.stop_writing(caller.execution)
            refuse_stale_write(session)
            if asked.definition is not None:
                return self._staged.write(execution, asked)
            result = self._writes.write(session, asked, execution.cancellation)
            session.saw(result.timestamp)
            return result

        told: Told[WriteResult] = Told(
            lambda done: Wrote(done.timestamp, done.inserted + done.deleted),
            writes=True,
            counted=True,
            name="write",
        )
        done = self._running(caller, action, told)
        return {
            "timestamp": done.timestamp,
            "inserted": done.inserted,
            "deleted": done.deleted,
        }

    def _system(self, _: Caller, asked: protocol.System) -> Mapping[str, Any]:
        return self._looks.look(asked)

    def _prepare_write(self, _: Caller, asked: protocol.PrepareWrite) -> Mapping[str, Any]:
        return {"directory": self._writes.directory(asked)}

    def _read_metrics(self, _: Caller, __: protocol.ReadMetrics) -> Text:
        return Text(self._metrics.text(), CONTENT_TYPE)

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

    def _find_schemas(self, _: Caller, asked: protocol.FindSchemas) -> Mapping[str, Any]:
        self._relations.persist.transactions.confirm_leadership()
        found = search.found_schemas(self._state, asked.schemas)
        return {"schemas": [{"name": schema.name} for schema in found]}

    def _find_relations(self, _: Caller, asked: protocol.FindRelations) -> Mapping[str, Any]:
        self._relations.persist.transactions.confirm_leadership()
        found = search.found_relations(self._state, asked.schemas, asked.names)
        wanted = filter(search.of_types(asked.types), found)
        return {
            "relations": [
                {
                    "schema": item.schema_name,
                    "name": item.name,
                    "type": search.TABLE_TYPES[item.kind],
                    "comment": item.comment,
                }
                for item in wanted
            ]
        }

    def _find_columns(self, _: Caller, asked: protocol.FindColumns) -> Mapping[str, Any]:
        self._relations.persist.transactions.confirm_leadership()
        found = search.found_relations(self._state, asked.schemas, asked.names)
        matches = search.matching(asked.columns)
        return {
            "relations": [
                {
                    "schema": item.schema_name,
                    "name": item.name,
                    "columns": search.found_columns(item, matches),
                }
                for item in found
            ]
        }

    def _load(self, _: Caller, asked: protocol.Load) -> Mapping[str, Any] | None:
        if len(asked.namespace) != 1:
            return None
        item = self._state.find(asked.namespace[0], asked.name)
        if item is None:
            # What is there is found out about when it is bound; what is not is not asked for again.
            self._relations.persist.transactions.confirm_leadership()
            return None
        return object_json(item)

    def _stage_table(self, caller: Caller, asked: protocol.StageTable) -> Mapping[str, Any]:
        kind = asked.statement.lower().replace(" ", "_")
        target = self._running(
            caller,
            lambda execution: self._staged.stage(execution, asked),
            Told(kind=kind, writes=True, name="stage"),
        )
        return {
            "id": target.id,
            "replaces": target.replaces,
            "shard": target.shard,
            "schema": json.loads(target.schema.to_json()),
        }


def _kind(caller: Caller, told: Told[Any]) -> str:
    """The kind of a statement, as the history says it too."""
    return kind_of(told.text or caller.sql, told.kind, writes=told.writes)


def _failure(error: Exception) -> Failure:
    if isinstance(error, SlackwaterError):
        return Failure(error.condition, error.message)
    return Failure("SLACKWATER_FENCED" if isinstance(error, Fenced) else "SLACKWATER_INTERNAL")


def _query(_: Caller, asked: protocol.QueryIn) -> Mapping[str, Any]:
    statement = parse(asked.text)
    return {"query": None if statement is None else query_of(statement)}


def _dropped(dropped: bool) -> Mapping[str, Any]:
    return {"dropped": dropped}


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
        "writable": item.is_writable,
        "properties": properties,
        "comment": item.comment,
        "view": view,
    }
