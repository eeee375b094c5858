"""Reclocking: from positions in a source to times of ours.

A remap says, for times of ours, how far the source had been read: at each time it is a frontier of
positions, and it only goes forward. The contents of the source at time t are exactly the messages
that the remap at t does not allow any more; so a message belongs to the least time at which it is
not allowed. The remap is durable and shared by all exports of an ingestion. Therefore a message
gets the same time in every process and after every restart.

Everything here is a value: what is to be written is returned, what was read is handed in.

Source: spec controllers 5.1, 5.2; invariants I49 to I53.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby

from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.storage.source_time import Position, SourceFrontier


class Uninitialized(Exception):
    """No binding has been made yet, so nothing is known of any message."""


class BeyondUpper(Exception):
    """The question is about messages, or times, that are not bound yet."""


@dataclass(frozen=True, slots=True)
class BindingUpdate:
    """One update of the remap collection: a position of the frontier appears, or goes."""

    position: Position
    time: Timestamp
    diff: int


@dataclass(frozen=True, slots=True)
class Binding:
    """From `time` on, up to the next binding, the source has been read up to `frontier`."""

    time: Timestamp
    frontier: SourceFrontier


@dataclass(frozen=True, slots=True)
class Minted:
    """An append to the remap collection, from `lower` to `upper`."""

    lower: Frontier
    upper: Frontier
    updates: tuple[BindingUpdate, ...]


def remap_diff(
    before: SourceFrontier | None, after: SourceFrontier
) -> tuple[tuple[Position, int], ...]:
    """What changes in the remap when `after` follows `before` (None: it is empty), with diffs.

    Raises FatalError when that would be a step back: what was read cannot become unread.
    """
    if before is None:
        return tuple((position, 1) for position in after.positions)
    if not before.not_after(after):
        raise FatalError(f"a source cannot go back from {before} to {after}")
    old, new = set(before.positions), set(after.positions)
    gone = tuple((position, -1) for position in sorted(old - new))
    return gone + tuple((position, 1) for position in sorted(new - old))


@dataclass(frozen=True, slots=True)
class Remap:
    """The remap of a source, readable from `since`, complete before `upper`.

    `minimum` is the frontier at which the source begins. `bindings` rise strictly, in time and in
    frontier. Made by `empty` and `of_updates`.
    """

    minimum: SourceFrontier
    since: Frontier
    upper: Frontier
    bindings: tuple[Binding, ...] = ()

    @staticmethod
    def empty(minimum: SourceFrontier, since: Frontier, upper: Frontier) -> Remap:
        return Remap(minimum, since, upper)

    @staticmethod
    def of_updates(
        updates: Iterable[BindingUpdate],
        minimum: SourceFrontier,
        since: Frontier,
        upper: Frontier,
    ) -> Remap:
        """The remap whose collection holds `updates`, in any order.

        Times before `since` are moved there. Raises FatalError unless at each time the collection
        is an antichain with multiplicity one, later than the one before (I49).
        """
        given = tuple(updates)
        if not all(update.time < upper.value for update in given):
            raise FatalError(f"a binding is not before the upper {upper.value}")
        moved = [replace(each, time=Timestamp(max(each.time, since.value))) for each in given]
        counts: dict[Position, int] = {}
        bindings: list[Binding] = []
        for time, group in groupby(sorted(moved, key=_time), key=_time):
            for update in group:
                counts[update.position] = counts.get(update.position, 0) + update.diff
            counts = {position: count for position, count in counts.items() if count}
            frontier = SourceFrontier.of(counts)
            before = bindings[-1].frontier if bindings else minimum
            whole = len(frontier.positions) == len(counts) == sum(counts.values())
            if not whole or not before.not_after(frontier):
                raise FatalError(f"the remap is damaged at {time}: {counts} after {before}")
            if not bindings or before != frontier:
                bindings.append(Binding(time, frontier))
        return Remap(minimum, since, upper, tuple(bindings))

    @property
    def source_upper(self) -> SourceFrontier:
        """How far the source has been bound. Raises `Uninitialized`."""
        if not self.bindings:
            raise Uninitialized
        return self.bindings[-1].frontier

    def updates(self) -> tuple[BindingUpdate, ...]:
        """The contents of the collection; `of_updates` reads them."""
        before: SourceFrontier | None = None
        found: list[BindingUpdate] = []
        for binding in self.bindings:
            changes = remap_diff(before, binding.frontier)
            found += [BindingUpdate(position, binding.time, diff) for position, diff in changes]
            before = binding.frontier
        return tuple(found)

    def mint(self, frontier: SourceFrontier, time: Timestamp) -> Minted | None:
        """The append that binds `frontier` at `time`; None when the source has been read as far.

        An append that then finds another upper changes nothing: read the remap again, and ask
        again. Raises ValueError for a time before the upper.
        """
        if not self.upper.allows(time):
            raise ValueError(f"{time} is before the upper {self.upper.value}")
        before = self.source_upper if self.bindings else None
        if before is not None and not before.before(frontier):
            return None
        updates = tuple(BindingUpdate(p, time, diff) for p, diff in remap_diff(before, frontier))
        return Minted(self.upper, Frontier(time + 1), updates)

    def appended(self, minted: Minted) -> Remap:
        """The remap after `minted` was written. Raises ValueError if it continues another one."""
        if minted.lower != self.upper:
            raise ValueError(f"an append at {minted.lower} does not continue {self.upper}")
        updates = (*self.updates(), *minted.updates)
        return Remap.of_updates(updates, self.minimum, self.since, minted.upper)

    def reclock(self, position: Position) -> Timestamp:
        """The time of the message at `position`; `since`, if it is before that.

        Raises `Uninitialized`, and `BeyondUpper` for a message that is not bound yet.
        """
        if self.source_upper.allows(position):
            raise BeyondUpper
        return next(b.time for b in self.bindings if not b.frontier.allows(position))

    def reclock_frontier(self, frontier: SourceFrontier) -> Frontier:
        """The latest time such that all messages that `frontier` allows get it, or a later one.

        Raises `Uninitialized`.
        """
        if not self.bindings:
            raise Uninitialized
        passed = (
            binding.time
            for position in frontier.positions
            for binding in self.bindings
            if not binding.frontier.allows(position)
        )
        return min((Frontier(time) for time in passed), default=self.upper).meet(self.upper)

    def source_upper_at_frontier(self, frontier: Frontier) -> SourceFrontier:
        """From where to read so that nothing is missed that belongs to `frontier` or later.

        Raises `Uninitialized`, and `BeyondUpper` for a frontier that the remap has not reached.
        """
        if not self.bindings:
            raise Uninitialized
        if frontier <= self.since:
            return self.minimum
        if frontier.is_empty:
            return SourceFrontier(())
        if frontier > self.upper:
            raise BeyondUpper
        before = [binding for binding in self.bindings if binding.time < frontier.value]
        return before[-1].frontier if before else self.minimum

    def compacted(self, since: Frontier) -> Remap:
        """The same remap, readable only from `since` on; a since never moves back.

        Raises ValueError for the empty frontier: a remap that nobody may read is dropped.
        """
        if since.is_empty:
            raise ValueError("a remap is not compacted to the end of time")
        to = self.since.join(since)
        return replace(
            self,
            since=to,
            bindings=_collapsed(self.bindings, Timestamp(to.value)),
        )


def _collapsed(bindings: Iterable[Binding], since: Timestamp) -> tuple[Binding, ...]:
    """Of the bindings up to `since` only the last is left, at `since`."""
    moved = [replace(each, time=Timestamp(max(each.time, since))) for each in bindings]
    return tuple({each.time: each for each in moved}.values())


def _time(update: BindingUpdate) -> Timestamp:
    return update.time
