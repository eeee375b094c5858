"""The rows of EXPLAIN INCREMENTAL, and what the steps of EXPLAIN ANALYZE read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slackwater.planner.delta.join_order import join_of, pipelines
from slackwater.planner.delta.lowering import is_accumulated, program_of
from slackwater.planner.delta.program import (
    Arrangement,
    ArrangementNumber,
    DeltaStep,
    LookupStep,
    Program,
    RecomputeGroupsStep,
    SemiJoinStep,
)
from slackwater.planner.plan.algebra import (
    Aggregate,
    AnalyzedPlan,
    Constant,
    Expand,
    Filter,
    Generate,
    HandleNumber,
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


_BUCKET = re.compile(r"\((hash\(.+\)|bucket) & \d+\)")
"""The number of a bucket: what extremes and first rows are computed from, so that few are looked at
again."""


@dataclass(frozen=True, slots=True)
class ExplainRow:
    """One operator. `parent` is the id of its consumer, None for the root.

    `maintenance`: linear, bilinear, accumulable, keyed, recompute or refresh. `reason` and `advice`
    say why an operator is not maintained in steps, and what helps; else the reason says what it
    costs.
    """

    id: int
    parent: int | None
    operator: str
    maintenance: str
    reason: str | None
    advice: str | None


REFRESHED = "It is computed as a whole at each refresh, and costs nothing between two of them."
"""The reason of a view with a refresh schedule."""
RECOMPUTED = "Let views that are maintained do the joins and aggregates, and read them in this one."
"""The advice for a view that is recomputed."""
SCANNED = "There is no memory for that now: a tick scans what is below for the keys that it needs."
"""Of an operator that looks something up, while the view is not resident."""
SHARED = "It is the query of a view with an index: dataflows of the cluster share what it takes."
"""Of the root of such a query."""
ENLARGE = "Raise spark.slackwater.arrangements.memory or spark.slackwater.arrangements.disk."
"""The advice then."""


def explain_recomputed(
    plan: AnalyzedPlan, names: Mapping[str, str], reason: str
) -> tuple[ExplainRow, ...]:
    """A view that is recomputed whenever one of its collections changes."""
    root = ExplainRow(0, None, "Recompute", "recompute", reason, RECOMPUTED)
    return (root, *_collections_read(plan, names))


def _collections_read(plan: AnalyzedPlan, names: Mapping[str, str]) -> Iterator[ExplainRow]:
    """The collections that a view reads as a whole, as rows below the first one."""
    for i, each in enumerate(plan.collections, 1):
        yield ExplainRow(i, 0, f"Collection {names.get(each, each)}", "linear", None, None)


def explain_refreshed(plan: AnalyzedPlan, names: Mapping[str, str]) -> tuple[ExplainRow, ...]:
    """A view that is recomputed at the times of its refresh schedule."""
    root = ExplainRow(0, None, "Recompute", "refresh", REFRESHED, None)
    return (root, *_collections_read(plan, names))


def explain_program(
    plan: AnalyzedPlan, names: Mapping[str, str], *, resident: bool = True
) -> tuple[ExplainRow, ...]:
    """The operators of the plan, the root first, each before its inputs.

    `names` are those of the collections. An operator that several others read appears below each,
    with its inputs below the first one only. `resident`: there is memory for what is looked up.
    Raises NotMaintained.
    """
    rows: list[ExplainRow] = []
    shown: dict[NodeNumber, int] = {}
    found = _FoundIndexes(plan, program_of(plan, serves=resident))

    def visit(number: NodeNumber, parent: int | None) -> None:
        operator, maintenance, reason = _described(plan, number, names)
        own, advice, inputs = len(rows), None, _inputs(plan, number)
        if number in plan.views:
            reason = SHARED if reason is None else f"{reason} {SHARED}"
        looked_up = found.by(number)
        if looked_up:
            reason = f"{reason} It looks up in the index {' and in '.join(looked_up)}."
        if inputs and number in shown:
            reason, inputs = f"It is computed once: operator {shown[number]}.", ()
        elif maintenance != "linear" and not resident:
            reason, advice = f"{reason} {SCANNED}", ENLARGE
        rows.append(ExplainRow(own, parent, operator, maintenance, reason, advice))
        shown.setdefault(number, own)
        for below in inputs:
            visit(below, own)

    visit(plan.root, None)
    return tuple(rows)


def read_by_steps(
    plan: AnalyzedPlan, program: Program, names: Mapping[str, str]
) -> tuple[str | None, ...]:
    """For each step the collection whose changes it reads, or what it looks rows up in, by which
    keys, and the index that has them; None: it reads what other steps give it, and its own state.

    `names` are those of the collections. What is computed of several is told by all their names.
    """

    below = _collections_below(plan)

    def arranged(number: ArrangementNumber) -> str:
        arrangement = program.arrangements[number]
        of = " and ".join(names.get(each, each) for each in below[arrangement.node])
        keys = ", ".join(plan.handles[each].sql for each in arrangement.keys)
        index = _index_of(plan, arrangement)
        where = "" if index is None else f" in the index {index}"
        return f"{of} by {keys}{where}" if keys else of

    found: list[str | None] = []
    for step in program.steps:
        match step:
            case DeltaStep(collection=collection):
                found.append(names.get(collection, collection))
            case LookupStep(arrangement=number) | RecomputeGroupsStep(arrangement=number):
                found.append(arranged(number))
            case SemiJoinStep(left_arrangement=left, right_arrangement=right):
                found.append(f"{arranged(left)}; {arranged(right)}")
            case _:
                found.append(None)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _FoundIndexes:
    """The indexes on collections in which the operators of a plan look up, if `program` runs."""

    plan: AnalyzedPlan
    program: Program

    def by(self, number: NodeNumber) -> tuple[str, ...]:
        """The names of those in which the operator looks up."""
        wanted = [(node, sorted(keys)) for node, keys in self._wanted(number)]
        found = (
            _index_of(self.plan, each)
            for each in self.program.arrangements
            if each.seen is not None and (each.seen.node, sorted(each.seen.keys)) in wanted
        )
        return tuple(dict.fromkeys(name for name in found if name is not None))

    def _wanted(self, number: NodeNumber) -> Iterable[tuple[NodeNumber, tuple[HandleNumber, ...]]]:
        """The nodes whose rows the operator looks up, and by which keys."""
        plan = self.plan
        match plan.nodes[number]:
            case Join() as join if _is_inner(join):
                joined = join_of(plan, number)
                stages = (stage for _, path in pipelines(plan, joined) for stage in path)
                return [(joined.inputs[stage.input], stage.keys) for stage in stages]
            case Join() as join:
                sides = [tuple(k.left for k in join.keys), tuple(k.right for k in join.keys)]
                return list(zip(join.inputs, sides, strict=True))
            case Aggregate() as aggregate if not _is_accumulated(plan, aggregate):
                groups = enumerate(aggregate.groups)
                keys = tuple(group.handle for n, group in groups if n != aggregate.session)
                return [(aggregate.inputs[0], keys)]
            case Window() as window:
                return [(window.inputs[0], window.partition)]
        return []


def _index_of(plan: AnalyzedPlan, arrangement: Arrangement) -> str | None:
    """The name of the index on a collection that has the arrangement; None: it is of none."""
    if arrangement.seen is None:
        return None
    own = (arrangement.node, arrangement.keys)
    return next(each.name for each in plan.indexed if (each.node, each.keys) == own)


def _collections_below(plan: AnalyzedPlan) -> Sequence[tuple[str, ...]]:
    """For each node the collections that it reads, once, from left to right.

    One pass over the nodes finds them: several nodes may share one.
    """
    below: list[tuple[str, ...]] = []
    for node in plan.nodes:
        own = (node.collection,) if isinstance(node, Source) else ()
        read = (each for number in node.inputs for each in below[number])
        below.append(tuple(dict.fromkeys((*own, *read))))
    return below


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
            return _inner_join(plan, number, names)
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


def _inner_join(
    plan: AnalyzedPlan, number: NodeNumber, names: Mapping[str, str]
) -> tuple[str, str, str]:
    joined, below = join_of(plan, number), _collections_below(plan)
    stages = [stage for _, path in pipelines(plan, joined) for stage in path]
    whole = sorted({stage.input for stage in stages if not stage.keys})
    reason = "Each input's changes are looked up in arrangements of the others."
    if whole:
        read = dict.fromkeys(c for i in whole for c in below[joined.inputs[i]])
        of = " and ".join(names.get(each, each) for each in read)
        reason = f"{reason} Where no columns are equal they meet all rows of {of}."
    return f"Join of {len(joined.inputs)}", "bilinear", reason


def _partitions(plan: AnalyzedPlan, node: Window) -> str:
    if not node.partition:
        below = _below(plan, node)
        whole = "the whole input is"
        if isinstance(below, Window) and _is_in_buckets(plan, below):
            whole = "the first rows of all buckets are"
        return f"There is no PARTITION BY: {whole} computed again from its rows."
    if _is_in_buckets(plan, node):
        return "The buckets that changed are computed again from their rows."
    keys = ", ".join(plan.handles[each].sql for each in node.partition)
    return f"The partitions by {keys} that changed are computed again from their rows."


def _is_accumulated(plan: AnalyzedPlan, node: Aggregate) -> bool:
    """Whether its groups have states, and their rows are not looked up."""
    accumulated = all(is_accumulated(plan, call) for call in node.aggregates)
    return node.session is None and accumulated


def _aggregate(plan: AnalyzedPlan, node: Aggregate) -> tuple[str, str, str]:
    if node.session is not None:
        others = [
            plan.handles[g.handle].sql for n, g in enumerate(node.groups) if n != node.session
        ]
        whose = f" by {', '.join(others)} that changed" if others else ""
        return "Aggregate", "keyed", f"The sessions{whose} are computed again from their rows."
    if _is_accumulated(plan, node):
        operator = "Aggregate" if node.aggregates else "Distinct"
        return operator, "accumulable", "Only the groups that changed are touched."
    again = dict.fromkeys(c.function for c in node.aggregates if not is_accumulated(plan, c))
    below = _below(plan, node)
    subject, rows = "The groups that changed are" if node.groups else "The whole input is", "rows"
    if isinstance(below, Aggregate) and _is_in_buckets(plan, below):
        subject = "The groups that changed are" if node.groups else "It is"
        rows = "values of their buckets" if node.groups else "values of its buckets"
        if _is_in_buckets(plan, node):
            rows = "values of smaller ones"
    if _is_in_buckets(plan, node):
        subject = "The buckets that changed are"
    reason = f"{subject} computed again from the {rows}, for {', '.join(again)}."
    return "Aggregate", "keyed", reason


def _below(plan: AnalyzedPlan, node: Operator) -> Operator:
    """The first operator below that does more than to pass rows on."""
    below = plan.nodes[node.inputs[0]]
    return _below(plan, below) if isinstance(below, Project | Filter) else below


def _is_in_buckets(plan: AnalyzedPlan, node: Window | Aggregate) -> bool:
    """Whether the rows are divided by a hash of their columns."""
    if isinstance(node, Window):
        return any(_BUCKET.fullmatch(plan.handles[each].sql) for each in node.partition)
    below = plan.nodes[node.inputs[0]]
    if not isinstance(below, Project):
        return False
    made = dict(zip(below.out, below.exprs, strict=True))
    columns = (plan.handles[group.handle].column for group in node.groups)
    exprs = (made[column] for column in columns if column is not None and column in made)
    return any(_BUCKET.fullmatch(plan.handles[each].sql) for each in exprs)
