"""The things that need attention: each with its condition, since when, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.console import relations as r
from slackwater.console.objects import STALLED_VIEW, UNINDEXED_VIEW, ObjectEntry, State
from slackwater.console.snapshot import Row, Snapshot

_BAD = (State.FAILING, State.STALLED, State.NO_MEMORY)


@dataclass(frozen=True, slots=True)
class Attention:
    """One thing that needs attention. `path` leads to the object; empty: to none."""

    title: str
    path: str
    state: str
    condition: str
    reason: str
    since_ms: int | None
    advice: str


def attention(snapshot: Snapshot, found: tuple[ObjectEntry, ...]) -> tuple[Attention, ...]:
    """Objects that do not go on, then notices that name an object; the worst first."""
    bad = [each for each in found if each.health.state in _BAD and each.health.is_own]
    of_objects = [_of_object(each) for each in bad]
    by_id = {each.id: each for each in found}
    named = [
        _of_notice(row, by_id.get(row["object_id"]))
        for row in snapshot.rows(r.NOTICES)
        if row["object_id"] is not None and row["notice_type"] not in (STALLED_VIEW, UNINDEXED_VIEW)
    ]
    return (*of_objects, *named)


def _of_object(entry: ObjectEntry) -> Attention:
    health = entry.health
    return Attention(
        title=entry.name,
        path=entry.path,
        state=health.state.value,
        condition=health.condition,
        reason=health.reason,
        since_ms=health.since_ms,
        advice=health.advice,
    )


def _of_notice(row: Row, entry: ObjectEntry | None) -> Attention:
    return Attention(
        title=row["notice_type"] if entry is None else entry.name,
        path="" if entry is None else entry.path,
        state="notice",
        condition=row["notice_type"],
        reason=row["message"],
        since_ms=int(row["created_at"].timestamp() * 1000),
        advice=row["hint"],
    )
