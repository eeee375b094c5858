"""The persist package as the group committer's log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from slackwater.adapter.table_log import LogFencedError, LogMovedError, Step, WriteResult
from slackwater.persist import client
from slackwater.persist.leadership import Fenced
from slackwater.persist.parts import NewPart
from slackwater.repr.errors import user_error
from slackwater.repr.frontier import Timestamp


class PersistLog:
    """`TableLog` over `PersistClient`."""

    def __init__(self, persist: client.PersistClient) -> None:
        self._persist = persist

    def tables_upper(self) -> Timestamp:
        return self._persist.tables_upper()

    def append(
        self,
        lower: Timestamp,
        upper: Timestamp,
        parts: Mapping[int, tuple[NewPart, ...]],
        steps: Sequence[Step],
        results: Mapping[str, WriteResult],
    ) -> None:
        try:
            self._persist.commit(
                (),
                tables=client.TablesAppend(lower, upper, parts),
                steps=steps,
                write_ids=results,
            )
        except Fenced as error:
            raise LogFencedError from error
        except client.UpperMismatch as error:
            raise LogMovedError from error
        except client.UnknownShard as error:
            raise user_error(
                "SLACKWATER_DEPENDENCY_DROPPED", objectName="The table of this write"
            ) from error

    def written(self, write_id: str) -> WriteResult | None:
        return self._persist.written(write_id)

    def new_parts(self, shard_id: int, updates: pa.Table) -> tuple[NewPart, ...]:
        return self._persist.new_parts(shard_id, updates)
