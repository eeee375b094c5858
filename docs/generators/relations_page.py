"""The reference page of the system relations.

``python -m docs.generators.relations_page`` prints it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from slackwater.adapter.system.relations import SYSTEM_RELATIONS, SystemRelation
from slackwater.repr.relation import Column

HEAD = """# System relations

This page is generated from the code by `python -m docs.generators.relations_page`.

Slackwater describes itself in relations that any query can read and join. Those that
Materialize has too have its names and columns. They show now: all of one query are of one moment,
and none keeps history, so a time of the past and `SUBSCRIBE` are refused.

A relation of `mz_catalog` is found by `mz_catalog.mz_tables` while the catalog `slackwater` is
current, and by `slackwater.mz_catalog.mz_tables` from anywhere. Objects have ids such as `u17`;
those of the system begin with `s`. Times in the columns of frontiers are milliseconds since the
epoch, and NULL is the empty frontier.

`create_sql` is what `SHOW CREATE` prints, of the object as it is now. `redacted_create_sql` has
`'<REDACTED>'` for each string and number, and no comments.
"""

DESCRIPTIONS: Mapping[str, str] = {
    "mz_databases": "The one database that there is, for clients that ask.",
    "mz_schemas": "The schemas of the catalog.",
    "mz_objects": "All objects, of users and of the system.",
    "mz_relations": "The objects that can be read.",
    "mz_tables": "Tables; with `source_id` those that a source fills.",
    "mz_sources": "Sources, their tables and their progress relations, told apart by `type`.",
    "mz_sinks": "Sinks.",
    "mz_views": "Stored queries.",
    "mz_materialized_views": "Maintained queries.",
    "mz_indexes": "Indexes.",
    "mz_system_parameters": (
        "Each [parameter of the system](settings.md#parameters-of-the-system), and where its value"
        " comes from: `system` (ALTER SYSTEM), `file` or `default`."
    ),
    "mz_materialized_view_refresh_strategies": (
        "When each materialized view is refreshed, with a row for each option: `on-commit`, `every`"
        " with its interval in milliseconds, or `at`."
    ),
    "mz_materialized_view_refreshes": (
        "Of each view that is refreshed at times, the last refresh that is complete, and the next"
        " one; NULL: there was none yet, and there will be none."
    ),
    "mz_index_columns": (
        "The keys of indexes: the position of a column in the relation, or an expression."
    ),
    "mz_columns": "The columns of all relations, by `position` from 1.",
    "mz_clusters": "The clusters.",
    "mz_cluster_schedules": "When each cluster runs.",
    "mz_cluster_replica_sizes": "The sizes of replicas, and their weights.",
    "mz_cluster_replica_frontiers": "Up to where each replica has each view and index.",
    "mz_cluster_replica_statuses": (
        "Whether each replica is connected to the coordinator, and since when that is so."
    ),
    "mz_cluster_replica_metrics": "The memory that the arrangements of each replica take.",
    "mz_active_peeks": (
        "The reads of indexes by applications that have joined, as far as a replica has not"
        " answered them: what is read (`object_id`), at which time."
    ),
    "mz_cluster_replicas": (
        "The replicas of clusters, all of which are in the driver of the application that leads."
    ),
    "mz_audit_events": "Each change of a definition: of what, by whom, when.",
    "mz_frontiers": "From when on each object can be read, and up to when it is complete.",
    "mz_hydration_statuses": (
        "Whether each materialized view has been computed completely, and whether each index is"
        " there to be read."
    ),
    "mz_materialization_lag": (
        "How many milliseconds each object is behind its direct inputs (`local_lag`) and behind the"
        " tables and sources below it (`global_lag`), and the slowest of each."
    ),
    "mz_wallclock_global_lag": "How many milliseconds each object is behind the clock.",
    "mz_source_statistics": (
        "What each source has read, committed and skipped; it outlives the application."
        " `snapshot_records_staged` of `snapshot_records_known` rows, of topics messages, of the"
        " first contents have been read, or of tables that are copied anew or later; NULL where"
        " nobody knows. PostgreSQL estimates how many there are once it has analyzed a table."
        " Parquet files say how many they have, CSV and JSON do not: of those `offset_committed` of"
        " `offset_known` files have been read. A webhook has no first contents: both are NULL."
    ),
    "mz_source_statuses": (
        "How each source is, and each table that a source fills; `error` names file and line of a"
        " bad row. A table that has no contents yet is `starting`."
    ),
    "mz_sink_statuses": "How each sink is.",
    "mz_object_dependencies": "Which object reads which, directly.",
    "mz_object_fully_qualified_names": "Ids and names of all objects, for joins.",
    "mz_sessions": "The sessions that are connected.",
    "mz_subscriptions": "The subscriptions that run.",
    "mz_notices": "What operators should know: views that do not go on, or lack memory.",
    "mz_source_status_history": "The last 200 changes of the status of each source.",
    "mz_storage_shards": "Which shards an object has.",
    "mz_recent_storage_usage": "The bytes of each object.",
    "mz_shard_usage": "Of each shard its parts, rows, bytes, and the bytes that wait for deletion.",
    "mz_read_holds": "Who keeps the history of what, and from when on.",
    "mz_comments": "Comments on objects and, with `object_sub_id` as the position, on columns.",
    "mz_recent_ticks": (
        "The last 32 ticks of each view, also under leaders before, of which the last minute is"
        " missing where they were killed: the interval, rows, microseconds."
    ),
    "mz_recent_tick_steps": "The steps of these ticks.",
    "mz_secrets": "The names of secrets; nothing shows their values.",
    "mz_connections": "The connections to other systems.",
    "mz_kafka_connections": "The connections to Kafka.",
    "mz_recent_activity_log": (
        "What was run in the last 24 hours, at most 10 000 statements, of all applications and also"
        " under leaders before. `sql` lacks secrets, `redacted_sql` every literal;"
        " [what is in it](tasks/see_what_was_run.md)."
    ),
    "mz_statement_lifecycle_history": (
        "When each of these statements reached each of its steps; `statement_id` is its"
        " `execution_id`."
    ),
    "mz_session_history": "The sessions of the last 24 hours, at most 10 000.",
    "mz_object_hydration_history": "When each materialized view and index came to a replica, began"
    " to be hydrated and was hydrated: the last 32 times of each in 24 hours, also under leaders"
    " before, of which the last minute is missing where they were killed.",
    "mz_source_partitions": (
        "The partitions of each source: all before `offset_committed` is committed here. Of topics"
        " `offset_known` is the end of the partition as brokers have said it with the last"
        " messages, also of transactions that are not committed, and `lag` the difference; both are"
        " NULL before brokers have said it, and for sources of other kinds."
    ),
    "mz_statement_waits": "What statements wait for at the moment, by their names in"
    " `mz_recent_activity_log`: the hydration of a view, the first contents of a source, a time"
    " that is not complete yet; their own jobs that write, with the rows that these have written.",
    "mz_wallclock_global_lag_recent_history": "By how much each object was behind the wall clock at"
    " most in each minute that is over, in milliseconds: 24 hours, at most 200 000 rows, also of"
    " leaders before. Lags are looked at every 5 seconds. What has ended has none.",
    "mz_ssh_tunnel_connections": (
        "The public keys of SSH tunnels: the servers of tunnels let in who has one of them."
    ),
    "mz_source_references": (
        "What sources with several tables have, and when they were asked: CREATE TABLE ... FROM"
        " SOURCE makes a table of it. `columns` are there if they are known before."
    ),
    "mz_kafka_source_tables": "The tables that are made of topics, and how they read messages.",
    "mz_kafka_sources": "The topics that sources read, with the ids that they had then.",
    "mz_postgres_sources": "The replication slots of sources, and the timelines of their servers.",
    "mz_postgres_source_tables": "The tables of sources, as the upstream named them then.",
    "mz_sink_statistics": (
        "Messages of sinks and their bytes since the leader has begun: handed over, and committed."
        " A row of a file is a message. `snapshot_records_staged` of `snapshot_records_known`"
        " messages of the first range were handed over, which has what the relation held when the"
        " sink began; while that is read, it is as many as rows are stored. NULL with `SNAPSHOT ="
        " false`, and where a leader before has written it."
    ),
    "mz_kafka_sinks": "The topics of sinks that write to Kafka.",
    "mz_iceberg_sinks": "The tables of sinks that write to Iceberg.",
    "mz_aws_connections": "The connections to AWS, with the ids of their secrets.",
    "mz_webhook_sources": "The addresses of webhook sources.",
    "mz_hydration_progress": (
        "How many rows have been read for each view that is being hydrated, and of how many."
    ),
    "mz_changefeed_partitions": (
        "How far each feed of a changefeed source is, and what became of its changes."
    ),
    "mz_arrangement_sizes": (
        "The indexes in memory in which views look up what belongs to a change: the objects whose"
        " rows each has, how many updates and bytes that is, and the views that share it"
        " (`readers`)."
    ),
}
"""A sentence on each relation, by its name."""


def page() -> str:
    """The page as Markdown, ending with a newline."""
    parts = [HEAD]
    schemas = sorted({relation.schema_name for relation in SYSTEM_RELATIONS})
    for schema in schemas:
        parts.append(f"\n## {schema}\n")
        found = [each for each in SYSTEM_RELATIONS if each.schema_name == schema]
        parts.extend(_section(each) for each in sorted(found, key=lambda each: each.name))
    return "".join(parts)


def _section(relation: SystemRelation) -> str:
    rows = [
        f"| `{column.name}` | {_type(column)} | {'' if column.nullable else 'NOT NULL'} |"
        for column in relation.desc.columns
    ]
    head = "| column | type | |\n|---|---|---|\n"
    return (
        f"\n### {relation.name}\n\n{DESCRIPTIONS[relation.name]}\n\n{head}" + "\n".join(rows) + "\n"
    )


def _type(column: Column) -> str:
    found = json.loads(column.type_json)
    if isinstance(found, dict):
        return f"ARRAY&lt;{str(found['elementType']).upper()}&gt;"
    return {"long": "BIGINT"}.get(found, str(found).upper())


if __name__ == "__main__":
    print(page(), end="")
