"""The dataflows of the catalog: what the compute controller is told of them, and what it knows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import structlog

from slackwater.adapter.catalog.clusters import ClusterEntry, ReplicaEntry
from slackwater.adapter.catalog.details import (
    IndexDetails,
    MaterializedViewDetails,
    ViewDetails,
)
from slackwater.adapter.catalog.model import CATALOG_NAME, CatalogItem, CatalogState, ItemKind
from slackwater.adapter.catalog.ops import AlteredCluster
from slackwater.adapter.catalog.settings import of_view
from slackwater.adapter.controllers.collections import (
    DEFAULT_RETAIN_MS,
    cluster_of,
    is_stored,
    retention,
)
from slackwater.compute.controller.core import ComputeController
from slackwater.compute.controller.descriptions import (
    DataflowDescription,
    IndexExport,
    MaterializedViewExport,
    ObjectToBuild,
    SinkExport,
    SourceImport,
    SubscribeExport,
)
from slackwater.compute.controller.errors import ComputeError
from slackwater.compute.controller.instance import Replica
from slackwater.compute.controller.protocol import (
    DataflowStatus,
    Log,
    Peek,
    PeekFailed,
    PeekRows,
    Problem,
)
from slackwater.compute.controller.shell import Compute, Follow, OpenPeek, ReplicaStatus
from slackwater.compute.definitions import Definition, StoredShards
from slackwater.compute.engine import IndexQuery
from slackwater.compute.logs import records_of
from slackwater.compute.records import (
    ArrangementMemory,
    ArrangementSize,
    HydrationProgress,
    HydrationRecord,
    TickRecord,
    TickTotals,
)
from slackwater.planner.parser.parameters import milliseconds
from slackwater.repr.errors import LOG_FILE, FatalError, SlackwaterError, user_error
from slackwater.repr.frontier import MINIMUM_FRONTIER, Frontier, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc, quote_identifier

Record = TypeVar("Record")

_log = structlog.get_logger("dataflows")


@dataclass(frozen=True, slots=True)
class IndexOffer:
    """An index that queries may read in the driver, where it is that of `program`.

    Together with what the driver says itself: it has all updates of its relation before `upper`.
    `replica` is the name of the replica that has it.
    """

    program: str
    upper: Timestamp
    replica: str


@dataclass(frozen=True, slots=True)
class Interval:
    """The times from `lower` on, before `upper`; TIMESTAMP_MAX: there is no end."""

    lower: Timestamp
    upper: Timestamp


@dataclass(frozen=True, slots=True)
class OfReplica(Generic[Record]):
    """A record, and the id of the replica that has told it."""

    replica: str
    record: Record


@dataclass(slots=True)
class Dataflows:
    """The dataflows of views and indexes. Thread-safe.

    `state` is the catalog now, and `now` the time up to which everything can be read. `held` keeps
    collections readable where they can be read now.
    """

    compute: Compute
    state: Callable[[], CatalogState]
    now: Callable[[], Timestamp]
    held: Callable[[Iterable[CatalogItem]], AbstractContextManager[None]]
    _retain_ms: int = DEFAULT_RETAIN_MS

    def configure(self, parameters: Mapping[str, str]) -> None:
        """Goes on with the history that indexes keep by default.

        History that is gone does not come back.
        """
        retain_ms = milliseconds(parameters, "default_retain_history")
        if retain_ms is None:
            return
        self._retain_ms = retain_ms

        def there(core: ComputeController) -> set[GlobalId]:
            return {state.id for each in core.instances for state in core.collections(each)}

        known = self.compute.look(there)
        for item in list(self.state().items.values()):
            if item.id in known and _is_index(item) and item.retain_history_ms is None:
                # One that is dropped meanwhile keeps nothing.
                with suppress(ComputeError):
                    self.retain(item)

    # As the catalog changes, whose lock is held

    def open(self, whole: Callable[[CatalogItem], bool]) -> None:
        """Creates the dataflows of all objects that are `whole`, at as-ofs chosen together.

        They hold their inputs from then on, and begin when a replica is there.
        """
        for cluster in self.state().clusters:
            self.compute.create_instance(cluster)
        items = [i for i in self.state().topological() if i.kind.is_maintained and whole(i)]
        self._create([_described(item, self.state()) for item in items], items)

    def connect(self) -> None:
        """Lets the replicas of this process maintain what there is."""
        for cluster in self.state().clusters.values():
            self._add_replicas(cluster.id, cluster.replicas)
        self.compute.initialization_complete()

    def create(self, items: Iterable[CatalogItem]) -> None:
        """Creates the dataflows of objects that were created durably."""
        made = [item for item in items if item.kind.is_maintained]
        self._create_all([_begun(item, self.state()) for item in made], made)

    def create_again(
        self, items: Iterable[CatalogItem], heirs: Mapping[GlobalId, GlobalId] = {}
    ) -> None:
        """Creates the dataflows of objects that have contents, which go on where these end.

        `heirs`: for objects the dataflows that they take over, which are dropped next.
        """
        made = list(items)
        described = [_described(item, self.state()) for item in made]
        flows = [replace(each, takes_over=heirs.get(each.export_ids[0])) for each in described]
        self._create_all(flows, made)

    def drop(self, items: Iterable[CatalogItem]) -> None:
        """Gives up the dataflows of objects that were dropped durably."""
        by_cluster: dict[GlobalId, list[GlobalId]] = {}
        for item in items:
            if item.kind.is_maintained:
                by_cluster.setdefault(cluster_of(item), []).append(item.id)
        for cluster, dropped in by_cluster.items():
            self.compute.drop(cluster, dropped)

    def move(self, before: CatalogItem, after: CatalogItem) -> None:
        """Lets a view or an index go on on another cluster, where its output ends."""
        with self.held(self.state().below(after.depends_on, is_stored)):
            self.drop([before])
            self.create_again([after])

    def retain(self, index: CatalogItem) -> None:
        """Follows a change of what the index retains. History does not come back."""
        policy = retention(index, self._retain_ms)
        self.compute.set_policy(cluster_of(index), index.id, policy)

    def _create_all(
        self, dataflows: Sequence[DataflowDescription], items: Sequence[CatalogItem]
    ) -> None:
        """Creates the dataflows. Raises FatalError when one of them is refused."""
        refused = self._create(dataflows, items)
        if refused:
            raise FatalError(f"a dataflow was refused: {refused[0]}")

    def _create(
        self, dataflows: Sequence[DataflowDescription], items: Sequence[CatalogItem]
    ) -> list[ComputeError]:
        if not dataflows:
            return []
        policies = {each.id: retention(each, self._retain_ms) for each in items if _is_index(each)}
        placed = [(cluster_of(i), each) for i, each in zip(items, dataflows, strict=True)]
        refused = self.compute.create(placed, policies, self.now()).refused
        for global_id, error in refused.items():
            _log.error("a dataflow was refused", dataflow=global_id, error=str(error))
        return list(refused.values())

    # As clusters change

    def create_clusters(self, clusters: Iterable[ClusterEntry]) -> None:
        """Adds clusters with their replicas."""
        for cluster in clusters:
            self.compute.create_instance(cluster.id)
            self._add_replicas(cluster.id, cluster.replicas)

    def alter_cluster(self, change: AlteredCluster) -> None:
        """Adds and drops replicas; those that stay go on."""
        self._add_replicas(change.after.id, change.added)
        for replica in change.dropped:
            self.compute.drop_replica(change.after.id, replica.id)

    def _add_replicas(self, cluster: GlobalId, replicas: Iterable[ReplicaEntry]) -> None:
        for replica in replicas:
            self.compute.add_replica(cluster, replica.id, replica.size)

    def drop_clusters(self, clusters: Iterable[ClusterEntry]) -> None:
        """Removes clusters, on which nothing runs any more."""
        for cluster in clusters:
            self.compute.drop_instance(cluster.id)

    # As subscriptions begin and end

    def subscribe(self, query: CatalogItem, times: Interval, follow: Follow) -> None:
        """Creates the dataflow of a subscription, which gives the changes within the interval.

        `query` is as a materialized view is, with a transient id and on a cluster, but is not in
        the catalog. Raises ComputeError when the cluster, or what it reads, is not there any more.
        """
        export = SubscribeExport(query.id, query.id)
        described = _flow(query, self.state(), sinks=(export,))
        begun = replace(described, as_of=Frontier(times.lower), until=Frontier(times.upper))
        self.compute.subscribe(cluster_of(query), begun, follow)

    def unsubscribe(self, query: CatalogItem) -> None:
        """Drops the dataflow of a subscription, if there is one."""
        with suppress(ComputeError):
            self.compute.drop(cluster_of(query), [query.id])

    # As queries and listings ask

    def failure(self, global_id: GlobalId) -> Problem | None:
        """Why the dataflow does not go on, on any replica."""
        return self._shared(global_id, lambda status: status.failure)

    def out_of_memory(self, global_id: GlobalId) -> Problem | None:
        """Why the dataflow's program keeps nothing of what it looks up, on any replica."""
        return self._shared(global_id, lambda status: status.out_of_memory)

    def statuses(self) -> list[DataflowStatus]:
        """The statuses that replicas have told of dataflows, without those that go on well."""

        def told(core: ComputeController) -> list[DataflowStatus]:
            replicas = [r for each in core.instances for r in core.replicas(each).values()]
            return [each for replica in replicas for each in replica.statuses.values()]

        return [each for each in self.compute.look(told) if each != DataflowStatus(each.id)]

    def upper(self, global_id: GlobalId) -> Frontier:
        """The time before which the index is complete; 0: nobody has begun it."""
        return self.uppers([global_id])[global_id]

    def uppers(self, ids: Iterable[GlobalId]) -> dict[GlobalId, Frontier]:
        """The time before which each of these indexes is complete; 0: nobody has begun it."""

        def upper(core: ComputeController, global_id: GlobalId) -> Frontier:
            try:
                hosted = core.replica_frontiers(self._cluster(global_id), global_id).values()
            except ComputeError:
                return MINIMUM_FRONTIER
            reached = (each.write for each in hosted if each.is_hydrated)
            return max(reached, default=MINIMUM_FRONTIER)

        return self.compute.look(lambda core: {each: upper(core, each) for each in ids})

    def index(self, global_id: GlobalId) -> IndexOffer | None:
        """The index of that id for queries; None: the driver does not have it at the moment."""

        def offer(core: ComputeController) -> IndexOffer | None:
            offered = [
                IndexOffer(
                    program,
                    Timestamp(replica.collections[global_id].write.value),
                    replica.key.replica,
                )
                for replica in self._replicas(core, global_id)
                if (program := replica.programs.get(global_id)) is not None
            ]
            return max(offered, key=lambda each: each.upper, default=None)

        return self.compute.look(offer)

    def peek(self, index: CatalogItem, wanted: Peek, replica: str) -> OpenPeek:
        """Begins to read the index on the replica. Raises as `ComputeController.peek` does."""
        return self.compute.peek(cluster_of(index), wanted, replica)

    def cancel_peek(self, peek: OpenPeek) -> None:
        """Ends the peek, unless it has an answer."""
        self.compute.cancel_peek(peek.peek_id)

    def hydrated(self, items: Iterable[CatalogItem]) -> dict[GlobalId, dict[str, bool]]:
        """Whether each replica has the contents of these views and indexes.

        By their ids and those of replicas. All is told at one moment, under one lock.
        """

        def hydrated(replicas: Iterable[Replica], item: CatalogItem) -> dict[str, bool]:
            return {
                replica.key.replica: (
                    replica.programs.get(item.id) is not None
                    if item.kind is ItemKind.INDEX
                    else replica.collections[item.id].is_hydrated
                )
                for replica in replicas
                if item.id in replica.collections
            }

        asked = tuple(items)
        clusters = {each.cluster or "" for each in asked}

        def of_all(core: ComputeController) -> dict[GlobalId, dict[str, bool]]:
            replicas = {each: self._on(core, each) for each in clusters}
            return {each.id: hydrated(replicas[each.cluster or ""], each) for each in asked}

        return self.compute.look(of_all)

    def replica_uppers(self) -> list[tuple[GlobalId, str, Frontier]]:
        """Up to where each replica has each dataflow, by the dataflow's id and the replica's."""

        def uppers(core: ComputeController) -> list[tuple[GlobalId, str, Frontier]]:
            replicas = [r for each in core.instances for r in core.replicas(each).values()]
            return [
                (state, replica.key.replica, hosted.write)
                for replica in replicas
                for state, hosted in sorted(replica.collections.items())
                if state in self.state().items
            ]

        return self.compute.look(uppers)

    def replica_statuses(self) -> dict[str, ReplicaStatus]:
        """The status of each replica, by its id."""
        return {key.replica: each for key, each in self.compute.replica_statuses().items()}

    def open_peeks(self) -> list[Peek]:
        """The peeks of indexes that have no answer yet."""

        def peeks(core: ComputeController) -> list[Peek]:
            return [peek for each in core.instances for peek in core.peeks(each)]

        return [peek for peek in self.compute.look(peeks) if peek.id in self.state().items]

    def ticks(self, timeout_s: float | None = None) -> list[OfReplica[TickRecord]]:
        """The last ticks of each dataflow that each replica made, the earliest first.

        Raises TimeoutError when a replica is silent for `timeout_s`.
        """
        return list(self._records(Log.TICKS, TickRecord, timeout_s))

    def hydrations(self, timeout_s: float | None = None) -> list[OfReplica[HydrationRecord]]:
        """When each dataflow came to each replica, and was hydrated there.

        Raises TimeoutError when a replica is silent for `timeout_s`.
        """
        return list(self._records(Log.HYDRATIONS, HydrationRecord, timeout_s))

    def hydration_progress(self) -> list[OfReplica[HydrationProgress]]:
        """The progress of the dataflows that read whole inputs."""
        return list(self._records(Log.HYDRATION_PROGRESS, HydrationProgress))

    def arrangements(self) -> list[OfReplica[ArrangementSize]]:
        """The arrangements in which ticks and queries look rows up. Raises what Spark raises."""
        return list(self._records(Log.ARRANGEMENTS, ArrangementSize))

    def tick_totals(self, timeout_s: float) -> list[OfReplica[TickTotals]]:
        """The totals of each dataflow on each replica. Raises TimeoutError when one is silent."""
        return list(self._records(Log.TICK_TOTALS, TickTotals, timeout_s))

    def arrangement_memory(self, timeout_s: float) -> list[OfReplica[ArrangementMemory]]:
        """The room for arrangements of each replica.

        Raises what Spark raises, and TimeoutError when a replica is silent.
        """
        return list(self._records(Log.ARRANGEMENT_MEMORY, ArrangementMemory, timeout_s))

    def _records(
        self, log: Log, kind: type[Record], timeout_s: float | None = None
    ) -> Iterator[OfReplica[Record]]:
        for key, answer in self.compute.log(log, timeout_s):
            match answer:
                case PeekRows(rows):
                    for record in records_of(rows, kind):
                        yield OfReplica(key.replica, record)
                case PeekFailed(_, Problem() as problem):
                    raise SlackwaterError(problem.condition, problem.sqlstate, problem.message, {})
                case PeekFailed(error):
                    raise user_error("SLACKWATER_INTERNAL", reason=error, log=LOG_FILE)
                case _:
                    pass

    def _shared(
        self, global_id: GlobalId, of: Callable[[DataflowStatus], Problem | None]
    ) -> Problem | None:
        """The problem of all replicas that maintain the dataflow; None: one of them has none."""

        def shared(core: ComputeController) -> Problem | None:
            replicas = self._replicas(core, global_id)
            found = [
                of(replica.statuses.get(global_id, DataflowStatus(global_id)))
                for replica in replicas
                if global_id in replica.collections
            ]
            return None if not all(found) else next(iter(found), None)

        return self.compute.look(shared)

    def _cluster(self, global_id: GlobalId) -> str:
        """The cluster of the object; that of an object which is gone has no name."""
        item = self.state().items.get(global_id)
        return "" if item is None or item.cluster is None else item.cluster

    def _replicas(self, core: ComputeController, global_id: GlobalId) -> list[Replica]:
        return self._on(core, self._cluster(global_id))

    def _on(self, core: ComputeController, cluster: str) -> list[Replica]:
        try:
            return list(core.replicas(cluster).values())
        except ComputeError:
            return []


def index_query(on: CatalogItem, keys: Iterable[str]) -> str:
    """The query whose rows an index has: those of the relation, each with its keys."""
    relation = ".".join(map(quote_identifier, (CATALOG_NAME, on.schema_name, on.name)))
    named = [f"({key}) AS key{position}" for position, key in enumerate(keys)]
    return f"SELECT *, {', '.join(named)} FROM {relation}"


def _is_index(item: CatalogItem) -> bool:
    return item.kind is ItemKind.INDEX


def settings_of(item: CatalogItem) -> Mapping[str, str] | None:
    """Spark's settings under which the view or index was defined."""
    match item.details:
        case MaterializedViewDetails(settings=settings) | IndexDetails(settings=settings):
            return settings
        case ViewDetails():
            return of_view(item) or None
        case _:
            raise FatalError(f"{item.full_name} is not maintained")


def definition_of(item: CatalogItem, state: CatalogState) -> Definition:
    """The query that the view or index maintains."""
    match item.details:
        case MaterializedViewDetails() as view:
            return Definition(
                query=view.asserting or view.query,
                catalog=view.catalog,
                namespace=view.namespace,
                functions=view.functions,
                made_by=view.program,
                whole=_whole(item, state),
                relations=_relations(item, state),
                indexes=_indexes(item, state),
            )
        case IndexDetails(keys):
            on = state.item(item.depends_on[0])
            return Definition(
                index_query(on, keys),
                CATALOG_NAME,
                (on.schema_name,),
                keys=len(keys),
                whole=_whole(item, state),
                relations=_relations(item, state),
                indexes=_indexes(item, state),
            )
        case _:
            raise FatalError(f"{item.full_name} is not maintained")


def meaning_of(view: CatalogItem, state: CatalogState) -> Definition:
    """The query of a view, plain or maintained, with the meanings of all names in `state`.

    A plain view is read by its name, as queries read it, and may be over system relations.
    """
    if view.kind is not ItemKind.VIEW:
        return definition_of(view, state)
    name = ".".join(map(quote_identifier, (CATALOG_NAME, view.schema_name, view.name)))
    system = [each for each in state.items.values() if each.kind is ItemKind.SYSTEM_TABLE]
    below = sorted(state.below([view.id], is_stored), key=lambda each: each.id)
    return Definition(
        f"SELECT * FROM {name}",
        CATALOG_NAME,
        (view.schema_name,),
        relations=tuple(_relation(each) for each in (*below, *system)),
    )


def _read(item: CatalogItem, state: CatalogState) -> list[CatalogItem]:
    """The stored relations that the view or index reads, and plain views by which it does."""
    reads = [each for each in item.depends_on if each != item.replaces]
    return state.below(reads, is_stored)


def _relations(item: CatalogItem, state: CatalogState) -> tuple[Mapping[str, Any], ...]:
    """All relations that the object's query names, and those that these name."""
    read = sorted(_read(item, state), key=lambda each: each.id)
    return tuple(_relation(each) for each in read)


def _relation(item: CatalogItem) -> Mapping[str, Any]:
    """The relation as `Known` has it: what comments and properties say of a table means nothing."""
    described = {
        "id": item.id,
        "kind": item.kind.value,
        "schema_name": item.schema_name,
        "name": item.name,
        "schema": json.loads((item.desc or RelationDesc(())).to_json()),
    }
    if item.kind is not ItemKind.VIEW:
        return described
    view = item.of(ViewDetails)
    query = {"query": view.query, "catalog": view.catalog, "namespace": list(view.namespace)}
    return {**described, "properties": dict(view.properties), "view": query}


def _whole(item: CatalogItem, state: CatalogState) -> tuple[GlobalId, ...]:
    """The plain views below the object that stay whole in its plan.

    They are those with an index on its cluster, and the one that it is itself an index of. What a
    view with a schedule computes it shares with nobody.
    """
    if item.refresh is not None:
        return ()
    indexed = indexed_views(item.depends_on, cluster_of(item), state)
    own = [on for on in item.depends_on[:1] if _is_index(item) and not is_stored(state.item(on))]
    return tuple(sorted({*indexed, *own}))


def indexed_views(
    reads: Iterable[GlobalId], cluster: GlobalId | None, state: CatalogState
) -> tuple[GlobalId, ...]:
    """The plain views among what is read, and below it, that have an index on the cluster."""

    def is_indexed(view: GlobalId) -> bool:
        return any(
            _is_index(each) and each.depends_on[0] == view and cluster_of(each) == cluster
            for each in state.dependents(view)
        )

    below = (i for i in state.below(reads, is_stored) if i.kind is ItemKind.VIEW)
    return tuple(sorted(each.id for each in below if is_indexed(each.id)))


def _indexes(item: CatalogItem, state: CatalogState) -> tuple[IndexQuery, ...]:
    """The indexes on collections below the object in which its dataflow may look up.

    An index of a collection looks nothing up, and a view with a schedule is not maintained by
    lookups.
    """
    if item.refresh is not None:
        return ()
    if _is_index(item) and is_stored(state.item(item.depends_on[0])):
        return ()
    reads = [each for each in item.depends_on if each != item.replaces]
    return collection_indexes(reads, cluster_of(item), settings_of(item), state)


def collection_indexes(
    reads: Iterable[GlobalId],
    cluster: GlobalId | None,
    settings: Mapping[str, str] | None,
    state: CatalogState,
) -> tuple[IndexQuery, ...]:
    """The indexes on collections among what is read, and below it, for a dataflow on the cluster.

    They have its settings, which say what keys mean.
    """
    below = [each for each in state.below(reads, is_stored) if is_stored(each)]
    return tuple(
        IndexQuery(
            index_query(on, details.keys), (on.schema_name,), len(details.keys), index.full_name
        )
        for on in sorted(below, key=lambda each: each.id)
        for index in state.dependents(on.id)
        if isinstance(details := index.details, IndexDetails)
        and cluster_of(index) == cluster
        and settings_of(index) == settings
    )


def _described(item: CatalogItem, state: CatalogState) -> DataflowDescription:
    """The dataflow of the view or index, as a replica is told of it, at no as-of yet."""
    if _is_index(item):
        index = IndexExport(item.id, item.depends_on[0], item.of(IndexDetails).keys)
        return _flow(item, state, indexes=(index,))
    view = MaterializedViewExport(item.id, item.id, item.id, _shards(item).text)
    return _flow(item, state, sinks=(view,))


def _flow(
    item: CatalogItem,
    state: CatalogState,
    *,
    indexes: tuple[IndexExport, ...] = (),
    sinks: tuple[SinkExport, ...] = (),
) -> DataflowDescription:
    """The dataflow of the object's query, with these exports."""
    inputs = [each for each in _read(item, state) if is_stored(each)]
    settings = settings_of(item)
    return DataflowDescription(
        name=item.full_name,
        objects_to_build=(ObjectToBuild(item.id, definition_of(item, state).text),),
        source_imports=tuple(SourceImport(each.id, _shards(each).text) for each in inputs),
        index_exports=indexes,
        sink_exports=sinks,
        settings=None if settings is None else tuple(sorted(settings.items())),
        initial_storage_as_of=_as_of(item),
        refresh_schedule=item.refresh,
    )


def _begun(item: CatalogItem, state: CatalogState) -> DataflowDescription:
    """The same, of an object that has just been created: a view begins at the time it was given."""
    described = _described(item, state)
    as_of = _as_of(item)
    return described if as_of is None else described.at(as_of)


def _as_of(item: CatalogItem) -> Frontier | None:
    details = item.details
    return Frontier(details.as_of) if isinstance(details, MaterializedViewDetails) else None


def _shards(item: CatalogItem) -> StoredShards:
    stored = item.stored
    columns = RelationDesc.to_json(stored.desc)
    return StoredShards(item.full_name, stored.shard_id, columns, stored.errors_shard)
