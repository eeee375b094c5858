"""Statements: from text to the schema of the answer (`plan`) and to the answer (`execute`).

Dispatch only: `Rooms` has the parts that perform the statements.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.model import CATALOG_NAME, CatalogItem, ItemKind
from slackwater.adapter.catalog.naming import kind_of
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.ddl.dispatch import Definitions
from slackwater.adapter.ddl.explained_plans import ExplainedPlans
from slackwater.adapter.ddl.planned_views import Views
from slackwater.adapter.reading.reads import Reads
from slackwater.adapter.reading.subscriptions import Subscriptions
from slackwater.adapter.sessions.buffered import BufferedWrite
from slackwater.adapter.sessions.cursors import Cursor, in_turn
from slackwater.adapter.sessions.results import Result, done, rows, strings
from slackwater.adapter.sessions.sessions import Execution, PendingCommit, Session
from slackwater.adapter.system.shows import Shows
from slackwater.adapter.time.explain import TimestampExplanation, explain_json, explain_text
from slackwater.adapter.time.selection import Immediately
from slackwater.adapter.time.timeline import Timeline
from slackwater.adapter.time.watch import Cancellation
from slackwater.adapter.transactions import (
    Idle,
    Lost,
    Open,
    Transaction,
    check_outside_block,
    commit,
    refuse_if_failed,
)
from slackwater.adapter.writing.writes import CommitOwner, Writes
from slackwater.compute.records import TickRecord
from slackwater.planner.parser import cluster_statements as cs
from slackwater.planner.parser import statements as st
from slackwater.planner.parser import variables
from slackwater.planner.parser.names import QualifiedName, is_elsewhere
from slackwater.planner.parser.parameters import is_of_session
from slackwater.planner.parser.parse import parse
from slackwater.repr.errors import SlackwaterError, unsupported, user_error
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc

EXPLAIN_TIMESTAMP = strings("Timestamp")
EXPLAIN_INCREMENTAL = RelationDesc.of(
    id="integer",
    parent="integer",
    operator="string",
    maintenance="string",
    reason="string",
    advice="string",
)
EXPLAIN_ANALYZE = RelationDesc.of(
    upper="long",
    step="integer",
    operator="string",
    rows_scanned="long",
    rows_looked_up="long",
    rows_emitted="long",
    elapsed_us="long",
    mode="string",
    reads="string",
)
EXPLAIN_PLAN = strings("plan")

_ANYWHERE = (
    st.Begin,
    st.Commit,
    st.Rollback,
    st.DeclareCursor,
    st.Fetch,
    st.CloseCursor,
    st.SetVariable,
    st.ResetVariable,
    st.Show,
    st.ShowCreate,
    cs.ShowCreateCluster,
    st.ShowVariable,
    st.ShowAll,
    st.ExplainTimestamp,
    st.ExplainIncremental,
    st.ExplainAnalyze,
    st.ExplainPlan,
)


@dataclass(frozen=True, slots=True)
class Rooms:
    """The parts that perform the statements of each kind."""

    reads: Reads
    writes: Writes
    definitions: Definitions
    views: Views
    shows: Shows
    subscriptions: Subscriptions


class Statements:
    """Plans and executes the statements of Slackwater's own grammar."""

    def __init__(self, rooms: Rooms, relations: Relations, timeline: Timeline) -> None:
        self._relations = relations
        self._timeline = timeline
        self._reads = rooms.reads
        self._writes = rooms.writes
        self._definitions = rooms.definitions
        self._views = rooms.views
        self._explained_plans = ExplainedPlans(rooms.views)
        self._shows = rooms.shows
        self._subscriptions = rooms.subscriptions

    def plan(self, execution: Execution, text: str) -> RelationDesc | None:
        """The columns of the statement's answer; None when it is Spark's.

        Raises syntax errors, and errors of names that are needed to know the columns.
        """
        statement = parse(text)
        if statement is None or self._belongs_to_spark(execution.context, statement):
            return None
        match statement:
            case (
                st.Show()
                | st.ShowCreate()
                | cs.ShowCreateCluster()
                | st.ShowVariable()
                | st.ShowAll()
            ):
                return self._shows.columns(statement)
            case st.Subscribe():
                return self._subscriptions.columns(execution.context, statement)
            case st.Fetch(cursor=name):
                return _cursor(execution.session, name).desc
            case st.ExplainTimestamp():
                return EXPLAIN_TIMESTAMP
            case st.ExplainIncremental():
                return EXPLAIN_INCREMENTAL
            case st.ExplainAnalyze():
                return EXPLAIN_ANALYZE
            case st.ExplainPlan():
                return EXPLAIN_PLAN
            case _:
                return done().desc

    def execute(self, execution: Execution, text: str, write_id: str | None = None) -> Result:
        """Runs a statement that `plan` gave columns for.

        `write_id` is the client's name for a COMMIT. A COMMIT that is sent again under the same
        name has one effect, and the same outcome.
        """
        session, context = execution.session, execution.context
        statement = parse(text)
        if statement is None:
            raise AssertionError("only planned statements are executed")
        if not isinstance(statement, st.Commit | st.Rollback):
            refuse_if_failed(session.transaction)
        if not isinstance(statement, _ANYWHERE):
            check_outside_block(session.transaction, statement_name(statement))
        match statement:
            case st.Begin() | st.Commit() | st.Rollback():
                own_id = write_id or str(uuid.uuid4())
                return self._transaction(execution, statement, own_id)
            case st.SetVariable() | st.ResetVariable():
                return self._variable(session, statement)
            case (
                st.Show()
                | st.ShowCreate()
                | cs.ShowCreateCluster()
                | st.ShowVariable()
                | st.ShowAll()
            ):
                return self._shows.show(execution, statement)
            case st.Subscribe():
                return self._subscriptions.collect(execution, statement)
            case st.DeclareCursor() | st.Fetch() | st.CloseCursor():
                return self._cursor_statement(execution, statement)
            case st.ExplainTimestamp():
                return self._explain_timestamp(session, context, statement)
            case st.ExplainIncremental():
                return rows(EXPLAIN_INCREMENTAL, self._explain_incremental(execution, statement))
            case st.ExplainAnalyze(name=view):
                return rows(EXPLAIN_ANALYZE, self._explain_analyze(context, view))
            case st.ExplainPlan():
                return rows(EXPLAIN_PLAN, [(self._explain_plan(execution, statement),)])
            case _:
                self._definitions.execute(execution, statement)
                return done()

    def _belongs_to_spark(self, context: Context, statement: st.Statement) -> bool:
        if not st.is_spark_grammar(statement):
            return False
        match statement:
            case st.CreateView(name=name) | st.AlterRename(name=name):
                return is_elsewhere(name, context.catalog)
            case st.ShowCreate(name=name):
                # What is not there, Spark says in its own words.
                own = None if is_elsewhere(name, context.catalog) else context.resolve(name)
                found = None if own is None else self._relations.state.find(*own)
                return found is None or found.kind is ItemKind.SYSTEM_TABLE
            case st.DropObjects(kind=kind, names=names):
                probe = names[0]
                if kind is st.ObjectKind.SCHEMA:
                    probe = QualifiedName((*probe.parts, ""))
                return is_elsewhere(probe, context.catalog)
            case st.Show(from_schema=schema):
                if schema is None:
                    return context.catalog != CATALOG_NAME
                return is_elsewhere(QualifiedName((*schema.parts, "")), context.catalog)
            case _:
                return False

    def _transaction(
        self, execution: Execution, statement: st.Begin | st.Commit | st.Rollback, write_id: str
    ) -> Result:
        session = execution.session
        match statement:
            case st.Begin():
                self._begin(session, statement)
            case st.Commit():
                self._commit(session, write_id, execution.cancellation)
            case st.Rollback():
                block = session.roll_back()
                _notice_none(session, block)
                self._reads.release_block(session)
        return done()

    @staticmethod
    def _begin(session: Session, statement: st.Begin) -> None:
        level = None
        if statement.isolation is not None:
            level = variables.assign("transaction_isolation", statement.isolation)
        if isinstance(session.transaction, Open):
            session.notify("There is a transaction in progress already.", "WARNING", "25001")
        elif level is not None and level.notice is not None:
            session.notify(level.notice)
        session.begin(
            read_only=bool(statement.read_only), isolation=None if level is None else level.value
        )

    def _commit(self, session: Session, write_id: str, cancellation: Cancellation) -> None:
        """Commits the block, or repeats the outcome of the COMMIT that came first under this id.

        An outcome that was unknown then is asked for again.
        """
        pending, is_first = session.commit(write_id)
        if is_first:
            _notice_none(session, pending.block)
            self._reads.release_block(session)
            self._settle(pending, pending.outcome, cancellation)
        try:
            pending.outcome.result()
        except SlackwaterError as error:
            if is_first or not error.is_outage:
                raise
            # The outcome may have been unknown. The same id makes asking for it again safe.
            if self._writes.is_written(write_id):
                return
            if isinstance(pending.block, Idle):
                raise
            outcome = pending.outcome = Future()
            self._settle(pending, outcome, cancellation)
            outcome.result()

    def _settle(
        self, pending: PendingCommit, outcome: Future[None], cancellation: Cancellation
    ) -> None:
        try:
            self._commit_block(pending.block, pending.write_id, cancellation)
        except BaseException as error:
            outcome.set_exception(error)
            if isinstance(error, SlackwaterError) and error.is_outage:
                return
        else:
            outcome.set_result(None)
        pending.block = Idle()

    def _commit_block(
        self, block: Transaction[BufferedWrite], write_id: str, cancellation: Cancellation
    ) -> None:
        if isinstance(block, Lost) and self._writes.is_written(write_id):
            # The coordinator before had committed it, and could not answer any more.
            return
        writes = commit(block)
        if writes:
            self._writes.commit(writes, CommitOwner(write_id), cancellation)

    def _variable(self, session: Session, statement: st.SetVariable | st.ResetVariable) -> Result:
        value = statement.value if isinstance(statement, st.SetVariable) else None
        if isinstance(statement, st.SetVariable) and statement.local:
            raise unsupported(
                "SET LOCAL", advice="SET the variable, and RESET it after the transaction."
            )
        if not is_of_session(statement.name):
            raise user_error("SLACKWATER_SYSTEM_PARAMETER", parameter=statement.name)
        name = variables.variable(statement.name).name
        assigned = variables.assign(name, value)
        if name == "cluster" and value is not None:
            cluster = self._relations.state.cluster(assigned.value)
            assigned = variables.Assigned(cluster.name)
        if value is None:
            session.values.pop(name, None)
        else:
            session.values[name] = assigned.value
        if assigned.notice is not None:
            session.notify(assigned.notice)
        return done()

    def _cursor_statement(
        self, execution: Execution, statement: st.DeclareCursor | st.Fetch | st.CloseCursor
    ) -> Result:
        session, cancellation = execution.session, execution.cancellation
        match statement:
            case st.DeclareCursor(name=name, statement=of):
                if name in session.cursors:
                    raise user_error("SLACKWATER_DUPLICATE_CURSOR", cursor=name)
                block = session.block
                opened = self._subscriptions.declare(execution, of)
                session.open_cursor(name, opened, block)
                return done()
            case st.Fetch(cursor=name, count=count, timeout_ms=timeout_ms):
                cursor = _cursor(session, name)
                with in_turn(cursor, cancellation):
                    return cursor.fetch(count, timeout_ms, cancellation)
            case st.CloseCursor(name=name):
                _cursor(session, name)
                session.close_cursor(name)
                return done()

    def _explain_timestamp(
        self, session: Session, context: Context, statement: st.ExplainTimestamp
    ) -> Result:
        analysis = self._views.analyze(context, statement.query.text.text)
        items: Sequence[CatalogItem] = [
            self._relations.item(GlobalId(i)) for i in analysis.relations
        ]
        as_of = statement.query.as_of
        when = Immediately() if as_of is None else self._subscriptions.evaluate(context, as_of)
        self._relations.persist.transactions.confirm_leadership()
        explanation = TimestampExplanation(
            determination=self._reads.determination(
                session, items, when, depends_on_time=analysis.uses_mz_now
            ),
            inputs=self._reads.inputs(items),
            session_wall_time_ms=self._timeline.now(),
        )
        text = (explain_json if statement.format == "JSON" else explain_text)(explanation)
        return rows(EXPLAIN_TIMESTAMP, [(text,)])

    def _explain_incremental(
        self, execution: Execution, statement: st.ExplainIncremental
    ) -> list[tuple[object, ...]]:
        context, target = execution.context, statement.target
        if isinstance(target, QualifiedName):
            return self._views.explain_item(self._view(target, context))
        cluster = self._relations.state.id_of_cluster(execution.session.variable("cluster"))
        return self._views.explain_query(target.text, context, cluster)

    def _explain_plan(self, execution: Execution, statement: st.ExplainPlan) -> str:
        context, target = execution.context, statement.target
        if isinstance(target, st.Maintained):
            named = context.resolve(target.name)
            item = self._relations.state.get(*named, kind_of(target.kind))
            return self._explained_plans.of_item(item, statement)
        cluster = self._relations.state.id_of_cluster(execution.session.variable("cluster"))
        return self._explained_plans.of_query(target.text, context, cluster, statement)

    def _explain_analyze(self, context: Context, name: QualifiedName) -> list[tuple[object, ...]]:
        tick = self._views.last_tick(self._view(name, context))
        return [] if tick is None else _analyzed(tick)

    def _view(self, name: QualifiedName, context: Context) -> CatalogItem:
        return self._relations.state.get(*context.resolve(name), ItemKind.MATERIALIZED_VIEW)


def _analyzed(tick: TickRecord) -> list[tuple[object, ...]]:
    """The rows of EXPLAIN ANALYZE: the tick, its time by purpose, and the steps of its program."""
    times = tick.times
    counts: tuple[int | None, ...] = (tick.scanned, tick.looked_up, tick.emitted)
    whole = (tick.upper, None, "tick", *counts, times.whole_us, None, None)
    found: list[tuple[object, ...]] = [whole]
    for phase, spent_us in (
        ("plan", times.plan_us),
        ("load", times.load_us),
        ("compute", times.compute_us),
        ("encode", times.encode_us),
        ("commit", times.commit_us),
    ):
        found.append((tick.upper, None, phase, None, None, None, spent_us, None, None))
    for number, step in enumerate(tick.steps):
        counts = (None, step.looked_up, step.emitted, step.elapsed_us)
        found.append((tick.upper, number, step.operator, *counts, step.mode, step.reads))
    return found


def _notice_none(session: Session, block: Transaction[BufferedWrite]) -> None:
    if isinstance(block, Idle):
        session.notify("There is no transaction in progress.", "WARNING", "25P01")


def _cursor(session: Session, name: str) -> Cursor:
    cursor = session.cursors.get(name)
    if cursor is None:
        raise user_error("SLACKWATER_UNKNOWN_CURSOR", cursor=name)
    return cursor


def statement_name(statement: st.Statement) -> str:
    """The kind of a statement as users call it, for messages."""
    words = "".join(f" {c}" if c.isupper() else c for c in type(statement).__name__)
    return words.strip().upper()
