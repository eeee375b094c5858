"""Steps of a transaction that make, drop and change shards."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection, insert, update

from slackwater.persist.appends import UnknownShard
from slackwater.persist.evolution import ExpectedMismatch, Incompatible, incompatibility
from slackwater.persist.part_index import PartIndex
from slackwater.persist.rows import ShardState
from slackwater.persist.shard_reads import ShardReads
from slackwater.persist.tables import environment, shards
from slackwater.persist.transactions import Transactions
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import RelationDesc


class ShardDefinitions:
    """Makes, drops and changes shards. To be called inside a transaction only."""

    def __init__(self, transactions: Transactions, reads: ShardReads) -> None:
        self._transactions = transactions
        self._reads = reads

    def create_shard(
        self,
        conn: Connection,
        desc: RelationDesc,
        since: Timestamp,
        upper: Timestamp | None,
        *,
        reserved: int | None = None,
    ) -> int:
        """Makes a shard and returns its id, which was never used before, or was `reserved`.

        `upper` None: its upper is the tables upper.
        """
        current = self._transactions.current(conn)
        shard_id = self._next_id(conn) if reserved is None else reserved
        conn.execute(
            insert(shards).values(
                shard_id=shard_id,
                schema_json=desc.to_json(),
                since=since,
                upper=upper,
                dropped=False,
            )
        )
        state = ShardState(shard_id, desc, since, Timestamp(upper or 0), upper is None)

        def apply() -> None:
            self._transactions.cache.states[shard_id] = state
            self._transactions.cache.indexes[shard_id] = PartIndex()

        current.effects.append(apply)
        return shard_id

    def reserve_shard(self) -> int:
        """An id for a shard to come, in whose directory files may be before it is made.

        It is never given again. Files of a shard that is never made are found by listing.
        """
        return self._transactions.transact(self._next_id)

    def _next_id(self, conn: Connection) -> int:
        current = self._transactions.current(conn)
        shard_id = current.next_shard_id
        current.next_shard_id += 1
        conn.execute(update(environment).values(next_shard_id=current.next_shard_id))

        def apply() -> None:
            self._transactions.cache.next_shard_id = max(
                self._transactions.cache.next_shard_id, shard_id + 1
            )

        current.effects.append(apply)
        return shard_id

    def drop_shard(self, conn: Connection, shard_id: int) -> None:
        """Marks the shard as dropped: it takes no more appends, and is to be finalized.

        Who still holds it reads on; its parts and files stay until `finalize`. Dropping twice has
        no effect. Raises `UnknownShard`.
        """
        current = self._transactions.current(conn)
        self._reads.state(shard_id)
        if shard_id in self._transactions.cache.dropped:
            return
        conn.execute(update(shards).where(shards.c.shard_id == shard_id).values(dropped=True))

        def apply() -> None:
            self._transactions.cache.dropped.add(shard_id)
            self._transactions.cache.unfinalized.add(shard_id)

        current.effects.append(apply)

    def keep_shard(self, conn: Connection, shard_id: int) -> None:
        """Takes back that the shard was dropped, if so. Raises `UnknownShard`.

        ValueError for one whose finalization has begun.
        """
        current = self._transactions.current(conn)
        if not self._reads.has_contents(shard_id):
            raise ValueError(f"shard {shard_id} is being finalized")
        conn.execute(update(shards).where(shards.c.shard_id == shard_id).values(dropped=False))

        def apply() -> None:
            self._transactions.cache.dropped.discard(shard_id)
            self._transactions.cache.unfinalized.discard(shard_id)

        current.effects.append(apply)

    def set_desc(
        self, conn: Connection, shard_id: int, desc: RelationDesc, expected: RelationDesc
    ) -> None:
        """Changes the columns of the shard; of parts from before, a new column reads as NULL.

        Raises `UnknownShard`, `ExpectedMismatch` when the columns are not the expected ones, and
        `Incompatible`. With the columns that there are it has no effect.
        """
        current = self._transactions.current(conn)
        actual = self._reads.state(shard_id).desc
        if shard_id in self._transactions.cache.dropped:
            raise UnknownShard(shard_id)
        if actual != expected:
            raise ExpectedMismatch(shard_id, actual)
        if (reason := incompatibility(actual, desc)) is not None:
            raise Incompatible(shard_id, reason)
        if actual == desc:
            return
        conn.execute(
            update(shards).where(shards.c.shard_id == shard_id).values(schema_json=desc.to_json())
        )

        def apply() -> None:
            self._transactions.cache.states[shard_id] = replace(
                self._transactions.cache.states[shard_id], desc=desc
            )

        current.effects.append(apply)
