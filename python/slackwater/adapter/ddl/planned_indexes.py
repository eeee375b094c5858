"""Indexes as objects: their plans and dataflows."""

from __future__ import annotations

from collections.abc import Iterable

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import IndexDetails
from slackwater.adapter.catalog.model import CATALOG_NAME, CatalogItem
from slackwater.adapter.controllers.collections import retention
from slackwater.adapter.controllers.relations import Relations
from slackwater.compute.dataflow import Dataflow, IndexExport, Input
from slackwater.compute.engine import Analysis, Engine, ViewPlan
from slackwater.planner.delta.lowering import NotMaintained, index_of
from slackwater.repr.errors import unsupported
from slackwater.repr.frontier import TIMESTAMP_MIN
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import quote_identifier


class Indexes:
    """Plans the dataflows of indexes."""

    def __init__(self, relations: Relations, engine: Engine) -> None:
        self._relations = relations
        self._engine = engine
        self._planned: dict[GlobalId, ViewPlan] = {}

    def analyzed(self, on: CatalogItem, keys: Iterable[str], context: Context) -> Analysis:
        """Spark's analysis of the query whose rows an index with these keys has."""
        engine = self._engine.under(context.settings)
        return engine.analyze(_query(on, keys), CATALOG_NAME, (on.schema_name,), context.functions)

    def plan_ahead(self, item: CatalogItem) -> None:
        """Plans the index, so that `dataflow`, which may be called under the lock, need not."""
        self._planned[item.id] = self._plan(item)

    def forget(self, item: CatalogItem) -> None:
        """Drops the plan of an index that is not created; that of another stays."""
        unused = self._planned.pop(item.id, None)
        if unused is not None:
            engine = self._engine.under(item.of(IndexDetails).settings)
            engine.forget_plan(unused.kept.plan_id)

    def dataflow(self, item: CatalogItem) -> Dataflow:
        """The dataflow that maintains the index."""
        plan = self._planned.pop(item.id, None) or self._plan(item)
        on = self._relations.item(item.depends_on[0])
        read, details = on.stored, item.of(IndexDetails)
        return Dataflow(
            global_id=item.id,
            name=item.full_name,
            plan=plan,
            inputs={on.id: Input(read.shard_id, read.desc, read.errors_shard, on.full_name)},
            as_of=TIMESTAMP_MIN,
            export=IndexExport(len(details.keys), retention(item).lag_ms),
            settings=details.settings,
        )

    def _plan(self, item: CatalogItem) -> ViewPlan:
        """Raises SLACKWATER_UNSUPPORTED when the keys cannot be maintained."""
        details, on = item.of(IndexDetails), self._relations.item(item.depends_on[0])
        engine = self._engine.under(details.settings)
        kept = engine.plan(_query(on, details.keys), CATALOG_NAME, (on.schema_name,))
        try:
            return ViewPlan(kept, index_of(kept.plan, len(details.keys)))
        except NotMaintained as missing:
            engine.forget_plan(kept.plan_id)
            raise unsupported(
                f"The index {item.full_name} with {missing.reason}",
                advice="Use columns, or expressions of the rows alone, as keys.",
            ) from None


def _query(on: CatalogItem, keys: Iterable[str]) -> str:
    relation = ".".join(map(quote_identifier, (CATALOG_NAME, on.schema_name, on.name)))
    named = [f"({key}) AS key{position}" for position, key in enumerate(keys)]
    return f"SELECT *, {', '.join(named)} FROM {relation}"
