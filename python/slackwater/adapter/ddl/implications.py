"""The consequences of a change of the catalog: dataflows start and stop.

Collections, ingestions and sinks come and go with the storage controller, which tells the replica.

Derived from the committed difference, never from the request, so start-up can do it again for
everything that there is. Infallible by contract: an error here is a broken invariant.
Source: spec coordinator 1.7, trap 11.
"""

from __future__ import annotations

from slackwater.adapter.catalog.durable import DurableCatalog
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.adapter.catalog.ops import Altered, CatalogDiff
from slackwater.adapter.controllers.collections import INSTANCE, REPLICA, Collections
from slackwater.adapter.controllers.dataflows import Dataflows
from slackwater.adapter.sources.replica import StorageReplica
from slackwater.repr.errors import FatalError
from slackwater.repr.relation import JsonType


class Implications:
    """Starts and stops the collections, dataflows, ingestions and sinks of the catalog's items."""

    def __init__(
        self,
        catalog: DurableCatalog,
        collections: Collections,
        dataflows: Dataflows,
        replica: StorageReplica,
    ) -> None:
        self._catalog = catalog
        self._collections = collections
        self._dataflows = dataflows
        self._replica = replica

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
            self._dataflows.drop(diff.dropped)
            self._collections.drop(diff.dropped)
            for change in diff.altered:
                self._collections.alter(change.before, change.after)
                self._alter_indexes(change)
            for item in diff.created:
                if item.kind is ItemKind.SINK:
                    self._collections.create_export(item)
            self._dataflows.create(diff.created)
            self._replica.apply_commands()
        except Exception as error:
            raise FatalError(f"a catalog change could not be carried out: {error}") from error

    def _alter_indexes(self, change: Altered) -> None:
        """Lets the indexes on a relation keep the columns that it has now.

        They know it by its name, which may come to be that of another one before they are planned.
        """
        before, after = change.before, change.after
        if after.kind is ItemKind.INDEX and before.details != after.details:
            self._dataflows.retain(after)
        if _meant(before) != _meant(after):
            users = self._catalog.state.dependents(after.id)
            indexes = [user for user in users if user.kind is ItemKind.INDEX]
            self._dataflows.drop(indexes)
            self._dataflows.create(indexes)

    def start_all(self) -> None:
        """Lets the replicas of this process run all that the catalog has."""
        self._collections.storage.connect_replica(INSTANCE, REPLICA)
        self._replica.apply_commands()
        self._dataflows.connect()


def _meant(item: CatalogItem) -> tuple[str, int | None, list[tuple[str, JsonType]]]:
    """The name, the shard and the columns of a relation."""
    columns = () if item.desc is None else item.desc.columns
    return item.full_name, item.shard_id, [(c.name, c.spark_type) for c in columns]
