"""Replacements of materialized views: the new definition is computed beside, and takes the place.

A replacement is a materialized view of its own, which nobody else reads. Applying it is one commit:
at the upper u of the view, its shard gets what both differ by::

    contents of the view at t  =  what they were                       for t < u
                               =  the contents of the replacement at t for t >= u

and the definition of the view becomes that of the replacement. The view keeps its id, its name and
its columns, so that whatever reads it goes on, and sees the difference as updates at u. Most of the
difference is computed before, while both go on; the commit adds what has changed since.
The replica keeps for the view what it kept for the replacement.

Source: docs/decisions 0050.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection

from slackwater.adapter.catalog.details import MaterializedViewDetails
from slackwater.adapter.catalog.model import CATALOG_NAME, CatalogItem, ItemKind
from slackwater.adapter.catalog.ops import AlterItem, CatalogOp, DropItem
from slackwater.adapter.controllers.dataflows import Dataflows, definition_of
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.reading.reads import Reads
from slackwater.adapter.sessions.sessions import Execution
from slackwater.adapter.time.timeline import Timeline
from slackwater.adapter.writing.group_commit import GroupCommitter
from slackwater.compute.cost_model import CostModel
from slackwater.compute.dataflow import Dataflow, Input, ViewExport
from slackwater.compute.definitions import Definition
from slackwater.compute.engine import Engine
from slackwater.compute.flow_shards import FlowShards
from slackwater.compute.limits import Limits
from slackwater.compute.planning import Planner
from slackwater.compute.recomputation import Recomputation
from slackwater.compute.schedule import Tick
from slackwater.compute.tick_outcome import TickMeter
from slackwater.controller.holds import Holder, HoldKind
from slackwater.persist.appends import Append, UpperMismatch
from slackwater.persist.consolidate import consolidate
from slackwater.persist.negation import Negation, negation_of
from slackwater.persist.parts import FileBody, NewPart, Part
from slackwater.persist.transactions import Step
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.canonical import to_sql
from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.parse import parse
from slackwater.repr.dataflow_error import ERRORS
from slackwater.repr.errors import FatalError, user_error
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN, RelationDesc, quote_identifier

ATTEMPTS = 5
"""The most attempts to commit, of which each begins where the view has come to meanwhile."""
LONGEST_S = 10.0
"""For so long, in seconds, nobody maintains the view while its replacement does not come."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """A view and its replacement."""

    view: CatalogItem
    other: CatalogItem

    @property
    def desc(self) -> RelationDesc:
        return self.view.stored.desc


@dataclass(frozen=True, slots=True)
class Replacements:
    """Applies replacements. Thread-safe, as its parts are."""

    changes: Changes
    relations: Relations
    timeline: Timeline
    reads: Reads
    committer: GroupCommitter
    engine: Engine
    planner: Planner
    dataflows: Dataflows
    limits: Limits

    def apply(self, execution: Execution, statement: st.AlterApplyReplacement) -> None:
        """Lets the replacement take the place of the view. Returns when that is durable.

        Waits until the replacement has caught up; readers of the view do not. Raises
        SLACKWATER_NO_REPLACEMENT, SLACKWATER_WAIT_TIMEOUT, SLACKWATER_CONCURRENT_CHANGE, and the
        error that the replacement has in its data.
        """
        named = self.changes.existing_name(
            execution, ItemKind.MATERIALIZED_VIEW, statement.name, if_exists=statement.if_exists
        )
        if named is None:
            return
        state = self.changes.state
        view = state.get(*named, ItemKind.MATERIALIZED_VIEW)
        at = execution.context.resolve(statement.replacement)
        pair = _Pair(view, state.get(*at, ItemKind.MATERIALIZED_VIEW))
        if pair.other.replaces != view.id:
            raise user_error(
                "SLACKWATER_NO_REPLACEMENT",
                objectName=pair.other.full_name,
                viewName=view.full_name,
            )
        # From here on what both differ by can be told, and they go on together.
        begin = max(self.timeline.read_ts(), _details(pair.other).as_of)
        for item in (pair.other, pair.view):
            self.reads.wait_complete(item, begin, execution.cancellation)
        holder = Holder(HoldKind.DEFINITION, pair.other.id)
        hold = self.relations.hold([pair.view, pair.other], holder)
        try:
            self._apply(execution, pair)
        finally:
            self.relations.storage.release(hold)
            self.planner.forget(view.id, _details(pair.other).settings)

    def _apply(self, execution: Execution, pair: _Pair) -> None:
        uppers = (self._upper(pair.view), self._upper(pair.other))
        known = Timestamp(min(uppers) - 1)
        difference = self._difference(pair, known)
        after = _redefined(pair)
        definition = definition_of(after, self.changes.state)
        self.planner.leave(
            after.id,
            definition,
            self.planner.plan(after.full_name, definition, _details(after).settings),
        )
        with self.changes.defining(execution.cancellation):
            items = self.changes.state.items
            if any(items.get(each.id) is not each for each in (pair.view, pair.other)):
                raise user_error("SLACKWATER_CONCURRENT_CHANGE", objectName=pair.view.full_name)
            self.dataflows.drop([pair.view])
            try:
                self._commit(execution, pair, after, difference, known)
            except BaseException:
                if self.changes.state.items.get(pair.view.id) is pair.view:
                    self.dataflows.create_again([pair.view])
                raise

    def _commit(
        self,
        execution: Execution,
        pair: _Pair,
        after: CatalogItem,
        difference: Negation,
        known: Timestamp,
    ) -> None:
        """The definition and the difference in one commit; the view is not maintained meanwhile."""
        ops: list[CatalogOp] = [
            AlterItem(
                after.id,
                details=after.details,
                create_sql=after.create_sql,
                depends_on=after.depends_on,
                cluster=after.cluster,
            ),
            DropItem(pair.other.id, replaces=True),
        ]
        for attempt in range(1, ATTEMPTS + 1):
            reached = self._wait_beyond(execution, pair)
            appends = self._appends(pair, difference, known, reached)

            def write(step: Step, appends: Sequence[Append] = appends) -> None:
                self.relations.persist.commits.commit(appends, steps=(step,))
                # Nobody may see the definition before the contents that belong to it.
                upper = Frontier(appends[0].upper)
                self.relations.storage.report([(pair.view.id, upper)])

            def make(_: Connection) -> Sequence[CatalogOp]:
                return ops

            try:
                self.changes.commit_with_write(make, execution.user, write)
            except UpperMismatch:
                # What its dataflow had offered before was committed.
                if attempt == ATTEMPTS:
                    raise user_error(
                        "SLACKWATER_CONCURRENT_CHANGE", objectName=pair.view.full_name
                    ) from None
                continue
            return

    def _wait_beyond(self, execution: Execution, pair: _Pair) -> tuple[Timestamp, Timestamp]:
        """The uppers of both shards, once the replacement's is the later one.

        Both are as far as tables are, which move on for that. Raises SLACKWATER_WAIT_TIMEOUT when
        the replacement does not follow.
        """
        found: list[tuple[Timestamp, Timestamp]] = []

        def is_beyond() -> bool:
            uppers = self._upper(pair.view), self._upper(pair.other)
            found[:] = [uppers]
            return uppers[0] < uppers[1]

        cancellation = execution.cancellation
        longest_s = min(LONGEST_S, cancellation.left_s())
        if not is_beyond():
            with suppress(FutureTimeout):
                self.committer.flush(longest_s)
        if not self.timeline.watch.wait_until(is_beyond, longest_s, cancellation):
            raise user_error(
                "SLACKWATER_WAIT_TIMEOUT",
                objectName=pair.other.full_name,
                timestamp=str(found[0][0]),
                seconds=f"{longest_s:g}",
                complete=str(found[0][1] - 1),
                reason="",
            )
        return found[0]

    def _upper(self, item: CatalogItem) -> Timestamp:
        return self.relations.persist.reads.state(item.stored.shard_id).upper

    # The difference

    def _difference(self, pair: _Pair, at: Timestamp) -> Negation:
        """The rows that the replacement has more than the view at `at`, for the view's shard.

        Raises the error that the replacement has then.
        """
        persist, view, other = self.relations.persist, pair.view, pair.other
        relation = ".".join(map(quote_identifier, (CATALOG_NAME, view.schema_name, view.name)))
        definition = Definition(f"SELECT * FROM {relation}", CATALOG_NAME, (view.schema_name,))
        settings = _details(other).settings
        plan = self.planner.plan(view.full_name, definition, settings)
        self.relations.refuse_errors(other, at, Timestamp(at + 1))
        try:
            # The view's rows without the replacement's, of which the negation is wanted.
            flow = Dataflow(
                global_id=view.id,
                name=view.full_name,
                plan=plan,
                inputs={view.id: Input(view.stored.shard_id, view.stored.desc)},
                as_of=Timestamp(0),
                export=ViewExport(other.stored.desc, other.stored.shard_id, _errors(other)),
            )
            shards = FlowShards(flow, persist, self.limits)
            costs = CostModel(self.limits.incremental_below_rows)
            engine = self.engine.under(settings)
            tick = Tick(view.id, Timestamp(at + 1), Timestamp(at + 2), False)
            less = Recomputation(shards, engine, costs).contents(tick, at, TickMeter()).rows.parts
        finally:
            self.planner.give_back(plan, settings)
        return self._negated(pair, less)

    def _negated(self, pair: _Pair, made: Sequence[NewPart]) -> Negation:
        """The negation of the parts, a part after the other."""
        persist, shard_id = self.relations.persist, pair.view.stored.shard_id

        def read(parts: Sequence[Part]) -> pa.Table:
            return persist.reads.read(parts, pair.desc)

        empty = consolidate(read([]).drop_columns([TIME_COLUMN]))
        whole = Negation((), empty, persist.files, shard_id)
        for part in made:
            stood = Part(
                0,
                shard_id,
                part.min_time,
                Timestamp(part.max_time + 1),
                part.body,
                part.rows,
                part.min_time,
                part.max_time,
                part.has_retractions,
            )
            one = negation_of([stood], read, persist.files, shard_id)
            rows = pa.concat_tables([whole.rows, one.rows])
            whole = Negation((*whole.files, *one.files), rows, persist.files, shard_id)
            if isinstance(part.body, FileBody):
                persist.files.blobs.delete(part.body.uri)
        return whole

    def _appends(
        self,
        pair: _Pair,
        difference: Negation,
        known: Timestamp,
        reached: tuple[Timestamp, Timestamp],
    ) -> tuple[Append, Append]:
        """The rows and the errors of the view from its upper up to that of the replacement."""
        lower, upper = reached
        rows = self._since(pair, known, reached)
        files = self.relations.persist.files
        shard_id = pair.view.stored.shard_id
        parts = (*difference.at(lower), *files.new_parts(shard_id, rows))
        errors = self._changed(
            (_errors(pair.view), _errors(pair.other)), ERRORS, (Timestamp(0), Timestamp(0)), reached
        )
        error_parts = files.new_parts(_errors(pair.view), errors)
        return (
            Append(shard_id, lower, upper, parts),
            Append(_errors(pair.view), lower, upper, error_parts),
        )

    def _since(
        self, pair: _Pair, known: Timestamp, reached: tuple[Timestamp, Timestamp]
    ) -> pa.Table:
        shards = pair.view.stored.shard_id, pair.other.stored.shard_id
        begin = Timestamp(known + 1)
        return self._changed(shards, pair.desc, (begin, begin), reached)

    def _changed(
        self,
        shards: tuple[int, int],
        desc: RelationDesc,
        begins: tuple[Timestamp, Timestamp],
        reached: tuple[Timestamp, Timestamp],
    ) -> pa.Table:
        """Updates of the second shard minus those of the first one, at the first one's upper.

        What the second one has from there on keeps its time.
        """
        reads, (lower, upper) = self.relations.persist.reads, reached
        first = reads.parts_between(shards[0], begins[0], lower)
        second = reads.parts_between(shards[1], begins[1], upper)
        gone = reads.read(first, desc, lower=begins[0], upper=lower)
        come = reads.read(second, desc, lower=begins[1], upper=upper)
        updates = pa.concat_tables([_negative(gone), come])
        times = pc.max_element_wise(updates.column(TIME_COLUMN), pa.scalar(int(lower), pa.int64()))
        position = updates.schema.get_field_index(TIME_COLUMN)
        at = updates.set_column(position, updates.schema.field(position), times)
        return consolidate(at)


def _negative(updates: pa.Table) -> pa.Table:
    position = updates.schema.get_field_index(DIFF_COLUMN)
    diffs = pc.negate(updates.column(DIFF_COLUMN))
    return updates.set_column(position, updates.schema.field(position), diffs)


def _details(view: CatalogItem) -> MaterializedViewDetails:
    return view.of(MaterializedViewDetails)


def _errors(view: CatalogItem) -> int:
    if view.stored.errors_shard is None:
        raise FatalError(f"the view {view.full_name} has no shard of errors")
    return view.stored.errors_shard


def _redefined(pair: _Pair) -> CatalogItem:
    """The view with the definition of its replacement, on the cluster of that."""
    view, other = pair.view, pair.other
    before, after = _details(view), _details(other)
    stated = parse(other.create_sql)
    if not isinstance(stated, st.CreateMaterializedView):
        raise FatalError(f"{other.full_name} has no definition of a materialized view")
    name = QualifiedName((CATALOG_NAME, view.schema_name, view.name))
    return replace(
        view,
        create_sql=to_sql(replace(stated, name=name, replaces=None)),
        depends_on=tuple(each for each in other.depends_on if each != view.id),
        details=replace(after, replaces=None, as_of=before.as_of, errors=before.errors),
        cluster=other.cluster,
    )
