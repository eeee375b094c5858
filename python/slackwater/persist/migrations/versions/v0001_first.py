"""Shards and their parts, writes, leases, leaders, the catalog, and the states of sources."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "catalog_audit",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("object_type", sa.Text(), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.Column("user_name", sa.Text(), nullable=True),
        sa.Column("occurred_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "catalog_counters",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("next_id", sa.BigInteger(), nullable=False),
        sa.Column("next_event", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "catalog_items",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "catalog_schemas",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "environment",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("commit_token", sa.String(length=64), nullable=False),
        sa.Column("tables_upper", sa.BigInteger(), nullable=False),
        sa.Column("next_shard_id", sa.BigInteger(), nullable=False),
        sa.Column("next_part_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "leaders",
        sa.Column("epoch", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("token_file", sa.String(), nullable=False),
        sa.Column("application", sa.String(), nullable=False),
        sa.Column("log", sa.String(), nullable=False),
        sa.Column("previous_token", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("epoch"),
    )
    op.create_table(
        "parts",
        sa.Column("part_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("shard_id", sa.BigInteger(), nullable=False),
        sa.Column("lower", sa.BigInteger(), nullable=False),
        sa.Column("upper", sa.BigInteger(), nullable=False),
        sa.Column("inline_ipc", sa.LargeBinary(), nullable=True),
        sa.Column("uri", sa.Text(), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=True),
        sa.Column("modified_ms", sa.BigInteger(), nullable=True),
        sa.Column("uniform_time", sa.BigInteger(), nullable=True),
        sa.Column("uniform_diff", sa.BigInteger(), nullable=True),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("min_time", sa.BigInteger(), nullable=False),
        sa.Column("max_time", sa.BigInteger(), nullable=False),
        sa.Column("has_retractions", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("part_id"),
    )
    op.create_index("parts_by_shard", "parts", ["shard_id"], unique=False)
    op.create_table(
        "reader_leases",
        sa.Column("reader_id", sa.String(length=64), nullable=False),
        sa.Column("application", sa.String(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("reader_id"),
    )
    op.create_table(
        "shards",
        sa.Column("shard_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("schema_json", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("upper", sa.BigInteger(), nullable=True),
        sa.Column("dropped", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("shard_id"),
    )
    op.create_table(
        "source_states",
        sa.Column("source_id", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("source_id"),
    )
    op.create_table(
        "writes",
        sa.Column("write_id", sa.String(length=64), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("inserted", sa.BigInteger(), nullable=False),
        sa.Column("deleted", sa.BigInteger(), nullable=False),
        sa.Column("written_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("write_id"),
    )
    op.create_index("writes_by_age", "writes", ["written_ms"], unique=False)
