"""The objects that shards belong to, and the way of a shard that belongs to none. Source: spec 2.6.

A shard is mapped to an object, or registered for finalization, or finalized; never two of them.
The record of both is elsewhere: the catalog has the shards of each object (decision 0006), and the
shards themselves say that they were dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slackwater.repr.errors import FatalError
from slackwater.repr.ids import GlobalId
from slackwater.storage.controller.descriptions import DurableState
from slackwater.storage.controller.effects import (
    Effect,
    FinalizeShard,
    ReclaimShards,
    RegisterFinalization,
)
from slackwater.storage.controller.errors import StorageError, Variant


class ShardMappings:
    """The shards of each object, and those that wait for finalization. Not thread-safe.

    It does not guarantee that a shard exists, nor that its finalization succeeds: a shard is asked
    for again until `is_gone` is called.
    """

    def __init__(self, durable: DurableState) -> None:
        self._owners: dict[int, GlobalId] = dict(durable.mappings)
        self._unfinalized: set[int] = set(durable.unfinalized)
        self._unclaimed = durable.unclaimed
        self._lost = durable.lost
        self._in_use: set[int] = set()
        self._waiting: dict[int, None] = {}

    def owner(self, shard: int) -> GlobalId | None:
        """The object that the shard belongs to."""
        return self._owners.get(shard)

    def owners_of(self, shards: Iterable[int]) -> dict[int, GlobalId]:
        """The objects that the shards belong to. Shards of none are left out."""
        return {each: self._owners[each] for each in shards if each in self._owners}

    def map(self, mapped: Iterable[tuple[GlobalId, int]]) -> None:
        """Gives each shard to its object. Raises SHARD_ALREADY_IN_USE, before any change."""
        new = {shard: owner for owner, shard in mapped}
        taken = [
            owner
            for shard, owner in new.items()
            if self._owners.get(shard, owner) != owner or shard in self._unfinalized
        ]
        if taken:
            raise StorageError(Variant.SHARD_ALREADY_IN_USE, taken)
        self._owners |= new
        self._unclaimed -= new.keys()

    def give_up(self, ids: Iterable[GlobalId]) -> None:
        """Registers the shards of these objects for finalization."""
        dropped = set(ids)
        shards = sorted(shard for shard, owner in self._owners.items() if owner in dropped)
        for shard in shards:
            del self._owners[shard]
        self._unfinalized.update(shards)
        self._enqueue(shards)

    def migrate(self) -> tuple[list[Effect], frozenset[GlobalId]]:
        """Makes mappings and registrations agree; the objects that have lost a shard.

        A lost shard belongs to nobody any more, and is finalized if there is one. Another shard
        that is mapped and registered is registered no more: the catalog says what there is.
        """
        losers = frozenset(self._owners[each] for each in self._lost if each in self._owners)
        for shard in self._lost:
            self._owners.pop(shard, None)
        self._lost = frozenset()
        kept = sorted(self._unfinalized & self._owners.keys())
        self._unfinalized.difference_update(kept)
        return [ReclaimShards(tuple(kept))] if kept else [], losers

    def reconcile(self) -> list[Effect]:
        """Registers the shards that nobody claims. A second call has no effect."""
        lost = sorted(self._unclaimed - self._unfinalized - self._owners.keys())
        self._unclaimed = frozenset()
        self._unfinalized.update(lost)
        self._enqueue(sorted(self._unfinalized))
        return [RegisterFinalization(tuple(lost))] if lost else []

    def opened(self, shards: Iterable[int]) -> None:
        """A collection uses the shards from now on."""
        for shard in shards:
            if shard in self._in_use:
                raise FatalError(f"shard {shard} was opened twice")
            self._in_use.add(shard)

    def closed(self, shards: Sequence[int]) -> None:
        """The collection that used the shards is gone, and so are all its readers."""
        self._in_use.difference_update(shards)
        self._enqueue(shards)

    def is_in_use(self, shard: int) -> bool:
        """Whether a collection has the shard open."""
        return shard in self._in_use

    def finalize(self, limit: int) -> list[Effect]:
        """The next shards to be finalized, at most `limit`, those first that waited longest.

        A shard is asked for again in later turns until it is known to be gone.
        """
        chosen = list(self._waiting)[:limit]
        for shard in chosen:
            del self._waiting[shard]
            self._waiting[shard] = None
        return [FinalizeShard(shard) for shard in chosen]

    def is_gone(self, shard: int) -> None:
        """The shard was finalized."""
        self._waiting.pop(shard, None)
        self._unfinalized.discard(shard)

    def validate(self, open_shards: Iterable[int]) -> None:
        """Raises FatalError unless each shard is in one state and `open_shards` are in use."""
        twice = self._unfinalized & self._owners.keys()
        if twice:
            raise FatalError(f"the shards {sorted(twice)} are mapped, and to be finalized")
        if self._in_use != set(open_shards):
            raise FatalError(f"the shards {sorted(self._in_use)} are not those in use")
        early = self._waiting.keys() - (self._unfinalized - self._in_use)
        if early:
            raise FatalError(f"the shards {sorted(early)} are not to be finalized yet")

    def _enqueue(self, shards: Iterable[int]) -> None:
        for shard in shards:
            if shard in self._unfinalized and shard not in self._in_use:
                self._waiting.setdefault(shard)
