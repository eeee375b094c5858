"""The ingestion of a changefeed: a step binds what has landed up to where all feeds have resolved.

**State.** ``{"version": 1, "feeds": {name: [rows, late, repeated, dead letters]}, "read": ...}``:
the partitions that are admitted with what was counted of them, and the last file that was read. The
frontier is in the remap, and what waits and what keys have is in the landing.

Source: spec checkpoint 5.4, 5.5.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Protocol

import pyarrow as pa

from slackwater.checkpoints.store import GroupState
from slackwater.repr.errors import FatalError, user_error
from slackwater.repr.hlc import ZERO, Range
from slackwater.repr.ids import GlobalId
from slackwater.storage.changefeed.admission import MINIMUM, admission
from slackwater.storage.changefeed.binding import (
    BindingRules,
    BindingWindow,
    BoundChanges,
    LateChange,
    Slot,
    bind,
)
from slackwater.storage.changefeed.encoding import time_at
from slackwater.storage.changefeed.landing import dead_letter_rows, landing_rows
from slackwater.storage.changefeed.messages import ChangeRecord
from slackwater.storage.changefeed.tables import Drift, FeedRow, FeedTable, Reader
from slackwater.storage.ingestion import (
    IngestionStep,
    SourceStatistics,
    SourceStatus,
    StepSuperseded,
)
from slackwater.storage.source_time import SourceFrontier


@dataclass(frozen=True, slots=True)
class ChangefeedConfig:
    """The description of a source. `landing` and `dead_letters` name these exports.

    `tables` are by their names in the upstream; the exports of those in `later`, which the source
    got while it ran, have other names.
    """

    name: str
    tables: Mapping[str, FeedTable]
    landing: str
    dead_letters: str
    later: Mapping[str, str] = field(default_factory=dict)
    feeds: tuple[str, ...] = ()
    lookahead: int | None = None
    is_strict: bool = False


@dataclass(frozen=True, slots=True)
class FeedCounters:
    """Counts of changes: bound, late, superfluous, and dead letters."""

    rows: int = 0
    late: int = 0
    repeated: int = 0
    dead: int = 0

    def after(self, rows: int, late: int, repeated: int, dead: int) -> FeedCounters:
        return FeedCounters(
            self.rows + rows, self.late + late, self.repeated + repeated, self.dead + dead
        )


class Arrivals(Protocol):
    """The changes that have landed since the ingestion began."""

    def take(self) -> Sequence[ChangeRecord] | None:
        """The changes since the last call; None: they are not certain, look at the landing."""

    def replay_requests(self) -> int:
        """The number of requests to try dead letters again."""

    def replayed(self, replay_requests: int, tried: int, left: int) -> None:
        """So many requests are granted: so many dead letters were tried, and some of them left."""


@dataclass(frozen=True, slots=True)
class Files:
    """The changes that were read of files, the name of the last file, and the number of bytes."""

    rows: Sequence[ChangeRecord]
    last: str | None
    size_bytes: int = 0


class FileReader(Protocol):
    def read(self, last: str | None) -> Files:
        """Reads the files behind `last`, up to the last that has resolved a time."""


@dataclass(frozen=True, slots=True)
class ChangefeedProgress:
    """The progress of a source, in offsets. `waiting` counts changes by feed."""

    lower: int = MINIMUM
    proposed: int = MINIMUM
    admitted: Mapping[str, FeedCounters] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Poll:
    bound: BoundChanges
    feeds: Mapping[str, FeedCounters]
    read: str | None
    fresh: Sequence[ChangeRecord]
    replay_requests: int
    again: Sequence[tuple[ChangeRecord, str]]
    dead: frozenset[Slot]


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs that an ingestion asks in each poll.

    `checkpoints` gives the group's state, for a lookahead or without one; `arrivals` brings what
    lands; `dead_letters` are those that there are now, with their reasons. `check` raises
    `StepSuperseded` once the source has other tables.
    """

    checkpoints: Callable[[int | None], GroupState]
    arrivals: Arrivals
    files: FileReader | None = None
    dead_letters: Callable[[], Sequence[tuple[ChangeRecord, str]]] = tuple
    check: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Durable:
    """The durable state from which an ingestion goes on.

    `waiting` and `images` are the rows of the landing that wait, and those that are bound. `begun`
    are the exports of later tables that have begun.
    """

    waiting: Sequence[ChangeRecord] = ()
    images: Sequence[ChangeRecord] = ()
    frontier: SourceFrontier | None = None
    state: str | None = None
    begun: frozenset[str] = frozenset()


class ChangefeedIngestion:
    """The ingestion of a changefeed: it binds what has landed when its feeds have resolved it.

    It does not guarantee that a change is bound soon: it waits until all admitted feeds have
    resolved its time. Nor does it commit anything: a step is derived, and is superseded when the
    stored state is another one.
    """

    def __init__(
        self, source_id: GlobalId, config: ChangefeedConfig, inputs: Inputs, durable: Durable
    ) -> None:
        self._source_id = source_id
        self._config = config
        self._checkpoints = inputs.checkpoints
        self._arrivals = inputs.arrivals
        self._files = inputs.files
        self._dead_letters = inputs.dead_letters
        self._check = inputs.check
        self._readers = {name: Reader(table) for name, table in config.tables.items()}
        self._waiting = list(durable.waiting)
        self._waiting_of = Counter(each.feed for each in durable.waiting)
        self._images: dict[Slot, ChangeRecord] = {
            (each.topic, each.key): each for each in durable.images
        }
        frontier = durable.frontier
        self._lower = MINIMUM if frontier is None else frontier.positions[0].offset
        self._state = durable.state
        found = {} if durable.state is None else json.loads(durable.state)
        self._feeds = {name: FeedCounters(*c) for name, c in found.get("feeds", {}).items()}
        self._read: str | None = found.get("read")
        self._dead = self._slots(letter for letter, _ in inputs.dead_letters())
        self._joining = {
            topic: export for topic, export in config.later.items() if export not in durable.begun
        }
        self._emptied: list[tuple[ChangeRecord, int]] = []
        self._forget_rows()
        self._last: _Poll | None = None
        self._look(self._lower)

    def _forget_rows(self) -> None:
        """Forgets the rows of keys of tables that are gone, and of those that have not begun.

        A table of before may have had its name. A deletion takes their place, which the landing
        keeps where it keeps those of others.
        """
        for slot, image in list(self._images.items()):
            if slot[0] in self._readers and slot[0] not in self._joining:
                continue
            deletion = replace(image, after=None)
            is_kept = self._keeps(slot, deletion, self._dead)
            if is_kept and deletion == image:
                continue
            self._emptied.append((image, -1))
            if is_kept:
                self._emptied.append((deletion, 1))
                self._images[slot] = deletion
            else:
                del self._images[slot]

    def poll(self, now_ms: int) -> IngestionStep | None:
        self._check()
        read = None if self._files is None else self._files.read(self._read)
        # First what was resolved, then what had landed before that.
        whole = self._checkpoints(None)
        lookahead = self._config.lookahead
        window = whole if lookahead is None else self._checkpoints(lookahead)
        arrived = self._arrivals.take()
        if arrived is None:
            raise StepSuperseded(self._source_id, 0, 0)
        self._waiting += arrived
        self._waiting_of.update(each.feed for each in arrived)
        fresh = () if read is None else read.rows
        admitted = frozenset(self._feeds)
        found = admission(whole, window, admitted, self._config.feeds, self._lower)
        self._look(found.upper)
        is_new = found.upper > self._lower or bool(found.joining or self._joining or self._emptied)
        replay_requests = self._arrivals.replay_requests()
        if not is_new and not fresh and not replay_requests and self._state is not None:
            return None
        again = self._dead_letters() if replay_requests else ()
        bound = self._bound(
            BindingWindow(self._lower, found.upper, admitted, found.joining),
            [*self._waiting, *fresh],
            [change for change, _ in again],
        )
        last = self._read if read is None else read.last
        feeds = _counted(self._feeds, found.admitted, bound, again)
        dead = self._slots(letter for letter, _ in bound.dead)
        if not replay_requests:
            dead |= self._dead
        self._last = _Poll(bound, feeds, last, fresh, replay_requests, again, dead)
        return self._step(found.upper, self._last, 0 if read is None else read.size_bytes)

    def committed(self, step: IngestionStep) -> None:
        done = self._last
        if done is None:
            raise AssertionError("nothing was polled")
        for slot, _ in self._needless(done):
            del self._images[slot]
        for slot, change in done.bound.images.items():
            if self._keeps(slot, change, done.dead):
                self._images[slot] = change
            else:
                self._images.pop(slot, None)
        self._dead = done.dead
        self._waiting = list(done.bound.left)
        self._waiting_of = Counter(each.feed for each in self._waiting)
        self._feeds = dict(done.feeds)
        self._read = done.read
        self._lower = step.frontier.positions[0].offset
        self._state = step.state
        self._joining, self._emptied = {}, []
        self._look(self._lower)
        if done.replay_requests:
            tried = {change for change, _ in done.again}
            left = sum(change in tried for change, _ in done.bound.dead)
            self._arrivals.replayed(done.replay_requests, len(done.again), left)

    def validate(self) -> None:
        """Raises `FatalError` when what it holds contradicts itself."""
        if self._waiting_of != Counter(each.feed for each in self._waiting):
            raise FatalError(f"{dict(self._waiting_of)} was counted of what waits")
        for slot, image in self._images.items():
            if slot != (image.topic, image.key) or image.updated >= self._lower:
                raise FatalError(f"{slot} has an image of {image.topic} at {image.updated}")
            if not self._keeps(slot, image, self._dead):
                raise FatalError(f"the deletion of {slot} is kept for nothing")
        if not self.progress.lower == self._lower <= self.progress.proposed:
            raise FatalError(f"the progress is {self.progress}, bound is {self._lower}")
        if self._last is not None:
            self._last.bound.validate()

    def _look(self, proposed: int) -> None:
        """Shows how the source stands."""
        waiting = dict(self._waiting_of)
        self.progress = ChangefeedProgress(self._lower, proposed, dict(self._feeds), waiting)

    def _bound(
        self, window: BindingWindow, waiting: Sequence[ChangeRecord], again: Sequence[ChangeRecord]
    ) -> BoundChanges:
        @cache
        def letters() -> frozenset[ChangeRecord]:
            return frozenset(letter for letter, _ in self._dead_letters())

        try:
            rules = BindingRules(
                self._decode, self._config.is_strict, lambda change: change in letters()
            )
            return bind(self._images, waiting, window, rules, again)
        except LateChange as late:
            raise user_error(
                "SLACKWATER_LATE_CHANGE",
                objectName=self._config.name,
                table=late.change.topic,
                feed=late.change.feed,
                updated=str(time_at(late.change.updated)),
                bound=str(time_at(self._lower)),
            ) from None

    def _decode(self, change: ChangeRecord) -> FeedRow | None:
        reader = self._readers.get(change.topic)
        if reader is None:
            raise Drift("the source has no such table")
        return reader.row(change)

    def _slots(self, letters: Iterable[ChangeRecord]) -> frozenset[Slot]:
        """The keys that have dead letters, of the tables that there are."""
        return frozenset((each.topic, each.key) for each in letters if each.topic in self._readers)

    def _keeps(self, slot: Slot, change: ChangeRecord, dead: frozenset[Slot]) -> bool:
        """Whether the landing keeps what a key has.

        A deletion only to know late changes by it, or older dead letters of the key.
        """
        return change.after is not None or self._config.is_strict or slot in dead

    def _needless(self, poll: _Poll) -> list[tuple[Slot, ChangeRecord]]:
        """The deletions that were kept for dead letters which are gone."""
        found = [(slot, self._images.get(slot)) for slot in self._dead - poll.dead]
        return [
            (slot, change)
            for slot, change in found
            if change is not None
            and slot not in poll.bound.images
            and not self._keeps(slot, change, poll.dead)
        ]

    def _step(self, upper: int, poll: _Poll, size_bytes: int) -> IngestionStep:
        bound = poll.bound
        updates: dict[str, pa.Table] = {
            self._config.later.get(topic, topic): self._readers[topic].updates(found)
            for topic, found in bound.changes.items()
        }
        landing = self._landing(poll)
        if landing:
            updates[self._config.landing] = landing_rows(landing)
        letters = [(change, reason, -1) for change, reason in poll.again]
        letters += [(change, reason, 1) for change, reason in bound.dead]
        if letters:
            updates[self._config.dead_letters] = dead_letter_rows(letters)
        staged = sum(len(found) for found in bound.changes.values())
        counted = {name: [c.rows, c.late, c.repeated, c.dead] for name, c in poll.feeds.items()}
        return IngestionStep(
            updates=updates,
            state=json.dumps({"version": 1, "feeds": counted, "read": poll.read}),
            frontier=SourceFrontier.at(upper),
            status=SourceStatus("running"),
            statistics=SourceStatistics(
                messages_received=len(bound.taken),
                bytes_received=size_bytes + sum(_size(each) for each in bound.taken),
                updates_staged=staged,
                rows_skipped=len(bound.dead) + sum(bound.late.values()),
                snapshot_committed=upper > MINIMUM,
                begun=tuple(self._joining.values()),
            ),
            checkpoints=Range(ZERO, time_at(upper)) if upper > MINIMUM else None,
        )

    def _landing(self, poll: _Poll) -> list[tuple[ChangeRecord, bool, int]]:
        """The updates of the landing. Changes of a file are there only if they have to wait."""
        bound = poll.bound
        new = {id(each) for each in poll.fresh}
        emptied = [(each, True, diff) for each, diff in self._emptied]
        changes = [(each, False, -1) for each in bound.taken if id(each) not in new]
        changes += [(each, False, 1) for each in bound.left if id(each) in new]
        changes += [(each, True, -1) for each in bound.replaced]
        changes += [(each, True, -1) for _, each in self._needless(poll)]
        changes += [
            (each, True, 1)
            for slot, each in bound.images.items()
            if self._keeps(slot, each, poll.dead)
        ]
        return [*emptied, *changes]


def _size(change: ChangeRecord) -> int:
    return len(change.key) + len(change.after or "")


def _counted(
    before: Mapping[str, FeedCounters],
    admitted: frozenset[str],
    bound: BoundChanges,
    again: Sequence[tuple[ChangeRecord, str]],
) -> dict[str, FeedCounters]:
    dead = Counter(change.feed for change, _ in bound.dead)
    dead.subtract(change.feed for change, _ in again)
    return {
        feed: before.get(feed, FeedCounters()).after(
            bound.rows.get(feed, 0),
            bound.late.get(feed, 0),
            bound.repeated.get(feed, 0),
            dead.get(feed, 0),
        )
        for feed in sorted(admitted)
    }
