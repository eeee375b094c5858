"""The conditions that every analyzed plan meets. One that is not met is a fault of the driver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slackwater.planner.plan.algebra import (
    Aggregate,
    AnalyzedPlan,
    Constant,
    Expand,
    Filter,
    Generate,
    IndexedCollection,
    Join,
    JoinKind,
    Limit,
    Operator,
    Other,
    Project,
    Sort,
    Source,
    TemporalFilter,
    Union,
    Window,
)
from slackwater.repr.errors import FatalError

COMPARISONS = frozenset({"<", "<=", ">", ">=", "="})
"""Those of ``mz_now()`` with a bound."""


def check(plan: AnalyzedPlan) -> None:
    """Raises FatalError unless each node reads what is below it and columns begin once."""
    begun: set[int] = set()
    for number, node in enumerate(plan.nodes):
        _inputs(number, node)
        _bounds(node)
        below = [plan.nodes[i].out for i in node.inputs]
        for handle, available in _read(node, below):
            _handle(plan, number, handle, available)
        new = _begun(node)
        if len(set(new)) != len(new) or begun & set(new):
            raise FatalError(f"node {number} begins a column that has begun")
        begun.update(new)
        if not _fits(node, below):
            raise FatalError(f"node {number} has other columns than its inputs give")
    if begun != set(range(len(plan.columns))):
        raise FatalError("not every column of the plan begins at a node")
    if not 0 <= plan.root < len(plan.nodes):
        raise FatalError(f"there is no node {plan.root}, the root")
    if any(not 0 <= each < len(plan.nodes) for each in plan.views):
        raise FatalError(f"the views {plan.views} are no nodes")
    for index in plan.indexed:
        _index(plan, index)
    width = len(plan.nodes[plan.root].out)
    if not width == len(plan.names) == len(plan.schema.columns):
        raise FatalError("the root has other columns than the query")


def _index(plan: AnalyzedPlan, index: IndexedCollection) -> None:
    is_node = 0 <= index.node < len(plan.nodes)
    if not is_node or not isinstance(plan.nodes[index.node], Source):
        raise FatalError(f"node {index.node} of an index is no source")
    if not index.keys or len(index.keys) != len(index.forms):
        raise FatalError(f"an index has the keys {index.keys} in the forms {index.forms}")
    for handle in (*index.keys, *index.forms):
        _handle(plan, index.node, handle, set(plan.nodes[index.node].out))


def _inputs(number: int, node: Operator) -> None:
    match node:
        case Source() | Constant() | Other():
            fits = not node.inputs
        case Join():
            fits = len(node.inputs) == 2
        case Union():
            fits = bool(node.inputs)
        case _:
            fits = len(node.inputs) == 1
    if not fits or any(not 0 <= i < number for i in node.inputs):
        raise FatalError(f"node {number} has the inputs {node.inputs}")


def _bounds(node: Operator) -> None:
    if isinstance(node, TemporalFilter):
        for bound in node.bounds:
            if bound.comparison not in COMPARISONS:
                raise FatalError(f"a plan with the comparison {bound.comparison}, which is unknown")


_Columns = tuple[int, ...]


def _read(node: Operator, below: Sequence[_Columns]) -> Iterable[tuple[int, set[int]]]:
    """The handles of a node, each with the columns that it may read."""
    available = {column for out in below for column in out}
    for handle in _handles(node):
        yield handle, available
    if isinstance(node, Aggregate):
        computed = set(_computed(node))
        for handle in node.results:
            yield handle, computed


def _handles(node: Operator) -> Iterable[int]:
    match node:
        case Project():
            yield from node.exprs
        case Filter():
            yield from node.conjuncts
        case TemporalFilter():
            yield from (bound.handle for bound in node.bounds)
        case Join():
            for key in node.keys:
                yield from (key.left, key.right)
            yield from node.residual
            for pair in node.null_aware:
                yield from (pair.condition, pair.left, pair.right)
        case Aggregate():
            yield from (group.handle for group in node.groups)
            for call in node.aggregates:
                yield from (call.handle, *call.args)
                if call.filter is not None:
                    yield call.filter
        case Window():
            for function in node.functions:
                yield from (function.handle, *function.args)
            yield from node.partition
            yield from (key.handle for key in node.order)
        case Expand():
            for projection in node.projections:
                yield from projection
        case Generate():
            yield node.handle
        case Sort():
            yield from (key.handle for key in node.order)
        case Source() | Constant() | Union() | Limit() | Other():
            pass


def _handle(plan: AnalyzedPlan, number: int, handle: int, available: set[int]) -> None:
    if not 0 <= handle < len(plan.handles):
        raise FatalError(f"node {number} has the handle {handle}, which there is not")
    if not available.issuperset(plan.handles[handle].columns):
        raise FatalError(f"node {number} reads columns that its inputs do not have")


def _begun(node: Operator) -> _Columns:
    """The columns that are new with this node."""
    match node:
        case Source() | Constant() | Project() | Expand() | Union() | Other():
            return node.out
        case Aggregate():
            return _computed(node) + node.out
        case Window():
            return tuple(function.column for function in node.functions)
        case Generate():
            return node.generated
        case Join():
            return () if node.exists is None else (node.exists,)
        case Filter() | TemporalFilter() | Sort() | Limit():
            return ()


def _computed(node: Aggregate) -> _Columns:
    groups = tuple(group.column for group in node.groups)
    return groups + tuple(call.column for call in node.aggregates)


def _fits(node: Operator, below: Sequence[_Columns]) -> bool:
    """Whether the columns of a node are those that it has to have."""
    match node:
        case Filter() | TemporalFilter() | Sort() | Limit():
            return node.out == below[0]
        case Join(kind=JoinKind.LEFT_SEMI | JoinKind.LEFT_ANTI | JoinKind.EXISTENCE):
            return node.out == below[0] + _begun(node)
        case Join():
            return node.out == below[0] + below[1]
        case Window():
            return node.out == below[0] + _begun(node)
        case Generate():
            return set(node.kept) <= set(below[0]) and node.out == node.kept + node.generated
        case Project():
            return len(node.out) == len(node.exprs)
        case Aggregate():
            return len(node.out) == len(node.results)
        case Expand():
            return all(len(node.out) == len(row) for row in node.projections)
        case Union():
            return all(len(node.out) == len(out) for out in below)
        case Source():
            return len(node.out) == len(node.fields)
        case Constant() | Other():
            return True
