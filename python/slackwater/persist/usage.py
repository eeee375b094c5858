"""The space that shards take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, func, select

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


def usage(conn: Connection) -> tuple[ShardUsage, ...]:
    """The usage of all shards, by id; it costs a look at every part's row."""
    counted = _sums(conn, select(parts.c.shard_id, func.count()))
    rows = _sums(conn, select(parts.c.shard_id, func.sum(parts.c.rows)))
    inline = _sums(conn, select(parts.c.shard_id, func.sum(func.length(parts.c.inline_ipc))))
    # A negation names the file of the part that it takes back.
    files = (
        select(parts.c.shard_id, parts.c.uri, func.max(parts.c.size_bytes).label("size_bytes"))
        .where(parts.c.uri.is_not(None))
        .group_by(parts.c.shard_id, parts.c.uri)
        .subquery()
    )
    stored = _sums(conn, select(files.c.shard_id, func.sum(files.c.size_bytes)))
    waste = _sums(conn, select(garbage.c.shard_id, func.sum(garbage.c.size_bytes)))
    statement = select(shards.c.shard_id, shards.c.dropped, shards.c.since)
    return tuple(
        ShardUsage(
            shard_id=shard_id,
            dropped=dropped,
            finalized=dropped and since == TIMESTAMP_MAX and shard_id not in counted,
            parts=counted.get(shard_id, 0),
            rows=rows.get(shard_id, 0),
            size_bytes=inline.get(shard_id, 0) + stored.get(shard_id, 0),
            garbage_bytes=waste.get(shard_id, 0),
        )
        for shard_id, dropped, since in conn.execute(statement.order_by(shards.c.shard_id))
    )


def _sums(conn: Connection, statement: Select[Any]) -> Mapping[int, int]:
    grouped = statement.group_by(statement.selected_columns[0])
    return {row[0]: int(row[1] or 0) for row in conn.execute(grouped)}
