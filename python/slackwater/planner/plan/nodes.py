"""The relational plan of a maintained query: frozen values, no I/O.

Every node's rows have the columns ``__c0``, ``__c1``, ... (its `desc`); an expression of a node
speaks of the columns of the node's input by these names, those of a join by their position in
the concatenation of its inputs. So no two columns are ever ambiguous, whatever users name theirs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from sqlglot import exp

from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import Column, RelationDesc

_PREFIX = "__c"
_REFERENCE = re.compile(r"__c(\d+)")


def column_name(position: int) -> str:
    return f"{_PREFIX}{position}"


def column(position: int, table: str | None = None) -> exp.Column:
    """A reference to the input column at `position`."""
    return exp.column(column_name(position), table=table)


def position_of(reference: exp.Expr) -> int | None:
    """The position that a reference made by `column` speaks of; None for any other expression."""
    match = _REFERENCE.fullmatch(reference.name) if isinstance(reference, exp.Column) else None
    return int(match[1]) if match is not None else None


def is_reserved(name: str) -> bool:
    """Whether a user's column of this name would look like a reference by position."""
    return _REFERENCE.fullmatch(name.lower()) is not None


def positional(desc: RelationDesc) -> RelationDesc:
    """`desc` with its columns renamed by position and nullable."""
    return RelationDesc(
        tuple(
            Column(column_name(i), c.type_json, True, c.metadata_json)
            for i, c in enumerate(desc.columns)
        )
    )


@dataclass(frozen=True, slots=True)
class Collection:
    """A leaf: a collection whose updates are recorded. `columns` are its own column names."""

    global_id: GlobalId
    columns: tuple[str, ...]
    desc: RelationDesc


@dataclass(frozen=True, slots=True)
class Constant:
    """Rows that never change, from a query that reads nothing."""

    query: exp.Query
    desc: RelationDesc


@dataclass(frozen=True, slots=True)
class Project:
    input: Plan
    expressions: tuple[exp.Expr, ...]
    desc: RelationDesc


@dataclass(frozen=True, slots=True)
class Filter:
    input: Plan
    condition: exp.Expr

    @property
    def desc(self) -> RelationDesc:
        return self.input.desc


@dataclass(frozen=True, slots=True)
class Explode:
    """LATERAL VIEW: each row of the input with each row that `generator` makes of it."""

    input: Plan
    generator: exp.Expr
    outer: bool
    desc: RelationDesc


@dataclass(frozen=True, slots=True)
class Join:
    """n-way inner join; a cross join if `conditions` is empty."""

    inputs: tuple[Plan, ...]
    conditions: tuple[exp.Expr, ...]

    @property
    def desc(self) -> RelationDesc:
        return positional(RelationDesc(tuple(c for i in self.inputs for c in i.desc.columns)))


@dataclass(frozen=True, slots=True)
class UnionAll:
    """`meaning` names what the union stands for, if the query has no union there."""

    inputs: tuple[Plan, ...]
    desc: RelationDesc
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class Without:
    """The rows of `input` less those of `removed`, which are among them. `meaning`: what for."""

    input: Plan
    removed: Plan
    meaning: str

    @property
    def desc(self) -> RelationDesc:
        return self.input.desc


@dataclass(frozen=True, slots=True)
class CountRows:
    """An accumulator: how many rows fulfil `condition`. BIGINT."""

    condition: exp.Expr


@dataclass(frozen=True, slots=True)
class SumValues:
    """An accumulator: the exact sum of `value`, which is DECIMAL(`precision`, `scale`) or NULL.

    Kept as DECIMAL(38, `scale`).
    """

    value: exp.Expr
    precision: int
    scale: int


Accumulator = CountRows | SumValues


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One row for each group: the keys, the number of rows, the accumulators, the results of

    `calls`, which are aggregate functions that need all rows of a group that changed.

    Its rows are kept in a state collection of its own, number `state` of the plan; above it
    the plan sees that collection. Without `keys` there is always exactly one row.
    A Distinct is an Aggregate without accumulators and calls.
    """

    input: Plan
    keys: tuple[exp.Expr, ...]
    accumulators: tuple[Accumulator, ...]
    calls: tuple[exp.Expr, ...]
    state: int
    desc: RelationDesc

    @property
    def is_keyed(self) -> bool:
        """Whether a group that changed is computed from its rows, not from what was added."""
        return bool(self.calls)


@dataclass(frozen=True, slots=True)
class Opaque:
    """A query that is recomputed at each time at which an input changes, and compared.

    `query` reads the collections of `reads` through tables that `collection_table` names.
    """

    query: exp.Query
    reads: tuple[Collection, ...]
    reason: str
    advice: str
    desc: RelationDesc


Plan = (
    Collection
    | Constant
    | Project
    | Filter
    | Explode
    | Join
    | UnionAll
    | Without
    | Aggregate
    | Opaque
)


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """The plan of a maintained view. `output` is the schema of its rows, as Spark stated it."""

    root: Plan
    output: RelationDesc

    @property
    def is_opaque(self) -> bool:
        return isinstance(self.root, Opaque)

    @property
    def collections(self) -> tuple[GlobalId, ...]:
        """The collections that are read, in the order of their first use."""
        found = (n.global_id for n in walk(self.root) if isinstance(n, Collection))
        return tuple(dict.fromkeys(found))

    @property
    def aggregates(self) -> tuple[Aggregate, ...]:
        """The aggregates, each after those below it; the n-th one has state number n.

        One that occurs several times is kept once.
        """
        found = (n for n in walk(self.root) if isinstance(n, Aggregate))
        return tuple({aggregate.state: aggregate for aggregate in found}.values())

    @property
    def states(self) -> tuple[RelationDesc, ...]:
        """The schemas of the state collections, by number."""
        return tuple(aggregate.desc for aggregate in self.aggregates)


def children(node: Plan) -> tuple[Plan, ...]:
    match node:
        case Collection() | Constant():
            return ()
        case Project() | Filter() | Explode() | Aggregate():
            return (node.input,)
        case Join() | UnionAll():
            return node.inputs
        case Without():
            return node.input, node.removed
        case Opaque():
            return node.reads


def walk(node: Plan) -> tuple[Plan, ...]:
    """The nodes of the plan, inputs before their consumers."""
    return (*(below for child in children(node) for below in walk(child)), node)


def number_states(root: Plan) -> Plan:
    """The plan with its aggregates numbered in the order of `walk`, equal ones alike."""
    numbers: dict[Aggregate, int] = {}

    def visit(node: Plan) -> Plan:
        match node:
            case Project() | Filter() | Explode():
                return replace(node, input=visit(node.input))
            case Join() | UnionAll():
                return replace(node, inputs=tuple(visit(child) for child in node.inputs))
            case Without():
                return replace(node, input=visit(node.input), removed=visit(node.removed))
            case Aggregate():
                unnumbered = replace(node, input=visit(node.input), state=0)
                number = numbers.setdefault(unnumbered, len(numbers))
                return replace(unnumbered, state=number)
            case _:
                return node

    return visit(root)


def collection_table(global_id: GlobalId) -> str:
    """The table through which the query of an Opaque reads the collection."""
    return f"__{global_id}"
