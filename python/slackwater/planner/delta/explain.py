"""The rows of EXPLAIN INCREMENTAL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from slackwater.planner.plan.nodes import (
    Aggregate,
    Collection,
    Constant,
    Explode,
    Filter,
    Join,
    Opaque,
    Plan,
    Project,
    UnionAll,
    ViewPlan,
    Without,
    children,
)
from slackwater.repr.ids import GlobalId


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


def explain(view: ViewPlan, names: Mapping[GlobalId, str] = {}) -> tuple[ExplainRow, ...]:
    """The operators of the plan, the root first, each before its inputs.

    `names` are those of the collections; one that has none is called by its id.
    """
    rows: list[ExplainRow] = []

    def visit(node: Plan, parent: int | None) -> None:
        operator, maintenance, reason, advice = _described(node, names)
        own = len(rows)
        rows.append(ExplainRow(own, parent, operator, maintenance, reason, advice))
        for child in children(node):
            visit(child, own)

    visit(view.root, None)
    return tuple(rows)


def _described(
    node: Plan, names: Mapping[GlobalId, str]
) -> tuple[str, str, str | None, str | None]:
    match node:
        case Collection():
            name = names.get(node.global_id, node.global_id)
            return f"Collection {name}", "linear", None, None
        case Constant():
            return "Constant", "linear", "It never changes.", None
        case Project():
            return "Project", "linear", None, None
        case Filter():
            return "Filter", "linear", None, None
        case Explode():
            return "Explode", "linear", None, None
        case UnionAll(meaning=meaning) if meaning:
            reason = "Rows without a partner come and go with the keys of the other side."
            return meaning, "keyed", reason, None
        case UnionAll():
            return "UnionAll", "linear", None, None
        case Without():
            reason = "Rows come and go with the keys of the other side."
            return node.meaning, "keyed", reason, None
        case Join():
            reason = "Each input's changes are joined with the contents of the others."
            return f"Join of {len(node.inputs)}", "bilinear", reason, None
        case Aggregate() if node.is_keyed:
            return "Aggregate", "keyed", _keyed(node), None
        case Aggregate():
            operator = "Aggregate" if node.accumulators else "Distinct"
            return operator, "accumulable", "Only the groups that changed are touched.", None
        case Opaque():
            return "Recompute", "recompute", node.reason, node.advice


def _keyed(node: Aggregate) -> str:
    names = dict.fromkeys(_name(call) for call in node.calls)
    subject = "The groups that changed are" if node.keys else "The whole input is"
    return f"{subject} computed again from the rows, for {', '.join(names)}."


def _name(call: exp.Expr) -> str:
    return call.sql(dialect="spark").partition("(")[0].lower()
