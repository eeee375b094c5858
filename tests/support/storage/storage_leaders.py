"""Leaders of one environment up to the storage shell: catalog, collections and shards are real.

Nothing here has a thread of its own. A leader may die before or after any commit of the metastore.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import sqlalchemy as sa
from sqlalchemy import event
from tests.support.persist.persistence import DESC, Environment, updates

from slackwater.adapter.catalog.details import (
    Details,
    MaterializedViewDetails,
    TableDetails,
)
from slackwater.adapter.catalog.durable import DurableCatalog
from slackwater.adapter.catalog.model import CatalogItem, ItemKind, shards_of
from slackwater.adapter.catalog.ops import CreateItem, DropItem
from slackwater.adapter.controllers.collections import Collections, recovered
from slackwater.adapter.controllers.persist_shards import PersistShardStore
from slackwater.adapter.controllers.storage_log import CommitExtras
from slackwater.persist.client import Append
from slackwater.persist.leadership import current_leader
from slackwater.persist.rows import WriteResult
from slackwater.persist.tables import catalog_items, parts, shards
from slackwater.repr.dataflow_error import ERRORS
from slackwater.repr.frontier import TIMESTAMP_MAX, Frontier, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.storage.controller.appends import CollectionAppend
from slackwater.storage.controller.shell import ShardStore, Storage


class Died(BaseException):
    """The process is gone: nothing that it still does has an effect."""


@dataclass(slots=True)
class Mortality:
    """Ends whoever commits: after `alive_for` more commits, before or after the next one."""

    alive_for: int | None = None
    landed: bool = False

    def attach(self, env: Environment) -> None:
        event.listen(env.engine, "commit", self._commit)

    @contextmanager
    def within(self, alive_for: int | None, landed: bool):
        self.alive_for, self.landed = alive_for, landed
        try:
            yield
        finally:
            self.alive_for = None

    def _commit(self, conn: sa.Connection) -> None:
        if self.alive_for is None or conn.get_execution_options()["slackwater_read_only"]:
            return
        if self.alive_for:
            self.alive_for -= 1
            return
        if self.landed:
            conn.connection.driver_connection.commit()
        raise Died


@dataclass(frozen=True, slots=True)
class Stored:
    """What is in the metastore, read past everybody. `finalized` are tombstones."""

    mapped: dict[int, GlobalId]
    live: frozenset[int]
    registered: frozenset[int]
    finalized: frozenset[int]
    items: dict[GlobalId, CatalogItem]

    @staticmethod
    def of(env: Environment) -> Stored:
        with env.engine.connect() as conn:
            bodies = conn.scalars(sa.select(catalog_items.c.body)).all()
            found = conn.execute(sa.select(shards)).all()
            filled = set(conn.scalars(sa.select(parts.c.shard_id)))
        items = [CatalogItem.from_json(body) for body in bodies]
        dropped = {row.shard_id: row for row in found if row.dropped}
        finalized = frozenset(
            shard
            for shard, row in dropped.items()
            if (row.since, row.upper) == (TIMESTAMP_MAX, TIMESTAMP_MAX) and shard not in filled
        )
        return Stored(
            {shard: item.id for item in items for shard in shards_of(item)},
            frozenset(row.shard_id for row in found) - dropped.keys(),
            frozenset(dropped) - finalized,
            finalized,
            {item.id: item for item in items},
        )


def everything(env: Environment) -> list[list[tuple]]:
    """All rows of the metastore."""
    with env.engine.connect() as conn:
        tables = sa.inspect(conn).get_table_names()
        return [[tuple(r) for r in conn.execute(sa.text(f"SELECT * FROM {t}"))] for t in tables]


@dataclass(eq=False, slots=True)
class Leader:
    """A leader that opens the environment when it is made. `store` may stand between the shell

    and the shards.
    """

    env: Environment
    store: Callable[[ShardStore], ShardStore] = lambda shards: shards
    client: object = field(init=False)
    catalog: DurableCatalog = field(init=False)
    storage: Storage = field(init=False)
    collections: Collections = field(init=False)

    def __post_init__(self) -> None:
        before = current_leader(self.env.engine)
        self.client = self.env.lead(None if before is None else before.epoch, clock=lambda: 0)
        self.catalog = DurableCatalog.open(self.client.transactions, clock_ms=lambda: 0)
        self.storage = Storage(
            recovered(self.client, self.catalog.state),
            self.store(PersistShardStore(self.client)),
            lambda: 0,
            lambda command: None,
        )
        self.collections = Collections(self.storage, self.client, lambda: self.catalog.state)
        self.collections.open()
        self.collections.allow_compaction()

    def create(
        self, name: str, kind: ItemKind, inputs: tuple[GlobalId, ...] = (), has_errors: bool = False
    ) -> GlobalId:
        """A new table or view, as a definition makes it; `has_errors`: with a shard of errors."""
        (global_id,) = self.catalog.allocate_ids()
        draft = CatalogItem(global_id, kind, "default", name, "", DESC, depends_on=inputs)
        shares_tables_upper = kind is not ItemKind.MATERIALIZED_VIEW
        since = Timestamp(max(0, self.storage.tables_upper().value - 1))

        def make(conn: sa.Connection) -> list[CreateItem]:
            def shard(desc=DESC) -> int:
                upper = None if shares_tables_upper else since
                return self.client.definitions.create_shard(conn, desc, since, upper)

            errors = shard(ERRORS) if has_errors else None
            return [CreateItem(replace(draft, shard_id=shard(), details=details(errors)))]

        def details(errors: int | None) -> Details:
            if kind is ItemKind.TABLE:
                return TableDetails()
            return MaterializedViewDetails("", "slackwater", ("default",), errors=errors)

        self.catalog.transact(
            make, on_durable=lambda after, diff: self.collections.create(diff.created, after)
        )
        return global_id

    def drop(self, global_id: GlobalId) -> None:
        """The object and what depends on it, as a definition drops them."""
        gone = self.catalog.state.with_dependents([global_id])

        def make(conn: sa.Connection) -> list[DropItem]:
            for item in gone:
                for shard in shards_of(item):
                    self.client.definitions.drop_shard(conn, shard)
            return [DropItem(item.id) for item in gone]

        _, diff = self.catalog.transact(make)
        self.collections.drop(diff.dropped)

    def append(self, ids: list[GlobalId], key: int, step: int, write_id: str = "") -> None:
        """A row for each, at the last time before the new upper, through the shell."""
        self.storage.append(
            [self.appended(each, key, step) for each in ids],
            extras=CommitExtras(
                (), {write_id: WriteResult(Timestamp(0), 1, 0)} if write_id else {}
            ),
        )

    def appended(self, global_id: GlobalId, key: int, step: int) -> CollectionAppend:
        shard = self.catalog.state.item(global_id).shard_id
        upper = Timestamp(self.storage.upper(global_id).value + step)
        rows = self.client.files.new_parts(shard, updates((key, "v", upper - 1, 1)))
        return CollectionAppend(global_id, {shard: rows}, Timestamp(upper - 1), Frontier(upper))

    def tick(self, view: GlobalId, key: int, lower: int, upper: int) -> None:
        """What the thread that maintains views commits, beside the shell, and then reports."""
        item = self.catalog.state.item(view)
        rows = self.client.files.new_parts(item.shard_id, updates((key, "v", upper - 1, 1)))
        self.client.commits.commit(
            [Append(item.shard_id, Timestamp(lower), Timestamp(upper), rows)]
        )
        self.storage.report([(view, Frontier(upper))])
