"""New sinks that write tables of a lake: from the statement to the item of the catalog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import SinkDetails
from slackwater.adapter.catalog.model import CatalogItem, CatalogState
from slackwater.adapter.ddl.planned_kafka_sinks import KafkaSinkPlanner, PlannedSink
from slackwater.adapter.ddl.planned_lake_tables import delta_table, named_table
from slackwater.adapter.sources.sink_targets import Targets
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.lake_sink import DeltaSinkConnector, IcebergSinkConnector
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc
from slackwater.storage.lake.config import (
    DEFAULT_COMMIT_INTERVAL_MS,
    DEFAULT_COMPACT_EVERY,
    DeletesBy,
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
        connection: GlobalId | None = None
        place: LakePlace
        deletes: DeletesBy | None = None
        every: int | None = None
        match statement.connector:
            case DeltaSinkConnector() as connector:
                place, delta = delta_table(self.state(), context, connector.table, "CREATE SINK")
                connector = replace(connector, table=delta)
            case IcebergSinkConnector() as connector:
                named = named_table(self.state(), context, connector.table, "CREATE SINK")
                place, connection = named.place, named.connection
                connector = replace(connector, table=named.table)
                deletes, every = connector.deletes, connector.compact_every
            case _:
                raise AssertionError(f"{blank.full_name} writes no table")
        interval_ms = connector.commit_interval_ms
        config = LakeSinkConfig(
            place=place,
            mode="UPSERT" if envelope.key else "APPEND",
            key=envelope.key,
            is_enforced=connector.is_enforced,
            snapshot=statement.snapshot,
            commit_interval_ms=DEFAULT_COMMIT_INTERVAL_MS if interval_ms is None else interval_ms,
            deletes=deletes or "equality",
            compact_every=DEFAULT_COMPACT_EVERY if every is None else every,
        )
        self._check(blank, config, desc, connection)
        details = SinkDetails(config, Timestamp(0), connection=connection)
        return PlannedSink(replace(statement, connector=connector), details)

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


@dataclass(frozen=True, slots=True)
class SinkPlanners:
    """The planners of sinks that write elsewhere than into files."""

    kafka: KafkaSinkPlanner
    lakes: LakeSinkPlanner
