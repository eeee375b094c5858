"""Peeks of a replica's indexes: from the command to the rows, in threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from slackwater.compute.controller.protocol import (
    Peek,
    PeekAnswer,
    PeekAnswered,
    PeekFailed,
    PeekRows,
)
from slackwater.compute.engine import Engine, Lookup
from slackwater.compute.offers import Respond
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId

THREADS = 2
"""So many peeks look up at once."""


@dataclass(frozen=True, slots=True)
class IndexState:
    """An index of the replica: it has all updates before `upper`.

    `program`: the name by which the driver finds it; None: it is not there.
    """

    program: str | None
    upper: Timestamp


@dataclass(slots=True)
class IndexPeeks:
    """The peeks of indexes that have no answer yet. Thread-safe.

    A peek is answered once, when the index is complete at its time: with the rows, or with a
    failure where the driver does not have the index, has forgotten the time, or finds more than
    the peek's limits allow. One that was cancelled gets no answer.
    """

    engine: Engine
    respond: Respond
    index: Callable[[GlobalId], IndexState | None]
    """The index as it is; None: the replica has none of this id."""
    name: str
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: dict[str, Peek] = field(default_factory=dict)
    """Those that wait for their index, or are looked up."""
    _running: set[str] = field(default_factory=set)
    _threads: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=f"slackwater-{self.name}")

    def add(self, peek: Peek) -> None:
        """Takes the peek. Does not wait."""
        with self._lock:
            self._open[peek.peek_id] = peek
        self._begin(peek)

    def cancel(self, peek_id: str) -> None:
        """Nobody wants the answer any more."""
        with self._lock:
            self._open.pop(peek_id, None)

    def moved(self, global_id: GlobalId) -> None:
        """The index has come further, or is another one, or is gone."""
        with self._lock:
            waiting = [
                peek
                for peek in self._open.values()
                if peek.id == global_id and peek.peek_id not in self._running
            ]
        for peek in waiting:
            self._begin(peek)

    def stop(self) -> None:
        """Looks up nothing any more, after what it is about."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self, peek: Peek) -> None:
        """Answers the peek if its index has the time, or will not have it."""
        index = self.index(peek.id)
        if index is not None and index.program is not None and index.upper <= peek.time:
            return
        with self._lock:
            if peek.peek_id not in self._open or peek.peek_id in self._running:
                return
            self._running.add(peek.peek_id)
        self._threads.submit(self._answer, peek, index)

    def _answer(self, peek: Peek, index: IndexState | None) -> None:
        answer = self._found(peek, index)
        with self._lock:
            self._running.discard(peek.peek_id)
            wanted = self._open.pop(peek.peek_id, None) is not None
        if wanted:
            self.respond([PeekAnswered(peek.peek_id, answer)])

    def _found(self, peek: Peek, index: IndexState | None) -> PeekAnswer:
        if index is None or index.program is None:
            return PeekFailed(f"the index {peek.id} is not in memory")
        try:
            rows = self.engine.look_up(
                Lookup(
                    index.program,
                    peek.keys,
                    peek.time,
                    Timestamp(peek.time + 1),
                    peek.limits.rows,
                    peek.limits.bytes,
                )
            )
        except SlackwaterError as error:
            return PeekFailed(error.message)
        if rows is None:
            return PeekFailed(f"the index {peek.id} has not got them, or they are too many")
        return PeekRows(rows)
