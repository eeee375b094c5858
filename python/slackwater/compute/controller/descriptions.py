"""Descriptions of dataflows: all that a replica is told, so that it asks nobody else.

Plans, columns and destinations are opaque here. Source: spec controllers 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from slackwater.controller.protocol import Parameters
from slackwater.repr.frontier import EMPTY_FRONTIER, MINIMUM_FRONTIER, Frontier
from slackwater.repr.ids import GlobalId
from slackwater.repr.refresh import RefreshSchedule


@dataclass(frozen=True, slots=True)
class SourceImport:
    """A stored collection that a dataflow reads.

    `relation` has its columns and says how its parts are read. Before `upper` it was complete when
    the description was sent.
    """

    id: GlobalId
    relation: str
    upper: Frontier = MINIMUM_FRONTIER


@dataclass(frozen=True, slots=True)
class ObjectToBuild:
    """A relation that the dataflow computes by `plan`; later ones may use it by its id."""

    id: GlobalId
    plan: str


@dataclass(frozen=True, slots=True)
class IndexExport:
    """An arrangement of the relation `on` by the expressions `keys`, which others can read."""

    id: GlobalId
    on: GlobalId
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MaterializedViewExport:
    """The relation `on`, written to the stored collection `target`.

    `relation` has its columns, and says how its parts are read.
    """

    id: GlobalId
    on: GlobalId
    target: GlobalId
    relation: str = ""


@dataclass(frozen=True, slots=True)
class SubscribeExport:
    """The changes of `on` as they happen. Who follows them reads its contents at the as-of."""

    id: GlobalId
    on: GlobalId


@dataclass(frozen=True, slots=True)
class CopyToExport:
    """The contents of `on` at the as-of, written to `destination` once."""

    id: GlobalId
    on: GlobalId
    destination: str


SinkExport = MaterializedViewExport | SubscribeExport | CopyToExport
"""An export that nobody can read from the replica."""


@dataclass(frozen=True, slots=True)
class DataflowDescription:
    """A computation with its inputs and its exports.

    For each export and each time t with ``as_of <= t < until``::

        contents of the export at t  =  its plan over the contents of the imports at t

    `as_of` None: it is not chosen yet. An empty `as_of`: nothing is left to compute. Updates at
    or after `until` are not made; frontiers may pass it. `initial_storage_as_of` is where the
    output of a view began when it was created, and stays the same over restarts. `settings` are
    those under which the plans run; None: an early release kept none. A view with a
    `refresh_schedule` has its plan's contents at the last refresh instead. `takes_over` is a
    dataflow that is dropped next: what a replica keeps for it, it may keep for this one. A
    description without exports, or with one twice, cannot be made (ValueError).
    """

    name: str
    objects_to_build: tuple[ObjectToBuild, ...]
    source_imports: tuple[SourceImport, ...] = ()
    index_imports: tuple[GlobalId, ...] = ()
    index_exports: tuple[IndexExport, ...] = ()
    sink_exports: tuple[SinkExport, ...] = ()
    as_of: Frontier | None = None
    until: Frontier = EMPTY_FRONTIER
    initial_storage_as_of: Frontier | None = None
    refresh_schedule: RefreshSchedule | None = None
    settings: Parameters | None = ()
    takes_over: GlobalId | None = None

    def __post_init__(self) -> None:
        ids = self.export_ids
        if not ids or len(set(ids)) < len(ids):
            raise ValueError(f"{self.name} exports {ids}: each once, and at least one")

    @property
    def export_ids(self) -> tuple[GlobalId, ...]:
        """The ids of all exports."""
        return tuple([each.id for each in self.index_exports + self.sink_exports])

    @property
    def source_ids(self) -> tuple[GlobalId, ...]:
        """The stored collections that it reads, each once."""
        return tuple(dict.fromkeys([each.id for each in self.source_imports]))

    @property
    def target_ids(self) -> tuple[GlobalId, ...]:
        """The stored collections that it writes."""
        sinks = self.sink_exports
        return tuple(each.target for each in sinks if isinstance(each, MaterializedViewExport))

    def at(self, as_of: Frontier) -> DataflowDescription:
        """The same from another time on."""
        return self if self.as_of == as_of else replace(self, as_of=as_of)

    def computes_like(self, other: DataflowDescription) -> bool:
        """True if both compute the same, from the later of their as-ofs on."""
        return self._timeless() == other._timeless()

    def _timeless(self) -> DataflowDescription:
        sources = tuple(replace(each, upper=MINIMUM_FRONTIER) for each in self.source_imports)
        return replace(self, as_of=None, source_imports=sources, takes_over=None)


class ExportKind(Enum):
    """The kind of a compute collection, which says who can read it."""

    INDEX = "index"
    """Readable by peeks and by other dataflows."""
    MATERIALIZED_VIEW = "materialized view"
    SUBSCRIBE = "subscribe"
    COPY_TO = "copy to"
    LOG = "log"
    """An index over what a replica says of itself; readable, and not the same on all replicas."""

    @property
    def is_readable(self) -> bool:
        """True if it can be read from a replica; else it is only written."""
        return self in (ExportKind.INDEX, ExportKind.LOG)


def kind_of(export: IndexExport | SinkExport) -> ExportKind:
    """The kind of the collection that the export makes."""
    match export:
        case IndexExport():
            return ExportKind.INDEX
        case MaterializedViewExport():
            return ExportKind.MATERIALIZED_VIEW
        case SubscribeExport():
            return ExportKind.SUBSCRIBE
        case CopyToExport():
            return ExportKind.COPY_TO
