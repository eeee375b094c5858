"""Joins of many inputs: which, and in which order the changes of each meet the rest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from slackwater.planner.delta.program import Condition, Equality, Size
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

Sizes: TypeAlias = Mapping[tuple[NodeNumber, tuple[HandleNumber, ...], tuple[bool, ...]], Size]
"""Of what is arranged: a node by keys, and for each whether NULL equals NULL."""

NO_SIZES: Sizes = MappingProxyType({})

_Reads: TypeAlias = Callable[[HandleNumber], frozenset[ColumnNumber]]


@dataclass(frozen=True, slots=True)
class Joined:
    """Inner joins above each other, as one of all their `inputs`.

    `aliases`: columns of `out` and of the expressions that are columns of the inputs under another
    number. An input that is a plain view which stays whole is its node, whatever columns are left
    out above it: so what is arranged of it is the same in all plans.
    """

    inputs: tuple[NodeNumber, ...]
    equalities: tuple[Equality, ...]
    conditions: tuple[HandleNumber, ...]
    out: tuple[ColumnNumber, ...]
    aliases: Mapping[ColumnNumber, ColumnNumber]


@dataclass(frozen=True, slots=True)
class LookupStage:
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
        if whole or _is_between(plan, number, readers):
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
    read, columns = views_read(plan, inputs)
    aliases.update(columns)
    return Joined(read, tuple(equalities), tuple(conditions), plan.nodes[root].out, aliases)


def views_read(
    plan: AnalyzedPlan, inputs: Iterable[NodeNumber]
) -> tuple[tuple[NodeNumber, ...], Mapping[ColumnNumber, ColumnNumber]]:
    """The inputs of a join, with the views themselves for those that are columns of them.

    The second result has the columns of those inputs that are columns of the views under another
    number. A view that is read twice is so for one of the inputs.
    """
    found: list[NodeNumber] = []
    aliases: dict[ColumnNumber, ColumnNumber] = {}
    for number in inputs:
        view, columns = view_below(plan, number)
        if view is None or view in found:
            found.append(number)
        else:
            found.append(view)
            aliases.update(columns)
    return tuple(found), aliases


def view_below(
    plan: AnalyzedPlan, number: NodeNumber
) -> tuple[NodeNumber | None, Mapping[ColumnNumber, ColumnNumber]]:
    """The view that stays whole of which the node has columns and nothing else; None: of none.

    The second result says which column of the view each of these is.
    """
    aliases: dict[ColumnNumber, ColumnNumber] = {}
    while number not in plan.views:
        node = plan.nodes[number]
        if not isinstance(node, Project):
            return None, {}
        for column, handle in zip(node.out, node.exprs, strict=True):
            passed = plan.handles[handle].column
            if passed is None:
                return None, {}
            aliases[column] = passed
        number = node.inputs[0]
    return number, aliases


def keeps_null(
    plan: AnalyzedPlan, node: NodeNumber, null_safe: tuple[bool, ...]
) -> tuple[bool, ...]:
    """For each key by which the node is arranged whether a row with NULL in it is kept.

    An index keeps all rows of a view.
    """
    return (True,) * len(null_safe) if node in plan.views else null_safe


def _is_between(plan: AnalyzedPlan, number: NodeNumber, readers: Mapping[NodeNumber, int]) -> bool:
    """Whether the node belongs to the join above it, which alone reads it."""
    return number not in plan.views and readers[number] == 1 and _holds_join(plan, number, readers)


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
    return _is_between(plan, node.inputs[0], readers)


def pipelines(
    plan: AnalyzedPlan, joined: Joined, sizes: Sizes = NO_SIZES
) -> Iterator[tuple[int, tuple[LookupStage, ...]]]:
    """For each input the others in the order in which its changes meet them.

    It follows columns that are known already, most of them first; where nothing equals a known
    column, the input comes next after which this happens least; where that decides nothing, the
    input that comes first in the query comes first. Where `sizes` promise that another order meets
    fewer rows, it is that one, if it looks up nothing of which the size is not known.
    """
    order = _Order(plan, joined, tuple(frozenset(plan.nodes[i].out) for i in joined.inputs), sizes)
    for begin in range(len(joined.inputs)):
        usual = order.path(begin, order.first_of_most_equal)
        yield begin, (order.cheaper(begin, usual) if sizes and usual else usual)


_Candidates: TypeAlias = Mapping[int, Sequence[tuple[Equality, bool]]]


@dataclass(frozen=True, slots=True)
class _Order:
    """The ways through a join. `scopes`: the columns of each input."""

    plan: AnalyzedPlan
    joined: Joined
    scopes: tuple[frozenset[ColumnNumber], ...]
    sizes: Sizes

    def path(
        self, begin: int, choose: Callable[[frozenset[int], _Candidates], int]
    ) -> tuple[LookupStage, ...]:
        """The way from an input that `choose` finds, which is asked for each next one."""
        joined, scopes, reads = self.joined, self.scopes, self.reads
        equalities = list(joined.equalities)
        conditions: list[Condition] = list(joined.conditions)
        met = frozenset({begin})
        bound = scopes[begin]
        waiting = [i for i in range(len(scopes)) if i != begin]
        stages = []
        while waiting:
            candidates = {i: _between(equalities, bound, scopes[i], reads) for i in waiting}
            chosen = choose(met, candidates)
            used = candidates[chosen]
            for equality, _ in used:
                equalities.remove(equality)
            met, bound = met | {chosen}, bound | scopes[chosen]
            waiting.remove(chosen)
            ready: list[Condition] = [
                each for each in conditions if isinstance(each, int) and reads(each) <= bound
            ]
            conditions = [each for each in conditions if each not in ready]
            left_over = [e for e in equalities if reads(e.left) | reads(e.right) <= bound]
            equalities = [e for e in equalities if e not in left_over]
            ready.extend(left_over)
            needed = _needed(joined, bound, equalities, conditions, reads)
            columns = needed if waiting else joined.out
            stages.append(
                LookupStage(chosen, *_sides(used), _null_safe(used), tuple(ready), columns)
            )
        return tuple(stages)

    def cheaper(self, begin: int, usual: tuple[LookupStage, ...]) -> tuple[LookupStage, ...]:
        """`usual`, or a way in which the next input is the one that fewest rows are found in."""
        found = self.path(begin, self._fewest)
        is_less = self._rows(begin, found) < self._rows(begin, usual) < math.inf
        return found if is_less else usual

    def first_of_most_equal(self, met: frozenset[int], candidates: _Candidates) -> int:
        if any(candidates.values()):
            return max(candidates, key=lambda i: len(candidates[i]))
        return min(candidates, key=lambda i: self._keyless_after(met | {i}))

    def _keyless_after(self, met: frozenset[int]) -> int:
        """The number of lookups without a key that follow where those of `met` are done.

        It follows keys as far as they lead, and goes on with the input that comes first then: other
        choices are not looked into, or there would be as many ways as orders.
        """
        count, waiting = 0, [i for i in range(len(self.scopes)) if i not in met]
        while waiting:
            bound = frozenset[ColumnNumber]().union(*(self.scopes[i] for i in met))
            equal = (
                i
                for i in waiting
                if _between(self.joined.equalities, bound, self.scopes[i], self.reads)
            )
            chosen = next(equal, None)
            if chosen is None:
                chosen, count = waiting[0], count + 1
            met |= {chosen}
            waiting.remove(chosen)
        return count

    def reads(self, handle: HandleNumber) -> frozenset[ColumnNumber]:
        columns = self.plan.handles[handle].columns
        return frozenset(resolved(c, self.joined.aliases) for c in columns)

    def _fewest(self, met: frozenset[int], candidates: _Candidates) -> int:
        return min(
            candidates,
            key=lambda i: self._found(met, i, *_sides(candidates[i]), _null_safe(candidates[i])),
        )

    def _rows(self, begin: int, stages: Sequence[LookupStage]) -> float:
        """The number of rows that all lookups find together for one update."""
        total, rows, met = 0.0, 1.0, frozenset({begin})
        for stage in stages:
            rows *= self._found(met, stage.input, stage.keys, stage.probes, stage.null_safe)
            total, met = total + rows, met | {stage.input}
        return total

    def _found(
        self,
        met: frozenset[int],
        other: int,
        keys: tuple[HandleNumber, ...],
        probes: tuple[HandleNumber, ...],
        null_safe: tuple[bool, ...],
    ) -> float:
        """The rows of input `other` that one row meets, which has its `probes` of those in `met`.

        ``|B| / max(keys of A, keys of B)``: the fewer keys are taken to be among the more (P.
        Selinger et al., Access Path Selection in a Relational Database Management System, 1979).
        Infinite where nothing is known: it is not arranged so, or has no rows yet.
        """
        size = self._size(other, keys, null_safe)
        if size is None or not size.keys:
            return math.inf
        probing = (self._size(i, probes, null_safe) for i in met)
        return size.rows / max([size.keys, *(each.keys for each in probing if each)])

    def _size(
        self, place: int, keys: tuple[HandleNumber, ...], null_safe: tuple[bool, ...]
    ) -> Size | None:
        node = self.joined.inputs[place]
        return self.sizes.get((node, keys, keeps_null(self.plan, node, null_safe)))


def _sides(
    used: Sequence[tuple[Equality, bool]],
) -> tuple[tuple[HandleNumber, ...], tuple[HandleNumber, ...]]:
    """The keys of the input that is looked up, and what they equal."""
    keys = tuple(e.right if turned else e.left for e, turned in used)
    return keys, tuple(e.left if turned else e.right for e, turned in used)


def _null_safe(used: Sequence[tuple[Equality, bool]]) -> tuple[bool, ...]:
    return tuple(equality.null_safe for equality, _ in used)


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
    wanted = {resolved(c, joined.aliases) for c in joined.out}
    for equality in equalities:
        wanted |= reads(equality.left) | reads(equality.right)
    for condition in conditions:
        if isinstance(condition, int):
            wanted |= reads(condition)
    return tuple(sorted(wanted & bound))


def resolved(column: ColumnNumber, aliases: Mapping[ColumnNumber, ColumnNumber]) -> ColumnNumber:
    """The column that `column` is under another number, or itself."""
    while column in aliases:
        column = aliases[column]
    return column
