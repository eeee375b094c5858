"""What the leader reads of its shards: states, frontiers, which parts there are, and contents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa
from sqlalchemy import select

from slackwater.persist import contents, reading
from slackwater.persist.appends import UnknownShard
from slackwater.persist.blobs import Blobs
from slackwater.persist.directories import shard_directory
from slackwater.persist.holds import SinceAdvanced
from slackwater.persist.negation import Negation, negation_of
from slackwater.persist.part_index import PartIndex
from slackwater.persist.parts import NewPart, Part
from slackwater.persist.retractions import unmatched_retractions
from slackwater.persist.rows import ShardState, part_from_row
from slackwater.persist.tables import parts
from slackwater.persist.transactions import Transactions
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import TIMESTAMP_MAX, Timestamp
from slackwater.repr.relation import RelationDesc

T = TypeVar("T")


class ShardReads:
    """The shards as of the last commit. Thread-safe.

    Only the first look at a shard's parts waits for the writer.
    """

    def __init__(self, transactions: Transactions, blobs: Blobs) -> None:
        self._transactions = transactions
        self._blobs = blobs

    def state(self, shard_id: int) -> ShardState:
        """See `PersistClient.state`."""
        with self._transactions.cache_lock:
            return self._state(shard_id)

    def is_finalized(self, shard_id: int) -> bool:
        """See `PersistClient.is_finalized`."""
        with self._transactions.cache_lock:
            return (
                shard_id in self._transactions.cache.dropped
                and shard_id not in self._transactions.cache.unfinalized
            )

    def shard_ids(self) -> tuple[int, ...]:
        """See `PersistClient.shard_ids`."""
        with self._transactions.cache_lock:
            return tuple(
                sorted(self._transactions.cache.states.keys() - self._transactions.cache.dropped)
            )

    def upper(self, shard_id: int) -> Timestamp:
        """See `PersistClient.upper`."""
        with self._transactions.cache_lock:
            state = self._transactions.cache.states.get(shard_id)
            if state is None:
                raise UnknownShard(shard_id)
            return (
                self._transactions.cache.tables_upper if state.shares_tables_upper else state.upper
            )

    def tables_upper(self) -> Timestamp:
        """See `PersistClient.tables_upper`."""
        return self._transactions.cache.tables_upper

    def unfinalized(self) -> tuple[int, ...]:
        """See `PersistClient.unfinalized`."""
        with self._transactions.cache_lock:
            return tuple(sorted(self._transactions.cache.unfinalized))

    def parts(self, shard_id: int) -> tuple[Part, ...]:
        """See `PersistClient.parts`."""
        return self._indexed(shard_id, PartIndex.parts)

    def parts_at(self, shard_id: int, as_of: Timestamp) -> tuple[Part, ...]:
        """See `PersistClient.parts_at`."""
        return self._indexed(shard_id, lambda index: index.at(as_of))

    def parts_between(self, shard_id: int, lower: Timestamp, upper: Timestamp) -> tuple[Part, ...]:
        """See `PersistClient.parts_between`."""
        return self._indexed(shard_id, lambda index: index.between(lower, upper))

    def read(
        self,
        parts: Sequence[Part | NewPart],
        desc: RelationDesc,
        *,
        lower: Timestamp | None = None,
        upper: Timestamp | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """See `PersistClient.read`."""
        return reading.read(
            parts, desc, blobs=self._blobs, lower=lower, upper=upper, columns=columns
        )

    def snapshot(self, shard_id: int, as_of: Timestamp) -> pa.Table:
        """See `PersistClient.snapshot`."""
        state = self.state(shard_id)
        if as_of < state.since:
            raise SinceAdvanced(shard_id, state.since, as_of)
        desc = state.desc
        found = self.read(self.parts_at(shard_id, as_of), desc, upper=_after(as_of))
        rows = contents.present_rows(found)
        if rows is None:
            raise FatalError(f"shard {shard_id} has a negative multiplicity at {as_of}")
        return rows

    def negation(self, shard_id: int, upper: Timestamp) -> Negation:
        """See `PersistClient.negation`."""
        desc = self.state(shard_id).desc
        return negation_of(
            self.parts_at(shard_id, Timestamp(upper - 1)),
            lambda parts: self.read(parts, desc, upper=upper),
            self._blobs,
            shard_directory(self._blobs, shard_id),
        )

    def unmatched_retractions(self, shard_id: int, changes: Sequence[NewPart]) -> int:
        """See `PersistClient.unmatched_retractions`."""
        stored = self.parts_at(shard_id, Timestamp(self.upper(shard_id) - 1))
        return unmatched_retractions(stored, changes, self.state(shard_id).desc, self._blobs)

    def _state(self, shard_id: int) -> ShardState:
        state = self._transactions.cache.states.get(shard_id)
        if state is None:
            raise UnknownShard(shard_id)
        if not state.shares_tables_upper:
            return state
        upper = self._transactions.cache.tables_upper
        return ShardState(state.shard_id, state.desc, state.since, upper, True)

    def _indexed(self, shard_id: int, look: Callable[[PartIndex], T]) -> T:
        with self._transactions.cache_lock:
            if (index := self._transactions.cache.indexes.get(shard_id)) is not None:
                return look(index)
            self._state(shard_id)
        # Nothing may be committed between the reading of the list and its place in the cache.
        with self._transactions.write_lock:
            self._transactions.refresh()
            loaded = self._transactions.query(
                lambda conn: conn.execute(select(parts).where(parts.c.shard_id == shard_id)).all()
            )
            with self._transactions.cache_lock:
                index = self._transactions.cache.indexes.setdefault(
                    shard_id, PartIndex.of(part_from_row(row) for row in loaded)
                )
                return look(index)


def _after(as_of: Timestamp) -> Timestamp | None:
    """The bound below which the updates are that make up the contents at `as_of`."""
    return None if as_of == TIMESTAMP_MAX else Timestamp(as_of + 1)
