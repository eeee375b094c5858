"""The SQL that makes an object again, as the catalog has the object now."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from slackwater.adapter.catalog.clusters import ClusterEntry
from slackwater.adapter.catalog.details import (
    ConnectionDetails,
    ConnectionSetting,
    IndexDetails,
    IngestedDetails,
    KafkaDetails,
    LakeDetails,
    MaterializedViewDetails,
    MessageSchema,
    MessageSettings,
    PostgresDetails,
    SinkDetails,
    SourceTableDetails,
    ViewDetails,
    WebhookDetails,
)
from slackwater.adapter.catalog.model import CATALOG_NAME, CatalogItem, CatalogState, ItemKind
from slackwater.adapter.catalog.settings import (
    OF_SPARK,
    SCHEMA_MODE,
    USUAL_MODE,
    of_results,
    of_view,
)
from slackwater.planner.parser import cluster_statements as cs
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.canonical import to_sql
from slackwater.planner.parser.connection_statements import ConnectionOption, CreateConnection
from slackwater.planner.parser.kafka_sink import KafkaSinkConnector, SinkRegistry
from slackwater.planner.parser.kafka_source import Decoding, KafkaSource, Payload, Registry
from slackwater.planner.parser.lake_sink import DeltaSinkConnector, IcebergSinkConnector
from slackwater.planner.parser.lake_source import DeltaSource, IcebergSource
from slackwater.planner.parser.lake_table import DeltaTable, IcebergTable
from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.parse import parse
from slackwater.planner.parser.postgres_source import PostgresSource
from slackwater.planner.parser.source_tables import CreateTableFromSource
from slackwater.repr.errors import FatalError
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import (
    Column,
    JsonType,
    RelationDesc,
    quote_identifier,
    quote_string,
    sql_type,
)
from slackwater.storage.kafka.sink_avro import SinkSchema
from slackwater.storage.kafka.sink_messages import KafkaSinkConfig

_COLLATIONS = "__COLLATIONS"
# System relations show every definition at each read.
_parsed = lru_cache(maxsize=4096)(parse)


def current_sql(state: CatalogState, item: CatalogItem) -> str:
    """The SQL that makes the item again as it is now; for a part of a source, its source's."""
    whole = None if item.parent is None else state.items.get(item.parent)
    cluster = None if item.cluster is None else state.clusters[item.cluster].name
    if item.kind is ItemKind.CONNECTION:
        return _create_connection_sql(state, item)
    if item.kind is ItemKind.INDEX:
        return _create_index_sql(state.item(item.depends_on[0]), item, cluster)
    return _shown_sql(state, item if whole is None else whole, cluster)


def _shown_sql(state: CatalogState, item: CatalogItem, cluster: str | None) -> str:
    """The answer of SHOW CREATE: SQL that recreates the item from any session.

    The schema and the settings under which a query was defined are part of it, and the name that
    its cluster has now.
    """
    history = item.retain_history_ms
    if isinstance(item.details, SourceTableDetails):
        return _table_of_source_sql(state, item, item.details)
    match item.kind:
        case ItemKind.TABLE:
            return create_table_sql(
                item.full_name, item.desc, history, item.comment, item.properties
            )
        case ItemKind.VIEW:
            return _create_view_sql(item)
        case _ if item.parent is not None or not item.create_sql:
            return item.create_sql
    name = QualifiedName(("slackwater", item.schema_name, item.name))
    match _parsed(item.create_sql):
        case st.CreateMaterializedView() as made:
            view = item.of(MaterializedViewDetails)
            replaces = None if view.replaces is None else name_of(state.item(view.replaces))
            return to_sql(
                replace(
                    made,
                    name=name,
                    cluster=cluster,
                    retain_history_ms=history,
                    under=_under(view, view.settings),
                    replaces=replaces,
                )
            )
        case st.CreateSource() as made:
            source = replace(made, name=name, cluster=cluster, retain_history_ms=history)
            source = _with_progress(state, _with_columns(source, item), item)
            return to_sql(_with_connection(state, source, item))
        case st.CreateSink() as made:
            from_name = name_of(state.item(item.depends_on[0]))
            sink = replace(made, name=name, from_name=from_name, cluster=cluster)
            return to_sql(_with_connections(state, sink, item))
        case _:
            return item.create_sql


def _with_progress(
    state: CatalogState, source: st.CreateSource, item: CatalogItem
) -> st.CreateSource:
    """The statement with the name that the progress relation has now, if it names one."""
    if source.expose_progress is None or not isinstance(item.details, IngestedDetails):
        return source
    return replace(source, expose_progress=name_of(state.item(item.progress)))


def _with_connection(
    state: CatalogState, source: st.CreateSource, item: CatalogItem
) -> st.CreateSource:
    """The statement with the names that the source's connections have now."""
    details, connector = item.details, source.connector
    if isinstance(details, WebhookDetails) and isinstance(connector, st.WebhookSource):
        return replace(source, connector=_with_secrets(state, connector, details))
    if isinstance(details, PostgresDetails) and isinstance(connector, PostgresSource):
        name = name_of(state.item(details.connection))
        return replace(source, connector=replace(connector, connection=name))
    if isinstance(connector, DeltaSource):
        delta = _with_files(state, connector.table, item.of(LakeDetails).connections)
        return replace(source, connector=replace(connector, table=delta))
    if isinstance(details, LakeDetails) and isinstance(connector, IcebergSource):
        table = _with_catalog(state, connector.table, details.connections)
        return replace(source, connector=replace(connector, table=table))
    if not isinstance(details, KafkaDetails) or not isinstance(connector, KafkaSource):
        return source
    connector = replace(connector, connection=name_of(state.item(details.connection)))
    if connector.decoding is not None and details.config.messages is not None:
        decoding = _with_registries(state, connector.decoding, details.config.messages)
        connector = replace(connector, decoding=decoding)
    return replace(source, connector=connector)


def _with_secrets(
    state: CatalogState, connector: st.WebhookSource, details: WebhookDetails
) -> st.WebhookSource:
    """The connector with the names that the secrets of its condition have now."""
    if connector.check is None or details.check is None:
        return connector
    pairs = zip(connector.check.inputs, details.check.inputs, strict=True)
    inputs = tuple(
        shown if known.secret is None else replace(shown, secret=name_of(state.item(known.secret)))
        for shown, known in pairs
    )
    return replace(connector, check=replace(connector.check, inputs=inputs))


def _with_files(
    state: CatalogState, table: DeltaTable, connections: Sequence[GlobalId]
) -> DeltaTable:
    """The table with the name that the connection to its files has now."""
    names = [name_of(state.item(each)) for each in connections]
    return replace(table, aws=next(iter(names), None))


def _with_catalog(
    state: CatalogState, table: IcebergTable, connections: Sequence[GlobalId]
) -> IcebergTable:
    """The table with the names that its connections have now."""
    main, *rest = (name_of(state.item(each)) for each in connections)
    return replace(table, connection=main, aws=next(iter(rest), None))


def _with_registries(
    state: CatalogState, decoding: Decoding, messages: MessageSettings
) -> Decoding:
    """The decoding with the names that the registries of its schemas have now."""

    def named(payload: Payload | None, schema: MessageSchema | None) -> Payload | None:
        if payload is None or schema is None or schema.registry is None:
            return payload
        registry = payload.schema
        if not isinstance(registry, Registry):
            return payload
        return replace(
            payload, schema=replace(registry, connection=name_of(state.item(schema.registry)))
        )

    return replace(
        decoding,
        key=named(decoding.key, messages.key_schema),
        value=named(decoding.value, messages.value_schema) or decoding.value,
    )


def _table_of_source_sql(
    state: CatalogState, item: CatalogItem, details: SourceTableDetails
) -> str:
    """The statement with the names that the source, and registries of schemas, have now."""
    match _parsed(item.create_sql):
        case CreateTableFromSource() as made:
            decoding = made.decoding
            if decoding is not None and details.messages is not None:
                decoding = _with_registries(state, decoding, details.messages)
            return to_sql(
                replace(
                    made,
                    name=name_of(item),
                    source=name_of(state.item(details.source)),
                    decoding=decoding,
                    retain_history_ms=item.retain_history_ms,
                )
            )
        case _:
            return item.create_sql


def _with_connections(state: CatalogState, sink: st.CreateSink, item: CatalogItem) -> st.CreateSink:
    """The statement with the names that the sink's connections have now."""
    details, connector = item.of(SinkDetails), sink.connector
    config, connection = details.config, details.connection
    if isinstance(connector, DeltaSinkConnector):
        delta = _with_files(state, connector.table, details.connections)
        return replace(sink, connector=replace(connector, table=delta))
    if connection is None:
        return sink
    if isinstance(connector, IcebergSinkConnector):
        table = _with_catalog(state, connector.table, details.connections)
        return replace(sink, connector=replace(connector, table=table))
    if not isinstance(connector, KafkaSinkConnector):
        return sink

    def named(registry: SinkRegistry | None, schema: SinkSchema | None) -> SinkRegistry | None:
        if registry is None or schema is None:
            return registry
        docs = tuple(replace(each, relation=sink.from_name) for each in registry.docs)
        return replace(registry, connection=name_of(state.item(schema.registry)), docs=docs)

    if isinstance(config, KafkaSinkConfig):
        connector = replace(
            connector,
            key_registry=named(connector.key_registry, config.key_schema),
            value_registry=named(connector.value_registry, config.value_schema),
        )
    name = name_of(state.item(connection))
    return replace(sink, connector=replace(connector, connection=name))


def cluster_sql(cluster: ClusterEntry) -> str:
    """The answer of SHOW CREATE CLUSTER."""
    size, replicas = cluster.size, cluster.replicas
    if cluster.on_refresh_ms is not None:
        schedule = cs.ClusterSchedule(True, cluster.on_refresh_ms)
        return to_sql(cs.CreateCluster(cluster.name, size, None, schedule=schedule))
    if size is not None:
        return to_sql(cs.CreateCluster(cluster.name, size, len(replicas)))
    named = tuple(cs.ReplicaDefinition(each.name, each.size) for each in replicas)
    return to_sql(cs.CreateCluster(cluster.name, None, None, named))


def create_table_sql(
    full_name: str,
    desc: RelationDesc | None,
    retain_history_ms: int | None,
    comment: str | None,
    properties: Mapping[str, str],
) -> str:
    """A CREATE TABLE statement that makes the same table again."""
    columns = () if desc is None else desc.columns
    text = f"CREATE TABLE {_quoted(full_name)} ({', '.join(map(_column, columns))})"
    if comment:
        text += f" COMMENT {quote_string(comment)}"
    if not properties:
        history = f" WITH (RETAIN HISTORY FOR '{retain_history_ms} ms')"
        return text if retain_history_ms is None else text + history
    # Beside TBLPROPERTIES there is no WITH: it would become a second one.
    shown = dict(properties)
    if retain_history_ms is not None:
        shown["retain_history"] = f"{retain_history_ms} ms"
    return f"{text} TBLPROPERTIES ({_pairs(shown)})"


def _pairs(properties: Mapping[str, str]) -> str:
    return ", ".join(
        f"{quote_string(key)} = {quote_string(properties[key])}" for key in sorted(properties)
    )


def _create_view_sql(item: CatalogItem) -> str:
    columns = [] if item.desc is None else list(item.desc.columns)
    view, stored = item.of(ViewDetails), item.properties
    shown = {key: value for key, value in stored.items() if not key.startswith(OF_SPARK)}
    mode = stored.get(SCHEMA_MODE)
    return to_sql(
        st.CreateViewUnder(
            QualifiedName((CATALOG_NAME, item.schema_name, item.name)),
            st.TextSlice(view.query),
            _under(view, of_view(item) or None),
            tuple((c.name, json.loads(c.metadata_json).get("comment")) for c in columns),
            item.comment or None,
            tuple(sorted(shown.items())),
            None if mode in (None, "", USUAL_MODE) else mode,
        )
    )


def _create_index_sql(on: CatalogItem, index: CatalogItem, cluster: str | None) -> str:
    """The statement with the name that the relation has now: a relation may be renamed."""
    made, details = _parsed(index.create_sql), index.of(IndexDetails)
    if not isinstance(made, st.CreateIndex):
        raise FatalError(f"the definition of the index {index.full_name} is no CREATE INDEX")
    return to_sql(
        replace(
            made,
            name=QualifiedName((CATALOG_NAME, index.schema_name, index.name)),
            on=QualifiedName((CATALOG_NAME, on.schema_name, on.name)),
            cluster=cluster,
            retain_history_ms=details.retain_history_ms,
            under=st.DefinedUnder(None, _kept(details.settings)),
        )
    )


def _create_connection_sql(state: CatalogState, item: CatalogItem) -> str:
    """The statement with the names that secrets and another connection have now."""
    details = item.of(ConnectionDetails)

    def value(setting: ConnectionSetting) -> tuple[str, ...] | QualifiedName:
        named = setting.secret or setting.connection
        return setting.texts if named is None else name_of(state.item(named))

    options = tuple(ConnectionOption(each.name, value(each)) for each in details.settings)
    return to_sql(CreateConnection(name_of(item), details.kind, options))


def name_of(item: CatalogItem) -> QualifiedName:
    """The name by which statements mean the item in any session."""
    return QualifiedName((CATALOG_NAME, item.schema_name, item.name))


def _kept(settings: Mapping[str, str] | None) -> tuple[tuple[str, str], ...] | None:
    return None if settings is None else tuple(sorted(of_results(settings).items()))


def _under(
    view: ViewDetails | MaterializedViewDetails, settings: Mapping[str, str] | None
) -> st.DefinedUnder:
    """The namespace and settings under which a query was defined; early releases kept none."""
    schema = QualifiedName((view.catalog, *view.namespace))
    return st.DefinedUnder(schema, _kept(settings))


def _with_columns(made: st.CreateSource, item: CatalogItem) -> st.CreateSource:
    """The statement with the columns that were inferred, since other files would give others."""
    if made.columns is not None or item.desc is None or not item.desc.columns:
        return made
    if not isinstance(made.connector, st.FilesSource):
        return made
    return replace(made, columns=st.TextSlice(", ".join(map(_column, item.desc.columns))))


def _quoted(full_name: str) -> str:
    return ".".join(quote_identifier(part) for part in full_name.split(".", 2))


def _column(column: Column) -> str:
    metadata = json.loads(column.metadata_json)
    declared = column.spark_type
    if metadata.get("__CHAR_VARCHAR_TYPE_STRING"):
        kind = str(metadata["__CHAR_VARCHAR_TYPE_STRING"])
    else:
        kind = _type(declared, column.name, metadata.get(_COLLATIONS) or {})
    words = [quote_identifier(column.name), kind]
    if not column.nullable:
        words.append("NOT NULL")
    if column.default_sql is not None:
        words.append(f"DEFAULT {column.default_sql}")
    if metadata.get("comment"):
        words.append(f"COMMENT {quote_string(metadata['comment'])}")
    return " ".join(words)


def _type(kind: JsonType, path: str, collations: Mapping[str, str]) -> str:
    """The type as a column is declared with it; `collations` are by path inside the column."""
    if isinstance(kind, str):
        collation = collations.get(path)
        own = sql_type(kind)
        return own if collation is None else f"{own} COLLATE {collation.rpartition('.')[2]}"
    match kind["type"]:
        case "struct":
            return f"STRUCT<{', '.join(_struct_field(field) for field in kind['fields'])}>"
        case "array":
            return f"ARRAY<{_type(kind['elementType'], f'{path}.element', collations)}>"
        case "map":
            key = _type(kind["keyType"], f"{path}.key", collations)
            value = _type(kind["valueType"], f"{path}.value", collations)
            return f"MAP<{key}, {value}>"
        case _:
            return sql_type(kind)


def _struct_field(field: Mapping[str, Any]) -> str:
    metadata = field.get("metadata") or {}
    own = _type(field["type"], field["name"], metadata.get(_COLLATIONS) or {})
    words = [f"{quote_identifier(field['name'])}: {own}"]
    if not field["nullable"]:
        words.append("NOT NULL")
    if metadata.get("comment"):
        words.append(f"COMMENT {quote_string(metadata['comment'])}")
    return " ".join(words)
