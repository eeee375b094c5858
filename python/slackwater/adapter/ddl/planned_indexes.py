"""Indexes as objects: the analysis and the plans of their keys."""

from __future__ import annotations

from collections.abc import Iterable

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.model import CATALOG_NAME, CatalogItem
from slackwater.adapter.catalog.settings import refuse_other_settings
from slackwater.adapter.controllers.dataflows import definition_of, index_query, settings_of
from slackwater.adapter.controllers.relations import Relations
from slackwater.compute.engine import Analysis, Engine
from slackwater.compute.planning import Planner
from slackwater.repr.ids import GlobalId


class Indexes:
    """Plans indexes."""

    def __init__(self, relations: Relations, engine: Engine, planner: Planner) -> None:
        self._relations = relations
        self._engine = engine
        self._planner = planner

    def analyzed(self, on: CatalogItem, keys: Iterable[str], context: Context) -> Analysis:
        """Spark's analysis of the query whose rows an index with these keys has."""
        engine = self._engine.under(context.settings)
        query = index_query(on, keys)
        return engine.analyze(query, CATALOG_NAME, (on.schema_name,), context.functions)

    def refuse_other_settings(self, name: str, analysis: Analysis, context: Context) -> None:
        """Raises SLACKWATER_UNSUPPORTED when a view below means something else under `context`."""
        for below in analysis.views:
            view = self._relations.item(GlobalId(below))
            refuse_other_settings(name, context.settings, view)

    def plan_ahead(self, item: CatalogItem) -> None:
        """Leaves the plan of the index for the replica that maintains it.

        Raises SLACKWATER_UNSUPPORTED when the keys, or the query of the plain view that they are
        of, cannot be maintained.
        """
        definition = definition_of(item, self._relations.state)
        plan = self._planner.plan(item.full_name, definition, settings_of(item))
        self._planner.leave(item.id, definition, plan)

    def forget(self, item: CatalogItem) -> None:
        """Drops the plan of an index that was not created."""
        if item.id not in self._relations.state.items:
            self._planner.forget(item.id, settings_of(item))
