"""What people are told without having asked: the rows of mz_notices, and some of their texts."""

from __future__ import annotations

from collections.abc import Iterator

from slackwater.adapter.environment import Environment
from slackwater.adapter.system.snapshot import NoticeEntry
from slackwater.repr.errors import SlackwaterError

STALLED = "stalled view"
STALLED_HINT = "It is tried again, with pauses that grow up to 30 seconds."


def stalled(name: str, error: SlackwaterError) -> str:
    """What is said of a view that does not go on."""
    return f"{name} does not go on: [{error.condition}] {error.message}"


def notices(env: Environment) -> Iterator[NoticeEntry]:
    """Those of all sessions, and one for each view that does not go on at the moment."""
    yield from _of_sessions(env)
    yield from _of_views(env)


def _of_sessions(env: Environment) -> Iterator[NoticeEntry]:
    for session in env.sessions.all():
        for number, notice in enumerate(session.history):
            yield NoticeEntry(
                id=f"{session.session_id}/{number}",
                notice_type=notice.severity,
                message=notice.message,
                hint="",
                action=None,
                action_type=None,
                object_id=None,
                created_ms=session.connected_ms,
            )


def _of_views(env: Environment) -> Iterator[NoticeEntry]:
    for global_id, (error, for_ms) in env.worker.stalled().items():
        item = env.state.items.get(global_id)
        if item is not None:
            yield NoticeEntry(
                id=f"{STALLED}/{global_id}",
                notice_type=STALLED,
                message=stalled(item.full_name, error),
                hint=STALLED_HINT,
                action=None,
                action_type=None,
                object_id=global_id,
                created_ms=env.now() - for_ms,
            )
