"""What a session's cursor can do."""

from __future__ import annotations

from typing import Protocol

from slackwater.adapter.reading.results import Result
from slackwater.adapter.time.watch import Cancellation
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc


class Cursor(Protocol):
    """An open cursor of a session.

    `reads` are the collections that a subscription follows; a cursor over a query has none.
    """

    reads: tuple[GlobalId, ...]
    created_ms: int

    @property
    def desc(self) -> RelationDesc: ...

    def fetch(
        self, count: int | None, timeout_ms: int | None, cancellation: Cancellation
    ) -> Result:
        """Up to `count` rows (None: all that are ready), waiting for the first one.

        Waits at most `timeout_ms`, and answers without rows then. None: until there is one, or the
        cursor is at its end, up to the statement's deadline: SLACKWATER_STATEMENT_TIMEOUT.
        Raises SLACKWATER_CANCELED, and SLACKWATER_RESULT_TOO_LARGE; the cursor stays where it is.
        """
        ...

    @property
    def ended(self) -> bool:
        """Whether no more rows will come."""
        ...

    def close(self) -> None: ...
