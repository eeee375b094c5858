"""The system relations that each page shows, and how often the leader is asked for each."""

from __future__ import annotations

from collections.abc import Mapping

NAMES = "mz_internal.mz_object_fully_qualified_names"
LAG = "mz_internal.mz_wallclock_global_lag"
LAG_HISTORY = "mz_internal.mz_wallclock_global_lag_recent_history"
EDGE_LAG = "mz_internal.mz_materialization_lag"
FRONTIERS = "mz_internal.mz_frontiers"
HYDRATED = "mz_internal.mz_hydration_statuses"
PROGRESS = "mz_internal.mz_hydration_progress"
SOURCES = "mz_internal.mz_source_statuses"
SINKS = "mz_internal.mz_sink_statuses"
SOURCE_COUNTS = "mz_internal.mz_source_statistics"
SINK_COUNTS = "mz_internal.mz_sink_statistics"
PARTITIONS = "mz_internal.mz_changefeed_partitions"
OFFSETS = "mz_internal.mz_source_partitions"
NOTICES = "mz_internal.mz_notices"
DEPENDENCIES = "mz_internal.mz_object_dependencies"
TICKS = "mz_internal.mz_recent_ticks"
STEPS = "mz_internal.mz_recent_tick_steps"
MEMORY = "mz_internal.mz_cluster_replica_metrics"
ARRANGEMENTS = "mz_internal.mz_arrangement_sizes"
SHARDS = "mz_internal.mz_shard_usage"
HOLDS = "mz_internal.mz_read_holds"
COMMENTS = "mz_internal.mz_comments"
STATUS_HISTORY = "mz_internal.mz_source_status_history"
SESSIONS = "mz_internal.mz_sessions"
SUBSCRIPTIONS = "mz_internal.mz_subscriptions"
PEEKS = "mz_internal.mz_active_peeks"
ACTIVITY = "mz_internal.mz_recent_activity_log"
WAITS = "mz_internal.mz_statement_waits"
COLUMNS = "mz_catalog.mz_columns"
PARAMETERS = "mz_internal.mz_system_parameters"
WITH_SQL = (
    "mz_catalog.mz_tables",
    "mz_catalog.mz_sources",
    "mz_catalog.mz_sinks",
    "mz_catalog.mz_views",
    "mz_catalog.mz_materialized_views",
    "mz_catalog.mz_indexes",
    "mz_catalog.mz_connections",
)

EVERY_PAGE = frozenset(
    {NAMES, LAG, HYDRATED, PROGRESS, SOURCES, SINKS, SOURCE_COUNTS, SINK_COUNTS, NOTICES, MEMORY}
    | {SHARDS, DEPENDENCIES, TICKS, LAG_HISTORY}
)
"""The relations of which the states of objects are made."""

FIRST = EVERY_PAGE
OBJECT = EVERY_PAGE | {FRONTIERS, STEPS, HOLDS, COMMENTS, STATUS_HISTORY, PARTITIONS, COLUMNS}
OBJECT |= {*WITH_SQL, EDGE_LAG, OFFSETS}
USED = frozenset({MEMORY, SHARDS})
"""The relations behind the line on top of each page."""

ACTIVITY_PAGE = USED | {NAMES, SESSIONS, SUBSCRIPTIONS, PEEKS, PROGRESS, ACTIVITY, WAITS}
STORAGE = USED | {NAMES, ARRANGEMENTS}
NOTICES_PAGE = USED | {NAMES, NOTICES}
LOG = USED
BUNDLE = OBJECT | ACTIVITY_PAGE | STORAGE | {PARAMETERS}

USUAL_S = 1.0
INTERVALS_S: Mapping[str, float] = {
    NAMES: 5.0,
    DEPENDENCIES: 5.0,
    TICKS: 10.0,
    SHARDS: 10.0,
    COMMENTS: 10.0,
    COLUMNS: 10.0,
    STATUS_HISTORY: 5.0,
    ARRANGEMENTS: 5.0,
    MEMORY: 5.0,
    PARAMETERS: 10.0,
    ACTIVITY: 2.0,
    LAG_HISTORY: 60.0,
    **dict.fromkeys(WITH_SQL, 10.0),
}
"""Seconds between two looks at a relation whose rows are many, or change seldom."""

KEPT_MS: Mapping[str, int] = {
    LAG_HISTORY: 3_600_000,
    ACTIVITY: 900_000,
    STATUS_HISTORY: 3_600_000,
}
"""The milliseconds back to which rows of a history are asked for."""
