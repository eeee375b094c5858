"""The columns of collections of which each column of a view is made, by its plan. Nothing is read.

Words are those of OpenLineage: a column is made directly of others, and all columns depend
indirectly on what rows are filtered, joined, grouped, windowed or sorted by.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from slackwater.planner.plan.algebra import (
    Aggregate,
    AnalyzedPlan,
    ColumnNumber,
    Constant,
    Expand,
    Filter,
    Generate,
    HandleNumber,
    Join,
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
)

IDENTITY, TRANSFORMATION, AGGREGATION = "IDENTITY", "TRANSFORMATION", "AGGREGATION"
FILTER, JOIN, GROUP_BY, WINDOW, SORT = "FILTER", "JOIN", "GROUP_BY", "WINDOW", "SORT"
_RANK = {IDENTITY: 0, TRANSFORMATION: 1, AGGREGATION: 2}

MOST = 5_000
"""A view that reads more columns than so many, counted for each of its own, has no lineage."""


@dataclass(frozen=True, slots=True)
class ColumnRead:
    """A column of a collection, by the collection's id, and what becomes of it."""

    collection: str
    column: str
    becomes: str


@dataclass(frozen=True, slots=True)
class ColumnLineage:
    """For each column of a view, in their order, what it is made of; and what its rows go by."""

    columns: tuple[tuple[ColumnRead, ...], ...]
    rows: tuple[ColumnRead, ...]


def column_lineage(plan: AnalyzedPlan) -> ColumnLineage | None:
    """The lineage of a view's columns.

    None: a part of the plan has no form here, or there are more than `MOST` reads.
    """
    walk = _Walk(plan)
    reachable = _reachable(plan)
    for number in reachable:
        if isinstance(plan.nodes[number], Other):
            return None
        walk.visit(plan.nodes[number])
    columns = tuple(_reads(walk.made.get(c, {}).items()) for c in plan.nodes[plan.root].out)
    rows = _reads(((each.collection, each.column), each.becomes) for each in walk.rows)
    if sum(map(len, columns)) + len(rows) > MOST:
        return None
    return ColumnLineage(columns, rows)


_Made = dict[tuple[str, str], str]
"""The word for what becomes of columns of collections, by collection and column."""


@dataclass(slots=True)
class _Walk:
    """The columns of which those of a plan are made, as far as its operators were visited."""

    plan: AnalyzedPlan
    made: dict[ColumnNumber, _Made] = field(default_factory=dict)
    rows: set[ColumnRead] = field(default_factory=set)

    def visit(self, node: Operator) -> None:
        """Notes what the operator makes. Its inputs have been visited."""
        match node:
            case Source(collection, fields, out):
                for column, name in zip(out, fields, strict=True):
                    self.made[column] = {(collection, name): IDENTITY}
            case Project(out=out, exprs=exprs):
                self._compute(zip(out, exprs, strict=True))
            case Filter(conjuncts=conjuncts):
                self._go_by(conjuncts, FILTER)
            case TemporalFilter(bounds=bounds):
                self._go_by((each.handle for each in bounds), FILTER)
            case Join():
                self._join(node)
            case Aggregate():
                self._aggregate(node)
            case Window():
                for call in node.functions:
                    self._add(call.column, call.args, TRANSFORMATION)
                self._go_by((*node.partition, *(each.handle for each in node.order)), WINDOW)
            case Expand(out=out, projections=projections):
                for projection in projections:
                    self._compute(zip(out, projection, strict=True))
            case Generate(handle=handle, generated=generated):
                for column in generated:
                    self._add(column, [handle], TRANSFORMATION)
            case Union(inputs=inputs, out=out):
                for each in inputs:
                    for column, below in zip(out, self.plan.nodes[each].out, strict=True):
                        self._merge(column, self.made.get(below, {}))
            case Sort(order=order):
                self._go_by((each.handle for each in order), SORT)
            case Constant() | Limit() | Other():
                pass

    def _join(self, node: Join) -> None:
        handles = [side for key in node.keys for side in (key.left, key.right)]
        self._go_by((*handles, *node.residual), JOIN)
        if node.exists is not None:
            self._add(node.exists, (*handles, *node.residual), TRANSFORMATION)

    def _aggregate(self, node: Aggregate) -> None:
        self._compute((each.column, each.handle) for each in node.groups)
        self._go_by((each.handle for each in node.groups), GROUP_BY)
        for call in node.aggregates:
            self._add(call.column, call.args, AGGREGATION)
            if call.filter is not None:
                self._go_by([call.filter], FILTER)
        self._compute(zip(node.out, node.results, strict=True))

    def _compute(self, pairs: Iterable[tuple[ColumnNumber, HandleNumber]]) -> None:
        for column, handle in pairs:
            is_same = self.plan.handles[handle].column is not None
            self._add(column, [handle], IDENTITY if is_same else TRANSFORMATION)

    def _add(self, column: ColumnNumber, handles: Iterable[HandleNumber], becomes: str) -> None:
        self.made.setdefault(column, {})
        for handle in handles:
            for below in self.plan.handles[handle].columns:
                made = self.made.get(below, {})
                self._merge(column, {read: _more(kind, becomes) for read, kind in made.items()})

    def _merge(self, column: ColumnNumber, made: Mapping[tuple[str, str], str]) -> None:
        known = self.made.setdefault(column, {})
        for read, kind in made.items():
            known[read] = _more(known.get(read, IDENTITY), kind)

    def _go_by(self, handles: Iterable[HandleNumber], becomes: str) -> None:
        for handle in handles:
            for below in self.plan.handles[handle].columns:
                for collection, name in self.made.get(below, {}):
                    self.rows.add(ColumnRead(collection, name, becomes))


def _more(one: str, other: str) -> str:
    return max(one, other, key=_RANK.__getitem__)


def _reads(found: Iterable[tuple[tuple[str, str], str]]) -> tuple[ColumnRead, ...]:
    return tuple(ColumnRead(*read, becomes) for read, becomes in sorted(found))


def _reachable(plan: AnalyzedPlan) -> Iterator[NodeNumber]:
    """The nodes of the query, the inputs of each before it; an index may have others."""
    found, open_nodes = set(), [plan.root]
    while open_nodes:
        number = open_nodes.pop()
        if number not in found:
            found.add(number)
            open_nodes.extend(plan.nodes[number].inputs)
    return iter(sorted(found))
