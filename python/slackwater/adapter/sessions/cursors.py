"""The seam to the cursors of a session."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from slackwater.adapter.sessions.results import Result
from slackwater.adapter.time.watch import Cancellation
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc

_LOOK_S = 0.1


@contextmanager
def in_turn(cursor: Cursor, cancellation: Cancellation) -> Iterator[None]:
    """Waits until no other statement fetches from the cursor. Raises SLACKWATER_CANCELED."""
    while not cursor.turn.acquire(timeout=_LOOK_S):
        cancellation.check()
    try:
        yield
    finally:
        cursor.turn.release()


class Cursor(Protocol):
    """An open cursor of a session. `fetch` is called by one statement at a time (`in_turn`).

    `reads` are the collections that a subscription follows, and `cluster` is that of its session
    when it began; a cursor over a query has none.
    """

    reads: tuple[GlobalId, ...]
    cluster: GlobalId | None
    created_ms: int
    turn: threading.Lock

    @property
    def desc(self) -> RelationDesc: ...

    def fetch(
        self, count: int | None, timeout_ms: int | None, cancellation: Cancellation
    ) -> Result:
        """Up to `count` rows (None: all that are ready), after waiting for the first one.

        Waits at most `timeout_ms`, and answers without rows then. With `timeout_ms` None it waits
        until there is a row or the cursor is at its end, and raises SLACKWATER_STATEMENT_TIMEOUT at
        the statement's deadline. Raises SLACKWATER_CANCELED, and SLACKWATER_RESULT_SIZE when the
        rows to keep are more than the session allows.
        """
        ...

    @property
    def ended(self) -> bool:
        """Whether no more rows will come."""
        ...

    def close(self) -> None: ...
