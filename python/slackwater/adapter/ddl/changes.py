"""A change of the catalog: one metastore transaction, and what follows from it.

The transaction holds entries, audit rows and shards. What follows (dataflows, ingestions, sinks
start and stop) is derived from the committed difference alone, by `Implications`, which start-up
uses as well. Source: spec coordinator 1.7, 4.3, 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlalchemy import Connection

from slackwater.adapter.catalog.model import (
    CatalogItem,
    ItemKind,
    shards_of,
)
from slackwater.adapter.catalog.ops import (
    AlterItem,
    CatalogDiff,
    CatalogOp,
    CreateItem,
    apply,
)
from slackwater.adapter.ddl.implications import Implications
from slackwater.adapter.ddl.planned_sources import propagates_errors
from slackwater.adapter.environment import Environment
from slackwater.adapter.sessions.sessions import Session
from slackwater.adapter.sources.source_states import create_state
from slackwater.adapter.sources.sources import Sources
from slackwater.persist.parts import NewPart
from slackwater.persist.rows import WriteResult
from slackwater.persist.transactions import Step
from slackwater.repr.dataflow_error import ERRORS
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import RelationDesc


class Changes:
    """Commits changes. The caller holds the environment's ddl lock."""

    def __init__(self, env: Environment, sources: Sources, implications: Implications) -> None:
        self._env = env
        self._sources = sources
        self._implications = implications

    def commit(
        self,
        ops: Sequence[CatalogOp] | Callable[[Connection], Sequence[CatalogOp]],
        user: str | None,
    ) -> CatalogDiff:
        """Commits a change and what follows from it. Called with the ddl lock held."""
        _, diff = self._env.catalog.transact(
            self._with_shards_dropped(ops), user=user, on_durable=self._implications.prepare
        )
        self._follow(diff)
        return diff

    def commit_with_write(
        self,
        ops: Callable[[Connection], Sequence[CatalogOp]],
        user: str | None,
        write: Callable[[Step], WriteResult],
    ) -> WriteResult:
        """Commits a change in the transaction of a write, to which `write` gives the step.

        Called with the ddl lock held; what the write is locked by was locked before that.
        """
        with self._env.catalog.stage(self._with_shards_dropped(ops), user=user) as change:
            result = write(change.step)
            _, diff = change.publish(self._implications.prepare)
        self._follow(diff)
        return result

    def _with_shards_dropped(
        self, ops: Sequence[CatalogOp] | Callable[[Connection], Sequence[CatalogOp]]
    ) -> Callable[[Connection], Sequence[CatalogOp]]:
        before = self._env.state

        def make(conn: Connection) -> Sequence[CatalogOp]:
            made = list(ops(conn) if callable(ops) else ops)
            _, diff = apply(before, made)
            for item in diff.dropped:
                for shard_id in shards_of(item):
                    self._env.persist.definitions.drop_shard(conn, shard_id)
                if item.kind is ItemKind.SOURCE:
                    self._sources.forget(conn, item.id)
                if item.kind is ItemKind.SECRET:
                    self._env.secrets.forget(conn, item.id)
            return made

        return make

    def _follow(self, diff: CatalogDiff) -> None:
        self._implications.apply(diff)
        self._env.watch.signal()

    def skip(self, session: Session, if_not_exists: bool, schema: str, name: str) -> bool:
        existing = self._env.state.find(schema, name)
        if existing is None or not if_not_exists:
            return False
        session.notify(
            f"{existing.full_name} exists already, as a {existing.kind.display_name}.", code="42P07"
        )
        return True

    def with_columns(
        self, item: CatalogItem, desc: RelationDesc | None, altered: AlterItem
    ) -> Callable[[Connection], Sequence[CatalogOp]]:
        """The alteration, and with it the columns of the item and of its shard."""

        def make(conn: Connection) -> Sequence[CatalogOp]:
            before = item.desc
            if desc is None or before is None or desc == before:
                return [altered]
            if item.shard_id is not None:
                self._env.persist.definitions.set_desc(conn, item.shard_id, desc, before)
            return [replace(altered, desc=desc)]

        return make

    def with_tables_shards(
        self, items: Sequence[CatalogItem]
    ) -> Callable[[Connection], Sequence[CatalogOp]]:
        """Creates the items with shards that share the tables upper."""

        def make(conn: Connection) -> Sequence[CatalogOp]:
            since = self._env.oracle.read_ts()
            for item in items:
                if item.kind is ItemKind.SOURCE and item.parent is None:
                    create_state(conn, item.id)
            return [CreateItem(self.with_tables_shard(conn, item, since)) for item in items]

        return make

    def with_first_parts(
        self,
        conn: Connection,
        item: CatalogItem,
        reserved: int | None,
        time: Timestamp,
        parts: Sequence[NewPart],
    ) -> CatalogItem:
        """The item with a shard that shares the tables upper and begins at `time` with `parts`."""
        persist, desc = self._env.persist, item.desc
        if desc is None:
            raise AssertionError(f"the table {item.id} has no columns")
        shard_id = persist.definitions.create_shard(
            conn, desc, since=time, upper=None, reserved=reserved
        )
        persist.commits.add_first_parts(conn, shard_id, parts, time, Timestamp(time + 1))
        return replace(item, shard_id=shard_id)

    def with_tables_shard(
        self, conn: Connection, item: CatalogItem, since: Timestamp
    ) -> CatalogItem:
        """The item with a shard that shares the tables upper, if it has columns."""
        if item.desc is None or not item.desc.columns:
            return item

        def shard(desc: RelationDesc) -> int:
            return self._env.persist.definitions.create_shard(conn, desc, since=since, upper=None)

        made = replace(item, shard_id=shard(item.desc))
        if not propagates_errors(item):
            return made
        return replace(made, details={**item.details, "errors": shard(ERRORS)})
