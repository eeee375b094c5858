"""The seam to the durable log of the environment's tables.

All tables share one upper. An append moves it and adds the parts of any number of tables, in one
metastore transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from slackwater.persist.parts import NewPart
from slackwater.persist.rows import WriteResult
from slackwater.persist.transactions import Step
from slackwater.repr.frontier import Timestamp


class LogFencedError(Exception):
    """Another application leads the environment; nothing was written, and nothing ever will be."""


class LogMovedError(Exception):
    """The tables upper is not the expected one; nothing was written."""


class TableLog(Protocol):
    """The log, as the group committer uses it: from one thread, save for `written`."""

    def tables_upper(self) -> Timestamp:
        """The shared upper, as the last transaction left it."""
        ...

    def append(
        self,
        lower: Timestamp,
        upper: Timestamp,
        parts: Mapping[int, tuple[NewPart, ...]],
        steps: Sequence[Step],
        results: Mapping[str, WriteResult],
    ) -> None:
        """Moves the shared upper from `lower` to `upper` and adds `parts`, by shard.

        In the same transaction runs `steps` and remembers `results` by write id. Without parts
        its cost does not depend on the number of tables. Raises LogFencedError, LogMovedError, and
        SLACKWATER_METASTORE_UNAVAILABLE; after the last one the outcome may be either.
        """
        ...

    def written(self, write_id: str) -> WriteResult | None:
        """The result of the committed write `write_id`; None: there is none."""
        ...

    def new_parts(self, shard_id: int, updates: pa.Table) -> tuple[NewPart, ...]:
        """Parts for updates that have ``__time`` and ``__diff``."""
        ...
