"""The sources that read tables of lakes: their ingestions, made of their durable state.

Source: spec controllers 5.1 to 5.5; docs/decisions 0079.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.adapter.catalog.details import LakeDetails
from slackwater.adapter.catalog.model import CatalogItem
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.external.aws import RoleRefused
from slackwater.adapter.external.delta_folder import DeltaFolder
from slackwater.adapter.external.delta_history import DeltaHistory
from slackwater.adapter.external.iceberg_history import IcebergOrigin
from slackwater.adapter.sources.connections import Connections
from slackwater.adapter.writing.group_commit import at_time
from slackwater.adapter.writing.staged_files import staged_piece
from slackwater.controller.holds import Holder, HoldKind
from slackwater.persist.blobs import inline_part
from slackwater.persist.consolidate import consolidate
from slackwater.persist.error_shards import all_errors_at
from slackwater.persist.reading import read_where
from slackwater.repr.dataflow_error import DataflowError, decode
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import TIME_COLUMN
from slackwater.storage.ingestion import Reached, Resumed, StepSuperseded
from slackwater.storage.lake.config import DeltaPlace, IcebergPlace, LakePlace, LakeSourceConfig
from slackwater.storage.lake.history import TableColumn, TableHistory
from slackwater.storage.lake.ingestion import LakeIngestion, LakeTableConfig, unreadable
from slackwater.storage.pieces import StagedRows


@dataclass(frozen=True, slots=True)
class LakeSources:
    """The tables of lakes that one environment reads. `running` are the ingestions, by source."""

    relations: Relations
    connections: Connections
    running: dict[GlobalId, LakeIngestion]

    @contextmanager
    def looked_at(
        self, object_name: str, place: LakePlace, connection: GlobalId | None
    ) -> Iterator[TableHistory]:
        """The table for as long as the block asks about it.

        Raises SLACKWATER_CONNECTOR_MISSING, what `TableHistory` raises, and what the connection
        raises.
        """
        table = self._opened(object_name, place, connection)
        try:
            yield table
        finally:
            table.close()

    def resumed(self, item: CatalogItem, reached: Reached) -> Resumed:
        """The ingestion of a source, from where its collection ends.

        Raises SLACKWATER_DEPENDENCY_DROPPED.
        """
        details = item.of(LakeDetails)
        config = details.config
        ingestion = LakeIngestion(
            LakeTableConfig(
                item.full_name,
                config.place.shown,
                item.name,
                item.stored.desc,
                config.columns,
                config.start,
            ),
            _Upstream(
                lambda: self._opened(
                    item.full_name, config.place, details.connection, config.columns
                ),
                lambda: " ".join(map(self.connections.version, details.connections)),
            ),
            _Collection(self.relations, item.id),
            reached.state,
            lambda: self._check(item.id, config),
        )
        self.running[item.id] = ingestion
        return Resumed(ingestion, reached, ingestion.close)

    def _check(self, source: GlobalId, config: LakeSourceConfig) -> None:
        """Raises `StepSuperseded` when the source is not declared like that any more."""
        if self.relations.item(source).of(LakeDetails).config != config:
            raise StepSuperseded(source, 0, 0)

    def _opened(
        self,
        object_name: str,
        place: LakePlace,
        connection: GlobalId | None,
        columns: Sequence[TableColumn] = (),
    ) -> TableHistory:
        match place:
            case DeltaPlace(uri=uri, aws=aws):
                access = None if aws is None else self.connections.aws(aws)
                try:
                    folder = DeltaFolder.at(uri, access)
                except RoleRefused as refused:
                    raise unreadable(object_name, place.shown, str(refused)) from None
                return DeltaHistory(object_name, folder)
            case IcebergPlace(aws=aws):
                if connection is None:
                    raise FatalError(f"the source {object_name} has no connection")
                return IcebergOrigin(
                    self.connections.iceberg(connection),
                    None if aws is None else self.connections.aws(aws),
                    place,
                    object_name,
                    self.relations.item(connection).full_name,
                    columns,
                ).opened()


@dataclass(slots=True)
class _Upstream:
    """The table over the connections as they are now: see `LakeUpstream`."""

    opened: Callable[[], TableHistory]
    version: Callable[[], str]
    _history: TableHistory | None = field(default=None, init=False)
    _version: str = field(default="", init=False)

    def history(self) -> TableHistory:
        version = self.version()
        if self._history is None or version != self._version:
            self.forget()
            self._history, self._version = self.opened(), version
        return self._history

    def forget(self) -> None:
        if self._history is not None:
            self._history.close()
            self._history = None


@dataclass(frozen=True, slots=True)
class _Collection:
    """The durable contents of a source: see `SourceCollection`."""

    relations: Relations
    source: GlobalId

    def rows(self) -> pa.Table:
        item = self.relations.item(self.source)
        return self.relations.snapshot(item, self._time(item)).drop_columns([TIME_COLUMN])

    def rows_where(self, column: str, values: pa.Array) -> pa.Table:
        with self._held() as item:
            stored, persist = item.stored, self.relations.persist
            parts = persist.reads.parts_at(stored.shard_id, self._time(item))
            found = read_where(
                parts,
                stored.desc,
                column,
                lambda found: pc.is_in(found, value_set=values),
                blobs=persist.blobs,
            )
        return consolidate(found.drop_columns([TIME_COLUMN]))

    def lacking(self, changes: pa.Table | StagedRows) -> int:
        time = Timestamp(0)
        if isinstance(changes, StagedRows):
            parts = changes.parts(time)
        else:
            parts = (inline_part(at_time(changes, time)),)
        with self._held() as item:
            return self.relations.persist.reads.unmatched_retractions(item.stored.shard_id, parts)

    @contextmanager
    def _held(self) -> Iterator[CatalogItem]:
        """The source, whose parts stay while the block reads them."""
        item = self.relations.item(self.source)
        hold = self.relations.hold([item], Holder(HoldKind.INGESTION, item.id))
        try:
            yield item
        finally:
            self.relations.storage.release(hold)

    def errors(self) -> Sequence[DataflowError]:
        item = self.relations.item(self.source)
        shard = item.errors_shard
        if shard is None:
            return ()
        found = all_errors_at(self.relations.persist.reads, shard, self._time(item))
        return [decode(each) for each in found]

    def stage(self, rows: pa.Table) -> StagedRows:
        shard = self.relations.item(self.source).stored.shard_id
        return staged_piece(self.relations.persist, shard, rows)

    def _time(self, item: CatalogItem) -> Timestamp:
        return Timestamp(self.relations.upper(item).value - 1)
