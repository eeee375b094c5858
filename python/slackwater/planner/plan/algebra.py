"""The plan of a view as Spark analyzed it: operators over numbered columns and expressions.

What each field means is in ``docs/internals/analyzed_plans.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from slackwater.repr.relation import RelationDesc

ColumnNumber: TypeAlias = int
HandleNumber: TypeAlias = int
NodeNumber: TypeAlias = int


@dataclass(frozen=True, slots=True)
class SparkType:
    """A data type of Spark. `text` is its JSON; `collations` go by the path in it.

    `key_issues` says why equal values may differ in their bytes: ``collation``, ``floating``,
    ``map``, ``variant``.
    """

    text: str
    collations: tuple[tuple[str, str], ...] = ()
    key_issues: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PlanColumn:
    """A column where it begins. Above an outer join it may be NULL even if `nullable` is false."""

    name: str
    type: SparkType
    nullable: bool


@dataclass(frozen=True, slots=True)
class Handle:
    """An expression that the driver holds.

    `column` is the number of the only column that it is, if it is no more than that. `digest` tells
    it apart from any other expression over the same columns; `sql` is for people. Two of the same
    `shape` are the same expression where their `reads` are the same columns, one by one. One that
    is `sure` has a value for every row, and always the same.
    """

    sql: str
    type: SparkType
    nullable: bool
    deterministic: bool
    foldable: bool
    throws: bool
    uses_now: bool
    columns: tuple[ColumnNumber, ...]
    column: ColumnNumber | None
    digest: str
    shape: str = ""
    reads: tuple[ColumnNumber, ...] = ()
    sure: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """The collection's columns `fields`, in the order of `out`."""

    collection: str
    fields: tuple[str, ...]
    out: tuple[ColumnNumber, ...]
    inputs: tuple[NodeNumber, ...] = ()


@dataclass(frozen=True, slots=True)
class Constant:
    """So many rows that are the same at all times; the driver has them under the node's number."""

    rows: int
    digest: str
    out: tuple[ColumnNumber, ...]
    inputs: tuple[NodeNumber, ...] = ()


@dataclass(frozen=True, slots=True)
class Project:
    inputs: tuple[NodeNumber, ...]
    out: tuple[ColumnNumber, ...]
    exprs: tuple[HandleNumber, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    inputs: tuple[NodeNumber, ...]
    out: tuple[ColumnNumber, ...]
    conjuncts: tuple[HandleNumber, ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """``mz_now() comparison handle``, one of ``< <= > >= =``; the handle is a BIGINT in ms."""

    comparison: str
    handle: HandleNumber


@dataclass(frozen=True, slots=True)
class TemporalFilter:
    """The rows for which all of `bounds` hold. A row with a NULL bound is none of them."""

    inputs: tuple[NodeNumber, ...]
    out: tuple[ColumnNumber, ...]
    bounds: tuple[Bound, ...]


class JoinKind(Enum):
    INNER = "inner"
    CROSS = "cross"
    LEFT_OUTER = "left_outer"
    RIGHT_OUTER = "right_outer"
    FULL_OUTER = "full_outer"
    LEFT_SEMI = "left_semi"
    LEFT_ANTI = "left_anti"
    EXISTENCE = "existence"
    LEFT_SINGLE = "left_single"


@dataclass(frozen=True, slots=True)
class JoinKey:
    """`left` equals `right`; NULL equals NULL if `null_safe`."""

    left: HandleNumber
    right: HandleNumber
    null_safe: bool


@dataclass(frozen=True, slots=True)
class NullAware:
    """The conjunct `condition` says ``left = right OR (left = right) IS NULL``, as NOT IN does."""

    condition: HandleNumber
    left: HandleNumber
    right: HandleNumber


@dataclass(frozen=True, slots=True)
class Join:
    """`null_aware` are in `residual` too. `exists` is the column of an existence join."""

    inputs: tuple[NodeNumber, ...]
    out: tuple[ColumnNumber, ...]
    kind: JoinKind
    keys: tuple[JoinKey, ...]
    residual: tuple[HandleNumber, ...]
    null_aware: tuple[NullAware, ...]
    exists: ColumnNumber | None


@dataclass(frozen=True, slots=True)
class Computed:
    """The values of `handle` are in the new column `column`."""

    handle: HandleNumber
    column: ColumnNumber


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """`handle` is the function with its arguments; `args` are these alone.

    `in_order`: it is given its rows in an order that leaves nothing open.
    """

    function: str
    handle: HandleNumber
    args: tuple[HandleNumber, ...]
    distinct: bool
    filter: HandleNumber | None
    column: ColumnNumber
    in_order: bool = False


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`results` are computed over the columns of `groups` and `aggregates`.

    Without groups there is one row, also of no input. `session`: which of the groups is a time
    window that merges with others which overlap it.
    """

    inputs: tuple[NodeNumber, ...]
    out: tuple[ColumnNumber, ...]
    groups: tuple[Computed, ...]
    aggregates: tuple[AggregateCall, ...]
    results: tuple[HandleNumber, ...]
    session: int | None = None


@dataclass(frozen=True, slots=True)
class SortKey:
    handle: HandleNumber
    ascending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class WindowCall:
    """`handle` is the function with its arguments and its window; `args` are the former alone.

    `rows`: its frame counts rows, and sees no peers. `in_order`: as of an `AggregateCall`.
    """

    function: str
    handle: HandleNumber
    args: tuple[HandleNumber, ...]
    rows: bool
    column: ColumnNumber
    in_order: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """Each input row with the values of window functions over its partition.

    `order` distinguishes all rows that are not equal, where a function needs that.
    """

    inputs: tuple[NodeNumber, ...]
    out: tuple[ColumnNumber, ...]
    functions: tuple[WindowCall, ...]
    partition: tuple[HandleNumber, ...]
    order: tuple[SortKey, ...]


@dataclass(frozen=True, slots=True)
class Expand:
    """Each input row gives a row for each of `projections`."""

    inputs: tuple[NodeNumber, ...]
    out: tuple[ColumnNumber, ...]
    projections: tuple[tuple[HandleNumber, ...], ...]


@dataclass(frozen=True, slots=True)
class Generate:
    """Each input row gives the rows of the generator `handle`, one of NULLs if `outer` and none."""

    inputs: tuple[NodeNumber, ...]
    out: tuple[ColumnNumber, ...]
    handle: HandleNumber
    outer: bool
    kept: tuple[ColumnNumber, ...]
    generated: tuple[ColumnNumber, ...]


@dataclass(frozen=True, slots=True)
class Union:
    """All rows of all inputs, whose columns correspond by position."""

    inputs: tuple[NodeNumber, ...]
    out: tuple[ColumnNumber, ...]


@dataclass(frozen=True, slots=True)
class Sort:
    inputs: tuple[NodeNumber, ...]
    out: tuple[ColumnNumber, ...]
    order: tuple[SortKey, ...]
    is_global: bool


@dataclass(frozen=True, slots=True)
class Limit:
    """`count` rows after the first `offset`; None: all of them."""

    inputs: tuple[NodeNumber, ...]
    out: tuple[ColumnNumber, ...]
    count: int | None
    offset: int


@dataclass(frozen=True, slots=True)
class Other:
    """An operator that has no form here, with all that is below it."""

    name: str
    reason: str
    out: tuple[ColumnNumber, ...]
    inputs: tuple[NodeNumber, ...] = ()


Operator: TypeAlias = (
    Source
    | Constant
    | Project
    | Filter
    | TemporalFilter
    | Join
    | Aggregate
    | Window
    | Expand
    | Generate
    | Union
    | Sort
    | Limit
    | Other
)


@dataclass(frozen=True, slots=True)
class IndexedCollection:
    """An index on a collection, all of whose columns the source `node` has.

    `keys` are over these columns. `forms` are the same as operators compare keys. `name` is for
    people.
    """

    node: NodeNumber
    keys: tuple[HandleNumber, ...]
    forms: tuple[HandleNumber, ...]
    name: str


@dataclass(frozen=True, slots=True)
class AnalyzedPlan:
    """A directed graph without cycles: the inputs of a node have smaller numbers than it has.

    `names` and `schema` are those of the query, `collections` the ids of all that it reads, also
    below an operator that has no form here. Two plans with the same `fingerprint` compute the
    same, and, where no views stay whole, number their nodes, columns and handles alike. `selects`:
    the query computes each of its rows from one row of a plain view, and does nothing else. `views`
    are nodes that are the whole query of a plain view, in the form that it has in each plan.
    `indexed` are indexes on collections, whose sources the query need not read.
    """

    nodes: tuple[Operator, ...]
    root: NodeNumber
    columns: tuple[PlanColumn, ...]
    handles: tuple[Handle, ...]
    collections: tuple[str, ...]
    names: tuple[str, ...]
    schema: RelationDesc
    fingerprint: str
    selects: bool = False
    views: tuple[NodeNumber, ...] = ()
    indexed: tuple[IndexedCollection, ...] = ()

    @property
    def depends_on_time(self) -> bool:
        """Whether the contents may change at a time at which no collection does."""
        return any(handle.uses_now for handle in self.handles) or any(
            isinstance(node, TemporalFilter) for node in self.nodes
        )
