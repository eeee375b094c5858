"""What people are told without having asked: the rows of mz_notices, and some of their texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from slackwater.adapter.environment import Environment
from slackwater.adapter.system.snapshot import NoticeEntry
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.ids import GlobalId

STALLED = "stalled view"
STALLED_HINT = "It is tried again, with pauses that grow up to 30 seconds."
UNINDEXED = "unindexed view"
UNINDEXED_HINT = "Memory is asked for again, after 2, 4, 8, .. and at most 64 changes."


def stalled(name: str, error: SlackwaterError) -> str:
    """What is said of a view that does not go on."""
    return f"{name} does not go on: [{error.condition}] {error.message}"


def unindexed(name: str, error: SlackwaterError) -> str:
    """What is said of a view that has no room for what its changes are looked up in."""
    return f"{name} reads its inputs at each change: [{error.condition}] {error.message}"


def notices(env: Environment) -> Iterator[NoticeEntry]:
    """Those of all sessions, and one for each view that does not go on at the moment, or has no
    room for what its program keeps."""
    yield from _of_sessions(env)
    yield from _of_views(env)


def _of_sessions(env: Environment) -> Iterator[NoticeEntry]:
    for session in env.sessions.all():
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


def _of_views(env: Environment) -> Iterator[NoticeEntry]:
    yield from _told(env, STALLED, STALLED_HINT, stalled, env.worker.stalled())
    yield from _told(env, UNINDEXED, UNINDEXED_HINT, unindexed, env.worker.out_of_memory())


def _told(
    env: Environment,
    kind: str,
    hint: str,
    said: Callable[[str, SlackwaterError], str],
    failures: Mapping[GlobalId, tuple[SlackwaterError, int]],
) -> Iterator[NoticeEntry]:
    for global_id, (error, for_ms) in failures.items():
        item = env.state.items.get(global_id)
        if item is not None:
            yield NoticeEntry(
                id=f"{kind}/{global_id}",
                notice_type=kind,
                message=said(item.full_name, error),
                hint=hint,
                action=None,
                action_type=None,
                object_id=global_id,
                created_ms=env.now() - for_ms,
            )
