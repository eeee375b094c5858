"""The lineage of a change of the catalog: for each object a job, with what it reads and fills.

A value of the catalog's states before and after alone. Names of datasets elsewhere are those that
OpenLineage gives them, so that the lineage of other systems meets ours there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import urlsplit

from slackwater.adapter.catalog.details import (
    ChangefeedDetails,
    ConnectionDetails,
    FilesDetails,
    KafkaDetails,
    LakeDetails,
    MaterializedViewDetails,
    PostgresDetails,
    SinkDetails,
    SourceTableDetails,
)
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.adapter.catalog.ops import CatalogDiff
from slackwater.adapter.catalog.render import current_sql
from slackwater.planner.parser.redaction import redacted
from slackwater.planner.plan.column_lineage import ColumnRead
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc
from slackwater.storage.kafka.sink_messages import KafkaSinkConfig
from slackwater.storage.lake.config import DeltaPlace, LakePlace, LakeSinkConfig
from slackwater.storage.sink_files import SinkConfig

KAFKA_PORT, POSTGRES_PORT = 9092, 5432

_JOBS = frozenset(
    {
        ItemKind.TABLE,
        ItemKind.SOURCE,
        ItemKind.VIEW,
        ItemKind.MATERIALIZED_VIEW,
        ItemKind.SINK,
    }
)


@dataclass(frozen=True, slots=True)
class LineageColumn:
    """A column of a dataset, with its type in SQL."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class LineageRead:
    """A column of a relation of ours, and what becomes of it: a word of OpenLineage."""

    namespace: str
    name: str
    column: str
    becomes: str


@dataclass(frozen=True, slots=True)
class LineageDataset:
    """A relation of ours, or something elsewhere, whose columns we do not say.

    `made_of` has for each column those of which it is made, where that is known, and `rows` those
    by which rows are filtered, joined, grouped and so on.
    """

    namespace: str
    name: str
    columns: tuple[LineageColumn, ...] = ()
    made_of: tuple[tuple[LineageRead, ...], ...] = ()
    rows: tuple[LineageRead, ...] = ()


@dataclass(frozen=True, slots=True)
class LineageEvent:
    """An object that was created, altered or dropped.

    `sql` makes it, without its literals. `renamed_from` is its name before, if it has another.
    """

    change: Literal["CREATE", "ALTER", "DROP"]
    namespace: str
    name: str
    kind: str
    sql: str
    inputs: tuple[LineageDataset, ...]
    outputs: tuple[LineageDataset, ...]
    renamed_from: str | None = None


def lineage_of(
    diff: CatalogDiff, before: CatalogState, after: CatalogState, namespace: str
) -> tuple[LineageEvent, ...]:
    """The events of a change, those of dropped objects first. `namespace` is the environment's."""
    old, new = _Lineage(before, namespace), _Lineage(after, namespace)
    dropped = (old.event("DROP", item) for item in _jobs(diff.dropped))
    altered = (
        new.event("ALTER", each.after, each.before)
        for each in diff.altered
        if _is_job(each.after) and old.said(each.before) != new.said(each.after)
    )
    created = (new.event("CREATE", item) for item in _jobs(diff.created))
    return (*dropped, *altered, *created)


def _jobs(items: Iterable[CatalogItem]) -> Iterator[CatalogItem]:
    return filter(_is_job, items)


def _is_job(item: CatalogItem) -> bool:
    """Whether it is an object by itself; a part of a source is told of with its source."""
    return item.kind in _JOBS and item.parent is None


@dataclass(frozen=True, slots=True)
class _Lineage:
    """The lineage of the objects of one state of the catalog."""

    state: CatalogState
    namespace: str

    def event(
        self,
        change: Literal["CREATE", "ALTER", "DROP"],
        item: CatalogItem,
        earlier: CatalogItem | None = None,
    ) -> LineageEvent:
        name, sql, inputs, outputs = self.said(item)
        is_renamed = earlier is not None and earlier.full_name != item.full_name
        return LineageEvent(
            change,
            self.namespace,
            name,
            item.kind.value,
            sql,
            inputs,
            outputs,
            earlier.full_name if earlier is not None and is_renamed else None,
        )

    def said(
        self, item: CatalogItem
    ) -> tuple[str, str, tuple[LineageDataset, ...], tuple[LineageDataset, ...]]:
        """All that an event says of the object: an alteration of nothing else is not told."""
        sql = redacted(current_sql(self.state, item))
        return item.full_name, sql, tuple(self._inputs(item)), tuple(self._outputs(item))

    def _inputs(self, item: CatalogItem) -> Iterator[LineageDataset]:
        details = item.details
        match details:
            case FilesDetails(config=files):
                yield LineageDataset("file", files.path)
            case ChangefeedDetails(config=feed) if feed.path is not None:
                yield LineageDataset("file", feed.path)
            case KafkaDetails(config=topic, connection=connection):
                yield LineageDataset(self._kafka(connection), topic.topic)
            case PostgresDetails(config=published, connection=connection):
                for table in published.tables:
                    yield self._postgres(connection, table.full_name)
            case LakeDetails(config=lake, connection=connection):
                yield self._lake(lake.place, connection)
            case SourceTableDetails(source=source, upstream=upstream):
                found = self.state.items.get(source)
                if found is not None and isinstance(found.details, PostgresDetails) and upstream:
                    yield self._postgres(found.details.connection, upstream.full_name)
                elif found is not None:
                    yield from self._inputs(found)
            case _:
                for each in sorted(item.direct_dependencies):
                    used = self.state.items.get(each)
                    if used is not None and used.kind.is_relation:
                        yield self._own(used)

    def _outputs(self, item: CatalogItem) -> Iterator[LineageDataset]:
        details = item.details
        if not isinstance(details, SinkDetails):
            yield self._filled(item)
            for each in self.state.items.values():
                if each.parent == item.id:
                    yield self._own(each)
            return
        match details.config:
            case SinkConfig(path):
                yield LineageDataset("file", path)
            case KafkaSinkConfig(topic):
                yield LineageDataset(self._kafka(details.connection), topic)
            case LakeSinkConfig(place):
                yield self._lake(place, details.connection)

    def _own(self, item: CatalogItem) -> LineageDataset:
        columns = (item.desc or RelationDesc(())).columns
        shown = tuple(LineageColumn(each.name, each.sql_type) for each in columns)
        return LineageDataset(self.namespace, item.full_name, shown)

    def _filled(self, item: CatalogItem) -> LineageDataset:
        """The relation, and of a materialized view of which columns its own are made."""
        own, details = self._own(item), item.details
        if not isinstance(details, MaterializedViewDetails) or details.lineage is None:
            return own
        found = details.lineage
        made_of = tuple(tuple(self._reads(each)) for each in found.columns)
        return replace(own, made_of=made_of, rows=tuple(self._reads(found.rows)))

    def _reads(self, reads: Iterable[ColumnRead]) -> Iterator[LineageRead]:
        for each in reads:
            item = self.state.items.get(GlobalId(each.collection))
            if item is not None:
                yield LineageRead(self.namespace, item.full_name, each.column, each.becomes)

    def _connection(self, connection: GlobalId | None) -> ConnectionDetails | None:
        item = None if connection is None else self.state.items.get(connection)
        return None if item is None else item.of(ConnectionDetails)

    def _kafka(self, connection: GlobalId | None) -> str:
        found = self._connection(connection)
        brokers = () if found is None else found.texts("BROKERS")
        return f"kafka://{_with_port(brokers[0], KAFKA_PORT)}" if brokers else "kafka"

    def _postgres(self, connection: GlobalId, table: str) -> LineageDataset:
        found = self._connection(connection)
        if found is None:
            return LineageDataset("postgres", table)
        # What is a secret has no text, and no name here.
        host, database = (next(iter(found.texts(name)), "") for name in ("HOST", "DATABASE"))
        port = next(iter(found.texts("PORT")), str(POSTGRES_PORT))
        return LineageDataset(f"postgres://{host}:{port}", f"{database}.{table}")

    def _lake(self, place: LakePlace, connection: GlobalId | None) -> LineageDataset:
        if isinstance(place, DeltaPlace):
            parts = urlsplit(place.uri)
            if parts.scheme == "s3":
                return LineageDataset(f"s3://{parts.netloc}", parts.path.strip("/"))
            return LineageDataset("file", place.uri)
        item = None if connection is None else self.state.items.get(connection)
        catalog = "" if item is None else f"/{item.full_name}"
        return LineageDataset(f"{self.namespace}{catalog}", f"{place.namespace}.{place.table}")


def _with_port(broker: str, port: int) -> str:
    return broker if broker.rpartition(":")[2].isdecimal() else f"{broker}:{port}"
