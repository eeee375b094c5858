"""The core of links from waits to spans: which work has moved the uppers that a wait was for."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.spans import Moves

KEPT = 32
"""So many of the latest moves are known of each collection or dataflow."""
KNOWN_AT_MOST = 2000
"""Of more collections and dataflows, those are forgotten that have not moved for the longest."""
LINKS_AT_MOST = 100
"""The most links of a wait, the latest; OpenTelemetry keeps 128 by default."""

Span = TypeVar("Span")


@dataclass(slots=True)
class Moving(Generic[Span]):
    """A move and its span. Times are those of one clock; `ended` is None while it is under way."""

    moves: Moves
    span: Span
    began: int
    ended: int | None = None

    def serves(self, time: Timestamp | None, began: int) -> bool:
        """Whether it moved an upper for a wait for `time` that began then and is over now."""
        lower, upper = self.moves.lower, self.moves.upper
        if time is None or lower is None:
            return self._lasted_until(began)
        if lower > time:
            return False
        # What was computed before the wait may have been committed in it.
        return (upper is not None and time < upper) or self._lasted_until(began)

    def _lasted_until(self, began: int) -> bool:
        return self.ended is None or self.ended >= began


class RecentMoves(Generic[Span]):
    """The latest moves of collections and dataflows. One caller at a time."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[GlobalId, deque[Moving[Span]]] = OrderedDict()

    def begin(self, moves: Moves, span: Span, now: int) -> Moving[Span]:
        """A move begins; the caller sets its end."""
        moving = Moving(moves, span, now)
        self._by_id.setdefault(moves.global_id, deque(maxlen=KEPT)).append(moving)
        self._by_id.move_to_end(moves.global_id)
        if len(self._by_id) > KNOWN_AT_MOST:
            self._by_id.popitem(last=False)
        return moving

    def that_served(
        self, ids: Collection[GlobalId], time: Timestamp | None, began: int
    ) -> tuple[Span, ...]:
        """The spans of the moves for which such a wait waited, in the order of their beginnings."""
        known = (each for i in set(ids) for each in self._by_id.get(i, ()))
        found = sorted(
            (each for each in known if each.serves(time, began)), key=lambda each: each.began
        )
        return tuple(each.span for each in found[-LINKS_AT_MOST:])
