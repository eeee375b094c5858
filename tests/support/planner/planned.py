"""Plans for engines that are not Spark: they name what a query reads, and nothing more."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.adapter.coordination import NoSpark

from slackwater.adapter.catalog.model import CatalogItem
from slackwater.compute.engine import Analysis, KeptPlan
from slackwater.planner.plan.algebra import AnalyzedPlan, PlanColumn, Source, SparkType
from slackwater.repr.relation import RelationDesc


def plan_over(items: Sequence[CatalogItem], schema: RelationDesc, text: str) -> AnalyzedPlan:
    """The plan of a query with the columns of `schema`, which reads `items`."""
    columns: list[PlanColumn] = []
    nodes = []
    for item in items:
        begin = len(columns)
        columns += [PlanColumn(c.name, SparkType(c.type_json), True) for c in item.desc.columns]
        nodes.append(Source(item.id, item.desc.names, tuple(range(begin, len(columns)))))
    return AnalyzedPlan(
        nodes=tuple(nodes),
        root=len(nodes) - 1,
        columns=tuple(columns),
        handles=(),
        collections=tuple(item.id for item in items),
        names=schema.names,
        schema=schema,
        fingerprint=text,
    )


class Answers:
    """Spark that says at once of each query that it is of the keys of the table `t`, and empty."""

    ended_by = NoSpark.ended_by
    rows_read = NoSpark.rows_read
    under = NoSpark.under
    unite_arrangements = NoSpark.unite_arrangements

    def __init__(self, place=None):
        self.place = place

    def analyze(self, text, catalog, namespace, functions=()):
        table = self.place.item("t")
        return Analysis(RelationDesc.of(k="integer"), (table.id,), (), (table.id,), (), (), False)

    def plan(self, text, catalog, namespace, known=None, indexed=None):
        desc = RelationDesc.of(k="integer")
        return KeptPlan("plan", plan_over([self.place.item("t")], desc, text))

    def forget_plan(self, plan_id):
        pass

    def collect_view(self, view, most_ms=None):
        return view.output.update_schema().empty_table()
