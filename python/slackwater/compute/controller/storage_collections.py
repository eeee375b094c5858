"""The seam to stored collections, which a storage controller knows.

Source: spec controllers 4.5.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from slackwater.controller.frontiers import CollectionFrontiers
from slackwater.controller.holds import Holder, Holds, ReadHold
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId


class StorageCollections(Protocol):
    """The stored collections, answered at once and in memory: the capabilities of that controller.

    Whoever calls the compute controller makes sure that nobody else changes them meanwhile.
    """

    @property
    def holds(self) -> Holds:
        """The holds, which are downgraded and released here."""
        ...

    def frontiers(self, global_id: GlobalId) -> CollectionFrontiers | None:
        """The frontiers now; None when there is no such collection."""
        ...

    def acquire(
        self, ids: Iterable[GlobalId], holder: Holder, at: Timestamp | None = None
    ) -> ReadHold:
        """One hold at `at`, or at the first time at which all can be read.

        It is asked for only where `frontiers` says that it can be had.
        """
        ...
