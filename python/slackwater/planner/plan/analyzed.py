"""Reads the plan that the driver exports. Its form is in ``docs/internals/analyzed_plans.md``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from slackwater.planner.plan.algebra import (
    Aggregate,
    AggregateCall,
    AnalyzedPlan,
    Bound,
    Computed,
    Constant,
    Expand,
    Filter,
    Generate,
    Handle,
    Join,
    JoinKey,
    JoinKind,
    Limit,
    NullAware,
    Operator,
    Other,
    PlanColumn,
    Project,
    Sort,
    SortKey,
    Source,
    SparkType,
    TemporalFilter,
    Union,
    Window,
    WindowCall,
)
from slackwater.planner.plan.checks import check
from slackwater.repr.errors import FatalError
from slackwater.repr.relation import RelationDesc

VERSION: Final = 3

_COMPARISONS: Final = frozenset({"<", "<=", ">", ">=", "="})


def analyzed_plan(text: str) -> AnalyzedPlan:
    """The plan in the JSON `text`. Raises FatalError for anything that is not as it is described.

    What the driver says beside the plan (``plan``, its id) is ignored.
    """
    answer = json.loads(text)
    answer.pop("plan", None)
    try:
        fields = _Fields(answer)
        if (version := fields.integer("version")) != VERSION:
            raise FatalError(f"a plan of version {version}, where {VERSION} is known")
        plan = AnalyzedPlan(
            columns=tuple(_column(each) for each in fields.objects("columns")),
            handles=tuple(_handle(each) for each in fields.objects("handles")),
            nodes=tuple(_operator(each) for each in fields.objects("nodes")),
            root=fields.integer("root"),
            collections=fields.texts("collections"),
            names=fields.texts("names"),
            schema=RelationDesc.from_json(json.dumps(fields.take("schema"))),
            fingerprint=_fingerprint(answer),
        )
        fields.end()
    except (KeyError, TypeError, ValueError) as error:
        raise FatalError(f"a plan that cannot be read: {error!r}") from error
    check(plan)
    return plan


class _Fields:
    """The fields of an object, each of which has to be there, and has to be taken."""

    def __init__(self, value: Mapping[str, Any]) -> None:
        self._rest = dict(value)

    def take(self, name: str) -> Any:
        return self._rest.pop(name)

    def text(self, name: str) -> str:
        return _typed(self.take(name), str)

    def integer(self, name: str) -> int:
        return _integer(self.take(name))

    def integer_or_none(self, name: str) -> int | None:
        value = self.take(name)
        return None if value is None else _integer(value)

    def boolean(self, name: str) -> bool:
        return _typed(self.take(name), bool)

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(_typed(each, str) for each in _typed(self.take(name), list))

    def integers(self, name: str) -> tuple[int, ...]:
        return _integers(self.take(name))

    def objects(self, name: str) -> list[_Fields]:
        return [_Fields(_typed(each, dict)) for each in _typed(self.take(name), list)]

    def type(self) -> SparkType:
        collations = self._rest.pop("collations", {})
        return SparkType(
            json.dumps(self.take("type")),
            tuple(sorted(collations.items())),
            frozenset(self.texts("key_issues")),
        )

    def end(self) -> None:
        if self._rest:
            raise FatalError(f"a plan with fields that are not known: {', '.join(self._rest)}")


T = TypeVar("T")


def _typed(value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError(f"{value!r} is no int")
    return _typed(value, int)


def _integers(value: Any) -> tuple[int, ...]:
    return tuple(_integer(each) for each in _typed(value, list))


def _column(fields: _Fields) -> PlanColumn:
    made = PlanColumn(fields.text("name"), fields.type(), fields.boolean("nullable"))
    fields.end()
    return made


def _handle(fields: _Fields) -> Handle:
    made = Handle(
        sql=fields.text("sql"),
        type=fields.type(),
        nullable=fields.boolean("nullable"),
        deterministic=fields.boolean("deterministic"),
        foldable=fields.boolean("foldable"),
        throws=fields.boolean("throws"),
        uses_now=fields.boolean("uses_now"),
        columns=fields.integers("columns"),
        column=fields.integer_or_none("column"),
        digest=fields.text("digest"),
    )
    fields.end()
    return made


def _operator(fields: _Fields) -> Operator:
    name = fields.text("op")
    if name not in _OPERATORS:
        raise FatalError(f"a plan with the operator {name}, which is not known")
    made = _OPERATORS[name](fields, fields.integers("in"), fields.integers("out"))
    fields.end()
    return made


_Numbers = tuple[int, ...]


def _source(fields: _Fields, inputs: _Numbers, out: _Numbers) -> Operator:
    return Source(fields.text("collection"), fields.texts("fields"), out, inputs)


def _constant(fields: _Fields, inputs: _Numbers, out: _Numbers) -> Operator:
    return Constant(fields.integer("rows"), fields.text("digest"), out, inputs)


def _project(fields: _Fields, inputs: _Numbers, out: _Numbers) -> Operator:
    return Project(inputs, out, fields.integers("exprs"))


def _filter(fields: _Fields, inputs: _Numbers, out: _Numbers) -> Operator:
    return Filter(inputs, out, fields.integers("conjuncts"))


def _temporal(fields: _Fields, inputs: _Numbers, out: _Numbers) -> Operator:
    bounds = tuple(_bound(each) for each in fields.objects("bounds"))
    return TemporalFilter(inputs, out, bounds)


def _bound(fields: _Fields) -> Bound:
    comparison = fields.text("comparison")
    if comparison not in _COMPARISONS:
        raise FatalError(f"a plan with the comparison {comparison}, which is not known")
    made = Bound(comparison, fields.integer("handle"))
    fields.end()
    return made


def _join(fields: _Fields, inputs: _Numbers, out: _Numbers) -> Operator:
    return Join(
        inputs,
        out,
        kind=JoinKind(fields.text("kind")),
        keys=tuple(_join_key(each) for each in fields.objects("keys")),
        residual=fields.integers("residual"),
        null_aware=tuple(_null_aware(each) for each in fields.objects("null_aware")),
        exists=fields.integer_or_none("exists"),
    )


def _join_key(fields: _Fields) -> JoinKey:
    made = JoinKey(fields.integer("left"), fields.integer("right"), fields.boolean("null_safe"))
    fields.end()
    return made


def _null_aware(fields: _Fields) -> NullAware:
    made = NullAware(fields.integer("condition"), fields.integer("left"), fields.integer("right"))
    fields.end()
    return made


def _aggregate(fields: _Fields, inputs: _Numbers, out: _Numbers) -> Operator:
    return Aggregate(
        inputs,
        out,
        groups=tuple(_computed(each) for each in fields.objects("groups")),
        aggregates=tuple(_call(each) for each in fields.objects("aggregates")),
        results=fields.integers("results"),
        session=fields.integer_or_none("session"),
    )


def _computed(fields: _Fields) -> Computed:
    made = Computed(fields.integer("handle"), fields.integer("column"))
    fields.end()
    return made


def _call(fields: _Fields) -> AggregateCall:
    made = AggregateCall(
        function=fields.text("function"),
        handle=fields.integer("handle"),
        args=fields.integers("args"),
        distinct=fields.boolean("distinct"),
        filter=fields.integer_or_none("filter"),
        column=fields.integer("column"),
        in_order=fields.boolean("in_order"),
    )
    fields.end()
    return made


def _window(fields: _Fields, inputs: _Numbers, out: _Numbers) -> Operator:
    return Window(
        inputs,
        out,
        functions=tuple(_window_call(each) for each in fields.objects("functions")),
        partition=fields.integers("partition"),
        order=_order(fields),
    )


def _window_call(fields: _Fields) -> WindowCall:
    made = WindowCall(
        function=fields.text("function"),
        handle=fields.integer("handle"),
        args=fields.integers("args"),
        rows=fields.boolean("rows"),
        column=fields.integer("column"),
        in_order=fields.boolean("in_order"),
    )
    fields.end()
    return made


def _order(fields: _Fields) -> tuple[SortKey, ...]:
    return tuple(_sort_key(each) for each in fields.objects("order"))


def _sort_key(fields: _Fields) -> SortKey:
    made = SortKey(
        fields.integer("handle"), fields.boolean("ascending"), fields.boolean("nulls_first")
    )
    fields.end()
    return made


def _expand(fields: _Fields, inputs: _Numbers, out: _Numbers) -> Operator:
    projections = tuple(_integers(each) for each in _typed(fields.take("projections"), list))
    return Expand(inputs, out, projections)


def _generate(fields: _Fields, inputs: _Numbers, out: _Numbers) -> Operator:
    return Generate(
        inputs,
        out,
        handle=fields.integer("handle"),
        outer=fields.boolean("outer"),
        kept=fields.integers("kept"),
        generated=fields.integers("generated"),
    )


def _union(fields: _Fields, inputs: _Numbers, out: _Numbers) -> Operator:
    return Union(inputs, out)


def _sort(fields: _Fields, inputs: _Numbers, out: _Numbers) -> Operator:
    return Sort(inputs, out, _order(fields), fields.boolean("global"))


def _limit(fields: _Fields, inputs: _Numbers, out: _Numbers) -> Operator:
    return Limit(inputs, out, fields.integer_or_none("count"), fields.integer("offset"))


def _other(fields: _Fields, inputs: _Numbers, out: _Numbers) -> Operator:
    return Other(fields.text("name"), fields.text("reason"), out, inputs)


_OPERATORS: Final[Mapping[str, Callable[[_Fields, _Numbers, _Numbers], Operator]]] = {
    "source": _source,
    "constant": _constant,
    "project": _project,
    "filter": _filter,
    "temporal": _temporal,
    "join": _join,
    "aggregate": _aggregate,
    "window": _window,
    "expand": _expand,
    "generate": _generate,
    "union": _union,
    "sort": _sort,
    "limit": _limit,
    "other": _other,
}


def _fingerprint(answer: Mapping[str, Any]) -> str:
    """Of what the plan computes: names of columns inside and texts for people do not count."""
    counted = {
        **answer,
        "columns": [_without(column, "name") for column in answer["columns"]],
        "handles": [_without(handle, "sql") for handle in answer["handles"]],
    }
    text = json.dumps(counted, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _without(entry: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != name}
