"""Counts of statements, for metrics: how they have ended, how long they took and waited."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from slackwater.adapter.time.watch import Cancellation
from slackwater.repr.durations import Durations
from slackwater.repr.errors import SlackwaterError

StatementEnd = Literal["success", "error", "canceled"]


@dataclass(frozen=True, slots=True)
class StatementTotals:
    """The statements that have ended since the leader has begun, by their kinds.

    `waited` has how long each waited until what it reads was complete.
    """

    ended: Mapping[tuple[str, StatementEnd], int] = field(default_factory=dict)
    took: Mapping[str, Durations] = field(default_factory=dict)
    waited: Mapping[str, Durations] = field(default_factory=dict)


class StatementCounts:
    """Counts statements as they end. Thread-safe. `monotonic` gives seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._ended: dict[tuple[str, StatementEnd], int] = {}
        self._took: dict[str, Durations] = {}
        self._waited: dict[str, Durations] = {}

    @contextmanager
    def counted(self, kind: str | None, cancellation: Cancellation) -> Iterator[None]:
        """Counts the statement that its block runs; None: it runs a part of one, or none.

        `kind` is the word of the history of statements, such as `create_table`.
        """
        if kind is None:
            yield
            return
        began_s = self._monotonic()
        end: StatementEnd = "success"
        try:
            yield
        except BaseException as error:
            end = _end_by(error)
            raise
        finally:
            self.count(kind, end, self._monotonic() - began_s, cancellation.waited_s)

    def count(self, kind: str, end: StatementEnd, took_s: float, waited_s: float = 0.0) -> None:
        """Counts a statement that has ended, after so many seconds."""
        with self._lock:
            self._ended[kind, end] = self._ended.get((kind, end), 0) + 1
            for durations, seconds in ((self._took, took_s), (self._waited, waited_s)):
                durations[kind] = durations.get(kind, Durations()).and_one(seconds)

    def totals(self) -> StatementTotals:
        """The counts so far."""
        with self._lock:
            return StatementTotals(dict(self._ended), dict(self._took), dict(self._waited))


def _end_by(error: BaseException) -> StatementEnd:
    is_canceled = isinstance(error, SlackwaterError) and error.condition == "SLACKWATER_CANCELED"
    return "canceled" if is_canceled else "error"
