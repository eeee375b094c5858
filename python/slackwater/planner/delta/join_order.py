"""Joins of many inputs: which, and in which order the changes of each meet the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from slackwater.planner.delta.program import Condition, Equality
from slackwater.planner.plan.algebra import (
    AnalyzedPlan,
    ColumnNumber,
    Filter,
    HandleNumber,
    Join,
    JoinKind,
    NodeNumber,
    Project,
)

_Reads: TypeAlias = Callable[[HandleNumber], frozenset[ColumnNumber]]


@dataclass(frozen=True, slots=True)
class Joined:
    """Inner joins above each other, as one of all their `inputs`.

    `aliases`: columns of `out` and of the expressions that are columns of the inputs under another
    number.
    """

    inputs: tuple[NodeNumber, ...]
    equalities: tuple[Equality, ...]
    conditions: tuple[HandleNumber, ...]
    out: tuple[ColumnNumber, ...]
    aliases: Mapping[ColumnNumber, ColumnNumber]


@dataclass(frozen=True, slots=True)
class Hop:
    """The next input that a pipeline looks up.

    Its rows by `keys`, which equal `probes` over what is there already; the `conditions` that can
    be checked then, and the `columns` that are still needed.
    """

    input: int
    keys: tuple[HandleNumber, ...]
    probes: tuple[HandleNumber, ...]
    null_safe: tuple[bool, ...]
    conditions: tuple[Condition, ...]
    columns: tuple[ColumnNumber, ...]


def join_of(plan: AnalyzedPlan, root: NodeNumber) -> Joined:
    """The inner join at `root` with those below it that only it reads.

    Filters between them become conditions, projections that only leave columns out become aliases.
    """
    readers = Counter(i for node in plan.nodes for i in node.inputs)
    inputs: list[NodeNumber] = []
    equalities: list[Equality] = []
    conditions: list[HandleNumber] = []
    aliases: dict[ColumnNumber, ColumnNumber] = {}

    def visit(number: NodeNumber, *, whole: bool) -> None:
        node = plan.nodes[number]
        if whole or (readers[number] == 1 and _holds_join(plan, number, readers)):
            match node:
                case Join():
                    equalities.extend(Equality(k.left, k.right, k.null_safe) for k in node.keys)
                    conditions.extend(node.residual)
                    for each in node.inputs:
                        visit(each, whole=False)
                    return
                case Filter():
                    conditions.extend(node.conjuncts)
                    visit(node.inputs[0], whole=False)
                    return
                case Project():
                    for column, handle in zip(node.out, node.exprs, strict=True):
                        passed = plan.handles[handle].column
                        if passed is not None:
                            aliases[column] = passed
                    visit(node.inputs[0], whole=False)
                    return
        inputs.append(number)

    visit(root, whole=True)
    return Joined(
        tuple(inputs), tuple(equalities), tuple(conditions), plan.nodes[root].out, aliases
    )


def _holds_join(plan: AnalyzedPlan, number: NodeNumber, readers: Mapping[NodeNumber, int]) -> bool:
    """Whether there is an inner join, below nothing but filters and projections of columns."""
    node = plan.nodes[number]
    match node:
        case Join():
            return node.kind in (JoinKind.INNER, JoinKind.CROSS)
        case Filter():
            pass
        case Project() if all(plan.handles[h].column is not None for h in node.exprs):
            pass
        case _:
            return False
    below = node.inputs[0]
    return readers[below] == 1 and _holds_join(plan, below, readers)


def pipelines(plan: AnalyzedPlan, joined: Joined) -> Iterator[tuple[int, tuple[Hop, ...]]]:
    """For each input the others in the order in which its changes meet them."""
    scopes = [frozenset(plan.nodes[each].out) for each in joined.inputs]
    for begin in range(len(joined.inputs)):
        yield begin, tuple(_path(plan, joined, scopes, begin))


def _path(
    plan: AnalyzedPlan, joined: Joined, scopes: Sequence[frozenset[ColumnNumber]], begin: int
) -> Iterator[Hop]:
    """Follows columns that are known already, most of them first.

    The input that comes first in the query comes first where that decides nothing.
    """

    def reads(handle: HandleNumber) -> frozenset[ColumnNumber]:
        return frozenset(_resolved(c, joined.aliases) for c in plan.handles[handle].columns)

    equalities = list(joined.equalities)
    conditions: list[Condition] = list(joined.conditions)
    bound = scopes[begin]
    waiting = [i for i in range(len(scopes)) if i != begin]
    while waiting:
        chosen = max(waiting, key=lambda i: len(_between(equalities, bound, scopes[i], reads)))
        used = _between(equalities, bound, scopes[chosen], reads)
        for equality, _ in used:
            equalities.remove(equality)
        bound = bound | scopes[chosen]
        waiting.remove(chosen)
        ready: list[Condition] = [
            each for each in conditions if isinstance(each, int) and reads(each) <= bound
        ]
        conditions = [each for each in conditions if each not in ready]
        left_over = [e for e in equalities if reads(e.left) | reads(e.right) <= bound]
        equalities = [e for e in equalities if e not in left_over]
        ready.extend(left_over)
        yield Hop(
            chosen,
            tuple(e.right if turned else e.left for e, turned in used),
            tuple(e.left if turned else e.right for e, turned in used),
            tuple(e.null_safe for e, _ in used),
            tuple(ready),
            _needed(joined, bound, equalities, conditions, reads) if waiting else joined.out,
        )


def _between(
    equalities: Sequence[Equality],
    bound: frozenset[ColumnNumber],
    scope: frozenset[ColumnNumber],
    reads: _Reads,
) -> list[tuple[Equality, bool]]:
    """The equalities of columns that are there with those of `scope`; true: it is on the right."""
    found = []
    for equality in equalities:
        left, right = reads(equality.left), reads(equality.right)
        if not left or not right:
            continue
        if left <= bound and right <= scope:
            found.append((equality, True))
        elif right <= bound and left <= scope:
            found.append((equality, False))
    return found


def _needed(
    joined: Joined,
    bound: frozenset[ColumnNumber],
    equalities: Sequence[Equality],
    conditions: Sequence[Condition],
    reads: _Reads,
) -> tuple[ColumnNumber, ...]:
    wanted = {_resolved(c, joined.aliases) for c in joined.out}
    for equality in equalities:
        wanted |= reads(equality.left) | reads(equality.right)
    for condition in conditions:
        if isinstance(condition, int):
            wanted |= reads(condition)
    return tuple(sorted(wanted & bound))


def _resolved(column: ColumnNumber, aliases: Mapping[ColumnNumber, ColumnNumber]) -> ColumnNumber:
    while column in aliases:
        column = aliases[column]
    return column
