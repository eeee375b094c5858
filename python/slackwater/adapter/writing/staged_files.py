"""Large writes of sources and of blocks: their files are written before the commit.

The committing thread then only registers the files, so that no other write waits for a large one.

Source: docs/decisions 0001.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.persist.blobs import uniform_file
from slackwater.persist.client import PersistClient
from slackwater.persist.parts import FileBody, NewPart, PartsAt, RowsOrParts, Uniform
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import DIFF_COLUMN
from slackwater.storage.pieces import StagedRows

_TIME_BYTES = 8
_ONES = frozenset({1, -1})
"""The diffs whose rows are staged as files: insertions and deletions of one row."""


def staged_files(persist: PersistClient, shard_id: int, rows: pa.Table) -> RowsOrParts:
    """`rows`, which end with ``__diff``, for a write to the shard.

    Rows that are too many for an inline part are in files when this returns, one for each diff,
    unless one has another diff than 1 or -1; if the write then fails, no part names these files.
    Raises SLACKWATER_METASTORE_UNAVAILABLE and `Fenced` before it writes one, SLACKWATER_NO_SPACE
    and other errors of files.
    """
    size_bytes = rows.nbytes + _TIME_BYTES * rows.num_rows
    if size_bytes <= persist.files.inline_bytes:
        return rows
    diffs = pc.unique(rows[DIFF_COLUMN]).to_pylist()
    if not _ONES.issuperset(diffs):
        return rows
    return _in_files(persist, shard_id, rows)


def staged_piece(persist: PersistClient, shard_id: int, rows: pa.Table) -> StagedRows:
    """`rows`, whose diffs are 1 and -1, in files for a write to the shard, however few they are.

    Raises what `staged_files` raises.
    """
    return StagedRows(_in_files(persist, shard_id, rows), rows.num_rows)


def _in_files(persist: PersistClient, shard_id: int, rows: pa.Table) -> PartsAt:
    # While the metastore is away, the attempts must not leave a file each.
    persist.transactions.confirm_leadership()
    directory = persist.files.shard_directory(shard_id)
    files: list[tuple[FileBody, int, int]] = []
    for diff in pc.unique(rows[DIFF_COLUMN]).to_pylist():
        chosen = rows.filter(pc.equal(rows[DIFF_COLUMN], diff)).drop_columns([DIFF_COLUMN])
        body = uniform_file(persist.blobs, chosen, directory, Uniform(Timestamp(0), diff))
        files.append((body, diff, chosen.num_rows))

    def parts_at(time: Timestamp) -> tuple[NewPart, ...]:
        return tuple(
            NewPart(replace(body, uniform=Uniform(time, diff)), count, time, time, diff < 0)
            for body, diff, count in files
        )

    return parts_at
