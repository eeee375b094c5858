"""Rows of the system relations about activity.

Frontiers, lags, hydration, ticks, statuses, statistics, sessions, holds and storage.
Each function makes one relation's rows; `relations` names their columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator

from slackwater.adapter.catalog.details import SourceTableDetails
from slackwater.adapter.catalog.model import CatalogItem, ItemKind, shards_of
from slackwater.adapter.system.objects import SystemRow, items, moment, sink_type, source_type
from slackwater.adapter.system.snapshot import SystemSnapshot
from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier
from slackwater.repr.ids import GlobalId
from slackwater.storage.ingestion import SourceStatus

_PROCESS = 0
"""A replica is one process, the first."""

_NOT_COUNTED = 3
"""Columns of mz_source_statistics of records and bytes that are indexed."""


def frontiers(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for object_id, each in snapshot.frontiers.items():
        since = None if each.since is None else each.since.as_nullable()
        yield object_id, since, each.upper.as_nullable()


def hydration_statuses(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for object_id, replicas in snapshot.hydrated.items():
        for replica, is_hydrated in sorted(replicas.items()):
            yield object_id, replica, is_hydrated


def replica_frontiers(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for object_id, replica, upper in snapshot.replica_uppers:
        yield object_id, replica, upper.as_nullable()


def replica_statuses(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for replica, each in sorted(snapshot.replica_statuses.items()):
        status, reason = ("online", None) if each.is_online else ("offline", "connection lost")
        yield replica, _PROCESS, status, reason, moment(each.changed_ms)


def replica_metrics(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for replica in sorted(snapshot.replica_statuses):
        sizes = (s.record.size_bytes for s in snapshot.arrangements if s.replica == replica)
        yield replica, _PROCESS, sum(sizes)


def active_peeks(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for peek in snapshot.peeks:
        yield peek.peek_id, peek.id, "index", peek.time


def hydration_progress(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for told in snapshot.hydration_progress:
        each = told.record
        yield (
            each.global_id,
            told.replica,
            each.rows_read,
            each.rows,
            each.elapsed_ms,
        )


def _lag_ms(behind: Frontier, ahead: Frontier) -> int | None:
    """Milliseconds by which `behind` trails `ahead`; None if only `ahead` is the empty frontier."""
    if behind >= ahead:
        return 0
    return None if ahead.is_empty else ahead.value - behind.value


def materialization_lag(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    """Lags against the direct inputs (local), and the tables and sources below them (global)."""
    present = _present(snapshot)
    for item, upper in _computed(snapshot):
        local = _maintained_inputs(snapshot, item)
        roots = _root_inputs(snapshot, item)
        yield (
            item.id,
            _lag_behind(upper, _uppers(snapshot, local), present),
            _lag_behind(upper, _uppers(snapshot, roots), present),
            _slowest(snapshot, local),
            _slowest(snapshot, roots),
        )


def global_lags(snapshot: SystemSnapshot) -> Iterator[tuple[GlobalId, int | None]]:
    """The lags of `materialization_lag` against the tables and sources below alone."""
    present = _present(snapshot)
    for item, upper in _computed(snapshot):
        roots = _root_inputs(snapshot, item)
        yield item.id, _lag_behind(upper, _uppers(snapshot, roots), present)


def _computed(snapshot: SystemSnapshot) -> Iterator[tuple[CatalogItem, Frontier]]:
    """The objects that are computed from others and have a frontier, with their uppers."""
    for item in items(snapshot, ItemKind.MATERIALIZED_VIEW, ItemKind.INDEX, ItemKind.SINK):
        own = snapshot.frontiers.get(item.id)
        if own is not None:
            yield item, own.upper


def _maintained_inputs(snapshot: SystemSnapshot, item: CatalogItem) -> list[GlobalId]:
    """The nearest inputs that have frontiers; views, which have none, are looked through."""
    has_frontiers = snapshot.frontiers.__contains__
    found = snapshot.catalog.below(item.depends_on, lambda each: has_frontiers(each.id))
    return sorted(each.id for each in found if has_frontiers(each.id))


def _root_inputs(snapshot: SystemSnapshot, item: CatalogItem) -> list[GlobalId]:
    """The tables and sources below the item, transitively."""
    found = snapshot.catalog.below(item.depends_on)
    roots = [each.id for each in found if each.kind in (ItemKind.TABLE, ItemKind.SOURCE)]
    return sorted(each for each in roots if each in snapshot.frontiers)


def _uppers(snapshot: SystemSnapshot, ids: Iterable[GlobalId]) -> list[Frontier]:
    return [snapshot.frontiers[each].upper for each in ids]


def _lag_behind(upper: Frontier, uppers: list[Frontier], present: Frontier) -> int | None:
    if not uppers:
        return 0
    # Who keeps pace with the present is not behind a view that is final until its next refresh.
    ahead = min(uppers)
    return _lag_ms(upper, ahead if ahead.is_empty else min(ahead, present))


def _present(snapshot: SystemSnapshot) -> Frontier:
    """The time before which tables and sources are complete; empty if there are none."""
    kinds = (ItemKind.TABLE, ItemKind.SOURCE)
    ids = [item.id for item in items(snapshot, *kinds) if item.id in snapshot.frontiers]
    return max((snapshot.frontiers[each].upper for each in ids), default=EMPTY_FRONTIER)


def _slowest(snapshot: SystemSnapshot, inputs: Iterable[GlobalId]) -> GlobalId | None:
    return min(inputs, key=lambda each: snapshot.frontiers[each].upper, default=None)


def wallclock_global_lag(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for object_id, each in snapshot.frontiers.items():
        yield object_id, each.behind_ms(snapshot.now_ms)


def source_statistics(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for object_id, s in snapshot.source_statistics.items():
        yield (
            object_id,
            snapshot.running_on.get(object_id),
            s.messages_received,
            s.bytes_received,
            s.updates_staged,
            s.updates_committed,
            *[None] * _NOT_COUNTED,
            s.snapshot_records_known,
            s.snapshot_records_staged,
            s.snapshot_committed,
            s.offset_known,
            s.offset_committed,
            s.rows_skipped,
        )


def source_partitions(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for object_id, partitions in snapshot.source_partitions.items():
        for each in partitions:
            lag = None if each.known is None else each.known - each.committed
            yield object_id, each.partition, each.known, each.committed, lag


def sink_statistics(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for object_id, s in snapshot.sink_statistics.items():
        yield (
            object_id,
            snapshot.running_on.get(object_id),
            s.messages_staged,
            s.messages_committed,
            s.bytes_staged,
            s.bytes_committed,
            s.snapshot_records_known,
            s.snapshot_records_staged,
        )


def _statuses(
    snapshot: SystemSnapshot, kind: ItemKind, type_of: Callable[[CatalogItem], str]
) -> Iterator[SystemRow]:
    for item in items(snapshot, kind):
        # A table of a source, or its progress relation, is as the source is.
        change = snapshot.statuses.get(item.feeder or item.id)
        known = (
            (None, "created", None, None)
            if change is None
            else (moment(change.occurred_at_ms), *_told(change.status))
        )
        yield item.id, item.name, type_of(item), *known


def _told(status: SourceStatus) -> tuple[str, str | None, str | None]:
    details = json.dumps(dict(status.details), default=str) if status.details else None
    return status.status, status.error, details


def source_statuses(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    yield from _statuses(snapshot, ItemKind.SOURCE, source_type)
    for item in items(snapshot, ItemKind.TABLE):
        if not isinstance(item.details, SourceTableDetails):
            continue
        source, export = item.details.source, item.details.export
        change, counted = snapshot.statuses.get(source), snapshot.source_statistics.get(source)
        if change is None:
            yield item.id, item.name, "table", None, "created", None, None
            continue
        # Until it has its first contents it is read for the first time, while its source goes on.
        is_copied = change.status.status == "running" and (
            counted is None or export not in counted.begun
        )
        status = SourceStatus("starting") if is_copied else change.status
        yield item.id, item.name, "table", moment(change.occurred_at_ms), *_told(status)


def source_status_history(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for change in snapshot.source_history:
        yield moment(change.occurred_at_ms), change.source_id, *_told(change.status), None


def sink_statuses(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    return _statuses(snapshot, ItemKind.SINK, sink_type)


def sessions(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for s in snapshot.sessions:
        yield s.id, s.connection_id, s.user, s.client_ip, moment(s.connected_ms)


def statement_waits(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for each in snapshot.waits:
        yield each.session_id, each.statement, each.waits_for


def subscriptions(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for s in snapshot.subscriptions:
        yield s.id, s.session_id, s.cluster_id, moment(s.created_ms), list(s.reads)


def notices(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for n in snapshot.notices:
        yield (
            n.id,
            n.notice_type,
            n.message,
            n.hint,
            n.action,
            n.message,
            n.hint,
            n.action,
            n.action_type,
            n.object_id,
            moment(n.created_ms),
        )


def read_holds(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for hold in snapshot.read_holds:
        for global_id in sorted(hold.ids):
            yield global_id, hold.holder.name, hold.holder.kind.value, hold.since


def recent_ticks(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for told in snapshot.ticks:
        tick = told.record
        yield (
            tick.global_id,
            told.replica,
            tick.lower,
            tick.upper,
            moment(tick.committed_ms),
            tick.by_program,
            tick.scanned,
            tick.looked_up,
            tick.emitted,
            tick.times.plan_us,
            tick.times.load_us,
            tick.times.compute_us,
            tick.times.encode_us,
            tick.times.commit_us,
        )


def recent_tick_steps(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for told in snapshot.ticks:
        tick = told.record
        for number, step in enumerate(tick.steps):
            yield (
                tick.global_id,
                told.replica,
                tick.upper,
                number,
                step.operator,
                step.emitted,
                step.looked_up,
                step.elapsed_us,
                step.mode,
                step.reads,
            )


def arrangement_sizes(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for told in snapshot.arrangements:
        each = told.record
        yield (
            str(each.number),
            told.replica,
            list(each.collections),
            each.records,
            each.size_bytes,
            list(each.readers),
        )


def storage_shards(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for item in items(snapshot):
        for shard_id in shards_of(item):
            yield item.id, str(shard_id)


def recent_storage_usage(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    sizes = {each.shard_id: each.size_bytes for each in snapshot.usage}
    for item in items(snapshot):
        if shard_ids := shards_of(item):
            yield item.id, sum(sizes.get(shard_id, 0) for shard_id in shard_ids)


def shard_usage(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    owners = {s: item.id for item in items(snapshot) for s in shards_of(item)}
    for each in snapshot.usage:
        state = "finalized" if each.finalized else "dropped" if each.dropped else "live"
        yield (
            str(each.shard_id),
            owners.get(each.shard_id),
            state,
            each.parts,
            each.rows,
            each.size_bytes,
            each.garbage_bytes,
        )


def changefeed_partitions(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for each in snapshot.partitions:
        resolved, counters = each.resolved, each.counters
        yield (
            each.source_id,
            each.partition,
            each.status,
            *(
                None if time is None else str(time)
                for time in (resolved, each.committed, each.proposed)
            ),
            None if resolved is None else max(0, snapshot.now_ms - resolved.nanos // 1_000_000),
            each.waiting,
            counters.rows,
            counters.late,
            counters.repeated,
            counters.dead,
        )
