"""The table log over the environment's shards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa

from slackwater.adapter.table_log import LogFencedError, LogMovedError, Step
from slackwater.persist.client import PersistClient, TablesAppend, UnknownShard, UpperMismatch
from slackwater.persist.leadership import Fenced
from slackwater.persist.parts import NewPart
from slackwater.persist.rows import WriteResult
from slackwater.repr.errors import user_error
from slackwater.repr.frontier import Timestamp


class PersistTableLog:
    """The `TableLog` of a leader. `client` may be used by others at the same time."""

    def __init__(self, client: PersistClient) -> None:
        self._client = client

    def tables_upper(self) -> Timestamp:
        with _translated():
            return self._client.tables_upper()

    def append(
        self,
        lower: Timestamp,
        upper: Timestamp,
        parts: Mapping[int, tuple[NewPart, ...]],
        steps: Sequence[Step],
        results: Mapping[str, WriteResult],
    ) -> None:
        """As the seam says; and SLACKWATER_DEPENDENCY_DROPPED when a table's shard is gone."""
        tables = TablesAppend(lower, upper, parts)
        with _translated():
            self._client.commit((), tables=tables, steps=steps, write_ids=results)

    def written(self, write_id: str) -> WriteResult | None:
        with _translated():
            return self._client.written(write_id)

    def new_parts(self, shard_id: int, updates: pa.Table) -> tuple[NewPart, ...]:
        with _translated():
            return self._client.new_parts(shard_id, updates)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except Fenced as error:
        raise LogFencedError(str(error)) from error
    except UpperMismatch as error:
        raise LogMovedError(str(error)) from error
    except UnknownShard as error:
        raise user_error("SLACKWATER_DEPENDENCY_DROPPED", objectName="The table") from error
