"""The shards as the metastore has them, for whoever verifies them.

Nothing is taken for granted: what does not decode is told, and nothing is cached. Each function
reads in a transaction of the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row, func, inspect, select

from slackwater.persist.parts import FileBody, Part
from slackwater.persist.rows import ShardState, part_from_row, shard_from_row
from slackwater.persist.tables import (
    environment,
    garbage,
    leaders,
    leases,
    metadata,
    parts,
    shards,
)
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import TIMESTAMP_MAX, Timestamp
from slackwater.repr.relation import RelationDesc

_CHUNK = 500


@dataclass(frozen=True, slots=True)
class EnvironmentRecord:
    """The environment's row. `leaders` are the epochs on record, `leased` those with a lease."""

    epoch: int
    leaders: frozenset[int]
    leased: frozenset[int]


@dataclass(frozen=True, slots=True)
class ShardOutline:
    """A shard without its parts. `desc` None: it was dropped, or the columns do not decode."""

    desc: RelationDesc | None
    is_dropped: bool
    is_tombstone: bool


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """One shard with its parts, as of one moment.

    `state` None: there is no such shard, or `undecodable` says why its columns do not decode.
    `bodiless` are the ids of parts that have neither rows nor a file; they are not among `parts`.
    """

    shard_id: int
    state: ShardState | None
    undecodable: str | None
    is_dropped: bool
    parts: tuple[Part, ...]
    bodiless: tuple[int, ...]
    next_shard_id: int
    next_part_id: int

    @property
    def files(self) -> Mapping[str, int]:
        """The sizes of its files, each once, by their URIs."""
        bodies = (part.body for part in self.parts)
        return {body.uri: body.size_bytes for body in bodies if isinstance(body, FileBody)}


def missing_columns(conn: Connection) -> tuple[str, ...]:
    """The tables that are not there, and columns as ``table.column``, in the metastore."""
    inspector = inspect(conn)
    there = set(inspector.get_table_names())
    lacking = []
    for table in metadata.sorted_tables:
        if table.name not in there:
            lacking.append(table.name)
            continue
        columns = {column["name"] for column in inspector.get_columns(table.name)}
        lacking += [f"{table.name}.{each.name}" for each in table.c if each.name not in columns]
    return tuple(sorted(lacking))


def environment_record(conn: Connection) -> EnvironmentRecord:
    """The environment's row, and who has led."""
    return EnvironmentRecord(
        conn.execute(select(environment.c.epoch)).scalar_one(),
        frozenset(conn.scalars(select(leaders.c.epoch))),
        frozenset(conn.scalars(select(leases.c.epoch))),
    )


def outlines(conn: Connection) -> Mapping[int, ShardOutline]:
    """All shards without their parts, tombstones included, by id."""
    found = {}
    for row in conn.execute(select(shards).order_by(shards.c.shard_id)).all():
        desc = None if row.dropped else _described(row.schema_json)[0]
        is_closed = row.since == row.upper == TIMESTAMP_MAX
        found[row.shard_id] = ShardOutline(desc, row.dropped, row.dropped and is_closed)
    return found


def parts_of_shards(conn: Connection) -> Mapping[int, int]:
    """The number of parts of each shard that has some, also of one that does not exist."""
    counted = select(parts.c.shard_id, func.count()).group_by(parts.c.shard_id)
    return {row[0]: row[1] for row in conn.execute(counted.order_by(parts.c.shard_id))}


def shard_record(conn: Connection, shard_id: int) -> ShardRecord:
    """The shard of that id, with all its parts."""
    around = conn.execute(select(environment)).one()
    row = conn.execute(select(shards).where(shards.c.shard_id == shard_id)).one_or_none()
    of_shard = select(parts).where(parts.c.shard_id == shard_id).order_by(parts.c.part_id)
    rows = conn.execute(of_shard).all()
    state, reason = (None, None) if row is None else _state(row, Timestamp(around.tables_upper))
    return ShardRecord(
        shard_id=shard_id,
        state=state,
        undecodable=reason,
        is_dropped=row is not None and row.dropped,
        parts=tuple(part_from_row(each) for each in rows if _has_body(each)),
        bodiless=tuple(each.part_id for each in rows if not _has_body(each)),
        next_shard_id=around.next_shard_id,
        next_part_id=around.next_part_id,
    )


def on_record(conn: Connection, part_ids: Iterable[int]) -> frozenset[int]:
    """Those of the parts that no merge has replaced and no finalization has removed."""
    wanted = sorted(part_ids)
    found: set[int] = set()
    for start in range(0, len(wanted), _CHUNK):
        chunk = wanted[start : start + _CHUNK]
        found.update(conn.scalars(select(parts.c.part_id).where(parts.c.part_id.in_(chunk))))
    return frozenset(found)


def files_in_deletion(conn: Connection) -> tuple[str, ...]:
    """The files that parts name although they are being deleted."""
    statement = (
        select(parts.c.uri)
        .join(garbage, garbage.c.uri == parts.c.uri)
        .where(garbage.c.condemned.is_(True))
        .distinct()
    )
    return tuple(conn.scalars(statement.order_by(parts.c.uri)))


def _state(row: Row[Any], tables_upper: Timestamp) -> tuple[ShardState | None, str | None]:
    desc, reason = _described(row.schema_json)
    if desc is None:
        return None, reason
    state = shard_from_row(row)
    return (replace(state, upper=tables_upper) if state.shares_tables_upper else state), None


def _described(schema_json: str) -> tuple[RelationDesc | None, str | None]:
    """The columns, or why they do not decode."""
    try:
        desc = RelationDesc.from_json(schema_json)
        desc.update_schema()
    except SlackwaterError as error:
        return None, error.message
    except Exception as error:
        # Text that is no JSON, or of another shape: whatever decoding stumbles over.
        return None, f"{type(error).__name__}: {error}"
    return desc, None


def _has_body(row: Row[Any]) -> bool:
    return row.inline_ipc is not None or (row.uri is not None and row.size_bytes is not None)
