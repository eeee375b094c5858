"""Replication slots of sources that were dropped, which are removed from their servers.

A slot that nobody reads fills the disk of its server. So its removal is tried until it succeeds, by
each leader that comes.

Source: docs/decisions 0072, 0078.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from slackwater.repr.errors import SlackwaterError
from slackwater.repr.ids import GlobalId

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0

_log = structlog.get_logger("slots")


@dataclass(frozen=True, slots=True)
class AbandonedSlot:
    """The slot of a source. `remove` raises SlackwaterError when its server does not answer."""

    source: GlobalId
    name: str
    timeline: int
    remove: Callable[[], None]


@dataclass(frozen=True, slots=True)
class WaitingSlot:
    """A slot that is still to be removed, and why it was not yet. None: it was not tried."""

    slot: AbandonedSlot
    reason: str | None
    since_ms: int


class SlotRemovals:
    """Removes slots in a thread, one after the other. Thread-safe."""

    def __init__(self, is_running: Callable[[GlobalId], bool], clock_ms: Callable[[], int]) -> None:
        """`is_running` says whether an ingestion still reads the slot of its source."""
        self._is_running = is_running
        self._clock_ms = clock_ms
        self._changed = threading.Condition()
        self._waiting: list[AbandonedSlot] = []
        self._told: dict[GlobalId, tuple[str | None, int]] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, slot: AbandonedSlot) -> None:
        """The slot goes, as soon as nobody reads it."""
        with self._changed:
            if slot.source in self._told:
                return
            self._waiting.append(slot)
            self._told[slot.source] = (None, self._clock_ms())
            self._changed.notify_all()
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="slots", daemon=True)
                self._thread.start()

    def waiting(self) -> tuple[WaitingSlot, ...]:
        """The slots that are still to be removed."""
        with self._changed:
            return tuple(WaitingSlot(each, *self._told[each.source]) for each in self._waiting)

    def stopped(self) -> None:
        """An ingestion has ended."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Ends it. What is left is not tried again."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            with self._changed:
                free = [each for each in self._waiting if not self._is_running(each.source)]
                if self._closed:
                    return
                if not free:
                    self._changed.wait(pause_s if self._waiting else None)
                    continue
            reasons = {each.source: _failure(each) for each in free}
            failed = [each for each in free if reasons[each.source] is not None]
            with self._changed:
                for each in free:
                    _, since_ms = self._told.pop(each.source)
                    if each in failed:
                        self._told[each.source] = (reasons[each.source], since_ms)
                self._waiting = [
                    each for each in self._waiting if each in failed or each not in free
                ]
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S) if failed else FIRST_PAUSE_S
                if failed and not self._closed:
                    self._changed.wait(pause_s)


def _failure(slot: AbandonedSlot) -> str | None:
    """Removes a slot, or says why it cannot be removed now."""
    try:
        slot.remove()
    except SlackwaterError as error:
        _log.warning("slot not removed", slot=slot.name, error=error.message)
        return error.message
    _log.info("slot removed", slot=slot.name)
    return None
