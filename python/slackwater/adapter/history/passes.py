"""The thread of a history: it does the same again and again, and something last."""

from __future__ import annotations

import threading
from collections.abc import Callable

STOP_S = 5.0
"""A coordinator that ends waits so long for the last of a history to be stored."""


class Passes:
    """A thread that calls `work` at once and then each `every_s` seconds, and `last` at its end."""

    def __init__(
        self, name: str, every_s: float, work: Callable[[], None], last: Callable[[], None]
    ) -> None:
        self._every_s = every_s
        self._work = work
        self._last = last
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends after `last`, unless that takes longer than `STOP_S`."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._work()
            self._closing.wait(self._every_s)
        self._last()
