"""The ingestion of a topic: each step takes what has come since the last one.

The first step is the snapshot: everything up to the ends that the partitions had when it began, in
one commit. It is read in several polls, which say how far they are.

**State.** ``{"version": 1}``: the frontier says how far each partition was read, the collection has
the rows of keys, and the definition has the identity of the topic.

**What may pass and what not.** A broker that does not answer is asked again. A topic that is
another one, and offsets that are gone, stop the source: what it has stays as it is.

**Tables.** A source without rows of its own has tables, which come and go while it runs. Each has
an envelope, and takes all messages. One that comes later is copied (`copying`), and begins with the
step at whose frontier its copy is whole. So is one whose messages are read again: the copy then
takes its place. Without tables nothing is read: the frontier goes to the ends, as no relation
misses what is before it.

Source: spec controllers 5.1 to 5.5; docs/decisions 0069.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.repr.dataflow_error import error_rows
from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.repr.relation import DIFF_COLUMN
from slackwater.storage.copying import Room
from slackwater.storage.ingestion import (
    ADVICE_WHERE_REPLACED,
    IngestionProgress,
    IngestionStep,
    Resnapshot,
    SourceStatistics,
    SourceStatus,
    StepSuperseded,
)
from slackwater.storage.kafka.copying import Copy
from slackwater.storage.kafka.envelopes import Changes, Envelope
from slackwater.storage.kafka.rereading import Rereading
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

    `export` and `dead_letters` are the names of its collections; None: it has no rows of its own,
    and no dead letters.
    """

    name: str
    topic: str
    identity: TopicIdentity
    export: str | None
    dead_letters: str | None = None
    start_offsets: Sequence[int] = ()


class TopicTables(Protocol):
    """The tables of a source, by the names of their exports, as the catalog has them now."""

    @property
    def begun(self) -> frozenset[str]:
        """Those that had their first contents when the ingestion was made."""
        ...

    def names(self) -> Collection[str]:
        """The tables that there are."""
        ...

    def envelope(self, name: str) -> Envelope | None:
        """The envelope of a table, with what its collection has; None: it was dropped meanwhile.

        Raises SLACKWATER_SOURCE_BAD_MESSAGE.
        """
        ...

    def letters(self, name: str) -> str | None:
        """The export of a table's dead letters; None: it has none, or was dropped meanwhile."""
        ...

    def upstream(self, name: str) -> Upstream:
        """The topic for what copies messages for the table."""
        ...


class KafkaIngestion:
    """The ingestion of one topic with one relation, or with tables.

    Promise: at each time a relation has what its envelope makes of the messages before the
    frontier that the remap has then, and of no other; a table has nothing until it has that. It
    does not promise that messages that compaction or retention has removed before they were read
    were ever seen.
    """

    def __init__(
        self,
        config: KafkaConfig,
        upstream: Upstream,
        envelope: Envelope | None,
        frontier: SourceFrontier | None,
        tables: TopicTables | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`frontier` None: nothing was read yet. The source has `envelope`, or `tables`.

        `check` raises `StepSuperseded` once the definition is another one: this one reads nothing
        more then, and sets `superseded`.
        """
        self._config = config
        self._upstream = upstream
        self._tables = tables
        self._exports: dict[str, Envelope] = {}
        self._letters: dict[str, str | None] = {}
        if envelope is not None and config.export is not None:
            self._exports[config.export] = envelope
            self._letters[config.export] = config.dead_letters
        self._begun = frozenset[str]() if tables is None else tables.begun
        self._joined: list[str] = []
        self._copies: dict[str, Copy] = {}
        self._last_step = (0, 0)
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
        self._again = Rereading()
        self._check = check
        self.superseded = threading.Event()

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

        For sources with rows by key. Any thread may call this.
        """
        self._wanted = self._wanted or Resnapshot()
        return self._wanted

    def resnapshot_tables(self, names: frozenset[str]) -> Resnapshot:
        """Reads the topic from its beginning again for tables, which go on meanwhile.

        For tables with rows by key, by the names of their exports. Any thread may call this.
        """
        return self._again.ask(names)

    def poll(self, now_ms: int) -> IngestionStep | IngestionProgress | None:
        try:
            self._check()
        except StepSuperseded:
            self.superseded.set()
            raise
        if self._pending is not None:
            return self._pending
        try:
            self._follow_catalog()
            topic = self._connected(now_ms)
            if self._wanted is not None:
                self._begin_anew(topic, self._wanted)
            self._read_copies(topic)
            if self._frontier is not None and self._anew is None:
                self._read_some(topic)
            elif not self._read_snapshot(topic):
                return self._progress()
            step = self._step(topic)
            is_copying = bool(self._copies or self._again.copies)
            return self._progress() if step is None and is_copying else step
        except OffsetsLost as lost:
            self.close()
            self._go_on_behind(lost)
            return self.poll(now_ms)
        except BaseException:
            # What the client has given and no step has is read again, from where steps are.
            self.close()
            raise

    def committed(self, step: IngestionStep) -> None:
        for envelope in self._exports.values():
            envelope.committed()
        self._begun |= frozenset(self._joined)
        self._again.committed(self._joined)
        self._joined = []
        self._frontier = step.frontier
        self._reported = step.status
        self._pending, self._lost, self._skips_lost = None, None, False
        self._last_step = (self._messages, self._size_bytes)
        self._messages = self._size_bytes = 0
        if self._anew is not None:
            self._anew.done.set()
            self._anew = None
        if self._topic is not None:
            self._topic.tell(self._positions)

    def close(self) -> None:
        self._topic = None
        self._upstream.forget()
        for copy in self._copies.values():
            copy.close()
        self._again.close()

    def ends(self) -> Mapping[int, int]:
        """The end of each partition, as far as brokers have said it with what was read last."""
        return {} if self._topic is None else self._topic.said_ends(sorted(self._positions))

    def _follow_catalog(self) -> None:
        """Goes on with the tables that there are now."""
        if self._tables is None:
            return
        had, names = bool(self._exports), self._tables.names()
        self._exports = {name: each for name, each in self._exports.items() if name in names}
        self._joined = [name for name in self._joined if name in names]
        for name in [each for each in self._copies if each not in names]:
            self._copies.pop(name).close()
        for name in names:
            if name in self._exports or name in self._copies:
                continue
            envelope = self._tables.envelope(name)
            if envelope is None:
                continue
            self._letters[name] = self._tables.letters(name)
            if name in self._begun:
                self._exports[name] = envelope
            elif self._frontier is None and self._snapshot_ends is None:
                self._exports[name] = envelope
                self._joined.append(name)
            else:
                self._copies[name] = self._copy(self._tables, name, envelope)
        self._again.follow(self._exports, self._copies, partial(self._copy, self._tables))
        if self._topic is not None and had != bool(self._exports):
            self._assign(self._topic)

    def _copy(self, tables: TopicTables, name: str, envelope: Envelope) -> Copy:
        return Copy(envelope, tables.upstream(name), self._config.start_offsets)

    def _read_copies(self, topic: Topic) -> None:
        """Reads on for the tables that are copied; those whose copy is whole belong to the step."""
        had, room = bool(self._exports), Room().beside(*self._last_step)
        for name in list(self._copies):
            if (envelope := self._copied(self._copies, name, room)) is not None:
                self._exports[name] = envelope
                self._joined.append(name)
        for name in list(self._again.copies):
            if (envelope := self._copied(self._again.copies, name, room)) is not None:
                self._exports[name] = envelope
                self._again.place(name)
        if had != bool(self._exports):
            self._assign(topic)

    def _copied(self, copies: dict[str, Copy], name: str, room: Room) -> Envelope | None:
        """Reads on for one table. Its envelope once its copy is whole."""
        copy = copies[name]
        try:
            is_whole = copy.read(self._positions, room, self._check_same)
        except BaseException as error:
            copies.pop(name).close()
            if not isinstance(error, OffsetsLost):
                raise
            return None  # retention has removed what comes next: it begins anew behind that
        if not is_whole:
            return None
        copies.pop(name).close()
        return copy.envelope

    def _check_same(self, topic: Topic) -> None:
        """Raises SLACKWATER_SOURCE_REPLACED."""
        before = self._config.identity.topic
        self._refuse(f"the topic {self._config.topic}", before, topic.topic_id())

    def _assign(self, topic: Topic) -> None:
        topic.assign(self._positions if self._exports else {})

    def _abandon(self) -> None:
        """Begins the step again: not all relations have what was taken since the last one."""
        for name in self._joined:
            del self._exports[name]
        self._joined = []
        for envelope in self._exports.values():
            envelope.abandon()
        self._again.abandoned()
        self._positions = {} if self._frontier is None else _positions(self._frontier)
        if self._frontier is None:
            self._snapshot_ends = None
        if self._anew is not None:
            self._wanted, self._anew = self._anew, None
        self._messages = self._size_bytes = 0

    def _connected(self, now_ms: int) -> Topic:
        """The topic, which is the one that the source was created for, with all partitions."""
        topic = self._upstream.topic()
        is_new = topic is not self._topic
        if is_new or now_ms - self._checked_ms >= CHECK_MS:
            has_more = self._checked(topic)
            self._checked_ms = now_ms
            if is_new or has_more:
                self._assign(topic)
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
                advice=ADVICE_WHERE_REPLACED,
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
        for envelope in self._exports.values():
            envelope.begin_anew()
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
        if not self._exports:
            self._go_to_ends(topic)
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
        if not self._exports:
            self._go_to_ends(topic)
            return
        while self._messages < STEP_MESSAGES and self._size_bytes < STEP_BYTES:
            if not self._read(topic, 0):
                return

    def _go_to_ends(self, topic: Topic) -> None:
        ends = topic.ends(sorted(self._positions))
        self._positions.update({p: max(at, ends[p]) for p, at in self._positions.items()})

    def _read(self, topic: Topic, wait_ms: int) -> bool:
        """Whether a read has brought the source on; what it brought belongs to the step."""
        read = topic.read(READ_MESSAGES, wait_ms)
        if len(read.messages):
            try:
                for envelope in self._exports.values():
                    envelope.take(read.messages)
            except BaseException:
                self._abandon()
                raise
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
        is_first = self._frontier is None
        known = sum((self._snapshot_ends or {}).values()) - self._before
        staged = sum(self._positions.values()) - self._before
        if not is_first and self._anew is None:
            # Only tables are copied: how far they are.
            copies = [*self._copies.values(), *self._again.copies.values()]
            known = sum(self._positions.values()) * len(copies)
            staged = sum(copy.read_so_far for copy in copies)
        return IngestionProgress(
            SourceStatus("starting" if is_first else "running"),
            SourceStatistics(
                messages_received=self._messages,
                bytes_received=self._size_bytes,
                snapshot_records_known=known,
                snapshot_records_staged=staged,
            ),
        )

    def _step(self, topic: Topic) -> IngestionStep | None:
        """The step of what was read; None when nothing is new.

        The topic is looked at once more: whoever reads by its name reads another one that was made
        meanwhile. A topic that is still the same then has been the same all the time.
        """
        frontier = _frontier(self._positions)
        is_news = frontier != self._frontier or self._anew is not None or bool(self._joined)
        is_news = is_news or self._again.has_placed
        if not is_news and self._reported is not None:
            return None
        changes = {name: each.changes() for name, each in self._exports.items()}
        self._check_same(topic)
        updates: dict[str, pa.Table | StagedRows] = {}
        dead = 0
        for name, each in changes.items():
            if each.rows is not None:
                updates[name] = each.rows
            into = self._letters[name]
            if into is not None and each.letters is not None:
                # A new table has none of what is before the frontier.
                is_new = name in self._joined
                letters = each.letters if is_new else _behind(each.letters, self._frontier)
                if letters.num_rows:
                    updates[into] = letters
                    dead += pc.sum(pc.greater(letters[DIFF_COLUMN], 0)).as_py()
        errors = {
            name: error_rows(list(each.errors)) for name, each in changes.items() if each.errors
        }
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
                updates_staged=sum(each.count for each in changes.values()),
                rows_skipped=sum(each.left_out for each in changes.values()),
                offset_known=reached,
                offset_committed=reached,
                snapshot_committed=True,
                snapshot_records_known=snapshot,
                snapshot_records_staged=snapshot,
                begun=self._begins(),
                dead_letters=dead,
            ),
            errors=errors,
        )
        return self._pending

    def _begins(self) -> tuple[str, ...]:
        """The exports that begin with the next step: tables, and the dead letters of these."""
        letters = (self._letters[name] for name in self._joined)
        return (*self._joined, *(each for each in letters if each is not None))

    def _status(self, changes: Mapping[str, Changes]) -> SourceStatus:
        """The status once the step is committed: an error in the contents counts as stalled.

        Errors of a table are its own: the source goes on, and the other tables do.
        """
        own = self._config.export
        held = None if own is None else self._exports[own].error_after(changes[own])
        if held is None:
            return SourceStatus("running")
        error = user_error(
            "SLACKWATER_SOURCE_BAD_MESSAGE", objectName=self._config.name, cause=held
        )
        return SourceStatus("stalled", str(error), {"condition": error.condition})


def _behind(letters: pa.Table, frontier: SourceFrontier | None) -> pa.Table:
    """The dead letters that are not before a frontier.

    Those before it are there already, and may have been read again.
    """
    if frontier is None:
        return letters
    read = _positions(frontier)
    places = zip(letters["partition"].to_pylist(), letters["offset"].to_pylist(), strict=True)
    return letters.filter(pa.array([at >= read.get(each, 0) for each, at in places]))


def _positions(frontier: SourceFrontier) -> dict[int, int]:
    """The next offset of each partition that is known."""
    found = {each.partition: each.offset for each in frontier.positions}
    known = 0 if frontier.unread is None else frontier.unread.first
    return {**dict.fromkeys(range(known), 0), **found}


def _frontier(positions: Mapping[int, int]) -> SourceFrontier:
    places = (Position(partition, offset) for partition, offset in positions.items())
    return SourceFrontier.of([*places, Unread(len(positions))])
