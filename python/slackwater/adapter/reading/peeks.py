"""Peeks of indexes, for applications that do not keep them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from slackwater.adapter import protocol
from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.adapter.controllers.dataflows import IndexOffer
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.reading.stashed_rows import StashedRows
from slackwater.adapter.time.watch import Cancellation
from slackwater.compute.controller.errors import ComputeError
from slackwater.compute.controller.protocol import (
    Peek,
    PeekRows,
)
from slackwater.compute.controller.shell import OpenPeek
from slackwater.compute.peeked_rows import PeekLimits, PeekStashed, Stash
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId

FILE_LIMITS = PeekLimits(rows=20_000_000, bytes=4 << 30)
"""The most that the file of a peek has: the statement waits for it while it is planned."""


class PeekedIndexes(Protocol):
    """The seam to the indexes that replicas keep."""

    def index(self, global_id: GlobalId) -> IndexOffer | None:
        """The index of that id for queries; None: no replica has it."""
        ...

    def peek(self, index: CatalogItem, wanted: Peek, replica: str) -> OpenPeek:
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
class IndexFile:
    """The same as a file of protocol section 2, with the schema that it was written with."""

    file: Mapping[str, Any]
    upper: Timestamp


@dataclass(frozen=True, slots=True)
class Peeks:
    """Reads indexes by the compute controller. Thread-safe; waits in the caller's thread."""

    relations: Relations
    indexes: PeekedIndexes
    stashed: StashedRows

    def rows(
        self, asked: protocol.Peek, cancellation: Cancellation
    ) -> IndexRows | IndexFile | None:
        """The rows with the keys at the time, or at the last one before that the index has.

        A file is there as long as the hold for which it was asked. None: there is no such index in
        memory, it has forgotten the time, or the rows are more than the limits allow. Whoever asks
        has another way then. Raises SLACKWATER_CANCELED.
        """
        item = self.relations.state.items.get(asked.index)
        offer = self.indexes.index(asked.index)
        if item is None or item.kind is not ItemKind.INDEX or offer is None:
            return None
        time = Timestamp(min(asked.as_of, offer.upper - 1))
        try:
            peek = self.indexes.peek(item, self._peek(asked, time), offer.replica)
        except ComputeError:
            return None
        with cancellation.on_cancel_or_deadline(lambda: self.indexes.cancel_peek(peek)):
            answer = peek.answer.result()
        upper = Timestamp(time + 1)
        match answer:
            case PeekRows(rows):
                found: IndexRows | IndexFile | None = IndexRows(rows, upper)
            case PeekStashed(uri) if self.stashed.keep(asked.hold or "", uri):
                found = IndexFile(_file_json(answer, time), upper)
            case _:
                found = None
        # The end of the statement also ends the hold that a file is kept for.
        cancellation.check()
        return found

    def _peek(self, asked: protocol.Peek, time: Timestamp) -> Peek:
        return Peek(
            "",
            asked.index,
            time,
            None if asked.keys is None else base64.b64decode(asked.keys),
            PeekLimits(asked.rows, asked.bytes),
            None if asked.hold is None else Stash(self.stashed.directory, FILE_LIMITS),
        )


def _file_json(stashed: PeekStashed, time: Timestamp) -> Mapping[str, Any]:
    return {
        "uri": stashed.uri,
        "size_bytes": stashed.size_bytes,
        "modified_ms": stashed.modified_ms,
        "rows": stashed.rows,
        "time": time,
        "diff": 1,
        "max_time": time,
        "retractions": False,
        "schema": stashed.schema,
    }
