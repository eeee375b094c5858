"""Peeks that have no answer yet. Source: spec controllers 4.8, I46."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from slackwater.compute.controller.protocol import Peek
from slackwater.controller.holds import Holds, ReadHold
from slackwater.repr.errors import FatalError


@dataclass(frozen=True, slots=True)
class PendingPeek:
    """A peek that was sent; `hold` keeps its time readable. `target_replica` alone may answer."""

    peek: Peek
    instance: str
    target_replica: str | None
    hold: ReadHold


@dataclass(slots=True)
class Peeks:
    """The peeks that are under way. Not thread-safe."""

    _pending: dict[str, PendingPeek] = field(default_factory=dict)

    def get(self, peek_id: str) -> PendingPeek | None:
        """The peek, if it has no answer yet."""
        return self._pending.get(peek_id)

    def open(self, pending: PendingPeek) -> None:
        """The peek is sent. An id that is under way is a FatalError."""
        if pending.peek.peek_id in self._pending:
            raise FatalError(f"a peek {pending.peek.peek_id} is under way")
        self._pending[pending.peek.peek_id] = pending

    def close(self, peek_id: str) -> PendingPeek | None:
        """The peek gets its answer; None if it had one."""
        return self._pending.pop(peek_id, None)

    def of_instance(self, instance: str) -> Iterator[PendingPeek]:
        """The peeks of the instance, the oldest first."""
        return (each for each in list(self._pending.values()) if each.instance == instance)

    def validate(self, holds: Holds) -> None:
        """Raises FatalError unless each peek holds what it reads at its time (I46)."""
        known = {hold.hold_id: hold for hold in holds}
        for each in self._pending.values():
            held = known.get(each.hold.hold_id)
            if held is None or held.since != each.peek.time or held.ids != {each.peek.id}:
                raise FatalError(f"the peek {each.peek} has the hold {held}")
