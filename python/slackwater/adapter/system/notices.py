"""The rows of mz_notices, and some of their texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from slackwater.adapter.catalog.details import PostgresDetails
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.adapter.sessions.sessions import Sessions
from slackwater.adapter.sources.slots import WaitingSlot
from slackwater.adapter.system.snapshot import NoticeEntry
from slackwater.compute.controller.protocol import DataflowStatus, Problem
from slackwater.repr.ids import GlobalId
from slackwater.storage.postgres.replication import RetainedLog

SQL = "sql_statements"
"""The type of an action that is statements, as Materialize names it."""

STALLED = "stalled view"
STALLED_HINT = "It is tried again, with pauses that grow up to 30 seconds."
UNINDEXED = "unindexed view"
UNINDEXED_HINT = "Memory is asked for again, after 2, 4, 8, .. and at most 64 changes."

RETAINED = "retained log"
RETAINED_HINT = (
    "The server keeps it until the source has read it, and while a transaction is open there: "
    "mz_internal.mz_source_statuses says whether the source goes on, and pg_stat_activity there "
    "what is open. max_slot_wal_keep_size limits it, at the cost of a RESNAPSHOT; DROP SOURCE "
    "removes the slot."
)
ABANDONED = "abandoned slot"
ABANDONED_HINT = (
    "The removal is tried every 30 seconds. Until then the server keeps its log; "
    "pg_drop_replication_slot there removes the slot too."
)


def stalled(item: CatalogItem, error: Problem) -> str:
    """The text for a view or an index that does not go on."""
    return f"{item.full_name} does not go on: [{error.condition}] {error.message}"


def unindexed(item: CatalogItem, error: Problem) -> str:
    """The text for a view or an index that has no room for its arrangements."""
    is_index = item.kind is ItemKind.INDEX
    does = "is not there, and reads scan" if is_index else "reads its inputs at each change"
    return f"{item.full_name} {does}: [{error.condition}] {error.message}"


def notices(
    sessions: Sessions, statuses: Iterable[DataflowStatus], state: CatalogState
) -> Iterator[NoticeEntry]:
    """The notices of all sessions, and those of views.

    There is one for each view or index that does not go on at the moment, or has no room for what
    its program keeps.
    """
    yield from _of_sessions(sessions)
    yield from _of_dataflows(statuses, state)


def _of_sessions(sessions: Sessions) -> Iterator[NoticeEntry]:
    for session in sessions.all():
        for notice in tuple(session.history):
            yield NoticeEntry(
                id=f"{session.session_id}/{notice.number}",
                notice_type=notice.severity,
                message=notice.message,
                hint=notice.advice.hint,
                action=notice.advice.action,
                action_type=None if notice.advice.action is None else SQL,
                object_id=notice.advice.about,
                created_ms=notice.created_ms,
            )


def _of_dataflows(statuses: Iterable[DataflowStatus], state: CatalogState) -> Iterator[NoticeEntry]:
    for status in statuses:
        item = state.items.get(status.id)
        found = (
            (STALLED, STALLED_HINT, stalled, status.failure),
            (UNINDEXED, UNINDEXED_HINT, unindexed, status.out_of_memory),
        )
        for kind, hint, said, problem in found:
            if item is None or problem is None:
                continue
            yield NoticeEntry(
                id=f"{kind}/{item.id}",
                notice_type=kind,
                message=said(item, problem),
                hint=hint,
                action=None,
                action_type=None,
                object_id=item.id,
                created_ms=problem.began_ms,
            )


def of_logs(retained: Mapping[GlobalId, RetainedLog], state: CatalogState) -> Iterator[NoticeEntry]:
    """The notices of sources for which their servers keep much of their logs."""
    for source, log in retained.items():
        item = state.items.get(source)
        if item is None:
            continue
        size = f"{log.size_bytes / 1024**3:.1f} GiB"
        slot = item.of(PostgresDetails).config.slot
        yield NoticeEntry(
            id=f"{RETAINED}/{source}",
            notice_type=RETAINED,
            message=f"The server of {item.full_name} keeps {size} of its log for the replication "
            f"slot {slot}",
            hint=RETAINED_HINT,
            action=None,
            action_type=None,
            object_id=source,
            created_ms=log.since_ms,
        )


def of_slots(waiting: Iterable[WaitingSlot]) -> Iterator[NoticeEntry]:
    """The notices of slots whose removal has failed so far."""
    for each in waiting:
        if each.reason is None:
            continue
        yield NoticeEntry(
            id=f"{ABANDONED}/{each.slot.source}",
            notice_type=ABANDONED,
            message=f"The replication slot {each.slot.name} of a source that was dropped is not "
            f"removed: {each.reason}",
            hint=ABANDONED_HINT,
            action=None,
            action_type=None,
            object_id=each.slot.source,
            created_ms=each.since_ms,
        )
