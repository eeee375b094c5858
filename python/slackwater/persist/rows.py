"""Shard states and parts as rows of the metastore, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row

from slackwater.persist.parts import FileBody, InlineBody, NewPart, Part, Uniform
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import RelationDesc


@dataclass(frozen=True, slots=True)
class ShardState:
    """The state of a shard. `shares_tables_upper`: `upper` is that of all tables."""

    shard_id: int
    desc: RelationDesc
    since: Timestamp
    upper: Timestamp
    shares_tables_upper: bool


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a write: its timestamp, and how many rows it inserted and deleted."""

    timestamp: Timestamp
    inserted: int
    deleted: int


def committed_part(
    new: NewPart, part_id: int, shard_id: int, lower: Timestamp, upper: Timestamp
) -> Part:
    """The part that `new` becomes by an append of ``[lower, upper)``."""
    return Part(
        part_id=part_id,
        shard_id=shard_id,
        lower=lower,
        upper=upper,
        body=new.body,
        rows=new.rows,
        min_time=new.min_time,
        max_time=new.max_time,
        has_retractions=new.has_retractions,
    )


def part_to_row(part: Part) -> Mapping[str, Any]:
    """The row of `tables.parts` that has the part."""
    row: dict[str, Any] = {
        "part_id": part.part_id,
        "shard_id": part.shard_id,
        "lower": part.lower,
        "upper": part.upper,
        "inline_ipc": None,
        "uri": None,
        "size_bytes": None,
        "modified_ms": None,
        "uniform_time": None,
        "uniform_diff": None,
        "rows": part.rows,
        "min_time": part.min_time,
        "max_time": part.max_time,
        "has_retractions": part.has_retractions,
    }
    match part.body:
        case InlineBody(ipc):
            row["inline_ipc"] = ipc
        case FileBody(uri, size_bytes, modified_ms, uniform):
            row |= {"uri": uri, "size_bytes": size_bytes, "modified_ms": modified_ms}
            if uniform is not None:
                row |= {"uniform_time": uniform.time, "uniform_diff": uniform.diff}
    return row


def part_from_row(row: Row[Any]) -> Part:
    """The part that a row of `tables.parts` has."""
    body: InlineBody | FileBody
    if row.inline_ipc is not None:
        body = InlineBody(bytes(row.inline_ipc))
    else:
        uniform = None if row.uniform_time is None else Uniform(row.uniform_time, row.uniform_diff)
        body = FileBody(row.uri, row.size_bytes, row.modified_ms, uniform)
    return Part(
        part_id=row.part_id,
        shard_id=row.shard_id,
        lower=row.lower,
        upper=row.upper,
        body=body,
        rows=row.rows,
        min_time=row.min_time,
        max_time=row.max_time,
        has_retractions=row.has_retractions,
    )


def shard_from_row(row: Row[Any]) -> ShardState:
    """The shard's state; a shared upper is filled in by whoever knows it."""
    return ShardState(
        shard_id=row.shard_id,
        desc=RelationDesc.from_json(row.schema_json),
        since=Timestamp(row.since),
        upper=Timestamp(row.upper or 0),
        shares_tables_upper=row.upper is None,
    )
