"""Outer, semi and anti joins, made of inner joins with the distinct keys of the other side.

Which rows of one side have a partner depends on the distinct keys of the other side alone. Those
are kept as a state, so a change touches the rows with keys that appear or disappear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from slackwater.planner.plan.fragments import cast
from slackwater.planner.plan.nodes import (
    Filter,
    Join,
    Plan,
    UnionAll,
    Without,
    column,
    position_of,
    positional,
)
from slackwater.repr.relation import RelationDesc, sql_type


class Make(Protocol):
    """Plans whose types Spark has to be asked for."""

    def project(self, plan: Plan, values: Sequence[exp.Expr]) -> Plan: ...

    def distinct(self, plan: Plan) -> Plan: ...


def semi(left: Plan, right: Plan, conditions: Sequence[exp.Expr], make: Make) -> Plan:
    """The rows of `left` for which a row of `right` fulfils `conditions`.

    Those speak of the columns of `left`, followed by those of `right`.
    """
    width = len(left.desc.columns)
    parts = _Conditions.of(conditions, width)
    if parts.others:
        pairs = Join((left, right), tuple(conditions))
        partners = make.distinct(make.project(pairs, _first(width)))
        same = [exp.NullSafeEQ(this=column(i), expression=column(width + i)) for i in range(width)]
        return make.project(Join((left, partners), tuple(same)), _first(width))
    candidates = Filter(right, exp.and_(*parts.right)) if parts.right else right
    values = [value for _, value, _ in parts.keys] or [exp.Literal.number(1)]
    found = make.distinct(make.project(candidates, values))
    matches = [
        kind(this=exp.paren(value.copy()), expression=column(width + i))
        for i, (value, _, kind) in enumerate(parts.keys)
    ]
    return make.project(Join((left, found), (*parts.left, *matches)), _first(width))


def anti(
    left: Plan,
    right: Plan,
    conditions: Sequence[exp.Expr],
    make: Make,
    meaning: str = "LeftAntiJoin",
) -> Plan:
    """The rows of `left` for which no row of `right` fulfils `conditions`."""
    return Without(left, semi(left, right, conditions, make), meaning)


def not_in(left: Plan, value: exp.Expr, right: Plan, make: Make) -> Plan:
    """The rows of `left` whose `value` is for certain not among the rows of `right`.

    With three-valued logic: a NULL on either side leaves it uncertain, unless `right` is empty.
    """
    width = len(left.desc.columns)
    equal = exp.EQ(this=exp.paren(value.copy()), expression=column(width))
    unknown = exp.Is(this=column(width), expression=exp.Null())
    absent = exp.Is(this=exp.paren(value.copy()), expression=exp.Null())
    for condition in (equal, unknown, absent):
        left = anti(left, right, (condition,), make)
    return left


def outer(side: str, left: Plan, right: Plan, conditions: Sequence[exp.Expr], make: Make) -> Plan:
    """LEFT, RIGHT or FULL OUTER JOIN: the pairs, and the rows without a partner beside NULLs."""
    widths = len(left.desc.columns), len(right.desc.columns)
    pairs = Join((left, right), tuple(conditions))
    inputs: list[Plan] = [pairs]
    if side in ("LEFT", "FULL"):
        alone = anti(left, right, conditions, make)
        inputs.append(make.project(alone, [*_first(widths[0]), *_nulls(right.desc)]))
    if side in ("RIGHT", "FULL"):
        swapped = [_moved(c, lambda i: (i + widths[1]) % sum(widths)) for c in conditions]
        alone = anti(right, left, swapped, make)
        inputs.append(make.project(alone, [*_nulls(left.desc), *_first(widths[1])]))
    return UnionAll(tuple(inputs), positional(pairs.desc), f"{side.capitalize()}OuterJoin")


@dataclass(frozen=True, slots=True)
class _Conditions:
    """Conditions of a join by what they speak of: one side, both as an equality, or else.

    A key is its value on the left, its value over the columns of the right side, and ``=`` or
    ``<=>``. `right` speaks of the columns of the right side.
    """

    left: tuple[exp.Expr, ...]
    right: tuple[exp.Expr, ...]
    keys: tuple[tuple[exp.Expr, exp.Expr, type[exp.EQ] | type[exp.NullSafeEQ]], ...]
    others: tuple[exp.Expr, ...]

    @staticmethod
    def of(conditions: Sequence[exp.Expr], width: int) -> _Conditions:
        left: list[exp.Expr] = []
        right: list[exp.Expr] = []
        keys: list[tuple[exp.Expr, exp.Expr, type[exp.EQ] | type[exp.NullSafeEQ]]] = []
        others: list[exp.Expr] = []
        for condition in conditions:
            sides = _sides(condition, width)
            if sides <= {False}:
                left.append(condition)
            elif sides == {True}:
                right.append(_moved(condition, lambda i: i - width))
            elif isinstance(condition, exp.EQ | exp.NullSafeEQ):
                kind = exp.EQ if isinstance(condition, exp.EQ) else exp.NullSafeEQ
                one, two = condition.left, condition.right
                if _sides(one, width) == {True}:
                    one, two = two, one
                if _sides(one, width) == {False} and _sides(two, width) == {True}:
                    keys.append((one, _moved(two, lambda i: i - width), kind))
                else:
                    others.append(condition)
            else:
                others.append(condition)
        return _Conditions(tuple(left), tuple(right), tuple(keys), tuple(others))


def _sides(expression: exp.Expr, width: int) -> set[bool]:
    """False: it speaks of the left side; True: of the right one."""
    found = (position_of(node) for node in expression.find_all(exp.Column))
    return {position >= width for position in found if position is not None}


class _Move(Protocol):
    def __call__(self, position: int, /) -> int: ...


def _moved(expression: exp.Expr, move: _Move) -> exp.Expr:
    def visit(node: exp.Expr) -> exp.Expr:
        position = position_of(node)
        return node if position is None else column(move(position))

    return expression.copy().transform(visit, copy=False)


def _first(count: int) -> list[exp.Expr]:
    return [column(i) for i in range(count)]


def _nulls(desc: RelationDesc) -> list[exp.Expr]:
    return [cast(exp.Null(), sql_type(c.spark_type)) for c in desc.columns]
