"""An analyzed plan as text, a line for each operator."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_origin

from cattrs import Converter

from slackwater.planner.plan.algebra import (
    Aggregate,
    AggregateCall,
    AnalyzedPlan,
    ColumnNumber,
    Constant,
    Expand,
    Filter,
    Generate,
    HandleNumber,
    Join,
    Limit,
    Operator,
    Other,
    Project,
    Sort,
    SortKey,
    Source,
    TemporalFilter,
    Union,
    Window,
)
from slackwater.repr.relation import RelationDesc


def plan_text(plan: AnalyzedPlan, names: Mapping[str, str]) -> str:
    """The operators, each by its number and those of its inputs, which come before it.

    `names` are those of the collections, by their ids. The last line has the number of the root,
    and the columns of the query. ``#n`` is a column, ``?`` one that may be NULL.
    """
    lines = [
        f"{number} {_operator(plan, node, names)} -> {columns_text(plan, node.out)}"
        for number, node in enumerate(plan.nodes)
    ]
    shape = ", ".join(
        f"{c.name} {_type(c.type_json)}{'' if c.nullable else ' NOT NULL'}"
        for c in plan.schema.columns
    )
    return "\n".join([*lines, f"{plan.root}: {shape}"])


def plan_values(plan: AnalyzedPlan) -> dict[str, Any]:
    """The plan as values for JSON, under the names that `algebra` has for them."""
    values: dict[str, Any] = _converter.unstructure(plan)
    nodes = [{"op": type(node).__name__, **_converter.unstructure(node)} for node in plan.nodes]
    return {**values, "nodes": nodes}


def _is_set(kind: Any) -> bool:
    return get_origin(kind) is frozenset


def _made() -> Converter:
    made = Converter()
    made.register_unstructure_hook(RelationDesc, lambda desc: json.loads(desc.to_json()))
    made.register_unstructure_hook_func(_is_set, sorted)
    return made


_converter = _made()


def columns_text(plan: AnalyzedPlan, numbers: Iterable[ColumnNumber]) -> str:
    """The columns with their names and numbers, and why equal values may differ in their bytes."""
    return ", ".join(_column(plan, number) for number in numbers)


def handle_text(plan: AnalyzedPlan, number: HandleNumber) -> str:
    """The text of an expression, the columns that it reads, and what is unusual of it."""
    handle = plan.handles[number]
    if handle.column is not None:
        return f"#{handle.column}"
    signs = [f"#{column}" for column in handle.columns]
    signs += ["nondeterministic"] if not handle.deterministic else []
    signs += ["now"] if handle.uses_now else []
    signs += ["throws"] if handle.throws else []
    return f"{handle.sql} [{' '.join(signs)}]"


def handles_text(plan: AnalyzedPlan, numbers: Iterable[HandleNumber]) -> str:
    """The texts of expressions, in parentheses."""
    return f"({', '.join(handle_text(plan, number) for number in numbers)})"


def equality_text(
    plan: AnalyzedPlan, sides: tuple[HandleNumber, HandleNumber], *, null_safe: bool
) -> str:
    """The comparison of both expressions; `null_safe`: NULL equals NULL."""
    left, right = (handle_text(plan, each) for each in sides)
    return f"{left} {'<=>' if null_safe else '='} {right}"


def _type(text: str) -> str:
    kind = json.loads(text)
    return str(kind if isinstance(kind, str) else kind["type"])


def _column(plan: AnalyzedPlan, number: ColumnNumber) -> str:
    column = plan.columns[number]
    issues = "".join(f" {issue}!" for issue in sorted(column.type.key_issues))
    return f"{column.name}#{number}{'?' if column.nullable else ''}{issues}"


def _order(plan: AnalyzedPlan, order: Sequence[SortKey]) -> str:
    return ", ".join(
        f"{handle_text(plan, key.handle)} {'asc' if key.ascending else 'desc'}"
        f" nulls {'first' if key.nulls_first else 'last'}"
        for key in order
    )


def _operator(plan: AnalyzedPlan, node: Operator, names: Mapping[str, str]) -> str:
    inputs = "".join(f" {i}" for i in node.inputs)
    match node:
        case Source():
            return (
                f"source {names.get(node.collection, node.collection)} ({', '.join(node.fields)})"
            )
        case Constant():
            return f"constant {node.rows} rows"
        case Project():
            return f"project{inputs} {handles_text(plan, node.exprs)}"
        case Filter():
            return f"filter{inputs} {handles_text(plan, node.conjuncts)}"
        case TemporalFilter():
            bounds = ", ".join(f"{b.comparison} {handle_text(plan, b.handle)}" for b in node.bounds)
            return f"temporal{inputs} (mz_now() {bounds})"
        case Join():
            return f"join {node.kind.value}{inputs}{_condition(plan, node)}"
        case Aggregate():
            groups = ", ".join(f"{handle_text(plan, g.handle)} as #{g.column}" for g in node.groups)
            calls = ", ".join(_call(plan, call) for call in node.aggregates)
            return (
                f"aggregate{inputs} by ({groups}) of ({calls}) {handles_text(plan, node.results)}"
            )
        case Window():
            functions = handles_text(plan, [f.handle for f in node.functions])
            partition = handles_text(plan, node.partition)
            return f"window{inputs} {functions} by {partition} order ({_order(plan, node.order)})"
        case Expand():
            rows = ", ".join(handles_text(plan, row) for row in node.projections)
            return f"expand{inputs} {rows}"
        case Generate():
            outer = " outer" if node.outer else ""
            return f"generate{outer}{inputs} {handle_text(plan, node.handle)}"
        case Union():
            return f"union{inputs}"
        case Sort():
            place = "" if node.is_global else " in partitions"
            return f"sort{place}{inputs} ({_order(plan, node.order)})"
        case Limit():
            return f"limit{inputs} {node.count} offset {node.offset}"
        case Other():
            return f"other {node.name}: {node.reason}"


def _condition(plan: AnalyzedPlan, join: Join) -> str:
    keys = [
        equality_text(plan, (key.left, key.right), null_safe=key.null_safe) for key in join.keys
    ]
    aware = {pair.condition: pair for pair in join.null_aware}
    rest = [
        f"{handle_text(plan, aware[n].left)} = {handle_text(plan, aware[n].right)} or unknown"
        if n in aware
        else handle_text(plan, n)
        for n in join.residual
    ]
    on = f" on {', '.join(keys)}" if keys else ""
    return on + (f" where {', '.join(rest)}" if rest else "")


def _call(plan: AnalyzedPlan, call: AggregateCall) -> str:
    distinct = "distinct " if call.distinct else ""
    ordered = " in order" if call.in_order else ""
    kept = "" if call.filter is None else f" filter {handle_text(plan, call.filter)}"
    return (
        f"{call.function}{distinct}{handles_text(plan, call.args)}{ordered}{kept} as #{call.column}"
    )
