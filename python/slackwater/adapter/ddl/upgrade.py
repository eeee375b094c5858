"""The upgrade of objects of earlier versions, when a leader begins.

Sources of the first version have no progress relation, and their state has their frontier; its
sinks have no progress shard. Its views have shards with states of groups, which nobody reads any
more: the state of a view is now in memory, and is made of the view's inputs. They have no shard of
errors, but stop where a row makes their query fail.

Each object is upgraded in a transaction of its own, so the next leader does what a crash leaves
undone. Nobody else runs meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection

from slackwater.adapter.catalog.details import (
    ChangefeedDetails,
    FilesDetails,
    GeneratorDetails,
    IngestedDetails,
    MaterializedViewDetails,
    SinkDetails,
    SubsourceDetails,
)
from slackwater.adapter.catalog.durable import DurableCatalog
from slackwater.adapter.catalog.model import CatalogItem
from slackwater.adapter.catalog.ops import AlterItem, CatalogOp, CreateItem
from slackwater.adapter.ddl.planned_parts import free_name, progress_item
from slackwater.adapter.sources.sinks import PROGRESS as SINK_PROGRESS
from slackwater.adapter.sources.source_states import create_state
from slackwater.persist.client import PersistClient
from slackwater.repr.dataflow_error import ERRORS
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import RelationDesc


def upgrade(persist: PersistClient, catalog: DurableCatalog) -> None:
    """Upgrades the objects of the catalog; without old ones it does nothing."""
    for item in tuple(catalog.state.items.values()):
        match item.details:
            case (
                FilesDetails(progress=None)
                | GeneratorDetails(progress=None)
                | ChangefeedDetails(progress=None) as source
            ):
                _upgrade_source(persist, catalog, item, source)
            case SinkDetails(progress_shard=None) as sink:
                _upgrade_sink(persist, catalog, item, sink)
            case MaterializedViewDetails(errors=None) as view:
                _upgrade_view(persist, catalog, item, view)
            case _:
                pass


def _upgrade_source(
    persist: PersistClient, catalog: DurableCatalog, source: CatalogItem, details: IngestedDetails
) -> None:
    name = free_name(catalog.state, source.schema_name, f"{source.name}_progress")
    progress = progress_item(catalog.allocate_ids()[0], source, source.schema_name, name)
    tables = {
        item.of(SubsourceDetails).export: item.id
        for item in catalog.state.items.values()
        if item.parent == source.id
    }
    upgraded = replace(details, progress=progress.id, exports=tables)

    def make(conn: Connection) -> Sequence[CatalogOp]:
        create_state(conn, source.id)
        shard_id = _shard(persist, conn, progress.desc, None)
        return [
            CreateItem(replace(progress, shard_id=shard_id)),
            AlterItem(source.id, details=upgraded, depends_on=(progress.id,)),
        ]

    catalog.transact(make)


def _upgrade_sink(
    persist: PersistClient, catalog: DurableCatalog, sink: CatalogItem, details: SinkDetails
) -> None:
    def make(conn: Connection) -> Sequence[CatalogOp]:
        shard_id = _shard(persist, conn, SINK_PROGRESS, details.as_of)
        return [AlterItem(sink.id, details=replace(details, progress_shard=shard_id))]

    catalog.transact(make)


def _upgrade_view(
    persist: PersistClient,
    catalog: DurableCatalog,
    view: CatalogItem,
    details: MaterializedViewDetails,
) -> None:
    found = persist.reads.state(view.stored.shard_id)

    def make(conn: Connection) -> Sequence[CatalogOp]:
        for shard_id in details.states or ():
            persist.definitions.drop_shard(conn, shard_id)
        errors = persist.definitions.create_shard(
            conn, ERRORS, since=found.since, upper=found.upper
        )
        return [AlterItem(view.id, details=replace(details, errors=errors, states=None))]

    catalog.transact(make)


def _shard(
    persist: PersistClient, conn: Connection, desc: RelationDesc | None, upper: Timestamp | None
) -> int:
    """A new shard that can be read from now on; `upper` None: it shares that of the tables."""
    if desc is None:
        raise AssertionError("a shard has columns")
    since = Timestamp(max(0, persist.reads.tables_upper() - 1)) if upper is None else upper
    return persist.definitions.create_shard(conn, desc, since=since, upper=upper)
