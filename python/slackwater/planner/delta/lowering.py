"""From the plan of a view to the program that maintains it: one rule for each operator.

Each rule gives the updates of its operator's result out of the updates, and the arranged contents,
of its inputs; see ``docs/spec`` M1 and the table of rules in ``docs/internals/tick_programs.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from slackwater.planner.delta.join_order import (
    NO_SIZES,
    Joined,
    Sizes,
    join_of,
    keeps_null,
    pipelines,
    resolved,
    view_below,
    views_read,
)
from slackwater.planner.delta.program import (
    Accumulation,
    Arrangement,
    ArrangementNumber,
    ConstantStep,
    DeltaStep,
    Equality,
    ExpandStep,
    FilterStep,
    GenerateStep,
    IndexedRows,
    LookupStep,
    MapStep,
    Null,
    OfColumn,
    OfHandle,
    Program,
    RecomputeGroupsStep,
    ReduceStep,
    Seen,
    SemiJoinStep,
    SharedStep,
    Size,
    Step,
    StepNumber,
    TemporalFilterStep,
    Truth,
    UnionStep,
    Value,
)
from slackwater.planner.delta.served import Served, served
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
    JoinKind,
    Limit,
    NodeNumber,
    Operator,
    Other,
    Project,
    Sort,
    Source,
    TemporalFilter,
    Union,
    Window,
    WindowCall,
)


@dataclass(frozen=True, slots=True)
class NotMaintained(Exception):
    """An operator that has no rule, for which the view is recomputed."""

    reason: str


T = TypeVar("T")

SUMS = frozenset({"sum", "avg", "try_sum", "try_avg"})

MOMENTS = frozenset(
    {
        "stddev_pop",
        "stddev_samp",
        "var_pop",
        "var_samp",
        "skewness",
        "kurtosis",
        "covar_pop",
        "covar_samp",
        "corr",
        "regr_intercept",
        "regr_r2",
        "regr_slope",
        "regr_sxy",
        "regrreplacement",
    }
)
"""Aggregates of deviations from the mean, by the names that Spark's expressions have."""

ACCUMULATED = SUMS | MOMENTS | {"count"}
"""Aggregates whose state takes a row away as it takes one in."""

IDEMPOTENT = frozenset(
    {"min", "max", "min_by", "max_by", "bit_and", "bit_or", "approx_count_distinct", "pivotfirst"}
)
"""Aggregates for which a row that is there twice is a row."""

EXACT = IDEMPOTENT | {
    "bit_xor",
    "percentile",
    "percentile_disc",
    "mode",
    "count_min_sketch",
    "max_by_k",
    "min_by_k",
}
"""Other aggregates whose value is the same in whichever order the rows come."""


COLLECTED = frozenset({"collect_list", "collect_set"})
"""Aggregates whose value the plan sorts; that of a window it does not."""


_ANY_ISSUE = frozenset({"floating", "collation", "map", "variant"})

SETTLED: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        (
            "min",
            "max",
            "min_by",
            "max_by",
            "min_by_k",
            "max_by_k",
            "mode",
            "percentile",
            "percentile_disc",
        ),
        frozenset({"floating"}),
    ),
    **dict.fromkeys(("approx_count_distinct", "count_min_sketch"), _ANY_ISSUE),
}
"""Of which key issues the plan has made one value of those that are equal."""

SETTLED_IN_GROUPS: Mapping[str, frozenset[str]] = {
    **SETTLED,
    **dict.fromkeys(
        ("min", "max", "min_by", "max_by", "min_by_k", "max_by_k"),
        frozenset({"floating", "collation"}),
    ),
    **dict.fromkeys(COLLECTED, frozenset({"floating", "collation"})),
    # Of each value of the pivot's column there is one row.
    "pivotfirst": _ANY_ISSUE,
}
"""The same outside of windows."""

RANKS = frozenset({"rank", "dense_rank", "percent_rank", "cume_dist"})
"""Window functions that ask only which rows are peers."""


def invalid_mz_now_use(plan: AnalyzedPlan) -> str | None:
    """A use of ``mz_now()`` that is no temporal filter, in words; None: there is none."""
    found = next((handle for handle in plan.handles if handle.uses_now), None)
    if found is None:
        return None
    return f"{found.sql} is no condition that compares mz_now() alone with a BIGINT"


def program_of(plan: AnalyzedPlan, *, serves: bool = False) -> Program:
    """The program of the plan. Raises NotMaintained.

    `serves`: it looks up in indexes on collections where they have what it needs.
    """
    lowering = _begun(plan, serves=serves)
    last = lowering.step(plan.root)
    if last != len(lowering.steps) - 1:
        lowering.add(UnionStep((last,), lowering.steps[last].columns))
    return lowering.program


def _begun(plan: AnalyzedPlan, *, serves: bool = False) -> _Lowering:
    misused = invalid_mz_now_use(plan)
    if misused is not None:
        raise NotMaintained(misused)
    return _Lowering(plan, NO_SIZES, serves)


def index_of(plan: AnalyzedPlan, keys: int, *, serves: bool = False) -> Program:
    """The program that keeps the plan's rows by its last `keys` columns. `serves`: as above.

    Raises NotMaintained where the plan does more than to compute them of each row of a collection
    or of a plain view, and where the query of the view has no program.
    """
    if not plan.selects and not all(isinstance(node, Source | Project) for node in plan.nodes):
        raise NotMaintained("a key that is not computed of one row")
    found = _index_of_view(plan, keys, serves) or _index_of_collection(plan, keys)
    if found is not None:
        return found
    program, out = program_of(plan, serves=serves), plan.nodes[plan.root].out
    values = tuple(OfColumn(column) for column in out[-keys:])
    last = len(program.steps) - 1
    index = IndexedRows(plan.root, last, values, out[:-keys], plan.names[:-keys])
    return replace(program, index=index)


def _index_of_view(plan: AnalyzedPlan, keys: int, serves: bool) -> Program | None:
    """The program that arranges a plain view which stays whole as joins with it do.

    None: there is none in the plan, or its columns are not those of the query.
    """
    root = plan.nodes[plan.root]
    if not isinstance(root, Project):
        return None
    view, columns = view_below(plan, root.inputs[0])
    if view is None:
        return None
    out = plan.nodes[view].out
    read = [plan.handles[handle].column for handle in root.exprs[:-keys]]
    if tuple(None if c is None else resolved(c, columns) for c in read) != out:
        return None
    lowering = _begun(plan, serves=serves)
    delta = lowering.step(view)
    lowering.aliases.update(columns)
    values = tuple(OfHandle(handle) for handle in root.exprs[-keys:])
    index = IndexedRows(view, delta, values, out, plan.names[:-keys])
    return replace(lowering.program, index=index)


def _index_of_collection(plan: AnalyzedPlan, keys: int) -> Program | None:
    """The program that arranges a collection as it is, for others to look up in it.

    None: the plan does more than to select all its columns and the keys.
    """
    root = plan.nodes[plan.root]
    if plan.selects or not isinstance(root, Project):
        return None
    (below,) = root.inputs
    handles: tuple[HandleNumber | None, ...] = root.exprs[-keys:]
    read = plan.nodes[below]
    if isinstance(read, Project):
        # As CHAR is padded: an index has what is stored, and keys that are read of it.
        made = dict(zip(read.out, read.exprs, strict=True))
        columns = (plan.handles[each].column for each in root.exprs[-keys:])
        handles = tuple(None if column is None else made.get(column) for column in columns)
        (below,) = read.inputs
    source = plan.nodes[below]
    if not isinstance(source, Source) or source.fields != plan.names[:-keys]:
        return None
    if isinstance(read, Project) and not _is_read(plan, source, read):
        return None
    lowering = _begun(plan)
    delta = lowering.step(below)
    values = tuple(OfHandle(handle) for handle in handles if handle is not None)
    if len(values) != keys:
        return None
    index = IndexedRows(below, delta, values, source.out, source.fields)
    return replace(lowering.program, index=index)


def _is_read(plan: AnalyzedPlan, source: Source, read: Project) -> bool:
    """Whether each column is computed of the collection's column at the same place."""
    return [plan.handles[each].columns for each in read.exprs] == [(each,) for each in source.out]


def reordered(plan: AnalyzedPlan, program: Program, sizes: Sequence[Size]) -> Program:
    """The program of the plan with an order of lookups that suits the sizes of its arrangements.

    It has the steps and the arrangements that `program` has, which may have another order. It is
    `program` where an order would move other steps too: the changes of a collection whose index
    serves a lookup have their place before the first of these.
    """
    found = sorted(zip(sizes, program.arrangements, strict=True), key=lambda each: each[0].rows)
    # What has the rows comes after what only counts them.
    known = {_sized(each): size for size, each in found}
    serves = any(each.seen is not None for each in program.arrangements)
    lowering = _Lowering(plan, known, serves, arrangements=list(program.arrangements))
    lowering.step(plan.root)
    steps = (*lowering.steps, *program.steps[len(lowering.steps) :])
    is_possible = lowering.arrangements == list(program.arrangements) and all(
        map(_is_same_but_for_lookup, steps, program.steps)
    )
    return replace(program, steps=steps) if is_possible else program


def _is_same_but_for_lookup(step: Step, other: Step) -> bool:
    if isinstance(step, LookupStep) and isinstance(other, LookupStep):
        return step.input == other.input
    return step == other


def _sized(each: Arrangement) -> tuple[NodeNumber, tuple[HandleNumber, ...], tuple[bool, ...]]:
    """The name under which joins ask for the size of an arrangement."""
    if each.seen is None:
        return each.node, each.keys, each.null_safe
    return each.seen.node, each.seen.keys, each.seen.null_safe


def _is_inner(node: Operator) -> bool:
    return isinstance(node, Join) and node.kind in (JoinKind.INNER, JoinKind.CROSS)


@dataclass(slots=True)
class _Lowering:
    plan: AnalyzedPlan
    sizes: Sizes
    serves: bool
    steps: list[Step] = field(default_factory=list)
    arrangements: list[Arrangement] = field(default_factory=list)
    aliases: dict[ColumnNumber, ColumnNumber] = field(default_factory=dict)
    made: dict[NodeNumber, StepNumber] = field(default_factory=dict)

    @property
    def program(self) -> Program:
        """All steps so far."""
        views = (each for each in self.plan.views if each in self.made)
        shared = tuple(SharedStep(each, self.made[each]) for each in views)
        arrangements = tuple(self.arrangements)
        return Program(tuple(self.steps), arrangements, self.aliases, shared=shared)

    def add(self, step: Step) -> StepNumber:
        self.steps.append(step)
        return len(self.steps) - 1

    def step(self, node: NodeNumber) -> StepNumber:
        """The step that gives the updates of a node, with the columns of its `out`."""
        if node not in self.made:
            self.made[node] = self._lowered(node)
        return self.made[node]

    def _lowered(self, node: NodeNumber) -> StepNumber:
        match self.plan.nodes[node]:
            case Source() as source:
                return self.add(DeltaStep(source.collection, source.fields, source.out))
            case Constant() as constant:
                return self.add(ConstantStep(constant.out))
            case Project() as project:
                return self._project(project)
            case Filter() as found:
                below = self.step(found.inputs[0])
                return self.add(FilterStep(below, found.conjuncts, found.out))
            case TemporalFilter() as found:
                below = found.inputs[0]
                return self.add(
                    TemporalFilterStep(self.step(below), below, found.bounds, found.out)
                )
            case Generate() as generate:
                below = self.step(generate.inputs[0])
                return self.add(
                    GenerateStep(
                        below,
                        generate.handle,
                        generate.outer,
                        generate.generated,
                        generate.out,
                    )
                )
            case Expand() as expand:
                below = self.step(expand.inputs[0])
                return self.add(ExpandStep(below, expand.projections, expand.out))
            case Union() as union:
                return self.add(UnionStep(tuple(self.step(i) for i in union.inputs), union.out))
            case Sort() as sort:
                return self.step(sort.inputs[0])
            case Limit():
                raise NotMaintained("LIMIT without ORDER BY")
            case Aggregate() as aggregate:
                return self._aggregate(node, aggregate)
            case Window() as window:
                return self._window(node, window)
            case Join() as join:
                return self._join(node, join)
            case Other() as other:
                raise NotMaintained(f"{other.name}: {other.reason}")
            case operator:
                raise NotMaintained(type(operator).__name__)

    # Linear

    def _project(self, project: Project) -> StepNumber:
        below = self.step(project.inputs[0])
        return self.add(MapStep(below, tuple(OfHandle(h) for h in project.exprs), project.out))

    # Groups

    def _aggregate(self, node: NodeNumber, aggregate: Aggregate) -> StepNumber:
        self._refuse_key_issues(group.handle for group in aggregate.groups)
        accumulated = all(is_accumulated(self.plan, call) for call in aggregate.aggregates)
        if aggregate.session is not None or not accumulated:
            return self._regrouped(node, aggregate)
        below = self._widened(aggregate.inputs[0])
        reduced = self.add(
            ReduceStep(
                self.step(below),
                below,
                tuple(group.handle for group in aggregate.groups),
                tuple(Accumulation(call.handle, call.filter) for call in aggregate.aggregates),
                (
                    *(group.column for group in aggregate.groups),
                    *(call.column for call in aggregate.aggregates),
                ),
            )
        )
        results = tuple(OfHandle(h) for h in aggregate.results)
        return self.add(MapStep(reduced, results, aggregate.out))

    def _widened(self, node: NodeNumber) -> NodeNumber:
        """The node, or one with the same rows and more columns where leaving them out only costs.

        What a projection leaves out of an inner join's columns are keys: hardly a change comes to
        nothing without them.
        """
        found = self.plan.nodes[node]
        if isinstance(found, Project) and _is_inner(self.plan.nodes[found.inputs[0]]):
            exprs = (self.plan.handles[each] for each in found.exprs)
            passed = {out: e.column for out, e in zip(found.out, exprs, strict=True)}
            known = {out: column for out, column in passed.items() if column is not None}
            if known == passed:
                self.aliases.update((out, c) for out, c in known.items() if out != c)
                return found.inputs[0]
        return node

    def _regrouped(self, node: NodeNumber, aggregate: Aggregate) -> StepNumber:
        """``delta(Γ(A)) = Γ(A of the changed groups) after each change - before it``.

        Sessions merge: all of them that have the other keys are computed anew.
        """
        for call in aggregate.aggregates:
            self._refuse_unless_exact(call)
        keys = tuple(g.handle for n, g in enumerate(aggregate.groups) if n != aggregate.session)
        once = all(call.function in IDEMPOTENT for call in aggregate.aggregates)
        return self._by_groups(node, aggregate.inputs[0], keys, once, aggregate.out)

    def _by_groups(
        self,
        node: NodeNumber,
        below: NodeNumber,
        keys: tuple[HandleNumber, ...],
        once: bool,
        out: tuple[ColumnNumber, ...],
    ) -> StepNumber:
        step = self.step(below)
        # Groups that have changed are looked up by their keys in the order of the arrangement.
        keys = _in_order(keys, self._order((below, keys)))
        arranged = self._in_this_order(below, keys, (True,) * len(keys))
        return self.add(RecomputeGroupsStep(step, node, arranged, once, out))

    def _refuse_unless_exact(self, call: AggregateCall) -> None:
        if call.in_order or is_accumulated(self.plan, call):
            return
        issues = self._key_issues(call.args)
        if call.function in ACCUMULATED:
            settled = call.distinct and not issues
        else:
            allowed = SETTLED_IN_GROUPS.get(call.function, frozenset())
            settled = call.function in EXACT | COLLECTED and issues <= allowed
        if not settled:
            raise NotMaintained(f"{call.function}{' of DISTINCT values' if call.distinct else ''}")

    def _key_issues(self, args: Iterable[HandleNumber]) -> frozenset[str]:
        values = (self.plan.handles[each] for each in args)
        return frozenset().union(*(each.type.key_issues for each in values if not each.foldable))

    def _window(self, node: NodeNumber, window: Window) -> StepNumber:
        """``delta(ω(A)) = ω(A of the changed partitions) after each change - before it``."""
        for call in window.functions:
            self._refuse_luck(call)
        self._refuse_key_issues(window.partition)
        return self._by_groups(node, window.inputs[0], window.partition, False, window.out)

    def _refuse_luck(self, call: WindowCall) -> None:
        """The same rows give the same values, in whichever order they are stored.

        Where a frame counts rows, the plan has an order that leaves none open.
        """
        if call.rows or call.in_order or call.function in RANKS:
            return
        if is_accumulation(self.plan, call.function, call.args):
            return
        issues = self._key_issues(call.args)
        if call.function not in EXACT or issues - SETTLED.get(call.function, frozenset()):
            raise NotMaintained(call.function)

    def _refuse_key_issues(self, keys: Iterable[HandleNumber]) -> None:
        for handle in keys:
            issues = self.plan.handles[handle].type.key_issues - {"floating"}
            if issues:
                raise NotMaintained(f"a key with {', '.join(sorted(issues))}")

    # Joins

    def _join(self, node: NodeNumber, join: Join) -> StepNumber:
        match join.kind:
            case JoinKind.INNER | JoinKind.CROSS:
                return self._inner(node)
            case JoinKind.LEFT_SEMI:
                return self._semi_join(join, left=0, present=True)
            case JoinKind.LEFT_ANTI:
                return self._semi_join(join, left=0, present=False)
            case JoinKind.EXISTENCE:
                return self._existence(join)
            case JoinKind.LEFT_OUTER:
                return self._outer(join, (0,))
            case JoinKind.RIGHT_OUTER:
                return self._outer(join, (1,))
            case JoinKind.FULL_OUTER:
                return self._outer(join, (0, 1))
            case _:
                raise NotMaintained("a scalar subquery that may have several rows")

    def _inner(self, node: NodeNumber) -> StepNumber:
        joined = join_of(self.plan, node)
        self.aliases.update(joined.aliases)
        return self._pipelines(joined)

    def _pipelines(self, joined: Joined) -> StepNumber:
        """``delta(A ⋈ B ⋈ ..)``: the updates of each input are looked up in all the others.

        Inputs before it are seen with their changes, those after it as they were, so that each pair
        of changes is met once.
        """
        for equality in joined.equalities:
            self._refuse_key_issues((equality.left, equality.right))
        deltas = [self.step(each) for each in joined.inputs]
        united: list[StepNumber] = []
        for begin, path in pipelines(self.plan, joined, self.sizes):
            step = deltas[begin]
            if isinstance(self.steps[step], ConstantStep):
                continue
            for stage in path:
                arrangement, order = self._looked_up(
                    joined.inputs[stage.input], stage.keys, stage.null_safe
                )
                step = self.add(
                    LookupStep(
                        step,
                        arrangement,
                        _in_order(stage.probes, order),
                        _in_order(stage.null_safe, order),
                        stage.input > begin,
                        stage.conditions,
                        stage.columns,
                    )
                )
            united.append(step)
        return self.add(UnionStep(tuple(united), joined.out))

    def _outer(self, join: Join, kept: tuple[int, ...]) -> StepNumber:
        """The pairs, and the rows of the `kept` sides that have no partner, with NULLs beside."""
        left, right = (self.plan.nodes[each] for each in join.inputs)
        inputs, aliases = views_read(self.plan, join.inputs)
        self.aliases.update(aliases)
        pairs = self._pipelines(
            Joined(
                inputs,
                tuple(Equality(key.left, key.right, key.null_safe) for key in join.keys),
                join.residual,
                (*left.out, *right.out),
                aliases,
            )
        )
        steps = [pairs]
        for side in kept:
            alone = self._semi_join(join, left=side, present=False)
            own = frozenset((left, right)[side].out)
            values: tuple[Value, ...] = tuple(
                OfColumn(c) if c in own else Null(c) for c in (*left.out, *right.out)
            )
            steps.append(self.add(MapStep(alone, values, join.out)))
        return self.add(UnionStep(tuple(steps), join.out))

    def _existence(self, join: Join) -> StepNumber:
        steps = []
        for present in (True, False):
            found = self._semi_join(join, left=0, present=present)
            values: tuple[Value, ...] = tuple(OfColumn(c) for c in join.out[:-1])
            steps.append(self.add(MapStep(found, (*values, Truth(present)), join.out)))
        return self.add(UnionStep(tuple(steps), join.out))

    def _semi_join(self, join: Join, *, left: int, present: bool) -> StepNumber:
        sides = (
            tuple(key.left for key in join.keys),
            tuple(key.right for key in join.keys),
        )
        for keys in sides:
            self._refuse_key_issues(keys)
        null_safe = tuple(key.null_safe for key in join.keys)
        steps = [self.step(each) for each in join.inputs]
        right = 1 - left
        # Both sides are asked for the keys of the other one: they have them in one order.
        order = self._order(*((join.inputs[side], sides[side]) for side in (left, right)))
        null_safe = _in_order(null_safe, order)
        by_left, by_right = (_in_order(sides[side], order) for side in (left, right))
        rows = self._in_this_order(join.inputs[left], by_left, null_safe)
        # Without a residual condition a row asks only how many partners there are.
        partners = self._in_this_order(
            join.inputs[right], by_right, null_safe, counted=not join.residual
        )
        return self.add(
            SemiJoinStep(
                steps[left],
                steps[right],
                rows,
                partners,
                null_safe,
                join.residual,
                present,
                self.plan.nodes[join.inputs[left]].out,
            )
        )

    def _looked_up(
        self, node: NodeNumber, keys: tuple[HandleNumber, ...], null_safe: tuple[bool, ...]
    ) -> tuple[ArrangementNumber, tuple[int, ...]]:
        """The rows of the node by keys, and for each key of the arrangement its place in `keys`."""
        found = self._served(node, keys)
        if found is None:
            return self._arrangement(node, keys, null_safe), tuple(range(len(keys)))
        return self._added(self._of_index(found, node, keys, null_safe)), found.order

    def _in_this_order(
        self,
        node: NodeNumber,
        keys: tuple[HandleNumber, ...],
        null_safe: tuple[bool, ...],
        *,
        counted: bool = False,
    ) -> ArrangementNumber:
        """The rows of the node by the keys as they are, or at least how many each key has."""
        found = self._served(node, keys)
        if found is None or found.order != tuple(range(len(keys))):
            return self._arrangement(node, keys, null_safe, counted=counted)
        return self._added(self._of_index(found, node, keys, null_safe))

    def _order(self, *asked: tuple[NodeNumber, tuple[HandleNumber, ...]]) -> tuple[int, ...]:
        """The order of the keys in the first index that serves a node; else their own."""
        found = (self._served(node, keys) for node, keys in asked)
        return next((each.order for each in found if each), tuple(range(len(asked[0][1]))))

    def _served(self, node: NodeNumber, keys: tuple[HandleNumber, ...]) -> Served | None:
        if not self.serves or node in self.plan.views:
            return None
        return served(self.plan, node, keys, self.aliases)

    def _of_index(
        self,
        found: Served,
        node: NodeNumber,
        keys: tuple[HandleNumber, ...],
        null_safe: tuple[bool, ...],
    ) -> Arrangement:
        whole, count = found.index.node, len(keys)
        seen = Seen(node, keys, null_safe, found.order, found.stages, found.columns)
        return Arrangement(
            node=whole,
            delta=self.step(whole),
            keys=found.index.keys,
            null_safe=(True,) * count,
            key_columns=(None,) * count,
            columns=self.plan.nodes[whole].out,
            seen=seen,
        )

    def _added(self, made: Arrangement) -> ArrangementNumber:
        if made not in self.arrangements:
            self.arrangements.append(made)
        return self.arrangements.index(made)

    def _arrangement(
        self,
        node: NodeNumber,
        keys: tuple[HandleNumber, ...],
        null_safe: tuple[bool, ...],
        *,
        counted: bool = False,
    ) -> ArrangementNumber:
        """The rows of the node by keys, or how many each key has; made once for the same keys.

        Those of a view that stays whole are arranged as an index arranges them.
        """
        delta = self.step(node)
        is_view = node in self.plan.views and not counted
        key_columns = tuple(None if is_view else self._key_column(handle) for handle in keys)
        kept = keeps_null(self.plan, node, null_safe) if is_view else null_safe
        out = () if counted else self.plan.nodes[node].out
        wanted = tuple(c for c in out if c not in key_columns)
        return self._added(Arrangement(node, delta, keys, kept, key_columns, wanted))

    def _key_column(self, handle: HandleNumber) -> ColumnNumber | None:
        found = self.plan.handles[handle]
        # A key of floating numbers is not what it was: it is made equal to those it equals.
        return None if found.type.key_issues else found.column


def _in_order(values: tuple[T, ...], order: tuple[int, ...]) -> tuple[T, ...]:
    return tuple(values[place] for place in order)


def is_accumulated(plan: AnalyzedPlan, call: AggregateCall) -> bool:
    """Whether a state is kept for the call that rows are taken into and out of."""
    return not call.distinct and is_accumulation(plan, call.function, call.args)


def is_accumulation(plan: AnalyzedPlan, function: str, args: tuple[HandleNumber, ...]) -> bool:
    """Whether a row can be taken out of the function's state as it is taken in."""
    if function not in ACCUMULATED:
        return False
    return function == "count" or _is_number(plan.handles[args[0]].type.text)


NUMBERS = frozenset({"byte", "short", "integer", "long", "float", "double"})


def _is_number(type_text: str) -> bool:
    """Whether Spark's JSON text of a type is that of a number."""
    name = type_text.strip('"')
    return name in NUMBERS or name.startswith("decimal")
