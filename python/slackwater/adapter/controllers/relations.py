"""The relations of the catalog over time: frontiers, holds, contents, and refusals of reads.

The frontiers of a view that is not stored follow from those of its inputs. System relations can be
read at all times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from slackwater.adapter.catalog.durable import DurableCatalog
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.controller.holds import Holder, ReadHold
from slackwater.persist.client import PersistClient
from slackwater.persist.contents import consolidated_rows
from slackwater.persist.error_shards import Standing, first_refusal, first_standing
from slackwater.repr.errors import FatalError, SlackwaterError, user_error
from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import TIME_COLUMN
from slackwater.storage.controller.errors import StorageError, Variant
from slackwater.storage.controller.shell import Storage


@dataclass(frozen=True, slots=True)
class Relations:
    """The relations of one environment. Thread-safe, as its parts are."""

    catalog: DurableCatalog
    storage: Storage
    persist: PersistClient

    @property
    def state(self) -> CatalogState:
        """The catalog as of now: an immutable snapshot."""
        return self.catalog.state

    def item(self, global_id: GlobalId) -> CatalogItem:
        """The item, or SLACKWATER_DEPENDENCY_DROPPED when it is gone."""
        return self.state.item(global_id)

    def upper(self, item: CatalogItem) -> Frontier:
        """The first time at which the item's contents may still change."""
        if item.kind is ItemKind.SYSTEM_TABLE:
            return EMPTY_FRONTIER
        if item.shard_id is None:
            inputs = [self.upper(self.item(i)) for i in item.depends_on]
            return min(inputs) if inputs else EMPTY_FRONTIER
        return self._stored(item, self.storage.upper)

    def since(self, item: CatalogItem) -> Frontier:
        """The first time at which the item can be read."""
        if item.kind is ItemKind.SYSTEM_TABLE or (item.shard_id is None and not item.depends_on):
            return Frontier(0)
        if item.shard_id is None:
            return max(self.since(self.item(i)) for i in item.depends_on)
        return self._stored(item, self.storage.since)

    def frontiers(self, item: CatalogItem) -> tuple[Frontier, Frontier]:
        """The since and the upper of the item. Those of a stored one are of one moment."""
        if item.shard_id is None:
            return self.since(item), self.upper(item)
        try:
            return self.storage.frontiers(item.id)
        except StorageError:
            raise self._absent(item) from None

    def _stored(self, item: CatalogItem, look: Callable[[GlobalId], Frontier]) -> Frontier:
        try:
            return look(item.id)
        except StorageError:
            raise self._absent(item) from None

    def _absent(self, item: CatalogItem) -> SlackwaterError:
        """The error of an object that is no collection: it was dropped, or has lost its contents.

        An object has a collection before the catalog has the object, and until after that.
        """
        is_there = item.id in self.state.items
        condition = "SLACKWATER_CONTENTS_LOST" if is_there else "SLACKWATER_DEPENDENCY_DROPPED"
        return user_error(condition, objectName=item.full_name)

    def hold(
        self, items: Iterable[CatalogItem], holder: Holder, at: Timestamp | None = None
    ) -> ReadHold:
        """One hold on all stored items, at `at` or at the first time at which all can be read.

        Raises SLACKWATER_DEPENDENCY_DROPPED, SLACKWATER_NO_VALID_TIMESTAMP.
        """
        stored = {item.id: item for item in items if item.shard_id is not None}
        try:
            return self.storage.acquire(stored, holder, at)
        except StorageError as error:
            raise self._unreadable(error, stored[error.ids[0]], at) from None

    def snapshot(self, item: CatalogItem, time: Timestamp) -> pa.Table:
        """The consolidated updates of a stored item at `time`, once it is complete there.

        Raises SLACKWATER_DEPENDENCY_DROPPED, SLACKWATER_NO_VALID_TIMESTAMP.
        """
        try:
            return self.storage.snapshot(item.id, time)
        except StorageError as error:
            raise self._unreadable(error, item, time) from None

    def present(self, item: CatalogItem, time: Timestamp) -> pa.Table:
        """The rows of a stored item at `time`, each as often as it is there.

        Raises what `snapshot` raises, and FatalError for a row that is there less than never.
        """
        rows = consolidated_rows(self.snapshot(item, time).drop_columns([TIME_COLUMN]))
        if rows is None:
            raise FatalError(f"{item.full_name} has a negative multiplicity at {time}")
        return rows

    def _unreadable(
        self, error: StorageError, item: CatalogItem, at: Timestamp | None
    ) -> SlackwaterError:
        if error.variant is Variant.IDENTIFIER_MISSING:
            return self._absent(item)
        details = f"{item.full_name} can be read from {self.since(item).value} on, not at {at}"
        return user_error("SLACKWATER_NO_VALID_TIMESTAMP", details=details)

    def tables_below(self, ids: Iterable[GlobalId]) -> frozenset[int]:
        """The shards of the tables among the items, and of those that they are computed from."""
        found = (item for item in self.state.below(ids) if item.is_writable)
        return frozenset(item.shard_id for item in found if item.shard_id is not None)

    def refuse_errors(self, item: CatalogItem, lower: Timestamp, upper: Timestamp) -> None:
        """Raises SLACKWATER_SOURCE_ERROR or SLACKWATER_DATA_ERROR if the contents have an error.

        The interval is ``[lower, upper)``. A read at such a time fails as a whole (spec controllers
        5.5).
        """
        if item.errors_shard is not None:
            error = first_refusal(
                self.persist.reads, item.errors_shard, item.full_name, lower, upper
            )
            if error is not None:
                raise error

    def first_error(self, item: CatalogItem, time: Timestamp) -> Standing | None:
        """The first error in the contents from `time` on, as far as they go; None: none."""
        if item.errors_shard is None:
            return None
        reads = self.persist.reads
        upper = max(reads.state(item.errors_shard).upper, Timestamp(time + 1))
        return first_standing(reads, item.errors_shard, item.full_name, time, upper)
