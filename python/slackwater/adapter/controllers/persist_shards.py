"""The leader's shards, as the effects of the storage controller need them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
from sqlalchemy import Connection

from slackwater.adapter.controllers.storage_log import CommitExtras
from slackwater.persist.client import Append, PersistClient, TablesAppend, UpperMismatch
from slackwater.persist.consolidate import consolidate
from slackwater.persist.contents import advanced
from slackwater.persist.parts import NewPart
from slackwater.planner.parser.parameters import size_bytes
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.storage.controller.effects import AppendRows, ShardAppend
from slackwater.storage.controller.protocol import AppendDone, AppendRefused


def persist_configured(persist: PersistClient) -> Callable[[Mapping[str, str]], None]:
    """The function by which the client goes on with those of the parameters that concern it."""

    def configure(parameters: Mapping[str, str]) -> None:
        inline = size_bytes(parameters, "persist_inline_writes_single_max_bytes")
        if inline is not None:
            persist.files.inline_bytes = inline

    return configure


@dataclass(frozen=True, slots=True)
class PersistShardStore:
    """Shards through `PersistClient`. Its methods raise what those of the client raise."""

    persist: PersistClient

    def set_since(self, sinces: Mapping[int, Timestamp]) -> None:
        self.persist.maintenance.set_since(sinces)

    def drop_shards(self, shard_ids: Sequence[int]) -> None:
        """Drops the shards in one transaction."""

        def drop(conn: Connection) -> None:
            for shard_id in shard_ids:
                self.persist.definitions.drop_shard(conn, shard_id)

        self.persist.transactions.transact(drop)

    def reclaim_shards(self, shard_ids: Sequence[int]) -> None:
        """Keeps the shards in one transaction."""

        def keep(conn: Connection) -> None:
            for shard_id in shard_ids:
                self.persist.definitions.keep_shard(conn, shard_id)

        self.persist.transactions.transact(keep)

    def append(self, effect: AppendRows) -> AppendDone | AppendRefused:
        """Commits rows, uppers, and the steps and results beside them in one transaction."""
        extras = CommitExtras() if effect.extras is None else effect.extras
        if not isinstance(extras, CommitExtras):
            raise AssertionError(f"a commit cannot have {type(extras).__name__}")
        tables = None if effect.tables is None else _tables(*effect.tables, effect.appends)
        try:
            done = self.persist.commits.commit(
                [_own(each) for each in effect.appends if not each.shares_tables_upper],
                tables=tables,
                steps=extras.steps,
                write_ids=extras.results,
            )
        except UpperMismatch as moved:
            actual = Frontier(moved.actual)
            if moved.shard_id is None:
                return AppendRefused(effect.ticket, (), actual)
            ids = dict.fromkeys(e.id for e in effect.appends if e.shard_id == moved.shard_id)
            return AppendRefused(effect.ticket, tuple((each, actual) for each in ids))
        if not done:
            raise FatalError("a write was committed twice, and nobody asked whether it had been")
        return AppendDone(effect.ticket)

    def snapshot(self, shard_id: int, as_of: Timestamp) -> pa.Table:
        """The consolidated updates at `as_of`."""
        desc = self.persist.reads.state(shard_id).desc
        found = self.persist.reads.parts_at(shard_id, as_of)
        updates = self.persist.reads.read(found, desc, upper=Timestamp(as_of + 1))
        return consolidate(advanced(updates, as_of))


def _own(append: ShardAppend) -> Append:
    lower, upper = Timestamp(append.lower.value), Timestamp(append.upper.value)
    return Append(append.shard_id, lower, upper, _parts(append))


def _tables(lower: Frontier, upper: Frontier, appends: Sequence[ShardAppend]) -> TablesAppend:
    parts = {each.shard_id: _parts(each) for each in appends if each.shares_tables_upper}
    return TablesAppend(Timestamp(lower.value), Timestamp(upper.value), parts)


def _parts(append: ShardAppend) -> tuple[NewPart, ...]:
    return () if append.rows is None else cast("tuple[NewPart, ...]", append.rows)
