"""The settings of Spark's that a definition keeps, because they can change its result.

The shim says which these are: those that Spark keeps for its own permanent views.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.model import CATALOG_NAME, CatalogItem
from slackwater.planner.parser.statements import DefinedUnder
from slackwater.repr.errors import unsupported

OF_VIEW = "slackwater.view.config."
"""The prefix, in the properties of a plain view, of the settings with which Spark expands it."""

OF_SPARK = "slackwater.view."
"""The prefix of the properties that Spark needs to expand a plain view."""

SCHEMA_MODE = "slackwater.view.schema-mode"
USUAL_MODE = "COMPENSATION"
QUERY_COLUMNS = "slackwater.view.query-columns"

RESULTS = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.",
    "spark.sql.caseSensitive",
    "spark.sql.charAsVarchar",
    "spark.sql.decimalOperations.",
    "spark.sql.groupBy",
    "spark.sql.legacy.",
    "spark.sql.mapKeyDedupPolicy",
    "spark.sql.orderByOrdinal",
    "spark.sql.preserveCharVarcharTypeInfo",
    "spark.sql.timestampType",
)
"""The names, or their beginnings, of kept settings that change values rather than their cost."""

ESCAPED_LITERALS = "spark.sql.parser.escapedStringLiterals"

READING = (
    "spark.sql.ansi.doubleQuotedIdentifiers",
    "spark.sql.legacy.consecutiveStringLiterals.enabled",
    "spark.sql.legacy.parser.havingWithoutGroupByAsWhere",
    "spark.sql.legacy.setopsPrecedence.enabled",
    ESCAPED_LITERALS,
    "spark.sql.parser.quotedRegexColumnNames",
)
"""Switches with which Spark reads a text in another way than the planner of maintained views."""


def of_view(item: CatalogItem) -> dict[str, str]:
    """The settings of a plain view."""
    return {
        key.removeprefix(OF_VIEW): value
        for key, value in item.properties.items()
        if key.startswith(OF_VIEW)
    }


def as_properties(settings: Mapping[str, str] | None) -> dict[str, str]:
    """The properties of a plain view that was created with these settings."""
    return {OF_VIEW + key: value for key, value in (settings or {}).items()}


def of_results(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings among `settings` that change values."""
    return {key: value for key, value in settings.items() if key.startswith(RESULTS)}


def context_of(context: Context, under: DefinedUnder) -> Context:
    """The context in which a definition is read: its own, completed by that of the session."""
    if under.schema is not None:
        parts = under.schema.parts
        catalog, *schema = parts if len(parts) > 1 else (CATALOG_NAME, *parts)
        context = replace(context, catalog=catalog, namespace=tuple(schema))
    if under.settings is not None:
        own = context.settings or {}
        kept = {key: value for key, value in own.items() if not key.startswith(RESULTS)}
        context = replace(context, settings={**kept, **dict(under.settings)})
    return context


def refuse_other_reading(name: str, settings: Mapping[str, str] | None) -> None:
    """Raises SLACKWATER_UNSUPPORTED where Spark and the planner would read different queries."""
    for key in READING:
        if (settings or {}).get(key, "false").lower() == "true":
            raise unsupported(
                f"{name} with {key} = true", advice=f"RESET {key} and write the query accordingly."
            )


def refuse_other_settings(name: str, settings: Mapping[str, str] | None, view: CatalogItem) -> None:
    """Raises SLACKWATER_UNSUPPORTED when the plain view means something else with `settings`.

    The maintained view `name`, with the plain views in it, is computed with one set of settings.
    Plain views of earlier releases have none, and are taken with those of `name`.
    """
    own = of_view(view)
    if settings is None or not own:
        return
    for key in sorted({*own, *settings}):
        if key.startswith(RESULTS) and own.get(key) != settings.get(key):
            raise unsupported(
                f"{name} over the view {view.full_name}, which has another {key} "
                f"({own.get(key, 'the default')} instead of {settings.get(key, 'the default')})",
                advice=f"Set {key} to the value of the view, or create one of the two again.",
            )
