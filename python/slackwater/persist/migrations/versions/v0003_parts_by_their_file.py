"""Parts are found by the file that they name, whatever their shard."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_index(
        "parts_by_uri",
        "parts",
        ["uri"],
        unique=False,
        sqlite_where=sa.text("uri IS NOT NULL"),
        postgresql_where=sa.text("uri IS NOT NULL"),
    )
