"""The rules of replacements: of which view one can be made, and who may not read it."""

from __future__ import annotations

from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.planner.parser.statements import CreateMaterializedView
from slackwater.repr.errors import unsupported, user_error

_TIMED = "A replacement of, or by, a view that is refreshed at times"
_ADVICE = "Use CREATE OR REPLACE MATERIALIZED VIEW."


def refuse_schedule(statement: CreateMaterializedView) -> None:
    """Raises SLACKWATER_UNSUPPORTED for a replacement with a refresh schedule."""
    if statement.refresh:
        raise unsupported(_TIMED, advice=_ADVICE)


def replacement_target(
    state: CatalogState, item: CatalogItem, name: tuple[str, str]
) -> CatalogItem:
    """The view that `item`, whose columns and dependencies are known, may replace.

    Raises SLACKWATER_UNKNOWN_OBJECT, SLACKWATER_WRONG_KIND, SLACKWATER_UNSUPPORTED,
    SLACKWATER_REPLACEMENT_EXISTS and SLACKWATER_COLUMN_MISMATCH.
    """
    target = state.get(*name, ItemKind.MATERIALIZED_VIEW)
    if target.replaces is not None:
        raise unsupported(
            f"A replacement of {target.full_name}, which is one itself",
            advice="Drop it, and create the other one.",
        )
    if target.refresh is not None:
        raise unsupported(_TIMED, advice=_ADVICE)
    refuse_second(state, target)
    if any(each.id == target.id for each in state.below(item.depends_on)):
        raise unsupported(
            f"A replacement of {target.full_name} that reads it",
            advice="Name what the view reads instead of the view.",
        )
    _refuse_columns(item, target)
    return target


def _refuse_columns(item: CatalogItem, target: CatalogItem) -> None:
    before = target.stored.desc.columns
    after = () if item.desc is None else item.desc.columns
    if len(before) != len(after):
        details = f"{len(after)} columns for {len(before)} of {target.full_name}"
        raise user_error("SLACKWATER_COLUMN_MISMATCH", objectName=item.full_name, details=details)
    for old, new in zip(before, after, strict=True):
        if old.name != new.name:
            details = f"{new.name} stands where {target.full_name} has {old.name}"
        elif old.spark_type != new.spark_type:
            details = f"{new.name} is {new.sql_type}, and {old.sql_type} in {target.full_name}"
        elif new.nullable and not old.nullable:
            details = f"{new.name} may be NULL, and may not in {target.full_name}"
        else:
            continue
        raise user_error("SLACKWATER_COLUMN_MISMATCH", objectName=item.full_name, details=details)


def refuse_second(state: CatalogState, target: CatalogItem) -> None:
    """Raises SLACKWATER_REPLACEMENT_EXISTS if the view has a replacement."""
    for each in state.items.values():
        if each.replaces == target.id:
            raise user_error(
                "SLACKWATER_REPLACEMENT_EXISTS",
                objectName=target.full_name,
                replacement=each.full_name,
            )
