"""Rows of the system relations about the objects of the catalog.

Each function makes one relation's rows; `relations` names their columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

from slackwater.adapter.catalog.clusters import SIZES
from slackwater.adapter.catalog.details import (
    CONNECTOR_NAMES,
    ChangefeedDetails,
    ConnectionDetails,
    GeneratorDetails,
    IndexDetails,
    KafkaDetails,
    LakeDetails,
    MaterializedViewDetails,
    PostgresDetails,
    SinkDetails,
    SourceTableDetails,
    ViewDetails,
    WebhookDetails,
)
from slackwater.adapter.catalog.model import (
    CATALOG_NAME,
    CatalogItem,
    CatalogState,
    ItemKind,
)
from slackwater.adapter.catalog.naming import columns_of_keys
from slackwater.adapter.catalog.render import current_sql
from slackwater.adapter.sources.references import referenced_columns, referenced_ms
from slackwater.adapter.system.snapshot import SystemSnapshot
from slackwater.planner.parser.connection_statements import ConnectionKind
from slackwater.planner.parser.redaction import redacted
from slackwater.planner.parser.refresh import LAST_TIME_MS
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId, is_system
from slackwater.storage.kafka.sink_messages import KafkaSinkConfig
from slackwater.storage.key_value import KeyValueConfig
from slackwater.storage.lake.config import IcebergPlace, LakeSinkConfig
from slackwater.storage.sink_files import SinkConfig

SystemRow = tuple[Any, ...]
DATABASE_ID = "u1"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_USER_OIDS = 1_000_000
_SYSTEM_OIDS = 20_000


def oid(global_id: str) -> int:
    """A number for clients that expect PostgreSQL's oids; the same for ever."""
    base = _SYSTEM_OIDS if is_system(GlobalId(global_id)) else _USER_OIDS
    return base + int(global_id[1:])


def moment(ms: int | None) -> datetime | None:
    return None if ms is None else _EPOCH + timedelta(milliseconds=ms)


def items(snapshot: SystemSnapshot, *kinds: ItemKind) -> Iterator[CatalogItem]:
    """The objects of these kinds, or all, in the catalog's order."""
    for item in snapshot.catalog.items.values():
        if not kinds or item.kind in kinds:
            yield item


def _schema_id(catalog: CatalogState, item: CatalogItem) -> str:
    return catalog.schema(item.schema_name).id


def _privileges(item: CatalogItem) -> list[str]:
    """The privileges in PostgreSQL's notation: grantee=privileges/grantor.

    Everybody has all that the kind of object knows, since Spark controls access.
    """
    letters = "arwd" if item.is_writable else "r"
    return [f"={letters}/{item.owner}"]


def _identity(snapshot: SystemSnapshot, item: CatalogItem) -> SystemRow:
    return item.id, oid(item.id), _schema_id(snapshot.catalog, item), item.name


def _definition(snapshot: SystemSnapshot, item: CatalogItem) -> SystemRow:
    """`create_sql` and `redacted_create_sql`; both NULL for system relations."""
    sql = current_sql(snapshot.catalog, item)
    return (sql, redacted(sql)) if sql else (None, None)


def databases(_: SystemSnapshot) -> Iterator[SystemRow]:
    yield DATABASE_ID, oid(DATABASE_ID), CATALOG_NAME, "", ["=U/"]


def schemas(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for schema in snapshot.catalog.schemas.values():
        database = None if schema.is_system else DATABASE_ID
        yield schema.id, oid(schema.id), database, schema.name, "", ["=UC/"]


def objects(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for item in items(snapshot):
        yield _object_row(snapshot, item)


def relations(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for item in items(snapshot):
        if item.kind.is_relation:
            yield _object_row(snapshot, item)


def _object_row(snapshot: SystemSnapshot, item: CatalogItem) -> SystemRow:
    return (
        *_identity(snapshot, item),
        type_name(item),
        item.owner,
        item.cluster,
        _privileges(item),
    )


def type_name(item: CatalogItem) -> str:
    """The `type` of an object in mz_objects."""
    return "table" if item.kind is ItemKind.SYSTEM_TABLE else item.kind.value


def tables(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for item in items(snapshot, ItemKind.TABLE, ItemKind.SYSTEM_TABLE):
        yield (
            *_identity(snapshot, item),
            item.owner,
            _privileges(item),
            *_definition(snapshot, item),
            item.feeder,
        )


def views(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for item in items(snapshot, ItemKind.VIEW):
        yield (
            *_identity(snapshot, item),
            item.of(ViewDetails).query,
            item.owner,
            _privileges(item),
            *_definition(snapshot, item),
        )


def materialized_views(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for item in items(snapshot, ItemKind.MATERIALIZED_VIEW):
        yield (
            *_identity(snapshot, item),
            item.cluster,
            item.of(MaterializedViewDetails).query,
            item.owner,
            _privileges(item),
            *_definition(snapshot, item),
        )


def refresh_strategies(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for item in items(snapshot, ItemKind.MATERIALIZED_VIEW):
        schedule = item.refresh
        if schedule is None:
            yield item.id, "on-commit", None, None, None
            continue
        for each in schedule.every:
            yield item.id, "every", each.interval_ms, moment(each.aligned_to), None
        for at in schedule.at:
            yield item.id, "at", None, None, moment(at)


def refreshes(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    """The upper of a view is its next refresh; before it there may have been one."""
    for item in items(snapshot, ItemKind.MATERIALIZED_VIEW):
        schedule, frontiers = item.refresh, snapshot.frontiers.get(item.id)
        if schedule is None or frontiers is None:
            continue
        upper, begin = frontiers.upper, item.of(MaterializedViewDetails).as_of
        last = schedule.before(Timestamp(upper.value)) if upper.value > begin else None
        coming = upper.as_nullable()
        yield item.id, moment(last), moment(None if coming is None else min(coming, LAST_TIME_MS))


def _envelope(item: CatalogItem) -> str | None:
    """The envelope of a source or sink; None where there is none."""
    match item.details:
        case SinkDetails(config=LakeSinkConfig() as table):
            return table.mode.lower()
        case SinkDetails(config=SinkConfig() | KafkaSinkConfig() as sink):
            return sink.envelope.lower()
        case GeneratorDetails(config=KeyValueConfig() as config):
            return config.envelope.lower()
        case KafkaDetails(config=topic):
            return None if topic.decoding is None else topic.decoding.envelope.lower()
        case _:
            return None


def _format(item: CatalogItem) -> str | None:
    """The format of a source or sink; None where its connector has one form only."""
    match item.details:
        case SinkDetails(config=SinkConfig() | KafkaSinkConfig() as sink):
            return None if sink.format is None else sink.format.lower()
        case WebhookDetails(config=config):
            return config.format.lower()
        case ChangefeedDetails(config=settings):
            return settings.format.lower()
        case KafkaDetails(config=topic):
            return None if topic.decoding is None else topic.decoding.value.kind.lower()
        case _:
            return None


def _key_format(item: CatalogItem) -> str | None:
    """The format of the keys of a source; None where it has none."""
    decoding = item.details.config.decoding if isinstance(item.details, KafkaDetails) else None
    key = None if decoding is None else decoding.key
    return None if key is None else key.kind.lower()


def _connection(item: CatalogItem) -> GlobalId | None:
    """The connection of a source; None where it has none."""
    match item.details:
        case KafkaDetails() | PostgresDetails() | LakeDetails() as details:
            return details.connection
        case _:
            return None


def kafka_sources(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for item in items(snapshot, ItemKind.SOURCE):
        if isinstance(item.details, KafkaDetails):
            config = item.details.config
            yield item.id, config.group_id_prefix, config.topic, config.cluster, config.topic_id


def source_references(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for item in items(snapshot, ItemKind.SOURCE):
        asked = moment(referenced_ms(item))
        for (*within, name), found in referenced_columns(item, snapshot.catalog).items():
            columns = None if found is None else list(found)
            yield item.id, ".".join(within) or None, name, asked, columns


def kafka_source_tables(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for item in items(snapshot, ItemKind.TABLE):
        details = item.details
        if isinstance(details, SourceTableDetails) and details.messages is not None:
            decoding = details.messages.decoding
            key = None if decoding.key is None else decoding.key.kind.lower()
            value = decoding.value.kind.lower()
            yield item.id, details.reference[-1], decoding.envelope.lower(), key, value


def postgres_sources(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for item in items(snapshot, ItemKind.SOURCE):
        if isinstance(item.details, PostgresDetails):
            yield item.id, item.details.config.slot, item.details.config.timeline
    for each in snapshot.waiting_slots:
        yield each.slot.source, each.slot.name, each.slot.timeline


def postgres_source_tables(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for item in items(snapshot, ItemKind.SOURCE):
        if isinstance(item.details, PostgresDetails):
            for table in item.details.config.tables:
                yield item.details.exports[table.export], table.schema, table.name
    for item in items(snapshot, ItemKind.TABLE):
        found = item.details.upstream if isinstance(item.details, SourceTableDetails) else None
        if found is not None:
            yield item.id, found.schema, found.name


def sink_type(item: CatalogItem) -> str:
    """``files``, ``kafka``, ``delta`` or ``iceberg``."""
    return item.of(SinkDetails).kind


def _sink_formats(item: CatalogItem) -> tuple[str | None, str | None]:
    """The formats of keys and of values; files have no keys apart, and tables no formats."""
    match item.of(SinkDetails).config:
        case SinkConfig() as files:
            return None, files.format.lower()
        case LakeSinkConfig():
            return None, None
        case topic:
            return topic.key_format.lower() if topic.key else None, topic.value_format.lower()


def source_type(item: CatalogItem) -> str:
    """The connector, such as ``load-generator``, ``kafka``, ``progress``, ``subsource``."""
    if isinstance(item.details, LakeDetails):
        return item.details.kind
    return CONNECTOR_NAMES[type(item.details)] or "subsource"


def sources(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for item in items(snapshot, ItemKind.SOURCE):
        yield (
            *_identity(snapshot, item),
            source_type(item),
            _connection(item),
            None,
            _envelope(item),
            _key_format(item),
            _format(item),
            item.cluster,
            item.owner,
            _privileges(item),
            *_definition(snapshot, item),
        )


def sinks(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for item in items(snapshot, ItemKind.SINK):
        key_format, value_format = _sink_formats(item)
        yield (
            *_identity(snapshot, item),
            sink_type(item),
            item.of(SinkDetails).connection,
            None,
            _envelope(item),
            _format(item),
            key_format,
            value_format,
            item.cluster,
            item.owner,
            *_definition(snapshot, item),
        )


def indexes(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for item in items(snapshot, ItemKind.INDEX):
        yield (
            item.id,
            oid(item.id),
            item.name,
            next(iter(item.depends_on), None),
            item.cluster,
            item.owner,
            *_definition(snapshot, item),
        )


def index_columns(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    """The keys of indexes: by `on_position` where a key is a column, else by its expression."""
    for item in items(snapshot, ItemKind.INDEX):
        relation = snapshot.catalog.item(item.depends_on[0])
        columns = () if relation.desc is None else relation.desc.columns
        positions = {c.name: i for i, c in enumerate(columns, start=1)}
        named = columns_of_keys(item, relation)
        keys = zip(item.of(IndexDetails).keys, named, strict=True)
        for position, (key, column) in enumerate(keys, start=1):
            on = None if column is None else positions[column]
            nullable = on is None or columns[on - 1].nullable
            yield item.id, position, on, None if on else key, nullable


def columns(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for item in items(snapshot):
        columns = () if item.desc is None else item.desc.columns
        for position, column in enumerate(columns, start=1):
            yield (
                item.id,
                column.name,
                position,
                column.nullable,
                column.sql_type.lower(),
                column.default_sql,
                None,
                -1,
            )


def clusters(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for c in snapshot.catalog.clusters.values():
        factor, managed = len(c.replicas) if c.is_managed else None, c.is_managed
        yield c.id, c.name, c.owner, ["=UC/"], managed, c.size, factor, None, None, None, None


def cluster_replicas(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for c in snapshot.catalog.clusters.values():
        for replica in c.replicas:
            yield replica.id, replica.name, c.id, replica.size, None, c.owner, None


def cluster_schedules(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for c in snapshot.catalog.clusters.values():
        yield c.id, "manual" if c.on_refresh_ms is None else "on-refresh", c.on_refresh_ms


def cluster_replica_sizes(_: SystemSnapshot) -> Iterator[SystemRow]:
    """The sizes of replicas, all of which are threads of one process."""
    yield from SIZES.items()


def audit_events(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for e in snapshot.audit_events:
        yield e.id, e.event_type, e.object_type, e.details, e.user, moment(e.occurred_ms)


def object_dependencies(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for item in items(snapshot):
        for used in item.direct_dependencies:
            yield item.id, used


def fully_qualified_names(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for item in items(snapshot):
        schema = snapshot.catalog.schema(item.schema_name)
        yield (
            item.id,
            item.name,
            type_name(item),
            schema.id,
            schema.name,
            None if schema.is_system else DATABASE_ID,
            None if schema.is_system else CATALOG_NAME,
            item.cluster,
        )


def comments(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    """The comments: of columns with their position in `mz_columns`, of objects with NULL."""
    for schema in snapshot.catalog.schemas.values():
        if schema.comment:
            yield schema.id, "schema", None, schema.comment
    for cluster in snapshot.catalog.clusters.values():
        if cluster.comment:
            yield cluster.id, "cluster", None, cluster.comment
        for replica in cluster.replicas:
            if replica.comment:
                yield replica.id, "cluster-replica", None, replica.comment
    for item in items(snapshot):
        if item.comment:
            yield item.id, type_name(item), None, item.comment
        columns = () if item.desc is None else item.desc.columns
        for position, column in enumerate(columns, start=1):
            comment = json.loads(column.metadata_json).get("comment")
            if comment:
                yield item.id, type_name(item), position, comment


def secrets(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    """The secrets, without their values."""
    for item in items(snapshot, ItemKind.SECRET):
        yield (*_identity(snapshot, item), item.owner, _privileges(item))


def connection_type(details: ConnectionDetails) -> str:
    """The kind of a connection, such as ``kafka``, ``iceberg-catalog``."""
    return details.kind.lower().replace(" ", "-")


def connections(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for item in items(snapshot, ItemKind.CONNECTION):
        yield (
            *_identity(snapshot, item),
            connection_type(item.of(ConnectionDetails)),
            item.owner,
            _privileges(item),
            *_definition(snapshot, item),
        )


def _connections_to(
    snapshot: SystemSnapshot, kind: ConnectionKind
) -> Iterator[tuple[GlobalId, ConnectionDetails]]:
    for item in items(snapshot, ItemKind.CONNECTION):
        details = item.of(ConnectionDetails)
        if details.kind == kind:
            yield item.id, details


def kafka_connections(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for item_id, details in _connections_to(snapshot, "KAFKA"):
        yield item_id, list(details.texts("BROKERS")), _text(details, "PROGRESS TOPIC")


def iceberg_sinks(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for item in items(snapshot, ItemKind.SINK):
        match item.of(SinkDetails).config:
            case LakeSinkConfig(place=IcebergPlace(namespace, table)):
                yield item.id, namespace, table


def kafka_sinks(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for item in items(snapshot, ItemKind.SINK):
        config = item.of(SinkDetails).config
        if isinstance(config, KafkaSinkConfig):
            yield item.id, config.topic


def aws_connections(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for item_id, details in _connections_to(snapshot, "AWS"):
        yield (
            item_id,
            _text(details, "ENDPOINT"),
            _text(details, "REGION"),
            _text(details, "ACCESS KEY ID"),
            details.secret("ACCESS KEY ID"),
            details.secret("SECRET ACCESS KEY"),
            _text(details, "SESSION TOKEN"),
            details.secret("SESSION TOKEN"),
            _text(details, "ASSUME ROLE ARN"),
            _text(details, "ASSUME ROLE SESSION NAME"),
        )


def ssh_tunnel_connections(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for item_id, details in _connections_to(snapshot, "SSH TUNNEL"):
        yield item_id, *details.public_keys


def _text(details: ConnectionDetails, option: str) -> str | None:
    return next(iter(details.texts(option)), None)


def system_parameters(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for each in snapshot.parameters:
        yield each.name, each.value, each.default, each.source, each.description


def webhook_sources(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for object_id, url in snapshot.webhooks.items():
        yield object_id, snapshot.catalog.items[object_id].name, url
