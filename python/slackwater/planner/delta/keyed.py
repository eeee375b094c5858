"""Groups that are computed anew from their rows, at each time at which they changed.

A *step* is a group and a time at which one of its rows changed; its result holds until the
group's next step. The recorded row of the group is retracted at its first step. It is read back
and never recomputed, so that it cancels also where Spark's result depends on the order of rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from slackwater.planner.delta.aggregates import ignores_copies
from slackwater.planner.plan import fragments as render
from slackwater.planner.plan.fragments import cast, diff, named, number, select, sub, time
from slackwater.planner.plan.nodes import Aggregate, CountRows, column, column_name, position_of
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import DIFF_COLUMN, sql_type

_AT = "__at"
_UNTIL = "__until"


def steps(
    node: Aggregate, delta: exp.Query | None, always_at: Timestamp | None
) -> exp.Select | None:
    """The steps of the groups (``__k0``, ..., ``__at``, ``__until``); None: there are none.

    `always_at`: a time at which a group without keys begins, whether it has rows or not.
    """
    queries: list[exp.Query] = []
    if delta is not None:
        values = [*_key_values(node), named(time(), _AT)]
        queries.append(select(values, sub(delta.copy(), "t")))
    if always_at is not None:
        queries.append(select([named(cast(number(always_at), "BIGINT"), _AT)], None))
    if not queries:
        return None
    names = [*_key_names(node), exp.column(_AT)]
    distinct = render.group_by(
        select([n.copy() for n in names], sub(render.union_all(queries), "t")), names
    )
    order = exp.Order(expressions=[exp.Ordered(this=exp.column(_AT), nulls_first=True)])
    following = exp.Window(
        this=exp.Lead(this=exp.column(_AT)), partition_by=list(_key_names(node)), order=order
    )
    return select([*(n.copy() for n in names), named(following, _UNTIL)], sub(distinct, "t"))


def results(node: Aggregate, changed: exp.Select, rows: exp.Query | None, small: bool) -> exp.Query:
    """The state's row of each step whose group has rows, ``__time`` and ``__until`` of the step.

    `changed` are the steps, `rows` the updates of the node's input with times before the end of
    the interval. `small`: the steps may be broadcast. Without keys each step has a row.
    """
    queries: list[exp.Query] = []
    if rows is not None:
        contents = _contents(node, changed, rows, small)
        queries.append(_aggregated(node, contents))
    if not node.keys:
        queries.append(_without_rows(node, changed, rows))
    return render.union_all(queries)


def retractions(node: Aggregate, changed: exp.Select, recorded: exp.Query) -> exp.Select:
    """The recorded rows of the groups, retracted at their first steps."""
    first = named(exp.Min(this=exp.column(_AT)), _AT)
    groups = render.group_by(
        select([*_key_names(node), first], sub(changed.copy(), "t")), _key_names(node)
    )
    if not node.keys:
        # There would be one row, without a time, when there is no step at all.
        there = exp.Is(this=exp.Min(this=exp.column(_AT)), expression=exp.Null()).not_()
        groups.set("having", exp.Having(this=there))
    query = select(
        [
            *(column(i, "s") for i in range(len(node.desc.columns))),
            named(exp.column(_AT, table="g"), "__time"),
            named(exp.Neg(this=diff("s")), DIFF_COLUMN),
        ],
        sub(groups, "g"),
    )
    same = [
        exp.NullSafeEQ(this=column(i, "s"), expression=exp.column(f"__k{i}", table="g"))
        for i in range(len(node.keys))
    ]
    _join(query, sub(recorded, "s"), same)
    return query


def _contents(node: Aggregate, changed: exp.Select, rows: exp.Query, small: bool) -> exp.Select:
    """The rows of each step's group at the step's time, with what the aggregates read of them."""
    read = _read(node)
    source = select(
        [*_key_values(node), *(column(i) for i in read), time(), diff()], sub(rows.copy(), "t")
    )
    own = [
        *(exp.column(f"__k{i}", table="s") for i in range(len(node.keys))),
        exp.column(_AT, table="s"),
        exp.column(_UNTIL, table="s"),
        *(column(i, "h") for i in read),
    ]
    total = exp.Sum(this=diff("h"))
    query = select([*own, named(total, DIFF_COLUMN)], sub(changed.copy(), "s"))
    same: list[exp.Expr] = [
        exp.NullSafeEQ(
            this=exp.column(f"__k{i}", table="s"), expression=exp.column(f"__k{i}", table="h")
        )
        for i in range(len(node.keys))
    ]
    same.append(exp.LTE(this=time("h"), expression=exp.column(_AT, table="s")))
    _join(query, sub(source, "h"), same)
    if small:
        hint = exp.Anonymous(this="BROADCAST", expressions=[exp.column("s")])
        query.set("hint", exp.Hint(expressions=[hint]))
    query = render.group_by(query, [o.copy() for o in own])
    nonzero = exp.NEQ(this=total.copy(), expression=number(0))
    query.set("having", exp.Having(this=nonzero))
    return query


def _aggregated(node: Aggregate, contents: exp.Select) -> exp.Select:
    copies = any(not ignores_copies(call) for call in node.calls)
    if copies or any(render.needs_unit_diffs(a) for a in node.accumulators):
        names = [*_key_names(node), exp.column(_AT), exp.column(_UNTIL)]
        contents = render.unit_diffs(contents, [*names, *(column(i) for i in _read(node))])
    groups = [*_key_names(node), exp.column(_AT), exp.column(_UNTIL)]
    keys = [named(name, column_name(i)) for i, name in enumerate(_key_names(node))]
    made = select([*keys, *_values(node), *_span()], sub(contents, "t"))
    return render.group_by(made, groups)


def _without_rows(node: Aggregate, changed: exp.Select, rows: exp.Query | None) -> exp.Select:
    """The steps at which a group without keys has no rows, each with the result for no rows."""
    nothing = select([*_zeros(node), *_values(node)[-len(node.calls) :]], None)
    empty = select([*(_null(node, i) for i in _read(node)), named(number(1), "__one")], None)
    none = exp.Boolean(this=False)
    nothing = nothing.from_(sub(empty, "t"), copy=False).where(none, copy=False)
    width = len(node.desc.columns)
    query = select([*(column(i, "n") for i in range(width)), *_span("s")], sub(changed.copy(), "s"))
    if rows is not None:
        contents = _contents(node, changed, rows, False)
        with_rows = sub(select([exp.column(_AT)], sub(contents, "t")), "p")
        same = exp.EQ(this=exp.column(_AT, table="s"), expression=exp.column(_AT, table="p"))
        query.append("joins", exp.Join(this=with_rows, side="LEFT", kind="ANTI", on=same))
    _join(query, sub(nothing, "n"), [])
    return query


def _values(node: Aggregate) -> list[exp.Expr]:
    """The columns of the state after its keys, from rows with their diffs."""
    first = len(node.keys)
    counted = exp.Coalesce(this=exp.Sum(this=diff()), expressions=[number(0)])
    values = [counted, *(render.contribution(a) for a in node.accumulators), *node.calls]
    return [named(value.copy(), column_name(first + i)) for i, value in enumerate(values)]


def _zeros(node: Aggregate) -> list[exp.Expr]:
    """The number of rows and the accumulators of a group without keys and rows."""
    count = 1 + len(node.accumulators)
    kinds = [sql_type(node.desc.columns[i].spark_type) for i in range(count)]
    return [named(cast(number(0), kind), column_name(i)) for i, kind in enumerate(kinds)]


def _null(node: Aggregate, position: int) -> exp.Expr:
    kind = sql_type(node.input.desc.columns[position].spark_type)
    return named(cast(exp.Null(), kind), column_name(position))


def _span(table: str | None = None) -> list[exp.Expr]:
    return [named(exp.column(_AT, table=table), "__time"), exp.column(_UNTIL, table=table)]


def _read(node: Aggregate) -> list[int]:
    """The positions of the input's columns that the aggregates speak of."""
    spoken = [*node.calls]
    for item in node.accumulators:
        spoken.append(item.condition if isinstance(item, CountRows) else item.value)
    found = {position_of(c) for value in spoken for c in value.find_all(exp.Column)}
    return sorted(position for position in found if position is not None)


def _key_values(node: Aggregate) -> list[exp.Expr]:
    return [named(key.copy(), f"__k{i}") for i, key in enumerate(node.keys)]


def _key_names(node: Aggregate) -> list[exp.Expr]:
    return [exp.column(f"__k{i}") for i in range(len(node.keys))]


def _join(query: exp.Select, right: exp.Subquery, on: Sequence[exp.Expr]) -> None:
    if on:
        query.append("joins", exp.Join(this=right, kind="INNER", on=exp.and_(*on)))
    else:
        query.append("joins", exp.Join(this=right, kind="CROSS"))
