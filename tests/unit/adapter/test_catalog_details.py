"""Details of objects: what the metastore has of them is what they were, in this release and before.

The texts are those that the releases before wrote.
"""

import json
from dataclasses import replace

import pytest

from slackwater.adapter.catalog.details import (
    AvroSchema,
    ChangefeedDetails,
    ChangefeedSettings,
    CheckConfig,
    CheckedInput,
    ConnectionDetails,
    ConnectionSetting,
    FeedTableSettings,
    FilesDetails,
    GeneratorDetails,
    KafkaDetails,
    KafkaSettings,
    LakeDetails,
    MaterializedViewDetails,
    MessageSettings,
    PlanVersion,
    PostgresDetails,
    PostgresSettings,
    ProgressDetails,
    ProtobufSchema,
    PublishedTable,
    SecretDetails,
    SinkDetails,
    SourceTableDetails,
    SubsourceDetails,
    TableDetails,
    ViewDetails,
    WebhookDetails,
    from_json,
    retaining,
    to_json,
)
from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.planner.parser.kafka_source import Decoding, Included, Payload
from slackwater.planner.parser.statements import HeaderColumn, HeaderRule
from slackwater.repr.errors import FatalError
from slackwater.repr.ids import user_id
from slackwater.storage.file_formats import Format
from slackwater.storage.files_source import FilesConfig
from slackwater.storage.generators import GeneratorConfig
from slackwater.storage.kafka.sink_avro import SinkSchema
from slackwater.storage.kafka.sink_messages import KafkaSinkConfig
from slackwater.storage.key_value import KeyValueConfig
from slackwater.storage.lake.config import (
    DeltaPlace,
    IcebergPlace,
    LakeSinkConfig,
    LakeSourceConfig,
)
from slackwater.storage.lake.history import TableColumn
from slackwater.storage.postgres.tables import PostgresColumn, PostgresTable
from slackwater.storage.sink_files import SinkConfig
from slackwater.storage.webhook import WebhookConfig

DECODING = Decoding(
    Payload("CSV", 2, None, ";"),
    Payload("AVRO"),
    (Included("HEADER", "h", "x", True),),
    "UPSERT",
    "wrong",
    "SKIP",
)
QUERY = {"query": "SELECT 1", "catalog": "slackwater", "namespace": ["a"], "named": ["u1"]}
KEYS = {
    "kind": "KEY VALUE",
    "keys": 8,
    "partitions": 2,
    "snapshot_rounds": 1,
    "value_size": 3,
    "batch_size": 4,
    "seed": 5,
    "transactional_snapshot": True,
    "tick_interval_ms": None,
    "envelope": "UPSERT",
}
COUNTER = {
    "kind": "COUNTER",
    "tick_interval_ms": 1000,
    "seed": 0,
    "up_to": None,
    "max_cardinality": 7,
    "scale_factor": 0.01,
}
CSV_PAYLOAD = {"kind": "CSV", "columns": 2, "header": None, "delimiter": ";", "schema": None}
AVRO_PAYLOAD = {
    "kind": "AVRO",
    "columns": None,
    "header": None,
    "delimiter": ",",
    "schema": None,
}
TOPIC = {
    "topic": "t",
    "cluster": "c",
    "topic_id": "i",
    "decoding": {
        "value": CSV_PAYLOAD,
        "key": AVRO_PAYLOAD,
        "included": [{"what": "HEADER", "column": "h", "header": "x", "is_bytes": True}],
        "envelope": "UPSERT",
        "inline_errors": "wrong",
        "on_error": "SKIP",
    },
    "declared": '{"type": "struct", "fields": []}',
    "start_offsets": [3, 0],
    "group_id_prefix": "p",
    "key_schema": {"schema": '"long"', "registry": "u9", "has_header": True},
    "value_schema": None,
}
NO_ROWS = {
    "decoding": None,
    "declared": None,
    "start_offsets": [],
    "group_id_prefix": "",
    "key_schema": None,
    "value_schema": None,
}
INGESTED = {"interval_ms": 10, "retain_history_ms": None, "progress": "u4", "exports": {}}
FILES = {
    "path": "/in",
    "kind": "CSV",
    "header": True,
    "delimiter": ";",
    "null_text": "",
    "pattern": None,
    "on_error": "SKIP",
}
FEED = {
    "format": "cockroach",
    "tables": [{"name": "t", "key": ["k"], "extras": None}],
    "feeds": ["f"],
    "lookahead": 3,
    "on_late": "DROP",
    "path": None,
}
CHECK = {
    "condition": "x",
    "inputs": [{"kind": "SECRET", "name": "s", "secret": "u9", "is_bytes": True}],
    "settings": {"a": "b"},
}
HOOK = {
    "format": "JSON",
    "columns": [{"header": "h", "column": "c", "is_bytes": False}],
    "rules": [{"header": "p", "is_blocked": True}],
}
STORED = {
    "table": ("table", {"retain_history_ms": 5, "properties": {"a": "b"}}),
    "table of before": ("table", {}),
    "view": ("view", {**QUERY, "properties": {"p": "q"}}),
    "materialized view": (
        "materialized-view",
        {
            **QUERY,
            "settings": {"s": "1"},
            "functions": [{"kind": "session", "name": "f"}],
            "retain_history_ms": None,
            "asserting": None,
            "maintenance": "incremental",
            "program": {"version": 3, "fingerprint": "x"},
            "as_of": 17,
            "errors": 8,
        },
    ),
    "materialized view of before": (
        "materialized-view",
        {
            "query": "SELECT 1",
            "catalog": "slackwater",
            "namespace": ["a"],
            "cluster": "default",
            "as_of": 17,
            "states": [3, 4],
        },
    ),
    "sink of Avro": (
        "sink",
        {
            "config": {
                "topic": "t",
                "key_format": "JSON",
                "value_format": "AVRO",
                "envelope": "DEBEZIUM",
                "key": ["k"],
                "is_enforced": True,
                "headers": None,
                "partition_by": None,
                "snapshot": True,
                "transactional_id_prefix": "",
                "compression": "lz4",
                "partitions": None,
                "replication_factor": None,
                "topic_config": [],
                "key_schema": None,
                "value_schema": {
                    "registry": "u8",
                    "fullname": "a.V",
                    "null_defaults": True,
                    "compatibility": "FULL",
                },
            },
            "as_of": 9,
            "connection": "u7",
        },
    ),
    "sink of Delta": (
        "sink",
        {
            "config": {
                "place": {"uri": "/d"},
                "mode": "UPSERT",
                "key": ["k"],
                "is_enforced": False,
                "snapshot": False,
                "commit_interval_ms": 1_000,
            },
            "as_of": 9,
        },
    ),
    "sink of Iceberg": (
        "sink",
        {
            "config": {
                "place": {"namespace": "n", "table": "t", "aws": "u9"},
                "mode": "APPEND",
                "key": [],
                "is_enforced": True,
                "snapshot": True,
                "commit_interval_ms": 10_000,
            },
            "as_of": 9,
            "connection": "u7",
        },
    ),
    "sink": (
        "sink",
        {
            "config": {
                "path": "/out",
                "format": "JSON",
                "envelope": "UPSERT",
                "key": ["k"],
                "snapshot": False,
            },
            "as_of": 9,
            "progress_shard": 3,
        },
    ),
    "secret": ("secret", {"version": 2}),
    "secret of before": ("secret", {}),
    "tunnel": (
        "connection",
        {
            "kind": "SSH TUNNEL",
            "settings": [{"name": "HOST", "texts": ["h"], "secret": None, "connection": None}],
            "version": 1,
            "public_keys": ["ssh-ed25519 a", "ssh-ed25519 b"],
        },
    ),
    "connection through a tunnel": (
        "connection",
        {
            "kind": "POSTGRES",
            "settings": [
                {"name": "SSH TUNNEL", "texts": [], "secret": None, "connection": "u7"},
            ],
            "version": 0,
            "public_keys": [],
        },
    ),
    "connection": (
        "connection",
        {
            "kind": "KAFKA",
            "settings": [
                {"name": "BROKERS", "texts": ["h", "i"], "secret": None},
                {"name": "SASL PASSWORD", "texts": [], "secret": "u9"},
            ],
            "version": 3,
        },
    ),
    "files": ("source", {"connector": "files", "config": FILES, **INGESTED, "errors": 4}),
    "generator": ("source", {"connector": "load-generator", "config": COUNTER, **INGESTED}),
    "keys": ("source", {"connector": "load-generator", "config": KEYS, **INGESTED}),
    "generator of before": ("source", {"connector": "load-generator", "config": COUNTER}),
    "webhook": (
        "source",
        {"connector": "webhook", "config": HOOK, "retain_history_ms": 1, "check": CHECK},
    ),
    "changefeed": (
        "source",
        {
            "connector": "changefeed",
            "config": FEED,
            "landing": "l",
            "dead_letters": "d",
            **INGESTED,
            "exports": {"t": "u5", "l": "u6", "d": "u7"},
        },
    ),
    "topic": ("source", {"connector": "kafka", "config": TOPIC, "connection": "u8", **INGESTED}),
    "topic of Protobuf": (
        "source",
        {
            "connector": "kafka",
            "config": {
                **TOPIC,
                "decoding": {
                    **TOPIC["decoding"],
                    "value": {**CSV_PAYLOAD, "kind": "PROTOBUF", "message": None},
                },
                "value_schema": {
                    "message": "a.M",
                    "files": "Cgc=",
                    "registry": "u9",
                    "has_header": True,
                },
            },
            "connection": "u8",
            **INGESTED,
        },
    ),
    "progress": ("source", {"connector": "progress", "parent": "u3", "retain_history_ms": None}),
    "topic without rows": (
        "source",
        {
            "connector": "kafka",
            "config": {"topic": "t", "cluster": "c", "topic_id": "i", **NO_ROWS},
            "connection": "u8",
            **INGESTED,
        },
    ),
    "table made of a source": (
        "table",
        {
            "connector": "source",
            "source": "u3",
            "export": "u9",
            "reference": ["a", "b"],
            "retain_history_ms": 4,
            "messages": {
                "decoding": TOPIC["decoding"],
                "declared": TOPIC["declared"],
                "key_schema": TOPIC["key_schema"],
                "value_schema": None,
            },
            "errors": 7,
        },
    ),
    "table of a topic with dead letters": (
        "table",
        {
            "connector": "source",
            "source": "u3",
            "export": "u9",
            "reference": ["t"],
            "retain_history_ms": None,
            "dead_letters": "u10",
        },
    ),
    "dead letters of a table": (
        "source",
        {"parent": "u9", "export": "u10", "retain_history_ms": None, "source": "u3"},
    ),
    "table of a changefeed": (
        "table",
        {
            "connector": "source",
            "source": "u3",
            "export": "u9",
            "reference": ["t"],
            "retain_history_ms": 4,
            "feed": {"name": "t", "key": ["k"], "extras": "more"},
        },
    ),
    "changefeed that was asked": (
        "source",
        {
            "connector": "changefeed",
            "config": FEED,
            "landing": "l",
            "dead_letters": "d",
            **INGESTED,
            "exports": {"t": "u5", "l": "u6", "d": "u7"},
            "seen": ["x"],
            "referenced_ms": 9,
        },
    ),
    "table of a source": ("source", {"parent": "u3", "export": "t", "retain_history_ms": 4}),
    "table with errors": (
        "source",
        {
            "parent": "u3",
            "export": "t",
            "retain_history_ms": None,
            "has_errors": True,
            "errors": 9,
        },
    ),
    "postgres": (
        "source",
        {
            "connector": "postgres",
            "config": {
                "publication": "p",
                "slot": "slackwater_x_u3",
                "system": "7",
                "timeline": 2,
                "tables": [
                    {
                        "export": "t",
                        "schema": "a",
                        "name": "b",
                        "oid": 16384,
                        "columns": [
                            {
                                "name": "c",
                                "number": 1,
                                "type_oid": 1231,
                                "base": "numeric",
                                "modifier": 393222,
                                "is_array": True,
                                "not_null": True,
                            }
                        ],
                        "text_columns": ["c"],
                    }
                ],
            },
            "connection": "u8",
            "interval_ms": 100,
            "retain_history_ms": None,
            "progress": "u4",
            "exports": {"t": "u5"},
        },
    ),
    "delta": (
        "source",
        {
            "connector": "lake",
            "config": {
                "place": {"uri": "/d"},
                "columns": [
                    {
                        "name": "k",
                        "type_json": '"long"',
                        "nullable": False,
                        "identity": "k",
                        "metadata_json": '{"comment": "c"}',
                    }
                ],
                "start": 3,
            },
            "connection": None,
            "interval_ms": 100,
            "retain_history_ms": None,
            "progress": "u4",
            "exports": {},
            "errors": 9,
        },
    ),
    "iceberg": (
        "source",
        {
            "connector": "lake",
            "config": {
                "place": {"namespace": "n.m", "table": "t", "aws": "u7"},
                "columns": [
                    {
                        "name": "k",
                        "type_json": '"long"',
                        "nullable": True,
                        "identity": "1",
                        "metadata_json": "{}",
                    }
                ],
                "start": None,
            },
            "connection": "u8",
        },
    ),
    "postgres without tables": (
        "source",
        {
            "connector": "postgres",
            "config": {
                "publication": "p",
                "slot": "slackwater_x_u3",
                "system": "7",
                "timeline": 2,
                "tables": [],
            },
            "connection": "u8",
            "referenced": [{"schema": "a", "name": "b", "columns": ["c", "d"]}],
            "referenced_ms": 5,
        },
    ),
    "table of a publication": (
        "table",
        {
            "connector": "source",
            "source": "u3",
            "export": "u9",
            "reference": ["a", "b"],
            "errors": 7,
            "upstream": {
                "export": "u9",
                "schema": "a",
                "name": "b",
                "oid": 16384,
                "columns": [
                    {
                        "name": "c",
                        "number": 1,
                        "type_oid": 23,
                        "base": "int4",
                        "modifier": -1,
                        "is_array": False,
                        "not_null": True,
                    }
                ],
                "text_columns": [],
            },
        },
    ),
}
FILES_CONFIG = FilesConfig("/in", Format("CSV", True, ";", ""), None, "SKIP")
COUNTED = GeneratorConfig("COUNTER", 1000, 0, None, 7, 0.01)
FEED = ChangefeedSettings(
    "cockroach", (FeedTableSettings("t", ("k",), None),), ("f",), 3, "DROP", None
)
MEANT = {
    "table": TableDetails(5, {"a": "b"}),
    "table of before": TableDetails(),
    "view": ViewDetails("SELECT 1", "slackwater", ("a",), ("u1",), {"p": "q"}),
    "materialized view": MaterializedViewDetails(
        "SELECT 1",
        "slackwater",
        ("a",),
        {"s": "1"},
        ({"kind": "session", "name": "f"},),
        ("u1",),
        maintenance="incremental",
        program=PlanVersion(3, "x"),
        as_of=17,
        errors=8,
    ),
    "materialized view of before": MaterializedViewDetails(
        "SELECT 1", "slackwater", ("a",), as_of=17, states=(3, 4)
    ),
    "sink": SinkDetails(SinkConfig("/out", "JSON", "UPSERT", ("k",), False), 9, 3),
    "sink of Avro": SinkDetails(
        KafkaSinkConfig(
            "t",
            "JSON",
            "AVRO",
            "DEBEZIUM",
            ("k",),
            value_schema=SinkSchema(user_id(8), "a.V", True, "FULL"),
        ),
        9,
        connection=user_id(7),
    ),
    "sink of Delta": SinkDetails(
        LakeSinkConfig(DeltaPlace("/d"), "UPSERT", ("k",), False, False, 1_000), 9
    ),
    "sink of Iceberg": SinkDetails(
        LakeSinkConfig(IcebergPlace("n", "t", user_id(9)), "APPEND"), 9, connection=user_id(7)
    ),
    "secret": SecretDetails(2),
    "secret of before": SecretDetails(),
    "tunnel": ConnectionDetails(
        "SSH TUNNEL", (ConnectionSetting("HOST", ("h",)),), 1, ("ssh-ed25519 a", "ssh-ed25519 b")
    ),
    "connection through a tunnel": ConnectionDetails(
        "POSTGRES", (ConnectionSetting("SSH TUNNEL", connection=user_id(7)),)
    ),
    "connection": ConnectionDetails(
        "KAFKA",
        (ConnectionSetting("BROKERS", ("h", "i")), ConnectionSetting("SASL PASSWORD", (), "u9")),
        3,
    ),
    "files": FilesDetails(FILES_CONFIG, 10, None, "u4", {}, 4),
    "generator": GeneratorDetails(COUNTED, 10, None, "u4"),
    "keys": GeneratorDetails(KeyValueConfig(8, 2, 1, 3, 4, 5), 10, None, "u4"),
    "generator of before": GeneratorDetails(COUNTED),
    "webhook": WebhookDetails(
        WebhookConfig("JSON", (HeaderColumn("h", "c", False),), (HeaderRule("p", True),)),
        1,
        CheckConfig("x", (CheckedInput("SECRET", "s", "u9", True),), {"a": "b"}),
    ),
    "changefeed": ChangefeedDetails(
        FEED,
        "l",
        "d",
        10,
        None,
        "u4",
        {"t": "u5", "l": "u6", "d": "u7"},
    ),
    "topic": KafkaDetails(
        KafkaSettings(
            "t",
            "c",
            "i",
            DECODING,
            '{"type": "struct", "fields": []}',
            (3, 0),
            "p",
            AvroSchema('"long"', "u9"),
        ),
        "u8",
        None,
        10,
        None,
        "u4",
    ),
    "topic of Protobuf": KafkaDetails(
        KafkaSettings(
            "t",
            "c",
            "i",
            replace(DECODING, value=Payload("PROTOBUF", 2, None, ";")),
            '{"type": "struct", "fields": []}',
            (3, 0),
            "p",
            AvroSchema('"long"', "u9"),
            ProtobufSchema("a.M", "Cgc=", "u9", True),
        ),
        "u8",
        interval_ms=10,
        progress="u4",
    ),
    "progress": ProgressDetails("u3"),
    "topic without rows": KafkaDetails(
        KafkaSettings("t", "c", "i"), "u8", interval_ms=10, progress="u4"
    ),
    "table made of a source": SourceTableDetails(
        "u3",
        "u9",
        ("a", "b"),
        4,
        MessageSettings(
            DECODING,
            '{"type": "struct", "fields": []}',
            AvroSchema('"long"', "u9"),
        ),
        7,
    ),
    "table of a topic with dead letters": SourceTableDetails(
        "u3", "u9", ("t",), dead_letters="u10"
    ),
    "dead letters of a table": SubsourceDetails("u9", "u10", source="u3"),
    "table of a changefeed": SourceTableDetails(
        "u3", "u9", ("t",), 4, feed=FeedTableSettings("t", ("k",), "more")
    ),
    "changefeed that was asked": ChangefeedDetails(
        FEED,
        "l",
        "d",
        10,
        None,
        "u4",
        {"t": "u5", "l": "u6", "d": "u7"},
        ("x",),
        9,
    ),
    "table of a source": SubsourceDetails("u3", "t", 4),
    "table with errors": SubsourceDetails("u3", "t", None, True, 9),
    "postgres": PostgresDetails(
        PostgresSettings(
            "p",
            "slackwater_x_u3",
            "7",
            2,
            (
                PostgresTable(
                    "t",
                    "a",
                    "b",
                    16384,
                    (PostgresColumn("c", 1, 1231, "numeric", 393222, True, True),),
                    ("c",),
                ),
            ),
        ),
        "u8",
        100,
        None,
        "u4",
        {"t": "u5"},
    ),
    "delta": LakeDetails(
        LakeSourceConfig(
            DeltaPlace("/d"), (TableColumn("k", '"long"', False, "k", '{"comment": "c"}'),), 3
        ),
        None,
        100,
        None,
        "u4",
        {},
        9,
    ),
    "iceberg": LakeDetails(
        LakeSourceConfig(IcebergPlace("n.m", "t", "u7"), (TableColumn("k", '"long"', True, "1"),)),
        "u8",
    ),
    "postgres without tables": PostgresDetails(
        PostgresSettings("p", "slackwater_x_u3", "7", 2, ()),
        "u8",
        referenced=(PublishedTable("a", "b", ("c", "d")),),
        referenced_ms=5,
    ),
    "table of a publication": SourceTableDetails(
        "u3",
        "u9",
        ("a", "b"),
        errors=7,
        upstream=PostgresTable(
            "u9", "a", "b", 16384, (PostgresColumn("c", 1, 23, "int4", not_null=True),)
        ),
    ),
}


@pytest.mark.parametrize("name", STORED)
def test_what_was_stored_means_what_it_meant(name):
    kind, found = STORED[name]
    assert from_json(kind, found) == MEANT[name]


@pytest.mark.parametrize("name", STORED)
def test_what_is_stored_is_read_again(name):
    kind, found = STORED[name]
    written = json.loads(json.dumps(to_json(MEANT[name])))
    assert from_json(kind, written) == MEANT[name]
    # A release before reads what it has written itself, under the same names.
    kept = {key: value for key, value in found.items() if key != "cluster"}
    assert has_at_least(written, kept)


def has_at_least(written, kept):
    """Whether all that was kept is there; a later release may write more fields."""
    if isinstance(kept, dict):
        return all(name in written and has_at_least(written[name], kept[name]) for name in kept)
    if isinstance(kept, list):
        return len(written) == len(kept) and all(map(has_at_least, written, kept))
    return written == kept


@pytest.mark.parametrize("name", STORED)
def test_history_is_kept_of_what_has_one(name):
    details = retaining(MEANT[name], 77)
    assert getattr(details, "retain_history_ms", 77) == 77


def test_who_asks_for_other_details_believes_something_false():
    table = CatalogItem(
        user_id(1), ItemKind.TABLE, "default", "t", "", details=TableDetails(), shard_id=3
    )
    assert table.of(TableDetails) == TableDetails()
    with pytest.raises(FatalError, match="t \\(u1\\) has no SinkDetails"):
        table.of(SinkDetails)
    with pytest.raises(FatalError, match="no contents"):
        _ = table.stored
    with pytest.raises(FatalError, match="no ingestion"):
        _ = table.progress
