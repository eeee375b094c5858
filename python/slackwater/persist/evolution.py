"""Changes of a shard's columns that leave its parts as they are.

Source: spec controllers 3.7 (schemas).
"""

from __future__ import annotations

from slackwater.repr.relation import Column, RelationDesc


class ExpectedMismatch(Exception):
    """The shard has other columns than the change was made for; nothing was changed."""

    def __init__(self, shard_id: int, actual: RelationDesc) -> None:
        super().__init__(f"the columns of shard {shard_id} are {', '.join(actual.names)}")
        self.shard_id = shard_id
        self.actual = actual


class Incompatible(Exception):
    """Parts from before could not be read with the new columns; nothing was changed."""

    def __init__(self, shard_id: int, reason: str) -> None:
        super().__init__(f"the columns of shard {shard_id} cannot change: {reason}")
        self.shard_id = shard_id
        self.reason = reason


def incompatibility(before: RelationDesc, after: RelationDesc) -> str | None:
    """Why parts written as `before` cannot be read as `after`; None: they can.

    All columns stay, with their types; one may lose its NOT NULL. New columns can be NULL, because
    they are in older rows.
    """
    names = [column.name for column in after.columns]
    if len({name.lower() for name in names}) != len(names):
        return "two columns have one name"
    kept = {column.name: column for column in after.columns}
    for column in before.columns:
        if (reason := _changed(column, kept.pop(column.name, None))) is not None:
            return reason
    for column in kept.values():
        if not column.nullable:
            return f"the new column {column.name} is NOT NULL, and older rows lack it"
    if [column.name for column in before.columns] != names[: len(before.columns)]:
        return "new columns come after the others"
    return None


def _changed(before: Column, after: Column | None) -> str | None:
    if after is None:
        return f"the column {before.name} is missing"
    if before.spark_type != after.spark_type or before.sql_type != after.sql_type:
        return f"the type of {before.name} is {before.sql_type}, not {after.sql_type}"
    if before.nullable and not after.nullable:
        return f"rows may have NULL in {before.name}"
    return None
