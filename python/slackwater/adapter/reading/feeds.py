"""The feed of a query."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.controllers.feeds import FeedHold
from slackwater.adapter.controllers.relations import Relations
from slackwater.compute.engine import Engine
from slackwater.persist.consolidate import consolidate
from slackwater.repr.dataflow_error import ERRORS
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import DIFF_COLUMN, DIFF_FIELD, TIME_COLUMN, RelationDesc, updates_at


@dataclass(frozen=True, slots=True)
class FeedQuery:
    """A query with the context of its names, its columns, and the collections that it reads."""

    text: str
    context: Context
    desc: RelationDesc
    inputs: tuple[GlobalId, ...]


class QueryFeed:
    """The feed of a query: at each time at which an input changed, its new answer minus the old."""

    def __init__(
        self,
        relations: Relations,
        engine: Engine,
        query: FeedQuery,
        hold: FeedHold,
    ) -> None:
        self._relations = relations
        self._engine = engine.under(query.context.settings)
        self._query = query
        self._desc = query.desc
        self._hold = hold
        self._known: tuple[Timestamp, pa.Table] | None = None

    @property
    def desc(self) -> RelationDesc:
        return self._desc

    def frontier(self) -> Frontier:
        return min(self._relations.upper(self._relations.item(i)) for i in self._query.inputs)

    def snapshot(self, time: Timestamp) -> pa.Table:
        answer = self._engine.collect(
            f"SELECT * FROM (\n{self._query.text}\n) AS OF {int(time)}",
            self._query.context.catalog,
            self._query.context.namespace,
        )
        rows = pa.Table.from_arrays(answer.columns, names=list(self._desc.stored_names)).cast(
            self._desc.arrow_schema()
        )
        self._known = (time, consolidate(updates_at(rows, time, 1)))
        return self._known[1]

    def updates(self, lower: Timestamp, upper: Timestamp) -> pa.Table:
        found = [self._desc.update_schema().empty_table()]
        for time in self._times(lower, upper):
            before = self._answer_before(time)
            after = self.snapshot(time)
            width = len(self._desc.columns)
            negated = updates_at(before.select(range(width)), time, 0).set_column(
                width + 1,
                DIFF_FIELD,
                pc.negate(before[DIFF_COLUMN]),
            )
            found.append(consolidate(pa.concat_tables([negated, after])))
        return pa.concat_tables(found)

    def release(self, time: Timestamp | None) -> None:
        self._hold.release(time)

    def forget(self) -> None:
        """Keeps no answer: the next updates do not begin where the last ended."""
        self._known = None

    def _answer_before(self, time: Timestamp) -> pa.Table:
        if self._known is not None and self._known[0] < time:
            return self._known[1]
        return self.snapshot(Timestamp(time - 1))

    def _times(self, lower: Timestamp, upper: Timestamp) -> list[Timestamp]:
        times: set[Timestamp] = set()
        for item in map(self._relations.item, self._query.inputs):
            if item.shard_id is not None and item.desc is not None:
                times |= self._times_of(item.shard_id, item.desc, lower, upper)
            # When an error begins or ends its rows need not change: then the query is asked too.
            if item.errors_shard is not None:
                times |= self._times_of(item.errors_shard, ERRORS, lower, upper)
        return sorted(times)

    def _times_of(
        self, shard_id: int, desc: RelationDesc, lower: Timestamp, upper: Timestamp
    ) -> set[Timestamp]:
        parts = self._relations.persist.reads.parts_between(shard_id, lower, upper)
        # No columns but the time and the diff, which are always read.
        table = self._relations.persist.reads.read(
            parts, desc, lower=lower, upper=upper, columns=()
        )
        return {Timestamp(t) for t in pc.unique(table[TIME_COLUMN]).to_pylist()}
