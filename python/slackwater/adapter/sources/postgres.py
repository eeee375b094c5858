"""The sources that read tables of PostgreSQL: their ingestions, made of their durable state.

Source: spec controllers 5.1 to 5.5; docs/decisions 0072.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
from sqlalchemy import Connection

from slackwater.adapter.catalog.details import (
    ConnectionDetails,
    PostgresDetails,
    SourceTableDetails,
)
from slackwater.adapter.catalog.model import CatalogItem
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.external.postgres_replication import (
    Named,
    PostgresReplication,
    PostgresUpstream,
)
from slackwater.adapter.sources.abandoned_slots import LeftSlot, forget, keep, left_slots
from slackwater.adapter.sources.connections import Connections
from slackwater.adapter.sources.slots import AbandonedSlot, SlotRemovals
from slackwater.adapter.writing.staged_files import staged_piece
from slackwater.persist.contents import present_rows
from slackwater.persist.error_shards import all_errors_at
from slackwater.persist.reading import conformed, read
from slackwater.repr.dataflow_error import DataflowError, decode
from slackwater.repr.errors import FatalError, SlackwaterError
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import TIME_COLUMN
from slackwater.storage.access import PostgresAccess
from slackwater.storage.ingestion import Reached, Resumed
from slackwater.storage.pieces import StagedRows
from slackwater.storage.postgres.copying import FollowedTable
from slackwater.storage.postgres.ingestion import PostgresConfig, PostgresIngestion
from slackwater.storage.postgres.replication import RetainedLog, ServerIdentity

SNAPSHOT_CONNECTIONS = 4
"""Over so many connections a large table is copied where the source does not say."""


@dataclass(frozen=True, slots=True)
class StoredContents:
    """The durable contents of a table of a source. See `storage.postgres.old_rows.Contents`."""

    relations: Relations
    table: GlobalId

    def rows(self) -> pa.Table:
        item = self.relations.item(self.table)
        return self.relations.present(item, self._time(item))

    def errors(self) -> Sequence[DataflowError]:
        item = self.relations.item(self.table)
        shard = item.stored.errors_shard
        if shard is None:
            return ()
        found = all_errors_at(self.relations.persist.reads, shard, self._time(item))
        return [decode(each) for each in found]

    def left(self, updates: Sequence[pa.Table | StagedRows]) -> pa.Table:
        item, persist = self.relations.item(self.table), self.relations.persist
        desc, time = item.stored.desc, Timestamp(0)
        found = []
        for each in updates:
            if isinstance(each, StagedRows):
                found.append(read(each.parts(time), desc, blobs=persist.blobs))
            else:
                times = pa.array([time] * each.num_rows, pa.int64())
                found.append(conformed(each.append_column(TIME_COLUMN, times), desc))
        rows = present_rows(pa.concat_tables([desc.update_schema().empty_table(), *found]))
        if rows is None:
            raise FatalError(f"the copy of {item.full_name} has a negative multiplicity")
        return rows

    def _time(self, item: CatalogItem) -> Timestamp:
        return Timestamp(self.relations.upper(item).value - 1)


@dataclass(frozen=True, slots=True)
class PostgresSources:
    """The publications that one environment reads, whose name is in those of its slots."""

    relations: Relations
    connections: Connections
    environment: str
    running: dict[GlobalId, PostgresIngestion]
    removals: SlotRemovals
    _accesses: dict[GlobalId, PostgresAccess] = field(default_factory=dict, init=False)
    """The last ways into the servers of sources: a connection may be dropped with its source."""

    def slot_of(self, source: GlobalId) -> str:
        """The name of the replication slot of a source."""
        return f"{self._prefix}{source}"

    @property
    def _prefix(self) -> str:
        return f"slackwater_{self.environment}_"

    def start(self) -> None:
        """Removes what sources have left on their servers, also under leaders before this one."""
        for left in self.relations.persist.transactions.query(left_slots):
            self._remove(left)

    def close(self) -> None:
        """Ends removing slots; who leads next goes on with what is left."""
        self.removals.close()

    def abandon(self, conn: Connection, source: GlobalId) -> None:
        """Keeps in mind that a source leaves its slot, in the transaction that drops it."""
        state = self.relations.state
        item = state.items.get(source)
        if item is not None and isinstance(item.details, PostgresDetails):
            keep(conn, _left(item, item.details, state.item(item.details.connection)))

    def dropped(self, items: Sequence[CatalogItem]) -> None:
        """Lets the slots of those of the items that are sources be removed."""
        gone = {item.id: item for item in items}
        for item in items:
            if isinstance(item.details, PostgresDetails):
                connection = gone.get(item.details.connection)
                known = connection or self.relations.state.item(item.details.connection)
                self._remove(_left(item, item.details, known))

    def _remove(self, left: LeftSlot) -> None:
        remove = partial(self._remove_slot, left)
        self.removals.add(AbandonedSlot(left.source, left.slot, left.timeline, remove))

    def retained(self) -> Mapping[GlobalId, RetainedLog]:
        """The logs that servers keep for the sources that run, where they are large."""
        running = dict(self.running)
        return {each: it.retained for each, it in running.items() if it.retained is not None}

    def retained_bytes(self) -> Mapping[GlobalId, int]:
        """The bytes of their logs that servers keep for the sources that run, as they last said."""
        running = dict(self.running)
        found = {each: it.retained_bytes for each, it in running.items()}
        return {each: size for each, size in found.items() if size is not None}

    def stopped(self, source: GlobalId) -> None:
        """The ingestion of a source has ended."""
        if self.running.pop(source, None) is not None:
            self.removals.stopped()

    def _remove_slot(self, left: LeftSlot) -> None:
        transactions = self.relations.persist.transactions
        access = self._access(left)
        if access is not None:
            named = Named(left.name, "", left.publication, left.slot)
            server = PostgresReplication(access, named, transactions.confirm_leadership)
            try:
                transactions.confirm_leadership()
                server.drop_slot()
            finally:
                server.close()
        transactions.transact(lambda conn: forget(conn, left.source))
        self._accesses.pop(left.source, None)

    def _access(self, left: LeftSlot) -> PostgresAccess | None:
        """The way into the server of a source that was dropped, and maybe its connection.

        None: there is none any more, as its secrets were dropped too.
        """
        if left.connection in self.relations.state.items:
            return self.connections.postgres(left.connection)
        if left.source in self._accesses:
            return self._accesses[left.source]
        try:
            return self.connections.postgres_of(left.details)
        except SlackwaterError as error:
            if error.condition == "SLACKWATER_DEPENDENCY_DROPPED":
                return None
            raise

    def _kept(self, source: GlobalId, connection: GlobalId) -> PostgresAccess:
        self._accesses[source] = self.connections.postgres(connection)
        return self._accesses[source]

    def _is_known(self, slot: str) -> bool:
        return slot.removeprefix(self._prefix) in self.relations.state.items

    @contextmanager
    def looked_at(self, named: Named, connection: GlobalId) -> Iterator[PostgresReplication]:
        """The server for as long as the block asks it.

        Raises SLACKWATER_CONNECTOR_MISSING, SLACKWATER_SOURCE_UNREACHABLE, and what the connection
        raises.
        """
        server = PostgresReplication(self.connections.postgres(connection), named)
        try:
            yield server
        finally:
            server.close()

    def resumed(self, item: CatalogItem, reached: Reached) -> Resumed:
        """The ingestion of a source, from where its collections end.

        Raises SLACKWATER_DEPENDENCY_DROPPED.
        """
        details = item.of(PostgresDetails)
        config, name = details.config, self.relations.item(details.connection).full_name
        named = Named(item.full_name, name, config.publication, config.slot)
        upstream = replace(
            self.upstream(named, item),
            opened=lambda server: server.remove_others(self._prefix, self._is_known),
        )
        identity = ServerIdentity(config.system, config.timeline)
        ingestion = PostgresIngestion(
            PostgresConfig(item.full_name, config.publication, config.slot, identity),
            upstream,
            _Tables(self, item),
            reached.frontier,
            reached.state,
        )
        self.running[item.id] = ingestion
        return Resumed(ingestion, reached, ingestion.close)

    def upstream(self, named: Named, source: CatalogItem) -> PostgresUpstream:
        """The server of a source, over connections of its own."""
        details = source.of(PostgresDetails)
        connection = details.connection
        return PostgresUpstream(
            named,
            access=lambda: self._kept(source.id, connection),
            version=lambda: self.connections.version(connection),
            confirm=self.relations.persist.transactions.confirm_leadership,
            connections=details.config.snapshot_connections or SNAPSHOT_CONNECTIONS,
        )


def _left(source: CatalogItem, details: PostgresDetails, connection: CatalogItem) -> LeftSlot:
    config, way = details.config, connection.of(ConnectionDetails)
    named = (source.full_name, config.publication, config.slot, config.timeline)
    return LeftSlot(source.id, *named, connection.id, way)


@dataclass(frozen=True, slots=True)
class _Tables:
    """The tables of a source that reads a publication. See `PublicationTables`."""

    postgres: PostgresSources
    source: CatalogItem

    def names(self) -> Collection[str]:
        later = self.postgres.relations.state.tables_of(self.source.id)
        return dict.fromkeys((*self.source.ingested.exports, *later))

    def added(self) -> Mapping[str, Collection[str]]:
        state = self.postgres.relations.state
        later = (each.details for each in state.tables_of(self.source.id).values())
        tables = [
            *self._details.config.tables,
            *(each.upstream for each in later if isinstance(each, SourceTableDetails)),
        ]
        return {each.export: each.added for each in tables if each is not None and each.added}

    @property
    def _details(self) -> PostgresDetails:
        """The details of the source as they are now."""
        return self.postgres.relations.state.items.get(self.source.id, self.source).of(
            PostgresDetails
        )

    def found(self, name: str) -> FollowedTable | None:
        relations, details = self.postgres.relations, self._details
        made = details.exports.get(name)
        item = (
            relations.state.tables_of(self.source.id).get(name)
            if made is None
            else relations.state.items.get(made)
        )
        if item is None:
            return None
        later = item.details.upstream if isinstance(item.details, SourceTableDetails) else None
        table = next((e for e in details.config.tables if e.export == name), None) or later
        if table is None:
            raise FatalError(f"{item.full_name} does not say what it reads")
        return FollowedTable(
            table,
            StoredContents(relations, item.id),
            partial(staged_piece, relations.persist, item.stored.shard_id),
            is_later=later is not None,
        )

    def upstream(self) -> PostgresUpstream:
        details = self.source.of(PostgresDetails)
        config = details.config
        connection = self.postgres.relations.item(details.connection).full_name
        named = Named(
            self.source.full_name,
            connection,
            config.publication,
            f"{config.slot}_copy",
            is_temporary=True,
        )
        return self.postgres.upstream(named, self.source)
