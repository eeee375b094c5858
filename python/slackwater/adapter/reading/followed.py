"""Subscriptions to queries, whose changes a dataflow of a cluster follows."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from slackwater.adapter.catalog.details import MaterializedViewDetails
from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.adapter.controllers.dataflows import Dataflows, Interval, definition_of
from slackwater.adapter.reading.feeds import FeedQuery, QueryFeed
from slackwater.compute.controller.effects import DeliverSubscribe
from slackwater.compute.controller.errors import ComputeError
from slackwater.compute.controller.protocol import SubscribeUpdate
from slackwater.compute.controller.shell import Follow
from slackwater.compute.engine import Analysis
from slackwater.compute.planning import Planner
from slackwater.persist.ipc import from_stream
from slackwater.planner.delta.lowering import invalid_mz_now_use
from slackwater.repr.errors import user_error
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN, RelationDesc

MOST_WAITING_BYTES = 64 << 20
"""So much that nobody has fetched is kept of a subscription; then its dataflow begins anew."""


@dataclass(slots=True)
class FollowedQuery:
    """The dataflow of one subscription. It may be opened again when it has been closed."""

    item: CatalogItem
    until: Timestamp
    planner: Planner
    dataflows: Dataflows

    def open(self, as_of: Timestamp, follow: Follow) -> bool:
        """Follows the changes after `as_of`. False: the cluster is gone, or what is read."""
        if as_of + 1 >= self.until:
            return False
        try:
            self.dataflows.subscribe(self.item, Interval(as_of, self.until), follow)
        except ComputeError:
            return False
        return True

    def close(self) -> None:
        """Ends what `open` began."""
        self.dataflows.unsubscribe(self.item)
        self.planner.forget(self.item.id, self.item.of(MaterializedViewDetails).settings)


@dataclass(frozen=True, slots=True)
class FollowedQueries:
    """Plans the dataflows of subscriptions."""

    planner: Planner
    dataflows: Dataflows
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1), init=False)

    def planned(
        self, query: FeedQuery, analysis: Analysis, cluster: GlobalId, until: Timestamp
    ) -> FollowedQuery | None:
        """The dataflow that follows the query; None: no program does.

        Raises SLACKWATER_TEMPORAL_FILTER when the query changes with time and has no program, since
        nobody knows when.
        """
        item = _item(GlobalId(f"t{next(self._numbers)}"), query, analysis, cluster)
        definition = definition_of(item, self.dataflows.state())
        plan = self.planner.plan(item.full_name, definition, query.context.settings)
        if plan.program is not None:
            self.planner.leave(item.id, definition, plan)
            return FollowedQuery(item, until, self.planner, self.dataflows)
        self.planner.give_back(plan, query.context.settings)
        if not analysis.uses_mz_now:
            return None
        raise user_error(
            "SLACKWATER_TEMPORAL_FILTER",
            objectName="a SUBSCRIBE",
            reason=invalid_mz_now_use(plan.kept.plan)
            or f"the query would have to be computed at each time: {plan.reason}",
        )


def _item(
    global_id: GlobalId, query: FeedQuery, analysis: Analysis, cluster: GlobalId
) -> CatalogItem:
    context = query.context
    read = dict.fromkeys([*analysis.relations, *analysis.views])
    return CatalogItem(
        id=global_id,
        kind=ItemKind.VIEW,
        schema_name=context.namespace[0],
        name=f"SUBSCRIBE {global_id}",
        create_sql="",
        desc=query.desc,
        depends_on=tuple(GlobalId(each) for each in read),
        details=MaterializedViewDetails(
            query=query.text,
            catalog=context.catalog,
            namespace=context.namespace,
            settings=context.settings,
            functions=analysis.functions,
        ),
        cluster=cluster,
    )


@dataclass(slots=True)
class _Delivered:
    """The changes that a dataflow has delivered and nobody has taken. Thread-safe.

    `reached`: everything before it has come. Nothing comes any more once the dataflow `has_failed`,
    or more than `most_bytes` wait: it `is_full` then.
    """

    reached: Timestamp
    most_bytes: int
    has_failed: bool = False
    is_full: bool = False
    _updates: list[SubscribeUpdate] = field(default_factory=list)
    _bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def follow(self, part: DeliverSubscribe) -> None:
        """Takes what has come next."""
        with self._lock:
            if self.has_failed or self.is_full:
                return
            if part.error is not None:
                self.has_failed = True
                return
            self._updates += part.updates
            self._bytes += sum(len(each.rows) for each in part.updates)
            self.reached = max(self.reached, Timestamp(part.upper.value))
            self.is_full = self._bytes > self.most_bytes

    def take(self, upper: Timestamp) -> list[SubscribeUpdate]:
        """The changes before `upper`."""
        with self._lock:
            taken = [each for each in self._updates if each.time < upper]
            self._updates = [each for each in self._updates if each.time >= upper]
            self._bytes -= sum(len(each.rows) for each in taken)
            return taken


@dataclass(slots=True)
class FollowedFeed:
    """The feed of a query: its answer at the first time, then what a dataflow delivers.

    Where the dataflow cannot follow a change, `answers` has it, and the dataflow begins anew after
    it. So it is when a row makes the query fail: then the answer says why.
    """

    answers: QueryFeed
    dataflow: FollowedQuery
    as_of: Timestamp
    most_waiting_bytes: int = MOST_WAITING_BYTES
    _given: Timestamp = field(init=False)
    """The changes before it were given."""
    _delivered: _Delivered | None = field(init=False)
    """None: there is no dataflow."""
    _turn: threading.Lock = field(default_factory=threading.Lock, init=False)
    _is_released: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._given = Timestamp(self.as_of + 1)
        # What has changed since then comes with the answer: nothing is given before it is there.
        self._delivered = self._begun(self.as_of, self.as_of)

    @property
    def desc(self) -> RelationDesc:
        return self.answers.desc

    def frontier(self) -> Frontier:
        inputs, delivered = self.answers.frontier(), self._delivered
        if delivered is None or (delivered.has_failed and delivered.reached <= self._given):
            return inputs
        return min(inputs, Frontier(delivered.reached))

    def snapshot(self, time: Timestamp) -> pa.Table:
        rows = self.answers.snapshot(time)
        self.answers.forget()
        return rows

    def updates(self, lower: Timestamp, upper: Timestamp) -> pa.Table:
        delivered = self._delivered
        if delivered is None:
            return self.answers.updates(lower, upper)
        if delivered.reached < upper:
            found = self.answers.updates(lower, upper)
            self.answers.forget()
            begins_anew = True
        else:
            found = self._table(delivered.take(upper))
            begins_anew = delivered.is_full and delivered.reached == upper
        self._given = upper
        if begins_anew:
            self._begin_anew(upper)
        return found

    def release(self, time: Timestamp | None) -> None:
        if time is None:
            with self._turn:
                self._is_released = True
                self.dataflow.close()
        self.answers.release(time)

    def _begin_anew(self, upper: Timestamp) -> None:
        """Follows the changes from `upper` on, unless the cursor was closed meanwhile."""
        with self._turn:
            if not self._is_released:
                self.dataflow.close()
                self._delivered = self._begun(Timestamp(upper - 1), upper)

    def _begun(self, as_of: Timestamp, reached: Timestamp) -> _Delivered | None:
        delivered = _Delivered(reached, self.most_waiting_bytes)
        return delivered if self.dataflow.open(as_of, delivered.follow) else None

    def _table(self, updates: list[SubscribeUpdate]) -> pa.Table:
        schema = self.desc.update_schema()
        names = [*self.desc.stored_names, TIME_COLUMN, DIFF_COLUMN]
        tables = (from_stream(each.rows).rename_columns(names).cast(schema) for each in updates)
        return pa.concat_tables([schema.empty_table(), *tables])
