"""The rows of a SUBSCRIBE, from batches of updates. Pure: no clock, no I/O.

Columns: ``mz_timestamp``, ``mz_progressed`` with PROGRESS, ``mz_diff`` or, with an envelope,
``mz_state``, then the relation's. ENVELOPE UPSERT has the key columns first, ENVELOPE DEBEZIUM
the key, then ``before_<column>`` and ``after_<column>`` of all others.

Source: spec coordinator 2.11, surface 4 and 7.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.persist.consolidate import codes_of, consolidate
from slackwater.repr.errors import user_error
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN, Column, RelationDesc, stored_column
from slackwater.storage.updates import KeyChanges, changes_by_key


@dataclass(frozen=True, slots=True)
class OrderColumn:
    """A column of WITHIN TIMESTAMP ORDER BY; `name` may be ``mz_diff``."""

    name: str
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class SubscribeSpec:
    """The request of a SUBSCRIBE. `as_of` is included, `up_to` is not.

    With an envelope, `key` is not empty and `order_by` is empty.
    """

    as_of: Timestamp
    up_to: Timestamp | None = None
    snapshot: bool = True
    progress: bool = False
    envelope: Literal["UPSERT", "DEBEZIUM"] | None = None
    key: tuple[str, ...] = ()
    order_by: tuple[OrderColumn, ...] = ()


def check_bounds(as_of: Timestamp, up_to: Timestamp | None) -> None:
    """Raises SLACKWATER_SUBSCRIBE_BOUNDS when `up_to` is before `as_of`; equal gives no rows."""
    if up_to is not None and up_to < as_of:
        raise user_error("SLACKWATER_SUBSCRIBE_BOUNDS", upTo=str(up_to), asOf=str(as_of))


def output_desc(spec: SubscribeSpec, desc: RelationDesc) -> RelationDesc:
    """The columns of the result; its `arrow_schema` is that of every table of rows.

    A column of the relation may have the name of one of these: rows go by position. Those of the
    relation may be NULL: they can lose NOT NULL while the result is being read.
    """
    columns = [_column("mz_timestamp", "long", False)]
    if spec.progress:
        columns.append(_column("mz_progressed", "boolean", False))
    if spec.envelope is None:
        columns.append(_column("mz_diff", "long", spec.progress))
        columns += [replace(c, nullable=True) for c in desc.columns]
        return RelationDesc(tuple(columns))
    columns.append(_column("mz_state", "string", spec.progress))
    by_name = {column.name: column for column in desc.columns}
    columns += [replace(by_name[name], nullable=True) for name in spec.key]
    values = [replace(c, nullable=True) for c in desc.columns if c.name not in spec.key]
    if spec.envelope == "UPSERT":
        return RelationDesc((*columns, *values))
    before = [c.renamed(f"before_{c.name}") for c in values]
    after = [c.renamed(f"after_{c.name}") for c in values]
    return RelationDesc((*columns, *before, *after))


def _column(name: str, kind: str, nullable: bool) -> Column:
    return Column(name, json.dumps(kind), nullable)


@dataclass(frozen=True, slots=True)
class SubscribeFormat:
    """Turns batches into rows. Stateless: the batches may come in any number of calls."""

    spec: SubscribeSpec
    desc: RelationDesc

    def schema(self) -> pa.Schema:
        return output_desc(self.spec, self.desc).arrow_schema()

    def begin(self) -> pa.Table:
        """The rows before any batch: with PROGRESS one at the as-of, unless up_to allows none."""
        if self.spec.progress and not self._ended(Frontier(self.spec.as_of)):
            return self._progress(self.spec.as_of)
        return self.schema().empty_table()

    def rows(self, updates: pa.Table, upper: Frontier) -> pa.Table:
        """The rows of one batch: all updates below `upper` that no batch before contained.

        `updates` have the relation's columns, ``__time``, ``__diff``. Those at or before the as-of
        are the snapshot. Ordered by time.
        """
        within = self._within(updates)
        match self.spec.envelope:
            case None:
                rows = self._diff_rows(within)
            case "UPSERT":
                rows = self._upsert_rows(within)
            case "DEBEZIUM":
                rows = self._debezium_rows(within)
        up_to = self.spec.up_to
        reached = upper if up_to is None else min(upper, Frontier(up_to))
        if not self.spec.progress or reached.is_empty or reached.value <= self.spec.as_of:
            return rows
        return pa.concat_tables([rows, self._progress(Timestamp(reached.value))])

    def _ended(self, upper: Frontier) -> bool:
        return self.spec.up_to is not None and upper.value >= self.spec.up_to

    def _within(self, updates: pa.Table) -> pa.Table:
        """The updates that the bounds allow, consolidated and in the order of their times."""
        as_of = self.spec.as_of
        times = updates.column(TIME_COLUMN)
        keep = pc.less(times, 2**63 - 1 if self.spec.up_to is None else self.spec.up_to)
        if not self.spec.snapshot:
            keep = pc.and_(keep, pc.greater(times, as_of))
        raised = pc.max_element_wise(times, as_of)
        at = updates.schema.get_field_index(TIME_COLUMN)
        updates = updates.set_column(at, updates.schema.field(at), raised)
        if self.spec.up_to is not None and as_of >= self.spec.up_to:
            updates = updates.slice(0, 0)
        else:
            updates = updates.filter(keep)
        updates = consolidate(updates)
        return updates.take(pc.sort_indices(updates, sort_keys=[(TIME_COLUMN, "ascending")]))

    def _diff_rows(self, updates: pa.Table) -> pa.Table:
        if self.spec.order_by:
            updates = updates.take(_within_time_order(updates, self.desc, self.spec.order_by))
        columns = [updates.column(TIME_COLUMN), *self._no_progress(len(updates))]
        columns.append(updates.column(DIFF_COLUMN))
        columns += updates.columns[: len(self.desc.columns)]
        return self._table(columns)

    def _upsert_rows(self, updates: pa.Table) -> pa.Table:
        changes = changes_by_key(updates, TIME_COLUMN, self._stored_key())
        states = _states(changes, inserted="upsert")
        new = pc.if_else(changes.violation, None, changes.new)
        columns = [*self._head(updates, changes), states, *self._keys(updates, changes)]
        columns += [updates.column(at).take(new) for at in self._values()]
        return self._table(columns)

    def _debezium_rows(self, updates: pa.Table) -> pa.Table:
        changes = changes_by_key(updates, TIME_COLUMN, self._stored_key())
        states = _states(changes, inserted="insert")
        old = pc.if_else(changes.violation, None, changes.old)
        new = pc.if_else(changes.violation, None, changes.new)
        columns = [*self._head(updates, changes), states, *self._keys(updates, changes)]
        columns += [updates.column(at).take(old) for at in self._values()]
        columns += [updates.column(at).take(new) for at in self._values()]
        return self._table(columns)

    def _head(self, updates: pa.Table, changes: KeyChanges) -> list[pa.ChunkedArray | pa.Array]:
        times = updates.column(TIME_COLUMN).take(changes.any_row)
        return [times, *self._no_progress(len(times))]

    def _keys(self, updates: pa.Table, changes: KeyChanges) -> list[pa.ChunkedArray]:
        return [updates.column(name).take(changes.any_row) for name in self._stored_key()]

    def _stored_key(self) -> list[str]:
        return [stored_column(name) for name in self.spec.key]

    def _values(self) -> list[int]:
        """The positions of the columns that are not of the key."""
        names = self.desc.names
        return [at for at, name in enumerate(names) if name not in self.spec.key]

    def _no_progress(self, count: int) -> list[pa.Array]:
        return [pa.repeat(pa.scalar(False), count)] if self.spec.progress else []

    def _progress(self, time: Timestamp) -> pa.Table:
        schema = self.schema()
        nulls = [pa.nulls(1, field.type) for field in schema]
        nulls[0] = pa.array([time], pa.int64())
        nulls[1] = pa.array([True])
        return pa.Table.from_arrays(nulls, schema=schema)

    def _table(self, columns: Sequence[pa.ChunkedArray | pa.Array]) -> pa.Table:
        schema = self.schema()
        cast = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
        return pa.Table.from_arrays(cast, schema=schema)


def _states(changes: KeyChanges, *, inserted: str) -> pa.Array:
    """The state of each key: `inserted` for a new key, upsert, delete or key_violation."""
    paired = pc.if_else(pc.is_valid(changes.old), "upsert", inserted)
    states = pc.if_else(pc.is_valid(changes.new), paired, "delete")
    return pc.if_else(changes.violation, "key_violation", states)


def _within_time_order(
    updates: pa.Table, desc: RelationDesc, order_by: Sequence[OrderColumn]
) -> pa.Array:
    """Positions by time, then `order_by`, then the whole row, then the diff."""
    keys = [updates.column(TIME_COLUMN)]
    for order in order_by:
        name = DIFF_COLUMN if order.name == "mz_diff" else stored_column(order.name)
        keys.append(_ranks(updates.column(name), order))
    keys += [_ranks(updates.column(at), OrderColumn(name)) for at, name in enumerate(desc.names)]
    keys.append(updates.column(DIFF_COLUMN))
    names = [f"key{i}" for i in range(len(keys))]
    sort_keys = [(name, "ascending") for name in names]
    return pc.sort_indices(pa.table(keys, names=names), sort_keys=sort_keys)


def _ranks(column: pa.ChunkedArray, order: OrderColumn) -> pa.Array:
    """Numbers that sort as `order` asks."""
    if pa.types.is_nested(column.type):
        return codes_of(column)
    values = column.combine_chunks()
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    ranks = pc.rank(values, sort_keys="ascending", tiebreaker="dense").cast(pa.int64())
    if order.descending:
        ranks = pc.negate(ranks)
    return pc.if_else(pc.is_null(column), -(2**62) if order.nulls_first else 2**62, ranks)
