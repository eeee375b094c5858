"""What a read is told of sources that have stopped: their contents are true, and do not grow."""

from __future__ import annotations

from collections.abc import Iterable

from slackwater.adapter.catalog.model import CatalogItem, CatalogState
from slackwater.adapter.environment import Environment
from slackwater.adapter.sessions import Session
from slackwater.repr.ids import GlobalId

WARNING, CODE = "WARNING", "01000"


def tell_of_stalled(env: Environment, session: Session, items: Iterable[CatalogItem]) -> None:
    """A notice for each stalled source below `items`: once for a session, until it stalls anew."""
    stalled = {
        change.source_id: change
        for change in (*env.ingestion.statuses(), *env.webhooks.statuses())
        if change.status.status == "stalled"
    }
    if not stalled:
        return
    for source_id in sorted(stalled.keys() & _sources_below(env.state, items)):
        change = stalled[source_id]
        if session.is_news((source_id, change.occurred_at_ms)):
            name = env.state.items[source_id].full_name
            session.notify(
                f"The source {name} has stopped, and its contents stay as they are:"
                f" {change.status.error}",
                WARNING,
                CODE,
            )


def _sources_below(state: CatalogState, items: Iterable[CatalogItem]) -> set[GlobalId]:
    """The ids of all that the items read, and of the sources that these are tables of."""
    found: set[GlobalId] = set()
    waiting = list(items)
    while waiting:
        item = waiting.pop()
        if item.id not in found:
            found.add(item.id)
            if item.parent is not None:
                found.add(item.parent)
            below = (state.items.get(each) for each in item.depends_on)
            waiting += [each for each in below if each is not None]
    return found
