"""The seam between a source and a PostgreSQL server: what is asked of it.

Source: docs/decisions 0072.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from slackwater.repr.errors import user_error
from slackwater.storage.ingestion import ADVICE_WHERE_REPLACED
from slackwater.storage.postgres.tables import TableNow, Tables


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """A server that is another one, or was promoted, has other positions in its log."""

    system: str
    timeline: int


def refuse_another(source: str, before: ServerIdentity, now: ServerIdentity) -> None:
    """Raises SLACKWATER_SOURCE_REPLACED when the server of a source is another one now."""
    for what, then, found in (
        ("the PostgreSQL server", before.system, now.system),
        ("the timeline of the PostgreSQL server", str(before.timeline), str(now.timeline)),
    ):
        if then != found:
            raise user_error(
                "SLACKWATER_SOURCE_REPLACED",
                objectName=source,
                what=what,
                before=then,
                now=found,
                advice=ADVICE_WHERE_REPLACED,
            )


@dataclass(frozen=True, slots=True)
class SlotState:
    """A replication slot. The server keeps its log from `confirmed` on, unless it `is_lost`.

    `retained_bytes` is how much that is.
    """

    confirmed: int
    is_lost: bool = False
    retained_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RetainedLog:
    """The size of the log that a server keeps for a source, and since when it is so large."""

    size_bytes: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class Keepalive:
    """All that was committed before the position `end` was sent."""

    end: int


Received = bytes | Keepalive
"""A message of pgoutput, or a sign of life."""


class Replication(Protocol):
    """One server over connections that are open. Not thread-safe.

    Each method raises SLACKWATER_SOURCE_UNREACHABLE when the server does not answer.
    """

    def identity(self) -> ServerIdentity: ...

    def slot(self) -> SlotState | None:
        """The slot of the source; None: there is none."""
        ...

    def create_slot(self) -> int | None:
        """Makes the slot, instead of one that there is, and returns the position at which it
        begins. What `tables` and `copy` say is as of that position, until `start`.

        None: it waits for transactions that run; ask again.
        """
        ...

    def tables(self) -> Tables:
        """The tables of the publication. Raises SLACKWATER_UNKNOWN_PUBLICATION."""
        ...

    def known_rows(self, oids: Collection[int]) -> int | None:
        """About how many rows tables have, as the server estimates; None: it does not know."""
        ...

    def copy(self, table: TableNow, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The rows of a table in pieces, each value as text."""
        ...

    def start(self, position: int) -> None:
        """Lets the transactions come that were committed at this position or later."""
        ...

    def read(self, limit: int, wait_ms: int) -> Sequence[Received]:
        """Takes what has come, at most so much. Waits so long for the first of it."""
        ...

    def confirm(self, position: int) -> None:
        """The log before this position is not needed any more."""
        ...


class Upstream(Protocol):
    """The server of a source, over connections that come and go."""

    def replication(self) -> Replication:
        """The server, over the connection as it is now: a new one once that was altered.

        Raises SLACKWATER_SOURCE_UNREACHABLE, SLACKWATER_CONNECTOR_MISSING, and what the
        connection and its secrets raise.
        """
        ...

    def forget(self) -> None:
        """The server that was given is of no use any more."""
        ...
