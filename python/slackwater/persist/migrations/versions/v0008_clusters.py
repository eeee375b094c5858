"""The clusters, of which an environment of before has the one that everything ran on."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_FIRST = {
    "id": "u1",
    "name": "quickstart",
    "size": "100cc",
    "replicas": [{"id": "u1", "name": "r1", "size": "100cc", "comment": None}],
    "owner": "",
    "comment": None,
}


def upgrade() -> None:
    clusters = op.create_table(
        "catalog_clusters",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    conn = op.get_bind()
    counters = sa.table("catalog_counters", sa.column("id"))
    # A new environment gets its first cluster from the program, with its other first entries.
    if conn.execute(sa.select(counters.c.id)).first() is not None:
        op.bulk_insert(clusters, [{"id": "u1", "body": json.dumps(_FIRST, sort_keys=True)}])
