"""The durable side of a history: stores what its core gives, and takes over what there was."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import structlog

from slackwater.adapter.history.files import HistoryFiles
from slackwater.repr.errors import SlackwaterError

Kept = TypeVar("Kept")
Taken = TypeVar("Taken", contravariant=True)

_log = structlog.get_logger("history")


class Core(Protocol[Taken]):
    """The part of a core that has to do with what is stored."""

    def put_back(self, records: Iterable[Taken], /) -> None:
        """Gives back records that could not be stored."""
        ...

    def recover(self, records: Iterable[Taken], /, now_ms: int) -> None:
        """Takes what leaders before have stored. Idempotent."""
        ...


@dataclass(slots=True)
class HistoryStore(Generic[Kept]):
    """Stores the records of `core`, of which the newest `most` count, and none older than `age_ms`.

    For one thread; `lock` is that of the core. A store that is away, or full, costs the history
    what a crash would lose, and nobody else anything: what could not be stored is given back to the
    core, and the log says once that `name` is not stored.
    """

    name: str
    files: HistoryFiles[Kept]
    core: Core[Kept]
    lock: threading.Lock
    most: int
    age_ms: int
    _failing: bool = False
    _recovered: bool = False

    def keep(self, taken: tuple[Kept, ...], now_ms: int) -> None:
        """Stores what was taken from the core, and takes over, once, what leaders before had."""
        oldest_ms = now_ms - self.age_ms
        try:
            if taken:
                self.files.write(taken)
                taken = ()
            if not self._recovered:
                found = self.files.recovered(self.most, oldest_ms, now_ms)
                with self.lock:
                    self.core.recover(found, now_ms)
                self._recovered = True
            self.files.tidy(self.most, oldest_ms)
        except (SlackwaterError, OSError) as error:
            with self.lock:
                self.core.put_back(taken)
            if not self._failing:
                _log.warning(f"{self.name} is not stored", error=str(error))
            self._failing = True
        else:
            self._failing = False
