"""New sources that read tables of lakes: from the statement to the item of the catalog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import LakeDetails
from slackwater.adapter.catalog.model import CatalogItem, CatalogState
from slackwater.adapter.ddl.planned_kafka import KafkaPlanner
from slackwater.adapter.ddl.planned_lake_tables import delta_table, named_table
from slackwater.adapter.ddl.planned_postgres import PostgresPlanner
from slackwater.adapter.sources.descriptions import DEFAULT_INTERVAL_MS
from slackwater.adapter.sources.lakes import LakeSources
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.lake_source import DeltaSource, IcebergSource
from slackwater.repr.errors import SlackwaterError, invalid_option
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc
from slackwater.storage.lake.config import LakePlace, LakeSourceConfig
from slackwater.storage.lake.history import TableHistory, TableVersion
from slackwater.storage.lake.source_columns import source_columns

_STATEMENT = "CREATE SOURCE"


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
        connection: GlobalId | None = None
        place: LakePlace
        match statement.connector:
            case DeltaSource(start_version=start) as connector:
                place, delta = delta_table(self.state(), context, connector.table, _STATEMENT)
                connector = replace(connector, table=delta)
            case IcebergSource() as connector:
                named = named_table(self.state(), context, connector.table, _STATEMENT)
                place, connection, start = named.place, named.connection, None
                connector = replace(connector, table=named.table)
            case _:
                raise AssertionError(f"{blank.full_name} reads no table of a lake")
        with self.lakes.looked_at(blank.full_name, place, connection) as table:
            version = table.newest() if start is None else _started(table, start)
            columns = tuple(table.columns(version))
        details = LakeDetails(
            LakeSourceConfig(place, columns, start),
            connection,
            interval_ms=statement.timestamp_interval_ms or DEFAULT_INTERVAL_MS,
            retain_history_ms=statement.retain_history_ms,
        )
        desc = source_columns(columns, blank.full_name)
        return PlannedLakeSource(replace(statement, connector=connector), desc, details)


def _started(table: TableHistory, number: int) -> TableVersion:
    """The version with which the source begins. Raises SLACKWATER_INVALID_OPTION."""
    last = table.last_number()
    if number > last:
        raise _no_start(number, f"the last version of the table is {last}")
    try:
        return table.at(number)
    except SlackwaterError as error:
        if error.condition != "SLACKWATER_SOURCE_HISTORY_LOST":
            raise
        raise _no_start(number, "the table does not have that version any more") from None


def _no_start(number: int, reason: str) -> SlackwaterError:
    return invalid_option("START VERSION", _STATEMENT, str(number), reason)


@dataclass(frozen=True, slots=True)
class SourcePlanners:
    """The planners of sources that read other systems."""

    kafka: KafkaPlanner
    postgres: PostgresPlanner
    lakes: LakeSourcePlanner
