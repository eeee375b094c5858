"""Tick programs: the operators that turn the updates of collections into those of a view.

A program is a graph without cycles, in which the updates of each subplan appear once. Its form as
JSON, which the driver runs, is in ``docs/internals/tick_programs.md``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from cattrs import Converter
from cattrs.gen import make_dict_unstructure_fn, override

from slackwater.planner.plan.algebra import Bound, ColumnNumber, HandleNumber, NodeNumber

VERSION = 3
"""Of what plans mean: another version of the same plan may have had other rows."""

StepNumber: TypeAlias = int
ArrangementNumber: TypeAlias = int


@dataclass(frozen=True, slots=True)
class OfHandle:
    """The value of an expression."""

    handle: HandleNumber


@dataclass(frozen=True, slots=True)
class OfColumn:
    """The value of a column."""

    column: ColumnNumber


@dataclass(frozen=True, slots=True)
class Null:
    """NULL, of the type of a column."""

    column: ColumnNumber


@dataclass(frozen=True, slots=True)
class Truth:
    value: bool


Value: TypeAlias = OfHandle | OfColumn | Null | Truth


@dataclass(frozen=True, slots=True)
class Equality:
    """`left` equals `right`; NULL equals NULL if `null_safe`."""

    left: HandleNumber
    right: HandleNumber
    null_safe: bool


Condition: TypeAlias = HandleNumber | Equality


@dataclass(frozen=True, slots=True)
class DeltaStep:
    """The updates of a collection."""

    collection: str
    fields: tuple[str, ...]
    columns: tuple[ColumnNumber, ...]


@dataclass(frozen=True, slots=True)
class ConstantStep:
    """No updates."""

    columns: tuple[ColumnNumber, ...]


@dataclass(frozen=True, slots=True)
class MapStep:
    input: StepNumber
    values: tuple[Value, ...]
    columns: tuple[ColumnNumber, ...]


@dataclass(frozen=True, slots=True)
class FilterStep:
    input: StepNumber
    conditions: tuple[Condition, ...]
    columns: tuple[ColumnNumber, ...]


@dataclass(frozen=True, slots=True)
class TemporalFilterStep:
    """The rows of plan node `node`, each while all of `bounds` hold for it."""

    input: StepNumber
    node: NodeNumber
    bounds: tuple[Bound, ...]
    columns: tuple[ColumnNumber, ...]


@dataclass(frozen=True, slots=True)
class ExpandStep:
    input: StepNumber
    projections: tuple[tuple[HandleNumber, ...], ...]
    columns: tuple[ColumnNumber, ...]


@dataclass(frozen=True, slots=True)
class GenerateStep:
    input: StepNumber
    generator: HandleNumber
    outer: bool
    generated: tuple[ColumnNumber, ...]
    columns: tuple[ColumnNumber, ...]


@dataclass(frozen=True, slots=True)
class UnionStep:
    inputs: tuple[StepNumber, ...]
    columns: tuple[ColumnNumber, ...]


@dataclass(frozen=True, slots=True)
class LookupStep:
    """``{((a, b), max(ta, tb), da * db)}`` for updates `a` and what is arranged by their keys.

    `old`: as it was before the interval; else with the changes in it. `null_safe`: for each key
    whether NULL finds NULL.
    """

    input: StepNumber
    arrangement: ArrangementNumber
    keys: tuple[HandleNumber, ...]
    null_safe: tuple[bool, ...]
    old: bool
    conditions: tuple[Condition, ...]
    columns: tuple[ColumnNumber, ...]


@dataclass(frozen=True, slots=True)
class SemiJoinStep:
    """The rows of `left` for which `right` has a partner; with `present` false, those without.

    `null_safe`: for each key whether NULL is a partner of NULL.
    """

    left: StepNumber
    right: StepNumber
    left_arrangement: ArrangementNumber
    right_arrangement: ArrangementNumber
    null_safe: tuple[bool, ...]
    conditions: tuple[Condition, ...]
    present: bool
    columns: tuple[ColumnNumber, ...]


@dataclass(frozen=True, slots=True)
class Accumulation:
    function: HandleNumber
    filter: HandleNumber | None


@dataclass(frozen=True, slots=True)
class ReduceStep:
    """Groups of the rows of plan node `node`, of which a state is accumulated."""

    input: StepNumber
    node: NodeNumber
    groups: tuple[HandleNumber, ...]
    aggregates: tuple[Accumulation, ...]
    columns: tuple[ColumnNumber, ...]


@dataclass(frozen=True, slots=True)
class RecomputeGroupsStep:
    """Groups of plan node `node`, an aggregate or a window, computed anew from all their rows.

    `arrangement` has the operator's input by its groups. `once`: it makes no difference how often a
    row is there.
    """

    input: StepNumber
    node: NodeNumber
    arrangement: ArrangementNumber
    once: bool
    columns: tuple[ColumnNumber, ...]


Step: TypeAlias = (
    DeltaStep
    | ConstantStep
    | MapStep
    | FilterStep
    | TemporalFilterStep
    | ExpandStep
    | GenerateStep
    | UnionStep
    | LookupStep
    | SemiJoinStep
    | ReduceStep
    | RecomputeGroupsStep
)


@dataclass(frozen=True, slots=True)
class SeenFilter:
    """A condition of rows that have `columns`; None: one that the condition does not read."""

    columns: tuple[ColumnNumber | None, ...]
    conditions: tuple[HandleNumber, ...]


@dataclass(frozen=True, slots=True)
class SeenMap:
    """Values that are computed of rows that have `columns`, as those of a `SeenFilter`."""

    columns: tuple[ColumnNumber | None, ...]
    values: tuple[HandleNumber, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """The way in which steps see rows of an index on a collection as those of plan node `node`.

    `keys` are over the columns of the node, `null_safe` as of a lookup. The index has them in
    another `order`: its first key is the one of `keys` at the first place of it. A row that is
    found goes through the `stages`, and has `columns` then.
    """

    node: NodeNumber
    keys: tuple[HandleNumber, ...]
    null_safe: tuple[bool, ...]
    order: tuple[int, ...]
    stages: tuple[SeenFilter | SeenMap, ...]
    columns: tuple[ColumnNumber | None, ...]


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The rows of plan node `node` by `keys`, moved on by the updates of step `delta`.

    `key_columns`: for each key the column that it is, if it need not be kept beside it. `columns`
    are the others. `seen`: it is what an index on a collection has.
    """

    node: NodeNumber
    delta: StepNumber
    keys: tuple[HandleNumber, ...]
    null_safe: tuple[bool, ...]
    key_columns: tuple[ColumnNumber | None, ...]
    columns: tuple[ColumnNumber, ...]
    seen: Seen | None = None

    @property
    def is_filtered(self) -> bool:
        """Whether lookups do not see all that they find."""
        stages = () if self.seen is None else self.seen.stages
        return any(isinstance(stage, SeenFilter) for stage in stages)


@dataclass(frozen=True, slots=True)
class IndexedRows:
    """The rows of plan node `node`, its `columns`, by `keys`, for queries to look up.

    `names` are those that the columns have in the relation.
    They move on by the updates of step `delta`. NULL is the same key as NULL.
    """

    node: NodeNumber
    delta: StepNumber
    keys: tuple[Value, ...]
    columns: tuple[ColumnNumber, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SharedStep:
    """A step that gives the updates of plan node `node`, as other programs compute them too."""

    node: NodeNumber
    step: StepNumber


@dataclass(frozen=True, slots=True)
class Size:
    """The number of updates that an arrangement keeps, and about how many keys these have."""

    rows: int
    keys: int


@dataclass(frozen=True, slots=True)
class Program:
    """The steps by which the updates of a query's output follow from those of its inputs.

    With d(X) for the updates of X in an interval ``[lower, upper)``, and X(t) for the sum of X's
    updates up to t, the last step's updates satisfy for every t in the interval::

        query(inputs(lower - 1)) + sum of d(output) up to t  =  query(inputs(t))

    and they are consolidated. `steps` run in their order, each after those that it reads.
    `aliases`: columns that are others under a new number. `index`: the program keeps its output for
    queries, and a tick gives no updates. `shared`: steps that need not run where another program
    has run them for the same interval.
    """

    steps: tuple[Step, ...]
    arrangements: tuple[Arrangement, ...]
    aliases: Mapping[ColumnNumber, ColumnNumber]
    index: IndexedRows | None = None
    shared: tuple[SharedStep, ...] = ()

    def fields(self, collection: str) -> frozenset[str]:
        """The columns of the collection in whose changes it takes an interest."""
        deltas = (step for step in self.steps if isinstance(step, DeltaStep))
        return frozenset(f for step in deltas if step.collection == collection for f in step.fields)

    @property
    def has_choice(self) -> bool:
        """Whether its lookups could have another order."""
        steps = self.steps
        return any(
            isinstance(s, LookupStep) and isinstance(steps[s.input], LookupStep) for s in steps
        )

    def to_json(self) -> str:
        """The form that the driver reads."""
        return json.dumps(_converter.unstructure(self), sort_keys=True)


_OPERATORS: Mapping[type[Any], str] = {
    DeltaStep: "delta",
    ConstantStep: "constant",
    MapStep: "map",
    FilterStep: "filter",
    TemporalFilterStep: "temporal",
    ExpandStep: "expand",
    GenerateStep: "generate",
    UnionStep: "union",
    LookupStep: "lookup",
    SemiJoinStep: "presence",
    ReduceStep: "reduce",
    RecomputeGroupsStep: "regroup",
}
_NAMES = {
    "input": "in",
    "inputs": "in",
    "columns": "out",
    "collection": "source",
    "values": "exprs",
    "conditions": "conjuncts",
}
"""The names in JSON of fields of steps that have other names in Python."""

_Writer = Callable[[Any], dict[str, Any]]


def _columns_or_negative(columns: tuple[ColumnNumber | None, ...]) -> list[int]:
    return [-1 if column is None else column for column in columns]


def _made() -> Converter:
    made = Converter()

    def written(kind: type[Any], names: Mapping[str, str]) -> _Writer:
        renamed: Any = {
            field.name: override(rename=names[field.name])
            for field in fields(kind)
            if field.name in names
        }
        return make_dict_unstructure_fn(kind, made, **renamed)

    def step(kind: type[Any]) -> _Writer:
        write, operator = written(kind, _NAMES), _OPERATORS[kind]
        return lambda value: {"op": operator, **write(value)}

    made.register_unstructure_hook(Null, written(Null, {"column": "null"}))
    made.register_unstructure_hook(Truth, written(Truth, {"value": "literal"}))
    columns: Any = override(unstruct_hook=_columns_or_negative)
    for kind in (Seen, SeenFilter, SeenMap):
        renamed: Any = {
            name: override(rename=_NAMES[name])
            for name in ("conditions", "values")
            if name in (field.name for field in fields(kind))
        }
        hook = make_dict_unstructure_fn(kind, made, columns=columns, **renamed)
        made.register_unstructure_hook(kind, hook)
    kept: Any = {"key_columns": columns}
    made.register_unstructure_hook(Arrangement, make_dict_unstructure_fn(Arrangement, made, **kept))
    for kind in _OPERATORS:
        made.register_unstructure_hook(kind, step(kind))
    made.register_unstructure_hook(Program, written(Program, {"steps": "nodes"}))
    return made


_converter = _made()
