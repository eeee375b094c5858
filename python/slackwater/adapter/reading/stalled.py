"""What a read is told of sources that have stopped: their contents are true, and do not grow."""

from __future__ import annotations

from collections.abc import Iterable

from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.adapter.environment import Environment
from slackwater.adapter.sessions.sessions import Session
from slackwater.repr.ids import GlobalId

WARNING, CODE = "WARNING", "01000"


def tell_of_stalled(env: Environment, session: Session, items: Iterable[CatalogItem]) -> None:
    """A notice for each stalled source below `items`: once for a session, until it stalls anew."""
    for source in sorted(_sources_below(env.state, items), key=lambda item: item.id):
        change = env.ingestion.status(source.id) or env.webhooks.status(source)
        if change is None or change.status.status != "stalled":
            continue
        if session.is_news((source.id, change.occurred_at_ms)):
            session.notify(
                f"The source {source.full_name} has stopped, and its contents stay as they are:"
                f" {change.status.error}",
                WARNING,
                CODE,
            )


def _sources_below(state: CatalogState, items: Iterable[CatalogItem]) -> list[CatalogItem]:
    """The sources that the items are, are tables of, or read."""
    found: dict[GlobalId, CatalogItem] = {}
    waiting = list(items)
    while waiting:
        item = waiting.pop()
        if item.id not in found:
            found[item.id] = item
            parents = () if item.parent is None else (item.parent,)
            below = (state.items.get(each) for each in (*item.depends_on, *parents))
            waiting += [each for each in below if each is not None]
    return [item for item in found.values() if item.kind is ItemKind.SOURCE]
