"""New sinks that write tables of a lake: from the statement to the item of the catalog."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import SinkDetails
from slackwater.adapter.catalog.model import CatalogItem, CatalogState
from slackwater.adapter.catalog.render import name_of
from slackwater.adapter.ddl.planned_kafka_sinks import KafkaSinkPlanner, PlannedSink
from slackwater.adapter.ddl.planned_schemas import connection_named
from slackwater.adapter.sources.sink_targets import Targets
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.connection_statements import ConnectionKind
from slackwater.planner.parser.lake_sink import (
    DeltaSinkConnector,
    IcebergSinkConnector,
    LakeSinkConnector,
)
from slackwater.planner.parser.names import QualifiedName
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc
from slackwater.storage.discovery import local_path
from slackwater.storage.lake.config import (
    DEFAULT_COMMIT_INTERVAL_MS,
    DeltaPlace,
    IcebergPlace,
    LakePlace,
    LakeSinkConfig,
    check_lake_sink,
)


@dataclass(frozen=True, slots=True)
class LakeSinkPlanner:
    """Plans the catalog items of sinks that write tables, which it makes if they are not there."""

    state: Callable[[], CatalogState]
    targets: Targets

    def plan(
        self, blank: CatalogItem, context: Context, statement: st.CreateSink, desc: RelationDesc
    ) -> PlannedSink:
        """The sink `blank` over a relation with these columns; its as-of is chosen later.

        Raises SLACKWATER_SINK_KEY, SLACKWATER_DUPLICATE_COLUMN, SLACKWATER_UNSUPPORTED,
        SLACKWATER_UNKNOWN_OBJECT, and what `Targets.ensure_table` raises.
        """
        envelope = statement.envelope
        match statement.connector:
            case DeltaSinkConnector() as connector:
                named = self._delta(connector)
            case IcebergSinkConnector() as connector:
                named = self._iceberg(context, connector)
            case _:
                raise AssertionError(f"{blank.full_name} writes no table")
        interval_ms = named.connector.commit_interval_ms
        config = LakeSinkConfig(
            place=named.place,
            mode="UPSERT" if envelope.key else "APPEND",
            key=envelope.key,
            is_enforced=named.connector.is_enforced,
            snapshot=statement.snapshot,
            commit_interval_ms=DEFAULT_COMMIT_INTERVAL_MS if interval_ms is None else interval_ms,
        )
        self._check(blank, config, desc, named.connection)
        details = SinkDetails(config, Timestamp(0), connection=named.connection)
        return PlannedSink(replace(statement, connector=named.connector), details)

    def check(self, sink: CatalogItem, config: LakeSinkConfig, desc: RelationDesc) -> None:
        """Finds that the sink can write a relation with these columns, as `plan` does."""
        self._check(sink, config, desc, sink.of(SinkDetails).connection)

    def _check(
        self,
        sink: CatalogItem,
        config: LakeSinkConfig,
        desc: RelationDesc,
        connection: GlobalId | None,
    ) -> None:
        check_lake_sink(config, desc, sink.full_name)
        self.targets.ensure_table(sink, config, desc, connection)

    def _delta(self, connector: DeltaSinkConnector) -> _NamedPlace:
        place = DeltaPlace(local_path(connector.path, os.getcwd()))
        return _NamedPlace(place, connector, None)

    def _iceberg(self, context: Context, connector: IcebergSinkConnector) -> _NamedPlace:
        catalog = self._connection(context, connector.connection, "ICEBERG CATALOG")
        named = replace(connector, connection=name_of(catalog))
        aws = None
        if connector.aws is not None:
            files = self._connection(context, connector.aws, "AWS")
            aws, named = files.id, replace(named, aws=name_of(files))
        place = IcebergPlace(connector.namespace, connector.table, aws)
        return _NamedPlace(place, named, catalog.id)

    def _connection(
        self, context: Context, name: QualifiedName, kind: ConnectionKind
    ) -> CatalogItem:
        return connection_named(self.state(), context, name, kind, "CREATE SINK")


@dataclass(frozen=True, slots=True)
class _NamedPlace:
    """The table of a sink, the statement's part that names it everywhere, and the connection."""

    place: LakePlace
    connector: LakeSinkConnector
    connection: GlobalId | None


@dataclass(frozen=True, slots=True)
class SinkPlanners:
    """The planners of sinks that write elsewhere than into files."""

    kafka: KafkaSinkPlanner
    lakes: LakeSinkPlanner
