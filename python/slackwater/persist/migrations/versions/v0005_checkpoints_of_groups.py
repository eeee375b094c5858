"""Checkpoints of groups."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def _text(length: int) -> sa.String:
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "checkpoint_groups",
        sa.Column("group_name", _text(255), nullable=False),
        sa.Column("committed", _text(39), nullable=False),
        sa.PrimaryKeyConstraint("group_name"),
    )
    op.create_table(
        "checkpoints",
        sa.Column("group_name", _text(255), nullable=False),
        sa.Column("partition_name", _text(255), nullable=False),
        sa.Column("source_hlc", _text(39), nullable=False),
        sa.Column("first_seen_ms", sa.BigInteger(), nullable=False),
        sa.Column("applied_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("group_name", "partition_name", "source_hlc"),
    )
    for name, which in (("waiting", "IS NULL"), ("applied", "IS NOT NULL")):
        op.create_index(
            f"checkpoints_{name}",
            "checkpoints",
            ["group_name", "partition_name", "source_hlc"],
            sqlite_where=sa.text(f"applied_ms {which}"),
            postgresql_where=sa.text(f"applied_ms {which}"),
        )
