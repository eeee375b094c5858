"""The system relations: names, columns, and their rows as pure functions of a `SystemSnapshot`.

Ids are stable: new relations are added at the end of `SYSTEM_RELATIONS`, none is ever removed from
its place. Types that Parquet does not hold exactly are replaced: lags are milliseconds (BIGINT),
JSON is text, oids are BIGINT.

Source: spec coordinator 7, surface section 6.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from slackwater.adapter.catalog.model import CatalogItem, ItemKind, SchemaEntry
from slackwater.adapter.system import activity, objects, past
from slackwater.adapter.system.objects import SystemRow
from slackwater.adapter.system.snapshot import SystemSnapshot
from slackwater.repr.ids import GlobalId, system_id
from slackwater.repr.relation import Column, RelationDesc

_TEXTS = json.dumps({"type": "array", "elementType": "string", "containsNull": False})
_TYPES = {
    "text": '"string"',
    "long": '"long"',
    "bool": '"boolean"',
    "double": '"double"',
    "time": '"timestamp"',
    "texts": _TEXTS,
}
_SYSTEM_SCHEMA_NAMES = ("mz_catalog", "mz_internal", "mz_introspection")
_FIRST_SYSTEM_ITEM = 101


@dataclass(frozen=True, slots=True)
class SystemRelation:
    """A relation and the function that makes its rows."""

    id: GlobalId
    schema_name: str
    name: str
    desc: RelationDesc
    rows: Callable[[SystemSnapshot], Iterable[SystemRow]]

    def table(self, snapshot: SystemSnapshot) -> pa.Table:
        """The contents, in `desc.arrow_schema()`."""
        schema = self.desc.arrow_schema()
        rows = list(self.rows(snapshot))
        columns: list[list[Any]] = [list(c) for c in zip(*rows, strict=True)]
        if not rows:
            columns = [[] for _ in schema]
        arrays = [pa.array(c, field.type) for c, field in zip(columns, schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=schema)


def system_schemas() -> tuple[SchemaEntry, ...]:
    return tuple(
        SchemaEntry(system_id(number), name)
        for number, name in enumerate(_SYSTEM_SCHEMA_NAMES, start=1)
    )


def system_items() -> tuple[CatalogItem, ...]:
    """The system relations as entries of the catalog."""
    return tuple(
        CatalogItem(
            id=relation.id,
            kind=ItemKind.SYSTEM_TABLE,
            schema_name=relation.schema_name,
            name=relation.name,
            create_sql="",
            desc=relation.desc,
        )
        for relation in SYSTEM_RELATIONS
    )


def _desc(spec: str) -> RelationDesc:
    """Columns from ``name``, ``name:type``; a trailing ``!`` means NOT NULL; text by default."""
    columns = []
    for word in spec.split():
        name, _, kind = word.rstrip("!").partition(":")
        columns.append(Column(name, _TYPES[kind or "text"], nullable=not word.endswith("!")))
    return RelationDesc(tuple(columns))


_SQL = "create_sql redacted_create_sql"
_HEAD = "id! oid:long! schema_id! name!"
_OBJECT = f"{_HEAD} type! owner_id! cluster_id privileges:texts!"
_STATUS = "id! name! type! last_status_change_at:time status! error details"
_LAYOUT: tuple[tuple[str, str, str, Callable[[SystemSnapshot], Iterable[SystemRow]]], ...] = (
    (
        "mz_catalog",
        "mz_databases",
        "id! oid:long! name! owner_id! privileges:texts!",
        objects.databases,
    ),
    (
        "mz_catalog",
        "mz_schemas",
        "id! oid:long! database_id name! owner_id! privileges:texts!",
        objects.schemas,
    ),
    ("mz_catalog", "mz_objects", _OBJECT, objects.objects),
    ("mz_catalog", "mz_relations", _OBJECT, objects.relations),
    (
        "mz_catalog",
        "mz_tables",
        f"{_HEAD} owner_id! privileges:texts! {_SQL} source_id",
        objects.tables,
    ),
    (
        "mz_catalog",
        "mz_sources",
        f"{_HEAD} type! connection_id size envelope_type key_format value_format cluster_id"
        f" owner_id! privileges:texts! {_SQL}",
        objects.sources,
    ),
    (
        "mz_catalog",
        "mz_sinks",
        f"{_HEAD} type! connection_id size envelope_type format key_format value_format"
        f" cluster_id owner_id! {_SQL}",
        objects.sinks,
    ),
    (
        "mz_catalog",
        "mz_views",
        f"{_HEAD} definition owner_id! privileges:texts! {_SQL}",
        objects.views,
    ),
    (
        "mz_catalog",
        "mz_materialized_views",
        f"{_HEAD} cluster_id definition owner_id! privileges:texts! {_SQL}",
        objects.materialized_views,
    ),
    (
        "mz_catalog",
        "mz_indexes",
        f"id! oid:long! name! on_id cluster_id owner_id! {_SQL}",
        objects.indexes,
    ),
    (
        "mz_catalog",
        "mz_columns",
        "id! name! position:long! nullable:bool! type! default type_oid:long type_mod:long!",
        objects.columns,
    ),
    (
        "mz_catalog",
        "mz_clusters",
        "id! name! owner_id! privileges:texts! managed:bool! size replication_factor:long"
        " disk:bool availability_zones:texts introspection_debugging:bool"
        " introspection_interval:long",
        objects.clusters,
    ),
    (
        "mz_catalog",
        "mz_cluster_replicas",
        "id! name! cluster_id! size availability_zone owner_id! disk:bool",
        objects.cluster_replicas,
    ),
    (
        "mz_catalog",
        "mz_audit_events",
        "id:long! event_type! object_type! details! user occurred_at:time!",
        objects.audit_events,
    ),
    (
        "mz_internal",
        "mz_frontiers",
        "object_id! read_frontier:long write_frontier:long",
        activity.frontiers,
    ),
    (
        "mz_internal",
        "mz_hydration_statuses",
        "object_id! replica_id hydrated:bool!",
        activity.hydration_statuses,
    ),
    (
        "mz_internal",
        "mz_materialization_lag",
        "object_id! local_lag:long global_lag:long slowest_local_input_id slowest_global_input_id",
        activity.materialization_lag,
    ),
    (
        "mz_internal",
        "mz_wallclock_global_lag",
        "object_id! lag:long",
        activity.wallclock_global_lag,
    ),
    (
        "mz_internal",
        "mz_source_statistics",
        "id! replica_id messages_received:long! bytes_received:long! updates_staged:long!"
        " updates_committed:long! records_indexed:long bytes_indexed:long"
        " rehydration_latency:long snapshot_records_known:long snapshot_records_staged:long"
        " snapshot_committed:bool! offset_known:long offset_committed:long rows_skipped:long!",
        activity.source_statistics,
    ),
    ("mz_internal", "mz_source_statuses", _STATUS, activity.source_statuses),
    ("mz_internal", "mz_sink_statuses", _STATUS, activity.sink_statuses),
    (
        "mz_internal",
        "mz_object_dependencies",
        "object_id! referenced_object_id!",
        objects.object_dependencies,
    ),
    (
        "mz_internal",
        "mz_object_fully_qualified_names",
        "id! name! object_type! schema_id! schema_name! database_id database_name cluster_id",
        objects.fully_qualified_names,
    ),
    (
        "mz_internal",
        "mz_sessions",
        "id! connection_id:long! role_id! client_ip connected_at:time!",
        activity.sessions,
    ),
    (
        "mz_internal",
        "mz_subscriptions",
        "id! session_id! cluster_id! created_at:time! referenced_object_ids:texts!",
        activity.subscriptions,
    ),
    (
        "mz_internal",
        "mz_notices",
        "id! notice_type! message! hint! action redacted_message redacted_hint redacted_action"
        " action_type object_id created_at:time!",
        activity.notices,
    ),
    (
        "mz_internal",
        "mz_source_status_history",
        "occurred_at:time! source_id! status! error details replica_id",
        activity.source_status_history,
    ),
    ("mz_internal", "mz_storage_shards", "object_id! shard_id!", activity.storage_shards),
    (
        "mz_catalog",
        "mz_recent_storage_usage",
        "object_id! size_bytes:long!",
        activity.recent_storage_usage,
    ),
    (
        "mz_internal",
        "mz_shard_usage",
        "shard_id! object_id state! parts:long! rows:long! size_bytes:long! garbage_bytes:long!",
        activity.shard_usage,
    ),
    (
        "mz_internal",
        "mz_read_holds",
        "object_id! holder! kind! hold_time:long!",
        activity.read_holds,
    ),
    (
        "mz_internal",
        "mz_comments",
        "id! object_type! object_sub_id:long comment!",
        objects.comments,
    ),
    (
        "mz_internal",
        "mz_recent_ticks",
        "object_id! replica_id! lower:long! upper:long! committed_at:time! by_program:bool!"
        " rows_scanned:long! rows_looked_up:long! rows_emitted:long! plan_us:long!"
        " load_us:long! compute_us:long! encode_us:long! commit_us:long!",
        activity.recent_ticks,
    ),
    (
        "mz_internal",
        "mz_recent_tick_steps",
        "object_id! replica_id! upper:long! step:long! operator! rows_emitted:long!"
        " rows_looked_up:long! elapsed_us:long! mode! reads",
        activity.recent_tick_steps,
    ),
    ("mz_catalog", "mz_secrets", f"{_HEAD} owner_id! privileges:texts!", objects.secrets),
    ("mz_internal", "mz_webhook_sources", "id! name! url!", objects.webhook_sources),
    (
        "mz_internal",
        "mz_hydration_progress",
        "object_id! replica_id! rows_read:long! rows_known:long! elapsed_ms:long!",
        activity.hydration_progress,
    ),
    (
        "mz_internal",
        "mz_changefeed_partitions",
        "id! partition! status! resolved committed proposed lag:long waiting:long!"
        " rows_bound:long! rows_late:long! rows_repeated:long! dead_letters:long!",
        activity.changefeed_partitions,
    ),
    (
        "mz_internal",
        "mz_arrangement_sizes",
        "id! replica_id! object_ids:texts! records:long! bytes:long! readers:texts!",
        activity.arrangement_sizes,
    ),
    (
        "mz_catalog",
        "mz_index_columns",
        "index_id! index_position:long! on_position:long on_expression nullable:bool!",
        objects.index_columns,
    ),
    (
        "mz_internal",
        "mz_system_parameters",
        "name! value! default_value! source! description!",
        objects.system_parameters,
    ),
    ("mz_catalog", "mz_cluster_replica_sizes", "size! weight:long!", objects.cluster_replica_sizes),
    (
        "mz_internal",
        "mz_cluster_replica_frontiers",
        "object_id! replica_id! write_frontier:long",
        activity.replica_frontiers,
    ),
    (
        "mz_internal",
        "mz_materialized_view_refresh_strategies",
        "materialized_view_id! type! interval:long aligned_to:time at:time",
        objects.refresh_strategies,
    ),
    (
        "mz_internal",
        "mz_cluster_schedules",
        "cluster_id! type! refresh_hydration_time_estimate_ms:long",
        objects.cluster_schedules,
    ),
    (
        "mz_internal",
        "mz_materialized_view_refreshes",
        "materialized_view_id! last_completed_refresh:time next_refresh:time",
        objects.refreshes,
    ),
    (
        "mz_internal",
        "mz_cluster_replica_statuses",
        "replica_id! process_id:long! status! reason updated_at:time!",
        activity.replica_statuses,
    ),
    (
        "mz_internal",
        "mz_cluster_replica_metrics",
        "replica_id! process_id:long! memory_bytes:long!",
        activity.replica_metrics,
    ),
    (
        "mz_internal",
        "mz_active_peeks",
        "id! object_id! type! time:long!",
        activity.active_peeks,
    ),
    (
        "mz_catalog",
        "mz_connections",
        f"{_HEAD} type! owner_id! privileges:texts! {_SQL}",
        objects.connections,
    ),
    (
        "mz_catalog",
        "mz_kafka_connections",
        "id! brokers:texts! sink_progress_topic",
        objects.kafka_connections,
    ),
    (
        "mz_catalog",
        "mz_kafka_sources",
        "id! group_id_prefix! topic! cluster_id! topic_id!",
        objects.kafka_sources,
    ),
    (
        "mz_internal",
        "mz_aws_connections",
        "id! endpoint region access_key_id access_key_id_secret_id secret_access_key_secret_id"
        " session_token session_token_secret_id assume_role_arn assume_role_session_name",
        objects.aws_connections,
    ),
    ("mz_catalog", "mz_kafka_sinks", "id! topic!", objects.kafka_sinks),
    ("mz_catalog", "mz_iceberg_sinks", "id! namespace! table!", objects.iceberg_sinks),
    (
        "mz_internal",
        "mz_sink_statistics",
        "id! replica_id messages_staged:long! messages_committed:long! bytes_staged:long!"
        " bytes_committed:long! snapshot_records_known:long snapshot_records_staged:long",
        activity.sink_statistics,
    ),
    (
        "mz_internal",
        "mz_source_references",
        "source_id! namespace name! updated_at:time! columns:texts",
        objects.source_references,
    ),
    (
        "mz_internal",
        "mz_kafka_source_tables",
        "id! topic! envelope_type key_format value_format",
        objects.kafka_source_tables,
    ),
    (
        "mz_internal",
        "mz_postgres_sources",
        "id! replication_slot! timeline_id:long!",
        objects.postgres_sources,
    ),
    (
        "mz_internal",
        "mz_postgres_source_tables",
        "id! schema_name! table_name!",
        objects.postgres_source_tables,
    ),
    (
        "mz_catalog",
        "mz_ssh_tunnel_connections",
        "id! public_key_1! public_key_2!",
        objects.ssh_tunnel_connections,
    ),
    (
        "mz_internal",
        "mz_recent_activity_log",
        "execution_id! sample_rate:double! cluster_name application_name transaction_isolation"
        " execution_timestamp:long prepared_at:time began_at:time! finished_at:time"
        " finished_status condition error_message rows_returned:long rows_written:long"
        " waited_ms:long! sql_hash session_id! statement_type! throttled_count:long!"
        " connected_at:time initial_application_name authenticated_user! sql redacted_sql"
        " statement! spark_execution_id:long execution_strategy cluster_id database_name"
        " search_path:texts mz_version",
        past.activity_log,
    ),
    (
        "mz_internal",
        "mz_statement_lifecycle_history",
        "statement_id! event_type! occurred_at:time!",
        past.lifecycle,
    ),
    (
        "mz_internal",
        "mz_session_history",
        "session_id! connected_at:time! initial_application_name authenticated_user!",
        past.sessions,
    ),
    (
        "mz_internal",
        "mz_wallclock_global_lag_recent_history",
        "occurred_at:time! object_id! lag:long!",
        past.lags,
    ),
    (
        "mz_internal",
        "mz_statement_waits",
        "session_id! statement! waits_for!",
        activity.statement_waits,
    ),
    (
        "mz_internal",
        "mz_object_hydration_history",
        "object_id! cluster_id! replica_id! installed_at:time! started_at:time hydrated_at:time"
        " status!",
        past.hydrations,
    ),
    (
        "mz_internal",
        "mz_source_partitions",
        "id! partition:long! offset_known:long offset_committed:long! lag:long",
        activity.source_partitions,
    ),
)

SYSTEM_RELATIONS: tuple[SystemRelation, ...] = tuple(
    SystemRelation(system_id(number), schema, name, _desc(columns), rows)
    for number, (schema, name, columns, rows) in enumerate(_LAYOUT, start=_FIRST_SYSTEM_ITEM)
)
"""All of them, by id. The order is part of the contract."""
