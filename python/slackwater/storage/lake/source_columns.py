"""The columns of a source that reads a table of a lake, and how the table's differ from them.

Source: docs/decisions 0079.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from slackwater.repr.errors import user_error
from slackwater.repr.relation import (
    Column,
    JsonType,
    RelationDesc,
    sql_type,
    stored_column,
    unclear_field,
)
from slackwater.storage.lake.delta_columns import plain_type
from slackwater.storage.lake.history import TableColumn

_KEPT = ("__CHAR_VARCHAR_TYPE_STRING", "__COLLATIONS", "comment")
"""The metadata of columns that Spark knows by itself; the rest is a table's own."""


def source_columns(columns: Sequence[TableColumn], object_name: str) -> RelationDesc:
    """The columns of a source of a table with these columns; all of them may be NULL.

    Raises SLACKWATER_UNSUPPORTED_TYPE, SLACKWATER_DUPLICATE_COLUMN for names that differ in their
    case alone, and SLACKWATER_COLUMN_MISMATCH for names like ``__diff``, for nested fields that
    cannot be found by their names, and for a table without columns.
    """
    known: set[str] = set()
    for each in columns:
        if each.name.lower() in known:
            raise user_error(
                "SLACKWATER_DUPLICATE_COLUMN", columnName=each.name, objectName=object_name
            )
        known.add(each.name.lower())
        if stored_column(each.name) != each.name:
            raise _mismatch(object_name, f"{each.name} is a name that Slackwater uses itself")
    desc = RelationDesc(tuple(map(_column, columns)))
    desc.arrow_schema()
    unclear = (unclear_field(each.name, each.spark_type) for each in desc.columns)
    field = next((each for each in unclear if each is not None), None)
    if field is not None:
        raise _mismatch(object_name, f"{field} cannot be found by its name")
    if not columns:
        raise _mismatch(object_name, "the table has no columns")
    return desc


def difference(before: Sequence[TableColumn], now: Sequence[TableColumn]) -> str | None:
    """Why a table cannot be read in the columns that it had before; None: it can.

    It may have more columns now.
    """
    found = {each.identity: each for each in now}
    for column in before:
        there = found.get(column.identity)
        if there is None:
            return f"its column {column.name} is gone"
        if there.name != column.name:
            return f"its column {column.name} was renamed to {there.name}"
        if _type(there) != _type(column):
            return f"its column {column.name} is {sql_type(_type(there))} now"
    return None


def added(before: Sequence[TableColumn], now: Sequence[TableColumn]) -> tuple[str, ...]:
    """The columns that a table did not have before."""
    known = {each.identity for each in before}
    return tuple(each.name for each in now if each.identity not in known)


def widened(
    before: Sequence[TableColumn], now: Sequence[TableColumn], object_name: str
) -> tuple[TableColumn, ...]:
    """The columns that a table had before, and those behind them that it got since.

    Raises SLACKWATER_COLUMN_MISMATCH for a table that cannot be read in those that it had.
    """
    reason = difference(before, now)
    if reason is not None:
        raise _mismatch(object_name, f"of the table {reason}")
    known = {each.identity for each in before}
    return (*before, *(each for each in now if each.identity not in known))


def _column(column: TableColumn) -> Column:
    metadata = json.loads(column.metadata_json)
    kept = {key: metadata[key] for key in _KEPT if key in metadata}
    kind = json.dumps(_type(column), sort_keys=True)
    return Column(column.name, kind, True, json.dumps(kept, sort_keys=True))


def _type(column: TableColumn) -> JsonType:
    return plain_type(json.loads(column.type_json))


def _mismatch(object_name: str, details: str) -> Exception:
    return user_error("SLACKWATER_COLUMN_MISMATCH", objectName=object_name, details=details)
