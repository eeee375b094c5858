"""The picture of the dataflow: its nodes and edges, at most `LARGEST` nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slackwater.console import relations as r
from slackwater.console.objects import WITH_CONTENTS, ObjectEntry, State
from slackwater.console.snapshot import Snapshot

LARGEST = 60
"""The layout of so many nodes takes half a second in a browser; it grows with their square."""


@dataclass(frozen=True, slots=True)
class Node:
    """An object, or a schema with its objects. `state` is the worst of them."""

    id: str
    label: str
    kind: str
    state: str
    is_late: bool
    path: str


@dataclass(frozen=True, slots=True)
class Edge:
    """The object `above` is computed from `below`, in part or as a whole."""

    below: str
    above: str


@dataclass(frozen=True, slots=True)
class Picture:
    """`is_by_schema`: the nodes are schemas. `nodes` is empty when even these are too many."""

    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    is_by_schema: bool = False


def picture(snapshot: Snapshot, found: tuple[ObjectEntry, ...]) -> Picture:
    """The picture of all objects, or of the schemas where those are too many."""
    shown = [each for each in found if each.kind in WITH_CONTENTS or each.kind == "view"]
    edges = _edges(snapshot, {each.id for each in shown})
    if len(shown) <= LARGEST:
        return Picture(tuple(map(_node, sorted(shown, key=_order))), edges)
    return _by_schema(shown, edges)


def around(snapshot: Snapshot, found: tuple[ObjectEntry, ...], center: ObjectEntry) -> Picture:
    """The picture of the neighbours of an object: what it takes, and what takes it."""
    edges = _edges(snapshot, {each.id for each in found})
    near = [edge for edge in edges if center.id in (edge.below, edge.above)][: LARGEST - 1]
    ids = {center.id, *(edge.below for edge in near), *(edge.above for edge in near)}
    nodes = [_node(each) for each in sorted(found, key=_order) if each.id in ids]
    return Picture(tuple(nodes), tuple(near))


def _edges(snapshot: Snapshot, ids: set[str]) -> tuple[Edge, ...]:
    rows = snapshot.rows(r.DEPENDENCIES)
    pairs = {(row["referenced_object_id"], row["object_id"]) for row in rows}
    return tuple(Edge(*pair) for pair in sorted(pairs) if ids.issuperset(pair))


def _node(entry: ObjectEntry) -> Node:
    state = entry.health.state.token
    return Node(entry.id, entry.name, entry.kind, state, entry.is_late, entry.path)


def _order(entry: ObjectEntry) -> tuple[int, str]:
    return len(entry.id), entry.id


def _by_schema(shown: list[ObjectEntry], edges: Iterable[Edge]) -> Picture:
    groups: dict[str, list[ObjectEntry]] = {}
    for each in shown:
        groups.setdefault(each.schema, []).append(each)
    if len(groups) > LARGEST:
        return Picture(is_by_schema=True)
    nodes = [_schema(name, within) for name, within in sorted(groups.items())]
    schemas = {each.id: each.schema for each in shown}
    pairs = {(schemas[edge.below], schemas[edge.above]) for edge in edges}
    between = tuple(Edge(*pair) for pair in sorted(pairs) if pair[0] != pair[1])
    return Picture(tuple(nodes), between, is_by_schema=True)


def _schema(name: str, within: list[ObjectEntry]) -> Node:
    states = list(State)
    worst = min((each.health.state for each in within), key=states.index)
    is_late = any(each.is_late for each in within)
    return Node(name, f"{name} ({len(within)})", "schema", worst.token, is_late, "")
