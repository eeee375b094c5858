"""The system relations: names, columns, and their rows as pure functions of a `SystemSnapshot`.

Ids are stable: new relations are added at the end of `SYSTEM_RELATIONS`, none is ever removed from
its place. Types that Parquet does not hold exactly are replaced: lags are milliseconds (BIGINT),
JSON is text, oids are BIGINT.

Source: spec coordinator 7, surface section 6.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa

from slackwater.adapter.catalog.model import (
    CATALOG_NAME,
    CatalogItem,
    CatalogState,
    ItemKind,
    SchemaEntry,
    shards_of,
)
from slackwater.adapter.catalog.render import shown_sql
from slackwater.adapter.system.snapshot import SystemSnapshot
from slackwater.repr.frontier import Frontier
from slackwater.repr.ids import GlobalId, is_system, system_id
from slackwater.repr.relation import Column, RelationDesc

Row = tuple[Any, ...]

DATABASE_ID = "u1"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_TEXTS = json.dumps({"type": "array", "elementType": "string", "containsNull": False})
_TYPES = {
    "text": '"string"',
    "long": '"long"',
    "bool": '"boolean"',
    "time": '"timestamp"',
    "texts": _TEXTS,
}
_SYSTEM_SCHEMA_NAMES = ("mz_catalog", "mz_internal", "mz_introspection")
_FIRST_SYSTEM_ITEM = 101
_USER_OIDS = 1_000_000
_SYSTEM_OIDS = 20_000
_NO_RELATION_KINDS = (ItemKind.SINK, ItemKind.INDEX, ItemKind.SECRET)


@dataclass(frozen=True, slots=True)
class SystemRelation:
    """A relation and the function that makes its rows."""

    id: GlobalId
    schema_name: str
    name: str
    desc: RelationDesc
    rows: Callable[[SystemSnapshot], Iterable[Row]]

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


def oid(global_id: str) -> int:
    """A number for clients that expect PostgreSQL's oids; the same for ever."""
    base = _SYSTEM_OIDS if is_system(GlobalId(global_id)) else _USER_OIDS
    return base + int(global_id[1:])


def _moment(ms: int | None) -> datetime | None:
    return None if ms is None else _EPOCH + timedelta(milliseconds=ms)


def _items(snapshot: SystemSnapshot, *kinds: ItemKind) -> Iterator[CatalogItem]:
    """The objects of these kinds, or all, in the catalog's order."""
    for item in snapshot.catalog.items.values():
        if not kinds or item.kind in kinds:
            yield item


def _schema_id(catalog: CatalogState, item: CatalogItem) -> str:
    return catalog.schema(item.schema_name).id


def _privileges(item: CatalogItem) -> list[str]:
    """In PostgreSQL's notation: grantee=privileges/grantor; everybody may read, nobody is kept
    from anything, since access is Spark's business."""
    letters = "arwd" if item.kind is ItemKind.TABLE else "r"
    return [f"={letters}/{item.owner}"]


def _cluster_id(snapshot: SystemSnapshot, item: CatalogItem) -> str | None:
    """The cluster that maintains it, by the name in its details; of a table or view none."""
    maintained = (ItemKind.SOURCE, ItemKind.MATERIALIZED_VIEW, ItemKind.SINK, ItemKind.INDEX)
    if item.kind not in maintained:
        return None
    wanted = item.details.get("cluster", "quickstart")
    return next((c.id for c in snapshot.clusters if c.name == wanted), None)


def _identity(snapshot: SystemSnapshot, item: CatalogItem) -> Row:
    return item.id, oid(item.id), _schema_id(snapshot.catalog, item), item.name


def _databases(_: SystemSnapshot) -> Iterator[Row]:
    yield DATABASE_ID, oid(DATABASE_ID), CATALOG_NAME, "", ["=U/"]


def _schemas(snapshot: SystemSnapshot) -> Iterator[Row]:
    for schema in snapshot.catalog.schemas.values():
        database = None if schema.is_system else DATABASE_ID
        yield schema.id, oid(schema.id), database, schema.name, "", ["=UC/"]


def _objects(snapshot: SystemSnapshot) -> Iterator[Row]:
    for item in _items(snapshot):
        yield _object_row(snapshot, item)


def _relations(snapshot: SystemSnapshot) -> Iterator[Row]:
    for item in _items(snapshot):
        if item.kind not in _NO_RELATION_KINDS:
            yield _object_row(snapshot, item)


def _object_row(snapshot: SystemSnapshot, item: CatalogItem) -> Row:
    return (
        *_identity(snapshot, item),
        _type_name(item),
        item.owner,
        _cluster_id(snapshot, item),
        _privileges(item),
    )


def _type_name(item: CatalogItem) -> str:
    return "table" if item.kind is ItemKind.SYSTEM_TABLE else item.kind.value


def _tables(snapshot: SystemSnapshot) -> Iterator[Row]:
    for item in _items(snapshot, ItemKind.TABLE, ItemKind.SYSTEM_TABLE):
        sql = shown_sql(item) or None
        yield (
            *_identity(snapshot, item),
            item.owner,
            _privileges(item),
            sql,
            sql,
            item.parent,
        )


def _views(snapshot: SystemSnapshot) -> Iterator[Row]:
    for item in _items(snapshot, ItemKind.VIEW):
        yield (
            *_identity(snapshot, item),
            item.details.get("query"),
            item.owner,
            _privileges(item),
            item.create_sql,
            item.create_sql,
        )


def _materialized_views(snapshot: SystemSnapshot) -> Iterator[Row]:
    for item in _items(snapshot, ItemKind.MATERIALIZED_VIEW):
        yield (
            *_identity(snapshot, item),
            _cluster_id(snapshot, item),
            item.details.get("query"),
            item.owner,
            _privileges(item),
            item.create_sql,
            item.create_sql,
        )


def _config_text(item: CatalogItem, key: str) -> str | None:
    """A value of the connector's configuration; `None` where there is none."""
    config = item.details.get("config")
    value = config.get(key) if isinstance(config, dict) else None
    return None if value is None else str(value).lower()


def source_type(item: CatalogItem) -> str:
    """Its connector: ``load-generator``, ``files``, ``webhook``, ``progress``, or ``subsource``."""
    return str(item.details.get("connector") or "subsource")


def _sources(snapshot: SystemSnapshot) -> Iterator[Row]:
    for item in _items(snapshot, ItemKind.SOURCE):
        yield (
            *_identity(snapshot, item),
            source_type(item),
            None,
            None,
            _config_text(item, "envelope"),
            None,
            _config_text(item, "format"),
            _cluster_id(snapshot, item),
            item.owner,
            _privileges(item),
            item.create_sql,
            item.create_sql,
        )


def _sink_type(item: CatalogItem) -> str:
    return _config_text(item, "connector") or "files"


def _sinks(snapshot: SystemSnapshot) -> Iterator[Row]:
    for item in _items(snapshot, ItemKind.SINK):
        file_format = _config_text(item, "format")
        yield (
            *_identity(snapshot, item),
            _sink_type(item),
            None,
            None,
            _config_text(item, "envelope"),
            file_format,
            None,
            file_format,
            _cluster_id(snapshot, item),
            item.owner,
            item.create_sql,
            item.create_sql,
        )


def _indexes(snapshot: SystemSnapshot) -> Iterator[Row]:
    for item in _items(snapshot, ItemKind.INDEX):
        yield (
            item.id,
            oid(item.id),
            item.name,
            item.details.get("on") or next(iter(item.depends_on), None),
            _cluster_id(snapshot, item),
            item.owner,
            item.create_sql,
            item.create_sql,
        )


def _columns(snapshot: SystemSnapshot) -> Iterator[Row]:
    for item in _items(snapshot):
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


def _clusters(snapshot: SystemSnapshot) -> Iterator[Row]:
    for c in snapshot.clusters:
        factor = len(c.replicas) if c.managed else None
        yield c.id, c.name, c.owner, ["=UC/"], c.managed, c.size, factor, None, None, None, None


def _cluster_replicas(snapshot: SystemSnapshot) -> Iterator[Row]:
    for c in snapshot.clusters:
        for replica in c.replicas:
            yield replica.id, replica.name, c.id, replica.size, None, c.owner, None


def _audit_events(snapshot: SystemSnapshot) -> Iterator[Row]:
    for e in snapshot.audit_events:
        yield e.id, e.event_type, e.object_type, e.details, e.user, _moment(e.occurred_ms)


def _frontiers(snapshot: SystemSnapshot) -> Iterator[Row]:
    for object_id, each in snapshot.frontiers.items():
        since = None if each.since is None else each.since.as_nullable()
        yield object_id, since, each.upper.as_nullable()


def _hydration_statuses(snapshot: SystemSnapshot) -> Iterator[Row]:
    for each in snapshot.hydration:
        yield each.object_id, each.replica_id, each.hydrated


def _hydration_progress(snapshot: SystemSnapshot) -> Iterator[Row]:
    for each in snapshot.fillings:
        yield (
            each.global_id,
            _only_replica(snapshot),
            each.rows_read,
            each.rows,
            each.elapsed_ms,
        )


def _lag_ms(behind: Frontier, ahead: Frontier) -> int | None:
    """How far `behind` trails; None if it is not closed but `ahead` is: there is no measure."""
    if behind >= ahead:
        return 0
    return None if ahead.is_empty else ahead.value - behind.value


def _materialization_lag(snapshot: SystemSnapshot) -> Iterator[Row]:
    """Against the direct inputs (local) and against the tables and sources below them (global)."""
    kinds = (ItemKind.MATERIALIZED_VIEW, ItemKind.INDEX, ItemKind.SINK)
    for item in _items(snapshot, *kinds):
        own = snapshot.frontiers.get(item.id)
        if own is None:
            continue
        local = _maintained_inputs(snapshot, item)
        roots = _root_inputs(snapshot, item)
        yield (
            item.id,
            _lag_behind(snapshot, own.upper, local),
            _lag_behind(snapshot, own.upper, roots),
            _slowest(snapshot, local),
            _slowest(snapshot, roots),
        )


def _maintained_inputs(snapshot: SystemSnapshot, item: CatalogItem) -> list[GlobalId]:
    """The nearest inputs that have frontiers; views, which have none, are looked through."""
    found: dict[GlobalId, None] = {}
    stack, seen = list(item.depends_on), set[GlobalId]()
    while stack:
        current = stack.pop()
        if current in seen:
            continue
        seen.add(current)
        if current in snapshot.frontiers:
            found[current] = None
        elif current in snapshot.catalog.items:
            stack += snapshot.catalog.items[current].depends_on
    return sorted(found)


def _root_inputs(snapshot: SystemSnapshot, item: CatalogItem) -> list[GlobalId]:
    """The tables and sources that it rests on, transitively."""
    roots: set[GlobalId] = set()
    stack, seen = list(item.depends_on), set[GlobalId]()
    while stack:
        current = stack.pop()
        if current in seen or current not in snapshot.catalog.items:
            continue
        seen.add(current)
        below = snapshot.catalog.items[current]
        if below.kind in (ItemKind.TABLE, ItemKind.SOURCE) and current in snapshot.frontiers:
            roots.add(current)
        stack += below.depends_on
    return sorted(roots)


def _lag_behind(
    snapshot: SystemSnapshot, upper: Frontier, inputs: Iterable[GlobalId]
) -> int | None:
    uppers = [snapshot.frontiers[each].upper for each in inputs]
    return _lag_ms(upper, min(uppers)) if uppers else 0


def _slowest(snapshot: SystemSnapshot, inputs: Iterable[GlobalId]) -> GlobalId | None:
    return min(inputs, key=lambda each: snapshot.frontiers[each].upper, default=None)


def _wallclock_global_lag(snapshot: SystemSnapshot) -> Iterator[Row]:
    for object_id, each in snapshot.frontiers.items():
        lag = 0 if each.upper.is_empty else max(0, snapshot.now_ms - each.upper.value)
        yield object_id, lag


def _source_statistics(snapshot: SystemSnapshot) -> Iterator[Row]:
    for object_id, s in snapshot.source_statistics.items():
        yield (
            object_id,
            s.replica_id,
            s.messages_received,
            s.bytes_received,
            s.updates_staged,
            s.updates_committed,
            s.records_indexed,
            s.bytes_indexed,
            s.rehydration_latency_ms,
            s.snapshot_records_known,
            s.snapshot_records_staged,
            s.snapshot_committed,
            s.offset_known,
            s.offset_committed,
        )


def _statuses(
    snapshot: SystemSnapshot, kind: ItemKind, type_of: Callable[[CatalogItem], str]
) -> Iterator[Row]:
    for item in _items(snapshot, kind):
        # A table of a source, or its progress relation, is as the source is.
        status = snapshot.statuses.get(item.parent or item.id)
        known = (
            (None, "created", None, None)
            if status is None
            else (
                _moment(status.last_change_ms),
                status.status,
                status.error,
                status.details_json,
            )
        )
        yield item.id, item.name, type_of(item), *known


def _source_statuses(snapshot: SystemSnapshot) -> Iterator[Row]:
    return _statuses(snapshot, ItemKind.SOURCE, source_type)


def _source_status_history(snapshot: SystemSnapshot) -> Iterator[Row]:
    for source_id, s in snapshot.source_history:
        moment = _moment(s.last_change_ms)
        yield moment, source_id, s.status, s.error, s.details_json, None


def _sink_statuses(snapshot: SystemSnapshot) -> Iterator[Row]:
    return _statuses(snapshot, ItemKind.SINK, _sink_type)


def _object_dependencies(snapshot: SystemSnapshot) -> Iterator[Row]:
    for item in _items(snapshot):
        for used in item.direct_dependencies:
            yield item.id, used


def _fully_qualified_names(snapshot: SystemSnapshot) -> Iterator[Row]:
    for item in _items(snapshot):
        schema = snapshot.catalog.schema(item.schema_name)
        yield (
            item.id,
            item.name,
            _type_name(item),
            schema.id,
            schema.name,
            None if schema.is_system else DATABASE_ID,
            None if schema.is_system else CATALOG_NAME,
            _cluster_id(snapshot, item),
        )


def _sessions(snapshot: SystemSnapshot) -> Iterator[Row]:
    for s in snapshot.sessions:
        yield s.id, s.connection_id, s.user, s.client_ip, _moment(s.connected_ms)


def _subscriptions(snapshot: SystemSnapshot) -> Iterator[Row]:
    for s in snapshot.subscriptions:
        yield s.id, s.session_id, s.cluster_id, _moment(s.created_ms), list(s.reads)


def _notices(snapshot: SystemSnapshot) -> Iterator[Row]:
    for n in snapshot.notices:
        yield (
            n.id,
            n.notice_type,
            n.message,
            n.hint,
            n.action,
            n.message,
            n.hint,
            n.action,
            n.action_type,
            n.object_id,
            _moment(n.created_ms),
        )


def _read_holds(snapshot: SystemSnapshot) -> Iterator[Row]:
    for hold in snapshot.read_holds:
        for global_id in sorted(hold.ids):
            yield global_id, hold.holder.name, hold.holder.kind.value, hold.since


def _only_replica(snapshot: SystemSnapshot) -> str:
    return snapshot.clusters[0].replicas[0].id


def _recent_ticks(snapshot: SystemSnapshot) -> Iterator[Row]:
    for tick in snapshot.ticks:
        yield (
            tick.global_id,
            _only_replica(snapshot),
            tick.lower,
            tick.upper,
            _moment(tick.committed_ms),
            tick.by_program,
            tick.scanned,
            tick.looked_up,
            tick.emitted,
            tick.times.plan_us,
            tick.times.load_us,
            tick.times.compute_us,
            tick.times.encode_us,
            tick.times.commit_us,
        )


def _recent_tick_steps(snapshot: SystemSnapshot) -> Iterator[Row]:
    for tick in snapshot.ticks:
        for number, step in enumerate(tick.steps):
            yield (
                tick.global_id,
                _only_replica(snapshot),
                tick.upper,
                number,
                step.operator,
                step.emitted,
                step.looked_up,
                step.elapsed_us,
            )


def _storage_shards(snapshot: SystemSnapshot) -> Iterator[Row]:
    for item in _items(snapshot):
        for shard_id in shards_of(item):
            yield item.id, str(shard_id)


def _recent_storage_usage(snapshot: SystemSnapshot) -> Iterator[Row]:
    sizes = {each.shard_id: each.size_bytes for each in snapshot.usage}
    for item in _items(snapshot):
        if shard_ids := shards_of(item):
            yield item.id, sum(sizes.get(shard_id, 0) for shard_id in shard_ids)


def _shard_usage(snapshot: SystemSnapshot) -> Iterator[Row]:
    owners = {s: item.id for item in _items(snapshot) for s in shards_of(item)}
    for each in snapshot.usage:
        state = "finalized" if each.finalized else "dropped" if each.dropped else "live"
        yield (
            str(each.shard_id),
            owners.get(each.shard_id),
            state,
            each.parts,
            each.rows,
            each.size_bytes,
            each.garbage_bytes,
        )


def _comments(snapshot: SystemSnapshot) -> Iterator[Row]:
    """Of a column with its position in `mz_columns`, of anything else with NULL."""
    for schema in snapshot.catalog.schemas.values():
        if schema.comment:
            yield schema.id, "schema", None, schema.comment
    for item in _items(snapshot):
        if item.comment:
            yield item.id, _type_name(item), None, item.comment
        columns = () if item.desc is None else item.desc.columns
        for position, column in enumerate(columns, start=1):
            comment = json.loads(column.metadata_json).get("comment")
            if comment:
                yield item.id, _type_name(item), position, comment


def _secrets(snapshot: SystemSnapshot) -> Iterator[Row]:
    """Names alone."""
    for item in _items(snapshot, ItemKind.SECRET):
        yield (*_identity(snapshot, item), item.owner, _privileges(item))


def _webhook_sources(snapshot: SystemSnapshot) -> Iterator[Row]:
    for object_id, url in snapshot.webhooks.items():
        yield object_id, snapshot.catalog.items[object_id].name, url


def _changefeed_partitions(snapshot: SystemSnapshot) -> Iterator[Row]:
    for each in snapshot.partitions:
        resolved, counted = each.resolved, each.counted
        yield (
            each.source_id,
            each.partition,
            each.status,
            *(
                None if time is None else str(time)
                for time in (resolved, each.committed, each.proposed)
            ),
            None if resolved is None else max(0, snapshot.now_ms - resolved.nanos // 1_000_000),
            each.waiting,
            counted.rows,
            counted.late,
            counted.repeated,
            counted.dead,
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
_LAYOUT: tuple[tuple[str, str, str, Callable[[SystemSnapshot], Iterable[Row]]], ...] = (
    ("mz_catalog", "mz_databases", "id! oid:long! name! owner_id! privileges:texts!", _databases),
    (
        "mz_catalog",
        "mz_schemas",
        "id! oid:long! database_id name! owner_id! privileges:texts!",
        _schemas,
    ),
    ("mz_catalog", "mz_objects", _OBJECT, _objects),
    ("mz_catalog", "mz_relations", _OBJECT, _relations),
    (
        "mz_catalog",
        "mz_tables",
        f"{_HEAD} owner_id! privileges:texts! {_SQL} source_id",
        _tables,
    ),
    (
        "mz_catalog",
        "mz_sources",
        f"{_HEAD} type! connection_id size envelope_type key_format value_format cluster_id"
        f" owner_id! privileges:texts! {_SQL}",
        _sources,
    ),
    (
        "mz_catalog",
        "mz_sinks",
        f"{_HEAD} type! connection_id size envelope_type format key_format value_format"
        f" cluster_id owner_id! {_SQL}",
        _sinks,
    ),
    (
        "mz_catalog",
        "mz_views",
        f"{_HEAD} definition owner_id! privileges:texts! {_SQL}",
        _views,
    ),
    (
        "mz_catalog",
        "mz_materialized_views",
        f"{_HEAD} cluster_id definition owner_id! privileges:texts! {_SQL}",
        _materialized_views,
    ),
    (
        "mz_catalog",
        "mz_indexes",
        f"id! oid:long! name! on_id cluster_id owner_id! {_SQL}",
        _indexes,
    ),
    (
        "mz_catalog",
        "mz_columns",
        "id! name! position:long! nullable:bool! type! default type_oid:long type_mod:long!",
        _columns,
    ),
    (
        "mz_catalog",
        "mz_clusters",
        "id! name! owner_id! privileges:texts! managed:bool! size replication_factor:long"
        " disk:bool availability_zones:texts introspection_debugging:bool"
        " introspection_interval:long",
        _clusters,
    ),
    (
        "mz_catalog",
        "mz_cluster_replicas",
        "id! name! cluster_id! size availability_zone owner_id! disk:bool",
        _cluster_replicas,
    ),
    (
        "mz_catalog",
        "mz_audit_events",
        "id:long! event_type! object_type! details! user occurred_at:time!",
        _audit_events,
    ),
    (
        "mz_internal",
        "mz_frontiers",
        "object_id! read_frontier:long write_frontier:long",
        _frontiers,
    ),
    (
        "mz_internal",
        "mz_hydration_statuses",
        "object_id! replica_id hydrated:bool!",
        _hydration_statuses,
    ),
    (
        "mz_internal",
        "mz_materialization_lag",
        "object_id! local_lag:long global_lag:long slowest_local_input_id slowest_global_input_id",
        _materialization_lag,
    ),
    ("mz_internal", "mz_wallclock_global_lag", "object_id! lag:long", _wallclock_global_lag),
    (
        "mz_internal",
        "mz_source_statistics",
        "id! replica_id messages_received:long! bytes_received:long! updates_staged:long!"
        " updates_committed:long! records_indexed:long! bytes_indexed:long!"
        " rehydration_latency:long snapshot_records_known:long snapshot_records_staged:long"
        " snapshot_committed:bool! offset_known:long offset_committed:long",
        _source_statistics,
    ),
    ("mz_internal", "mz_source_statuses", _STATUS, _source_statuses),
    ("mz_internal", "mz_sink_statuses", _STATUS, _sink_statuses),
    (
        "mz_internal",
        "mz_object_dependencies",
        "object_id! referenced_object_id!",
        _object_dependencies,
    ),
    (
        "mz_internal",
        "mz_object_fully_qualified_names",
        "id! name! object_type! schema_id! schema_name! database_id database_name cluster_id",
        _fully_qualified_names,
    ),
    (
        "mz_internal",
        "mz_sessions",
        "id! connection_id:long! role_id! client_ip connected_at:time!",
        _sessions,
    ),
    (
        "mz_internal",
        "mz_subscriptions",
        "id! session_id! cluster_id! created_at:time! referenced_object_ids:texts!",
        _subscriptions,
    ),
    (
        "mz_internal",
        "mz_notices",
        "id! notice_type! message! hint! action redacted_message redacted_hint redacted_action"
        " action_type object_id created_at:time!",
        _notices,
    ),
    (
        "mz_internal",
        "mz_source_status_history",
        "occurred_at:time! source_id! status! error details replica_id",
        _source_status_history,
    ),
    ("mz_internal", "mz_storage_shards", "object_id! shard_id!", _storage_shards),
    (
        "mz_catalog",
        "mz_recent_storage_usage",
        "object_id! size_bytes:long!",
        _recent_storage_usage,
    ),
    (
        "mz_internal",
        "mz_shard_usage",
        "shard_id! object_id state! parts:long! rows:long! size_bytes:long! garbage_bytes:long!",
        _shard_usage,
    ),
    (
        "mz_internal",
        "mz_read_holds",
        "object_id! holder! kind! hold_time:long!",
        _read_holds,
    ),
    ("mz_internal", "mz_comments", "id! object_type! object_sub_id:long comment!", _comments),
    (
        "mz_internal",
        "mz_recent_ticks",
        "object_id! replica_id! lower:long! upper:long! committed_at:time! by_program:bool!"
        " rows_scanned:long! rows_looked_up:long! rows_emitted:long! plan_us:long!"
        " load_us:long! compute_us:long! encode_us:long! commit_us:long!",
        _recent_ticks,
    ),
    (
        "mz_internal",
        "mz_recent_tick_steps",
        "object_id! replica_id! upper:long! step:long! operator! rows_emitted:long!"
        " rows_looked_up:long! elapsed_us:long!",
        _recent_tick_steps,
    ),
    ("mz_catalog", "mz_secrets", f"{_HEAD} owner_id! privileges:texts!", _secrets),
    ("mz_internal", "mz_webhook_sources", "id! name! url!", _webhook_sources),
    (
        "mz_internal",
        "mz_hydration_progress",
        "object_id! replica_id! rows_read:long! rows_known:long! elapsed_ms:long!",
        _hydration_progress,
    ),
    (
        "mz_internal",
        "mz_changefeed_partitions",
        "id! partition! status! resolved committed proposed lag:long waiting:long!"
        " rows_bound:long! rows_late:long! rows_repeated:long! dead_letters:long!",
        _changefeed_partitions,
    ),
)

SYSTEM_RELATIONS: tuple[SystemRelation, ...] = tuple(
    SystemRelation(system_id(number), schema, name, _desc(columns), rows)
    for number, (schema, name, columns, rows) in enumerate(_LAYOUT, start=_FIRST_SYSTEM_ITEM)
)
"""All of them, by id. The order is part of the contract."""
