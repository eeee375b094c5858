"""The shell of the freshness history: a thread that observes lags, and stores what they were."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from slackwater.adapter.history.files import HistoryFiles
from slackwater.adapter.history.lags import MINUTE_MS, LagCore, LagLimits, LagsOfMinute
from slackwater.adapter.history.passes import Passes
from slackwater.adapter.history.store import HistoryStore
from slackwater.persist.blobs import Blobs
from slackwater.repr.ids import GlobalId

FOLDER = "history_of_lags"
KINDS = {"lags": LagsOfMinute}
"""The kinds of records, by the names that lines of files have."""
OBSERVE_S = 5.0
"""So often all lags are observed: a lag grows by no more than that unseen."""


class LagHistory:
    """The lags of the last 24 hours, minute by minute, through takeovers. Thread-safe.

    A crash loses the minute that runs. What could not be stored is tried again: `HistoryStore`.
    """

    def __init__(
        self, blobs: Blobs, epoch: int, clock: Callable[[], int], limits: LagLimits | None = None
    ) -> None:
        """`clock` gives wall clock milliseconds."""
        limits = limits or LagLimits()
        self._clock = clock
        self._core = LagCore(limits)
        self._lags: Callable[[], Mapping[GlobalId, int]] = dict
        self._lock = threading.Lock()
        self._stored = HistoryStore(
            "the history of lags",
            HistoryFiles(blobs, epoch, FOLDER, KINDS),
            self._core,
            self._lock,
            most=limits.age_ms // MINUTE_MS,
            age_ms=limits.age_ms,
        )
        self._passes = Passes(
            "lags", OBSERVE_S, self.observe, lambda: self._store(also_running=True)
        )

    def minutes(self) -> tuple[LagsOfMinute, ...]:
        """The minutes that are over, the earliest first."""
        with self._lock:
            return self._core.minutes()

    def validate(self) -> None:
        """Raises FatalError when an invariant of the core is broken."""
        with self._lock:
            self._core.validate()

    def start(self, lags: Callable[[], Mapping[GlobalId, int]]) -> None:
        """Begins to observe what `lags` says, in milliseconds by object."""
        self._lags = lags
        self._passes.start()

    def stop(self) -> None:
        """Stores what there is, unless that takes long, and ends."""
        self._passes.stop()

    def observe(self) -> None:
        """Notes the lags of now, and stores the minutes that are over."""
        lags = self._lags()
        with self._lock:
            self._core.observe(self._clock(), lags)
        self._store()

    def _store(self, *, also_running: bool = False) -> None:
        with self._lock:
            taken = self._core.take_over(also_running=also_running)
        self._stored.keep(taken, self._clock())
