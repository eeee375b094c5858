"""The thread that asks the leader once a second while somebody looks, for all who look."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from slackwater.console.leader import AbsentError
from slackwater.console.snapshot import Snapshot
from slackwater.console.watch import Answer, Asked, Watch

PAUSE_S = 1.0
PATIENCE_S = 12.0
"""Seconds that a viewer waits for the first answer."""
LOG_BYTES = 2 * 1024 * 1024


class Asking(Protocol):
    """Asks whoever leads."""

    @property
    def log(self) -> Path | None: ...

    def ask(self, asked: Asked) -> Answer:
        """Raises AbsentError."""
        ...

    def metrics(self) -> str | None: ...


class Looking:
    """Looks from `start` to `stop`. Thread-safe."""

    def __init__(self, client: Asking, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._monotonic = monotonic
        self._watch = Watch()
        self._changed = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="looking", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends, and waits until the leader has been asked for the last time."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        self._thread.join()

    def snapshot(self, relations: frozenset[str]) -> Snapshot:
        """The snapshot of now. Waits until these relations were asked for, `PATIENCE_S` at most."""
        with self._changed:
            since_s = self._monotonic()
            self._watch.look(relations, since_s)
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._watch.is_fresh(relations, since_s, self._monotonic()), PATIENCE_S
            )
            return self._watch.snapshot

    def log_lines(self) -> list[str]:
        """The last lines of the leader's log; none, if it cannot be read."""
        path = self._client.log
        if path is None:
            return []
        try:
            with path.open("rb") as file:
                file.seek(0, 2)
                file.seek(max(0, file.tell() - LOG_BYTES))
                lines = deque(file.read().decode(errors="replace").splitlines())
        except OSError:
            return []
        return list(lines)

    def metrics(self) -> str | None:
        """The metrics of the leader; None, if it does not tell them."""
        return self._client.metrics()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._is_wanted)
                if self._ending:
                    return
                now_s = self._monotonic()
                asked = self._watch.due(now_s, int(time.time() * 1000))
            if asked is not None:
                self._look(asked)
            with self._changed:
                self._changed.wait_for(self._is_urgent, PAUSE_S)

    def _is_wanted(self) -> bool:
        return self._ending or self._watch.is_watched(self._monotonic())

    def _is_urgent(self) -> bool:
        """Whether somebody waits for a relation that was never told, or too long ago."""
        return self._ending or self._watch.lacks(self._monotonic())

    def _look(self, asked: Asked) -> None:
        try:
            answer: Answer | AbsentError = self._client.ask(asked)
        except AbsentError as absent:
            answer = absent
        with self._changed:
            now_s = self._monotonic()
            if isinstance(answer, AbsentError):
                self._watch.failed(str(answer), now_s, leads=answer.leads)
            else:
                self._watch.answered(asked, answer, now_s)
            self._changed.notify_all()
