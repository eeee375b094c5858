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
    inline = func.sum(func.length(parts.c.inline_ipc))
    counted = _sums(conn, select(parts.c.shard_id, func.count(), func.sum(parts.c.rows), inline))
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
    found = []
    for shard_id, dropped, since in conn.execute(statement.order_by(shards.c.shard_id)).all():
        number, rows, inline_bytes = counted.get(shard_id, (0, 0, 0))
        (file_bytes,), (garbage_bytes,) = stored.get(shard_id, (0,)), waste.get(shard_id, (0,))
        found.append(
            ShardUsage(
                shard_id=shard_id,
                dropped=dropped,
                finalized=dropped and since == TIMESTAMP_MAX and shard_id not in counted,
                parts=number,
                rows=rows,
                size_bytes=inline_bytes + file_bytes,
                garbage_bytes=garbage_bytes,
            )
        )
    return tuple(found)


def _sums(conn: Connection, statement: Select[Any]) -> Mapping[int, tuple[int, ...]]:
    """The numbers behind each shard's id, of which NULL is 0."""
    grouped = statement.group_by(statement.selected_columns[0])
    rows = conn.execute(grouped).all()
    return {row[0]: tuple(int(each or 0) for each in row[1:]) for row in rows}
