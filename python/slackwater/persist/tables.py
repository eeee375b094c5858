"""The metastore's tables of shards, their parts, garbage, remembered writes and leases."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    LargeBinary,
    String,
    Table,
    Text,
    text,
)

from slackwater.persist.metastore import metadata

shards = Table(
    "shards",
    metadata,
    Column("shard_id", BigInteger, primary_key=True, autoincrement=False),
    Column("schema_json", Text, nullable=False),
    Column("since", BigInteger, nullable=False),
    # NULL: the shard's upper is the environment's shared tables upper.
    Column("upper", BigInteger),
    Column("dropped", Boolean, nullable=False),
)

parts = Table(
    "parts",
    metadata,
    Column("part_id", BigInteger, primary_key=True, autoincrement=False),
    Column("shard_id", BigInteger, nullable=False),
    Column("lower", BigInteger, nullable=False),
    Column("upper", BigInteger, nullable=False),
    Column("inline_ipc", LargeBinary),
    Column("uri", Text),
    Column("size_bytes", BigInteger),
    Column("modified_ms", BigInteger),
    Column("uniform_time", BigInteger),
    Column("uniform_diff", BigInteger),
    Column("rows", BigInteger, nullable=False),
    Column("min_time", BigInteger, nullable=False),
    Column("max_time", BigInteger, nullable=False),
    Column("has_retractions", Boolean, nullable=False),
    Index("parts_by_shard", "shard_id"),
    # A file that a part of any shard names is no garbage. Inline parts are not in it.
    Index(
        "parts_by_uri",
        "uri",
        sqlite_where=text("uri IS NOT NULL"),
        postgresql_where=text("uri IS NOT NULL"),
    ),
)

writes = Table(
    "writes",
    metadata,
    Column("write_id", String(64), primary_key=True),
    Column("time", BigInteger, nullable=False),
    Column("inserted", BigInteger, nullable=False),
    Column("deleted", BigInteger, nullable=False),
    Column("written_ms", BigInteger, nullable=False),
    Index("writes_by_age", "written_ms"),
)

garbage = Table(
    "garbage",
    metadata,
    # A file that no part names. It is deleted when nobody can be reading it any more.
    Column("uri", String, primary_key=True),
    Column("shard_id", BigInteger, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("replaced_ms", BigInteger, nullable=False),
    # It is being deleted: no part may name it again.
    Column("condemned", Boolean, nullable=False),
    Index("garbage_by_shard", "shard_id", "replaced_ms"),
)

reader_leases = Table(
    "reader_leases",
    metadata,
    Column("reader_id", String(64), primary_key=True),
    Column("application", String, nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
)
