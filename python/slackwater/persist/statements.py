"""The statements that commits run: prepared once, because they are the hot path."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, exists, insert, or_, select, update

from slackwater.persist.tables import environment, parts, shards, writes
from slackwater.repr.frontier import TIMESTAMP_MAX

FENCED_UPDATE = (
    update(environment)
    .where(environment.c.id == 1, environment.c.epoch == bindparam("leading"))
    .values(commit_token=bindparam("token"), next_part_id=bindparam("next_part"))
)
FENCED_TABLES_UPDATE = FENCED_UPDATE.where(
    environment.c.tables_upper == bindparam("tables_lower")
).values(tables_upper=bindparam("tables_upper"))
MOVE_UPPER = (
    update(shards)
    .where(shards.c.shard_id == bindparam("moved"), shards.c.upper == bindparam("from_upper"))
    .values(upper=bindparam("to_upper"))
)
MOVE_SINCE = (
    update(shards)
    .where(shards.c.shard_id == bindparam("moved"), shards.c.since < bindparam("to_since"))
    .values(since=bindparam("to_since"))
)
INSERT_PARTS = insert(parts)
DELETE_PARTS = delete(parts).where(parts.c.part_id == bindparam("gone"))
UNFINALIZED = select(shards.c.shard_id).where(
    shards.c.dropped.is_(True),
    or_(
        shards.c.since < TIMESTAMP_MAX,
        exists().where(parts.c.shard_id == shards.c.shard_id),
    ),
)
INSERT_WRITES = insert(writes)
