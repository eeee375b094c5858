"""Lookups in an index on a collection, in place of an arrangement of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from slackwater.planner.delta.join_order import resolved
from slackwater.planner.delta.program import SeenFilter, SeenMap
from slackwater.planner.plan.algebra import (
    AnalyzedPlan,
    ColumnNumber,
    Filter,
    HandleNumber,
    IndexedCollection,
    NodeNumber,
    Project,
    Source,
)

_Text: TypeAlias = tuple[str, ...]
"""An expression over columns of a collection: its shape, and the columns that it reads."""
_FIELD = "field"
"""The shape of a column alone."""


@dataclass(frozen=True, slots=True)
class Served:
    """An index that has the rows of a node by its keys; the rest is as in `Seen`."""

    index: IndexedCollection
    order: tuple[int, ...]
    stages: tuple[SeenFilter | SeenMap, ...]
    columns: tuple[ColumnNumber | None, ...]


def served(
    plan: AnalyzedPlan,
    node: NodeNumber,
    keys: Sequence[HandleNumber],
    aliases: Mapping[ColumnNumber, ColumnNumber],
) -> Served | None:
    """The index in which the rows of the node are found by the keys; None: there is none.

    It has the same keys, in whichever order, and the node does nothing but to filter and to compute
    what no row makes fail: an index has rows that the node has not. `aliases` are columns that keys
    may read in place of those of the node.
    """
    for index in plan.indexed:
        source = _source(plan, index)
        seen = _seen(plan, node, source)
        if seen is None:
            continue
        order = _order(plan, index, keys, _with_aliases(seen.texts, aliases))
        if order is not None:
            return Served(index, order, seen.stages, seen.columns)
    return None


@dataclass(frozen=True, slots=True)
class _SeenNode:
    """`texts`: what columns of the node are over those of the collection, where it is known."""

    texts: Mapping[ColumnNumber, _Text]
    stages: tuple[SeenFilter | SeenMap, ...]
    columns: tuple[ColumnNumber | None, ...]


def _with_aliases(
    texts: Mapping[ColumnNumber, _Text], aliases: Mapping[ColumnNumber, ColumnNumber]
) -> Mapping[ColumnNumber, _Text]:
    others = {each: texts.get(resolved(each, aliases)) for each in aliases}
    return {**{each: text for each, text in others.items() if text is not None}, **texts}


def _source(plan: AnalyzedPlan, index: IndexedCollection) -> Source:
    found = plan.nodes[index.node]
    assert isinstance(found, Source)
    return found


def _seen(plan: AnalyzedPlan, number: NodeNumber, whole: Source) -> _SeenNode | None:
    """The way from rows of the collection to those of the node.

    None: they do not come one by one, or not surely.
    """
    node = plan.nodes[number]
    match node:
        case Source() if node.collection == whole.collection:
            numbers = dict(zip(node.fields, node.out, strict=True))
            columns = tuple(numbers.get(field) for field in whole.fields)
            return _SeenNode(_texts(node), (), columns)
        case Filter() if _is_sure(plan, node.conjuncts):
            below = _seen(plan, node.inputs[0], whole)
            if below is None:
                return None
            stage = SeenFilter(below.columns, node.conjuncts)
            return _SeenNode(below.texts, (*below.stages, stage), below.columns)
        case Project() if _is_sure(plan, node.exprs):
            below = _seen(plan, node.inputs[0], whole)
            return None if below is None else _projected(plan, node, below)
    return None


def _projected(plan: AnalyzedPlan, node: Project, below: _SeenNode) -> _SeenNode:
    passed = [plan.handles[each].column for each in node.exprs]
    found = {
        out: _text(plan, each, below.texts) for out, each in zip(node.out, node.exprs, strict=True)
    }
    texts = {out: text for out, text in found.items() if text is not None}
    if None not in passed and len(set(passed)) == len(passed):
        # Only the numbers of the columns are others.
        numbers = dict(zip(passed, node.out, strict=True))
        columns = tuple(None if c is None else numbers.get(c) for c in below.columns)
        return _SeenNode(texts, below.stages, columns)
    stage = SeenMap(below.columns, node.exprs)
    return _SeenNode(texts, (*below.stages, stage), node.out)


def _is_sure(plan: AnalyzedPlan, handles: Sequence[HandleNumber]) -> bool:
    return all(plan.handles[each].sure for each in handles)


def _order(
    plan: AnalyzedPlan,
    index: IndexedCollection,
    keys: Sequence[HandleNumber],
    texts: Mapping[ColumnNumber, _Text],
) -> tuple[int, ...] | None:
    """For each key of the index its place among `keys`; None: these are not the same keys."""
    if len(keys) != len(index.keys) or not _is_sure(plan, index.keys):
        return None
    own = _texts(_source(plan, index))
    waiting = dict(enumerate(_text(plan, each, texts) for each in keys))
    order: list[int] = []
    for key, form in zip(index.keys, index.forms, strict=True):
        if key != form and "floating" in plan.handles[key].type.key_issues:
            return None
        wanted = _text(plan, form, own)
        found = next((place for place, text in waiting.items() if text == wanted), None)
        if wanted is None or found is None:
            return None
        del waiting[found]
        order.append(found)
    return tuple(order)


def _texts(source: Source) -> Mapping[ColumnNumber, _Text]:
    return {column: (_FIELD, each) for column, each in zip(source.out, source.fields, strict=True)}


def _text(
    plan: AnalyzedPlan, number: HandleNumber, texts: Mapping[ColumnNumber, _Text]
) -> _Text | None:
    """The expression over the columns of a collection; None: it reads something else."""
    handle = plan.handles[number]
    if handle.column is not None:
        return texts.get(handle.column)
    read = [texts.get(column) for column in handle.reads]
    fields = [each[1] for each in read if each is not None and each[0] == _FIELD]
    return (handle.shape, *fields) if fields and len(fields) == len(read) else None
