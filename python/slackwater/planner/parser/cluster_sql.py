"""Statements about clusters as canonical text, as `canonical.to_sql` promises."""

from __future__ import annotations

from collections.abc import Iterable

from slackwater.planner.parser.cluster_statements import (
    AlterCluster,
    ClusterSchedule,
    ClusterSetting,
    ClusterStatement,
    CommentOnCluster,
    CreateCluster,
    CreateClusterReplica,
    DropClusterReplicas,
    DropClusters,
    RenameCluster,
    RenameClusterReplica,
    SwapClusters,
)
from slackwater.planner.parser.durations import format_duration
from slackwater.repr.relation import quote_identifier, quote_string


def cluster_sql(statement: ClusterStatement) -> Iterable[str]:
    """The words of the statement; empty ones are to be left out."""
    match statement:
        case CreateCluster():
            return _create(statement)
        case CreateClusterReplica(cluster, name, size):
            return ("CREATE CLUSTER REPLICA", _replica(cluster, name), _options([_size(size)]))
        case AlterCluster(name, setting, if_exists):
            options = _options(_settings(setting))
            return ("ALTER CLUSTER", _if_exists(if_exists), quote_identifier(name), "SET", options)
        case RenameCluster(name, new_name, if_exists):
            named = (quote_identifier(name), "RENAME TO", quote_identifier(new_name))
            return ("ALTER CLUSTER", _if_exists(if_exists), *named)
        case RenameClusterReplica(cluster, name, new_name, if_exists):
            renamed = (_replica(cluster, name), "RENAME TO", quote_identifier(new_name))
            return ("ALTER CLUSTER REPLICA", _if_exists(if_exists), *renamed)
        case SwapClusters(name, other):
            return ("ALTER CLUSTER", quote_identifier(name), "SWAP WITH", quote_identifier(other))
        case DropClusters(names, if_exists, cascade):
            dropped = ", ".join(map(quote_identifier, names))
            return ("DROP CLUSTER", _if_exists(if_exists), dropped, "CASCADE" if cascade else "")
        case DropClusterReplicas(names, if_exists):
            replicas = ", ".join(_replica(*each) for each in names)
            return ("DROP CLUSTER REPLICA", _if_exists(if_exists), replicas)
        case CommentOnCluster(cluster, replica, text):
            kind = "CLUSTER" if replica is None else "CLUSTER REPLICA"
            shown = quote_identifier(cluster) if replica is None else _replica(cluster, replica)
            value = "NULL" if text is None else quote_string(text)
            return ("COMMENT ON", kind, shown, "IS", value)


def _create(s: CreateCluster) -> Iterable[str]:
    yield from ("CREATE CLUSTER", "IF NOT EXISTS" if s.if_not_exists else "")
    yield quote_identifier(s.name)
    if s.replicas is None:
        setting = ClusterSetting(s.size, s.replication_factor, schedule=s.schedule)
        yield _options(_settings(setting))
        return
    named = [f"{quote_identifier(r.name)} {_options([_size(r.size)])}" for r in s.replicas]
    yield f"REPLICAS ({', '.join(named)})"


def _settings(setting: ClusterSetting) -> list[str]:
    found = [] if setting.size is None else [_size(setting.size)]
    if setting.replication_factor is not None:
        found.append(f"REPLICATION FACTOR = {setting.replication_factor}")
    if setting.managed is not None:
        found.append(f"MANAGED = {'TRUE' if setting.managed else 'FALSE'}")
    if setting.schedule is not None:
        found.append(f"SCHEDULE = {_schedule(setting.schedule)}")
    return found


def _schedule(schedule: ClusterSchedule) -> str:
    if not schedule.on_refresh:
        return "MANUAL"
    estimate = quote_string(format_duration(schedule.estimate_ms))
    return f"ON REFRESH (HYDRATION TIME ESTIMATE = {estimate})"


def _size(size: str) -> str:
    return f"SIZE = {quote_string(size)}"


def _options(options: Iterable[str]) -> str:
    return f"({', '.join(options)})"


def _replica(cluster: str, name: str) -> str:
    return f"{quote_identifier(cluster)}.{quote_identifier(name)}"


def _if_exists(if_exists: bool) -> str:
    return "IF EXISTS" if if_exists else ""
