"""Definitions of clusters and their replicas. Source: spec coordinator 5.4."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slackwater.adapter.catalog.clusters import ClusterEntry, ReplicaEntry, checked_size
from slackwater.adapter.catalog.ops import (
    AlterClusters,
    CatalogOp,
    CreateCluster,
    DropCluster,
    refuse_reserved,
)
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.sessions.sessions import Execution
from slackwater.planner.parser import cluster_statements as cs
from slackwater.repr.errors import SlackwaterError, user_error


class ClusterDefinitions:
    """Changes clusters, one change at a time. When it returns, the change is durable and done."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    def execute(self, execution: Execution, statement: cs.ClusterStatement) -> None:
        """Runs the statement.

        Raises SLACKWATER_UNKNOWN_CLUSTER, _UNKNOWN_CLUSTER_REPLICA, _UNKNOWN_CLUSTER_SIZE,
        _ALREADY_EXISTS, _RESERVED_NAME, _MANAGED_CLUSTER, _UNMANAGED_CLUSTER, and for a cluster
        that runs objects _DEPENDENT_OBJECTS.
        """
        with self._changes.defining(execution.cancellation):
            ops = self._ops(execution, statement)
            if not ops:
                return
            diff = self._changes.commit(ops, execution.user)
        names = ", ".join(item.full_name for item in diff.dropped)
        if names:
            count = len(diff.dropped)
            execution.session.notify(f"{count} other objects were dropped as well: {names}")

    def _ops(self, execution: Execution, statement: cs.ClusterStatement) -> Sequence[CatalogOp]:
        match statement:
            case cs.CreateCluster():
                return self._create(execution, statement)
            case cs.CreateClusterReplica(name, replica, size):
                return [self._create_replica(name, cs.ReplicaDefinition(replica, size))]
            case cs.AlterCluster(name, setting, if_exists):
                found = self._find(execution, name, if_exists=if_exists)
                return [] if found is None else [AlterClusters((self._altered(found, setting),))]
            case cs.RenameCluster(name, new_name, if_exists):
                found = self._find(execution, name, if_exists=if_exists)
                refuse_reserved(new_name)
                return [] if found is None else [AlterClusters((replace(found, name=new_name),))]
            case cs.SwapClusters(name, other):
                one, two = self._changes.state.cluster(name), self._changes.state.cluster(other)
                return [AlterClusters((replace(one, name=two.name), replace(two, name=one.name)))]
            case cs.DropClusters(names, if_exists, cascade):
                clusters = [self._find(execution, each, if_exists=if_exists) for each in names]
                ids = dict.fromkeys(each.id for each in clusters if each is not None)
                return [DropCluster(each, cascade) for each in ids]
            case cs.RenameClusterReplica() | cs.DropClusterReplicas() | cs.CommentOnCluster():
                return self._alter_replicas(execution, statement)

    def _alter_replicas(
        self,
        execution: Execution,
        statement: cs.RenameClusterReplica | cs.DropClusterReplicas | cs.CommentOnCluster,
    ) -> Sequence[CatalogOp]:
        match statement:
            case cs.RenameClusterReplica(name, replica, new_name, if_exists):
                renamed = self._replica(execution, (name, replica), if_exists=if_exists)
                if renamed is None:
                    return []
                cluster, before = renamed
                if cluster.is_managed:
                    raise _managed("rename a replica", cluster)
                return [_with(cluster, [replace(before, name=new_name)])]
            case cs.DropClusterReplicas(names, if_exists):
                kept: dict[str, ClusterEntry] = {}
                for named in names:
                    found = self._replica(execution, named, if_exists=if_exists)
                    if found is None:
                        continue
                    cluster, dropped = found
                    if cluster.is_managed:
                        raise _managed("drop a replica", cluster)
                    current = kept.get(cluster.id, cluster)
                    left = tuple(each for each in current.replicas if each.id != dropped.id)
                    kept[cluster.id] = replace(current, replicas=left)
                return [AlterClusters(tuple(kept.values()))] if kept else []
            case cs.CommentOnCluster(name, None, text):
                commented = replace(self._changes.state.cluster(name), comment=text or None)
                return [AlterClusters((commented,))]
            case cs.CommentOnCluster(name, str(replica), text):
                cluster = self._changes.state.cluster(name)
                own = _replica_of(cluster, replica)
                return [_with(cluster, [replace(own, comment=text or None)])]
        return []

    def _create(self, execution: Execution, statement: cs.CreateCluster) -> Sequence[CatalogOp]:
        existing = self._changes.state.find_cluster(statement.name)
        if existing is not None and statement.if_not_exists:
            execution.session.notify(f"The cluster {existing.name} exists already.", code="42P07")
            return []
        refuse_reserved(statement.name)
        blank = ClusterEntry(self._changes.new_id(), statement.name, None, (), execution.user)
        if statement.replicas is not None:
            replicas = tuple(map(self._new_replica, statement.replicas))
            return [CreateCluster(replace(blank, replicas=replicas))]
        factor, schedule = statement.replication_factor, statement.schedule
        if factor is None and (schedule is None or not schedule.on_refresh):
            factor = 1
        setting = cs.ClusterSetting(statement.size, factor, True, schedule)
        return [CreateCluster(self._altered(blank, setting))]

    def _create_replica(self, name: str, definition: cs.ReplicaDefinition) -> CatalogOp:
        cluster = self._changes.state.cluster(name)
        if cluster.is_managed:
            raise _managed("create a replica", cluster)
        return AlterClusters(
            (replace(cluster, replicas=(*cluster.replicas, self._new_replica(definition))),)
        )

    def _altered(self, cluster: ClusterEntry, setting: cs.ClusterSetting) -> ClusterEntry:
        """The cluster with the setting. Replicas that stay go on, with another size too."""
        if setting.managed is False:
            if setting != cs.ClusterSetting(managed=False):
                raise _unmanaged("set SIZE, REPLICATION FACTOR or SCHEDULE", cluster)
            return replace(cluster, size=None, on_refresh_ms=None)
        if not cluster.is_managed and not setting.managed:
            raise _unmanaged("set SIZE, REPLICATION FACTOR or SCHEDULE", cluster)
        if setting.size is None and not cluster.is_managed:
            raise _unmanaged("set MANAGED without SIZE", cluster)
        size = cluster.size if setting.size is None else checked_size(setting.size)
        if size is None:
            raise AssertionError("a managed cluster has a size")
        on_refresh_ms = cluster.on_refresh_ms
        if setting.schedule is not None:
            on_refresh_ms = setting.schedule.estimate_ms if setting.schedule.on_refresh else None
        factor = setting.replication_factor
        if on_refresh_ms is not None and factor is not None:
            raise user_error("SLACKWATER_SCHEDULED_CLUSTER", cluster=cluster.name)
        count = len(cluster.replicas) if factor is None else factor
        count = count if on_refresh_ms is None else min(1, count)
        return replace(self.resized(cluster, size, count), on_refresh_ms=on_refresh_ms)

    def resized(self, cluster: ClusterEntry, size: str, count: int) -> ClusterEntry:
        """The managed cluster with so many replicas, all of that size."""
        kept = [replace(each, size=size) for each in cluster.replicas[:count]]
        names = {each.name.casefold() for each in kept}
        free = (f"r{number}" for number in range(1, count + len(names) + 1))
        added = [name for name in free if name not in names][: count - len(kept)]
        made = [self._new_replica(cs.ReplicaDefinition(name, size)) for name in added]
        return replace(cluster, size=size, replicas=(*kept, *made))

    def _new_replica(self, definition: cs.ReplicaDefinition) -> ReplicaEntry:
        size = checked_size(definition.size)
        return ReplicaEntry(self._changes.new_id(), definition.name, size)

    def _find(self, execution: Execution, name: str, *, if_exists: bool) -> ClusterEntry | None:
        found = self._changes.state.find_cluster(name)
        if found is None and if_exists:
            execution.session.notify(f"There is no cluster {name}.", code="42704")
            return None
        return self._changes.state.cluster(name)

    def _replica(
        self, execution: Execution, named: tuple[str, str], *, if_exists: bool
    ) -> tuple[ClusterEntry, ReplicaEntry] | None:
        cluster = self._find(execution, named[0], if_exists=if_exists)
        if cluster is None:
            return None
        if if_exists and cluster.replica(named[1]) is None:
            shown = ".".join(named)
            execution.session.notify(f"There is no cluster replica {shown}.", code="42704")
            return None
        return cluster, _replica_of(cluster, named[1])


def _replica_of(cluster: ClusterEntry, name: str) -> ReplicaEntry:
    found = cluster.replica(name)
    if found is None:
        raise user_error("SLACKWATER_UNKNOWN_CLUSTER_REPLICA", replica=name, cluster=cluster.name)
    return found


def _with(cluster: ClusterEntry, changed: Sequence[ReplicaEntry]) -> AlterClusters:
    """The cluster with these replicas in place of those with their ids."""
    by_id = {each.id: each for each in changed}
    replicas = tuple(by_id.get(each.id, each) for each in cluster.replicas)
    return AlterClusters((replace(cluster, replicas=replicas),))


def _managed(action: str, cluster: ClusterEntry) -> SlackwaterError:
    return user_error("SLACKWATER_MANAGED_CLUSTER", action=action, cluster=cluster.name)


def _unmanaged(action: str, cluster: ClusterEntry) -> SlackwaterError:
    return user_error("SLACKWATER_UNMANAGED_CLUSTER", action=action, cluster=cluster.name)
