"""The seam by which the leader says that what others know of it is out of date."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from slackwater.repr.frontier import Timestamp


class CatalogMark(Protocol):
    """A number that readers of the catalog elsewhere look at before they use what they know of it.

    It is odd while a change becomes visible, and another even number afterwards, for ever. So who
    finds the same even number before and after a look at the catalog has seen what was there as
    long as the number stays.
    """

    def changing(self) -> AbstractContextManager[None]:
        """The number is odd within the block. One thread at a time."""
        ...


class LeaderMark(CatalogMark, Protocol):
    """All that readers elsewhere look at who do not ask the leader.

    At each moment, the read timestamp is at or after each that anybody was given before. Who finds
    that no commit of errors has begun since he knew a collection without errors reads none.
    """

    def reads_at(self, time: Timestamp) -> None:
        """The read timestamp of the oracle is `time`. One thread at a time."""
        ...

    def adding_errors(self) -> AbstractContextManager[None]:
        """Within the block a commit of errors may become visible."""
        ...


class Unmarked:
    """Nobody elsewhere keeps what he knows."""

    def changing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def reads_at(self, time: Timestamp) -> None:
        """Tells nobody."""

    def adding_errors(self) -> AbstractContextManager[None]:
        return nullcontext()
