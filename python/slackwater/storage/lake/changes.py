"""The changes of a lake's table that a range of a relation's updates makes.

Source: surface 4, docs/decisions 0076.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.persist.consolidate import consolidate
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN, RelationDesc, stored_column
from slackwater.storage.lake.config import DIFF_NAME, TIMESTAMP_NAME, LakeSinkConfig
from slackwater.storage.lake.table import LakeChanges
from slackwater.storage.sink_rows import SinkKey, changes_of, greatest_last

_MOST = 2**31 - 1
"""The greatest number in a column INT."""


@dataclass(frozen=True, slots=True)
class CountedChanges:
    """The changes of a range, and how many messages they are: keys that change, or rows added."""

    changes: LakeChanges
    messages: int

    @property
    def size_bytes(self) -> int:
        """The size of what the table is given."""
        deleted = self.changes.deleted
        return int(self.changes.inserted.nbytes + (0 if deleted is None else deleted.nbytes))


@dataclass(frozen=True, slots=True)
class LakeRows:
    """Makes the changes of a sink's table out of those of its relation. `object_name` is the sink's
    in messages."""

    config: LakeSinkConfig
    desc: RelationDesc
    object_name: str

    def changes(self, rows: pa.Table, *, is_known: bool) -> CountedChanges:
        """The changes of one range of updates, which are consolidated.

        UPSERT takes the range as one: what came and went within it leaves no trace. `is_known`: the
        table has of each key what the relation had before the range; else it may have any row.
        Raises SLACKWATER_SINK_KEY when a key has several rows at the range's end.
        """
        if self.config.mode == "APPEND":
            appended = self._appended(rows)
            return CountedChanges(LakeChanges(appended), len(appended))
        at = rows.column_names.index(TIME_COLUMN)
        last = pc.max(rows.column(TIME_COLUMN))
        times = pa.repeat(last, len(rows)) if len(rows) else rows.column(TIME_COLUMN)
        together = consolidate(rows.set_column(at, rows.schema.field(at), times))
        key = SinkKey(self.config.key, self.object_name, self.config.is_enforced)
        if not key.is_enforced:
            together = greatest_last(together, self.desc)
        found = changes_of(together, key)
        inserted = together.take(found.new.drop_null())
        # Of several rows of a key the table has one, and that may be another than what went.
        is_old = pc.is_valid(found.old) if is_known and key.is_enforced else None
        old = found.any_row if is_old is None else found.any_row.filter(is_old)
        deleted = together.take(old).select(key.stored)
        named = deleted.rename_columns(list(key.columns))
        return CountedChanges(LakeChanges(self._named(inserted), named), len(found.any_row))

    def _appended(self, rows: pa.Table) -> pa.Table:
        rows = _narrowed(rows)
        diffs = rows.column(DIFF_COLUMN).cast(pa.int32())
        named = self._named(rows).append_column(pa.field(DIFF_NAME, pa.int32()), diffs)
        times = rows.column(TIME_COLUMN)
        return named.append_column(pa.field(TIMESTAMP_NAME, pa.int64()), times)

    def _named(self, rows: pa.Table) -> pa.Table:
        stored = [stored_column(name) for name in self.desc.names]
        return rows.select(stored).rename_columns(list(self.desc.names))


def _narrowed(rows: pa.Table) -> pa.Table:
    """The same updates, none of which has a diff that does not fit INT."""
    diffs = rows.column(DIFF_COLUMN)
    most, least = pa.scalar(_MOST, pa.int64()), pa.scalar(-_MOST, pa.int64())
    fitting = pc.max_element_wise(pc.min_element_wise(diffs, most), least)
    left = pc.subtract(diffs, fitting)
    is_left = pc.not_equal(left, 0)
    if not pc.any(is_left).as_py():
        return rows
    at = rows.column_names.index(DIFF_COLUMN)
    field = rows.schema.field(at)
    more = rows.set_column(at, field, left).filter(is_left)
    return pa.concat_tables([rows.set_column(at, field, fitting), _narrowed(more)])
