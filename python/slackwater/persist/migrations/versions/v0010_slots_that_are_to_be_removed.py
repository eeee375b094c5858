"""Replication slots of sources that were dropped, until their servers do not have them any more."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "abandoned_slots",
        sa.Column("source_id", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("source_id"),
    )
