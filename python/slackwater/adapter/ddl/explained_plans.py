"""EXPLAIN OPTIMIZED PLAN and EXPLAIN PHYSICAL PLAN: by which operators a query is maintained.

Source: docs/decisions 0106.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.model import CatalogItem
from slackwater.adapter.controllers.dataflows import settings_of
from slackwater.adapter.ddl.planned_views import Views
from slackwater.compute.engine import ViewPlan
from slackwater.planner.delta.explain import REFRESHED
from slackwater.planner.delta.program_text import program_text
from slackwater.planner.parser import statements as st
from slackwater.planner.plan.text import plan_text, plan_values
from slackwater.repr.ids import GlobalId


@dataclass(frozen=True, slots=True)
class ExplainedPlans:
    """Plans for people, and as JSON. Nothing is kept of them, and nothing is run."""

    views: Views

    def of_item(self, item: CatalogItem, statement: st.ExplainPlan) -> str:
        """The plan of a materialized view or an index, as it is planned from now on."""
        plan = self.views.plan(item)
        schedule = None if item.refresh is None else REFRESHED
        return self._shown(plan, settings_of(item), statement, schedule)

    def of_query(
        self, text: str, context: Context, cluster: GlobalId | None, statement: st.ExplainPlan
    ) -> str:
        """The plan of a materialized view of that query. Raises what `Views.plan_query` raises."""
        plan = self.views.plan_query(text, context, cluster)
        return self._shown(plan, context.settings, statement, None)

    def _shown(
        self,
        plan: ViewPlan,
        settings: Mapping[str, str] | None,
        statement: st.ExplainPlan,
        schedule: str | None,
    ) -> str:
        self.views.planner.give_back(plan, settings)
        analyzed, program = plan.kept.plan, None if schedule else plan.program
        recomputed = None if program is not None else schedule or plan.reason
        if statement.format == "JSON":
            found: dict[str, Any] = {"plan": plan_values(analyzed)}
            if statement.stage == "PHYSICAL":
                steps = None if program is None else json.loads(program.to_json())
                found |= {"program": steps, "recomputed": recomputed}
            return json.dumps(found)
        named = (self.views.relations.item(GlobalId(each)) for each in analyzed.collections)
        names = {str(each.id): each.full_name for each in named}
        if statement.stage == "OPTIMIZED":
            return plan_text(analyzed, names)
        if program is None:
            return f"recomputed: {recomputed}"
        return program_text(analyzed, program, names)
