"""Statements of clusters and their replicas as values. Source: surface 4, docs/decisions 0051."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaDefinition:
    """A replica that is named by itself."""

    name: str
    size: str


@dataclass(frozen=True, slots=True)
class ClusterSchedule:
    """SCHEDULE of a cluster: MANUAL, or ON REFRESH with the time that hydration may take before."""

    on_refresh: bool
    estimate_ms: int = 0


@dataclass(frozen=True, slots=True)
class CreateCluster:
    """`replicas` None: the cluster is managed, and has `replication_factor` replicas of `size`.

    With a schedule ON REFRESH it has one while a refresh is due, and none else.
    """

    name: str
    size: str | None
    replication_factor: int | None
    replicas: tuple[ReplicaDefinition, ...] | None = None
    if_not_exists: bool = False
    schedule: ClusterSchedule | None = None


@dataclass(frozen=True, slots=True)
class CreateClusterReplica:
    """CREATE CLUSTER REPLICA: one more replica, of an unmanaged cluster."""

    cluster: str
    name: str
    size: str


@dataclass(frozen=True, slots=True)
class ClusterSetting:
    """The options of a cluster that a statement gives; None: it leaves them as they are."""

    size: str | None = None
    replication_factor: int | None = None
    managed: bool | None = None
    schedule: ClusterSchedule | None = None


@dataclass(frozen=True, slots=True)
class AlterCluster:
    """ALTER CLUSTER ... SET or RESET: the cluster has other options from then on."""

    name: str
    setting: ClusterSetting
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameCluster:
    """ALTER CLUSTER ... RENAME TO: what runs on the cluster stays there."""

    name: str
    new_name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameClusterReplica:
    """ALTER CLUSTER REPLICA ... RENAME TO: the replica goes on under the new name."""

    cluster: str
    name: str
    new_name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class SwapClusters:
    """The two clusters exchange their names."""

    name: str
    other: str


@dataclass(frozen=True, slots=True)
class DropClusters:
    """DROP CLUSTER: with `cascade` also the views and indexes that are on the clusters."""

    names: tuple[str, ...]
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class DropClusterReplicas:
    """Each name is that of a cluster and that of one of its replicas."""

    names: tuple[tuple[str, str], ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CommentOnCluster:
    """`replica` None: of the cluster itself. `text` None: the comment goes away."""

    cluster: str
    replica: str | None
    text: str | None


@dataclass(frozen=True, slots=True)
class ShowCreateCluster:
    """SHOW CREATE CLUSTER: the statement that makes the cluster again."""

    name: str


ClusterStatement = (
    CreateCluster
    | CreateClusterReplica
    | AlterCluster
    | RenameCluster
    | RenameClusterReplica
    | SwapClusters
    | DropClusters
    | DropClusterReplicas
    | CommentOnCluster
)
"""The definitions of clusters and replicas."""
