"""Counts of what happens to checkpoint groups and changefeeds, for metrics.

Source: spec checkpoint 2.7.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from slackwater.repr.durations import Durations
from slackwater.repr.ids import GlobalId

Timed = Literal["advance", "commit", "refresh"]


@dataclass(frozen=True, slots=True)
class CheckpointTotals:
    """The counts since the leader has begun, by the source.

    `backwards` counts resolved timestamps that were refused, `landed` changes of rows.
    """

    took: Mapping[tuple[Timed, GlobalId], Durations] = field(default_factory=dict)
    backwards: Mapping[GlobalId, int] = field(default_factory=dict)
    landed: Mapping[GlobalId, int] = field(default_factory=dict)


class CheckpointCounts:
    """The counts of one leader. Thread-safe. `monotonic` gives seconds."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._took: dict[tuple[Timed, GlobalId], Durations] = {}
        self._backwards: dict[GlobalId, int] = {}
        self._landed: dict[GlobalId, int] = {}

    @contextmanager
    def timed(self, what: Timed, source: GlobalId) -> Iterator[None]:
        """Counts the time that its block takes."""
        began_s = self._monotonic()
        try:
            yield
        finally:
            took_s = self._monotonic() - began_s
            with self._lock:
                known = self._took.get((what, source), Durations())
                self._took[what, source] = known.and_one(took_s)

    def went_backwards(self, source: GlobalId) -> None:
        """Counts a resolved timestamp that was refused."""
        with self._lock:
            self._backwards[source] = self._backwards.get(source, 0) + 1

    def landed(self, source: GlobalId, rows: int) -> None:
        """Counts changes that have landed."""
        with self._lock:
            self._landed[source] = self._landed.get(source, 0) + rows

    def totals(self, sources: Collection[GlobalId]) -> CheckpointTotals:
        """The counts of these sources; those of others, which were dropped, are forgotten."""
        with self._lock:
            self._took = {key: each for key, each in self._took.items() if key[1] in sources}
            self._backwards = {s: each for s, each in self._backwards.items() if s in sources}
            self._landed = {s: each for s, each in self._landed.items() if s in sources}
            return CheckpointTotals(dict(self._took), dict(self._backwards), dict(self._landed))
