"""The thread that writes what requests to sources bring."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from slackwater.repr.ids import GlobalId

R = TypeVar("R")
T = TypeVar("T")


class RequestWriter(Generic[R, T]):
    """Writes requests with their rows; those that wait of one source are one write. Thread-safe.

    `submit` queues a write and returns what waits for its outcome, which is called when the writes
    of the other sources are queued as well: so they share a commit. `failed` is told what either of
    the two has raised.
    """

    def __init__(
        self,
        name: str,
        source_of: Callable[[R], GlobalId],
        submit: Callable[[Sequence[tuple[R, T]]], Callable[[], None]],
        failed: Callable[[Sequence[tuple[R, T]], Exception], None],
    ) -> None:
        self._source_of = source_of
        self._submit = submit
        self._failed = failed
        self._changed = threading.Condition()
        self._waiting: list[tuple[R, T]] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, after it has written what waits."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def put(self, requests: Sequence[tuple[R, T]]) -> bool:
        """Takes requests with their rows; False: it is ending, and takes nothing any more."""
        with self._changed:
            if not self._stopping:
                self._waiting += requests
                self._changed.notify_all()
            return not self._stopping

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopping)
                batch, self._waiting = self._waiting, []
            if not batch:
                return
            by_source: dict[GlobalId, list[tuple[R, T]]] = {}
            for request, rows in batch:
                by_source.setdefault(self._source_of(request), []).append((request, rows))
            queued = []
            for requests in by_source.values():
                try:
                    queued.append((requests, self._submit(requests)))
                except Exception as error:
                    self._failed(requests, error)
            for requests, settle in queued:
                try:
                    settle()
                except Exception as error:
                    self._failed(requests, error)
