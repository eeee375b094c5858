"""The rows of mz_notices, and some of their texts."""

from __future__ import annotations

from collections.abc import Iterator

from slackwater.adapter.catalog.model import CatalogState
from slackwater.adapter.sessions.sessions import Sessions
from slackwater.adapter.system.snapshot import NoticeEntry
from slackwater.compute.worker import Worker
from slackwater.repr.errors import SlackwaterError

STALLED = "stalled view"
STALLED_HINT = "It is tried again, with pauses that grow up to 30 seconds."
UNINDEXED = "unindexed view"
UNINDEXED_HINT = "Memory is asked for again, after 2, 4, 8, .. and at most 64 changes."


def stalled(name: str, error: SlackwaterError) -> str:
    """The text for a view that does not go on."""
    return f"{name} does not go on: [{error.condition}] {error.message}"


def unindexed(name: str, error: SlackwaterError) -> str:
    """The text for a view that has no room for its arrangements."""
    return f"{name} reads its inputs at each change: [{error.condition}] {error.message}"


def notices(
    sessions: Sessions, worker: Worker, state: CatalogState, now_ms: int
) -> Iterator[NoticeEntry]:
    """The notices of all sessions, and those of views.

    There is one for each view that does not go on at the moment, or has no room for what its
    program keeps.
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
                message=said(item.full_name, error),
                hint=hint,
                action=None,
                action_type=None,
                object_id=global_id,
                created_ms=now_ms - for_ms,
            )
