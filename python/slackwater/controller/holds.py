"""Read holds: tokens with an identity that keep collections readable. Source: spec 1.6, trap 7."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from slackwater.repr.change_batch import ChangeBatch
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.ids import GlobalId


class HoldKind(Enum):
    """The purpose of a hold."""

    STATEMENT = "statement"
    TRANSACTION = "transaction"
    SUBSCRIPTION = "subscription"
    SNAPSHOT = "snapshot"
    DEFINITION = "definition"
    VIEW = "view"
    INDEX = "index"
    SINK = "sink"
    INGESTION = "ingestion"
    COPY = "copy"
    PEEK = "peek"
    REPLICA = "replica"


@dataclass(frozen=True, slots=True)
class Holder:
    """The owner of a hold: the session, or the object, that `name` says."""

    kind: HoldKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}"


@dataclass(frozen=True, slots=True)
class ReadHold:
    """A token: `ids` stay readable at and after `since` until it is released.

    It names the hold and says where it was when this value was made; the controller knows where it
    is. Releasing a token twice has no effect on any other.
    """

    hold_id: int
    ids: frozenset[GlobalId]
    since: Timestamp
    holder: Holder


class ReleasedHold(Exception):
    """The hold was released before, so it keeps nothing readable any more."""


class Holds:
    """The holds that were taken and not released. Not thread-safe.

    Each counts once, at its time, among the capabilities of each of its collections. Whether a
    collection can be read at the time is for the caller to see before it takes a hold.
    """

    def __init__(self, apply: Callable[[Mapping[GlobalId, ChangeBatch]], None]) -> None:
        """`apply` changes the capabilities of collections, and what follows from them."""
        self._apply = apply
        self._holds: dict[int, ReadHold] = {}
        self._next_hold = 1

    def __iter__(self) -> Iterator[ReadHold]:
        """All holds, the oldest first."""
        return iter(list(self._holds.values()))

    def take(self, ids: Iterable[GlobalId], time: Timestamp, holder: Holder) -> ReadHold:
        """A new hold on all of them at `time`."""
        hold = ReadHold(self._next_hold, frozenset(ids), time, holder)
        self._next_hold += 1
        self._apply(dict.fromkeys(hold.ids, ChangeBatch([(time, 1)])))
        self._holds[hold.hold_id] = hold
        return hold

    def current(self, hold: ReadHold) -> ReadHold:
        """The hold as it is now. Raises ReleasedHold."""
        current = self._holds.get(hold.hold_id)
        if current is None:
            raise ReleasedHold(f"{hold.holder} has released its hold on {sorted(hold.ids)}")
        return current

    def downgrade(self, hold: ReadHold, frontier: Frontier) -> ReadHold:
        """Moves the hold forward; the empty frontier releases it.

        Raises ValueError when that would be backward, ReleasedHold when it was released.
        """
        current = self.current(hold)
        if frontier.value < current.since:
            raise ValueError(f"hold {hold.hold_id} is at {current.since}, after {frontier.value}")
        if frontier.is_empty:
            self.release(current)
            return current
        if frontier.value == current.since:
            return current
        moved = replace(current, since=Timestamp(frontier.value))
        self._holds[hold.hold_id] = moved
        change = ChangeBatch.move(Frontier(current.since), frontier)
        self._apply(dict.fromkeys(current.ids, change))
        return moved

    def release(self, hold: ReadHold) -> bool:
        """Ends the hold. False, and no effect, when it had been released before."""
        current = self._holds.pop(hold.hold_id, None)
        if current is None:
            return False
        self._apply(dict.fromkeys(current.ids, ChangeBatch([(current.since, -1)])))
        return True

    def oldest(self) -> Timestamp | None:
        """The oldest time that any hold keeps."""
        return min((hold.since for hold in self._holds.values()), default=None)
