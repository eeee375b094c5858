"""What stands behind the ingress: nothing, until the environment is open."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from slackwater.adapter.sources.changefeeds import Changefeeds
from slackwater.adapter.sources.webhooks import Webhooks


@dataclass(frozen=True, slots=True)
class Behind:
    """Who takes requests. `confirm` raises unless the process may answer as the leader.

    `metrics` gives them in the format of Prometheus.
    """

    webhooks: Webhooks
    changefeeds: Changefeeds
    confirm: Callable[[], None]
    metrics: Callable[[], bytes]


class Gate:
    """Thread-safe. Whoever comes while it is closed is asked to come again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._behind: Behind | None = None
        self._told: tuple[str, str | None] | None = None

    @property
    def behind(self) -> Behind | None:
        """None: it is closed."""
        return self._behind

    def open(self, behind: Behind) -> None:
        with self._lock:
            self._behind = behind
            told = self._told
        if told is not None:
            behind.webhooks.listens(*told)

    def close(self) -> None:
        with self._lock:
            self._behind = None

    def listens(self, url: str, error: str | None) -> None:
        """Notes where requests come, or why none can."""
        with self._lock:
            self._told = (url, error)
            behind = self._behind
        if behind is not None:
            behind.webhooks.listens(url, error)
