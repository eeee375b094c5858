"""The gate between the ingress and the coordinator: closed until the environment is open."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from slackwater.adapter.sources.changefeeds import Changefeeds
from slackwater.adapter.sources.webhooks import Webhooks


@dataclass(frozen=True, slots=True)
class IngressBackend:
    """The parts that take requests. `confirm` raises unless the process may answer as the leader.

    `metrics` gives the metrics in the format of Prometheus.
    """

    webhooks: Webhooks
    changefeeds: Changefeeds
    confirm: Callable[[], None]
    metrics: Callable[[], bytes]


class BackendGate:
    """The backend while it is open. Requests to a closed gate are asked to come again.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._backend: IngressBackend | None = None
        self._told: tuple[str, str | None] | None = None

    @property
    def backend(self) -> IngressBackend | None:
        """The backend; None: the gate is closed."""
        return self._backend

    def open(self, backend: IngressBackend) -> None:
        with self._lock:
            self._backend = backend
            told = self._told
        if told is not None:
            backend.webhooks.listens(*told)

    def close(self) -> None:
        with self._lock:
            self._backend = None

    def listens(self, url: str, error: str | None) -> None:
        """Notes the URL at which requests come, or why none can, and tells the backend."""
        with self._lock:
            self._told = (url, error)
            backend = self._backend
        if backend is not None:
            backend.webhooks.listens(url, error)
