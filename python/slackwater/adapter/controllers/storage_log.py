"""The table log of a leader: it passes the group committer's writes to the storage controller."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from slackwater.adapter.controllers.table_log import LogFencedError, LogMovedError
from slackwater.persist.client import PersistClient, UnknownShard
from slackwater.persist.leadership import Fenced
from slackwater.persist.parts import NewPart
from slackwater.persist.rows import WriteResult
from slackwater.persist.transactions import Step
from slackwater.repr.errors import FatalError, SlackwaterError, user_error
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.storage.controller.appends import CollectionAppend
from slackwater.storage.controller.errors import StorageError, Variant
from slackwater.storage.controller.shell import Storage


@dataclass(frozen=True, slots=True)
class CommitExtras:
    """The parts of a commit beside its rows: steps of its transaction, and results by write id."""

    steps: Sequence[Step] = ()
    results: Mapping[str, WriteResult] = field(default_factory=dict)


class StorageLog:
    """The `TableLog` of a leader. `client` may be used by others at the same time."""

    def __init__(self, storage: Storage, client: PersistClient) -> None:
        self._storage = storage
        self._client = client

    def tables_upper(self) -> Timestamp:
        return Timestamp(self._storage.tables_upper().value)

    def append(
        self,
        lower: Timestamp,
        upper: Timestamp,
        parts: Mapping[int, tuple[NewPart, ...]],
        steps: Sequence[Step],
        results: Mapping[str, WriteResult],
    ) -> None:
        """Appends as `TableLog.append` promises.

        Raises SLACKWATER_DEPENDENCY_DROPPED besides, when a table is gone.
        """
        if lower != self.tables_upper():
            raise LogMovedError(f"the upper is {self.tables_upper()}, not {lower}")
        owners = self._storage.owners(parts)
        if len(owners) < len(parts):
            raise _dropped()
        rows: dict[GlobalId, dict[int, tuple[NewPart, ...]]] = {}
        for shard_id, made in parts.items():
            rows.setdefault(owners[shard_id], {})[shard_id] = made
        with _translated():
            self._storage.append(
                [_command(owner, by_shard, Frontier(upper)) for owner, by_shard in rows.items()],
                Frontier(upper),
                CommitExtras(steps, results),
            )

    def written(self, write_id: str) -> WriteResult | None:
        with _translated():
            return self._client.commits.written(write_id)

    def new_parts(self, shard_id: int, updates: pa.Table) -> tuple[NewPart, ...]:
        with _translated():
            return self._client.files.new_parts(shard_id, updates)


def _command(
    owner: GlobalId, rows: Mapping[int, tuple[NewPart, ...]], upper: Frontier
) -> CollectionAppend:
    times = [part.max_time for made in rows.values() for part in made]
    return CollectionAppend(owner, rows, max(times, default=None), upper)


def _dropped() -> SlackwaterError:
    return user_error("SLACKWATER_DEPENDENCY_DROPPED", objectName="The table")


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except Fenced as error:
        raise LogFencedError(str(error)) from error
    except UnknownShard as error:
        raise _dropped() from error
    except StorageError as error:
        match error.variant:
            case Variant.INVALID_UPPERS:
                raise LogMovedError(str(error)) from error
            case Variant.IDENTIFIER_MISSING:
                raise _dropped() from error
            case _:
                raise FatalError(str(error)) from error
