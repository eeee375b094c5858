"""The ingestion of a topic: each step takes what has come since the last one.

The first step is the snapshot: everything up to the ends that the partitions had when it began, in
one commit. It is read in several polls, which say how far they are.

**State.** ``{"version": 1}``: the frontier says how far each partition was read, the collection has
the rows of keys, and the definition has the identity of the topic.

**What may pass and what not.** A broker that does not answer is asked again. A topic that is
another one, and offsets that are gone, stop the source: what it has stays as it is.

Source: spec controllers 5.1 to 5.5; docs/decisions 0069.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from slackwater.repr.dataflow_error import error_rows
from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.storage.ingestion import (
    IngestionProgress,
    IngestionStep,
    SourceStatistics,
    SourceStatus,
)
from slackwater.storage.kafka.envelopes import Changes, Envelope
from slackwater.storage.kafka.topic import OffsetsLost, Topic, TopicIdentity, Upstream
from slackwater.storage.pieces import StagedRows
from slackwater.storage.source_time import Position, SourceFrontier, Unread

STEP_MESSAGES = 200_000
STEP_BYTES = 64 * 1024 * 1024
"""A step after the first takes about so much, or less."""
READ_MESSAGES = 20_000
SNAPSHOT_WAIT_MS = 200
CHECK_MS = 10_000
"""The time between two looks at the topic's identity and the number of its partitions."""
_STATE = '{"version": 1}'


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """The description of a source. `start_offsets` are those of its first partitions, in order.

    `export` and `dead_letters` are the names of its collections; None: it has no dead letters.
    """

    name: str
    topic: str
    identity: TopicIdentity
    export: str
    dead_letters: str | None = None
    start_offsets: Sequence[int] = ()


class Resnapshot:
    """A request to read a topic from its beginning again. `done` is set once that is durable."""

    def __init__(self) -> None:
        self.done = threading.Event()


class KafkaIngestion:
    """The ingestion of one topic with one relation.

    Promise: at each time the relation has what its envelope makes of the messages before the
    frontier that the remap has then, and of no other. It does not promise that messages that
    compaction or retention has removed before they were read were ever seen.
    """

    def __init__(
        self,
        config: KafkaConfig,
        upstream: Upstream,
        envelope: Envelope,
        frontier: SourceFrontier | None,
    ) -> None:
        """`frontier` None: nothing was read yet."""
        self._config = config
        self._upstream = upstream
        self._envelope = envelope
        self._frontier = frontier
        self._positions = {} if frontier is None else _positions(frontier)
        self._snapshot_ends: Mapping[int, int] | None = None
        self._before = 0
        self._topic: Topic | None = None
        self._checked_ms = 0
        self._messages = self._size_bytes = 0
        self._pending: IngestionStep | None = None
        self._reported: SourceStatus | None = None
        self._lost: OffsetsLost | None = None
        self._skips_lost = False
        self._wanted: Resnapshot | None = None
        self._anew: Resnapshot | None = None

    def skip_lost(self) -> OffsetsLost | None:
        """Goes on with the first messages that are there, where others are gone now.

        Returns the first that is gone; None: nothing is, and nothing happens. Any thread may call
        this.
        """
        lost = self._lost
        self._skips_lost = lost is not None
        return lost

    def resnapshot(self) -> Resnapshot:
        """Reads the topic from its beginning again, and commits the difference to what there is.

        For sources with ENVELOPE UPSERT. Any thread may call this.
        """
        self._wanted = self._wanted or Resnapshot()
        return self._wanted

    def poll(self, now_ms: int) -> IngestionStep | IngestionProgress | None:
        if self._pending is not None:
            return self._pending
        try:
            topic = self._connected(now_ms)
            if self._wanted is not None:
                self._begin_anew(topic, self._wanted)
            if self._frontier is not None and self._anew is None:
                self._read_some(topic)
            elif not self._read_snapshot(topic):
                return self._progress()
            return self._step(topic)
        except OffsetsLost as lost:
            self.close()
            self._go_on_behind(lost)
            return self.poll(now_ms)
        except BaseException:
            # What the client has given and no step has is read again, from where steps are.
            self.close()
            raise

    def committed(self, step: IngestionStep) -> None:
        self._envelope.committed()
        self._frontier = step.frontier
        self._reported = step.status
        self._pending, self._lost, self._skips_lost = None, None, False
        self._messages = self._size_bytes = 0
        if self._anew is not None:
            self._anew.done.set()
            self._anew = None
        if self._topic is not None:
            self._topic.tell(self._positions)

    def close(self) -> None:
        self._topic = None
        self._upstream.forget()

    def _connected(self, now_ms: int) -> Topic:
        """The topic, which is the one that the source was created for, with all partitions."""
        topic = self._upstream.topic()
        is_new = topic is not self._topic
        if is_new or now_ms - self._checked_ms >= CHECK_MS:
            has_more = self._checked(topic)
            self._checked_ms = now_ms
            if is_new or has_more:
                topic.assign(self._positions)
        self._topic = topic
        return topic

    def _checked(self, topic: Topic) -> bool:
        """Whether the topic has partitions that were not known; they are from now on.

        Raises SLACKWATER_SOURCE_REPLACED.
        """
        state, before = topic.state(), self._config.identity
        self._refuse("the Kafka cluster", before.cluster, state.identity.cluster)
        self._refuse(f"the topic {self._config.topic}", before.topic, state.identity.topic)
        fresh = [each for each in range(state.partitions) if each not in self._positions]
        if fresh and self._frontier is None and self._snapshot_ends is None:
            self._begin(topic, fresh)
        else:
            self._positions.update(dict.fromkeys(fresh, 0))
        return bool(fresh)

    def _refuse(self, what: str, before: str, now: str) -> None:
        if before != now:
            raise user_error(
                "SLACKWATER_SOURCE_REPLACED",
                objectName=self._config.name,
                what=what,
                before=before,
                now=now,
            )

    def _begin(self, topic: Topic, partitions: Sequence[int]) -> None:
        """Begins the snapshot. What retention has removed before that is not missed."""
        given = dict(enumerate(self._config.start_offsets))
        first = topic.beginnings(partitions)
        self._snapshot_ends = topic.ends(partitions)
        for each in partitions:
            self._positions[each] = max(given.get(each, 0), first[each])
        self._before = sum(self._positions.values())

    def _begin_anew(self, topic: Topic, wanted: Resnapshot) -> None:
        """Begins another snapshot, which ends where the source is already, or behind that.

        Raises SLACKWATER_SOURCE_HISTORY_LOST when the topic ends before it.
        """
        known = sorted(self._positions)
        first, ends = topic.beginnings(known), topic.ends(known)
        reached = {} if self._frontier is None else _positions(self._frontier)
        for partition, offset in reached.items():
            if ends[partition] < offset:
                raise self._history_lost(partition, offset, first[partition], ends[partition])
        self._positions, self._snapshot_ends = dict(first), ends
        self._before = sum(first.values())
        self._messages = self._size_bytes = 0
        self._envelope.begin_anew()
        topic.assign(self._positions)
        self._anew, self._wanted = wanted, None

    def _history_lost(self, partition: int, offset: int, first: int, end: int) -> SlackwaterError:
        return user_error(
            "SLACKWATER_SOURCE_HISTORY_LOST",
            objectName=self._config.name,
            what=f"the partition {partition} of the topic {self._config.topic} has no message "
            f"{offset} any more; its messages go from {first} to {end}",
            advice=f"ALTER SOURCE {self._config.name} SKIP LOST goes on with the first that is "
            f"there; with ENVELOPE UPSERT, ALTER SOURCE {self._config.name} RESNAPSHOT reads "
            "everything again.",
        )

    def _read_snapshot(self, topic: Topic) -> bool:
        """Reads a part of the snapshot. Whether it is whole now."""
        before_bytes = self._size_bytes
        while not self._snapshot_is_read():
            if self._size_bytes - before_bytes > STEP_BYTES:
                return False
            if not self._read(topic, SNAPSHOT_WAIT_MS):
                return False
        return True

    def _snapshot_is_read(self) -> bool:
        ends = self._snapshot_ends or {}
        return all(self._positions[each] >= end for each, end in ends.items())

    def _read_some(self, topic: Topic) -> None:
        """Reads what has come, within the bounds of a step."""
        while self._messages < STEP_MESSAGES and self._size_bytes < STEP_BYTES:
            if not self._read(topic, 0):
                return

    def _read(self, topic: Topic, wait_ms: int) -> bool:
        """Whether a read has brought the source on; what it brought belongs to the step."""
        read = topic.read(READ_MESSAGES, wait_ms)
        if len(read.messages):
            self._envelope.take(read.messages)
            self._messages += len(read.messages)
            self._size_bytes += read.messages.size_bytes
        moved = {
            partition: offset
            for partition, offset in read.positions.items()
            if offset > self._positions[partition]
        }
        self._positions.update(moved)
        return bool(moved)

    def _go_on_behind(self, lost: OffsetsLost) -> None:
        """Skips what is gone of a partition, if that was asked for.

        Raises SLACKWATER_SOURCE_HISTORY_LOST.
        """
        topic = self._upstream.topic()
        self._checked(topic)
        first = topic.beginnings([lost.partition])[lost.partition]
        if not self._skips_lost or first <= lost.offset:
            self._lost = lost
            end = topic.ends([lost.partition])[lost.partition]
            raise self._history_lost(lost.partition, lost.offset, first, end)
        self._positions[lost.partition] = first

    def _progress(self) -> IngestionProgress:
        return IngestionProgress(
            SourceStatus("starting" if self._frontier is None else "running"),
            SourceStatistics(
                messages_received=self._messages,
                bytes_received=self._size_bytes,
                snapshot_records_known=sum((self._snapshot_ends or {}).values()) - self._before,
                snapshot_records_staged=sum(self._positions.values()) - self._before,
            ),
        )

    def _step(self, topic: Topic) -> IngestionStep | None:
        """The step of what was read; None when nothing is new.

        The topic is looked at once more: whoever reads by its name reads another one that was made
        meanwhile. A topic that is still the same then has been the same all the time.
        """
        frontier = _frontier(self._positions)
        is_news = frontier != self._frontier or self._anew is not None
        if not is_news and self._reported is not None:
            return None
        changes = self._envelope.changes()
        self._refuse(
            f"the topic {self._config.topic}", self._config.identity.topic, topic.topic_id()
        )
        updates: dict[str, pa.Table | StagedRows] = {}
        if changes.rows is not None:
            updates[self._config.export] = changes.rows
        if changes.letters is not None and self._config.dead_letters is not None:
            updates[self._config.dead_letters] = changes.letters
        errors = error_rows(list(changes.errors)) if changes.errors else None
        reached = sum(self._positions.values())
        is_snapshot = self._frontier is None or self._anew is not None
        snapshot = reached - self._before if is_snapshot else None
        self._pending = IngestionStep(
            updates=updates,
            state=_STATE,
            frontier=frontier,
            status=self._status(changes),
            statistics=SourceStatistics(
                messages_received=self._messages,
                bytes_received=self._size_bytes,
                updates_staged=changes.count,
                rows_skipped=changes.left_out,
                offset_known=reached,
                offset_committed=reached,
                snapshot_committed=True,
                snapshot_records_known=snapshot,
                snapshot_records_staged=snapshot,
            ),
            errors={} if errors is None else {self._config.export: errors},
        )
        return self._pending

    def _status(self, changes: Changes) -> SourceStatus:
        """The status once the step is committed: an error in the contents counts as stalled."""
        held = self._envelope.error_after(changes)
        if held is None:
            return SourceStatus("running")
        error = user_error(
            "SLACKWATER_SOURCE_BAD_MESSAGE", objectName=self._config.name, cause=held
        )
        return SourceStatus("stalled", str(error), {"condition": error.condition})


def _positions(frontier: SourceFrontier) -> dict[int, int]:
    """The next offset of each partition that is known."""
    found = {each.partition: each.offset for each in frontier.positions}
    known = 0 if frontier.unread is None else frontier.unread.first
    return {**dict.fromkeys(range(known), 0), **found}


def _frontier(positions: Mapping[int, int]) -> SourceFrontier:
    places = (Position(partition, offset) for partition, offset in positions.items())
    return SourceFrontier.of([*places, Unread(len(positions))])
