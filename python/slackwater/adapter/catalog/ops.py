"""Changes of the catalog, and the pure function that applies them.

Source: spec coordinator 4.3, 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from slackwater.adapter.catalog.clusters import ClusterEntry, ReplicaEntry
from slackwater.adapter.catalog.details import Details
from slackwater.adapter.catalog.model import (
    CATALOG_NAME,
    DEFAULT_SCHEMA,
    CatalogItem,
    CatalogState,
    ItemKind,
    SchemaEntry,
    fold,
)
from slackwater.repr.errors import FatalError, SlackwaterError, user_error
from slackwater.repr.ids import GlobalId, is_system
from slackwater.repr.relation import RelationDesc, unclear_field

_RESERVED_PREFIXES = ("mz_", "pg_")
_BY_ID = frozenset({ItemKind.INDEX, ItemKind.CONNECTION})
"""The kinds whose definitions have the ids of what they use, and no names."""


@dataclass(frozen=True, slots=True)
class CreateSchema:
    schema: SchemaEntry


@dataclass(frozen=True, slots=True)
class CommentSchema:
    """Changes the comment of a schema; None removes it."""

    name: str
    comment: str | None


@dataclass(frozen=True, slots=True)
class DropSchema:
    name: str
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class RenameSchemas:
    """Gives schemas other names, by their names of before, all at once: so two can swap names.

    Objects stay in their schemas. Definitions that name them are altered by steps of their own.
    """

    names: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CreateCluster:
    cluster: ClusterEntry


@dataclass(frozen=True, slots=True)
class AlterClusters:
    """Replaces clusters, each by the entry with its id, all at once: so two can swap names."""

    clusters: tuple[ClusterEntry, ...]


@dataclass(frozen=True, slots=True)
class DropCluster:
    """Drops a cluster; with `cascade` also the objects on it and all that depends on these."""

    id: GlobalId
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class CreateItem:
    item: CatalogItem


@dataclass(frozen=True, slots=True)
class DropItem:
    """Drops an object. Its indexes and the objects whose parent it is go with it.

    `replaces`: another one takes its place.
    """

    id: GlobalId
    cascade: bool = False
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class RenameItem:
    """Renames or moves an object that no other one names. Some know what they use by its id."""

    id: GlobalId
    new_name: str
    new_schema: str | None = None


@dataclass(frozen=True, slots=True)
class AlterItem:
    """Replaces parts of an object; None leaves a part as it is, an empty comment removes it."""

    id: GlobalId
    details: Details | None = None
    comment: str | None = None
    desc: RelationDesc | None = None
    create_sql: str | None = None
    shard_id: int | None = None
    depends_on: tuple[GlobalId, ...] | None = None
    cluster: GlobalId | None = None


@dataclass(frozen=True, slots=True)
class SetParameter:
    """Sets a parameter of the system to a value that was checked; None takes it back."""

    name: str
    value: str | None


CatalogOp = (
    CreateSchema
    | CommentSchema
    | DropSchema
    | RenameSchemas
    | CreateCluster
    | AlterClusters
    | DropCluster
    | CreateItem
    | DropItem
    | RenameItem
    | AlterItem
    | SetParameter
)


@dataclass(frozen=True, slots=True)
class Altered:
    before: CatalogItem
    after: CatalogItem


@dataclass(frozen=True, slots=True)
class AlteredSchema:
    before: SchemaEntry
    after: SchemaEntry


@dataclass(frozen=True, slots=True)
class AlteredCluster:
    """A cluster that was altered; its replicas are the same ones by their ids."""

    before: ClusterEntry
    after: ClusterEntry

    @property
    def added(self) -> tuple[ReplicaEntry, ...]:
        """The replicas that it did not have before."""
        old = {replica.id for replica in self.before.replicas}
        return tuple(each for each in self.after.replicas if each.id not in old)

    @property
    def dropped(self) -> tuple[ReplicaEntry, ...]:
        """The replicas that it does not have any more."""
        new = {replica.id for replica in self.after.replicas}
        return tuple(each for each in self.before.replicas if each.id not in new)

    @property
    def changed(self) -> tuple[tuple[ReplicaEntry, ReplicaEntry], ...]:
        """The replicas that stay and are another way, as they were and as they are."""
        old = {replica.id: replica for replica in self.before.replicas}
        pairs = ((old.get(each.id, each), each) for each in self.after.replicas)
        return tuple((before, after) for before, after in pairs if before != after)


@dataclass(frozen=True, slots=True)
class CatalogDiff:
    """The difference that a change made, in the order of its steps; dependents are dropped first.

    An object that the same change created and dropped is in neither list. `parameters` are those
    that have another value; None: none of their own any more.
    """

    schemas_created: tuple[SchemaEntry, ...] = ()
    schemas_dropped: tuple[SchemaEntry, ...] = ()
    schemas_altered: tuple[AlteredSchema, ...] = ()
    created: tuple[CatalogItem, ...] = ()
    dropped: tuple[CatalogItem, ...] = ()
    altered: tuple[Altered, ...] = ()
    parameters: tuple[tuple[str, str | None], ...] = ()
    clusters_created: tuple[ClusterEntry, ...] = ()
    clusters_dropped: tuple[ClusterEntry, ...] = ()
    clusters_altered: tuple[AlteredCluster, ...] = ()


def apply(state: CatalogState, ops: Sequence[CatalogOp]) -> tuple[CatalogState, CatalogDiff]:
    """The state after `ops`, one after the other, all or none.

    Raises the user error of the first that is not possible; see the functions below.
    """
    after = state
    for op in ops:
        after = _apply_one(after, op)
    if ops:
        after = replace(after, revision=state.revision + 1)
    return after, _difference(state, after)


def _apply_one(state: CatalogState, op: CatalogOp) -> CatalogState:
    match op:
        case CreateSchema(schema):
            return _create_schema(state, schema)
        case CommentSchema(name, comment):
            return _comment_schema(state, name, comment)
        case DropSchema():
            return _drop_schema(state, op)
        case RenameSchemas(names):
            return _rename_schemas(state, names)
        case CreateCluster(cluster):
            _check_cluster_names(state, [cluster])
            return _with_clusters(state, [cluster])
        case AlterClusters(clusters):
            _check_cluster_names(state, clusters)
            return _with_clusters(state, clusters)
        case DropCluster():
            return _drop_cluster(state, op)
        case CreateItem(item):
            return _create_item(state, item)
        case DropItem():
            return _drop_item(state, op)
        case RenameItem():
            return _rename_item(state, op)
        case AlterItem():
            return _alter_item(state, op)
        case SetParameter(name, value):
            kept = {key: each for key, each in state.parameters.items() if key != name}
            return replace(state, parameters=kept if value is None else {**kept, name: value})


def refuse_reserved(name: str) -> None:
    """Raises SLACKWATER_RESERVED_NAME for a name of schemas and clusters of the system."""
    if fold(name).startswith(_RESERVED_PREFIXES):
        raise user_error(
            "SLACKWATER_RESERVED_NAME",
            objectName=name,
            reason="names that begin with mz_ or pg_ belong to the system",
        )


def _create_schema(state: CatalogState, schema: SchemaEntry) -> CatalogState:
    """Raises SLACKWATER_SCHEMA_ALREADY_EXISTS, SLACKWATER_RESERVED_NAME."""
    if state.find_schema(schema.name) is not None:
        raise user_error("SLACKWATER_SCHEMA_ALREADY_EXISTS", schemaName=schema.name)
    refuse_reserved(schema.name)
    return replace(state, schemas={**state.schemas, fold(schema.name): schema})


def _comment_schema(state: CatalogState, name: str, comment: str | None) -> CatalogState:
    """Raises SLACKWATER_SCHEMA_NOT_FOUND, SLACKWATER_SYSTEM_OBJECT."""
    schema = state.schema(name)
    if schema.is_system:
        raise user_error("SLACKWATER_SYSTEM_OBJECT", objectName=f"{CATALOG_NAME}.{schema.name}")
    commented = replace(schema, comment=comment)
    return replace(state, schemas={**state.schemas, fold(schema.name): commented})


def _drop_schema(state: CatalogState, op: DropSchema) -> CatalogState:
    """Raises SLACKWATER_SCHEMA_NOT_FOUND, _SCHEMA_NOT_EMPTY, _SYSTEM_OBJECT."""
    schema = state.schema(op.name)
    if schema.is_system or fold(schema.name) == DEFAULT_SCHEMA:
        raise user_error("SLACKWATER_SYSTEM_OBJECT", objectName=f"{CATALOG_NAME}.{schema.name}")
    held = state.items_in(schema.name)
    if held and not op.cascade:
        raise user_error(
            "SLACKWATER_SCHEMA_NOT_EMPTY",
            schemaName=schema.name,
            count=str(len(held)),
            objects=", ".join(item.name for item in held),
        )
    emptied = _without(state, _with_parts(state, [item.id for item in held]))
    kept = {key: entry for key, entry in emptied.schemas.items() if entry.id != schema.id}
    return replace(emptied, schemas=kept)


def _rename_schemas(state: CatalogState, names: Mapping[str, str]) -> CatalogState:
    """Raises SLACKWATER_SCHEMA_NOT_FOUND, _SCHEMA_ALREADY_EXISTS, _RESERVED_NAME, _SYSTEM_OBJECT.

    A schema of the name `default` is there for ever, though it need not be the same one.
    """
    renamed: dict[GlobalId, SchemaEntry] = {}
    for before, after in names.items():
        schema = state.schema(before)
        if schema.is_system:
            raise user_error("SLACKWATER_SYSTEM_OBJECT", objectName=f"{CATALOG_NAME}.{schema.name}")
        renamed[schema.id] = replace(schema, name=after)
    for after in names.values():
        refuse_reserved(after)
    schemas: dict[str, SchemaEntry] = {}
    for each in state.schemas.values():
        schema = renamed.get(each.id, each)
        if fold(schema.name) in schemas:
            raise user_error("SLACKWATER_SCHEMA_ALREADY_EXISTS", schemaName=schema.name)
        schemas[fold(schema.name)] = schema
    if DEFAULT_SCHEMA not in schemas:
        raise user_error("SLACKWATER_SYSTEM_OBJECT", objectName=f"{CATALOG_NAME}.{DEFAULT_SCHEMA}")
    places = {fold(before): after for before, after in names.items()}
    items = [
        replace(item, schema_name=places[fold(item.schema_name)])
        if fold(item.schema_name) in places
        else item
        for item in state.items.values()
    ]
    return _rebuilt(replace(state, schemas=schemas), items)


def _check_cluster_names(state: CatalogState, clusters: Sequence[ClusterEntry]) -> None:
    """Raises SLACKWATER_ALREADY_EXISTS for a name that another cluster has."""
    replaced = {cluster.id for cluster in clusters}
    others = [each for each in state.clusters.values() if each.id not in replaced]
    taken = {fold(each.name) for each in others}
    for cluster in clusters:
        if fold(cluster.name) in taken:
            raise user_error("SLACKWATER_ALREADY_EXISTS", objectName=cluster.name, kind="Cluster")
        taken.add(fold(cluster.name))
        names: set[str] = set()
        for replica in cluster.replicas:
            shown = f"{cluster.name}.{replica.name}"
            if fold(replica.name) in names:
                kind = "Cluster replica"
                raise user_error("SLACKWATER_ALREADY_EXISTS", objectName=shown, kind=kind)
            names.add(fold(replica.name))


def _with_clusters(state: CatalogState, clusters: Iterable[ClusterEntry]) -> CatalogState:
    return replace(state, clusters={**state.clusters, **{each.id: each for each in clusters}})


def _drop_cluster(state: CatalogState, op: DropCluster) -> CatalogState:
    """Raises SLACKWATER_DEPENDENT_OBJECTS."""
    cluster = state.clusters[op.id]
    held = state.on_cluster(op.id)
    if held and not op.cascade:
        raise _dependents_exist("drop", f"the cluster {cluster.name}", held)
    emptied = _without(state, _with_parts(state, [item.id for item in held]))
    kept = {each: entry for each, entry in emptied.clusters.items() if each != op.id}
    return replace(emptied, clusters=kept)


def _create_item(state: CatalogState, item: CatalogItem) -> CatalogState:
    """Raises the errors of names that are taken (42P07, 42710), and FatalError for a used id.

    Also SLACKWATER_SCHEMA_NOT_FOUND, SLACKWATER_SYSTEM_OBJECT, SLACKWATER_DUPLICATE_COLUMN and
    SLACKWATER_DEPENDENCY_DROPPED.
    """
    if item.id in state.items:
        raise FatalError(f"the id {item.id} is used already")
    schema = state.schema(item.schema_name)
    if schema.is_system:
        raise user_error("SLACKWATER_SYSTEM_OBJECT", objectName=f"{CATALOG_NAME}.{schema.name}")
    _check_name_free(state, schema.name, item.name)
    _check_columns(item)
    for used in item.depends_on:
        state.item(used)
    _check_cluster(state, item)
    return state.with_item(replace(item, schema_name=schema.name))


def _drop_item(state: CatalogState, op: DropItem) -> CatalogState:
    """Raises SLACKWATER_DEPENDENT_OBJECTS, _SYSTEM_OBJECT, _DEPENDENCY_DROPPED."""
    item = changeable(state, op.id)
    doomed = _with_parts(state, [item.id])
    if not op.cascade:
        owned = {item.id, *_children(state, item.id)}
        in_the_way = [i for i in doomed if i.id not in owned and i.kind is not ItemKind.INDEX]
        if in_the_way:
            action = "replace" if op.replaces else "drop"
            raise _dependents_exist(action, item.full_name, in_the_way)
    return _without(state, doomed)


def _rename_item(state: CatalogState, op: RenameItem) -> CatalogState:
    """Raises SLACKWATER_DEPENDENT_OBJECTS, and the errors of names that are taken (42P07, 42710).

    Also SLACKWATER_SCHEMA_NOT_FOUND, SLACKWATER_SYSTEM_OBJECT and SLACKWATER_DEPENDENCY_DROPPED.
    """
    item = changeable(state, op.id)
    schema = state.schema(op.new_schema if op.new_schema is not None else item.schema_name)
    if schema.is_system:
        raise user_error("SLACKWATER_SYSTEM_OBJECT", objectName=f"{CATALOG_NAME}.{schema.name}")
    # A change of case alone keeps its own entry.
    if state.find(schema.name, op.new_name) != item:
        _check_name_free(state, schema.name, op.new_name)
    users = state.dependents(item.id)
    # A table that a source fills shows the name that the source has then.
    dependents = [i for i in users if i.kind not in _BY_ID and i.feeder != item.id]
    # What uses a connection knows it by its id, and shows the name that it has then.
    if dependents and item.kind is not ItemKind.CONNECTION:
        raise _dependents_exist("rename", item.full_name, dependents)
    renamed = replace(item, name=op.new_name, schema_name=schema.name)
    return _rebuilt(state, [renamed if i.id == item.id else i for i in state.items.values()])


def _alter_item(state: CatalogState, op: AlterItem) -> CatalogState:
    """Raises SLACKWATER_DUPLICATE_COLUMN, _SYSTEM_OBJECT, _DEPENDENCY_DROPPED."""
    item = changeable(state, op.id)
    after = replace(
        item,
        details=item.details if op.details is None else op.details,
        comment=item.comment if op.comment is None else (op.comment or None),
        desc=item.desc if op.desc is None else op.desc,
        create_sql=item.create_sql if op.create_sql is None else op.create_sql,
        shard_id=item.shard_id if op.shard_id is None else op.shard_id,
        depends_on=item.depends_on if op.depends_on is None else op.depends_on,
        cluster=item.cluster if op.cluster is None else op.cluster,
    )
    _check_columns(after)
    _check_cluster(state, after)
    if after.depends_on != item.depends_on:
        for used in after.depends_on:
            state.item(used)
        return _rebuilt(state, [after if i.id == item.id else i for i in state.items.values()])
    # Names and dependencies are untouched, so the maps stay.
    return replace(state, items={**state.items, item.id: after})


def changeable(state: CatalogState, global_id: GlobalId) -> CatalogItem:
    """The object. Raises SLACKWATER_SYSTEM_OBJECT for one of the system."""
    item = state.item(global_id)
    if is_system(item.id):
        raise user_error("SLACKWATER_SYSTEM_OBJECT", objectName=item.full_name)
    return item


def _with_parts(state: CatalogState, roots: Iterable[GlobalId]) -> tuple[CatalogItem, ...]:
    """`roots`, all that depends on them, and the parts of all of these, transitively."""
    wanted, found = list(roots), 0
    while True:
        doomed = state.with_dependents(wanted)
        if len(doomed) == found:
            return doomed
        found = len(doomed)
        wanted += [child for item in doomed for child in _children(state, item.id)]


def _children(state: CatalogState, parent: GlobalId) -> tuple[GlobalId, ...]:
    return tuple(item.id for item in state.items.values() if item.parent == parent)


def _check_name_free(state: CatalogState, schema_name: str, name: str) -> None:
    taken = state.find(schema_name, name)
    if taken is None:
        return
    condition = (
        "SLACKWATER_TABLE_ALREADY_EXISTS" if taken.kind.is_relation else "SLACKWATER_ALREADY_EXISTS"
    )
    kind = taken.kind.display_name
    shown = kind if taken.kind.is_relation else kind.capitalize()
    raise user_error(condition, objectName=taken.full_name, kind=shown)


def _check_cluster(state: CatalogState, item: CatalogItem) -> None:
    """Raises SLACKWATER_DEPENDENCY_DROPPED if the cluster of the item was dropped meanwhile."""
    if item.cluster is not None and item.cluster not in state.clusters:
        shown = f"The cluster of {item.full_name}"
        raise user_error("SLACKWATER_DEPENDENCY_DROPPED", objectName=shown)


def _check_columns(item: CatalogItem) -> None:
    seen: set[str] = set()
    is_read = item.feeder is not None
    for column in () if item.desc is None else item.desc.columns:
        if fold(column.name) in seen:
            raise user_error(
                "SLACKWATER_DUPLICATE_COLUMN",
                columnName=column.name,
                objectName=item.full_name,
            )
        seen.add(fold(column.name))
        # The fields of what comes from elsewhere are found by their names.
        unclear = unclear_field(column.name, column.spark_type) if is_read else None
        if unclear is not None:
            raise user_error(
                "SLACKWATER_DUPLICATE_COLUMN", columnName=unclear, objectName=item.full_name
            )


def _dependents_exist(
    action: str, shown: str, dependents: Sequence[CatalogItem]
) -> SlackwaterError:
    named = ", ".join(
        f"{each.kind.display_name} {each.full_name}"
        for each in sorted(dependents, key=lambda each: each.full_name)
    )
    return user_error(
        "SLACKWATER_DEPENDENT_OBJECTS",
        action=action,
        objectName=shown,
        dependents=named,
    )


def _without(state: CatalogState, doomed: Iterable[CatalogItem]) -> CatalogState:
    ids = {item.id for item in doomed}
    return _rebuilt(state, [item for item in state.items.values() if item.id not in ids])


def _rebuilt(state: CatalogState, items: Iterable[CatalogItem]) -> CatalogState:
    return CatalogState.of(
        state.schemas.values(), items, state.revision, state.parameters, state.clusters.values()
    )


def _difference(before: CatalogState, after: CatalogState) -> CatalogDiff:
    gone = [i for i in before.items if i not in after.items]
    old_schemas = {s.id: s for s in before.schemas.values()}
    new_schemas = {s.id: s for s in after.schemas.values()}
    old_clusters, new_clusters = before.clusters, after.clusters
    wanted = set(gone)
    return CatalogDiff(
        schemas_created=tuple(s for s in new_schemas.values() if s.id not in old_schemas),
        schemas_dropped=tuple(s for s in old_schemas.values() if s.id not in new_schemas),
        schemas_altered=tuple(
            AlteredSchema(old_schemas[s.id], s)
            for s in new_schemas.values()
            if s.id in old_schemas and s != old_schemas[s.id]
        ),
        created=tuple(i for i in after.items.values() if i.id not in before.items),
        dropped=tuple(i for i in before.with_dependents(gone) if i.id in wanted),
        altered=tuple(
            Altered(old, new)
            for new in after.items.values()
            # Most are the same object, which is quicker to see than that they are equal.
            if (old := before.items.get(new.id)) is not None and old is not new and old != new
        ),
        parameters=tuple(
            (name, after.parameters.get(name))
            for name in sorted({*before.parameters, *after.parameters})
            if before.parameters.get(name) != after.parameters.get(name)
        ),
        clusters_created=tuple(c for c in new_clusters.values() if c.id not in old_clusters),
        clusters_dropped=tuple(c for c in old_clusters.values() if c.id not in new_clusters),
        clusters_altered=tuple(
            AlteredCluster(old_clusters[c.id], c)
            for c in new_clusters.values()
            if c.id in old_clusters and c != old_clusters[c.id]
        ),
    )
