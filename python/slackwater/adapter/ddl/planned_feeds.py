"""The columns of tables that changefeeds fill."""

from __future__ import annotations

import json
from dataclasses import replace

from slackwater.adapter.catalog.details import FeedTableSettings
from slackwater.planner.parser import statements as st
from slackwater.repr.errors import invalid_option
from slackwater.repr.relation import Column, RelationDesc


def feed_settings(table: st.ChangefeedTable) -> FeedTableSettings:
    """The declaration of a table as its source, or it itself, keeps it."""
    return FeedTableSettings(table.name, table.key, table.extras)


def feed_columns(
    table: st.ChangefeedTable, declared: RelationDesc, statement: str = "CREATE SOURCE"
) -> RelationDesc:
    """The columns of a table of a changefeed, of which those of the key alone cannot be NULL.

    Raises SLACKWATER_INVALID_OPTION.
    """
    names = {column.name.casefold(): column.name for column in declared.columns}
    for wanted in table.key:
        if wanted not in declared.names:
            raise invalid_option("KEY", statement, wanted, f"{table.name} has no such column")
    if table.extras is not None and table.extras.casefold() in names:
        raise invalid_option("EXTRAS", statement, table.extras, f"{table.name} has such a column")
    columns = [
        replace(column, nullable=column.name not in table.key) for column in declared.columns
    ]
    if table.extras is not None:
        columns.append(Column(table.extras, json.dumps("string")))
    desc = RelationDesc(tuple(columns))
    desc.arrow_schema()
    return desc
