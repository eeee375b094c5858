"""New sinks that write tables of a lake: from the statement to the item of the catalog."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from slackwater.adapter.catalog.details import SinkDetails
from slackwater.adapter.catalog.model import CatalogItem, CatalogState
from slackwater.adapter.ddl.planned_kafka_sinks import KafkaSinkPlanner, PlannedSink
from slackwater.adapter.sources.sink_targets import Targets
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.lake_sink import (
    DeltaSinkConnector,
    IcebergSinkConnector,
    LakeSinkConnector,
)
from slackwater.repr.errors import unsupported
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import RelationDesc
from slackwater.storage.discovery import local_path
from slackwater.storage.lake.config import (
    DEFAULT_COMMIT_INTERVAL_MS,
    DeltaPlace,
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
        self,
        blank: CatalogItem,
        statement: st.CreateSink,
        connector: LakeSinkConnector,
        desc: RelationDesc,
    ) -> PlannedSink:
        """The sink `blank` over a relation with these columns; its as-of is chosen later.

        Raises SLACKWATER_SINK_KEY, SLACKWATER_DUPLICATE_COLUMN, SLACKWATER_UNSUPPORTED, and what
        `Targets.ensure_table` raises.
        """
        interval_ms, envelope = connector.commit_interval_ms, statement.envelope
        config = LakeSinkConfig(
            place=self._place(connector),
            mode="UPSERT" if envelope.key else "APPEND",
            key=envelope.key,
            is_enforced=connector.is_enforced,
            snapshot=statement.snapshot,
            commit_interval_ms=DEFAULT_COMMIT_INTERVAL_MS if interval_ms is None else interval_ms,
        )
        self.check(blank, config, desc)
        return PlannedSink(statement, SinkDetails(config, Timestamp(0)))

    def check(self, sink: CatalogItem, config: LakeSinkConfig, desc: RelationDesc) -> None:
        """Finds that the sink can write a relation with these columns, as `plan` does."""
        check_lake_sink(config, desc, sink.full_name)
        self.targets.ensure_table(sink, config, desc)

    def _place(self, connector: LakeSinkConnector) -> LakePlace:
        match connector:
            case DeltaSinkConnector(path=path):
                return DeltaPlace(local_path(path, os.getcwd()))
            case IcebergSinkConnector():
                raise unsupported(
                    "CREATE SINK ... INTO ICEBERG", "Sinks write FILES, KAFKA and DELTA."
                )


@dataclass(frozen=True, slots=True)
class SinkPlanners:
    """The planners of sinks that write elsewhere than into files."""

    kafka: KafkaSinkPlanner
    lakes: LakeSinkPlanner
