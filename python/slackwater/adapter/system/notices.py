"""The rows of mz_notices, and some of their texts."""

from __future__ import annotations

from collections.abc import Iterator

from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.adapter.sessions.sessions import Sessions
from slackwater.adapter.system.snapshot import NoticeEntry
from slackwater.compute.worker import Worker
from slackwater.repr.errors import SlackwaterError

STALLED = "stalled view"
STALLED_HINT = "It is tried again, with pauses that grow up to 30 seconds."
UNINDEXED = "unindexed view"
UNINDEXED_HINT = "Memory is asked for again, after 2, 4, 8, .. and at most 64 changes."


def stalled(item: CatalogItem, error: SlackwaterError) -> str:
    """The text for a view or an index that does not go on."""
    return f"{item.full_name} does not go on: [{error.condition}] {error.message}"


def unindexed(item: CatalogItem, error: SlackwaterError) -> str:
    """The text for a view or an index that has no room for its arrangements."""
    is_index = item.kind is ItemKind.INDEX
    does = "is not there, and reads scan" if is_index else "reads its inputs at each change"
    return f"{item.full_name} {does}: [{error.condition}] {error.message}"


def notices(
    sessions: Sessions, worker: Worker, state: CatalogState, now_ms: int
) -> Iterator[NoticeEntry]:
    """The notices of all sessions, and those of views.

    There is one for each view or index that does not go on at the moment, or has no room for what
    its program keeps.
    """
    yield from _of_sessions(sessions)
    yield from _of_views(worker, state, now_ms)


def _of_sessions(sessions: Sessions) -> Iterator[NoticeEntry]:
    for session in sessions.all():
        for notice in tuple(session.history):
            yield NoticeEntry(
                id=f"{session.session_id}/{notice.number}",
                notice_type=notice.severity,
                message=notice.message,
                hint="",
                action=None,
                action_type=None,
                object_id=None,
                created_ms=notice.created_ms,
            )


def _of_views(worker: Worker, state: CatalogState, now_ms: int) -> Iterator[NoticeEntry]:
    stopped = ((STALLED, STALLED_HINT, stalled, each) for each in worker.stalled().items())
    without_room = (
        (UNINDEXED, UNINDEXED_HINT, unindexed, each) for each in worker.out_of_memory().items()
    )
    for kind, hint, said, (global_id, (error, for_ms)) in (*stopped, *without_room):
        item = state.items.get(global_id)
        if item is not None:
            yield NoticeEntry(
                id=f"{kind}/{global_id}",
                notice_type=kind,
                message=said(item, error),
                hint=hint,
                action=None,
                action_type=None,
                object_id=global_id,
                created_ms=now_ms - for_ms,
            )
