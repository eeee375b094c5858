"""Plans that Spark made before the columns of a table changed."""

from __future__ import annotations

from collections.abc import Collection

from slackwater.adapter.catalog.model import CatalogItem
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.relation import RelationDesc


def refuse_older_plan(item: CatalogItem, desc: RelationDesc, not_null: Collection[str]) -> None:
    """Raises Spark's own error for a plan with columns that have lost their NOT NULL since.

    `not_null` are the columns that the plan takes for NOT NULL, `desc` describes the item now.
    Spark would read a NULL as 0.
    """
    lost = [each.name for each in desc.columns if each.nullable and each.name in not_null]
    if lost:
        changes = "\n".join(f"- `{name}` is nullable now" for name in lost)
        raise SlackwaterError(
            "INCOMPATIBLE_TABLE_CHANGE_AFTER_ANALYSIS.COLUMNS_MISMATCH",
            "51024",
            f"Detected incompatible changes to table {item.full_name} after DataFrame/Dataset has "
            "been resolved and analyzed. Please, re-create DataFrame/Dataset before attempting to "
            f"execute the query again. Data columns have changed:\n{changes}",
            {"tableName": item.full_name, "errors": changes},
        )
