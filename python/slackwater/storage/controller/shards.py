"""Which object a shard belongs to, and the way of a shard that belongs to none. Source: spec 2.6.

A shard is mapped to an object, or registered for finalization, or finalized; never two of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from slackwater.repr.errors import FatalError
from slackwater.repr.ids import GlobalId
from slackwater.storage.controller.descriptions import DurableState
from slackwater.storage.controller.effects import (
    ChangeMappings,
    DeleteMappings,
    Effect,
    FinalizeShard,
    RegisterFinalization,
)
from slackwater.storage.controller.errors import StorageError, Variant


class ShardMappings:
    """What the controller knows of the durable mappings and of finalization.

    `waiting` are the shards that may be finalized as soon as there is time.
    """

    def __init__(self, durable: DurableState) -> None:
        self.durable_mappings: dict[int, GlobalId] = dict(durable.mappings)
        self.unfinalized: set[int] = set(durable.unfinalized)
        self.finalized: set[int] = set()
        self._unclaimed = durable.unclaimed
        self._in_use: set[int] = set()
        self._waiting: dict[int, None] = {}

    def durable(self) -> DurableState:
        """What the durable state is, if every effect so far was carried out."""
        return DurableState(
            dict(self.durable_mappings), frozenset(self.unfinalized), self._unclaimed
        )

    def prepare(
        self,
        create: Sequence[tuple[GlobalId, int]],
        register: Sequence[tuple[GlobalId, int]],
        drop: Iterable[GlobalId],
    ) -> ChangeMappings:
        """The durable part of a definition; nothing is changed yet.

        Raises METADATA_ALREADY_EXISTS and SHARD_ALREADY_IN_USE.
        """
        owners = set(self.durable_mappings.values())
        mapped = [each for each, _ in create if each in owners]
        if mapped:
            raise StorageError(Variant.METADATA_ALREADY_EXISTS, mapped)
        taken = [
            each
            for each, shard in register
            if self.durable_mappings.get(shard, each) != each
            or shard in self.unfinalized
            or shard in self.finalized
        ]
        if taken:
            raise StorageError(Variant.SHARD_ALREADY_IN_USE, taken)
        dropped = set(drop)
        return ChangeMappings(
            create=tuple(create),
            register=tuple(register),
            drop=tuple(
                sorted(shard for shard, own in self.durable_mappings.items() if own in dropped)
            ),
            strike=tuple(sorted(self.finalized & self.unfinalized)),
        )

    def changed(self, change: ChangeMappings, created: Mapping[GlobalId, Sequence[int]]) -> None:
        """The transaction with `change` is durable; `created` are the shards that it made."""
        for global_id, shards in created.items():
            for shard in shards:
                self.durable_mappings[shard] = global_id
        for global_id, shard in change.register:
            self.durable_mappings[shard] = global_id
        self._unclaimed -= {shard for _, shard in change.register}
        self.unmap(change.drop)
        self.unfinalized.update(change.drop)
        self.unfinalized.difference_update(change.strike)
        self.finalized.difference_update(change.strike)
        self._enqueue(change.drop)

    def unmap(self, shards: Iterable[int]) -> None:
        for shard in shards:
            self.durable_mappings.pop(shard, None)

    def retire(self, shards: Sequence[int]) -> list[Effect]:
        """Takes shards from their objects: first the intent, then the mapping (trap 8)."""
        if not shards:
            return []
        self.unfinalized.update(shards)
        self.unmap(shards)
        self._enqueue(shards)
        return [RegisterFinalization(tuple(shards)), DeleteMappings(tuple(shards))]

    def reconciled(self, after: DurableState) -> None:
        """The effects of `reconcile` are under way: this is where they lead."""
        self.durable_mappings = dict(after.mappings)
        self.unfinalized = set(after.unfinalized)
        self._unclaimed = after.unclaimed
        self._waiting = {s: None for s in self._waiting if s in self.unfinalized}
        self._enqueue(sorted(self.unfinalized))

    def opened(self, shards: Iterable[int]) -> None:
        """A collection uses the shards from now on."""
        for shard in shards:
            if shard in self._in_use or shard in self.finalized:
                raise FatalError(f"shard {shard} was opened twice or is gone")
            self._in_use.add(shard)
            self._waiting.pop(shard, None)

    def closed(self, shards: Sequence[int]) -> None:
        """The collection that used the shards is gone, and so are all its readers."""
        self._in_use.difference_update(shards)
        self._enqueue(shards)

    def is_in_use(self, shard: int) -> bool:
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
        """The shard was finalized; its record is struck with the next definition."""
        self._waiting.pop(shard, None)
        if shard in self.unfinalized:
            self.finalized.add(shard)

    def _enqueue(self, shards: Iterable[int]) -> None:
        for shard in shards:
            if (
                shard in self.unfinalized
                and shard not in self.finalized
                and shard not in self._in_use
                and shard not in self.durable_mappings
            ):
                self._waiting.setdefault(shard)
