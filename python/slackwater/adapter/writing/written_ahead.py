"""Large writes of sources and of blocks: their files are written before the commit, elsewhere.

The committing thread then only registers them, so that no other write waits for a large one.

Source: docs/decisions 0001.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.adapter.writing.group_commit import Rows
from slackwater.persist.blobs import INLINE_LIMIT_BYTES, uniform_file
from slackwater.persist.client import PersistClient
from slackwater.persist.parts import NewPart, Uniform
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import DIFF_COLUMN

_TIME_BYTES = 8
_INSERTS = {"min": 1, "max": 1}


def written_ahead(persist: PersistClient, shard_id: int, rows: pa.Table) -> Rows:
    """`rows`, which end with ``__diff``, for a write to the shard.

    Inserts that are too many for an inline part are in a file when this returns; if the write then
    fails, it is a file that no part names. Raises SLACKWATER_METASTORE_UNAVAILABLE and `Fenced`
    before it writes one, SLACKWATER_NO_SPACE and what else a file may.
    """
    size_bytes = rows.nbytes + _TIME_BYTES * rows.num_rows
    if size_bytes <= INLINE_LIMIT_BYTES or pc.min_max(rows[DIFF_COLUMN]).as_py() != _INSERTS:
        return rows
    # While the metastore is away, the attempts must not leave a file each.
    persist.confirm_leadership()
    inserted = rows.drop_columns([DIFF_COLUMN])
    directory = persist.shard_directory(shard_id)
    body = uniform_file(persist.blobs, inserted, directory, Uniform(Timestamp(0), 1))

    def parts_at(time: Timestamp) -> tuple[NewPart, ...]:
        stamped = replace(body, uniform=Uniform(time, 1))
        return (NewPart(stamped, inserted.num_rows, time, time, False),)

    return parts_at
