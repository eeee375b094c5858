"""An analyzed plan as text, a line for each operator."""

from __future__ import annotations

import json

from slackwater.planner.plan.algebra import (
    Aggregate,
    Constant,
    Expand,
    Filter,
    Generate,
    Join,
    Limit,
    Other,
    Project,
    Sort,
    Source,
    TemporalFilter,
    Union,
    Window,
)


def plan_text(plan, names):
    """`names`: of the collections, by their ids."""
    lines = [
        f"{number} {_operator(plan, node, names)}"
        f" -> {', '.join(_column(plan, column) for column in node.out)}"
        for number, node in enumerate(plan.nodes)
    ]
    shape = ", ".join(
        f"{c.name} {_type(c.type_json)}{'' if c.nullable else ' NOT NULL'}"
        for c in plan.schema.columns
    )
    return "\n".join([*lines, f"{plan.root}: {shape}"])


def _type(text):
    kind = json.loads(text)
    return kind if isinstance(kind, str) else kind["type"]


def _column(plan, number):
    column = plan.columns[number]
    issues = "".join(f" {issue}!" for issue in sorted(column.type.key_issues))
    return f"{column.name}#{number}{'?' if column.nullable else ''}{issues}"


def _handle(plan, number):
    """Its text, the columns that it reads, and what is unusual of it."""
    handle = plan.handles[number]
    if handle.column is not None:
        return f"#{handle.column}"
    signs = [f"#{column}" for column in handle.columns]
    signs += ["nondeterministic"] if not handle.deterministic else []
    signs += ["now"] if handle.uses_now else []
    signs += ["throws"] if handle.throws else []
    return f"{handle.sql} [{' '.join(signs)}]"


def _handles(plan, numbers):
    return "(" + ", ".join(_handle(plan, number) for number in numbers) + ")"


def _order(plan, order):
    return ", ".join(
        f"{_handle(plan, key.handle)} {'asc' if key.ascending else 'desc'}"
        f" nulls {'first' if key.nulls_first else 'last'}"
        for key in order
    )


def _operator(plan, node, names):
    inputs = "".join(f" {i}" for i in node.inputs)
    match node:
        case Source():
            return f"source {names[node.collection]} ({', '.join(node.fields)})"
        case Constant():
            return f"constant {node.rows} rows"
        case Project():
            return f"project{inputs} {_handles(plan, node.exprs)}"
        case Filter():
            return f"filter{inputs} {_handles(plan, node.conjuncts)}"
        case TemporalFilter():
            bounds = ", ".join(f"{b.comparison} {_handle(plan, b.handle)}" for b in node.bounds)
            return f"temporal{inputs} (mz_now() {bounds})"
        case Join():
            return f"join {node.kind.value}{inputs}{_condition(plan, node)}"
        case Aggregate():
            groups = ", ".join(f"{_handle(plan, g.handle)} as #{g.column}" for g in node.groups)
            calls = ", ".join(_call(plan, call) for call in node.aggregates)
            return f"aggregate{inputs} by ({groups}) of ({calls}) {_handles(plan, node.results)}"
        case Window():
            functions = _handles(plan, [f.handle for f in node.functions])
            partition = _handles(plan, node.partition)
            return f"window{inputs} {functions} by {partition} order ({_order(plan, node.order)})"
        case Expand():
            rows = ", ".join(_handles(plan, row) for row in node.projections)
            return f"expand{inputs} {rows}"
        case Generate():
            outer = " outer" if node.outer else ""
            return f"generate{outer}{inputs} {_handle(plan, node.handle)}"
        case Union():
            return f"union{inputs}"
        case Sort():
            place = "" if node.is_global else " in partitions"
            return f"sort{place}{inputs} ({_order(plan, node.order)})"
        case Limit():
            return f"limit{inputs} {node.count} offset {node.offset}"
        case Other():
            return f"other {node.name}: {node.reason}"


def _condition(plan, join):
    keys = [
        f"{_handle(plan, key.left)} {'<=>' if key.null_safe else '='} {_handle(plan, key.right)}"
        for key in join.keys
    ]
    aware = {pair.condition: pair for pair in join.null_aware}
    rest = [
        f"{_handle(plan, aware[n].left)} = {_handle(plan, aware[n].right)} or unknown"
        if n in aware
        else _handle(plan, n)
        for n in join.residual
    ]
    on = f" on {', '.join(keys)}" if keys else ""
    return on + (f" where {', '.join(rest)}" if rest else "")


def _call(plan, call):
    distinct = "distinct " if call.distinct else ""
    ordered = " in order" if call.in_order else ""
    kept = "" if call.filter is None else f" filter {_handle(plan, call.filter)}"
    return f"{call.function}{distinct}{_handles(plan, call.args)}{ordered}{kept} as #{call.column}"
