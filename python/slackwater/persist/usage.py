"""The space that shards take."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, FromClause, func, select

from slackwater.persist.tables import garbage, parts, shards
from slackwater.repr.frontier import TIMESTAMP_MAX


@dataclass(frozen=True, slots=True)
class ShardUsage:
    """One shard, tombstones and dropped shards included.

    `rows` counts updates. `size_bytes` is what its parts take in files and in the metastore, each
    file once; `garbage_bytes` what files take that no part names and that are still there.
    """

    shard_id: int
    dropped: bool
    finalized: bool
    parts: int
    rows: int
    size_bytes: int
    garbage_bytes: int


# A statement for each sum: joining them in the metastore takes longer than all of them together.

_SHARDS = select(shards.c.shard_id, shards.c.dropped, shards.c.since).order_by(shards.c.shard_id)
_PARTS = select(
    parts.c.shard_id,
    func.count(),
    func.sum(parts.c.rows),
    func.coalesce(func.sum(func.length(parts.c.inline_ipc)), 0),
).group_by(parts.c.shard_id)
# A negation names the file of the part that it takes back.
_FILES = (
    select(parts.c.shard_id, func.max(parts.c.size_bytes).label("size_bytes"))
    .where(parts.c.uri.is_not(None))
    .group_by(parts.c.shard_id, parts.c.uri)
    .subquery()
)
_NO_PARTS = (0, 0, 0)


def usage(conn: Connection) -> tuple[ShardUsage, ...]:
    """The usage of all shards, by id; it costs a look at every part's row.

    The statements of the connection's transaction have to see one state.
    """
    counted = {
        shard_id: (number, int(rows), int(inline_bytes))
        for shard_id, number, rows, inline_bytes in conn.execute(_PARTS)
    }
    stored, waste = _bytes(conn, _FILES), _bytes(conn, garbage)
    found = []
    for shard_id, dropped, since in conn.execute(_SHARDS):
        number, rows, inline_bytes = counted.get(shard_id, _NO_PARTS)
        finalized = dropped and since == TIMESTAMP_MAX and not number
        size_bytes = inline_bytes + stored.get(shard_id, 0)
        garbage_bytes = waste.get(shard_id, 0)
        found.append(
            ShardUsage(shard_id, dropped, finalized, number, rows, size_bytes, garbage_bytes)
        )
    return tuple(found)


def _bytes(conn: Connection, sized: FromClause) -> dict[int, int]:
    """The sum of the sizes of each shard."""
    statement = select(sized.c.shard_id, func.sum(sized.c.size_bytes)).group_by(sized.c.shard_id)
    return {shard_id: int(size_bytes) for shard_id, size_bytes in conn.execute(statement)}
