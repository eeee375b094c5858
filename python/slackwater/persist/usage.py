"""The space that shards take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, FromClause, Select, func, select

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


def _usage() -> Select[Any]:
    """A row for each shard, in the order of `ShardUsage`, but that sums of nothing are NULL."""
    inline = func.sum(func.length(parts.c.inline_ipc))
    counted = (
        select(
            parts.c.shard_id,
            func.count().label("parts"),
            func.sum(parts.c.rows).label("rows"),
            inline.label("inline_bytes"),
        )
        .group_by(parts.c.shard_id)
        .subquery()
    )
    # A negation names the file of the part that it takes back.
    files = (
        select(parts.c.shard_id, parts.c.uri, func.max(parts.c.size_bytes).label("size_bytes"))
        .where(parts.c.uri.is_not(None))
        .group_by(parts.c.shard_id, parts.c.uri)
        .subquery()
    )
    stored, waste = (
        select(each.c.shard_id, func.sum(each.c.size_bytes).label("bytes"))
        .group_by(each.c.shard_id)
        .subquery()
        for each in (files, garbage)
    )
    joined: FromClause = shards
    for each in (counted, stored, waste):
        joined = joined.outerjoin(each, each.c.shard_id == shards.c.shard_id)
    return (
        select(
            shards.c.shard_id,
            shards.c.dropped,
            shards.c.since,
            counted.c.parts,
            counted.c.rows,
            counted.c.inline_bytes,
            stored.c.bytes,
            waste.c.bytes,
        )
        .select_from(joined)
        .order_by(shards.c.shard_id)
    )


_USAGE = _usage()


def usage(conn: Connection) -> tuple[ShardUsage, ...]:
    """The usage of all shards, by id; it costs a look at every part's row."""
    return tuple(
        [
            ShardUsage(
                shard_id,
                dropped,
                dropped and since == TIMESTAMP_MAX and number is None,
                number or 0,
                int(rows or 0),
                int(inline_bytes or 0) + int(file_bytes or 0),
                int(garbage_bytes or 0),
            )
            for (
                shard_id,
                dropped,
                since,
                number,
                rows,
                inline_bytes,
                file_bytes,
                garbage_bytes,
            ) in conn.execute(_USAGE).all()
        ]
    )
