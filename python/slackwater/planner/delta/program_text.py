"""A tick program as text, a line for each step and each arrangement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slackwater.planner.delta.program import (
    Arrangement,
    Condition,
    ConstantStep,
    DeltaStep,
    Equality,
    ExpandStep,
    FilterStep,
    GenerateStep,
    LookupStep,
    MapStep,
    Null,
    OfColumn,
    OfHandle,
    Program,
    RecomputeGroupsStep,
    ReduceStep,
    SemiJoinStep,
    Step,
    TemporalFilterStep,
    Truth,
    UnionStep,
    Value,
)
from slackwater.planner.plan.algebra import AnalyzedPlan
from slackwater.planner.plan.text import columns_text, equality_text, handle_text, handles_text


def program_text(plan: AnalyzedPlan, program: Program, names: Mapping[str, str]) -> str:
    """The steps in their order, each with the numbers of those whose updates it takes.

    Below are the arrangements, with the step that moves each on and the index that has it.
    `names` are those of collections, by their ids; columns are those of `plan_text`.
    """
    lines = [
        f"{number} {_step(plan, step, names)} -> {columns_text(plan, step.columns)}"
        for number, step in enumerate(program.steps)
    ]
    lines += [
        f"arrangement {number}: {_arrangement(plan, each)}"
        for number, each in enumerate(program.arrangements)
    ]
    if program.index is not None:
        keys = _values(plan, program.index.keys)
        lines.append(f"index of step {program.index.delta} by {keys}")
    return "\n".join(lines)


def _arrangement(plan: AnalyzedPlan, arrangement: Arrangement) -> str:
    keys = handles_text(plan, arrangement.keys)
    text = f"step {arrangement.delta} by {keys} with ({columns_text(plan, arrangement.columns)})"
    own = (arrangement.node, arrangement.keys)
    indexes = [each.name for each in plan.indexed if (each.node, each.keys) == own]
    shared = arrangement.seen is not None and indexes
    return f"{text} in the index {indexes[0]}" if shared else text


def _step(plan: AnalyzedPlan, step: Step, names: Mapping[str, str]) -> str:
    match step:
        case DeltaStep(collection, fields):
            return f"delta {names.get(collection, collection)} ({', '.join(fields)})"
        case ConstantStep():
            return "constant"
        case MapStep(source, values):
            return f"map {source} {_values(plan, values)}"
        case FilterStep(source, conditions):
            return f"filter {source}{_conditions(plan, conditions)}"
        case TemporalFilterStep(source, _, bounds):
            asked = ", ".join(f"{b.comparison} {handle_text(plan, b.handle)}" for b in bounds)
            return f"temporal {source} (mz_now() {asked})"
        case ExpandStep(source, projections):
            rows = ", ".join(handles_text(plan, each) for each in projections)
            return f"expand {source} {rows}"
        case GenerateStep(source, generator, outer):
            return f"generate{' outer' if outer else ''} {source} {handle_text(plan, generator)}"
        case UnionStep(inputs):
            return f"union {' '.join(map(str, inputs))}"
        case _:
            return _keyed(plan, step)


def _keyed(
    plan: AnalyzedPlan, step: LookupStep | SemiJoinStep | ReduceStep | RecomputeGroupsStep
) -> str:
    """The steps that look rows or states up."""
    match step:
        case LookupStep(source, arrangement, keys, _, old, conditions):
            place = f"arrangement {arrangement}{' before the tick' if old else ''}"
            rest = _conditions(plan, conditions)
            return f"lookup {source} in {place} by {handles_text(plan, keys)}{rest}"
        case SemiJoinStep() as semi:
            word = "presence" if semi.present else "absence"
            places = f"arrangements {semi.left_arrangement} and {semi.right_arrangement}"
            rest = _conditions(plan, semi.conditions)
            return f"{word} of {semi.left} in {semi.right} by {places}{rest}"
        case ReduceStep(source, _, groups, aggregates):
            calls = ", ".join(
                handle_text(plan, each.function)
                + ("" if each.filter is None else f" filter {handle_text(plan, each.filter)}")
                for each in aggregates
            )
            return f"reduce {source} by {handles_text(plan, groups)} of ({calls})"
        case RecomputeGroupsStep(source, node, arrangement):
            operator = type(plan.nodes[node]).__name__.lower()
            return f"regroup {source} for the {operator} of arrangement {arrangement}"


def _conditions(plan: AnalyzedPlan, conditions: Iterable[Condition]) -> str:
    found = [
        equality_text(plan, (each.left, each.right), null_safe=each.null_safe)
        if isinstance(each, Equality)
        else handle_text(plan, each)
        for each in conditions
    ]
    return f" where ({', '.join(found)})" if found else ""


def _values(plan: AnalyzedPlan, values: Iterable[Value]) -> str:
    return f"({', '.join(_value(plan, each) for each in values)})"


def _value(plan: AnalyzedPlan, value: Value) -> str:
    match value:
        case OfHandle(handle):
            return handle_text(plan, handle)
        case OfColumn(column):
            return f"#{column}"
        case Null():
            return "NULL"
        case Truth(truth):
            return str(truth).lower()
