"""The audit events of clusters and replicas. Source: spec coordinator 4.3."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from slackwater.adapter.catalog.clusters import ClusterEntry, ReplicaEntry
from slackwater.adapter.catalog.ops import CatalogDiff

Event = tuple[str, str, dict[str, Any]]
"""The type of the event, that of its object, and the details."""


def cluster_events(diff: CatalogDiff) -> Iterator[Event]:
    """The events of the clusters that a change made, altered and dropped, and of their replicas."""
    for cluster in diff.clusters_dropped:
        yield from _replicas("drop", cluster, cluster.replicas)
        yield "drop", "cluster", _details(cluster)
    for cluster in diff.clusters_created:
        yield "create", "cluster", _details(cluster)
        yield from _replicas("create", cluster, cluster.replicas)
    for change in diff.clusters_altered:
        before, after = change.before, change.after
        yield from _replicas("drop", before, change.dropped)
        yield from _replicas("create", after, change.added)
        for old, replica in change.changed:
            details = _replica_details(after, replica)
            if replica.name != old.name:
                details |= {"old_name": old.name, "new_name": replica.name}
            yield "alter", "cluster-replica", details
        if replace(before, replicas=()) != replace(after, replicas=()):
            yield "alter", "cluster", _renamed(before, after)


def _replicas(
    event: str, cluster: ClusterEntry, replicas: Iterable[ReplicaEntry]
) -> Iterator[Event]:
    for replica in replicas:
        yield event, "cluster-replica", _replica_details(cluster, replica)


def _details(cluster: ClusterEntry) -> dict[str, Any]:
    return {"id": cluster.id, "name": cluster.name}


def _renamed(before: ClusterEntry, after: ClusterEntry) -> dict[str, Any]:
    names = {"old_name": before.name, "new_name": after.name}
    return _details(after) | (names if before.name != after.name else {})


def _replica_details(cluster: ClusterEntry, replica: ReplicaEntry) -> dict[str, Any]:
    return {
        "cluster_id": cluster.id,
        "cluster_name": cluster.name,
        "replica_id": replica.id,
        "replica_name": replica.name,
        "logical_size": replica.size,
    }
