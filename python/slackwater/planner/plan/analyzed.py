"""Reads the plan that the driver exports. Its form is in ``docs/internals/analyzed_plans.md``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, TypeVar, get_args, get_origin

from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, override

from slackwater.planner.plan.algebra import (
    AnalyzedPlan,
    Handle,
    Operator,
    PlanColumn,
    SparkType,
    TemporalFilter,
)
from slackwater.planner.plan.checks import check
from slackwater.repr.errors import FatalError
from slackwater.repr.relation import RelationDesc

VERSION: Final = 3

_OPERATORS: Final[Mapping[str, type[Any]]] = {
    "temporal" if kind is TemporalFilter else kind.__name__.lower(): kind
    for kind in get_args(Operator)
}
_NAMES: Final = {"inputs": "in", "is_global": "global"}
"""The names in JSON of fields that have other names in Python."""

_Fields = Mapping[str, Any]
_Reader = Callable[[Any, Any], Any]


def analyzed_plan(text: str) -> AnalyzedPlan:
    """The plan in the JSON `text`. Raises FatalError for anything that is not as it is described.

    What the driver says beside the plan is the plan's id (``plan``), which is ignored, and, where
    the plan knows of indexes, the one that knows of none (``expanded``), whose fingerprint it has.
    """
    answer = json.loads(text)
    answer.pop("plan", None)
    expanded = answer.pop("expanded", answer)
    try:
        for version in (answer["version"], expanded["version"]):
            if version != VERSION:
                raise FatalError(f"a plan of version {version}, where {VERSION} is known")
        described = {**_without(answer, "version"), "fingerprint": _fingerprint(expanded)}
        plan: AnalyzedPlan = _converter.structure(described, AnalyzedPlan)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FatalError(f"a plan that cannot be read: {error!r}") from error
    check(plan)
    return plan


T = TypeVar("T")


def _exactly(value: Any, kind: type[T]) -> T:
    """The value, which is of the type and of none below it: no bool for an int."""
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def _all_exactly(values: Any, kind: type[T]) -> tuple[T, ...]:
    for value in _exactly(values, list):
        if type(value) is not kind:
            raise TypeError(f"{value!r} is no {kind.__name__}")
    return tuple(values)


def _is_tuple(kind: Any) -> bool:
    return get_origin(kind) is tuple


def _schema(value: Any, _: Any) -> RelationDesc:
    return RelationDesc.from_json(json.dumps(value))


def _operator(value: _Fields, _: Any) -> Any:
    name = value["op"]
    if name not in _OPERATORS:
        raise FatalError(f"a plan with the operator {name}, which is not known")
    return _converter.structure(_without(value, "op"), _OPERATORS[name])


def _spark_type(text: Any, collations: Mapping[str, str], issues: Any) -> SparkType:
    listed = frozenset(_all_exactly(issues, str))
    return SparkType(json.dumps(text), tuple(sorted(collations.items())), listed)


def _made() -> Converter:
    # Nobody needs the path to what is wrong in a plan that our own driver describes.
    made = Converter(detailed_validation=False)

    def tuples(kind: Any) -> _Reader:
        (element, _) = get_args(kind)
        read = made.get_structure_hook(element)
        if read is _exactly:
            return lambda value, _: _all_exactly(value, element)
        return lambda value, _: tuple([read(each, element) for each in _exactly(value, list)])

    def objects(kind: Any) -> _Reader:
        """Each field has to be there, also one with a default, and no other."""
        names = {field.name: _NAMES.get(field.name, field.name) for field in fields(kind)}
        known = frozenset(names.values())
        renamed: Any = {name: override(rename=other) for name, other in names.items()}
        read: _Reader = make_dict_structure_fn(
            kind, made, _cattrs_detailed_validation=False, **renamed
        )

        def complete(value: _Fields, _: Any) -> Any:
            if value.keys() != known:
                if missing := known - value.keys():
                    raise KeyError(", ".join(sorted(missing)))
                unknown = ", ".join(value.keys() - known)
                raise FatalError(f"a plan with fields that are not known: {unknown}")
            return read(value, kind)

        return complete

    def with_type(kind: Any) -> _Reader:
        read = objects(kind)

        def gathered(value: _Fields, _: Any) -> Any:
            """The parts of a type are beside the other fields."""
            rest = dict(value)
            collations, issues = rest.pop("collations", {}), rest.pop("key_issues")
            rest["type"] = _spark_type(rest["type"], collations, issues)
            return read(rest, kind)

        return gathered

    for primitive in (bool, int, str):
        made.register_structure_hook(primitive, _exactly)
    made.register_structure_hook_factory(_is_tuple, tuples)
    made.register_structure_hook_factory(is_dataclass, objects)
    made.register_structure_hook(RelationDesc, _schema)
    made.register_structure_hook(SparkType, lambda value, _: value)
    for kind in (PlanColumn, Handle):
        made.register_structure_hook(kind, with_type(kind))
    made.register_structure_hook(Operator, _operator)
    return made


def _fingerprint(answer: _Fields) -> str:
    """Of what the plan computes: names of columns inside and texts for people do not count.

    Nor does how the query was written.
    """
    counted = {
        **_without(answer, "selects", "views", "indexed"),
        "columns": [_without(column, "name") for column in answer["columns"]],
        "handles": [
            _without(handle, "sql", "shape", "reads", "sure") for handle in answer["handles"]
        ],
    }
    text = json.dumps(counted, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _without(entry: _Fields, *names: str) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in names}


_converter = _made()
