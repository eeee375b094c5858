"""Collections that are to be created: whether they can be, and in which order.

Nothing is changed here. Source: spec controllers M10, 2.8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slackwater.repr.frontier import EMPTY_FRONTIER, MINIMUM_FRONTIER
from slackwater.repr.ids import GlobalId
from slackwater.storage.controller.capabilities import Capabilities, first_since
from slackwater.storage.controller.descriptions import (
    CollectionDescription,
    CollectionMetadata,
    IngestionDescription,
    IngestionExport,
)
from slackwater.storage.controller.errors import StorageError, Variant
from slackwater.storage.controller.placement import Placement
from slackwater.storage.controller.shards import ShardMappings


def unknown(
    collections: Sequence[tuple[GlobalId, CollectionDescription]], capabilities: Capabilities
) -> dict[GlobalId, CollectionDescription]:
    """Those that do not exist yet. Raises COLLECTION_ID_REUSED for another, or a dropped, one."""
    new: dict[GlobalId, CollectionDescription] = {}
    for global_id, description in collections:
        existing = capabilities.collections.get(global_id)
        known = new.get(global_id) if existing is None else existing.description
        if known is not None and known != description:
            raise StorageError(Variant.COLLECTION_ID_REUSED, [global_id])
        if existing is not None and existing.is_dropped:
            raise StorageError(Variant.COLLECTION_ID_REUSED, [global_id], "it was dropped")
        if existing is None:
            new[global_id] = description
    return new


@dataclass(frozen=True, slots=True)
class Creation:
    """The collections `new`, which are not there yet, beside those that `capabilities` knows."""

    new: Mapping[GlobalId, CollectionDescription]
    metadata: Mapping[GlobalId, CollectionMetadata]
    capabilities: Capabilities

    def check(self, shards: ShardMappings, placement: Placement) -> None:
        """Raises what `StorageController.create_collections` does, but COLLECTION_ID_REUSED."""
        for global_id in self.new:
            self._check_description(global_id, placement)
        self._check_shards(shards)
        for global_id in self.new:
            self._check_resumption(global_id)

    def dependencies(self, global_id: GlobalId) -> tuple[GlobalId, ...]:
        """The remap collection, for all that an ingestion writes but that collection itself."""
        source = self._description(global_id).data_source
        if isinstance(source, IngestionExport):
            source = self._description(source.ingestion).data_source
        if not isinstance(source, IngestionDescription) or source.remap in (None, global_id):
            return ()
        return (source.remap,)

    def by_dependency(self) -> list[GlobalId]:
        """Collections without dependencies first. Remap collections have none of their own."""
        for global_id in self.new:
            for each in self.dependencies(global_id):
                if self.dependencies(each):
                    raise StorageError(Variant.IDENTIFIER_INVALID, [each], f"of {global_id}")
        return sorted(self.new, key=lambda each: bool(self.dependencies(each)))

    def _check_description(self, global_id: GlobalId, placement: Placement) -> None:
        match self.new[global_id].data_source:
            case IngestionDescription(instance):
                if not placement.has_instance(instance):
                    raise StorageError(Variant.INGESTION_INSTANCE_MISSING, [global_id])
            case IngestionExport(ingestion):
                found = self._description(ingestion)
                if not isinstance(found.data_source, IngestionDescription):
                    raise StorageError(Variant.IDENTIFIER_INVALID, [ingestion])
            case _:
                pass
        for each in self.dependencies(global_id):
            self._description(each)

    def _check_shards(self, shards: ShardMappings) -> None:
        missing = [each for each in self.new if each not in self.metadata]
        if missing:
            raise StorageError(Variant.IDENTIFIER_MISSING, missing, "no shard is mapped to it")
        for global_id in self.new:
            for shard in self.metadata[global_id].shards:
                if shards.owner(shard) != global_id or shards.is_in_use(shard):
                    raise StorageError(Variant.SHARD_ALREADY_IN_USE, [global_id])

    def _check_resumption(self, global_id: GlobalId) -> None:
        """A writer that cannot read its dependencies before its upper would write twice (2.8)."""
        own = self.metadata[global_id]
        upper = self.capabilities.tables_upper if own.shares_tables_upper else own.upper
        if upper in (MINIMUM_FRONTIER, EMPTY_FRONTIER):
            return
        for each in self.dependencies(global_id):
            since = (
                first_since(self.new[each], self.metadata[each])
                if each in self.new
                else self.capabilities.live(each).since
            )
            if upper <= since:
                raise StorageError(Variant.READ_BEFORE_SINCE, [each], f"needed by {global_id}")

    def _description(self, global_id: GlobalId) -> CollectionDescription:
        state = self.capabilities.collections.get(global_id)
        if state is not None and not state.is_dropped:
            return state.description
        if global_id not in self.new:
            raise StorageError(Variant.IDENTIFIER_MISSING, [global_id])
        return self.new[global_id]
