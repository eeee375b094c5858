"""The consequences of a change of the catalog: clusters and dataflows start and stop.

Collections, ingestions and sinks come and go with the storage controller, which tells the replicas.

Derived from the committed difference, never from the request, so start-up can do it again for
everything that there is. Infallible by contract: an error here is a broken invariant.
Source: spec coordinator 1.7, trap 11.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slackwater.adapter.catalog.clusters import ClusterEntry
from slackwater.adapter.catalog.durable import DurableCatalog
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.adapter.catalog.ops import Altered, AlteredCluster, CatalogDiff
from slackwater.adapter.controllers.collections import Collections
from slackwater.adapter.controllers.dataflows import Dataflows
from slackwater.adapter.sources.replica import StorageReplicas
from slackwater.repr.errors import FatalError
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import JsonType


@dataclass(frozen=True, slots=True)
class Implications:
    """Starts and stops clusters, and the collections, dataflows, ingestions and sinks of items.

    `resize` gives the replica of a cluster, by their ids, what is due to its size. `dropped` lets
    what dropped objects have elsewhere be removed.
    """

    catalog: DurableCatalog
    collections: Collections
    dataflows: Dataflows
    replicas: StorageReplicas
    resize: Callable[[str, str, str], None]
    dropped: Callable[[Sequence[CatalogItem]], None]

    def prepare(self, after: CatalogState, diff: CatalogDiff) -> None:
        """Makes created clusters, and the collections of created items.

        Called before anybody can see the change. So an object that is found in the catalog has its
        collection, and its cluster.
        """
        try:
            self._create_clusters(diff.clusters_created)
            self.collections.create(diff.created, after)
        except Exception as error:
            raise FatalError(f"a catalog change could not be carried out: {error}") from error

    def apply(self, diff: CatalogDiff) -> None:
        """Carries out a committed change; called with the catalog's lock held."""
        try:
            redefined = self._redefine(diff)
            self.dataflows.drop(diff.dropped)
            self.collections.drop(diff.dropped)
            for altered in diff.clusters_altered:
                self._alter_cluster(altered)
            for change in diff.altered:
                self.collections.alter(change.before, change.after)
                if change.after.id not in redefined:
                    self._alter_dataflows(change)
            for item in diff.created:
                if item.kind is ItemKind.SINK:
                    self.collections.create_export(item)
            self.dataflows.create(diff.created)
            for cluster in diff.clusters_dropped:
                self.collections.storage.drop_instance(cluster.id)
            self.dataflows.drop_clusters(diff.clusters_dropped)
            self.replicas.apply_commands()
            self.dropped(diff.dropped)
        except Exception as error:
            raise FatalError(f"a catalog change could not be carried out: {error}") from error

    def _redefine(self, diff: CatalogDiff) -> frozenset[GlobalId]:
        """Lets views go on by their new definitions, with what replicas keep for replacements.

        The ids of these views.
        """
        heirs = {each.replaces: each.id for each in diff.dropped if each.replaces is not None}
        redefined = [change for change in diff.altered if change.after.id in heirs]
        if redefined:
            self.dataflows.drop(change.before for change in redefined)
            self.dataflows.create_again([change.after for change in redefined], heirs)
        return frozenset(change.after.id for change in redefined)

    def _create_clusters(self, clusters: tuple[ClusterEntry, ...]) -> None:
        storage = self.collections.storage
        for cluster in clusters:
            storage.create_instance(cluster.id)
            for replica in cluster.replicas:
                storage.connect_replica(cluster.id, replica.id)
        self.dataflows.create_clusters(clusters)

    def _alter_cluster(self, change: AlteredCluster) -> None:
        """New replicas begin before old ones end, so that what is there goes on meanwhile."""
        cluster, storage = change.after.id, self.collections.storage
        for before, after in change.changed:
            if before.size != after.size:
                self.resize(cluster, after.id, after.size)
        for replica in change.added:
            storage.connect_replica(cluster, replica.id)
        for replica in change.dropped:
            storage.drop_replica(cluster, replica.id)
        self.dataflows.alter_cluster(change)

    def _alter_dataflows(self, change: Altered) -> None:
        """Moves dataflows with their objects, and lets indexes keep the columns of now."""
        before, after = change.before, change.after
        if after.kind.is_maintained and before.cluster != after.cluster:
            self.dataflows.move(before, after)
        if after.kind is ItemKind.INDEX and before.details != after.details:
            self.dataflows.retain(after)
        if _kept(before) != _kept(after):
            users = self.catalog.state.dependents(after.id)
            indexes = [user for user in users if user.kind is ItemKind.INDEX]
            self.dataflows.drop(indexes)
            self.dataflows.create(indexes)

    def start_all(self) -> None:
        """Lets the replicas of this process run all that the catalog has."""
        storage = self.collections.storage
        for cluster in self.catalog.state.clusters.values():
            for replica in cluster.replicas:
                storage.connect_replica(cluster.id, replica.id)
        storage.initialization_complete()
        self.replicas.apply_commands()
        self.dataflows.connect()


def _kept(item: CatalogItem) -> tuple[int | None, list[tuple[str, JsonType]]]:
    """The shard and the columns of a relation. A dataflow has the names of what it reads with it,
    as they were when it was described, so that other names change nothing."""
    columns = () if item.desc is None else item.desc.columns
    return item.shard_id, [(c.name, c.spark_type) for c in columns]
