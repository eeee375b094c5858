"""Descriptions, for messages, of the row because of which a view cannot be computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from slackwater.compute.engine import FailingColumn, FailingRow
from slackwater.repr.dataflow_error import SOME_ROW

MOST_COLUMNS = 20
"""Of a row with more, those are named of which the error comes, and then the first ones."""

MOST_CHARACTERS = 200
"""Of a value."""


def called(found: FailingRow, names: Mapping[str, str]) -> str:
    """The row in words: ``the row (k = 1, v = 0)``. `names` are those of collections, by ids."""
    if not found.columns:
        return SOME_ROW
    places = range(len(found.columns))
    chosen = sorted(places, key=lambda i: not found.columns[i].is_read)[:MOST_COLUMNS]
    columns = [found.columns[i] for i in sorted(chosen)]
    repeated = Counter(column.name for column in columns)
    shown = [_shown(column, names, repeated[column.name] > 1) for column in columns]
    if len(columns) < len(found.columns):
        shown.append("...")
    return f"the {'group' if found.is_group else 'row'} ({', '.join(shown)})"


def _shown(column: FailingColumn, names: Mapping[str, str], is_repeated: bool) -> str:
    name, text = column.name, column.text
    if is_repeated and column.collection is not None and column.collection in names:
        name = f"{names[column.collection].rpartition('.')[2]}.{name}"
    if len(text) > MOST_CHARACTERS:
        text = f"{text[:MOST_CHARACTERS]}..."
    return f"{name} = {text}"
