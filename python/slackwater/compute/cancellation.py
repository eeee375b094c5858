"""The end of what is computed for a dataflow, when that is removed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from slackwater.repr.cancellation import CancellationToken
from slackwater.repr.errors import user_error


class DataflowCancellation:
    """`slackwater.compute.engine.Interruption` of one dataflow's ticks. Thread-safe."""

    def __init__(self, name: str) -> None:
        """`name` is that of the view."""
        self._name = name
        self._token = CancellationToken()

    def cancel(self) -> None:
        """Ends what runs, in the caller's thread; what would begin later is refused."""
        self._token.cancel()

    def on_cancel_or_deadline(self, action: Callable[[], None]) -> AbstractContextManager[None]:
        """Calls `action` if the dataflow is removed while the block runs, or was before."""
        return self._token.on_cancel(action)

    def check_deadline(self, doing: str) -> None:
        """Raises SLACKWATER_DEPENDENCY_DROPPED once the dataflow is removed."""
        if self._token.is_cancelled:
            raise user_error("SLACKWATER_DEPENDENCY_DROPPED", objectName=self._name)
