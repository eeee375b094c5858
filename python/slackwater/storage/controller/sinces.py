"""Durable sinces: what the shards are told of the sinces in memory, and when.

Sinces move with every tick; the shards learn it in turns, a few at a time. The last move, to the
empty frontier, waits for nothing. Source: spec controllers 2.2, M26.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from slackwater.repr.frontier import EMPTY_FRONTIER, MINIMUM_FRONTIER, Frontier
from slackwater.repr.ids import GlobalId
from slackwater.storage.controller.capabilities import Capabilities, CollectionState
from slackwater.storage.controller.descriptions import CollectionMetadata
from slackwater.storage.controller.effects import DowngradeSince, Effect
from slackwater.storage.controller.placement import Placement
from slackwater.storage.controller.shards import ShardMappings


@dataclass(frozen=True, slots=True)
class DurableSinces:
    """The since that each shard was last told. Not thread-safe.

    It does not guarantee that a durable since is near the one in memory, only that it is never
    later (I17). `effects` takes what is to be done, in order.
    """

    capabilities: Capabilities
    placement: Placement
    shards: ShardMappings
    effects: list[Effect]
    _announced: dict[int, Frontier] = field(default_factory=dict, init=False)
    _stale: dict[GlobalId, None] = field(default_factory=dict, init=False)

    def opened(self, global_id: GlobalId, metadata: CollectionMetadata) -> None:
        """There is a new collection, whose shards have the since of `metadata`."""
        self._announced[metadata.shard_id] = metadata.since
        if metadata.shares_tables_upper:
            self._stale[global_id] = None

    def turn(self, limit: int) -> None:
        """Announces the sinces of at most `limit` collections. Each gets its turn."""
        for global_id in list(self._stale)[:limit]:
            del self._stale[global_id]
            state = self.capabilities.collections.get(global_id)
            if state is not None:
                self._stale[global_id] = None
                self.capabilities.moved.setdefault(global_id, state)
        for state in list(self.capabilities.moved.values())[:limit]:
            self.announce(state)

    def announce(self, state: CollectionState) -> None:
        """Makes the since of the collection durable, and tells those that write it."""
        self.capabilities.settle(state)
        self.capabilities.moved.pop(state.id, None)
        metadata = state.metadata
        moved = self._downgrade(metadata.shard_id, state.since)
        for shard in metadata.error_shards:
            self._downgrade(shard, state.since)
        if moved:
            self.placement.allow_compaction(state)

    def close_collections(self) -> None:
        """The last downgrades of collections that nobody can read any more."""
        closed, self.capabilities.closed = self.capabilities.closed, []
        for state in closed:
            shards = state.metadata.shards
            for shard in shards:
                self._announced.pop(shard, None)
                self.effects.append(DowngradeSince(shard, EMPTY_FRONTIER))
            self._stale.pop(state.id, None)
            self.shards.closed(shards)

    def _downgrade(self, shard: int, since: Frontier) -> bool:
        """Whether the shard is told something new."""
        if since <= self._announced.get(shard, MINIMUM_FRONTIER):
            return False
        self._announced[shard] = since
        self.effects.append(DowngradeSince(shard, since))
        return True
