"""The stored objects of the catalog, as collections and exports of the storage controller.

Source: spec controllers 2.8, 2.9; coordinator 2.10 (how much history is kept).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from slackwater.adapter.catalog.details import SinkDetails, SubsourceDetails
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind, shards_of
from slackwater.persist.client import PersistClient
from slackwater.planner.parser.parameters import milliseconds
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.read_policy import LagWriteFrontier, ValidFrom
from slackwater.storage.controller.core import StorageController
from slackwater.storage.controller.descriptions import (
    CollectionDescription,
    CollectionMetadata,
    DataSource,
    DurableState,
    ExportDescription,
    IngestionDescription,
    IngestionExport,
    OtherWriter,
    Table,
)
from slackwater.storage.controller.exports import CreateExportToken
from slackwater.storage.controller.shell import Storage

DEFAULT_RETAIN_MS = 1000

_log = structlog.get_logger("collections")


def recovered(persist: PersistClient, state: CatalogState) -> StorageController:
    """The controller of an environment whose catalog is `state`, as yet without collections."""
    items = state.items.values()
    mappings = {shard: item.id for item in items for shard in shards_of(item)}
    controller = StorageController(
        DurableState(
            mappings=mappings,
            unfinalized=frozenset(persist.reads.unfinalized()),
            unclaimed=frozenset(persist.reads.shard_ids()) - mappings.keys(),
            lost=frozenset(shard for item in items for shard in lost_shards(persist, item)),
        ),
        Frontier(persist.reads.tables_upper()),
    )
    for cluster in state.clusters:
        controller.placement.create_instance(cluster)
    return controller


def lost_shards(persist: PersistClient, item: CatalogItem) -> list[int]:
    """The shards of the item whose contents are gone, or have columns of other types."""
    found = [shard for shard in shards_of(item) if not persist.reads.has_contents(shard)]
    if found or item.shard_id is None:
        return found
    stored = persist.reads.state(item.shard_id).desc
    return [] if item.has_types_of(stored) else [item.shard_id]


def retention(item: CatalogItem, default_ms: int = DEFAULT_RETAIN_MS) -> LagWriteFrontier:
    """RETAIN HISTORY as a read policy: so much can be read before the last complete time."""
    kept = item.retain_history_ms
    return LagWriteFrontier((default_ms if kept is None else kept) + 1)


def export_description(item: CatalogItem) -> ExportDescription:
    """The description of a sink for the storage controller."""
    details = item.of(SinkDetails)
    kind, snapshot = details.kind, details.config.snapshot
    return ExportDescription(item.depends_on[0], cluster_of(item), kind, _begin(item), snapshot)


def cluster_of(item: CatalogItem) -> GlobalId:
    """The cluster that runs the item, whose id is that of its instance in both controllers."""
    if item.cluster is None:
        raise FatalError(f"{item.full_name} ({item.id}) runs on no cluster")
    return item.cluster


def _begin(sink: CatalogItem) -> Frontier:
    return Frontier(sink.of(SinkDetails).as_of)


@dataclass(slots=True)
class Collections:
    """Makes and drops collections as the catalog changes.

    The catalog's lock is held meanwhile.
    """

    storage: Storage
    persist: PersistClient
    state: Callable[[], CatalogState]
    _prepared: dict[GlobalId, CreateExportToken] = field(default_factory=dict)
    _retain_ms: int = DEFAULT_RETAIN_MS
    _lost: frozenset[GlobalId] = frozenset()
    """Objects whose contents were gone when the leader began."""

    def configure(self, parameters: Mapping[str, str]) -> None:
        """Goes on with the history that is kept by default; what is gone does not come back."""
        retain_ms = milliseconds(parameters, "default_retain_history")
        if retain_ms is None:
            return
        self._retain_ms = retain_ms
        concerned = [
            (item.id, self._retention(item))
            for item in self.state().items.values()
            if is_stored(item) and item.retain_history_ms is None
        ]

        def change(core: StorageController) -> None:
            # When a leader begins, there are no collections yet.
            known = core.capabilities.collections
            live = [
                (i, policy) for i, policy in concerned if i in known and not known[i].is_dropped
            ]
            core.set_read_policy(live)

        self.storage.do(change)

    def _retention(self, item: CatalogItem) -> LagWriteFrontier:
        return retention(item, self._retain_ms)

    def open(self) -> None:
        """Makes the collections and exports of the whole catalog, when a leader begins.

        No since moves before `allow_compaction`: whoever reads takes its holds before. Objects that
        have lost their contents are left out, and so are sinks that read them.
        """
        lost = self.storage.do(lambda core: core.migrate_collections())
        self._lost = frozenset(
            item.id
            for item in self.state().items.values()
            if item.id in lost or _ingestion_of(item, self.state()) in lost
        )
        for global_id in sorted(self._lost):
            _log.error("contents lost", object=self.state().item(global_id).full_name)
        items = self.state().topological()
        stored = [item for item in items if is_stored(item) and item.id not in self._lost]
        ahead = running_ahead(items)
        made = [self._collection(item, self.state(), item.id in ahead) for item in stored]
        self.storage.create(made, ())
        for item in items:
            if item.kind is ItemKind.SINK and not self._lost_inputs(item):
                self.create_export(item)

    def allow_compaction(self) -> None:
        """Lets sinces follow the read policies from now on."""
        items = self.state().items.values()
        stored = [item for item in items if is_stored(item) and item.id not in self._lost]
        self.storage.do(
            lambda core: core.set_read_policy([(i.id, self._retention(i)) for i in stored])
        )
        self.storage.do(lambda core: core.reconcile_state())

    def _lost_inputs(self, item: CatalogItem) -> list[CatalogItem]:
        """The stored objects that the item reads, and that have lost their contents."""
        if not self._lost:
            return []
        read = self.state().below(item.depends_on, is_stored)
        return [each for each in read if each.id in self._lost]

    def is_whole(self, item: CatalogItem) -> bool:
        """Whether the item, and all that it reads, has its contents."""
        return item.id not in self._lost and not self._lost_inputs(item)

    def begin(self, ids: Collection[GlobalId], at: Timestamp | None) -> None:
        """Lets nobody read these collections before a time, at which they get their first contents.

        None: before their present upper. Holds that are there stay. Dropped ones are left out.
        """
        found = (self.state().items.get(each) for each in ids)
        policies = {item.id: self._retention(item) for item in found if item is not None}

        def change(core: StorageController) -> None:
            for global_id, policy in policies.items():
                state = core.capabilities.collections.get(global_id)
                if state is not None and not state.is_dropped:
                    since = core.capabilities.upper(state) if at is None else Frontier(at)
                    core.set_read_policy([(global_id, ValidFrom(since)), (global_id, policy)])
                    core.announce_since(global_id)

        if policies:
            self.storage.do(change)

    def create(self, items: Iterable[CatalogItem], after: CatalogState) -> None:
        """Makes the collections of items that were created durably.

        `after` is the catalog with them.
        """
        stored = [item for item in items if is_stored(item)]
        made = []
        for item in stored:
            runs_ahead = any(each.refresh is not None for each in after.below([item.id]))
            made.append(self._collection(item, after, runs_ahead))
        self.storage.create(made, [(item.id, self._retention(item)) for item in stored])

    def alter(self, before: CatalogItem, after: CatalogItem) -> None:
        """Follows a change of RETAIN HISTORY, of a sink's input, or of the cluster.

        History does not come back.
        """
        if before.cluster != after.cluster:
            self._move(after)
        if after.kind is ItemKind.SINK and before.depends_on != after.depends_on:
            self.alter_export(after)
        if is_stored(after) and self._retention(before) != self._retention(after):
            self.storage.set_policy(after.id, self._retention(after))

    def _move(self, item: CatalogItem) -> None:
        """Lets a sink or an ingestion, which has the id of its remap, go on on its new cluster."""
        cluster = cluster_of(item)
        if item.kind is ItemKind.SINK:
            self.storage.do(lambda core: core.move_export(item.id, cluster))
        elif item.is_progress:
            self.storage.do(lambda core: core.move_ingestion(item.id, cluster))

    def drop(self, items: Sequence[CatalogItem]) -> None:
        """Drops the collections and exports of items that were dropped durably."""
        self.storage.drop(
            [item.id for item in items if is_stored(item)],
            [item.id for item in items if item.kind is ItemKind.SINK],
        )

    def prepare_export(self, global_id: GlobalId, from_id: GlobalId) -> None:
        """Holds the input of a sink before its creation, so that its as-of can be chosen."""
        self._prepared[global_id] = self._prepare(global_id, from_id)

    def cancel_export(self, global_id: GlobalId) -> None:
        """Releases the input of a sink that does not come. After its creation it has no effect."""
        token = self._prepared.pop(global_id, None)
        if token is not None:
            self.storage.do(lambda core: core.exports.cancel(token))

    def create_export(self, item: CatalogItem) -> None:
        """Runs a sink that is in the catalog."""
        token = self._prepared.pop(item.id, None)
        if token is None:
            token = self._prepare(item.id, item.depends_on[0])
        self.storage.create_export(token, export_description(item), shards_of(item))
        self._report_progress(item)

    def alter_export(self, item: CatalogItem) -> None:
        """Gives a sink another input, which is held from where the sink needs it."""
        self._report_progress(item)
        self.storage.do(lambda core: core.alter_export(item.id, export_description(item)))

    def _prepare(self, global_id: GlobalId, from_id: GlobalId) -> CreateExportToken:
        return self.storage.do(lambda core: core.exports.prepare(global_id, from_id))

    def _report_progress(self, item: CatalogItem) -> None:
        """Reports how far the sink is: its as-of before it has begun, then the end of its files.

        An export keeps its input readable from one step before its reported frontier.
        """
        begun = Frontier(_begin(item).value + 1)
        if item.progress_shard is not None:
            begun = max(begun, Frontier(self.persist.reads.upper(item.progress_shard)))
        self.storage.report([(item.id, begun)])

    def _collection(
        self, item: CatalogItem, state: CatalogState, runs_ahead: bool
    ) -> tuple[GlobalId, CollectionDescription, CollectionMetadata]:
        if item.shard_id is None:
            raise AssertionError(f"{item.id} is not stored")
        found = self.persist.reads.state(item.shard_id)
        metadata = CollectionMetadata(
            shard_id=item.shard_id,
            since=Frontier(found.since),
            upper=Frontier(found.upper),
            shares_tables_upper=found.shares_tables_upper,
            error_shards=() if item.errors_shard is None else (item.errors_shard,),
        )
        description = CollectionDescription(_data_source(item, state), runs_ahead=runs_ahead)
        return item.id, description, metadata


def running_ahead(items: Iterable[CatalogItem]) -> set[GlobalId]:
    """Those of the items that are, or depend on, views with a schedule.

    What an item depends on comes before it.
    """
    ahead: set[GlobalId] = set()
    for item in items:
        if item.refresh is not None or not ahead.isdisjoint(item.depends_on):
            ahead.add(item.id)
    return ahead


def _data_source(item: CatalogItem, state: CatalogState) -> DataSource:
    """The writer of the collection. An ingestion has the id of its remap, the progress relation."""
    later = item.later_export
    if later is not None:
        source, export = later
        return IngestionExport(state.item(source).progress, export)
    match item.kind:
        case ItemKind.MATERIALIZED_VIEW:
            return OtherWriter()
        case ItemKind.SOURCE if item.is_webhook:
            return Table()
        case ItemKind.SOURCE if item.is_progress:
            return IngestionDescription(cluster_of(item), str(item.parent), item.id)
        case ItemKind.SOURCE:
            whole = item if item.parent is None else state.item(item.parent)
            part = item.details
            name = part.export if isinstance(part, SubsourceDetails) else item.name
            return IngestionExport(whole.progress, name)
        case _:
            return Table()


def _ingestion_of(item: CatalogItem, state: CatalogState) -> GlobalId | None:
    """The ingestion that writes the item."""
    source = _data_source(item, state) if is_stored(item) else None
    return source.ingestion if isinstance(source, IngestionExport) else None


def is_stored(item: CatalogItem) -> bool:
    """Whether the object has contents of its own that can be read."""
    return item.shard_id is not None and item.kind is not ItemKind.SINK
