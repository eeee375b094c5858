"""The grammar of clusters and their replicas. Source: spec coordinator 5.4, 5.5.

A cluster is managed, and has as many replicas of one size as it says, or its replicas are named one
by one.
"""

from __future__ import annotations

from slackwater.planner.parser.cluster_statements import (
    AlterCluster,
    ClusterSchedule,
    ClusterSetting,
    CommentOnCluster,
    CreateCluster,
    CreateClusterReplica,
    DropClusterReplicas,
    DropClusters,
    RenameCluster,
    RenameClusterReplica,
    ReplicaDefinition,
    SwapClusters,
)
from slackwater.planner.parser.options import (
    OptionValue,
    ReadValue,
    boolean,
    duration,
    integer,
    read_options,
)
from slackwater.planner.parser.options import text as text_option
from slackwater.planner.parser.tokens import TokenCursor

AlteredCluster = AlterCluster | RenameCluster | RenameClusterReplica | SwapClusters

MOST_REPLICAS = 8
"""The most replicas of a cluster: all of them share one process."""


def read_create_cluster(cursor: TokenCursor) -> CreateCluster | CreateClusterReplica:
    """``CREATE CLUSTER c (..)``, ``CREATE CLUSTER REPLICA c.r ..``; CREATE was read."""
    if cursor.accept("CLUSTER", "REPLICA"):
        cursor.statement = "CREATE CLUSTER REPLICA"
        cluster, name = _replica_name(cursor)
        return CreateClusterReplica(cluster, name, _size(cursor))
    cursor.expect("CLUSTER")
    cursor.statement = "CREATE CLUSTER"
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = read_cluster_name(cursor)
    if cursor.accept("REPLICAS"):
        return CreateCluster(name, None, None, _replicas(cursor), if_not_exists)
    at = cursor.token
    setting = _setting(cursor)
    if setting.managed is False:
        raise cursor.syntax_error("REPLICAS (name (SIZE = '..'), ..)", at)
    if setting.size is None:
        raise cursor.syntax_error("SIZE = '..'", at)
    return CreateCluster(
        name,
        setting.size,
        setting.replication_factor,
        None,
        if_not_exists,
        setting.schedule,
    )


def accept_swap(cursor: TokenCursor, if_exists: bool) -> bool:
    """Whether SWAP WITH was read: what swaps its name has to exist, so not behind IF EXISTS."""
    if if_exists and cursor.looking_at("SWAP", "WITH"):
        raise cursor.syntax_error("RENAME TO, because of IF EXISTS")
    return cursor.accept("SWAP", "WITH")


def read_alter_cluster(cursor: TokenCursor) -> AlteredCluster:
    """ALTER CLUSTER, and ALTER CLUSTER REPLICA, which is renamed; ALTER was read."""
    if cursor.accept("CLUSTER", "REPLICA"):
        cursor.statement = "ALTER CLUSTER REPLICA"
        if_exists = cursor.accept("IF", "EXISTS")
        cluster, replica = _replica_name(cursor)
        cursor.expect("RENAME", "TO")
        new_name = cursor.identifier("the new name")
        return RenameClusterReplica(cluster, replica, new_name, if_exists)
    cursor.expect("CLUSTER")
    cursor.statement = "ALTER CLUSTER"
    if_exists = cursor.accept("IF", "EXISTS")
    name = read_cluster_name(cursor)
    if cursor.accept("RENAME", "TO"):
        return RenameCluster(name, cursor.identifier("the new name"), if_exists)
    if accept_swap(cursor, if_exists):
        return SwapClusters(name, read_cluster_name(cursor))
    if cursor.accept("RESET"):
        read_options(cursor, {"REPLICATION FACTOR": _no_value})
        return AlterCluster(name, ClusterSetting(replication_factor=1), if_exists)
    if not cursor.accept("SET"):
        raise cursor.syntax_error("SET, RESET, RENAME TO or SWAP WITH")
    setting = _setting(cursor)
    if cursor.looking_at("WITH"):
        raise cursor.unsupported(
            "ALTER CLUSTER ... WITH (WAIT ...)",
            "Leave it out: a cluster goes on while it is altered.",
        )
    return AlterCluster(name, setting, if_exists)


def read_drop_cluster(cursor: TokenCursor) -> DropClusters | DropClusterReplicas:
    """DROP CLUSTER, DROP CLUSTER REPLICA; DROP was read."""
    if cursor.accept("CLUSTER", "REPLICA"):
        cursor.statement = "DROP CLUSTER REPLICA"
        if_exists = cursor.accept("IF", "EXISTS")
        replicas = [_replica_name(cursor)]
        while cursor.accept_symbol(","):
            replicas.append(_replica_name(cursor))
        return DropClusterReplicas(tuple(replicas), if_exists)
    cursor.expect("CLUSTER")
    cursor.statement = "DROP CLUSTER"
    if_exists = cursor.accept("IF", "EXISTS")
    names = [read_cluster_name(cursor)]
    while cursor.accept_symbol(","):
        names.append(read_cluster_name(cursor))
    cascade = cursor.accept("CASCADE")
    if not cascade:
        cursor.accept("RESTRICT")
    return DropClusters(tuple(names), if_exists, cascade)


def read_comment_on_cluster(cursor: TokenCursor) -> CommentOnCluster:
    """``COMMENT ON CLUSTER c IS ..`` and ``CLUSTER REPLICA c.r``; COMMENT ON was read."""
    cluster, replica = "", None
    if cursor.accept("CLUSTER", "REPLICA"):
        cursor.statement = "COMMENT ON CLUSTER REPLICA"
        cluster, replica = _replica_name(cursor)
    else:
        cursor.expect("CLUSTER")
        cursor.statement = "COMMENT ON CLUSTER"
        cluster = read_cluster_name(cursor)
    cursor.expect("IS")
    if cursor.accept("NULL"):
        return CommentOnCluster(cluster, replica, None)
    return CommentOnCluster(cluster, replica, cursor.string("a string, or NULL"))


def read_cluster_name(cursor: TokenCursor) -> str:
    """The name of a cluster, which has one part."""
    return cursor.identifier("the name of a cluster")


def _replicas(cursor: TokenCursor) -> tuple[ReplicaDefinition, ...]:
    cursor.expect_symbol("(")
    found: list[ReplicaDefinition] = []
    while not cursor.accept_symbol(")"):
        if found:
            cursor.expect_symbol(",")
        name = cursor.identifier("the name of a replica")
        found.append(ReplicaDefinition(name, _size(cursor)))
    return tuple(found)


def _replica_name(cursor: TokenCursor) -> tuple[str, str]:
    at = cursor.token
    name = cursor.name("cluster.replica")
    if len(name.parts) != 2:
        raise cursor.syntax_error("cluster.replica", at)
    return name.parts[0], name.parts[1]


def _size(cursor: TokenCursor) -> str:
    if cursor.token.is_symbol("("):
        return str(read_options(cursor, {"SIZE": text_option})["SIZE"])
    cursor.expect("SIZE")
    cursor.accept_symbol("=")
    return str(text_option(cursor, "SIZE"))


def _setting(cursor: TokenCursor) -> ClusterSetting:
    schedules: list[ClusterSchedule] = []

    def schedule(cursor: TokenCursor, option: str) -> OptionValue:
        schedules.append(_schedule(cursor))
        return True

    known: dict[str, ReadValue] = {
        "SIZE": text_option,
        "REPLICATION FACTOR": _factor,
        "MANAGED": boolean,
        "SCHEDULE": schedule,
    }
    options = read_options(cursor, known)
    size, factor = options.get("SIZE"), options.get("REPLICATION FACTOR")
    managed = options.get("MANAGED")
    return ClusterSetting(
        None if size is None else str(size),
        None if factor is None else int(factor),
        None if managed is None else bool(managed),
        schedules[0] if schedules else None,
    )


def _factor(cursor: TokenCursor, option: str) -> OptionValue:
    at = cursor.token
    found = int(integer(cursor, option))
    if not 0 <= found <= MOST_REPLICAS:
        raise cursor.error(
            "SLACKWATER_INVALID_OPTION",
            at,
            option=option,
            statement=cursor.statement,
            value=str(found),
            reason=f"it is a number from 0 to {MOST_REPLICAS}",
        )
    return found


def _schedule(cursor: TokenCursor) -> ClusterSchedule:
    """``MANUAL`` or ``ON REFRESH [(HYDRATION TIME ESTIMATE = '1 hour')]``."""
    if cursor.accept("MANUAL"):
        return ClusterSchedule(on_refresh=False)
    if not cursor.accept("ON", "REFRESH"):
        raise cursor.syntax_error("MANUAL or ON REFRESH")
    if not cursor.token.is_symbol("("):
        return ClusterSchedule(on_refresh=True)
    estimate = read_options(cursor, {"HYDRATION TIME ESTIMATE": duration})
    return ClusterSchedule(True, int(estimate["HYDRATION TIME ESTIMATE"]))


def _no_value(cursor: TokenCursor, option: str) -> OptionValue:
    return True
