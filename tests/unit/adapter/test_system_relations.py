"""The system relations: their columns, their ids, their rows."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from sqlalchemy import update
from tests.support.adapter.calls import calls_of
from tests.support.adapter.coordination import Place
from tests.support.waiting import PATIENCE

from slackwater.adapter.catalog.details import (
    NO_DETAILS,
    ConnectionDetails,
    ConnectionSetting,
    FilesDetails,
    IndexDetails,
    KafkaDetails,
    KafkaSettings,
    MaterializedViewDetails,
    MessageSettings,
    PostgresDetails,
    PostgresSettings,
    PublishedTable,
    SecretDetails,
    SinkDetails,
    SourceTableDetails,
    TableDetails,
    ViewDetails,
)
from slackwater.adapter.catalog.durable import AuditEvent
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind, SchemaEntry
from slackwater.adapter.controllers.dataflows import OfReplica
from slackwater.adapter.controllers.parameters import ParameterEntry
from slackwater.adapter.history.dataflows import Hydrated, Ticked
from slackwater.adapter.history.lags import LagsOfMinute
from slackwater.adapter.history.records import (
    Reached,
    SessionBegan,
    ShownText,
    Statement,
    Status,
    Step,
)
from slackwater.adapter.protocol import ReadStrategy
from slackwater.adapter.sources.changefeed_sources import PartitionEntry
from slackwater.adapter.system.relations import SYSTEM_RELATIONS, system_items, system_schemas
from slackwater.adapter.system.snapshot import (
    NoticeEntry,
    ObjectFrontiers,
    SessionEntry,
    SubscriptionEntry,
    SystemSnapshot,
    WaitEntry,
)
from slackwater.compute.controller.protocol import Peek
from slackwater.compute.controller.shell import ReplicaStatus
from slackwater.compute.records import (
    ArrangementSize,
    HydrationProgress,
    HydrationRecord,
    StepRecord,
    TickRecord,
    TickTimes,
)
from slackwater.controller.holds import Holder, HoldKind, ReadHold
from slackwater.persist.tables import environment
from slackwater.persist.usage import ShardUsage
from slackwater.planner.parser.kafka_source import Decoding, Payload
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier, Timestamp
from slackwater.repr.hlc import Time
from slackwater.repr.ids import user_id
from slackwater.repr.refresh import RefreshEvery, RefreshSchedule
from slackwater.repr.relation import Column, RelationDesc
from slackwater.storage.changefeed.ingestion import FeedCounters
from slackwater.storage.file_formats import Format
from slackwater.storage.files_source import FilesConfig
from slackwater.storage.ingestion import (
    PartitionOffsets,
    SourceStatistics,
    SourceStatus,
    StatusChange,
)
from slackwater.storage.kafka.sink_messages import KafkaSinkConfig
from slackwater.storage.lake.config import IcebergPlace, LakeSinkConfig
from slackwater.storage.postgres.tables import PostgresTable
from slackwater.storage.sink_files import SinkConfig
from slackwater.storage.sink_statistics import SinkStatistics

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
NAMED = {relation.name: relation for relation in SYSTEM_RELATIONS}
K = Column("k", '"integer"')
DEFINED = {"catalog": "slackwater", "namespace": ("default",)}
FILES = FilesDetails(FilesConfig("/files", Format("CSV")))
DAILY = RefreshSchedule((RefreshEvery(86_400_000, Timestamp(500)),), (Timestamp(700),))
TOPIC = KafkaDetails(
    KafkaSettings("t", "cluster", "id", Decoding(Payload("JSON"), Payload("TEXT"), (), "UPSERT")),
    user_id(20),
)
TABLES_TOPIC = KafkaDetails(KafkaSettings("w", "cluster", "id"), user_id(20))
OF_TOPIC = SourceTableDetails(
    user_id(25), "u26", ("w",), None, MessageSettings(Decoding(Payload("TEXT")))
)
PUBLICATION = PostgresDetails(
    PostgresSettings("p", "slot", "7", 2, (PostgresTable("t", "a", "b", 9, ()),)),
    user_id(20),
    exports={"t": user_id(28)},
    referenced=(PublishedTable("a", "b", ("c", "d")),),
)
OF_PUBLICATION = SourceTableDetails(
    user_id(27), "u29", ("x", "y"), upstream=PostgresTable("u29", "x", "y", 9, ())
)
OUT = SinkDetails(SinkConfig("/out", "JSON"), Timestamp(0))
INTO_TOPIC = SinkDetails(
    KafkaSinkConfig("t", "TEXT", "JSON", "UPSERT", ("k",)), Timestamp(0), connection=user_id(20)
)
INTO_TABLE = SinkDetails(
    LakeSinkConfig(IcebergPlace("n", "t"), "APPEND"), Timestamp(0), connection=user_id(20)
)


def entry(number, name, kind, *uses, details=NO_DETAILS):
    return CatalogItem(
        id=user_id(number),
        kind=kind,
        schema_name="default",
        name=name,
        create_sql=f"CREATE {name}",
        shard_id=6 if number == 10 else None,
        desc=RelationDesc.of(k="integer", v="string") if kind.is_relation else None,
        depends_on=tuple(user_id(n) for n in uses),
        owner="me",
        details=details,
        cluster=user_id(1) if kind.is_on_cluster else None,
    )


def maintained(number, name, used, query, **options):
    details = MaterializedViewDetails(query, **DEFINED, **options)
    return entry(number, name, ItemKind.MATERIALIZED_VIEW, used, details=details)


@pytest.fixture
def snapshot():
    items = [
        entry(10, "t", ItemKind.TABLE, details=TableDetails()),
        entry(11, "s", ItemKind.SOURCE, details=FILES),
        entry(12, "v", ItemKind.VIEW, 10, 11, details=ViewDetails("SELECT 1", **DEFINED)),
        replace(
            maintained(13, "mv", 12, "SELECT 2"),
            comment="what is kept",
            desc=RelationDesc((K, Column("v", '"string"', metadata_json='{"comment": "text"}'))),
        ),
        maintained(14, "mv2", 13, "SELECT 3"),
        maintained(18, "daily", 14, "SELECT 4", refresh=DAILY),
        maintained(19, "once", 14, "SELECT 5", refresh=RefreshSchedule(at=(Timestamp(0),))),
        entry(15, "out", ItemKind.SINK, 14, details=OUT),
        replace(
            entry(16, "idx", ItemKind.INDEX, 14, details=IndexDetails(("v", "k + 1"))),
            create_sql="CREATE INDEX idx ON mv2 (v, k + 1)",
        ),
        entry(17, "key", ItemKind.SECRET, details=SecretDetails()),
        entry(22, "topic", ItemKind.SOURCE, 20, details=TOPIC),
        entry(25, "tables_topic", ItemKind.SOURCE, 20, details=TABLES_TOPIC),
        entry(26, "of_topic", ItemKind.TABLE, 25, details=OF_TOPIC),
        entry(27, "publication", ItemKind.SOURCE, 20, details=PUBLICATION),
        entry(29, "of_publication", ItemKind.TABLE, 27, details=OF_PUBLICATION),
        entry(23, "into_topic", ItemKind.SINK, 14, 20, details=INTO_TOPIC),
        entry(30, "into_table", ItemKind.SINK, 14, 20, details=INTO_TABLE),
        *(
            entry(number, name, ItemKind.CONNECTION, details=ConnectionDetails(*details))
            for number, name, *details in (
                (20, "k", "KAFKA", (ConnectionSetting("BROKERS", ("h", "i:1")),)),
                (21, "a", "AWS", (ConnectionSetting("SECRET ACCESS KEY", (), user_id(17)),)),
                (31, "tunnel", "SSH TUNNEL", (), 0, ("ssh-ed25519 a", "ssh-ed25519 b")),
            )
        ),
    ]
    uppers = {10: 5001, 11: 4001, 13: 3001, 14: 2501, 16: 2001, 18: 86_400_500}
    frontiers = {
        user_id(n): ObjectFrontiers(Frontier(1000), Frontier(u)) for n, u in uppers.items()
    }
    frontiers[user_id(15)] = ObjectFrontiers(None, EMPTY_FRONTIER)
    frontiers[user_id(19)] = ObjectFrontiers(Frontier(1000), EMPTY_FRONTIER)
    return SystemSnapshot(
        catalog=CatalogState.of(
            [SchemaEntry(user_id(1), "default", "the first"), *system_schemas()],
            [*items, *system_items()],
        ),
        now_ms=6001,
        frontiers=frontiers,
        hydrated={user_id(13): {"u1": True}},
        replica_uppers=((user_id(13), "u1", Frontier(3001)),),
        replica_statuses={"u1": ReplicaStatus(True, 1500), "u2": ReplicaStatus(False, 1700)},
        peeks=(Peek("7", user_id(16), Timestamp(2000)),),
        running_on={user_id(11): "u1"},
        statuses={user_id(11): StatusChange(1500, user_id(11), SourceStatus("stalled", "bad row"))},
        source_statistics={user_id(11): SourceStatistics(updates_committed=7)},
        source_partitions={user_id(11): (PartitionOffsets(0, 9, 12), PartitionOffsets(1, 4, None))},
        sink_statistics={user_id(23): SinkStatistics(3, 2, 30, 20).and_of_snapshot(3, 5)},
        sessions=(SessionEntry("app/1", 1, "me", None, 1000),),
        subscriptions=(SubscriptionEntry("x", "app/1", "u1", 2000, (user_id(10),)),),
        notices=(NoticeEntry("1", "n", "m", "h", None, None, user_id(13), 3000),),
        source_history=(StatusChange(1400, user_id(11), SourceStatus("starting")),),
        read_holds=(
            ReadHold(
                1,
                frozenset({user_id(11), user_id(10)}),
                Timestamp(900),
                Holder(HoldKind.VIEW, user_id(13)),
            ),
        ),
        audit_events=(AuditEvent(1, "create", "table", "{}", None, 1000),),
        parameters=(ParameterEntry("statement_timeout", "1 ms", "2 ms", "file", "How long"),),
        statements=(
            Statement(
                "e",
                "app/1",
                "7",
                1000,
                ShownText("select", "SELECT 1", "abc"),
                status=Status.SUCCESS,
                strategy=ReadStrategy.FAST_PATH,
                cluster_id="u1",
                database="slackwater",
                search_path=("default",),
                version="v1",
                steps=(Reached(Step.BEGAN, 1000),),
            ),
        ),
        past_sessions=(SessionBegan("app/1", 900, "reports", "me"),),
        waits=(WaitEntry("app/1", "7", "t is behind."),),
        lag_minutes=(
            LagsOfMinute(60_000, {user_id(13): 900, user_id(14): 0}),
            LagsOfMinute(120_000, {user_id(13): 7}),
        ),
        webhooks={user_id(11): "http://host/api/webhook/slackwater/default/s"},
        partitions=(
            PartitionEntry(
                user_id(11), "x", "admitted", Time(7, 1), Time(5), None, 3, FeedCounters(9)
            ),
        ),
        usage=(
            ShardUsage(1, True, True, 0, 0, 0, 0),
            ShardUsage(2, True, False, 1, 1, 10, 0),
            ShardUsage(6, False, False, 2, 20, 400, 0),
            ShardUsage(7, False, False, 1, 5, 50, 1),
            ShardUsage(8, False, False, 1, 1, 3, 2),
        ),
        hydrations=(Hydrated("u2", "u1", HydrationRecord(user_id(13), 700, 800, 950)),),
        hydration_progress=(OfReplica("u1", HydrationProgress(user_id(13), 5, 10, 250)),),
        arrangements=(
            OfReplica("u1", ArrangementSize(7, (user_id(11),), 5, 4096, (user_id(13),))),
        ),
        ticks=(
            Ticked(
                "u1",
                TickRecord(
                    user_id(13),
                    Timestamp(900),
                    Timestamp(950),
                    1200,
                    True,
                    3,
                    2,
                    TickTimes(5, 10, 4000, 20, 1000),
                    (
                        StepRecord("delta", "delta", 3, 0, 10, "t"),
                        StepRecord("union", "delta", 2, 5, 20),
                    ),
                ),
            ),
        ),
    )


def rows(name, snapshot):
    return NAMED[name].table(snapshot).to_pylist()


def user_rows(name, snapshot):
    return {r["name"]: r for r in rows(name, snapshot) if r["id"].startswith("u")}


@pytest.mark.parametrize("relation", SYSTEM_RELATIONS, ids=lambda r: r.name)
def test_every_relation_has_its_schema_full_and_empty(relation, snapshot):
    full = relation.table(snapshot)
    full.validate(full=True)
    assert full.schema == relation.desc.arrow_schema()
    assert full.num_rows > 0
    for field in full.schema:
        assert field.nullable or full[field.name].null_count == 0, field.name
    empty = SystemSnapshot(CatalogState(), 0)
    assert relation.table(empty).schema == full.schema


def test_ids_are_stable_and_nothing_promised_is_missing():
    promised = """mz_frontiers mz_hydration_statuses mz_materialization_lag mz_wallclock_global_lag
        mz_databases mz_schemas mz_objects mz_tables mz_sources mz_sinks mz_views
        mz_materialized_views mz_indexes mz_clusters mz_cluster_replicas mz_source_statistics
        mz_cluster_replica_statuses mz_cluster_replica_metrics mz_active_peeks
        mz_cluster_replica_sizes mz_cluster_replica_frontiers mz_cluster_schedules
        mz_object_dependencies mz_columns mz_audit_events mz_source_statuses mz_sink_statuses
        mz_sessions mz_subscriptions mz_notices mz_relations mz_object_fully_qualified_names
        mz_source_status_history
        mz_storage_shards mz_recent_storage_usage mz_shard_usage
        mz_read_holds mz_comments mz_recent_ticks mz_recent_tick_steps
        mz_source_references mz_kafka_source_tables
        mz_secrets mz_connections mz_kafka_connections mz_kafka_sources mz_kafka_sinks
        mz_iceberg_sinks mz_sink_statistics mz_aws_connections
        mz_webhook_sources mz_hydration_progress mz_changefeed_partitions
        mz_arrangement_sizes mz_index_columns mz_system_parameters
        mz_materialized_view_refresh_strategies mz_materialized_view_refreshes
        mz_postgres_sources mz_postgres_source_tables mz_ssh_tunnel_connections
        mz_recent_activity_log mz_statement_lifecycle_history mz_session_history
        mz_wallclock_global_lag_recent_history mz_statement_waits mz_object_hydration_history
        mz_source_partitions"""
    assert set(NAMED) == set(promised.split())
    assert (NAMED["mz_databases"].id, NAMED["mz_notices"].id) == ("s101", "s126")
    ids = [s.id for s in system_schemas()] + [i.id for i in system_items()]
    assert len(set(ids)) == len(ids)


def test_the_keys_of_an_index_are_columns_or_expressions(snapshot):
    found = [tuple(row.values()) for row in rows("mz_index_columns", snapshot)]
    assert found == [("u16", 1, 2, None, True), ("u16", 2, None, "k + 1", True)]


def test_the_strategies_of_views_and_what_they_have_led_to(snapshot):
    strategies = "mz_materialized_view_refresh_strategies"
    found = sorted(tuple(row.values()) for row in rows(strategies, snapshot))
    day = EPOCH + timedelta(days=1)
    assert found == [
        ("u13", "on-commit", None, None, None),
        ("u14", "on-commit", None, None, None),
        ("u18", "at", None, None, EPOCH + timedelta(milliseconds=700)),
        ("u18", "every", 86_400_000, EPOCH + timedelta(milliseconds=500), None),
        ("u19", "at", None, None, EPOCH),
    ]
    found = {tuple(row.values()) for row in rows("mz_materialized_view_refreshes", snapshot)}
    assert found == {
        ("u18", EPOCH + timedelta(milliseconds=700), day + timedelta(milliseconds=500)),
        ("u19", EPOCH, None),
    }


def test_frontiers(snapshot):
    found = {r["object_id"]: r for r in rows("mz_frontiers", snapshot)}
    assert found["u10"] == {"object_id": "u10", "read_frontier": 1000, "write_frontier": 5001}
    assert found["u15"] == {"object_id": "u15", "read_frontier": None, "write_frontier": None}


def test_replicas_and_what_they_are_asked(snapshot):
    def at(ms):
        return EPOCH + timedelta(milliseconds=ms)

    assert [tuple(row.values()) for row in rows("mz_cluster_replica_statuses", snapshot)] == [
        ("u1", 0, "online", None, at(1500)),
        ("u2", 0, "offline", "connection lost", at(1700)),
    ]
    more = OfReplica("u1", ArrangementSize(8, (user_id(10),), 5, 1000, (user_id(14),)))
    snapshot = replace(snapshot, arrangements=(*snapshot.arrangements, more))
    assert [tuple(row.values()) for row in rows("mz_cluster_replica_metrics", snapshot)] == [
        ("u1", 0, 5096),
        ("u2", 0, 0),
    ]
    assert rows("mz_active_peeks", snapshot) == [
        {"id": "7", "object_id": "u16", "type": "index", "time": 2000}
    ]


def test_what_was_run(snapshot):
    (row,) = rows("mz_recent_activity_log", snapshot)
    assert (row["sql"], row["redacted_sql"]) == ("SELECT 1", "SELECT '<REDACTED>'")
    assert (row["initial_application_name"], row["finished_status"]) == ("reports", "success")
    assert row["connected_at"] == EPOCH + timedelta(milliseconds=900)
    assert list(row.items())[-5:] == [
        ("execution_strategy", "fast-path"),
        ("cluster_id", "u1"),
        ("database_name", "slackwater"),
        ("search_path", ["default"]),
        ("mz_version", "v1"),
    ]
    # One whose session is forgotten already.
    (row,) = rows("mz_recent_activity_log", replace(snapshot, past_sessions=()))
    assert (row["connected_at"], row["session_id"]) == (None, "app/1")


def test_waits_of_statements(snapshot):
    assert rows("mz_statement_waits", snapshot) == [
        {"session_id": "app/1", "statement": "7", "waits_for": "t is behind."}
    ]


def test_hydrations_of_dataflows(snapshot):
    times = [EPOCH + timedelta(milliseconds=ms) for ms in (700, 800, 950)]
    assert [tuple(row.values()) for row in rows("mz_object_hydration_history", snapshot)] == [
        (user_id(13), "u1", "u2", *times, "hydrated")
    ]


def test_lags_of_minutes(snapshot):
    assert [
        tuple(r.values()) for r in rows("mz_wallclock_global_lag_recent_history", snapshot)
    ] == [
        (EPOCH + timedelta(minutes=1), "u13", 900),
        (EPOCH + timedelta(minutes=1), "u14", 0),
        (EPOCH + timedelta(minutes=2), "u13", 7),
    ]


def test_usage_of_shards(snapshot):
    items = dict(snapshot.catalog.items)
    items["u13"] = replace(
        items["u13"], shard_id=7, details=replace(items["u13"].details, errors=8)
    )
    catalog = replace(snapshot.catalog, items=items)
    snapshot = replace(snapshot, catalog=catalog)
    shards = [(r["object_id"], r["shard_id"]) for r in rows("mz_storage_shards", snapshot)]
    assert shards == [("u10", "6"), ("u13", "7"), ("u13", "8")]
    sizes = {r["object_id"]: r["size_bytes"] for r in rows("mz_recent_storage_usage", snapshot)}
    assert sizes == {"u10": 400, "u13": 53}
    found = {r["shard_id"]: r for r in rows("mz_shard_usage", snapshot)}
    assert (found["8"]["object_id"], found["8"]["garbage_bytes"]) == ("u13", 2)
    states = {shard: row["state"] for shard, row in found.items()}
    assert states == {"6": "live", "7": "live", "8": "live", "1": "finalized", "2": "dropped"}
    assert found["1"]["object_id"] is None


def test_lags(snapshot):
    found = {r["object_id"]: r for r in rows("mz_materialization_lag", snapshot)}
    assert found["u13"] == {
        "object_id": "u13",
        "local_lag": 1000,
        "global_lag": 1000,
        "slowest_local_input_id": "u11",
        "slowest_global_input_id": "u11",
    }
    assert (found["u14"]["local_lag"], found["u14"]["global_lag"]) == (500, 1500)
    assert found["u14"]["slowest_local_input_id"] == "u13"
    assert found["u15"]["local_lag"] == 0
    wallclock = {r["object_id"]: r["lag"] for r in rows("mz_wallclock_global_lag", snapshot)}
    assert (wallclock["u10"], wallclock["u15"]) == (1000, 0)


def test_objects_of_each_kind(snapshot):
    objects = user_rows("mz_objects", snapshot)
    assert {n: r["type"] for n, r in objects.items()} == {
        "t": "table",
        "s": "source",
        "topic": "source",
        "tables_topic": "source",
        "of_topic": "table",
        "of_publication": "table",
        "publication": "source",
        "into_topic": "sink",
        "into_table": "sink",
        "v": "view",
        "mv": "materialized-view",
        "mv2": "materialized-view",
        "daily": "materialized-view",
        "once": "materialized-view",
        "out": "sink",
        "idx": "index",
        "key": "secret",
        "k": "connection",
        "a": "connection",
        "tunnel": "connection",
    }
    assert objects["mv"]["cluster_id"] == "u1"
    assert objects["t"]["cluster_id"] is None
    assert objects["t"]["privileges"] == ["=arwd/me"]
    assert objects["t"]["schema_id"] == "u1"
    assert len({r["oid"] for r in rows("mz_objects", snapshot)}) == len(system_items()) + len(
        objects
    )
    assert set(user_rows("mz_relations", snapshot)) == set(objects) - {
        "out",
        "into_topic",
        "into_table",
        "idx",
        "key",
        "k",
        "a",
        "tunnel",
    }
    assert user_rows("mz_connections", snapshot)["k"]["type"] == "kafka"
    source = user_rows("mz_sources", snapshot)["topic"]
    told = ("type", "connection_id", "envelope_type", "key_format", "value_format")
    assert [source[each] for each in told] == ["kafka", "u20", "upsert", "text", "json"]
    assert [tuple(row.values()) for row in rows("mz_kafka_sources", snapshot)] == [
        ("u22", "", "t", "cluster", "id"),
        ("u25", "", "w", "cluster", "id"),
    ]
    assert [tuple(row.values()) for row in rows("mz_source_references", snapshot)] == [
        ("u25", None, "w", EPOCH, None),
        ("u27", "a", "b", EPOCH, ["c", "d"]),
    ]
    assert [tuple(row.values()) for row in rows("mz_kafka_source_tables", snapshot)] == [
        ("u26", "w", "none", None, "text")
    ]
    assert user_rows("mz_tables", snapshot)["of_topic"]["source_id"] == "u25"
    assert [tuple(row.values()) for row in rows("mz_postgres_sources", snapshot)] == [
        ("u27", "slot", 2)
    ]
    assert [tuple(row.values()) for row in rows("mz_postgres_source_tables", snapshot)] == [
        ("u28", "a", "b"),
        ("u29", "x", "y"),
    ]
    sink = user_rows("mz_sinks", snapshot)["into_topic"]
    assert [sink[each] for each in told] == ["kafka", "u20", "upsert", "text", "json"]
    assert sink["format"] is None
    offsets = [tuple(row.values()) for row in rows("mz_source_partitions", snapshot)]
    assert offsets == [("u11", 0, 12, 9, 3), ("u11", 1, None, 4, None)]
    (counts,) = rows("mz_sink_statistics", snapshot)
    assert list(counts.values()) == ["u23", None, 3, 2, 30, 20, 5, 3]
    table = user_rows("mz_sinks", snapshot)["into_table"]
    assert [table[each] for each in told] == ["iceberg", "u20", "append", None, None]
    assert rows("mz_iceberg_sinks", snapshot) == [{"id": "u30", "namespace": "n", "table": "t"}]
    assert rows("mz_kafka_sinks", snapshot) == [{"id": "u23", "topic": "t"}]
    assert rows("mz_kafka_connections", snapshot) == [
        {"id": "u20", "brokers": ["h", "i:1"], "sink_progress_topic": None}
    ]
    (aws,) = rows("mz_aws_connections", snapshot)
    assert (aws["id"], aws["secret_access_key_secret_id"]) == ("u21", "u17")
    assert user_rows("mz_views", snapshot)["v"]["definition"] == "SELECT 1"
    assert user_rows("mz_sources", snapshot)["s"]["type"] == "files"
    assert user_rows("mz_sinks", snapshot)["out"]["format"] == "json"
    assert user_rows("mz_indexes", snapshot)["idx"]["on_id"] == "u14"


def test_columns_dependencies_and_statuses(snapshot):
    columns = [r for r in rows("mz_columns", snapshot) if r["id"] == "u10"]
    assert [(c["name"], c["position"], c["type"]) for c in columns] == [
        ("k", 1, "int"),
        ("v", 2, "string"),
    ]
    edges = {
        (r["object_id"], r["referenced_object_id"])
        for r in rows("mz_object_dependencies", snapshot)
    }
    assert edges == {
        ("u12", "u10"),
        ("u12", "u11"),
        ("u13", "u12"),
        ("u14", "u13"),
        ("u15", "u14"),
        ("u16", "u14"),
        ("u18", "u14"),
        ("u19", "u14"),
        ("u22", "u20"),
        ("u25", "u20"),
        ("u26", "u25"),
        ("u29", "u27"),
        ("u27", "u20"),
        ("u23", "u14"),
        ("u23", "u20"),
        ("u30", "u14"),
        ("u30", "u20"),
    }
    source = rows("mz_source_statuses", snapshot)[0]
    assert (source["status"], source["error"]) == ("stalled", "bad row")
    assert source["last_status_change_at"] == datetime(1970, 1, 1, 0, 0, 1, 500000, timezone.utc)
    assert rows("mz_sink_statuses", snapshot)[0]["status"] == "created"


def test_comments_of_schemas_objects_and_columns(snapshot):
    assert [tuple(row.values()) for row in rows("mz_comments", snapshot)] == [
        ("u1", "schema", None, "the first"),
        ("u13", "materialized-view", None, "what is kept"),
        ("u13", "materialized-view", 2, "text"),
    ]


def test_read_holds_say_who_keeps_what(snapshot):
    assert [tuple(row.values()) for row in rows("mz_read_holds", snapshot)] == [
        ("u10", "u13", "view", 900),
        ("u11", "u13", "view", 900),
    ]


def test_i56_what_is_shown_is_the_present_state_whoever_changed_it(env):
    place = Place(env)
    try:
        place.table("kept", k="long")
        place.table("dropped", k="long")
        place.sql(
            "CREATE SOURCE counted FROM LOAD GENERATOR COUNTER (UP TO 3, TICK INTERVAL '1ms')"
        )
        is_what_there_is(place)
        gone = place.item("dropped")
        place.drop("dropped")
        for _ in range(2):
            is_what_there_is(place)
            for relation in ("mz_objects", "mz_tables", "mz_columns"):
                assert gone.id not in {row["id"] for row in place.system(relation)}
            for relation in ("mz_frontiers", "mz_storage_shards"):
                assert gone.id not in {row["object_id"] for row in place.system(relation)}
            place.restart()
    finally:
        place.close()


def is_what_there_is(place):
    """The relations against the catalog and the controller, while the uppers move on."""
    items = place.env.state.items.values()
    stored = [item for item in items if item.shard_id is not None]
    shown = {r["id"]: r["name"] for r in place.system("mz_objects") if r["id"].startswith("u")}
    assert shown == {item.id: item.name for item in stored}
    before = {
        item.id: (place.env.relations.since(item), place.env.relations.upper(item))
        for item in stored
    }
    frontiers = {row["object_id"]: row for row in place.system("mz_frontiers")}
    for item in stored:
        row, (since, upper) = frontiers[item.id], before[item.id]
        assert since.value <= row["read_frontier"] <= place.env.relations.since(item).value
        assert upper.value <= row["write_frontier"] <= place.env.relations.upper(item).value


def test_the_history_of_changes_is_read_beside_those_who_write(env):
    """It may be long, and a write transaction would keep everybody from committing."""
    place = Place(env)
    place.table("t", k="long")
    with env.engine.connect() as conn, conn.begin():
        # Whoever writes gets this row first, and has it until it commits.
        conn.execute(update(environment).values(version=environment.c.version))
        with ThreadPoolExecutor(1) as pool:
            events = pool.submit(place.system, "mz_audit_events").result(PATIENCE)
    assert "create" in [event["event_type"] for event in events]
    place.close()


def test_ticks_say_what_they_did_and_their_steps(snapshot):
    (tick,) = [tuple(row.values()) for row in rows("mz_recent_ticks", snapshot)]
    assert tick[2:4] == (900, 950)
    assert tick[5:] == (True, 3, 5, 2, 5, 10, 4000, 20, 1000)
    steps = [tuple(row.values())[2:] for row in rows("mz_recent_tick_steps", snapshot)]
    assert steps == [
        (950, 0, "delta", 3, 0, 10, "delta", "t"),
        (950, 1, "union", 2, 5, 20, "delta", None),
    ]


def test_relations_of_one_query_are_of_one_moment(env, monkeypatch):
    place = Place(env)
    moments = []
    system = place.coordinator.parts.system
    taken = system.snapshot
    monkeypatch.setattr(
        type(system), "snapshot", lambda _, names: moments.append(taken(names)) or moments[-1]
    )
    wanted = {NAMED[name].id: Timestamp(5) for name in ("mz_objects", "mz_shard_usage")}
    assert set(system.rows(wanted)) == set(wanted)
    (snapshot,) = moments
    assert not snapshot.audit_events
    place.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE mz_catalog.mz_tables",
        "DROP VIEW IF EXISTS mz_catalog.mz_tables",
        "ALTER MATERIALIZED VIEW mz_catalog.mz_tables RENAME TO t",
        "ALTER SINK mz_catalog.mz_tables SET FROM t",
        "COMMENT ON MATERIALIZED VIEW mz_catalog.mz_tables IS 'mine'",
    ],
)
def test_a_change_of_a_system_relation_is_refused_as_that(env, statement):
    place = Place(env)
    place.table("t", k="long")
    with pytest.raises(SlackwaterError) as caught:
        place.sql(statement.replace("mz_catalog", "slackwater.mz_catalog"))
    assert caught.value.condition == "SLACKWATER_SYSTEM_OBJECT"
    place.close()


def test_a_system_relation_is_not_dropped_by_a_call(env):
    place = Place(env)
    for kind in ("table", "view"):
        body = {"session": "app/1", "namespace": ["mz_catalog"], "name": "mz_tables"}
        with pytest.raises(SlackwaterError) as caught:
            calls_of(place.coordinator)[f"/v1/catalog/drop_{kind}"](body)
        assert caught.value.condition == "SLACKWATER_SYSTEM_OBJECT"
    place.close()


def test_who_makes_and_drops_a_schema_is_on_record(env):
    place = Place(env)
    calls = calls_of(place.coordinator)
    body = {"session": "app/1", "namespace": ["x"], "context": {"user": "ada"}}
    calls["/v1/catalog/create_namespace"](body)
    calls["/v1/catalog/drop_namespace"](body)
    events = [e for e in place.system("mz_audit_events") if e["object_type"] == "schema"]
    assert [(e["event_type"], e["user"]) for e in events] == [("create", "ada"), ("drop", "ada")]
    place.close()
