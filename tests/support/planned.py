"""Plans for engines that are not Spark: they name what a query reads, and nothing more."""

from __future__ import annotations

from collections.abc import Sequence

from slackwater.adapter.catalog.model import CatalogItem
from slackwater.planner.plan.algebra import AnalyzedPlan, Column, Source, SparkType
from slackwater.repr.relation import RelationDesc


def plan_over(items: Sequence[CatalogItem], schema: RelationDesc, text: str) -> AnalyzedPlan:
    """The plan of a query with the columns of `schema`, which reads `items`."""
    columns: list[Column] = []
    nodes = []
    for item in items:
        begin = len(columns)
        columns += [Column(c.name, SparkType(c.type_json), True) for c in item.desc.columns]
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
