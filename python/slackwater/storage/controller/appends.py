"""Appends and snapshots that are under way. Source: spec controllers M20, M21, 2.10."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from slackwater.controller.holds import Holder, HoldKind, ReadHold
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.storage.controller.capabilities import Capabilities, CollectionState
from slackwater.storage.controller.effects import (
    AnswerAppend,
    AnswerSnapshot,
    AppendRows,
    Effect,
    ReadSnapshot,
    ShardAppend,
)
from slackwater.storage.controller.errors import StorageError, Variant


@dataclass(frozen=True, slots=True)
class CollectionAppend:
    """Rows for a collection, whose upper moves to `upper`.

    `rows`, opaque here, are given by shard: its own, and those that are read with it. `max_time` is
    the latest time among them, None if there are none.
    """

    id: GlobalId
    rows: Mapping[int, object]
    max_time: Timestamp | None
    upper: Frontier


class Appends:
    """Appends that were handed out and not answered. Not thread-safe.

    One append expects the upper at which the one before it ends, so that several can be under way.
    It does not guarantee that an append succeeds, nor that appends are carried out in order: one
    that overtakes another is refused by the shards.
    """

    def __init__(self, capabilities: Capabilities) -> None:
        self._capabilities = capabilities
        self._open: dict[int, AppendRows] = {}
        self._expected: dict[GlobalId | None, Frontier] = {}
        self._next_ticket = 1

    def append(
        self, commands: Sequence[CollectionAppend], tables_upper: Frontier | None, extras: object
    ) -> AppendRows:
        """Opens an append, or refuses it as `StorageController.append` says."""
        states = [self._capabilities.live(each.id) for each in commands]
        ids = [each.id for each in commands]
        foreign = [
            each.id
            for each, state in zip(commands, states, strict=True)
            if not each.rows.keys() <= {state.metadata.shard_id, *state.metadata.error_shards}
        ]
        if foreign:
            raise StorageError(Variant.INVALID_USAGE, foreign, "rows for a shard of another")
        beyond = [
            each.id
            for each in commands
            if each.max_time is not None and each.upper.value <= each.max_time
        ]
        if beyond:
            raise StorageError(Variant.UPDATE_BEYOND_UPPER, beyond)
        shared = set() if tables_upper is None else {tables_upper}
        for each, state in zip(commands, states, strict=True):
            if state.metadata.shares_tables_upper:
                shared.add(each.upper)
        if len(shared) > 1 or len(set(ids)) < len(ids):
            raise StorageError(Variant.INVALID_USAGE, ids, "one upper and one entry for each")
        lowers = [self._lower(state) for state in states]
        back = [each.id for each, lower in zip(commands, lowers, strict=True) if each.upper < lower]
        tables = next(((self._tables_lower(), upper) for upper in shared), None)
        if back or (tables is not None and tables[1] < tables[0]):
            raise StorageError(Variant.INVALID_UPPERS, back)
        effect = AppendRows(
            self._next_ticket,
            tuple(
                shard
                for each, state, lower in zip(commands, states, lowers, strict=True)
                for shard in _by_shard(each, state, lower)
            ),
            tables,
            extras,
        )
        self._next_ticket += 1
        self._open[effect.ticket] = effect
        for each, state in zip(commands, states, strict=True):
            self._expected[_key(state)] = each.upper
        if tables is not None:
            self._expected[None] = tables[1]
        return effect

    def done(self, ticket: int) -> AppendRows | None:
        """The append that is durable now; None when it was answered before."""
        return self._open.pop(ticket, None)

    def failed(self, ticket: int) -> None:
        """The append is answered by somebody else; nothing is expected of it."""
        if self._open.pop(ticket, None) is not None:
            self._expected.clear()

    def refused(self, ticket: int, ids: Sequence[GlobalId]) -> list[Effect]:
        """The answer; later appends expect what is known now. INVALID_UPPERS names only its ids."""
        effect = self._open.pop(ticket, None)
        if effect is None:
            return []
        # What was chained behind the refused one is refused in turn; nothing else is expected.
        self._expected.clear()
        own = {each.id for each in effect.appends}
        error = StorageError(Variant.INVALID_UPPERS, [each for each in ids if each in own])
        return [AnswerAppend(ticket, error)]

    def _tables_lower(self) -> Frontier:
        known = self._capabilities.tables_upper
        return max(known, self._expected.get(None, known))

    def _lower(self, state: CollectionState) -> Frontier:
        known = self._capabilities.upper(state)
        return max(known, self._expected.get(_key(state), known))


def _key(state: CollectionState) -> GlobalId | None:
    return None if state.metadata.shares_tables_upper else state.id


def _by_shard(
    append: CollectionAppend, state: CollectionState, lower: Frontier
) -> Iterator[ShardAppend]:
    metadata = state.metadata
    for shard_id in dict.fromkeys((metadata.shard_id, *append.rows)):
        rows = append.rows.get(shard_id)
        yield ShardAppend(
            append.id, shard_id, lower, append.upper, rows, metadata.shares_tables_upper
        )


@dataclass(frozen=True, slots=True)
class _Snapshot:
    ticket: int
    id: GlobalId
    as_of: Timestamp
    hold: ReadHold


@dataclass(slots=True)
class Snapshots:
    """Snapshots that wait for their time to be complete, or are being read. Not thread-safe."""

    capabilities: Capabilities
    _waiting: dict[int, _Snapshot] = field(default_factory=dict)
    _reading: dict[int, _Snapshot] = field(default_factory=dict)
    _next_ticket: int = 1

    def open(self, global_id: GlobalId, as_of: Timestamp) -> int:
        """Holds the collection at `as_of` and returns the ticket of the snapshot."""
        holder = Holder(HoldKind.SNAPSHOT, str(self._next_ticket))
        hold = self.capabilities.acquire([global_id], holder, as_of)
        snapshot = _Snapshot(self._next_ticket, global_id, as_of, hold)
        self._next_ticket += 1
        self._waiting[snapshot.ticket] = snapshot
        return snapshot.ticket

    def turn(self) -> list[Effect]:
        """The effects for snapshots that can be read now, and for those that never can."""
        effects: list[Effect] = []
        for snapshot in list(self._waiting.values()):
            state = self.capabilities.collections[snapshot.id]
            if not self.capabilities.upper(state).allows(snapshot.as_of):
                shard_id = state.metadata.shard_id
                effects.append(
                    ReadSnapshot(
                        snapshot.ticket, snapshot.id, shard_id, snapshot.as_of, snapshot.hold
                    )
                )
                self._reading[snapshot.ticket] = self._waiting.pop(snapshot.ticket)
            elif state.is_dropped:
                error = StorageError(Variant.IDENTIFIER_MISSING, [snapshot.id], "it was dropped")
                effects.append(AnswerSnapshot(snapshot.ticket, error))
                self.close(snapshot.ticket)
        return effects

    def close(self, ticket: int) -> None:
        """The snapshot was read, or nobody wants it; twice has no effect."""
        found = self._waiting.pop(ticket, None) or self._reading.pop(ticket, None)
        if found is not None:
            self.capabilities.holds.release(found.hold)
