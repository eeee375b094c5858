"""The catalog as an immutable value.

Names compare without case and keep the case that they were given. All kinds of a schema's objects
share one name space. Ids are never reused; an object keeps its id for life.

Source: spec coordinator 4.2, 4.4.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeVar

from cattrs import Converter

from slackwater.adapter.catalog.clusters import DEFAULT_CLUSTER, ClusterEntry
from slackwater.adapter.catalog.details import (
    NO_DETAILS,
    ChangefeedDetails,
    Details,
    FilesDetails,
    IngestedDetails,
    KafkaDetails,
    LakeDetails,
    MaterializedViewDetails,
    PartDetails,
    ProgressDetails,
    Retaining,
    SinkDetails,
    SourceTableDetails,
    SubsourceDetails,
    TableDetails,
    ViewDetails,
    WebhookDetails,
)
from slackwater.adapter.catalog.details import from_json as details_of
from slackwater.adapter.catalog.details import to_json as details_json
from slackwater.repr.errors import FatalError, SlackwaterError, user_error
from slackwater.repr.ids import GlobalId, is_system
from slackwater.repr.refresh import RefreshSchedule
from slackwater.repr.relation import RelationDesc

D = TypeVar("D", bound=Details)

CATALOG_NAME = "slackwater"
DEFAULT_SCHEMA = "default"


class ItemKind(Enum):
    """Kinds of objects, by the names that the protocol uses."""

    TABLE = "table"
    SOURCE = "source"
    VIEW = "view"
    MATERIALIZED_VIEW = "materialized-view"
    SINK = "sink"
    INDEX = "index"
    SECRET = "secret"
    CONNECTION = "connection"
    SYSTEM_TABLE = "system-table"

    @property
    def display_name(self) -> str:
        """The kind in the words of messages."""
        return self.value.replace("-", " ")

    @property
    def is_relation(self) -> bool:
        """Whether it has columns and can be read."""
        return self not in _NOT_READ

    @property
    def is_on_cluster(self) -> bool:
        """Whether a cluster runs it."""
        return self.is_maintained or self in (ItemKind.SOURCE, ItemKind.SINK)

    @property
    def is_maintained(self) -> bool:
        """Whether a dataflow maintains it."""
        return self in (ItemKind.MATERIALIZED_VIEW, ItemKind.INDEX)


_NOT_READ = frozenset({ItemKind.SINK, ItemKind.INDEX, ItemKind.SECRET, ItemKind.CONNECTION})


def fold(name: str) -> str:
    """The form of a name in which it is compared."""
    return name.casefold()


@dataclass(frozen=True, slots=True)
class SchemaEntry:
    id: GlobalId
    name: str
    comment: str | None = None

    @property
    def is_system(self) -> bool:
        return is_system(self.id)


@dataclass(frozen=True, slots=True)
class StoredCollection:
    """The columns and the shard of an object that has contents of its own.

    `errors_shard` is the shard of the errors in the contents; None: there are never any.
    """

    desc: RelationDesc
    shard_id: int
    errors_shard: int | None


@dataclass(frozen=True, slots=True)
class CatalogItem:
    """One object.

    `shard_id` is its durable collection; views, indexes and system relations have none. `details`
    has what belongs to its kind. An object with a `parent` lives and dies with it. `cluster` runs
    it; None: none does.
    """

    id: GlobalId
    kind: ItemKind
    schema_name: str
    name: str
    create_sql: str
    desc: RelationDesc | None = None
    shard_id: int | None = None
    depends_on: tuple[GlobalId, ...] = ()
    comment: str | None = None
    owner: str = ""
    created_ms: int = 0
    details: Details = NO_DETAILS
    cluster: GlobalId | None = None

    @property
    def full_name(self) -> str:
        return f"{CATALOG_NAME}.{self.schema_name}.{self.name}"

    @property
    def parent(self) -> GlobalId | None:
        return self.details.parent if isinstance(self.details, PartDetails) else None

    @property
    def direct_dependencies(self) -> tuple[GlobalId, ...]:
        """The objects that its definition names; `depends_on` also has those below these views."""
        match self.details:
            case ViewDetails(named=named) | MaterializedViewDetails(named=named):
                return self.depends_on if named is None else named
            case _:
                return self.depends_on

    @property
    def feeder(self) -> GlobalId | None:
        """The source that fills it: of a source itself or the whole that it is a part of, of a
        table and its dead letters the table's; None: none does."""
        later = self.later_export
        if later is not None:
            return later[0]
        return self.parent or self.id if self.kind is ItemKind.SOURCE else None

    @property
    def later_export(self) -> tuple[GlobalId, str] | None:
        """The source that fills it, and its export there, of what a source may get while it runs:
        a table, and its dead letters. A step of the source has its first contents."""
        match self.details:
            case SourceTableDetails(source=source, export=export):
                return source, export
            case SubsourceDetails(source=str(source), export=export):
                return source, export
            case _:
                return None

    @property
    def is_writable(self) -> bool:
        """Whether statements write it: a table that no source fills."""
        return self.kind is ItemKind.TABLE and not isinstance(self.details, SourceTableDetails)

    @property
    def is_progress(self) -> bool:
        """Whether it is the progress relation of a source, which is its parent."""
        return isinstance(self.details, ProgressDetails)

    @property
    def is_webhook(self) -> bool:
        """Whether it is a source that takes requests."""
        return isinstance(self.details, WebhookDetails)

    @property
    def is_changefeed(self) -> bool:
        """Whether it is a source of changefeeds, whose tables are objects of their own."""
        return isinstance(self.details, ChangefeedDetails)

    @property
    def errors_shard(self) -> int | None:
        """The shard of the errors in its contents; None: it never has errors."""
        match self.details:
            case (
                FilesDetails(errors=shard_id)
                | KafkaDetails(errors=shard_id)
                | LakeDetails(errors=shard_id)
                | SubsourceDetails(errors=shard_id)
                | MaterializedViewDetails(errors=shard_id)
                | SourceTableDetails(errors=shard_id)
            ):
                return shard_id
            case _:
                return None

    @property
    def progress_shard(self) -> int | None:
        """The shard whose upper is the frontier of this sink; None for other objects."""
        return self.details.progress_shard if isinstance(self.details, SinkDetails) else None

    @property
    def retain_history_ms(self) -> int | None:
        """Milliseconds of history that it keeps; None: as much as is kept of everything."""
        return self.details.retain_history_ms if isinstance(self.details, Retaining) else None

    @property
    def refresh(self) -> RefreshSchedule | None:
        """When the view is refreshed; None: with each commit, or it is no materialized view."""
        details = self.details
        return details.refresh if isinstance(details, MaterializedViewDetails) else None

    @property
    def replaces(self) -> GlobalId | None:
        """The view whose place it is to take; None: it is no replacement."""
        details = self.details
        return details.replaces if isinstance(details, MaterializedViewDetails) else None

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties that users, and Spark for its views, have given it."""
        match self.details:
            case TableDetails(properties=properties) | ViewDetails(properties=properties):
                return properties
            case _:
                return {}

    @property
    def stored(self) -> StoredCollection:
        """Its columns and shards. Raises FatalError if it has no contents of its own."""
        if self.desc is None or self.shard_id is None:
            raise FatalError(f"{self.full_name} ({self.id}) has no contents of its own")
        return StoredCollection(self.desc, self.shard_id, self.errors_shard)

    def has_types_of(self, stored: RelationDesc) -> bool:
        """Whether no column has another type than the column of that name in its shard."""
        types = {} if self.desc is None else {c.name: c.spark_type for c in self.desc.columns}
        return all(types.get(c.name, c.spark_type) == c.spark_type for c in stored.columns)

    def of(self, kind: type[D]) -> D:
        """Its details, which are of that kind. Raises FatalError if they are not."""
        if not isinstance(self.details, kind):
            raise FatalError(f"{self.full_name} ({self.id}) has no {kind.__name__}")
        return self.details

    def wrong_kind(self, expected: str) -> SlackwaterError:
        """SLACKWATER_WRONG_KIND for a statement that takes objects of the kind `expected`."""
        return user_error(
            "SLACKWATER_WRONG_KIND",
            objectName=self.full_name,
            actualKind=self.kind.display_name,
            expectedKind=expected,
        )

    @property
    def ingested(self) -> IngestedDetails:
        """The details of a source that an ingestion reads. Raises FatalError if it is none."""
        if not isinstance(self.details, IngestedDetails):
            raise FatalError(f"{self.full_name} ({self.id}) is read by no ingestion")
        return self.details

    @property
    def progress(self) -> GlobalId:
        """The progress relation of such a source."""
        found = self.ingested.progress
        if found is None:
            raise FatalError(f"the source {self.full_name} ({self.id}) has no progress relation")
        return found

    def to_json(self) -> str:
        """The form in the metastore."""
        found = _converter.unstructure(replace(self, details=NO_DETAILS))
        return json.dumps({**found, "details": details_json(self.details)}, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> CatalogItem:
        """The object that `to_json` wrote."""
        found = json.loads(text)
        details = details_of(found["kind"], found.pop("details"))
        if "cluster" not in found and ItemKind(found["kind"]).is_on_cluster:
            # Earlier releases had one cluster, which nobody could drop.
            found["cluster"] = DEFAULT_CLUSTER.id
        return replace(_converter.structure(found, CatalogItem), details=details)


_converter = Converter(detailed_validation=False)
_converter.register_unstructure_hook(RelationDesc, RelationDesc.to_json)
_converter.register_structure_hook(RelationDesc, lambda text, _: RelationDesc.from_json(text))
# The caller puts in their place what the kind of the object says that they are.
_converter.register_structure_hook(Details, lambda _, __: NO_DETAILS)


@dataclass(frozen=True, slots=True)
class CatalogState:
    """A snapshot. `revision` grows with every change; keys of the maps are folded names and ids."""

    revision: int = 0
    schemas: Mapping[str, SchemaEntry] = field(default_factory=dict)
    items: Mapping[GlobalId, CatalogItem] = field(default_factory=dict)
    names: Mapping[tuple[str, str], GlobalId] = field(default_factory=dict)
    used_by: Mapping[GlobalId, frozenset[GlobalId]] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    """The values that ALTER SYSTEM has set, by the names of their parameters."""
    clusters: Mapping[GlobalId, ClusterEntry] = field(default_factory=dict)

    @staticmethod
    def of(
        schemas: Iterable[SchemaEntry],
        items: Iterable[CatalogItem],
        revision: int = 0,
        parameters: Mapping[str, str] | None = None,
        clusters: Iterable[ClusterEntry] = (DEFAULT_CLUSTER,),
    ) -> CatalogState:
        """The state with these entries, which are not checked."""
        by_id = {item.id: item for item in items}
        users: dict[GlobalId, set[GlobalId]] = {}
        for item in by_id.values():
            for used in item.depends_on:
                users.setdefault(used, set()).add(item.id)
        return CatalogState(
            revision=revision,
            schemas={fold(schema.name): schema for schema in schemas},
            items=by_id,
            names={(fold(i.schema_name), fold(i.name)): i.id for i in by_id.values()},
            used_by={used: frozenset(ids) for used, ids in users.items()},
            parameters=parameters or {},
            clusters={cluster.id: cluster for cluster in clusters},
        )

    def with_item(self, item: CatalogItem) -> CatalogState:
        """The state with one more object, whose id and name are new. Nothing is checked."""
        users = {each: self.used_by.get(each, frozenset()) | {item.id} for each in item.depends_on}
        return replace(
            self,
            items={**self.items, item.id: item},
            names={**self.names, (fold(item.schema_name), fold(item.name)): item.id},
            used_by={**self.used_by, **users},
        )

    def validate(self) -> None:
        """Raises `FatalError` when names, uses and entries contradict each other."""
        whole = CatalogState.of(self.schemas.values(), self.items.values(), self.revision)
        if len(whole.names) < len(self.items):
            raise FatalError("two objects of a schema have one name")
        if whole.names != self.names or whole.schemas != self.schemas:
            raise FatalError("a name of the catalog does not lead to its object")
        if whole.used_by != {used: ids for used, ids in self.used_by.items() if ids}:
            raise FatalError("the uses of objects are not those of their definitions")
        named = {fold(cluster.name) for cluster in self.clusters.values()}
        if len(named) < len(self.clusters):
            raise FatalError("two clusters have one name")
        for cluster in self.clusters.values():
            cluster.validate()
        for item in self.items.values():
            if item.cluster is not None and item.cluster not in self.clusters:
                raise FatalError(f"{item.full_name} ({item.id}) needs the cluster {item.cluster}")
            parents = () if item.parent is None else (item.parent,)
            missing = [each for each in (*item.depends_on, *parents) if each not in self.items]
            if missing or self.find_schema(item.schema_name) is None:
                raise FatalError(f"{item.full_name} ({item.id}) needs {missing} or its schema")

    def item(self, global_id: GlobalId) -> CatalogItem:
        """The object. Raises SLACKWATER_DEPENDENCY_DROPPED if it does not exist any more."""
        found = self.items.get(global_id)
        if found is None:
            raise user_error("SLACKWATER_DEPENDENCY_DROPPED", objectName=global_id)
        return found

    def find_cluster(self, name: str) -> ClusterEntry | None:
        """The cluster of that name, in any case."""
        wanted = fold(name)
        return next((c for c in self.clusters.values() if fold(c.name) == wanted), None)

    def id_of_cluster(self, name: str) -> GlobalId | None:
        """The id of the cluster of that name; None: it is gone, or never was."""
        found = self.find_cluster(name)
        return None if found is None else found.id

    def cluster(self, name: str) -> ClusterEntry:
        """The cluster of that name. Raises SLACKWATER_UNKNOWN_CLUSTER."""
        found = self.find_cluster(name)
        if found is None:
            names = sorted(cluster.name for cluster in self.clusters.values())
            known = ", ".join(names) or "none: CREATE CLUSTER makes one"
            raise user_error("SLACKWATER_UNKNOWN_CLUSTER", cluster=name, clusters=known)
        return found

    def cluster_running(self, item: CatalogItem) -> ClusterEntry | None:
        """The cluster that runs the item; None: none does, or it was dropped with the item."""
        return None if item.cluster is None else self.clusters.get(item.cluster)

    def on_cluster(self, cluster: GlobalId) -> tuple[CatalogItem, ...]:
        """The objects that the cluster runs, without the parts of sources."""
        found = (i for i in self.items.values() if i.cluster == cluster and i.parent is None)
        return tuple(sorted(found, key=lambda i: (fold(i.full_name), i.id)))

    def find_schema(self, name: str) -> SchemaEntry | None:
        return self.schemas.get(fold(name))

    def schema(self, name: str) -> SchemaEntry:
        """The schema of that name. Raises SLACKWATER_SCHEMA_NOT_FOUND."""
        found = self.find_schema(name)
        if found is None:
            raise user_error("SLACKWATER_SCHEMA_NOT_FOUND", schemaName=name)
        return found

    def find(self, schema_name: str, name: str) -> CatalogItem | None:
        """The object of that name, whatever its kind."""
        global_id = self.names.get((fold(schema_name), fold(name)))
        return None if global_id is None else self.items[global_id]

    def get(self, schema_name: str, name: str, kind: ItemKind | None = None) -> CatalogItem:
        """The object of that name.

        Raises SLACKWATER_UNKNOWN_RELATION or, if a kind is wanted, SLACKWATER_UNKNOWN_OBJECT and
        SLACKWATER_WRONG_KIND.
        """
        found = self.find(schema_name, name)
        shown = f"{CATALOG_NAME}.{schema_name}.{name}"
        if found is None:
            raise _unknown(shown, kind)
        if kind is not None and found.kind is not kind:
            raise found.wrong_kind(kind.display_name)
        return found

    def items_in(self, schema_name: str) -> tuple[CatalogItem, ...]:
        """The objects of a schema, by name."""
        wanted = fold(schema_name)
        found = [i for i in self.items.values() if fold(i.schema_name) == wanted]
        return tuple(sorted(found, key=lambda i: (fold(i.name), i.id)))

    def dependents(self, global_id: GlobalId) -> tuple[CatalogItem, ...]:
        """The objects that use it directly, oldest first."""
        users = self.used_by.get(global_id, frozenset())
        return tuple(self.items[each] for each in sorted(users, key=_age))

    def tables_of(self, source: GlobalId) -> dict[str, CatalogItem]:
        """The tables of a source that were made by themselves, by their exports, oldest first."""
        return {
            item.details.export: item
            for item in self.dependents(source)
            if isinstance(item.details, SourceTableDetails) and item.details.source == source
        }

    def later_exports_of(self, source: GlobalId) -> dict[str, CatalogItem]:
        """The tables of a source that were made by themselves, and their dead letters, by their
        exports."""
        found: dict[str, CatalogItem] = {}
        for export, table in self.tables_of(source).items():
            found[export] = table
            letters = self.dead_letters_of(table)
            if letters is not None:
                found[letters.of(SubsourceDetails).export] = letters
        return found

    def dead_letters_of(self, table: CatalogItem) -> CatalogItem | None:
        """The dead letters of a table of a source; None: it has none."""
        named = table.of(SourceTableDetails).dead_letters
        return None if named is None else self.items.get(named)

    def with_dependents(self, roots: Iterable[GlobalId]) -> tuple[CatalogItem, ...]:
        """`roots` and all that depends on them, transitively; dependents come first."""
        ordered: list[GlobalId] = []
        seen: set[GlobalId] = set()
        # An explicit stack: chains of views may be deeper than Python's recursion.
        stack = [(root, False) for root in reversed(list(roots))]
        while stack:
            current, expanded = stack.pop()
            if expanded:
                ordered.append(current)
            elif current not in seen:
                seen.add(current)
                stack.append((current, True))
                stack += [(user.id, False) for user in self.dependents(current)]
        return tuple(self.items[each] for each in ordered)

    def below(
        self,
        ids: Iterable[GlobalId],
        ends: Callable[[CatalogItem], bool] = lambda item: False,
    ) -> list[CatalogItem]:
        """The objects `ids` and those that they depend on, transitively, each once.

        Nothing is looked for below an object of which `ends` is true. Ids of objects that do not
        exist are left out.
        """
        found: dict[GlobalId, CatalogItem] = {}
        waiting = list(ids)
        while waiting:
            item = self.items.get(waiting.pop())
            if item is not None and item.id not in found:
                found[item.id] = item
                waiting += () if ends(item) else item.depends_on
        return list(found.values())

    def topological(self) -> tuple[CatalogItem, ...]:
        """All objects; what an object depends on comes before it."""
        ids = sorted(self.items, key=_age, reverse=True)
        return tuple(reversed(self.with_dependents(ids)))


def _age(global_id: GlobalId) -> tuple[str, int]:
    return global_id[:1], int(global_id[1:])


def _unknown(shown: str, kind: ItemKind | None) -> SlackwaterError:
    if kind is None:
        return user_error("SLACKWATER_UNKNOWN_RELATION", objectName=shown)
    return user_error("SLACKWATER_UNKNOWN_OBJECT", kind=kind.display_name, objectName=shown)


def shards_of(item: CatalogItem) -> tuple[int, ...]:
    """The durable shards of an item: its own and its internal ones."""
    own = [
        each for each in (item.shard_id, item.errors_shard, item.progress_shard) if each is not None
    ]
    return tuple(own)
