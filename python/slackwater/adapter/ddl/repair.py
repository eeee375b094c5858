"""The repair of objects whose shards are not as the catalog says, when a leader begins.

What can be made again is: a view is computed anew in new shards, with all views above it, since
their inputs have lost their history; a sink goes on by its files, which are the authority of how
far it is; a shard that lacks a column gets it. Whatever cannot be made again is left to the storage
controller, which keeps such an object out (`StorageController.migrate_collections`).

Each repair is a transaction of its own, so the next leader does what a crash leaves undone. Nobody
else runs meanwhile. Source: spec controllers M9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import structlog
from sqlalchemy import Connection

from slackwater.adapter.catalog.details import MaterializedViewDetails, SinkDetails
from slackwater.adapter.catalog.durable import DurableCatalog
from slackwater.adapter.catalog.model import CatalogItem, ItemKind, shards_of
from slackwater.adapter.catalog.ops import AlterItem, CatalogOp
from slackwater.adapter.controllers.collections import lost_shards
from slackwater.adapter.sources.sinks import PROGRESS
from slackwater.persist.client import PersistClient
from slackwater.persist.evolution import incompatibility
from slackwater.repr.dataflow_error import ERRORS
from slackwater.repr.frontier import Timestamp

_log = structlog.get_logger("repair")


def repair(persist: PersistClient, catalog: DurableCatalog) -> None:
    """Repairs what can be made again; without lost shards it does nothing."""
    for item in tuple(catalog.state.items.values()):
        _add_columns(persist, item)
    broken = [item for item in catalog.state.items.values() if lost_shards(persist, item)]
    for item in broken:
        if item.kind is ItemKind.SINK:
            _repair_sink(persist, catalog, item)
    views = [item.id for item in broken if item.kind is ItemKind.MATERIALIZED_VIEW]
    for item in reversed(catalog.state.with_dependents(views)):
        if item.kind is ItemKind.MATERIALIZED_VIEW:
            _repair_view(persist, catalog, item)


def _add_columns(persist: PersistClient, item: CatalogItem) -> None:
    shard_id, desc = item.shard_id, item.desc
    if item.kind is ItemKind.SINK or shard_id is None or desc is None:
        return
    if not persist.reads.has_contents(shard_id):
        return
    stored = persist.reads.state(shard_id).desc
    lacks = {each.name for each in desc.columns} - {each.name for each in stored.columns}
    if lacks and incompatibility(stored, desc) is None:
        _log.warning("columns added", object=item.full_name, shard=shard_id)
        persist.transactions.transact(
            lambda conn: persist.definitions.set_desc(conn, shard_id, desc, stored)
        )


def _repair_sink(persist: PersistClient, catalog: DurableCatalog, sink: CatalogItem) -> None:
    details = sink.of(SinkDetails)

    def make(conn: Connection) -> Sequence[CatalogOp]:
        as_of = details.as_of
        made = persist.definitions.create_shard(conn, PROGRESS, since=as_of, upper=as_of)
        return [AlterItem(sink.id, details=replace(details, progress_shard=made))]

    _log.warning("progress begun anew", object=sink.full_name)
    catalog.transact(make)


def _repair_view(persist: PersistClient, catalog: DurableCatalog, view: CatalogItem) -> None:
    details = view.of(MaterializedViewDetails)
    now = Timestamp(max(0, persist.reads.tables_upper() - 1))
    below = [each.of(MaterializedViewDetails) for each in _views_below(catalog, view)]
    begin = max([now, *(each.as_of for each in below)])
    as_of, refresh = begin, details.refresh
    if refresh is not None:
        # One whose last refresh is over has to be computed once more.
        missed = refresh.at_or_after(begin)
        as_of = begin if missed is None else missed
        refresh = replace(refresh, at=(*refresh.at, begin)) if missed is None else refresh

    def make(conn: Connection) -> Sequence[CatalogOp]:
        for shard_id in shards_of(view):
            if persist.reads.has_contents(shard_id):
                persist.definitions.drop_shard(conn, shard_id)
        rows, errors = (
            persist.definitions.create_shard(conn, desc, since=as_of, upper=as_of)
            for desc in (view.stored.desc, ERRORS)
        )
        anew = replace(details, as_of=as_of, errors=errors, refresh=refresh)
        return [AlterItem(view.id, details=anew, shard_id=rows)]

    _log.warning("computed anew", object=view.full_name)
    catalog.transact(make)


def _views_below(catalog: DurableCatalog, view: CatalogItem) -> list[CatalogItem]:
    """The maintained views that the view reads, through views that are not stored."""
    found = catalog.state.below(view.depends_on)
    return [each for each in found if each.kind is ItemKind.MATERIALIZED_VIEW]
