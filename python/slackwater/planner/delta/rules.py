"""Delta rules: the updates of a plan in an interval of times, as Spark SQL.

A collection appears as two named views over its recorded updates (columns, ``__time``,
``__diff``): its *delta*, the updates with ``lower <= time < upper``, and its *old* side, those
below `lower`. In the first interval there is nothing old, and the delta has the times below
`lower` raised to it. Old updates need not be consolidated: every rule multiplies or sums diffs.

The result is exact at every time of the interval: a row of a join comes at the later of the times
of its parts, an aggregate is summed up over time within its group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from sqlglot import exp

from slackwater.planner.delta import keyed
from slackwater.planner.plan import fragments as render
from slackwater.planner.plan.fragments import (
    cast,
    diff,
    named,
    number,
    quoted,
    select,
    sub,
    table,
    time,
)
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
    collection_table,
    column,
    column_name,
    position_of,
)
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN, RelationDesc, sql_type

Leaf = GlobalId | int
"""A collection by its id, or a state by its number."""


@dataclass(frozen=True, slots=True)
class UpdatesView:
    """A named view that a query reads: the delta of `leaf`, or what is older."""

    leaf: Leaf
    old: bool

    def name(self, prefix: str) -> str:
        side = "old" if self.old else "delta"
        leaf = f"state{self.leaf}" if isinstance(self.leaf, int) else self.leaf
        return f"{prefix}_{leaf}_{side}"


@dataclass(frozen=True, slots=True)
class Interval:
    """The interval ``[lower, upper)`` of a tick. `first`: nothing was recorded before it."""

    lower: Timestamp
    upper: Timestamp
    first: bool


@dataclass(frozen=True, slots=True)
class UpdatesQuery:
    """A query for updates, and the views that must exist when it runs."""

    text: str
    reads: frozenset[UpdatesView]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is known of the leaves in this interval.

    `changed` are those with updates in it; `small` those of them whose delta may be broadcast;
    `retracted` those of them with retractions. `wary`: among the old updates are rows that were
    corrected because an expression fails on them, so that it must not be applied to them again.
    """

    changed: Set[Leaf]
    small: Set[Leaf]
    retracted: Set[Leaf] = frozenset()
    wary: bool = False


def state_delta(
    aggregate: Aggregate, interval: Interval, inputs: Inputs, prefix: str
) -> UpdatesQuery | None:
    """The updates of the aggregate's state collection, consolidated; None: there are none."""
    rules = _Rules(interval, inputs, prefix)
    query = rules.state(aggregate)
    return None if query is None else rules.finish(query, aggregate.desc)


def output_delta(
    view: ViewPlan, interval: Interval, inputs: Inputs, prefix: str
) -> UpdatesQuery | None:
    """The updates of the view, with its own column names, consolidated; None: there are none.

    The states that changed must be among ``inputs.changed``, under their numbers.
    """
    rules = _Rules(interval, inputs, prefix)
    query = rules.delta(view.root)
    return None if query is None else rules.finish(query, view.output)


def opaque_delta(view: ViewPlan, at: Timestamp, recorded: bool, prefix: str) -> UpdatesQuery:
    """The updates of an Opaque view at the time `at`: its query then, less the recorded output.

    `delta` views of its collections must hold all updates up to and including `at`. `recorded`:
    there is older output, in the old view of the state number 0.
    """
    root = view.root
    assert isinstance(root, Opaque)
    rules = _Rules(Interval(at, at, False), Inputs(frozenset(), frozenset()), prefix)
    return rules.recompute(root, view.output, at, recorded)


class _Rules:
    def __init__(self, interval: Interval, inputs: Inputs, prefix: str) -> None:
        self._interval = interval
        self._inputs = inputs
        self._prefix = prefix
        self._reads: set[UpdatesView] = set()

    # The two questions

    def delta(self, node: Plan) -> exp.Query | None:
        """The node's updates in the interval; None: certainly none."""
        match node:
            case Collection(global_id):
                changed = global_id in self._inputs.changed
                return self._collection_delta(node) if changed else None
            case Aggregate():
                return self._state_view(node, False)
            case Constant():
                return self._constant(node, self._interval.lower) if self._interval.first else None
            case Join():
                return self._join_delta(node)
            case UnionAll():
                return self._union(node, self.delta)
            case Without():
                return self._without(node, self.delta, True)
            case Project() | Filter() | Explode():
                below = self.delta(node.input)
                return None if below is None else _linear(node, below)
            case Opaque():
                raise ValueError("an Opaque is recomputed")

    def old(self, node: Plan) -> exp.Query | None:
        """The node's updates before the interval, with any times; None: certainly none."""
        if self._interval.first:
            return None
        match node:
            case Collection():
                return self._collection_old(node)
            case Aggregate():
                return self._state_view(node, True)
            case Constant():
                return self._constant(node, Timestamp(0))
            case Join():
                sides = [self.old(child) for child in node.inputs]
                present = [side for side in sides if side is not None]
                return self._product(node, present, 0) if len(present) == len(sides) else None
            case UnionAll():
                return self._union(node, self.old)
            case Without():
                return self._without(node, self.old, False)
            case Project() | Filter() | Explode():
                below = self.old(node.input)
                return None if below is None else _linear(node, below)
            case Opaque():
                raise ValueError("an Opaque is recomputed")

    # Leaves

    def _collection_delta(self, node: Collection) -> exp.Select:
        """In the first interval, without the rows that were gone before it.

        An expression that fails on such a row must not fail now.
        """
        view = self._view(node.global_id, node.columns, False)
        if not self._interval.first or node.global_id not in self._inputs.retracted:
            return view
        columns, keys = render.by_value(node.desc)
        total = named(exp.Sum(this=diff()), DIFF_COLUMN)
        grouped = select([*columns, time(), total], sub(view, "t"))
        return _nonzero(render.group_by(grouped, [*keys, time()]))

    def _collection_old(self, node: Collection) -> exp.Select:
        view = self._view(node.global_id, node.columns, True)
        if not self._inputs.wary:
            return view
        columns, keys = render.by_value(node.desc)
        before = named(cast(number(0), "BIGINT"), TIME_COLUMN)
        total = named(exp.Sum(this=diff()), DIFF_COLUMN)
        grouped = select([*columns, before, total], sub(view, "t"))
        return _nonzero(render.group_by(grouped, keys))

    def _view(self, leaf: Leaf, names: Sequence[str], old: bool) -> exp.Select:
        view = UpdatesView(leaf, old)
        self._reads.add(view)
        values = [named(quoted(name), column_name(i)) for i, name in enumerate(names)]
        return select([*values, time(), diff()], table(view.name(self._prefix)))

    def _state_view(self, node: Aggregate, old: bool) -> exp.Select | None:
        if not old and node.state not in self._inputs.changed:
            return None
        return self._view(node.state, node.desc.names, old)

    def _constant(self, node: Constant, since: Timestamp) -> exp.Select:
        names = [exp.to_identifier(c.name) for c in node.desc.columns]
        alias = exp.TableAlias(this=exp.to_identifier("t"), columns=names)
        source = exp.Subquery(this=node.query.copy(), alias=alias)
        at = named(cast(number(since), "BIGINT"), TIME_COLUMN)
        once = named(cast(number(1), "BIGINT"), DIFF_COLUMN)
        return select([*_columns(node.desc), at, once], source)

    # Union and join

    def _union(self, node: UnionAll, side: Callable[[Plan], exp.Query | None]) -> exp.Query | None:
        queries = []
        for child in node.inputs:
            query = side(child)
            if query is not None:
                values = [
                    named(cast(column(i), sql_type(c.spark_type)), column_name(i))
                    for i, c in enumerate(node.desc.columns)
                ]
                queries.append(select([*values, time(), diff()], sub(query, "t")))
        return render.union_all(queries) if queries else None

    def _without(
        self, node: Without, side: Callable[[Plan], exp.Query | None], timed: bool
    ) -> exp.Query | None:
        """Consolidated: an expression above must not see rows that were never there."""
        kept, removed = side(node.input), side(node.removed)
        queries = [] if kept is None else [kept]
        if removed is not None:
            negated = named(exp.Neg(this=diff()), DIFF_COLUMN)
            queries.append(select([*_columns(node.desc), time(), negated], sub(removed, "t")))
        if not queries:
            return None
        both = sub(render.union_all(queries), "t")
        values, keys = render.by_value(node.desc)
        total = named(exp.Sum(this=diff()), DIFF_COLUMN)
        if timed:
            keys.append(time())
            query = select([*values, time(), total], both)
        else:
            before = cast(number(0), "BIGINT")
            query = select([*values, named(before, TIME_COLUMN), total], both)
        return _nonzero(render.group_by(query, keys))

    def _join_delta(self, node: Join) -> exp.Query | None:
        """The sum over the changed inputs: new left of the changed one, old right of it."""
        terms = []
        for changed, child in enumerate(node.inputs):
            delta = self.delta(child)
            if delta is None:
                continue
            before = [self._new(other) for other in node.inputs[:changed]]
            after = [self.old(other) for other in node.inputs[changed + 1 :]]
            sides = [*before, delta, *after]
            present = [side for side in sides if side is not None]
            if len(present) == len(sides):
                terms.append(self._product(node, present, changed))
        return render.union_all(terms) if terms else None

    def _new(self, node: Plan) -> exp.Query | None:
        sides = [side for side in (self.old(node), self.delta(node)) if side is not None]
        return render.union_all(sides) if sides else None

    def _product(self, node: Join, sides: Sequence[exp.Query], first: int) -> exp.Select:
        """The join of `sides`, the one at `first` written first: the others are looked up."""
        places = [
            column(i, f"t{side}")
            for side, child in enumerate(node.inputs)
            for i in range(len(child.desc.columns))
        ]
        values = [named(place.copy(), column_name(i)) for i, place in enumerate(places)]
        names = [f"t{side}" for side in range(len(sides))]
        if len(sides) > 1:
            later: exp.Expr = exp.Greatest(
                this=time("t0"), expressions=[time(n) for n in names[1:]]
            )
            product: exp.Expr = diff("t0")
            for name in names[1:]:
                product = exp.Mul(this=product, expression=diff(name))
        else:
            later, product = time("t0"), diff("t0")
        order = [first, *(i for i in range(len(sides)) if i != first)]
        query = select(
            [*values, named(later, TIME_COLUMN), named(product, DIFF_COLUMN)],
            sub(sides[first], names[first]),
        )
        for i in order[1:]:
            query.append("joins", exp.Join(this=sub(sides[i], names[i]), kind="CROSS"))
        if node.conditions:
            query = query.where(*(_placed(c, places) for c in node.conditions), copy=False)
        if len(sides) > 1 and self._is_small(node.inputs[first]):
            hint = exp.Anonymous(this="BROADCAST", expressions=[exp.column(names[first])])
            query.set("hint", exp.Hint(expressions=[hint]))
        return query

    def _is_small(self, node: Plan) -> bool:
        match node:
            case Collection():
                return node.global_id in self._inputs.small
            case Aggregate():
                return node.state in self._inputs.small
            case Project() | Filter():
                return self._is_small(node.input)
            case _:
                return False

    # Aggregates

    def state(self, node: Aggregate) -> exp.Query | None:
        """Retract each group's row and add the new one, at each time at which it changed.

        The contributions of each (group, time) are summed over time, on top of the group's old
        row; a row of sums holds until the group's next one.
        """
        if node.is_keyed:
            return self._keyed_state(node)
        sums = self._contributions(node)
        if sums is None:
            return None
        keys = range(len(node.keys))
        width = len(node.desc.columns)
        steps = [select([*_columns(node.desc), time()], sub(sums.copy(), "t"))]
        if not self._interval.first:
            steps.append(self._old_state(node, sums))
        partition = [column(i) for i in keys]
        order = exp.Order(expressions=[exp.Ordered(this=time(), nulls_first=True)])

        def over(function: exp.Expr, running: bool) -> exp.Window:
            window = exp.Window(
                this=function, partition_by=[p.copy() for p in partition], order=order.copy()
            )
            if running:
                rows = exp.WindowSpec(
                    kind="ROWS",
                    start="UNBOUNDED",
                    start_side="PRECEDING",
                    end="CURRENT ROW",
                )
                window.set("spec", rows)
            return window

        totals = [
            named(cast(over(exp.Sum(this=column(i)), True), _kind(node.desc, i)), column_name(i))
            for i in range(len(node.keys), width)
        ]
        until = named(over(exp.Lead(this=time()), False), "__until")
        running = select(
            [*(column(i) for i in keys), *totals, time(), until],
            sub(render.union_all(steps), "t"),
        )
        return _steps_to_updates(node, running)

    def _contributions(self, node: Aggregate) -> exp.Query | None:
        delta = self.delta(node.input)
        width = len(node.input.desc.columns)
        if delta is not None and any(render.needs_unit_diffs(a) for a in node.accumulators):
            delta = render.unit_diffs(delta, [*_columns(node.input.desc), time()])
        parts: list[exp.Query] = []
        count = len(node.keys)
        if delta is not None:
            with_keys = select(
                [
                    *(named(k.copy(), f"__k{i}") for i, k in enumerate(node.keys)),
                    *(column(i) for i in range(width)),
                    time(),
                    diff(),
                ],
                sub(delta, "t"),
            )
            keys = [exp.column(f"__k{i}") for i in range(count)]
            rows = exp.Coalesce(this=exp.Sum(this=diff()), expressions=[number(0)])
            values = [rows, *(render.contribution(a) for a in node.accumulators)]
            grouped = select(
                [
                    *(named(key, column_name(i)) for i, key in enumerate(keys)),
                    *(named(v, column_name(count + i)) for i, v in enumerate(values)),
                    time(),
                ],
                sub(with_keys, "t"),
            )
            parts.append(render.group_by(grouped, [*(k.copy() for k in keys), time()]))
        if self._interval.first and count == 0:
            parts.append(self._zero(node))
        if len(parts) < 2:
            return parts[0] if parts else None
        summed = [
            named(cast(exp.Sum(this=column(i)), _kind(node.desc, i)), column_name(i))
            for i in range(len(node.desc.columns))
        ]
        merged = select([*summed, time()], sub(render.union_all(parts), "t"))
        return render.group_by(merged, [time()])

    def _zero(self, node: Aggregate) -> exp.Select:
        """A global aggregate has its row from the first time on, also without input."""
        zeros = [
            named(cast(number(0), _kind(node.desc, i)), column_name(i))
            for i in range(len(node.desc.columns))
        ]
        at = named(cast(number(self._interval.lower), "BIGINT"), TIME_COLUMN)
        return select([*zeros, at], None)

    def _old_state(self, node: Aggregate, sums: exp.Query) -> exp.Select:
        """The rows of the affected groups before the interval, with the time NULL."""
        recorded = self._view(node.state, node.desc.names, True)
        affected = sub(recorded, "s")
        query = select(
            [*(column(i, "s") for i in range(len(node.desc.columns))), diff("s")], affected
        )
        if node.keys:
            groups = select([column(i) for i in range(len(node.keys))], sub(sums.copy(), "t"))
            same = exp.and_(
                *(
                    exp.NullSafeEQ(this=column(i, "s"), expression=column(i, "g"))
                    for i in range(len(node.keys))
                )
            )
            join = exp.Join(this=sub(groups, "g"), side="LEFT", kind="SEMI", on=same)
            query.append("joins", join)
        columns = _columns(node.desc)
        never = named(cast(exp.Null(), "BIGINT"), TIME_COLUMN)
        kept = select([*columns, never], sub(query, "t"))
        kept = render.group_by(kept, [c.copy() for c in columns])
        return _nonzero(kept)

    def _keyed_state(self, node: Aggregate) -> exp.Query | None:
        delta, old = self.delta(node.input), self.old(node.input)
        begins = self._interval.first and not node.keys
        changed = keyed.steps(node, delta, self._interval.lower if begins else None)
        if changed is None:
            return None
        sides = [side for side in (old, delta) if side is not None]
        rows = render.union_all(sides) if sides else None
        found = keyed.results(node, changed, rows, self._is_small(node.input))
        updates: exp.Query = _steps_to_updates(node, found)
        if not self._interval.first:
            recorded = self._view(node.state, node.desc.names, True)
            updates = render.union_all([updates, keyed.retractions(node, changed, recorded)])
        return updates

    # Results

    def finish(self, query: exp.Query, desc: RelationDesc) -> UpdatesQuery:
        """`query` with the types and names of `desc`, one row for each (row, time)."""
        width = len(desc.columns)
        typed = select(
            [
                *(named(cast(column(i), _kind(desc, i)), column_name(i)) for i in range(width)),
                time(),
                diff(),
            ],
            sub(query, "t"),
        )
        values, keys = render.by_value(desc)
        total = named(exp.Sum(this=diff()), DIFF_COLUMN)
        grouped = select(
            [
                *(
                    exp.alias_(value.unalias(), c.name, quoted=True)
                    for value, c in zip(values, desc.columns, strict=True)
                ),
                time(),
                total,
            ],
            sub(typed, "t"),
        )
        grouped = render.group_by(grouped, [*keys, time()])
        text = _nonzero(grouped).sql(dialect=render.DIALECT)
        return UpdatesQuery(text, frozenset(self._reads))

    def recompute(
        self, node: Opaque, output: RelationDesc, at: Timestamp, recorded: bool
    ) -> UpdatesQuery:
        query = node.query.copy()
        relations = {collection_table(c.global_id): c for c in node.reads}
        for leaf in [t for t in query.find_all(exp.Table) if t.name in relations]:
            snapshot = exp.Subquery(this=self._snapshot(relations[leaf.name]))
            for name, value in leaf.args.items():
                if value and name != "this":
                    snapshot.set(name, value)
            leaf.replace(snapshot)
        names = [exp.to_identifier(column_name(i)) for i in range(len(output.columns))]
        alias = exp.TableAlias(this=exp.to_identifier("t"), columns=names)
        when = named(cast(number(at), "BIGINT"), TIME_COLUMN)
        now = select(
            [
                *(
                    named(cast(column(i), _kind(output, i)), column_name(i))
                    for i in range(len(output.columns))
                ),
                when,
                named(cast(number(1), "BIGINT"), DIFF_COLUMN),
            ],
            exp.Subquery(this=query, alias=alias),
        )
        sides: list[exp.Query] = [now]
        if recorded:
            before = self._view(0, output.names, True)
            negated = named(exp.Neg(this=diff()), DIFF_COLUMN)
            sides.append(select([*_columns(node.desc), when.copy(), negated], sub(before, "t")))
        return self.finish(render.union_all(sides), output)

    def _snapshot(self, node: Collection) -> exp.Select:
        """The collection's rows, each as often as it occurs, under its own column names."""
        columns, keys = render.by_value(node.desc)
        updates = self._view(node.global_id, node.columns, False)
        total = named(exp.Sum(this=diff()), "__n")
        counted = render.group_by(select([*columns, total], sub(updates, "t")), keys)
        counted = _nonzero(counted)
        times = exp.Anonymous(
            this="sequence", expressions=[cast(number(1), "BIGINT"), exp.column("__n")]
        )
        rows = select(
            [exp.alias_(column(i), name, quoted=True) for i, name in enumerate(node.columns)],
            sub(counted, "t"),
        )
        rows.append("laterals", render.lateral(exp.Explode(this=times), False, ("__i",)))
        return rows


def _linear(node: Project | Filter | Explode, below: exp.Query) -> exp.Select:
    source = sub(below, "t")
    match node:
        case Project(_, expressions, _):
            values = [named(e.copy(), column_name(i)) for i, e in enumerate(expressions)]
            return select([*values, time(), diff()], source)
        case Filter(_, condition):
            query = select([*_columns(node.desc), time(), diff()], source)
            return query.where(condition.copy(), copy=False)
        case Explode(input_, generator, outer, desc):
            names = desc.names[len(input_.desc.columns) :]
            query = select([*_columns(desc), time(), diff()], source)
            query.append("laterals", render.lateral(generator, outer, names))
            return query


def _steps_to_updates(node: Aggregate, running: exp.Query) -> exp.Select:
    """From the values that hold from ``__time`` until ``__until`` to updates.

    Without keys there is always a row; else there is one while the group has rows.
    """
    updates = exp.Array(
        expressions=[
            _step(time(), 1),
            _step(exp.column("__until"), -1),
        ]
    )
    names = [*_columns(node.desc), time("__g"), diff("__g")]
    source = select([*_columns(node.desc), time(), exp.column("__until")], sub(running, "t"))
    if node.keys:
        rows = column(len(node.keys))
        source = source.where(exp.NEQ(this=rows, expression=number(0)), copy=False)
    renamed = select(
        [*_columns(node.desc), named(time(), "__from"), exp.column("__until")], sub(source, "t")
    )
    for reference in updates.find_all(exp.Column):
        if reference.name == TIME_COLUMN:
            reference.replace(exp.column("__from"))
    query = select(names, sub(renamed, "t"))
    inline = exp.Inline(this=updates)
    query.append("laterals", render.lateral(inline, False, (TIME_COLUMN, DIFF_COLUMN)))
    present = exp.Not(this=exp.Is(this=time("__g"), expression=exp.Null()))
    return query.where(present, copy=False)


def _step(at: exp.Expr, sign: int) -> exp.Expr:
    return exp.Anonymous(
        this="named_struct",
        expressions=[
            exp.Literal.string("t"),
            at,
            exp.Literal.string("d"),
            cast(number(sign), "BIGINT"),
        ],
    )


def _nonzero(grouped: exp.Select) -> exp.Select:
    nonzero = exp.NEQ(this=exp.Sum(this=diff()), expression=number(0))
    grouped.set("having", exp.Having(this=nonzero))
    return grouped


def _columns(desc: RelationDesc) -> list[exp.Expr]:
    return [column(i) for i in range(len(desc.columns))]


def _kind(desc: RelationDesc, position: int) -> str:
    return sql_type(desc.columns[position].spark_type)


def _placed(condition: exp.Expr, places: Sequence[exp.Column]) -> exp.Expr:
    """A join's condition with each column taken from the side that has it."""

    def place(node: exp.Expr) -> exp.Expr:
        position = position_of(node)
        return node if position is None else places[position].copy()

    return exp.paren(condition.copy()).transform(place, copy=False)
