"""Clusters that run when views on them are to be refreshed. Source: spec coordinator 5.3."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from slackwater.adapter.catalog.clusters import ClusterEntry
from slackwater.adapter.catalog.model import CatalogItem, CatalogState
from slackwater.adapter.catalog.ops import AlterClusters
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.ddl.clusters import ClusterDefinitions
from slackwater.repr.frontier import Frontier, Timestamp


def misplaced(
    state: CatalogState, upper: Callable[[CatalogItem], Frontier], now: Timestamp
) -> Iterator[tuple[ClusterEntry, int]]:
    """The clusters whose schedule wants another number of replicas at `now`, and that number.

    It is 1 while a view with a refresh schedule is on the cluster, and the view's upper, which is
    its next refresh, is not after ``now + estimate``; else 0.
    """
    for cluster in state.clusters.values():
        if cluster.on_refresh_ms is None:
            continue
        until = now + cluster.on_refresh_ms
        refreshed = (each for each in state.on_cluster(cluster.id) if each.refresh is not None)
        is_due = any(upper(each) <= Frontier(Timestamp(until)) for each in refreshed)
        if len(cluster.replicas) != int(is_due):
            yield cluster, int(is_due)


@dataclass(frozen=True, slots=True)
class ClusterSchedules:
    """Gives clusters with a schedule a replica, and takes it away. Thread-safe.

    `upper` is that of a stored object, and `now` the time up to which everything can be read.
    """

    changes: Changes
    definitions: ClusterDefinitions
    upper: Callable[[CatalogItem], Frontier]
    now: Callable[[], Timestamp]

    def look(self) -> None:
        """Lets each cluster have what its schedule wants now. Durable, and done, at its return.

        Raises what a change of the catalog raises.
        """
        if not any(misplaced(self.changes.state, self.upper, self.now())):
            return
        with self.changes.lock:
            wanted = list(misplaced(self.changes.state, self.upper, self.now()))
            altered = tuple(
                self.definitions.resized(cluster, cluster.size, count)
                for cluster, count in wanted
                if cluster.size is not None
            )
            if altered:
                self.changes.commit([AlterClusters(altered)], None)
