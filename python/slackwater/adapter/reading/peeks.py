"""Peeks of indexes, for applications that do not keep them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.adapter.controllers.dataflows import IndexOffer
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.time.watch import Cancellation
from slackwater.compute.controller.errors import ComputeError
from slackwater.compute.controller.protocol import PeekLimits, PeekRows
from slackwater.compute.controller.shell import OpenPeek, Wanted
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId


class PeekedIndexes(Protocol):
    """The seam to the indexes that replicas keep."""

    def index(self, global_id: GlobalId) -> IndexOffer | None:
        """The index of that id for queries; None: no replica has it."""
        ...

    def peek(self, index: CatalogItem, wanted: Wanted, replica: str) -> OpenPeek:
        """Begins to read the index on the replica. Raises as `ComputeController.peek` does."""
        ...

    def cancel_peek(self, peek: OpenPeek) -> None:
        """Ends the peek, unless it has an answer."""
        ...


@dataclass(frozen=True, slots=True)
class IndexRows:
    """Rows of an index, as an Arrow IPC stream: those that its updates before `upper` make."""

    rows: bytes
    upper: Timestamp


@dataclass(frozen=True, slots=True)
class Peeks:
    """Reads indexes by the compute controller. Thread-safe; waits in the caller's thread."""

    relations: Relations
    indexes: PeekedIndexes

    def rows(
        self,
        index: GlobalId,
        as_of: Timestamp,
        keys: bytes | None,
        limits: PeekLimits,
        cancellation: Cancellation,
    ) -> IndexRows | None:
        """The rows with the keys at `as_of`, or at the last time before that the index has.

        None: there is no such index in memory, it has forgotten the time, or the rows are more than
        the limits allow. Whoever asks has another way then. Raises SLACKWATER_CANCELED.
        """
        item = self.relations.state.items.get(index)
        offer = self.indexes.index(index)
        if item is None or item.kind is not ItemKind.INDEX or offer is None:
            return None
        time = Timestamp(min(as_of, offer.upper - 1))
        try:
            peek = self.indexes.peek(item, Wanted(index, time, keys, limits), offer.replica)
        except ComputeError:
            return None
        with cancellation.on_cancel_or_deadline(lambda: self.indexes.cancel_peek(peek)):
            answer = peek.answer.result()
        cancellation.check()
        match answer:
            case PeekRows(rows):
                return IndexRows(rows, Timestamp(time + 1))
            case _:
                return None
