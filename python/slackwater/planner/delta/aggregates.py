"""Accumulable aggregate functions: what is kept for each group, and the result from it.

Sums are exact, so they do not depend on the order of the updates and can be taken back:

* integers and DECIMAL are summed as DECIMAL(38, scale); the result is cast to the type that
  Spark gives the function, and that cast fails where Spark's result would overflow (ANSI);
* FLOAT and DOUBLE are summed in fixed point, in units of 10^-12, each value rounded to that unit;
  values of 10^26 and more in magnitude are a data error. NaN and the infinities are counted aside.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from slackwater.planner.plan.fragments import cast
from slackwater.planner.plan.nodes import Accumulator, CountRows, SumValues, column
from slackwater.planner.plan.scope import NotPlanned
from slackwater.repr.relation import Column, sql_type

DOUBLE_UNITS = 10**12
"""How many units of the fixed point sum of FLOAT and DOUBLE make 1."""

MAX_DIGITS = 38
_INTEGERS = {"byte": 3, "short": 5, "integer": 10, "long": 20}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_OPAQUE_ADVICE = "Cast the value to a numeric type."


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an aggregate function with resolved arguments. `condition`: its FILTER."""

    function: exp.Expr
    condition: exp.Expr | None

    @property
    def argument(self) -> exp.Expr:
        argument: exp.Expr = self.function.this
        return argument


class AccumulatorList:
    """Accumulators of one GROUP BY in the making; equal ones are kept once."""

    def __init__(self, first: int) -> None:
        self._first = first
        self.items: list[Accumulator] = []

    def add(self, item: Accumulator) -> exp.Column:
        """The column of the state that has `item`."""
        if item not in self.items:
            self.items.append(item)
        return column(self._first + self.items.index(item))


def call_of(node: exp.Expr) -> Call | None:
    """The accumulable call that an aggregate node (with or without FILTER) is; None: it is none."""
    condition = None
    function = node
    if isinstance(node, exp.Filter):
        condition = node.expression.this
        function = node.this
    if isinstance(function.this, exp.Distinct):
        return None
    if not isinstance(function, exp.Count | exp.CountIf | exp.Sum | exp.Avg):
        return None
    return Call(function, condition)


def ignores_copies(node: exp.Expr) -> bool:
    """Whether the result of an aggregate node does not depend on how often a row occurs."""
    function = node.this if isinstance(node, exp.Filter) else node
    return isinstance(function, exp.Min | exp.Max) or isinstance(function.this, exp.Distinct)


def call_around(node: exp.Expr) -> exp.Expr:
    """The aggregate function `node` with the clauses behind it: FILTER, WITHIN GROUP, ..."""
    while isinstance(node.parent, _CLAUSES) and node.parent.this is node:
        node = node.parent
    return node


_CLAUSES = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)


def result(
    call: Call, argument: Column | None, output: Column, state: AccumulatorList, rows: exp.Column
) -> exp.Expr:
    """The value of the call as an expression over the columns of the state.

    `argument` is the type of the call's argument (SUM, AVG), `output` the type of its result,
    `rows` the column of the state that counts the rows. Adds to `state` what is needed.
    """
    match call.function:
        case exp.Count():
            condition = _all_of([_counted(call), call.condition])
            if condition is None:
                return rows.copy()
            return state.add(CountRows(condition))
        case exp.CountIf():
            condition = _all_of([call.argument, call.condition])
            return state.add(CountRows(condition)) if condition is not None else rows.copy()
        case _:
            if argument is None:
                raise NotPlanned("a sum without an argument", _OPAQUE_ADVICE)
            return _sum_or_average(call, argument, output, state)


def _counted(call: Call) -> exp.Expr | None:
    arguments = [call.function.this, *call.function.expressions]
    tests = [
        exp.Not(this=exp.Is(this=exp.paren(a.copy()), expression=exp.Null()))
        for a in arguments
        if a is not None and not isinstance(a, exp.Star | exp.Literal)
    ]
    return _all_of(tests)


def _all_of(conditions: Sequence[exp.Expr | None]) -> exp.Expr | None:
    present = [exp.paren(c.copy()) for c in conditions if c is not None]
    return exp.and_(*present) if present else None


def _sum_or_average(
    call: Call, argument: Column, output: Column, state: AccumulatorList
) -> exp.Expr:
    kind = argument.spark_type
    value = call.argument
    present = exp.Not(this=exp.Is(this=exp.paren(value.copy()), expression=exp.Null()))
    condition = _all_of([present, call.condition])
    if not isinstance(kind, str) or condition is None:
        raise NotPlanned(f"a sum over {argument.sql_type}", _OPAQUE_ADVICE)
    count = state.add(CountRows(condition))
    average = isinstance(call.function, exp.Avg)
    if kind in ("float", "double"):
        total = _double_sum(value, call.condition, state)
        if average:
            total = _divide(total, _cast(count, "DOUBLE"))
    elif kind in _INTEGERS:
        total = state.add(_sum(value, call.condition, _INTEGERS[kind], 0))
        if average:
            total = _divide(_cast(total, "DOUBLE"), _cast(count, "DOUBLE"))
    elif (decimal := _DECIMAL.fullmatch(kind)) is not None:
        precision, scale = int(decimal[1]), int(decimal[2])
        total = state.add(_sum(value, call.condition, precision, scale))
        if average:
            total = _decimal_average(total, count, precision, scale)
    else:
        raise NotPlanned(f"a sum over {argument.sql_type}", "Cast the value to a numeric type.")
    total = _cast(total, sql_type(output.spark_type))
    return (
        exp.case().when(exp.EQ(this=count.copy(), expression=_number(0)), exp.Null()).else_(total)
    )


def _sum(value: exp.Expr, condition: exp.Expr | None, precision: int, scale: int) -> SumValues:
    typed = _cast(exp.paren(value.copy()), f"DECIMAL({precision}, {scale})")
    if condition is not None:
        typed = exp.case().when(condition.copy(), typed)
    return SumValues(typed, precision, scale)


def _double_sum(value: exp.Expr, condition: exp.Expr | None, state: AccumulatorList) -> exp.Expr:
    """The sum of the finite values; NaN or an infinity where one is among the values."""
    number = _cast(exp.paren(value.copy()), "DOUBLE")
    infinity, negative, nan = (_cast(exp.Literal.string(t), "DOUBLE") for t in _SPECIALS)

    def count(special: exp.Expr) -> exp.Expr:
        is_special = exp.EQ(this=number.copy(), expression=special.copy())
        condition_of = _all_of([is_special, condition])
        assert condition_of is not None
        return exp.GT(this=state.add(CountRows(condition_of)), expression=_number(0))

    finite = exp.and_(
        exp.NEQ(this=number.copy(), expression=infinity.copy()),
        exp.NEQ(this=number.copy(), expression=negative.copy()),
        exp.NEQ(this=number.copy(), expression=nan.copy()),
    )
    units = exp.Mul(this=number.copy(), expression=_cast(_number(DOUBLE_UNITS), "DOUBLE"))
    guarded = exp.case().when(finite, units)
    kept = state.add(_sum(guarded, condition, MAX_DIGITS, 0))
    has_nan, has_infinity, has_negative = count(nan), count(infinity), count(negative)
    sum_of_finite = _divide(_cast(kept, "DOUBLE"), _cast(_number(DOUBLE_UNITS), "DOUBLE"))
    return (
        exp.case()
        .when(exp.or_(has_nan, exp.and_(has_infinity.copy(), has_negative.copy())), nan.copy())
        .when(has_infinity, infinity.copy())
        .when(has_negative, negative.copy())
        .else_(sum_of_finite)
    )


_SPECIALS = ("Infinity", "-Infinity", "NaN")


def _decimal_average(total: exp.Expr, count: exp.Expr, precision: int, scale: int) -> exp.Expr:
    """Sum / count with at least scale + 4 digits behind the point, as Spark's avg has.

    Spark's division keeps fewer digits the wider the dividend is; so the dividend is narrowed
    to 34 digits where it fits.
    """
    if scale > 30:
        raise NotPlanned(
            f"AVG over DECIMAL({precision}, {scale})", "Cast the value to a scale of at most 30."
        )
    narrow = min(precision + 10, 34)
    if narrow - scale < 1:
        narrow = 34
    rows = _cast(count, "DECIMAL(19, 0)")
    fits = exp.TryCast(this=total.copy(), to=exp.DataType.build(f"DECIMAL({narrow}, {scale})"))
    return exp.Coalesce(this=_divide(fits, rows), expressions=[_divide(total, rows)])


def _divide(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """left / right; NULL for an empty group, whose result is NULL anyway."""
    divisor = exp.Nullif(this=right.copy(), expression=_number(0))
    return exp.Div(this=left.copy(), expression=divisor, typed=False, safe=False)


def _cast(value: exp.Expr, kind: str) -> exp.Expr:
    return cast(value.copy(), kind)


def _number(value: int) -> exp.Expr:
    return exp.Literal.number(value)
