"""Replacements of views, which nothing reads before they have taken the view's place."""

from __future__ import annotations

from collections.abc import Iterable

from slackwater.adapter.catalog.model import CatalogItem, CatalogState
from slackwater.repr.errors import user_error
from slackwater.repr.ids import GlobalId


def refuse_replacement(item: CatalogItem) -> None:
    """Raises SLACKWATER_REPLACEMENT for a replacement."""
    if item.replaces is not None:
        raise user_error("SLACKWATER_REPLACEMENT", objectName=item.full_name)


def refuse_replacements(state: CatalogState, ids: Iterable[str]) -> None:
    """Raises SLACKWATER_REPLACEMENT when one of the objects is a replacement."""
    for each in ids:
        item = state.items.get(GlobalId(each))
        if item is not None:
            refuse_replacement(item)
