"""The rows of EXPLAIN INCREMENTAL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slackwater.planner.delta.join_order import join_of
from slackwater.planner.delta.lowering import is_accumulated
from slackwater.planner.plan.algebra import (
    Aggregate,
    AnalyzedPlan,
    Constant,
    Expand,
    Filter,
    Generate,
    Join,
    JoinKind,
    NodeNumber,
    Operator,
    Project,
    Sort,
    Source,
    TemporalFilter,
    Union,
    Window,
)

LINEAR: Mapping[type[Operator], str] = {
    Project: "Project",
    Filter: "Filter",
    Expand: "Expand",
    Generate: "Explode",
    Union: "UnionAll",
    Sort: "Sort",
}


@dataclass(frozen=True, slots=True)
class ExplainRow:
    """One operator. `parent` is the id of its consumer, None for the root.

    `maintenance`: linear, bilinear, accumulable, keyed or recompute. `reason` and `advice` say
    why an operator is not maintained in steps, and what helps; else the reason says what it costs.
    """

    id: int
    parent: int | None
    operator: str
    maintenance: str
    reason: str | None
    advice: str | None


RECOMPUTED = "Let views that are maintained do the joins and aggregates, and read them in this one."
"""What helps where a view is recomputed."""


def explain_recomputed(
    plan: AnalyzedPlan, names: Mapping[str, str], reason: str
) -> tuple[ExplainRow, ...]:
    """A view that is recomputed whenever one of its collections changes."""
    root = ExplainRow(0, None, "Recompute", "recompute", reason, RECOMPUTED)
    read = (
        ExplainRow(i, 0, f"Collection {names.get(each, each)}", "linear", None, None)
        for i, each in enumerate(plan.collections, 1)
    )
    return (root, *read)


def explain_program(plan: AnalyzedPlan, names: Mapping[str, str]) -> tuple[ExplainRow, ...]:
    """The operators of the plan, the root first, each before its inputs.

    `names` are those of the collections. An operator that several others read appears below each.
    """
    rows: list[ExplainRow] = []

    def visit(number: NodeNumber, parent: int | None) -> None:
        operator, maintenance, reason = _described(plan, number, names)
        own = len(rows)
        rows.append(ExplainRow(own, parent, operator, maintenance, reason, None))
        for below in _inputs(plan, number):
            visit(below, own)

    visit(plan.root, None)
    return tuple(rows)


def _inputs(plan: AnalyzedPlan, number: NodeNumber) -> tuple[NodeNumber, ...]:
    node = plan.nodes[number]
    return join_of(plan, number).inputs if _is_inner(node) else node.inputs


def _is_inner(node: Operator) -> bool:
    return isinstance(node, Join) and node.kind in (JoinKind.INNER, JoinKind.CROSS)


def _described(
    plan: AnalyzedPlan, number: NodeNumber, names: Mapping[str, str]
) -> tuple[str, str, str | None]:
    match plan.nodes[number]:
        case Source(collection=collection):
            return f"Collection {names.get(collection, collection)}", "linear", None
        case Constant():
            return "Constant", "linear", "It never changes."
        case TemporalFilter():
            reason = "Rows wait in memory for the times at which they begin and end to be valid."
            return "TemporalFilter", "linear", reason
        case Join() as join if _is_inner(join):
            reason = "Each input's changes are looked up in arrangements of the others."
            return f"Join of {len(join_of(plan, number).inputs)}", "bilinear", reason
        case Join(kind=kind, keys=keys):
            reason = "Changes of each side are looked up in an arrangement of the other."
            if not keys:
                reason = "No columns are equal: each change is compared with the other side's rows."
            return f"{kind.value.replace('_', ' ').capitalize()} join", "keyed", reason
        case Aggregate() as aggregate:
            return _aggregate(plan, aggregate)
        case Window() as window:
            return "Window", "keyed", _partitions(plan, window)
        case node:
            return LINEAR[type(node)], "linear", None


def _partitions(plan: AnalyzedPlan, node: Window) -> str:
    if not node.partition:
        return "There is no PARTITION BY: the whole input is computed again from its rows."
    keys = ", ".join(plan.handles[each].sql for each in node.partition)
    return f"The partitions by {keys} that changed are computed again from their rows."


def _aggregate(plan: AnalyzedPlan, node: Aggregate) -> tuple[str, str, str]:
    if node.session is not None:
        others = [
            plan.handles[g.handle].sql for n, g in enumerate(node.groups) if n != node.session
        ]
        whose = f" by {', '.join(others)} that changed" if others else ""
        return "Aggregate", "keyed", f"The sessions{whose} are computed again from their rows."
    if all(is_accumulated(plan, call) for call in node.aggregates):
        operator = "Aggregate" if node.aggregates else "Distinct"
        return operator, "accumulable", "Only the groups that changed are touched."
    again = dict.fromkeys(c.function for c in node.aggregates if not is_accumulated(plan, c))
    subject = "The groups that changed are" if node.groups else "The whole input is"
    return (
        "Aggregate",
        "keyed",
        f"{subject} computed again from the rows, for {', '.join(again)}.",
    )
