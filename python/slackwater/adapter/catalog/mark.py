"""The seam by which the catalog says that what others know of it is out of date."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class CatalogMark(Protocol):
    """A number that readers of the catalog elsewhere look at before they use what they know of it.

    It is odd while a change becomes visible, and another even number afterwards, for ever. So who
    finds the same even number before and after a look at the catalog has seen what was there as
    long as the number stays.
    """

    def changing(self) -> AbstractContextManager[None]:
        """The number is odd within the block. One thread at a time."""
        ...


class Unmarked:
    """Nobody elsewhere keeps what he knows of the catalog."""

    def changing(self) -> AbstractContextManager[None]:
        return nullcontext()
