"""ALTER TABLE ... ADD COLUMN: what the table's columns are afterwards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.repr.errors import user_error
from slackwater.repr.relation import Column, RelationDesc, arrow_type

_SHAPED_BY_INPUTS = (ItemKind.MATERIALIZED_VIEW, ItemKind.SINK, ItemKind.INDEX)


def with_column(item: CatalogItem, desc: RelationDesc, added: Mapping[str, Any]) -> RelationDesc:
    """`desc` and one more column; `added` is that of the protocol, section 2.

    Raises SLACKWATER_UNSUPPORTED, SLACKWATER_UNSUPPORTED_TYPE and SLACKWATER_DUPLICATE_COLUMN.
    """
    *above, name = added["name"]
    if above:
        raise _unsupported(
            f"A new field inside the column {above[0]} (on {item.full_name})",
            "Add a column of its own.",
        )
    if not added["nullable"] or added.get("default") is not None:
        raise _unsupported(
            f"A new column with NOT NULL or DEFAULT (on {item.full_name})",
            "Rows that are there have NULL in it: add it without, and UPDATE them.",
        )
    if any(column.name.lower() == name.lower() for column in desc.columns):
        raise user_error("SLACKWATER_DUPLICATE_COLUMN", columnName=name, objectName=item.full_name)
    arrow_type(added["type"])
    comment = added.get("comment")
    column = Column(
        name=name,
        type_json=json.dumps(added["type"], sort_keys=True),
        metadata_json=json.dumps({} if comment is None else {"comment": comment}),
    )
    return RelationDesc((*desc.columns, column))


def refuse_new_column(item: CatalogItem, state: CatalogState) -> None:
    """Raises an error unless a column can be added to the item.

    Only tables have columns of their own. A view over ``SELECT *`` that is maintained, and a sink,
    have taken their columns from the table: SLACKWATER_DEPENDENT_OBJECTS.
    """
    if item.kind is not ItemKind.TABLE:
        raise _unsupported(
            f"A new column for a {item.kind.spoken} (on {item.full_name})",
            "Columns can be added to tables.",
        )
    shaped = [
        other.full_name
        for other in state.with_dependents([item.id])
        if other.kind in _SHAPED_BY_INPUTS
    ]
    if shaped:
        raise user_error(
            "SLACKWATER_DEPENDENT_OBJECTS",
            action="add a column to",
            objectName=item.full_name,
            dependents=", ".join(sorted(shaped)),
        )


def _unsupported(feature: str, advice: str) -> Exception:
    return user_error("SLACKWATER_UNSUPPORTED", feature=feature, advice=advice)
