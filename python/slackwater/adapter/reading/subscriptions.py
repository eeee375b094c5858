"""SUBSCRIBE and cursors. The rows' form is in `slackwater.storage.subscribe`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import sqlglot
from sqlglot import exp

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.adapter.catalog.naming import find_item
from slackwater.adapter.catalog.replaced import refuse_replacement
from slackwater.adapter.controllers.dataflows import Interval
from slackwater.adapter.controllers.feeds import CollectionFeed, Feed, FeedHold
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.reading.feeds import FeedQuery, QueryFeed
from slackwater.adapter.reading.followed import FollowedFeed, FollowedQueries
from slackwater.adapter.reading.reads import Reads, refuse_past
from slackwater.adapter.sessions.cursors import Cursor
from slackwater.adapter.sessions.results import Result, check_size
from slackwater.adapter.sessions.sessions import Execution, Session
from slackwater.adapter.time.selection import AtLeastTimestamp, AtTimestamp, Immediately, QueryWhen
from slackwater.adapter.time.timeline import Timeline
from slackwater.adapter.time.watch import Cancellation
from slackwater.compute.engine import Analysis, Engine
from slackwater.controller.holds import Holder, HoldKind
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.names import QualifiedName
from slackwater.repr.errors import SlackwaterError, invalid_option, unsupported, user_error
from slackwater.repr.frontier import TIMESTAMP_MAX, Frontier, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc
from slackwater.storage.subscribe import (
    OrderColumn,
    SubscribeFormat,
    SubscribeSpec,
    check_bounds,
    output_desc,
)


@dataclass(slots=True)
class Subscription:
    """A SUBSCRIBE that is being read: its rows that are not fetched yet, and its position."""

    timeline: Timeline
    feed: Feed
    output: SubscribeFormat
    as_of: Timestamp
    up_to: Timestamp
    position: Timestamp
    reads: tuple[GlobalId, ...]
    cluster: GlobalId | None
    created_ms: int
    limit_bytes: Callable[[], int]
    turn: threading.Lock = field(default_factory=threading.Lock)
    started: bool = False
    ready: list[pa.Table] = field(default_factory=list)
    refusal: SlackwaterError | None = None

    @property
    def desc(self) -> RelationDesc:
        return output_desc(self.output.spec, self.output.desc)

    @property
    def ended(self) -> bool:
        return self.position >= self.up_to and not self.ready

    def advance(self) -> None:
        """Formats the times that have become complete since the last call.

        Raises SLACKWATER_RESULT_SIZE, and from then on always: rows that did not fit are lost.
        """
        if self.refusal is not None:
            raise self.refusal
        upper = Timestamp(min(self.feed.frontier().value, self.up_to))
        if not self.started and (upper > self.as_of or self.as_of >= self.up_to):
            self._start()
        if self.started and upper > self.position:
            self._keep(self.output.rows(self.feed.updates(self.position, upper), Frontier(upper)))
            self.position = upper
            self.feed.release(Timestamp(max(self.as_of, upper - 1)))

    def _start(self) -> None:
        """Formats the first rows. If they cannot be read now, the next call tries it again."""
        rows = [self.output.begin()]
        ended = self.as_of >= self.up_to
        if self.output.spec.snapshot and not ended:
            rows.append(self.output.rows(self.feed.snapshot(self.as_of), Frontier(self.as_of)))
        self.started = True
        self.position = self.up_to if ended else Timestamp(self.as_of + 1)
        for each in rows:
            self._keep(each)

    def _keep(self, rows: pa.Table) -> None:
        if rows.num_rows:
            self.ready.append(rows)
        try:
            check_size(sum(table.nbytes for table in self.ready), self.limit_bytes())
        except SlackwaterError as error:
            self.ready, self.refusal = [], error
            raise

    def wait(self, timeout_s: float, cancellation: Cancellation) -> bool:
        """Waits until there are rows or the end is reached; False after `timeout_s`."""
        deadline = self.timeline.monotonic() + timeout_s
        while True:
            self.advance()
            if self.ready or self.position >= self.up_to:
                return True
            left = deadline - self.timeline.monotonic()
            if left <= 0 or not self.timeline.watch.wait_until(self._moved, left, cancellation):
                return False

    def _moved(self) -> bool:
        seen = self.position if self.started else self.as_of
        return self.feed.frontier().value > seen

    def fetch(
        self, count: int | None, timeout_ms: int | None, cancellation: Cancellation
    ) -> Result:
        wait_s = cancellation.left_s()
        if timeout_ms is not None:
            wait_s = timeout_ms / 1000
            cancellation.extend(timeout_ms)
        if not self.wait(wait_s, cancellation) and timeout_ms is None:
            cancellation.check_deadline(
                "there were rows; WITH (timeout = '...') answers without any"
            )
        schema = self.desc.arrow_schema()
        table = pa.concat_tables([schema.empty_table(), *self.ready])
        taken = table if count is None else table.slice(0, count)
        rest = table.slice(taken.num_rows)
        self.ready = [rest] if rest.num_rows else []
        return Result(self.desc, taken)

    def close(self) -> None:
        self.feed.release(None)


@dataclass(slots=True)
class QueryCursor:
    """A cursor over the answer of a SELECT at the time of DECLARE.

    It is computed when it is first fetched; until then `hold` keeps its inputs readable. System
    relations have no history: it reads them as they are at that moment.
    """

    desc: RelationDesc
    answer: Callable[[], pa.Table]
    created_ms: int
    limit_bytes: Callable[[], int]
    hold: FeedHold
    turn: threading.Lock = field(default_factory=threading.Lock)
    reads: tuple[GlobalId, ...] = ()
    cluster: GlobalId | None = None
    rest: pa.Table | None = None

    @property
    def ended(self) -> bool:
        return self.rest is not None and self.rest.num_rows == 0

    def fetch(
        self, count: int | None, timeout_ms: int | None, cancellation: Cancellation
    ) -> Result:
        cancellation.check()
        rows = self.answer() if self.rest is None else self.rest
        check_size(rows.nbytes, self.limit_bytes())
        taken = rows if count is None else rows.slice(0, count)
        self.rest = rows.slice(taken.num_rows)
        self.hold.release(None)
        return Result(self.desc, taken)

    def close(self) -> None:
        self.hold.release(None)
        self.rest = None


@dataclass(frozen=True, slots=True)
class _Target:
    """Columns and collections of a SUBSCRIBE, and its query unless it is one stored collection."""

    desc: RelationDesc
    items: tuple[CatalogItem, ...]
    query: tuple[str, Analysis] | None = None


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """Opens subscriptions and cursors."""

    relations: Relations
    timeline: Timeline
    engine: Engine
    reads: Reads
    followed: FollowedQueries

    def columns(self, context: Context, statement: st.Subscribe) -> RelationDesc:
        """The columns of the SUBSCRIBE's rows. Raises SLACKWATER_SUBSCRIBE_NEEDS_CURSOR."""
        if statement.up_to is None:
            raise user_error("SLACKWATER_SUBSCRIBE_NEEDS_CURSOR")
        desc = self._target(context, statement).desc
        return output_desc(_spec(statement, desc, Timestamp(0), None), desc)

    def collect(self, execution: Execution, statement: st.Subscribe) -> Result:
        """All rows of a SUBSCRIBE with UP TO; waits for its end."""
        session, cancellation = execution.session, execution.cancellation
        subscription = self._open(execution, statement)
        try:
            tables = [subscription.desc.arrow_schema().empty_table()]
            while not subscription.ended:
                if not subscription.wait(cancellation.left_s(), cancellation):
                    cancellation.check_deadline("everything up to its UP TO was complete")
                tables.extend(subscription.ready)
                subscription.ready = []
                check_size(sum(table.nbytes for table in tables), session.answer_limit_bytes)
            return Result(subscription.desc, pa.concat_tables(tables))
        finally:
            subscription.close()

    def declare(self, execution: Execution, statement: st.Subscribe | st.Query) -> Cursor:
        """Opens a cursor. Its time is chosen now, and its inputs are held from now on.

        In a block it is the block's time, unless AS OF states another one. Raises
        SLACKWATER_UNSUPPORTED for a query over other catalogs, which would be read with the rights
        of the coordinator, and what the state of the session's transaction forbids.
        """
        session, context = execution.session, execution.context
        if isinstance(statement, st.Subscribe):
            return self._open(execution, statement)
        text = statement.text.text
        engine = self.engine.under(context.settings)
        analysis = engine.analyze(text, context.catalog, context.namespace)
        if analysis.foreign:
            raise unsupported(
                f"A cursor over {', '.join(analysis.foreign)}",
                advice="Cursors read relations of slackwater. Run the query itself.",
            )
        items = [self.relations.item(GlobalId(i)) for i in analysis.relations]
        when = self._when(context, statement.as_of)
        if statement.as_of is None:
            self.reads.wait_for_snapshots((i.id for i in items), execution.cancellation)
        for item in items:
            refuse_past(item, when)
        hold, time = self._held(session, items, when)
        schema = analysis.desc.arrow_schema()

        def answer() -> pa.Table:
            timed = f"{text}\nAS OF {time}"
            table = engine.collect(timed, context.catalog, context.namespace)
            names = list(analysis.desc.stored_names)
            return pa.Table.from_arrays(table.columns, names=names).cast(schema)

        return QueryCursor(
            analysis.desc, answer, self.timeline.now(), lambda: session.answer_limit_bytes, hold
        )

    def _held(
        self, session: Session, items: Sequence[CatalogItem], when: QueryWhen
    ) -> tuple[FeedHold, Timestamp]:
        """A time at which `items` are read, and a hold there."""
        # Before the time is chosen: what it is chosen from must not move away.
        hold = FeedHold(self.relations, items, Holder(HoldKind.SUBSCRIPTION, session.session_id))
        try:
            self.relations.persist.transactions.confirm_leadership()
            time = self.reads.choose(session, items, when)
            hold.release(time)
        except BaseException:
            hold.release(None)
            raise
        return hold, time

    def _when(self, context: Context, as_of: st.AsOf | None) -> QueryWhen:
        return Immediately() if as_of is None else self.evaluate(context, as_of)

    def evaluate(self, context: Context, as_of: st.AsOf) -> QueryWhen:
        """The time that an AS OF clause means. Raises SLACKWATER_INVALID_AS_OF."""
        value = self._milliseconds(context, as_of.expression.text)
        return AtTimestamp(value) if as_of.kind == "at" else AtLeastTimestamp(value)

    def _open(self, execution: Execution, statement: st.Subscribe) -> Subscription:
        session, context = execution.session, execution.context
        target = self._target(context, statement)
        desc, items = target.desc, target.items
        if statement.as_of is None:
            self.reads.wait_for_snapshots((i.id for i in items), execution.cancellation)
        up_to = (
            TIMESTAMP_MAX
            if statement.up_to is None
            else self._milliseconds(context, statement.up_to.text)
        )
        hold, as_of = self._held(session, items, self._when(context, statement.as_of))
        try:
            check_bounds(as_of, up_to)
            spec = _spec(statement, desc, as_of, None if statement.up_to is None else up_to)
            feed = self._feed(session, context, target, Interval(as_of, up_to), hold)
        except BaseException:
            hold.release(None)
            raise
        if up_to == as_of:
            session.notify("AS OF and UP TO are the same time, so the answer is empty.")
        return Subscription(
            timeline=self.timeline,
            feed=feed,
            output=SubscribeFormat(spec, desc),
            as_of=as_of,
            up_to=up_to,
            position=as_of,
            reads=tuple(item.id for item in items),
            cluster=self.relations.state.id_of_cluster(session.variable("cluster")),
            created_ms=self.timeline.now(),
            limit_bytes=lambda: session.answer_limit_bytes,
        )

    def _feed(
        self, session: Session, context: Context, target: _Target, times: Interval, hold: FeedHold
    ) -> Feed:
        if target.query is None:
            return CollectionFeed(self.relations, target.items[0], hold)
        text, analysis = target.query
        query = FeedQuery(text, context, target.desc, tuple(item.id for item in target.items))
        answers = QueryFeed(self.relations, self.engine, query, hold)
        cluster = self.relations.state.cluster(session.variable("cluster"))
        dataflow = self.followed.planned(query, analysis, cluster.id, times.upper)
        if dataflow is None:
            return answers
        if not cluster.replicas:
            session.notify(
                f"The cluster {cluster.name} has no replicas: "
                "the changes of the query come when it has one."
            )
        return FollowedFeed(answers, dataflow, times.lower)

    def _target(self, context: Context, statement: st.Subscribe) -> _Target:
        target = statement.target
        if isinstance(target, QualifiedName):
            item = find_item(self.relations.state, target, context)
            if (
                item.kind is not ItemKind.VIEW
                and item.desc is not None
                and item.shard_id is not None
            ):
                refuse_replacement(item)
                return _Target(item.desc, (item,))
            text = f"SELECT * FROM {target.sql}"
        else:
            text = target.text
        engine = self.engine.under(context.settings)
        analysis = engine.analyze(text, context.catalog, context.namespace)
        if analysis.nondeterministic or analysis.foreign or not analysis.relations:
            raise unsupported(
                "SUBSCRIBE to a query that reads more than relations of slackwater",
                advice="Use only tables, sources and views of slackwater, and deterministic "
                "functions.",
            )
        items = tuple(self.relations.item(GlobalId(i)) for i in analysis.relations)
        for item in items:
            _refuse_system(item)
            refuse_replacement(item)
        # What it reads can lose NOT NULL while it runs.
        columns = tuple(replace(column, nullable=True) for column in analysis.desc.columns)
        return _Target(RelationDesc(columns), items, (text, analysis))

    def _milliseconds(self, context: Context, expression: str) -> Timestamp:
        stripped = expression.strip()
        if stripped.isdecimal():
            return _checked(int(stripped), expression)
        engine = self.engine.under(context.settings)
        return _checked(engine.milliseconds(expression), expression)


def _refuse_system(item: CatalogItem) -> None:
    if item.kind is ItemKind.SYSTEM_TABLE:
        raise unsupported(
            f"SUBSCRIBE to the system relation {item.full_name}",
            advice="Its changes are not kept: read it with SELECT as often as they are wanted.",
        )


def _spec(
    statement: st.Subscribe, desc: RelationDesc, as_of: Timestamp, up_to: Timestamp | None
) -> SubscribeSpec:
    """The specification of the statement's rows.

    Raises SLACKWATER_INVALID_OPTION for keys and orders that do not name one column.
    """
    envelope = statement.envelope
    key = () if envelope is None else envelope.key
    order: tuple[OrderColumn, ...] = ()
    if statement.within_timestamp_order_by is not None:
        order = _order(statement.within_timestamp_order_by.text)
    for name in key:
        _refuse_unclear("ENVELOPE", name, desc.names)
    for column in order:
        _refuse_unclear("WITHIN TIMESTAMP ORDER BY", column.name, ("mz_diff", *desc.names))
    kind = None if envelope is None or envelope.kind == "DIFF" else envelope.kind
    return SubscribeSpec(
        as_of=as_of,
        up_to=up_to,
        snapshot=statement.snapshot,
        progress=statement.progress,
        envelope=kind,
        key=key,
        order_by=order,
    )


def _refuse_unclear(option: str, name: str, names: Sequence[str]) -> None:
    """Raises SLACKWATER_INVALID_OPTION unless exactly one column has the name."""
    if names.count(name) == 1:
        return
    reason = "several columns have this name" if name in names else "no column has this name"
    raise invalid_option(option, "SUBSCRIBE", name, f"{reason}: they are {', '.join(names)}")


def _order(text: str) -> tuple[OrderColumn, ...]:
    """WITHIN TIMESTAMP ORDER BY: columns with ASC or DESC and NULLS FIRST or LAST."""
    ordered = sqlglot.parse_one(f"SELECT 1 ORDER BY {text}", dialect="spark").args["order"]
    columns = []
    for item in ordered.expressions:
        if not isinstance(item.this, exp.Column):
            raise unsupported(
                f"WITHIN TIMESTAMP ORDER BY {item.this.sql(dialect='spark')}",
                advice="Name columns, or mz_diff.",
            )
        columns.append(
            OrderColumn(
                item.this.name,
                descending=bool(item.args.get("desc")),
                nulls_first=bool(item.args.get("nulls_first")),
            )
        )
    return tuple(columns)


def _checked(value: int, expression: str) -> Timestamp:
    if not 0 <= value <= TIMESTAMP_MAX:
        raise _invalid(expression, "it is out of range")
    return Timestamp(value)


def _invalid(expression: str, reason: str) -> Exception:
    return user_error("SLACKWATER_INVALID_AS_OF", expression=expression, reason=reason)
