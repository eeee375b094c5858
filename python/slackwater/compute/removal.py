"""The end of what is computed for a dataflow, when that is removed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from slackwater.repr.ending import Ending
from slackwater.repr.errors import user_error


class Removal:
    """`slackwater.compute.engine.Interruption` of one dataflow's ticks. Thread-safe."""

    def __init__(self, name: str) -> None:
        """`name` is that of the view."""
        self._name = name
        self._ending = Ending()

    def remove(self) -> None:
        """Ends what runs, in the caller's thread; what would begin later is refused."""
        self._ending.end()

    def ending(self, action: Callable[[], None]) -> AbstractContextManager[None]:
        """Calls `action` if the dataflow is removed while the block runs, or was before."""
        return self._ending.calling(action)

    def refuse_late(self, doing: str) -> None:
        """Raises SLACKWATER_DEPENDENCY_DROPPED once the dataflow is removed."""
        if self._ending.is_ended:
            raise user_error("SLACKWATER_DEPENDENCY_DROPPED", objectName=self._name)
