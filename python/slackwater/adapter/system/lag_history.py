"""The shell of the freshness history: a thread that observes lags, and stores what they were."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import structlog

from slackwater.adapter.history.core import DAY_MS
from slackwater.adapter.history.files import HistoryFiles
from slackwater.adapter.history.lags import MINUTE_MS, LagCore, LagLimits, LagsOfMinute
from slackwater.persist.blobs import Blobs
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.ids import GlobalId

FOLDER = "history_of_lags"
OBSERVE_S = 5.0
"""So often all lags are observed: a lag grows by no more than that unseen."""
STOP_S = 5.0
"""A coordinator that ends waits so long for the last minute to be stored."""

_log = structlog.get_logger("history")


class LagHistory:
    """The lags of the last 24 hours, minute by minute, through takeovers. Thread-safe.

    A crash loses the minute that runs. A store that is away costs what it would have kept, and
    nobody else anything: it is tried again, and the log says so once.
    """

    def __init__(
        self, blobs: Blobs, epoch: int, clock: Callable[[], int], limits: LagLimits | None = None
    ) -> None:
        """`clock` gives wall clock milliseconds."""
        self._clock = clock
        self._core = LagCore(limits or LagLimits())
        self._files = HistoryFiles(blobs, epoch, FOLDER, {"lags": LagsOfMinute})
        self._lags: Callable[[], Mapping[GlobalId, int]] = dict
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lags", daemon=True)
        self._failing = False
        self._recovered = False

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
        self._thread.start()

    def stop(self) -> None:
        """Stores what there is, unless that takes long, and ends."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def _keep(self) -> None:
        while not self._closing.is_set():
            self.observe()
            self._closing.wait(OBSERVE_S)
        self._store(also_running=True)

    def observe(self) -> None:
        """Notes the lags of now, and stores the minutes that are over."""
        lags = self._lags()
        with self._lock:
            self._core.observe(self._clock(), lags)
        self._store()

    def _store(self, *, also_running: bool = False) -> None:
        now_ms = self._clock()
        oldest_ms = now_ms - DAY_MS
        with self._lock:
            taken = self._core.take_over(also_running=also_running)
        try:
            if taken:
                self._files.write(taken)
                taken = ()
            if not self._recovered:
                found = self._files.recovered(DAY_MS // MINUTE_MS, oldest_ms, now_ms)
                with self._lock:
                    self._core.recover(found, now_ms)
                self._recovered = True
            self._files.tidy(DAY_MS // MINUTE_MS, oldest_ms)
        except (SlackwaterError, OSError) as error:
            with self._lock:
                self._core.put_back(taken)
            if not self._failing:
                _log.warning("the history of lags is not stored", error=str(error))
            self._failing = True
        else:
            self._failing = False
