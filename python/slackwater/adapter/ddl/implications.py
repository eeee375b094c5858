"""The consequences of a change of the catalog: dataflows start and stop.

Collections, ingestions and sinks come and go with the storage controller, which tells the replica.

Derived from the committed difference, never from the request, so start-up can do it again for
everything that there is. Infallible by contract: an error here is a broken invariant.
Source: spec coordinator 1.7, trap 11.
"""

from __future__ import annotations

import structlog

from slackwater.adapter.catalog.durable import DurableCatalog
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.adapter.catalog.ops import Altered, CatalogDiff
from slackwater.adapter.controllers.collections import INSTANCE, REPLICA, Collections
from slackwater.adapter.ddl.planned_indexes import Indexes
from slackwater.adapter.ddl.planned_views import Views
from slackwater.adapter.sources.replica import StorageReplica
from slackwater.compute.worker import Worker
from slackwater.repr.errors import FatalError, SlackwaterError
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import JsonType

_log = structlog.get_logger("implications")


class Implications:
    """Starts and stops the collections, dataflows, ingestions and sinks of the catalog's items."""

    def __init__(
        self,
        catalog: DurableCatalog,
        collections: Collections,
        views: Views,
        indexes: Indexes,
        worker: Worker,
        replica: StorageReplica,
    ) -> None:
        self._catalog = catalog
        self._collections = collections
        self._views = views
        self._indexes = indexes
        self._worker = worker
        self._replica = replica
        self._waiting: dict[GlobalId, str] = {}

    def prepare(self, after: CatalogState, diff: CatalogDiff) -> None:
        """Makes the collections of created items; called before anybody can see the change.

        So an object that is found in the catalog has its collection.
        """
        try:
            self._collections.create(diff.created, after)
        except Exception as error:
            raise FatalError(f"a catalog change could not be carried out: {error}") from error

    def apply(self, diff: CatalogDiff) -> None:
        """Carries out a committed change; called with the catalog's lock held."""
        try:
            for item in diff.dropped:
                self._stop(item)
            self._collections.drop(diff.dropped)
            for change in diff.altered:
                self._collections.alter(change.before, change.after)
                self._plan_indexes_anew(change)
            for item in diff.created:
                if item.kind is ItemKind.SINK:
                    self._collections.create_export(item)
                self._start(item)
            self._replica.apply_commands()
        except Exception as error:
            raise FatalError(f"a catalog change could not be carried out: {error}") from error

    def _plan_indexes_anew(self, change: Altered) -> None:
        """Lets the indexes on a relation keep the columns that it has now."""
        before, after = change.before, change.after
        anew = [after] if after.kind is ItemKind.INDEX and before.details != after.details else []
        if _columns(before) != _columns(after) or before.shard_id != after.shard_id:
            users = self._catalog.state.dependents(after.id)
            anew += [user for user in users if user.kind is ItemKind.INDEX]
        for index in anew:
            self._worker.remove(index.id)
            self._try(index)

    def start_all(self) -> None:
        """Starts everything that the catalog has, inputs first. Failed starts are tried again."""
        for item in self._catalog.state.topological():
            self._try(item)
        self._collections.storage.connect_replica(INSTANCE, REPLICA)
        self._replica.apply_commands()

    def retry(self) -> None:
        """Tries again the starts that failed, because Spark was not there for example.

        To be called without the catalog's lock: planning may take long.
        """
        for global_id in tuple(self._waiting):
            item = self._catalog.state.items.get(global_id)
            if item is not None and not self._is_planned(item):
                continue
            with self._catalog.lock:
                if item is self._catalog.state.items.get(global_id):
                    self._waiting.pop(global_id)
                    if item is not None:
                        self._try(item)

    def _is_planned(self, item: CatalogItem) -> bool:
        try:
            planner = self._indexes if item.kind is ItemKind.INDEX else self._views
            planner.plan_ahead(item)
        except SlackwaterError as error:
            self._waiting[item.id] = str(error)
            return False
        return True

    def _try(self, item: CatalogItem) -> None:
        try:
            self._start(item)
        except SlackwaterError as error:
            self._waiting[item.id] = str(error)
            _log.warning("cannot start", object=item.id, error=str(error))

    def _start(self, item: CatalogItem) -> None:
        self._collections.refuse_lost(item)
        if item.kind is ItemKind.MATERIALIZED_VIEW:
            self._worker.add(self._views.dataflow(item))
        elif item.kind is ItemKind.INDEX:
            self._worker.add(self._indexes.dataflow(item))

    def _stop(self, item: CatalogItem) -> None:
        if item.kind.is_maintained:
            self._worker.remove(item.id)


def _columns(item: CatalogItem) -> list[tuple[str, JsonType]]:
    return [] if item.desc is None else [(c.name, c.spark_type) for c in item.desc.columns]
