"""New sources that read tables of lakes: from the statement to the item of the catalog."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import LakeDetails
from slackwater.adapter.catalog.model import CatalogItem, CatalogState
from slackwater.adapter.catalog.render import name_of
from slackwater.adapter.ddl.planned_kafka import KafkaPlanner
from slackwater.adapter.ddl.planned_postgres import PostgresPlanner
from slackwater.adapter.ddl.planned_schemas import connection_named
from slackwater.adapter.sources.descriptions import DEFAULT_INTERVAL_MS
from slackwater.adapter.sources.lakes import LakeSources
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.lake_source import DeltaSource, IcebergSource, LakeSource
from slackwater.repr.errors import SlackwaterError, invalid_option
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc
from slackwater.storage.discovery import local_path
from slackwater.storage.lake.config import DeltaPlace, IcebergPlace, LakePlace, LakeSourceConfig
from slackwater.storage.lake.history import TableHistory, TableVersion
from slackwater.storage.lake.source_columns import source_columns


@dataclass(frozen=True, slots=True)
class PlannedLakeSource:
    """A new source: the statement by which it is made again, its columns and its details."""

    statement: st.CreateSource
    desc: RelationDesc
    details: LakeDetails


@dataclass(frozen=True, slots=True)
class LakeSourcePlanner:
    """Plans the catalog items of sources that read tables of lakes, which have to be there."""

    state: Callable[[], CatalogState]
    lakes: LakeSources

    def plan(
        self, blank: CatalogItem, context: Context, statement: st.CreateSource
    ) -> PlannedLakeSource:
        """The source `blank`, whose columns are those of the table.

        Raises SLACKWATER_UNKNOWN_OBJECT, SLACKWATER_INVALID_OPTION, what `LakeSources.looked_at`
        raises, and what `source_columns` raises.
        """
        match statement.connector:
            case DeltaSource() as connector:
                place, start = _delta_place(connector), connector.start_version
                named = _Named(place, connector, None)
            case IcebergSource() as connector:
                named, start = self._iceberg(context, connector), None
            case _:
                raise AssertionError(f"{blank.full_name} reads no table of a lake")
        with self.lakes.looked_at(blank.full_name, named.place, named.connection) as table:
            version = table.newest() if start is None else _started(table, start)
            columns = tuple(table.columns(version))
        details = LakeDetails(
            LakeSourceConfig(named.place, columns, start),
            named.connection,
            interval_ms=statement.timestamp_interval_ms or DEFAULT_INTERVAL_MS,
            retain_history_ms=statement.retain_history_ms,
        )
        desc = source_columns(columns, blank.full_name)
        return PlannedLakeSource(replace(statement, connector=named.connector), desc, details)

    def _iceberg(self, context: Context, connector: IcebergSource) -> _Named:
        catalog = connection_named(self.state(), context, connector.connection, "ICEBERG CATALOG")
        made = replace(connector, connection=name_of(catalog))
        aws = None
        if connector.aws is not None:
            files = connection_named(self.state(), context, connector.aws, "AWS")
            aws, made = files.id, replace(made, aws=name_of(files))
        place = IcebergPlace(connector.namespace, connector.table, aws)
        return _Named(place, made, catalog.id)


def _started(table: TableHistory, number: int) -> TableVersion:
    """The version with which the source begins. Raises SLACKWATER_INVALID_OPTION."""
    last = table.newest().number
    if number > last:
        raise _no_start(number, f"the last version of the table is {last}")
    try:
        return table.at(number)
    except SlackwaterError as error:
        if error.condition != "SLACKWATER_SOURCE_HISTORY_LOST":
            raise
        raise _no_start(number, "the table does not have that version any more") from None


def _no_start(number: int, reason: str) -> SlackwaterError:
    return invalid_option("START VERSION", "CREATE SOURCE", str(number), reason)


def _delta_place(connector: DeltaSource) -> DeltaPlace:
    return DeltaPlace(local_path(connector.path, os.getcwd()))


@dataclass(frozen=True, slots=True)
class _Named:
    """The table of a source, the statement's part that names it everywhere, and the connection."""

    place: LakePlace
    connector: LakeSource
    connection: GlobalId | None


@dataclass(frozen=True, slots=True)
class SourcePlanners:
    """The planners of sources that read other systems."""

    kafka: KafkaPlanner
    postgres: PostgresPlanner
    lakes: LakeSourcePlanner
