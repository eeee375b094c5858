"""Files that wait for their removal; statistics and status history of sources."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "garbage",
        sa.Column("uri", sa.String(), nullable=False),
        sa.Column("shard_id", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("replaced_ms", sa.BigInteger(), nullable=False),
        sa.Column("condemned", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("uri"),
    )
    with op.batch_alter_table("garbage", schema=None) as batch_op:
        batch_op.create_index("garbage_by_shard", ["shard_id", "replaced_ms"], unique=False)

    op.create_table(
        "source_statistics",
        sa.Column("source_id", sa.Text(), nullable=False),
        sa.Column("counters", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("source_id"),
    )
    op.create_table(
        "source_status_history",
        sa.Column("source_id", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("occurred_ms", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("details", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("source_id", "number"),
    )
