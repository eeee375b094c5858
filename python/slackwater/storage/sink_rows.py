"""The rows of a range of time, as sinks of any kind make messages of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.persist.consolidate import comparable, consolidate
from slackwater.repr.errors import FatalError, SlackwaterError, user_error
from slackwater.repr.frontier import Frontier
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN, RelationDesc, stored_column
from slackwater.storage.json_lines import json_lines
from slackwater.storage.updates import KeyChanges, changes_by_key


@dataclass(frozen=True, slots=True)
class SinkKey:
    """The key of a sink. `object_name` is the sink's in messages.

    Not `is_enforced`: of several rows of a key at one time the greatest counts.
    """

    columns: tuple[str, ...]
    object_name: str
    is_enforced: bool = True

    @property
    def stored(self) -> list[str]:
        """The names of its columns in updates."""
        return [stored_column(name) for name in self.columns]

    def refused(self, reason: str) -> SlackwaterError:
        """SLACKWATER_SINK_KEY."""
        key = ", ".join(self.columns)
        return user_error(
            "SLACKWATER_SINK_KEY", key=key, objectName=self.object_name, reason=reason
        )

    def check(self, desc: RelationDesc) -> None:
        """Raises SLACKWATER_SINK_KEY when the relation has no such key."""
        for name in self.columns:
            if name not in desc.names:
                raise self.refused(f"the relation has no column {name}")
        if len(set(self.columns)) < len(self.columns):
            raise self.refused("a column occurs twice")


@dataclass(frozen=True, slots=True)
class SinkRange:
    """A range of time that a sink is asked to write.

    `reached`: every update before it is out; None: the sink has not begun. Then `lower` is its
    as-of, and updates at or before that are the snapshot, which goes out with that as its time.
    """

    lower: Frontier
    upper: Frontier
    reached: Frontier | None

    @property
    def begins(self) -> bool:
        """Whether it is the first range of the sink."""
        return self.reached is None

    @property
    def start(self) -> Frontier:
        """The time from which updates are to go out."""
        return self.lower if self.reached is None else self.reached

    @property
    def is_out(self) -> bool:
        """Whether all of it is out already."""
        return self.upper <= self.start and not self.begins

    def refuse_gap(self, object_name: str) -> None:
        """Raises FatalError when updates between what is out and the range would be left out."""
        if self.lower > self.start:
            raise FatalError(
                f"{object_name}: a range from {self.lower} leaves a gap at {self.start}"
            )

    def rows(self, desc: RelationDesc, updates: Iterable[pa.Table], *, snapshot: bool) -> pa.Table:
        """The updates that are to go out, consolidated, by time; the snapshot if it is wanted."""
        start = self.start.value
        least, first = (start, start + (not snapshot)) if self.begins else (0, start)
        return rows_within(desc, updates, least, first, self.upper.value)


def rows_within(
    desc: RelationDesc, updates: Iterable[pa.Table], least: int, first: int, end: int
) -> pa.Table:
    """The updates with first <= time < end, consolidated, by time.

    Times below `least` are raised to it.
    """
    schema = desc.update_schema()
    tables = [schema.empty_table()]
    for table in updates:
        table = table.select(schema.names).cast(schema)
        times = pc.max_element_wise(table.column(TIME_COLUMN), least)
        at = schema.get_field_index(TIME_COLUMN)
        inside = pc.and_(pc.greater_equal(times, first), pc.less(times, end))
        tables.append(table.set_column(at, schema.field(at), times).filter(inside))
    table = pa.concat_tables(tables)
    ordered = table.take(pc.sort_indices(table, sort_keys=[(TIME_COLUMN, "ascending")]))
    return consolidate(ordered)


def refuse_added(desc: RelationDesc, added: Sequence[str], place: str) -> None:
    """Raises SLACKWATER_DUPLICATE_COLUMN for a column with the name of one that the sink adds.

    Readers of `place` find columns by their names, and often whatever their case is.
    """
    for name in desc.names:
        if name.lower() in added:
            raise user_error("SLACKWATER_DUPLICATE_COLUMN", columnName=name, objectName=place)


def greatest_last(rows: pa.Table, desc: RelationDesc) -> pa.Table:
    """The rows by time and by their values, column by column; NULL is less than anything else.

    Nested values go by their JSON text.
    """
    keys: dict[str, pa.Array | pa.ChunkedArray] = {"t": rows.column(TIME_COLUMN)}
    for number, name in enumerate(desc.stored_names):
        column = rows.column(name)
        keys[f"n{number}"] = pc.cast(pc.is_valid(column), pa.int8())
        if pa.types.is_nested(column.type):
            texts = json_lines(pa.table({"v": column})).split(b"\n")[:-1]
            column = pa.chunked_array([pa.array(texts, pa.binary())])
        keys[f"v{number}"] = comparable(column)
    order = [(name, "ascending") for name in keys]
    return rows.take(pc.sort_indices(pa.table(keys), sort_keys=order))


def changes_of(rows: pa.Table, key: SinkKey) -> KeyChanges:
    """The change of each key at each time. Raises SLACKWATER_SINK_KEY for several rows of one."""
    changes = changes_by_key(rows, TIME_COLUMN, key.stored)
    position = changes.violated() if key.is_enforced else None
    if position is None:
        return changes
    row = rows.slice(position, 1)
    found = json.loads(json_lines(row.select(key.stored).rename_columns(list(key.columns))))
    values = ", ".join(f"{name} = {json.dumps(found[name])}" for name in key.columns)
    time = row.column(TIME_COLUMN)[0].as_py()
    raise key.refused(f"there is more than one row with {values} at {time}")


def unpaired(rows: pa.Table) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Each insert and each delete by itself, as often as its diff says: any, old, new row."""
    any_row: list[int] = []
    old: list[int | None] = []
    new: list[int | None] = []
    for position, diff in enumerate(rows.column(DIFF_COLUMN).to_pylist()):
        any_row += [position] * abs(diff)
        old += [position if diff < 0 else None] * abs(diff)
        new += [position if diff > 0 else None] * abs(diff)
    kind = pa.int64()
    return pa.array(any_row, kind), pa.array(old, kind), pa.array(new, kind)


def structs(rows: pa.Table, names: Sequence[str], positions: pa.Array) -> pa.Array:
    """The columns `names` of the rows at `positions` as structs, NULL where the position is."""
    stored = [stored_column(name) for name in names]
    arrays = [rows.column(name).combine_chunks().take(positions) for name in stored]
    fields = [pa.field(name, a.type) for name, a in zip(names, arrays, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=pc.is_null(positions))
