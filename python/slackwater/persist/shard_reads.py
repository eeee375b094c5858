"""The leader's reads of its shards: states, frontiers, parts, and contents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa
from sqlalchemy import select

from slackwater.persist import contents, reading
from slackwater.persist.appends import UnknownShard
from slackwater.persist.holds import SinceAdvanced
from slackwater.persist.negation import Negation, negation_of
from slackwater.persist.part_index import PartIndex
from slackwater.persist.parts import NewPart, Part
from slackwater.persist.retractions import unmatched_retractions
from slackwater.persist.rows import ShardState, part_from_row
from slackwater.persist.shard_files import ShardFiles
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

    def __init__(self, transactions: Transactions, files: ShardFiles) -> None:
        self._transactions = transactions
        self._files = files

    def state(self, shard_id: int) -> ShardState:
        """The state of the shard, also of a dropped one. Raises `UnknownShard`."""
        with self._transactions.cache_lock:
            return self._state(shard_id)

    def has_contents(self, shard_id: int) -> bool:
        """Whether there is such a shard, whose finalization has not begun."""
        with self._transactions.cache_lock:
            state = self._transactions.cache.states.get(shard_id)
            return state is not None and not (
                shard_id in self._transactions.cache.dropped and state.since == TIMESTAMP_MAX
            )

    def is_finalized(self, shard_id: int) -> bool:
        """Whether the shard is a tombstone."""
        with self._transactions.cache_lock:
            return (
                shard_id in self._transactions.cache.dropped
                and shard_id not in self._transactions.cache.unfinalized
            )

    def shard_ids(self) -> tuple[int, ...]:
        """All shards that are not dropped."""
        with self._transactions.cache_lock:
            return tuple(
                sorted(self._transactions.cache.states.keys() - self._transactions.cache.dropped)
            )

    def upper(self, shard_id: int) -> Timestamp:
        """The upper of the shard, or the tables upper if it shares that. Raises `UnknownShard`."""
        with self._transactions.cache_lock:
            state = self._transactions.cache.states.get(shard_id)
            if state is None:
                raise UnknownShard(shard_id)
            return (
                self._transactions.cache.tables_upper if state.shares_tables_upper else state.upper
            )

    def tables_upper(self) -> Timestamp:
        """The upper that shards of tables share."""
        return self._transactions.cache.tables_upper

    def unfinalized(self) -> tuple[int, ...]:
        """The dropped shards that have not been finalized, also by earlier leaders."""
        with self._transactions.cache_lock:
            return tuple(sorted(self._transactions.cache.unfinalized))

    def parts(self, shard_id: int) -> tuple[Part, ...]:
        """All parts of the shard, ordered by time. Raises `UnknownShard`."""
        return self._indexed(shard_id, PartIndex.parts)

    def parts_at(self, shard_id: int, as_of: Timestamp) -> tuple[Part, ...]:
        """The parts that are needed for the contents at `as_of`, ordered by time.

        They may hold later times too: filter. A uniform file part and its exact negation, both at
        or before `as_of`, are left out. Raises `UnknownShard`.
        """
        return self._indexed(shard_id, lambda index: index.at(as_of))

    def parts_between(self, shard_id: int, lower: Timestamp, upper: Timestamp) -> tuple[Part, ...]:
        """The parts whose times meet ``[lower, upper)``, ordered by time.

        Raises `UnknownShard`.
        """
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
        """The updates in the parts, as `reading.read` gives them."""
        return reading.read(
            parts, desc, blobs=self._files.blobs, lower=lower, upper=upper, columns=columns
        )

    def snapshot(self, shard_id: int, as_of: Timestamp) -> pa.Table:
        """The rows at `as_of`, a row of multiplicity n n times. For small collections.

        The caller holds the shard at `as_of`, which is before its upper. Raises `UnknownShard`,
        `SinceAdvanced` for a time that cannot be told apart any more (I34), and `FatalError` when a
        row has a negative multiplicity.
        """
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
        """The updates that retract all rows present just before `upper`, at a time chosen later.

        Uniform file parts are negated over the same file, which is not read; the rest is read now.
        The caller makes sure that nothing else is written from this call until the commit, that
        the shard is held meanwhile, and that the commit's time is at or after `upper`. Raises
        `UnknownShard` and what `file_part` raises.
        """
        desc = self.state(shard_id).desc
        return negation_of(
            self.parts_at(shard_id, Timestamp(upper - 1)),
            lambda parts: self.read(parts, desc, upper=upper),
            self._files,
            shard_id,
        )

    def unmatched_retractions(self, shard_id: int, changes: Sequence[NewPart]) -> int:
        """The number of retractions of `changes` that take away rows that are not there.

        The caller makes sure that nothing else is written from this call until the commit of the
        changes, and that the shard is held meanwhile. Raises `UnknownShard` and what `read` does.
        """
        stored = self.parts_at(shard_id, Timestamp(self.upper(shard_id) - 1))
        return unmatched_retractions(stored, changes, self.state(shard_id).desc, self._files.blobs)

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
