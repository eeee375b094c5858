"""Negation: the updates that take back the contents of a shard, at a time that comes later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.persist.blobs import uniform_file
from slackwater.persist.consolidate import consolidate
from slackwater.persist.parts import FileBody, NewPart, Part, Uniform
from slackwater.persist.shard_files import ShardFiles
from slackwater.repr.frontier import TIMESTAMP_MIN, Timestamp
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN, TIME_FIELD


@dataclass(frozen=True, slots=True)
class Negation:
    """Retracts what was present; `at` makes the parts, and reads nothing for it.

    `files` are uniform, with the diffs that take back theirs and with any time, and how many rows
    they have; `rows` are few, and end with ``__diff``.
    """

    files: tuple[tuple[FileBody, Uniform, int], ...]
    rows: pa.Table
    stored: ShardFiles
    shard_id: int

    def at(self, time: Timestamp) -> tuple[NewPart, ...]:
        """The parts at `time`. Raises what `new_parts` does."""
        made = []
        for body, uniform, rows in self.files:
            stamped = replace(body, uniform=Uniform(time, uniform.diff))
            made.append(NewPart(stamped, rows, time, time, uniform.diff < 0))
        times = pa.repeat(pa.scalar(int(time), pa.int64()), self.rows.num_rows)
        updates = self.rows.add_column(self.rows.num_columns - 1, TIME_FIELD, times)
        return (*made, *self.stored.new_parts(self.shard_id, updates))


def negation_of(
    parts: Sequence[Part],
    read: Callable[[Sequence[Part]], pa.Table],
    stored: ShardFiles,
    shard_id: int,
) -> Negation:
    """The negation of all updates in `parts`.

    Uniform files are negated over the same file, which is not read. The rest is, by `read`; if it
    is much, its negation is in new files when this returns. Raises what `uniform_file` raises.
    """
    files = []
    rest = []
    for part in parts:
        match part.body:
            case FileBody(uniform=Uniform(time, diff)):
                files.append((part.body, Uniform(time, -diff), part.rows))
            case _:
                rest.append(part)
    rows = consolidate(read(rest).drop_columns([TIME_COLUMN]))
    position = rows.num_columns - 1
    diffs = pc.negate(rows.column(DIFF_COLUMN))
    rows = rows.set_column(position, rows.schema.field(position), diffs)
    if rows.nbytes <= stored.inline_bytes:
        return Negation(tuple(files), rows, stored, shard_id)
    directory = stored.shard_directory(shard_id)
    for diff in pc.unique(diffs).to_pylist():
        chosen = rows.filter(pc.equal(rows[DIFF_COLUMN], diff)).drop_columns([DIFF_COLUMN])
        uniform = Uniform(TIMESTAMP_MIN, diff)
        files.append(
            (uniform_file(stored.blobs, chosen, directory, uniform), uniform, chosen.num_rows)
        )
    return Negation(tuple(files), rows.slice(0, 0), stored, shard_id)
