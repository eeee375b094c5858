"""Feeds: the updates of a collection in order of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from slackwater.adapter.catalog.model import CatalogItem
from slackwater.adapter.controllers.relations import Relations
from slackwater.controller.holds import Holder, ReadHold
from slackwater.persist.consolidate import consolidate
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.relation import TIME_COLUMN, RelationDesc


class Feed(Protocol):
    """The contents of a relation over time.

    For every t below the frontier: snapshot(t0) plus updates(t0 + 1, u) with times <= t sum up to
    the contents at t.
    """

    @property
    def desc(self) -> RelationDesc: ...

    def frontier(self) -> Frontier:
        """Times below are complete."""
        ...

    def snapshot(self, time: Timestamp) -> pa.Table:
        """The contents at `time` as consolidated updates at `time`."""
        ...

    def updates(self, lower: Timestamp, upper: Timestamp) -> pa.Table:
        """The consolidated updates with ``lower <= time < upper``, ordered by time."""
        ...

    def release(self, time: Timestamp | None) -> None:
        """Gives up the times below `time`; None: all of them."""
        ...


class FeedHold:
    """The hold of a feed on its inputs, which moves forward with it.

    It begins at the first time at which all can be read, or `at` a time. Raises
    SLACKWATER_NO_VALID_TIMESTAMP when it cannot be read then any more.
    """

    def __init__(
        self,
        relations: Relations,
        items: Sequence[CatalogItem],
        holder: Holder,
        at: Timestamp | None = None,
    ) -> None:
        self._storage = relations.storage
        self._hold: ReadHold | None = None
        if any(item.shard_id is not None for item in items):
            self._hold = relations.hold(items, holder, at)

    def release(self, time: Timestamp | None) -> None:
        """Moves the hold to `time`, or ends it; afterwards nothing has an effect."""
        if self._hold is None:
            return
        if time is None:
            self._storage.release(self._hold)
            self._hold = None
        else:
            self._hold = self._storage.downgrade(self._hold, time)


class CollectionFeed:
    """The feed of a stored collection, read from its parts.

    Where the contents have an error, it raises what `Relations.refuse_errors` raises. Without a
    hold, it reads a collection that somebody else holds.
    """

    def __init__(self, relations: Relations, item: CatalogItem, hold: FeedHold | None) -> None:
        if item.shard_id is None or item.desc is None:
            raise AssertionError(f"{item.id} is not stored")
        self._relations = relations
        self._item = item
        self._shard_id = item.shard_id
        self._desc = item.desc
        self._hold = hold

    @property
    def desc(self) -> RelationDesc:
        return self._desc

    def frontier(self) -> Frontier:
        return self._relations.upper(self._relations.item(self._item.id))

    def snapshot(self, time: Timestamp) -> pa.Table:
        self._relations.refuse_errors(self._item, time, Timestamp(time + 1))
        return self._relations.snapshot(self._item, time)

    def stored_rows(self, time: Timestamp) -> int:
        """The number of rows in the parts that `snapshot` reads: at least as many as it has."""
        parts = self._relations.persist.reads.parts_at(self._shard_id, time)
        return sum(part.rows for part in parts)

    def updates(self, lower: Timestamp, upper: Timestamp) -> pa.Table:
        self._relations.refuse_errors(self._item, lower, upper)
        parts = self._relations.persist.reads.parts_between(self._shard_id, lower, upper)
        table = self._relations.persist.reads.read(parts, self._desc, lower=lower, upper=upper)
        return consolidate(table).sort_by(TIME_COLUMN)

    def release(self, time: Timestamp | None) -> None:
        if self._hold is not None:
            self._hold.release(time)
