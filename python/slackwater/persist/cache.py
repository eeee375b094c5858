"""The metastore in the leader's memory: all of it but the rows of parts that nobody has read."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy import Connection, select

from slackwater.persist import statements
from slackwater.persist.leadership import Fenced
from slackwater.persist.part_index import PartIndex
from slackwater.persist.rows import ShardState, shard_from_row
from slackwater.persist.tables import environment, shards
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import TIMESTAMP_MAX, Timestamp


@dataclass(slots=True)
class ShardCache:
    """The contents of the metastore, as of the last commit of this leader.

    `dropped` includes the tombstones; `unfinalized` are the dropped shards that are none yet.
    """

    tables_upper: Timestamp
    next_shard_id: int
    next_part_id: int
    states: dict[int, ShardState]
    dropped: set[int]
    unfinalized: set[int]
    indexes: dict[int, PartIndex] = field(default_factory=dict)

    def validate(self) -> None:
        """Raises FatalError unless shards, their ids and their parts agree with each other."""
        if not self.unfinalized <= self.dropped <= self.states.keys():
            raise FatalError("a shard that is to be finalized was not dropped, or is not known")
        if any(shard_id >= self.next_shard_id for shard_id in self.states):
            raise FatalError("a shard has an id that is still to be given")
        for shard_id in self.dropped - self.unfinalized:
            state = self.states[shard_id]
            if not state.since == state.upper == TIMESTAMP_MAX:
                raise FatalError(f"the tombstone of shard {shard_id} can be read or written")
        for shard_id, index in self.indexes.items():
            index.validate()
            found = index.parts()
            if any(part.shard_id != shard_id for part in found):
                raise FatalError(f"shard {shard_id} has a part of another one")
            if any(part.part_id >= self.next_part_id for part in found):
                raise FatalError("a part has an id that is still to be given")


def load(conn: Connection, epoch: int) -> ShardCache:
    """Reads everything for the leader of `epoch`; raises `Fenced` when it does not lead.

    A commit that may be still under way is waited for, because it has the lock of the row.
    """
    row = conn.execute(select(environment).with_for_update()).one()
    if row.epoch != epoch:
        raise Fenced(epoch, row.epoch)
    rows = conn.execute(select(shards)).all()
    return ShardCache(
        tables_upper=Timestamp(row.tables_upper),
        next_shard_id=row.next_shard_id,
        next_part_id=row.next_part_id,
        states={shard.shard_id: shard_from_row(shard) for shard in rows},
        dropped={shard.shard_id for shard in rows if shard.dropped},
        unfinalized=set(conn.scalars(statements.UNFINALIZED)),
    )
