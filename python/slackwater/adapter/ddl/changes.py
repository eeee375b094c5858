"""A change of the catalog: one metastore transaction, and its consequences.

The transaction holds entries, audit rows and shards. The consequences (dataflows, ingestions and
sinks start and stop) are derived from the committed difference alone, by `Implications`, which
start-up uses as well. Source: spec coordinator 1.7, 4.3, 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TypeVar

from sqlalchemy import Connection

from slackwater.adapter.catalog.clusters import ClusterEntry
from slackwater.adapter.catalog.details import (
    FilesDetails,
    KafkaDetails,
    LakeDetails,
    MessageSettings,
    SourceTableDetails,
    SubsourceDetails,
)
from slackwater.adapter.catalog.durable import DurableCatalog
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind, shards_of
from slackwater.adapter.catalog.ops import (
    AlterItem,
    CatalogDiff,
    CatalogOp,
    CreateItem,
    apply,
    changeable,
)
from slackwater.adapter.ddl.implications import Implications
from slackwater.adapter.sessions.sessions import Execution
from slackwater.adapter.sources.source_states import create_state
from slackwater.adapter.time.timeline import Timeline
from slackwater.adapter.time.watch import Cancellation
from slackwater.persist.client import PersistClient
from slackwater.persist.parts import NewPart
from slackwater.persist.transactions import Step
from slackwater.planner.parser.names import QualifiedName
from slackwater.repr.dataflow_error import ERRORS
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc

T = TypeVar("T")

Changed = Callable[[CatalogDiff, CatalogState, CatalogState], None]
"""Is told of a change, and of the catalog before and after it."""


def _nobody_is_told(diff: CatalogDiff, before: CatalogState, after: CatalogState) -> None:
    """A change that nobody outside of the environment hears of."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Commits changes, under the lock of the catalog, which `defining` takes for a statement.

    `on_drop` has functions by kind, which the transaction calls for each object that it drops.
    `changed` is told of each change that was committed; it must not block.
    """

    catalog: DurableCatalog
    persist: PersistClient
    timeline: Timeline
    implications: Implications
    on_drop: Mapping[ItemKind, Callable[[Connection, GlobalId], None]]
    changed: Changed = _nobody_is_told

    @property
    def state(self) -> CatalogState:
        """The catalog as of now: an immutable snapshot."""
        return self.catalog.state

    @property
    def lock(self) -> AbstractContextManager[None]:
        """The lock of the catalog."""
        return self.catalog.lock

    def defining(self, cancellation: Cancellation) -> AbstractContextManager[None]:
        """The lock of the catalog for a statement.

        Raises SLACKWATER_CANCELED and SLACKWATER_STATEMENT_TIMEOUT.
        """
        return self.catalog.lock.defining(cancellation)

    def new_name(
        self, execution: Execution, name: QualifiedName, *, if_not_exists: bool
    ) -> tuple[str, str] | None:
        """The schema and the name of a new object; None: it exists, and the statement is done."""
        named = execution.context.resolve(name)
        existing = self.state.find(*named)
        if existing is None or not if_not_exists:
            return named
        execution.session.notify(
            f"{existing.full_name} exists already, as a {existing.kind.display_name}.", code="42P07"
        )
        return None

    def existing_name(
        self, execution: Execution, kind: ItemKind, name: QualifiedName, *, if_exists: bool
    ) -> tuple[str, str] | None:
        """The schema and the name of an object that exists; None: not so, and that is all right.

        Raises SLACKWATER_SYSTEM_OBJECT for one of the system.
        """
        schema, own = named = execution.context.resolve(name)
        existing = self.state.find(*named)
        if existing is not None:
            changeable(self.state, existing.id)
        if existing is not None or not if_exists:
            return named
        execution.session.notify(f"There is no {kind.display_name} {schema}.{own}.", code="42704")
        return None

    def new_id(self) -> GlobalId:
        return self.catalog.allocate_ids()[0]

    def reserve_shard(self) -> int:
        """Reserves the id of a shard, which nobody else gets."""
        return self.persist.definitions.reserve_shard()

    def cluster_for(self, execution: Execution, name: str | None) -> ClusterEntry:
        """The cluster of a new object: that of the name, or else of the session.

        Raises SLACKWATER_UNKNOWN_CLUSTER.
        """
        return self.state.cluster(execution.session.variable("cluster") if name is None else name)

    def tell_if_idle(self, execution: Execution, item: CatalogItem) -> bool:
        """Whether no replica runs the item, of which a notice is given then."""
        cluster = self.state.cluster_running(item)
        if cluster is None or cluster.replicas:
            return False
        execution.session.notify(
            f"The cluster {cluster.name} has no replicas: {item.full_name} begins when it has one."
        )
        return True

    def new_item(self, kind: ItemKind, schema: str, name: str, user: str) -> CatalogItem:
        """A new object with an id and an owner, and without a definition."""
        return CatalogItem(
            id=self.new_id(),
            kind=kind,
            schema_name=schema,
            name=name,
            create_sql="",
            owner=user,
            created_ms=self.timeline.now(),
        )

    def commit(
        self,
        ops: Sequence[CatalogOp] | Callable[[Connection], Sequence[CatalogOp]],
        user: str | None,
    ) -> CatalogDiff:
        """Commits a change, with its consequences. Called with the catalog's lock held."""
        before = self.state
        _, diff = self.catalog.transact(
            self._with_shards_dropped(ops), user=user, on_durable=self.implications.prepare
        )
        self._follow(diff, before)
        return diff

    def commit_with_write(
        self,
        ops: Callable[[Connection], Sequence[CatalogOp]],
        user: str | None,
        write: Callable[[Step], T],
    ) -> T:
        """Commits a change in the transaction of a write, to which `write` gives the step.

        Called with the catalog's lock held; the write locks of the write were taken before it.
        """
        before = self.state
        with self.catalog.stage(self._with_shards_dropped(ops), user=user) as change:
            result = write(change.step)
            _, diff = change.publish(self.implications.prepare)
        self._follow(diff, before)
        return result

    def _with_shards_dropped(
        self, ops: Sequence[CatalogOp] | Callable[[Connection], Sequence[CatalogOp]]
    ) -> Callable[[Connection], Sequence[CatalogOp]]:
        before = self.state

        def make(conn: Connection) -> Sequence[CatalogOp]:
            made = list(ops(conn) if callable(ops) else ops)
            _, diff = apply(before, made)
            for item in diff.dropped:
                for shard_id in shards_of(item):
                    if self.persist.reads.has_contents(shard_id):
                        self.persist.definitions.drop_shard(conn, shard_id)
                if item.kind in self.on_drop:
                    self.on_drop[item.kind](conn, item.id)
            return made

        return make

    def _follow(self, diff: CatalogDiff, before: CatalogState) -> None:
        self.implications.apply(diff)
        self.timeline.watch.signal()
        self.changed(diff, before, self.state)

    def with_columns(
        self, item: CatalogItem, desc: RelationDesc | None, altered: AlterItem
    ) -> Callable[[Connection], Sequence[CatalogOp]]:
        """The alteration, which gives the item and its shard the columns of `desc`."""

        def make(conn: Connection) -> Sequence[CatalogOp]:
            before = item.desc
            if desc is None or before is None or desc == before:
                return [altered]
            if item.shard_id is not None:
                self.persist.definitions.set_desc(conn, item.shard_id, desc, before)
            return [replace(altered, desc=desc)]

        return make

    def with_tables_shards(
        self, items: Sequence[CatalogItem]
    ) -> Callable[[Connection], Sequence[CatalogOp]]:
        """Creates the items with shards that share the tables upper."""

        def make(conn: Connection) -> Sequence[CatalogOp]:
            since = self.timeline.read_ts()
            for item in items:
                if item.kind is ItemKind.SOURCE and item.parent is None:
                    create_state(conn, item.id)
            return [CreateItem(self.with_tables_shard(conn, item, since)) for item in items]

        return make

    def with_first_parts(
        self,
        conn: Connection,
        item: CatalogItem,
        time: Timestamp,
        parts: Sequence[NewPart],
    ) -> CatalogItem:
        """The item with a shard that shares the tables upper and begins at `time` with `parts`.

        The shard gets the id that the item names, if that was reserved.
        """
        persist, desc = self.persist, item.desc
        if desc is None:
            raise AssertionError(f"the table {item.id} has no columns")
        shard_id = persist.definitions.create_shard(
            conn, desc, since=time, upper=None, reserved=item.shard_id
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
            return self.persist.definitions.create_shard(conn, desc, since=since, upper=None)

        made = replace(item, shard_id=shard(item.desc))
        details = item.details
        if isinstance(details, _Filled) and _has_errors(details):
            return replace(made, details=replace(details, errors=shard(ERRORS)))
        return made


_Filled = FilesDetails | KafkaDetails | LakeDetails | SourceTableDetails | SubsourceDetails
"""Those relations that a source fills which may have errors in their contents."""


def _has_errors(details: _Filled) -> bool:
    """Whether the relation may have errors in its contents."""
    match details:
        case FilesDetails(config=files):
            return files.on_error == "PROPAGATE"
        case KafkaDetails(config=topic):
            return _propagates(topic.messages)
        case LakeDetails():
            return True
        case SourceTableDetails():
            return details.upstream is not None or _propagates(details.messages)
        case SubsourceDetails():
            return details.has_errors


def _propagates(messages: MessageSettings | None) -> bool:
    """Whether messages that cannot be read become errors of the contents."""
    return messages is not None and messages.decoding.on_error == "PROPAGATE"
