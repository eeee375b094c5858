"""ALTER TABLE ... ADD COLUMN and DROP NOT NULL: the table's columns afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from slackwater.adapter.catalog.details import (
    KafkaDetails,
    LakeDetails,
    PostgresDetails,
    SourceTableDetails,
    SubsourceDetails,
)
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.adapter.protocol import AddColumn, SetNullability
from slackwater.repr.errors import unsupported, user_error
from slackwater.repr.relation import Column, RelationDesc, arrow_type

_REFRESHED = (KafkaDetails, PostgresDetails, LakeDetails)
"""The details of sources that have REFRESH SCHEMA."""
_SHAPED_BY_INPUTS = (ItemKind.MATERIALIZED_VIEW, ItemKind.SINK)


def with_column(item: CatalogItem, desc: RelationDesc, added: AddColumn) -> RelationDesc:
    """`desc` and one more column.

    Raises SLACKWATER_UNSUPPORTED, SLACKWATER_UNSUPPORTED_TYPE and SLACKWATER_DUPLICATE_COLUMN.
    """
    *above, name = added.name
    if above:
        raise unsupported(
            f"A new field inside the column {above[0]} (on {item.full_name})",
            "Add a column of its own.",
        )
    if not added.nullable or added.default is not None:
        raise unsupported(
            f"A new column with NOT NULL or DEFAULT (on {item.full_name})",
            "Rows that are there have NULL in it: add it without, and UPDATE them.",
        )
    if any(column.name.lower() == name.lower() for column in desc.columns):
        raise user_error("SLACKWATER_DUPLICATE_COLUMN", columnName=name, objectName=item.full_name)
    arrow_type(added.type)
    comment = added.comment
    column = Column(
        name=name,
        type_json=json.dumps(added.type, sort_keys=True),
        metadata_json=json.dumps({} if comment is None else {"comment": comment}),
    )
    return RelationDesc((*desc.columns, column))


def with_nullability(
    item: CatalogItem, desc: RelationDesc, changed: SetNullability
) -> RelationDesc:
    """`desc` with one column without NOT NULL.

    Raises SLACKWATER_UNSUPPORTED.
    """
    name, *below = changed.name
    if below:
        raise unsupported(
            f"Another nullability inside the column {name} (on {item.full_name})",
            "Only columns themselves can lose NOT NULL.",
        )
    if not changed.nullable:
        raise unsupported(
            f"SET NOT NULL for the column {name} (on {item.full_name})",
            "Create a new table with the wanted columns and INSERT INTO it.",
        )
    return RelationDesc(
        tuple(
            replace(each, nullable=True) if each.name.lower() == name.lower() else each
            for each in desc.columns
        )
    )


def with_comment(item: CatalogItem, path: Sequence[str], text: str) -> RelationDesc:
    """The columns of `item`, one with another comment; an empty text takes it away.

    Raises SLACKWATER_UNKNOWN_COLUMN, and SLACKWATER_UNSUPPORTED for a field inside a column.
    """
    columns = () if item.desc is None else item.desc.columns
    name, *below = path
    if below:
        raise unsupported(
            f"Another comment inside the column {name} (on {item.full_name})",
            "Describe the column itself.",
        )
    if not any(column.name.lower() == name.lower() for column in columns):
        raise user_error(
            "SLACKWATER_UNKNOWN_COLUMN",
            columnName=name,
            objectName=item.full_name,
            columns=", ".join(column.name for column in columns),
        )
    return RelationDesc(
        tuple(
            _commented(each, text) if each.name.lower() == name.lower() else each
            for each in columns
        )
    )


def _commented(column: Column, text: str) -> Column:
    metadata = json.loads(column.metadata_json)
    metadata.pop("comment", None)
    if text:
        metadata["comment"] = text
    return replace(column, metadata_json=json.dumps(metadata, sort_keys=True))


def refuse_new_column(item: CatalogItem, state: CatalogState) -> None:
    """Raises an error unless a column can be added to the item.

    Only tables have columns of their own. A view over ``SELECT *`` that is maintained, and a sink,
    have taken their columns from the table: SLACKWATER_DEPENDENT_OBJECTS.
    """
    _refuse(item, state, "add a column to", lambda other: other.kind in _SHAPED_BY_INPUTS)


def refuse_nullability(item: CatalogItem, state: CatalogState) -> None:
    """Raises an error unless a column of the item can lose its NOT NULL.

    It is refused where a new column would be, and under views that promise NOT NULL themselves.
    """

    def promises(other: CatalogItem) -> bool:
        columns = () if other.desc is None else other.desc.columns
        return not all(column.nullable for column in columns)

    _refuse(
        item,
        state,
        "drop NOT NULL in",
        lambda other: other.kind in _SHAPED_BY_INPUTS or promises(other),
    )


def _refuse(
    item: CatalogItem, state: CatalogState, action: str, is_shaped: Callable[[CatalogItem], bool]
) -> None:
    if not item.is_writable:
        raise unsupported(
            f"Another column for a {item.kind.display_name} (on {item.full_name})",
            _advice_where_filled(item, state),
        )
    _refuse_below(item, state, action, is_shaped)


def _advice_where_filled(item: CatalogItem, state: CatalogState) -> str:
    """The advice where no statement gives an item columns, as a source fills it or a query does."""
    match item.details:
        case SourceTableDetails(source=source_id) | SubsourceDetails(parent=source_id):
            source = state.items.get(source_id)
        case _:
            source = item
    if source is not None and isinstance(source.details, _REFRESHED):
        name = source.full_name
        return f"ALTER SOURCE {name} REFRESH SCHEMA takes columns that were added upstream."
    return "The columns of tables can be changed."


def refuse_refreshed_columns(item: CatalogItem, state: CatalogState) -> None:
    """Raises an error unless a source can get columns, as `refuse_new_column` does of tables."""
    _refuse_below(item, state, "add columns to", lambda other: other.kind in _SHAPED_BY_INPUTS)


def _refuse_below(
    item: CatalogItem, state: CatalogState, action: str, is_shaped: Callable[[CatalogItem], bool]
) -> None:
    above = [other for other in state.with_dependents([item.id]) if other.id != item.id]
    shaped = [other.full_name for other in above if is_shaped(other)]
    if shaped:
        raise user_error(
            "SLACKWATER_DEPENDENT_OBJECTS",
            action=action,
            objectName=item.full_name,
            dependents=", ".join(sorted(shaped)),
        )
