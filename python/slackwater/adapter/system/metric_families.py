"""The metrics of an environment: each is a function of one snapshot.

Labels name objects by `object_id` alone; `slackwater_object_info` has the names, for joins. What is
not in the catalog has no series, whatever was counted of it. Source: console 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.adapter.controllers.dataflows import OfReplica
from slackwater.adapter.sessions.statement_counts import StatementTotals
from slackwater.adapter.sources.changefeed_sources import CheckpointProgress
from slackwater.adapter.sources.checkpoint_counts import CheckpointTotals, Timed
from slackwater.adapter.system import activity
from slackwater.adapter.system.exposition import Family, Kind, Sample, text
from slackwater.adapter.system.objects import items, type_name
from slackwater.adapter.system.snapshot import SystemSnapshot
from slackwater.adapter.writing.group_commit import CommitTotals
from slackwater.compute.records import ArrangementMemory, TickTotals
from slackwater.repr.durations import Durations
from slackwater.repr.hlc import Time
from slackwater.repr.ids import GlobalId
from slackwater.repr.version import VERSION
from slackwater.storage.ingestion import SourceStatistics
from slackwater.storage.sink_statistics import SinkStatistics

NANOS = 10**9
MS = 1000
METASTORE_AWAY = "SLACKWATER_METASTORE_UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class Totals:
    """The counts since the leader has begun."""

    statements: StatementTotals = field(default_factory=StatementTotals)
    commits: CommitTotals = field(default_factory=CommitTotals)
    checkpoints: CheckpointTotals = field(default_factory=CheckpointTotals)
    ticks: tuple[OfReplica[TickTotals], ...] = ()
    sink_ranges: Mapping[GlobalId, Durations] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """All that the metrics of a leader are made of, at one moment.

    `answers` says of each part that was asked whether it has answered in time; what it has is
    missing otherwise. `failing` are the views and indexes whose last tick has failed,
    and the views with an error at their last time. `shards` are those of each object that has some.
    `retained_bytes` is how much of its log the
    server of a source keeps.
    """

    system: SystemSnapshot
    epoch: int
    totals: Totals = field(default_factory=Totals)
    answers: Mapping[str, bool] = field(default_factory=dict)
    failing: frozenset[GlobalId] = frozenset()
    memory: tuple[OfReplica[ArrangementMemory], ...] = ()
    shards: Mapping[GlobalId, tuple[int, ...]] = field(default_factory=dict)
    checkpoints: Mapping[GlobalId, CheckpointProgress] = field(default_factory=dict)
    retained_bytes: Mapping[GlobalId, int] = field(default_factory=dict)


Samples = Callable[[MetricsSnapshot], Iterable[Sample]]
Label = TypeVar("Label", bound=str)


def _each(values: Callable[[MetricsSnapshot], Mapping[Label, float | Durations]]) -> Samples:
    """A sample for each of the values, whose key is its label."""
    return lambda snapshot: (((key,), value) for key, value in values(snapshot).items())


def _build_info(_: MetricsSnapshot) -> Iterator[Sample]:
    yield (VERSION,), 1


def _leader(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    yield (str(snapshot.epoch),), 1


def _answers(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    for part, has_answered in snapshot.answers.items():
        yield (part,), int(has_answered)


# Objects


def _objects(snapshot: MetricsSnapshot) -> Iterator[CatalogItem]:
    return (i for i in items(snapshot.system) if i.kind is not ItemKind.SYSTEM_TABLE)


def _object_info(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    for item in _objects(snapshot):
        yield (item.id, item.name, item.schema_name, type_name(item)), 1


def _wallclock_lag(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    for object_id, lag_ms in activity.wallclock_global_lag(snapshot.system):
        yield (object_id,), lag_ms / MS


def _materialization_lag(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    for object_id, lag_ms in activity.global_lags(snapshot.system):
        if lag_ms is not None:
            yield (object_id,), lag_ms / MS


def _hydrated(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    for object_id, replicas in snapshot.system.hydrated.items():
        yield (object_id,), int(any(replicas.values()))


def _read_holds(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    held: dict[GlobalId, int] = {}
    for hold in snapshot.system.read_holds:
        for each in hold.ids:
            held[each] = held.get(each, 0) + 1
    return (((object_id,), number) for object_id, number in held.items())


def _failing(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    for item in items(snapshot.system, ItemKind.MATERIALIZED_VIEW, ItemKind.INDEX):
        yield (item.id,), int(item.id in snapshot.failing)


# Ticks


def _ticks(snapshot: MetricsSnapshot) -> Iterator[tuple[str, str, TickTotals]]:
    for told in snapshot.totals.ticks:
        yield told.record.global_id, told.replica, told.record


def _tick_durations(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    for object_id, replica, each in _ticks(snapshot):
        for mode, took in (("follow", each.followed), ("recompute", each.recomputed)):
            if took.number:
                yield (object_id, replica, mode), took


def _tick_rows(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    for object_id, replica, each in _ticks(snapshot):
        yield (object_id, replica, "emitted"), each.emitted
        yield (object_id, replica, "looked_up"), each.looked_up
        yield (object_id, replica, "scanned"), each.scanned


def _view_failures(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    for object_id, replica, each in _ticks(snapshot):
        for failure in each.failures:
            yield (object_id, replica, failure.condition), failure.number


def _arrangement_bytes(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    for told in snapshot.memory:
        yield (told.replica, told.record.where), told.record.used_bytes


def _arrangement_limits(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    for told in snapshot.memory:
        yield (told.replica, told.record.where), told.record.limit_bytes


# Statements and commits


def _statements(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    yield from snapshot.totals.statements.ended.items()


def _sessions(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    yield (), len(snapshot.system.sessions)


def _subscribes(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    yield (), len(snapshot.system.subscriptions)


def _commits(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    yield (), snapshot.totals.commits.took


def _commit_failures(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    # A series that begins with its first failure would not be seen to grow by it.
    counted = {METASTORE_AWAY: 0, **snapshot.totals.commits.failures}
    return (((each,), number) for each, number in counted.items())


# Storage


def _of_shards(size: Callable[[SystemSnapshot], Mapping[int, int]]) -> Samples:
    def samples(snapshot: MetricsSnapshot) -> Iterator[Sample]:
        sizes = size(snapshot.system)
        if not snapshot.system.usage:
            return
        for object_id, shards in snapshot.shards.items():
            yield (object_id,), sum([sizes.get(each, 0) for each in shards])

    return samples


def _shard_sizes(system: SystemSnapshot) -> Mapping[int, int]:
    return {each.shard_id: each.size_bytes for each in system.usage}


def _garbage_sizes(system: SystemSnapshot) -> Mapping[int, int]:
    return {each.shard_id: each.garbage_bytes for each in system.usage}


def _dropped_garbage(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    gone = [each for each in snapshot.system.usage if each.dropped]
    if snapshot.system.usage:
        yield (), sum(each.size_bytes + each.garbage_bytes for each in gone)


# Sources and sinks


def _of_sources(value: Callable[[SourceStatistics], int]) -> Samples:
    return _each(lambda s: {k: value(each) for k, each in s.system.source_statistics.items()})


def _partitions(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    for object_id, partitions in snapshot.system.source_partitions.items():
        for each in partitions:
            yield (object_id, str(each.partition)), each.committed


def _known_partitions(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    for object_id, partitions in snapshot.system.source_partitions.items():
        for each in partitions:
            if each.known is not None:
                yield (object_id, str(each.partition)), each.known


def _dead_letters(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    for object_id, each in snapshot.system.source_statistics.items():
        progress = snapshot.checkpoints.get(object_id)
        yield (object_id,), each.dead_letters + (0 if progress is None else progress.dead)


def _statuses(kind: ItemKind) -> Samples:
    def samples(snapshot: MetricsSnapshot) -> Iterator[Sample]:
        for item in items(snapshot.system, kind):
            change = snapshot.system.statuses.get(item.id)
            if change is not None:
                yield (item.id, change.status.status), 1

    return samples


def _of_sinks(value: Callable[[SinkStatistics], int]) -> Samples:
    return _each(lambda s: {k: value(each) for k, each in s.system.sink_statistics.items()})


def _sink_frontiers(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    for item in items(snapshot.system, ItemKind.SINK):
        reached = snapshot.system.frontiers.get(item.id)
        if reached is not None and not reached.upper.is_empty:
            yield (item.id,), reached.upper.value / MS


def _sink_ranges(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    return (((each,), took) for each, took in snapshot.totals.sink_ranges.items() if took.number)


def _kafka_transactions(snapshot: MetricsSnapshot) -> Iterator[Sample]:
    for object_id, each in snapshot.system.sink_statistics.items():
        if each.transactions_committed or each.transactions_aborted:
            yield (object_id, "committed"), each.transactions_committed
            yield (object_id, "aborted"), each.transactions_aborted


# Checkpoint groups


def _checkpoints_took(what: Timed) -> Samples:
    def samples(snapshot: MetricsSnapshot) -> Iterator[Sample]:
        for (done, object_id), took in snapshot.totals.checkpoints.took.items():
            if done == what:
                yield (object_id,), took

    return samples


def _checkpoint_times(which: Callable[[CheckpointProgress], Time | None]) -> Samples:
    def samples(snapshot: MetricsSnapshot) -> Iterator[Sample]:
        for object_id, each in snapshot.checkpoints.items():
            if (time := which(each)) is not None:
                yield (object_id,), time.nanos / NANOS

    return samples


def _checkpoint_ages(which: Callable[[CheckpointProgress], Time | None]) -> Samples:
    times = _checkpoint_times(which)

    def samples(snapshot: MetricsSnapshot) -> Iterator[Sample]:
        for labels, seconds in times(snapshot):
            assert isinstance(seconds, float)
            yield labels, max(0.0, snapshot.system.now_ms / MS - seconds)

    return samples


def _family(
    name: str, kind_and_labels: str, help_text: str, samples: Samples
) -> Family[MetricsSnapshot]:
    """The family of a name behind ``slackwater_``; `kind_and_labels` are words, the kind first.

    Of objects that are not in the catalog it has no samples.
    """
    word, *labels = kind_and_labels.split()

    def present(snapshot: MetricsSnapshot) -> Iterable[Sample]:
        known = snapshot.system.catalog.items
        return [each for each in samples(snapshot) if each[0][0] in known]

    chosen = present if labels[:1] == ["object_id"] else samples
    return Family(f"slackwater_{name}", Kind(word), help_text, tuple(labels), chosen)


FAMILIES: tuple[Family[MetricsSnapshot], ...] = (
    _family("build_info", "gauge version", "The version of the leader; 1.", _build_info),
    _family("leader", "gauge epoch", "The epoch of the leader that answers; 1.", _leader),
    _family(
        "scrape_part_answers",
        "gauge part",
        "Whether a part has answered this scrape in time: 1 or 0. At 0 its metrics are missing.",
        _answers,
    ),
    _family(
        "object_info",
        "gauge object_id name schema type",
        "The name, the schema and the type of each object of users; 1.",
        _object_info,
    ),
    # Freshness
    _family(
        "wallclock_lag_seconds",
        "gauge object_id",
        "How far each object is behind the clock; 0 of one that is complete for ever.",
        _wallclock_lag,
    ),
    _family(
        "materialization_lag_seconds",
        "gauge object_id",
        "How far each materialized view, index and sink is behind the tables and sources below it.",
        _materialization_lag,
    ),
    _family(
        "hydrated",
        "gauge object_id",
        "Whether a replica has the contents of a materialized view or an index: 1 or 0.",
        _hydrated,
    ),
    _family(
        "read_holds",
        "gauge object_id",
        "How many holds keep the history of an object, those that the system needs among them.",
        _read_holds,
    ),
    # Maintenance
    _family(
        "view_failing",
        "gauge object_id",
        "Whether the last tick of a materialized view or an index has failed, or the view has an"
        " error because of a row: 1 or 0.",
        _failing,
    ),
    _family(
        "view_failures_total",
        "counter object_id replica_id condition",
        "Ticks, and plans, of a materialized view or an index that have failed.",
        _view_failures,
    ),
    _family(
        "tick_duration_seconds",
        "histogram object_id replica_id mode",
        "How long committed ticks took. mode: follow, by the view's program; or recompute.",
        _tick_durations,
    ),
    _family(
        "tick_rows_total",
        "counter object_id replica_id kind",
        "Rows of ticks. kind: emitted by them, looked_up in arrangements, scanned in whole inputs.",
        _tick_rows,
    ),
    _family(
        "arrangement_bytes",
        "gauge replica_id where",
        "What the arrangements of a replica take. where: memory of the driver, or files.",
        _arrangement_bytes,
    ),
    _family(
        "arrangement_limit_bytes",
        "gauge replica_id where",
        "What the arrangements of a replica may take.",
        _arrangement_limits,
    ),
    # Statements
    _family(
        "statements_total",
        "counter statement_type status",
        "Statements that have ended. statement_type: select, insert, create_table and so on, as in"
        " mz_recent_activity_log. status: success, error or canceled.",
        _statements,
    ),
    _family(
        "statement_seconds",
        "histogram statement_type",
        "How long the coordinator has worked for a statement; Spark's work is not in it.",
        _each(lambda s: s.totals.statements.took),
    ),
    _family(
        "statement_wait_seconds",
        "histogram statement_type",
        "How long a statement has waited until what it reads was complete; a part of"
        " statement_seconds.",
        _each(lambda s: s.totals.statements.waited),
    ),
    _family("active_sessions", "gauge", "Sessions that are connected.", _sessions),
    _family("active_subscribes", "gauge", "Subscriptions that run.", _subscribes),
    _family(
        "commit_seconds",
        "histogram",
        "How long group commits took, those without writes among them.",
        _commits,
    ),
    _family(
        "commit_failures_total",
        "counter condition",
        "Group commits that have failed.",
        _commit_failures,
    ),
    # Storage
    _family(
        "shard_bytes",
        "gauge object_id",
        "What the contents of an object take, in files and in the metastore.",
        _of_shards(_shard_sizes),
    ),
    _family(
        "garbage_bytes",
        "gauge object_id",
        "What files of an object take that nothing refers to and that are not deleted yet.",
        _of_shards(_garbage_sizes),
    ),
    _family(
        "dropped_bytes",
        "gauge",
        "What files of objects take that were dropped, until they are deleted.",
        _dropped_garbage,
    ),
    # Sources
    _family(
        "source_messages_total",
        "counter object_id",
        "Messages that a source has received since it was created.",
        _of_sources(lambda each: each.messages_received),
    ),
    _family(
        "source_bytes_total",
        "counter object_id",
        "Bytes that a source has received since it was created.",
        _of_sources(lambda each: each.bytes_received),
    ),
    _family(
        "source_rows_skipped_total",
        "counter object_id",
        "Rows that ON ERROR SKIP has left out.",
        _of_sources(lambda each: each.rows_skipped),
    ),
    _family(
        "source_dead_letters_total",
        "counter object_id",
        "Messages that became dead letters. Of a changefeed, since its source runs.",
        _dead_letters,
    ),
    _family(
        "source_offset_known",
        "gauge object_id",
        "The position up to which the upstream is known to have something; a sum over partitions.",
        _of_sources(lambda each: each.offset_known),
    ),
    _family(
        "source_offset_committed",
        "gauge object_id",
        "The position up to which everything is committed here, in the same measure.",
        _of_sources(lambda each: each.offset_committed),
    ),
    _family(
        "source_partition_offset_committed",
        "gauge object_id partition",
        "The position in a partition before which everything is committed here.",
        _partitions,
    ),
    _family(
        "source_partition_offset_known",
        "gauge object_id partition",
        "The position in a partition of a topic up to which brokers have said that there is"
        " something, also what is not committed.",
        _known_partitions,
    ),
    _family(
        "source_status",
        "gauge object_id status",
        "The status of a source, such as running or stalled; 1.",
        _statuses(ItemKind.SOURCE),
    ),
    _family(
        "postgres_slot_retained_bytes",
        "gauge object_id",
        "How much of its log the server of a source keeps for the source's replication slot.",
        _each(lambda s: s.retained_bytes),
    ),
    # Changefeeds
    _family(
        "changefeed_landed_rows_total",
        "counter object_id",
        "Changes of rows that landed.",
        _each(lambda s: s.totals.checkpoints.landed),
    ),
    _family(
        "checkpoint_advance_duration_seconds",
        "histogram object_id",
        "How long it took to record a resolved timestamp of a checkpoint group.",
        _checkpoints_took("advance"),
    ),
    _family(
        "checkpoint_commit_duration_seconds",
        "histogram object_id",
        "How long it took to mark checkpoints of a group as applied.",
        _checkpoints_took("commit"),
    ),
    _family(
        "checkpoint_refresh_duration_seconds",
        "histogram object_id",
        "How long it took to read the state of a checkpoint group.",
        _checkpoints_took("refresh"),
    ),
    _family(
        "checkpoint_committed_timestamp_seconds",
        "gauge object_id",
        "The time up to which a checkpoint group is applied, since the epoch.",
        _checkpoint_times(lambda each: each.committed),
    ),
    _family(
        "checkpoint_committed_age_seconds",
        "gauge object_id",
        "How far that time is behind the clock.",
        _checkpoint_ages(lambda each: each.committed),
    ),
    _family(
        "checkpoint_proposed_timestamp_seconds",
        "gauge object_id",
        "The time up to which a checkpoint group is to be applied next, since the epoch.",
        _checkpoint_times(lambda each: each.proposed),
    ),
    _family(
        "checkpoint_proposed_age_seconds",
        "gauge object_id",
        "How far that time is behind the clock.",
        _checkpoint_ages(lambda each: each.proposed),
    ),
    _family(
        "checkpoint_proposed_going_backwards_errors_total",
        "counter object_id",
        "Resolved timestamps that were refused, because the feed had resolved a later one.",
        _each(lambda s: s.totals.checkpoints.backwards),
    ),
    # Sinks
    _family(
        "sink_messages_total",
        "counter object_id",
        "Messages that a sink has committed since the leader has begun; a row of a file is one.",
        _of_sinks(lambda each: each.messages_committed),
    ),
    _family(
        "sink_bytes_total",
        "counter object_id",
        "Bytes of these messages.",
        _of_sinks(lambda each: each.bytes_committed),
    ),
    _family(
        "sink_frontier_timestamp_seconds",
        "gauge object_id",
        "The time before which everything is written by a sink, since the epoch.",
        _sink_frontiers,
    ),
    _family(
        "sink_commit_seconds",
        "histogram object_id",
        "How long a sink took to write a range of updates, and to commit it.",
        _sink_ranges,
    ),
    _family(
        "sink_status",
        "gauge object_id status",
        "The status of a sink, such as running or stalled; 1.",
        _statuses(ItemKind.SINK),
    ),
    _family(
        "kafka_transactions_total",
        "counter object_id outcome",
        "Transactions of sinks that write to Kafka. outcome: committed or aborted.",
        _kafka_transactions,
    ),
)
"""All metrics, in the order of the reference page."""


def metrics_text(snapshot: MetricsSnapshot) -> bytes:
    """The metrics of the snapshot, as Prometheus reads them."""
    return text(FAMILIES, snapshot)
