"""Reclocking: from positions in a source to times of ours.

A remap says, for times of ours, how far the source had been read: at each time it is a frontier of
positions, and it only goes forward. The contents of the source at time t are exactly the messages
that the remap at t does not allow any more; so a message belongs to the least time at which it is
not allowed. The remap is durable and shared by all exports of an ingestion. Therefore a message
gets the same time in every process and after every restart.

The step of a source writes its messages and their binding in one transaction (decision 0011), so
nobody has to ask for the time of a message: it is that of the transaction.

Everything here is a value: what is to be written is returned, what was read is handed in.

Source: spec controllers 5.1, 5.2; invariants I49 to I53.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby

from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.storage.source_time import Element, SourceFrontier


class Uninitialized(Exception):
    """No binding has been made yet, so nothing is known of any message."""


class BeyondUpper(Exception):
    """The question is about messages, or times, that are not bound yet."""


@dataclass(frozen=True, slots=True)
class BindingUpdate:
    """One update of the remap collection: an element of the frontier appears, or goes."""

    element: Element
    time: Timestamp
    diff: int


@dataclass(frozen=True, slots=True)
class Binding:
    """From `time` on, up to the next binding, the source has been read up to `frontier`."""

    time: Timestamp
    frontier: SourceFrontier


def remap_diff(
    before: SourceFrontier | None, after: SourceFrontier
) -> tuple[tuple[Element, int], ...]:
    """The changes of the remap, with diffs, when `after` follows `before` (None: it is empty).

    Raises FatalError when that would be a step back: what was read cannot become unread.
    """
    if before is None:
        return tuple((element, 1) for element in after.elements)
    if not before.not_after(after):
        raise FatalError(f"a source cannot go back from {before} to {after}")
    old, new = before.elements, after.elements
    gone = tuple((element, -1) for element in old if element not in new)
    return gone + tuple((element, 1) for element in new if element not in old)


@dataclass(frozen=True, slots=True)
class Remap:
    """The remap of a source, readable from `since`, complete before `upper`.

    For all t with ``since <= t < upper``: the contents of the source at t are the messages that
    ``frontier(t)`` does not allow, where ``frontier(t)`` is that of the last binding at or before
    t, and `minimum` before the first. `minimum` is where the source begins. `bindings` rise
    strictly, in time and in frontier. Made by `of_updates`.
    """

    minimum: SourceFrontier
    since: Frontier
    upper: Frontier
    bindings: tuple[Binding, ...] = ()

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
        counts: dict[Element, int] = {}
        bindings: list[Binding] = []
        for time, group in groupby(sorted(moved, key=_time), key=_time):
            for update in group:
                counts[update.element] = counts.get(update.element, 0) + update.diff
            counts = {element: count for element, count in counts.items() if count}
            frontier = SourceFrontier.of(counts)
            before = bindings[-1].frontier if bindings else minimum
            whole = len(frontier.elements) == len(counts) == sum(counts.values())
            if not whole or not before.not_after(frontier):
                raise FatalError(f"the remap is damaged at {time}: {counts} after {before}")
            if not bindings or before != frontier:
                bindings.append(Binding(time, frontier))
        return Remap(minimum, since, upper, tuple(bindings))

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


def _time(update: BindingUpdate) -> Timestamp:
    return update.time
