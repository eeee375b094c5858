"""The name by which systems outside tell environments apart.

An environment of before has none: it goes by its location, as what it has made outside does.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("environment", sa.Column("name", sa.String(32), nullable=True))
