"""The script that Alembic runs for each command, in the transaction that its caller has begun."""

from __future__ import annotations

from alembic import context

_given = context.config.attributes
context.configure(
    connection=_given["connection"],
    target_metadata=_given.get("metadata"),
    # SQLite changes a column by making the table anew.
    render_as_batch=True,
)
context.run_migrations()
