"""The status of each ingestion and sink, as it was last written. Source: spec controllers 2.9."""

from __future__ import annotations

from slackwater.repr.ids import GlobalId
from slackwater.storage.controller.effects import Effect, WriteStatus


class Statuses:
    """The last status of each object. Not thread-safe."""

    def __init__(self, effects: list[Effect]) -> None:
        """`effects` takes what is to be done, in order."""
        self._effects = effects
        self._last: dict[GlobalId, str] = {}

    def report(self, global_id: GlobalId, status: str, error: str | None = None) -> None:
        """Nothing follows "dropped", and "paused" does not repeat itself (2.9)."""
        before = self._last.get(global_id)
        if before == "dropped" or before == status == "paused":
            return
        self._last[global_id] = status
        self._effects.append(WriteStatus(global_id, status, error))
