"""Dataflows that are to be created: whether they can be. Nothing is changed here.

Source: spec controllers 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from slackwater.compute.controller.collections import Collections, CollectionState
from slackwater.compute.controller.descriptions import (
    CopyToExport,
    DataflowDescription,
    IndexExport,
    MaterializedViewExport,
    SinkExport,
    SubscribeExport,
    kind_of,
)
from slackwater.compute.controller.errors import ComputeError, Variant
from slackwater.compute.controller.storage_collections import StorageCollections
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import Frontier
from slackwater.repr.ids import GlobalId
from slackwater.repr.read_policy import ValidFrom


@dataclass(slots=True)
class Creation:
    """The dataflows that are created in one call, in order: later ones may read earlier ones."""

    instance: str
    collections: Collections
    storage: StorageCollections
    _as_ofs: dict[GlobalId, Frontier] = field(default_factory=dict)
    _readable: set[GlobalId] = field(default_factory=set)

    def check(self, dataflow: DataflowDescription, target_replica: str | None) -> None:
        """Raises what `ComputeController.create_dataflows` does for one of them."""
        if target_replica is not None and dataflow.index_exports:
            raise FatalError(f"the index of {dataflow.name} is for {target_replica} alone")
        reused = [i for i in dataflow.export_ids if self._is_in_use(i) or i in self._as_ofs]
        if reused:
            raise ComputeError(Variant.COLLECTION_ID_REUSED, reused)
        as_of = dataflow.as_of
        if as_of is None:
            raise ComputeError(Variant.MISSING_AS_OF, dataflow.export_ids)
        if as_of.is_empty:
            _check_empty(dataflow.sink_exports)
        late = [*self._late_sources(dataflow, as_of), *self._late_indexes(dataflow, as_of)]
        if late:
            raise ComputeError(Variant.SINCE_VIOLATION, late, f"at {as_of.as_list()}")
        for each in dataflow.sink_exports:
            if isinstance(each, MaterializedViewExport):
                self._stored(each.target)
        self._as_ofs |= dict.fromkeys(dataflow.export_ids, as_of)
        self._readable |= {each.id for each in dataflow.index_exports}

    def _is_in_use(self, global_id: GlobalId) -> bool:
        """True if the id is that of a collection that was not dropped, or that others still read.

        Deviates from spec 1.1, where an id is used once: an object that moves to another instance,
        or whose definition was replaced, keeps its id.
        """
        state = self.collections.states.get(global_id)
        return state is not None and not (state.is_dropped and not state.dependents)

    def _late_sources(self, dataflow: DataflowDescription, as_of: Frontier) -> list[GlobalId]:
        return [each for each in dataflow.source_ids if as_of < self._stored(each)]

    def _late_indexes(self, dataflow: DataflowDescription, as_of: Frontier) -> list[GlobalId]:
        return [each for each in dataflow.index_imports if as_of < self._index(each)]

    def _stored(self, global_id: GlobalId) -> Frontier:
        found = self.storage.frontiers(global_id)
        if found is None or found.is_dropped:
            raise ComputeError(Variant.COLLECTION_MISSING, [global_id])
        return found.since

    def _index(self, global_id: GlobalId) -> Frontier:
        if global_id in self._readable:
            return self._as_ofs[global_id]
        if global_id in self._as_ofs:
            raise ComputeError(Variant.COLLECTION_MISSING, [global_id], "it is no index")
        state = self.collections.live(self.instance, global_id)
        if not state.kind.is_readable:
            raise ComputeError(Variant.COLLECTION_MISSING, [global_id], "it is no index")
        return state.since


def _check_empty(sinks: Iterable[SinkExport]) -> None:
    for each in sinks:
        match each:
            case SubscribeExport(global_id):
                raise ComputeError(Variant.EMPTY_AS_OF_FOR_SUBSCRIBE, [global_id])
            case CopyToExport(global_id):
                raise ComputeError(Variant.EMPTY_AS_OF_FOR_COPY_TO, [global_id])
            case MaterializedViewExport():
                pass


def state_of(
    instance: str,
    dataflow: DataflowDescription,
    export: IndexExport | SinkExport,
    target_replica: str | None,
) -> CollectionState:
    """The collection that an export makes, as it begins: readable and complete up to the as-of."""
    as_of = dataflow.as_of
    if as_of is None:
        raise FatalError(f"{dataflow.name} has no as-of")
    kind = kind_of(export)
    return CollectionState(
        id=export.id,
        instance=instance,
        kind=kind,
        dataflow=dataflow,
        as_of=as_of,
        policy=ValidFrom(as_of) if kind.is_readable else None,
        write_frontier=as_of,
        implied=as_of,
        warmup=as_of,
        stored_ids=dataflow.source_ids,
        dependencies=tuple(dict.fromkeys(dataflow.index_imports)),
        target=export.target if isinstance(export, MaterializedViewExport) else None,
        target_replica=target_replica,
    )
