"""The shell of the history of dataflows: a thread that asks replicas, and stores what they say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from slackwater.adapter.history.dataflows import (
    DataflowCore,
    DataflowLimits,
    Hydrated,
    Kept,
    Ticked,
)
from slackwater.adapter.history.files import HistoryFiles
from slackwater.adapter.history.passes import Passes
from slackwater.adapter.history.store import HistoryStore
from slackwater.persist.blobs import Blobs
from slackwater.repr.errors import SlackwaterError

FOLDER = "history_of_dataflows"
KINDS: Mapping[str, type[Kept]] = {"tick": Ticked, "hydration": Hydrated}
"""The kinds of records, by the names that lines of files have."""
OBSERVE_S = 60.0
"""So often replicas are asked for what they have done. They keep the last ticks by themselves."""


class DataflowHistory:
    """The last ticks of dataflows and their hydrations, through takeovers. Thread-safe.

    A crash loses what was done in the last minute. What could not be stored is tried again:
    `HistoryStore`.
    """

    def __init__(
        self,
        blobs: Blobs,
        epoch: int,
        clock: Callable[[], int],
        limits: DataflowLimits | None = None,
    ) -> None:
        """`clock` gives wall clock milliseconds."""
        limits = limits or DataflowLimits()
        self._clock = clock
        self._core = DataflowCore(limits)
        self._told: Callable[[], Sequence[Kept]] = tuple
        self._lock = threading.Lock()
        self._stored: HistoryStore[Kept] = HistoryStore(
            "the history of dataflows",
            HistoryFiles(blobs, epoch, FOLDER, KINDS),
            self._core,
            self._lock,
            most=limits.records,
            age_ms=limits.age_ms,
        )
        self._passes = Passes("dataflow-history", OBSERVE_S, self.observe, self.observe)

    def records(self, now: Sequence[Kept]) -> tuple[Kept, ...]:
        """All that is known, and what replicas say `now`."""
        with self._lock:
            return self._core.records(now)

    def validate(self) -> None:
        """Raises FatalError when an invariant of the core is broken."""
        with self._lock:
            self._core.validate()

    def start(self, told: Callable[[], Sequence[Kept]]) -> None:
        """Begins to observe what `told` says: all that replicas know. It may raise TimeoutError."""
        self._told = told
        self._passes.start()

    def stop(self) -> None:
        """Stores what there is, unless that takes long, and ends. Replicas have to be there."""
        self._passes.stop()

    def observe(self) -> None:
        """Notes what replicas have done, and stores it. One that is silent is asked again later."""
        try:
            told = self._told()
        except (TimeoutError, SlackwaterError):
            # One that is silent, or has just ended, keeps nothing from those that come after it.
            told = ()
        now_ms = self._clock()
        with self._lock:
            self._core.observe(told, now_ms)
            taken = self._core.take_over()
        self._stored.keep(taken, now_ms)
