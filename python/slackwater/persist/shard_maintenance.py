"""Maintenance of shards: sinces, parts in the place of others, and the end of dropped shards.

Source: spec controllers 3.6, 3.7.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from sqlalchemy import Connection, update

from slackwater.persist import garbage, statements
from slackwater.persist.commits import insert_parts
from slackwater.persist.part_index import PartIndex
from slackwater.persist.parts import NewPart
from slackwater.persist.rows import committed_part
from slackwater.persist.shard_reads import ShardReads
from slackwater.persist.tables import shards
from slackwater.persist.transactions import Transactions
from slackwater.repr.frontier import TIMESTAMP_MAX, TIMESTAMP_MIN, Timestamp


@dataclass(frozen=True, slots=True)
class ShardMaintenance:
    """Moves sinces, replaces parts and finalizes dropped shards. Thread-safe."""

    transactions: Transactions
    reads: ShardReads
    clock: Callable[[], int]

    def set_since(self, sinces: Mapping[int, Timestamp]) -> None:
        """Moves sinces forward in one transaction; a since never moves back.

        The caller makes sure that no hold is before them. Raises `UnknownShard`.
        """
        with self.transactions.write_lock:
            self.transactions.refresh()
            moves = {
                shard_id: since
                for shard_id, since in sinces.items()
                if since > self.reads.state(shard_id).since
            }

            def move(conn: Connection) -> None:
                rows = [{"moved": key, "to_since": since} for key, since in moves.items()]
                conn.execute(statements.MOVE_SINCE, rows)

            def apply() -> None:
                for shard_id, since in moves.items():
                    self._apply_since(shard_id, since)

            if moves:
                self.transactions.run(self.transactions.fence, move, effect=apply)

    def replace_parts(
        self,
        shard_id: int,
        removed: Set[int],
        news: Sequence[NewPart],
        *,
        since: Timestamp = TIMESTAMP_MIN,
    ) -> bool:
        """Puts `news` in the place of exactly the parts whose ids are `removed`, if all are there.

        False, and nothing is changed, when one is not, or when the shard was dropped. In the same
        transaction the since moves to `since`, if that is forward, and files that no part names
        any more go onto the garbage list. The caller makes sure that reads at and after `since`
        are the same with the new parts (I3), and that nobody holds the shard before. Tuples of
        parts that readers have stay readable. Raises `UnknownShard`.
        """
        with self.transactions.write_lock:
            self.transactions.refresh()
            state = self.reads.state(shard_id)
            present = self.reads.parts(shard_id)
            gone = tuple(part for part in present if part.part_id in removed)
            if shard_id in self.transactions.cache.dropped or len(gone) != len(removed) or not gone:
                return False
            lower, upper = min(p.lower for p in gone), max(p.upper for p in gone)
            first = self.transactions.cache.next_part_id
            added = tuple(
                committed_part(new, first + number, shard_id, lower, upper)
                for number, new in enumerate(news)
            )
            kept = [part for part in present if part.part_id not in removed]
            unreferenced = garbage.unreferenced(gone, [*kept, *added], self.clock())

            def write(conn: Connection) -> None:
                self.transactions.fence(conn, next_part=first + len(added))
                conn.execute(
                    statements.DELETE_PARTS, [{"gone": part_id} for part_id in sorted(removed)]
                )
                insert_parts(conn, added)
                garbage.add(conn, unreferenced)
                if since > state.since:
                    conn.execute(statements.MOVE_SINCE, [{"moved": shard_id, "to_since": since}])

            def apply() -> None:
                self.transactions.cache.next_part_id = first + len(added)
                self._apply_since(shard_id, since)
                if (index := self.transactions.cache.indexes.get(shard_id)) is not None:
                    self.transactions.cache.indexes[shard_id] = index.replaced(removed, added)

            self.transactions.run(write, effect=apply)
            self._correct_stamps(unreferenced)
        return True

    def finalize(self, shard_id: int, limit: int = 1000) -> bool:
        """Makes a dropped shard a tombstone: since and upper empty, no parts. True once it is one.

        A call deals with at most `limit` parts, whose files go onto the garbage list. The caller
        makes sure that nobody holds the shard. Of a tombstone it changes nothing (I28). Raises
        `UnknownShard`, and ValueError for a shard that was not dropped (I26).
        """
        with self.transactions.write_lock:
            self.transactions.refresh()
            state = self.reads.state(shard_id)
            if shard_id not in self.transactions.cache.dropped:
                raise ValueError(f"shard {shard_id} is in use")
            if shard_id not in self.transactions.cache.unfinalized:
                return True
            present = self.reads.parts(shard_id)
            gone, kept = present[:limit], present[limit:]
            unreferenced = garbage.unreferenced(gone, kept, self.clock())

            def write(conn: Connection) -> None:
                self.transactions.fence(conn)
                conn.execute(
                    update(shards)
                    .where(shards.c.shard_id == shard_id)
                    .values(since=TIMESTAMP_MAX, upper=TIMESTAMP_MAX)
                )
                if gone:
                    conn.execute(statements.DELETE_PARTS, [{"gone": part.part_id} for part in gone])
                garbage.add(conn, unreferenced)

            def apply() -> None:
                self.transactions.cache.states[shard_id] = replace(
                    state, since=TIMESTAMP_MAX, upper=TIMESTAMP_MAX, shares_tables_upper=False
                )
                self.transactions.cache.indexes[shard_id] = PartIndex.of(kept)
                if not kept:
                    self.transactions.cache.unfinalized.discard(shard_id)

            self.transactions.run(write, effect=apply)
            self._correct_stamps(unreferenced)
        return not kept

    def _apply_since(self, shard_id: int, since: Timestamp) -> None:
        state = self.transactions.cache.states[shard_id]
        if since > state.since:
            self.transactions.cache.states[shard_id] = replace(state, since=since)

    def _correct_stamps(self, unreferenced: Sequence[garbage.GarbageFile]) -> None:
        """Readers may have got the old parts until now, which may be long after the stamp."""
        now_ms = self.clock()
        late = [f.uri for f in unreferenced if now_ms - f.replaced_ms > garbage.STAMP_MARGIN_MS]
        if late:
            self.transactions.run(
                self.transactions.fence, lambda conn: garbage.restamp(conn, late, now_ms)
            )
