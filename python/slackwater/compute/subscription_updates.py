"""The updates of a subscription as a replica sends them: those of each time by themselves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from slackwater.compute.controller.protocol import SubscribeUpdate
from slackwater.persist.ipc import to_stream
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import TIME_COLUMN


def updates_of(updates: pa.Table | None) -> tuple[SubscribeUpdate, ...]:
    """The updates, in the order of their times, each an Arrow IPC stream; None: there are none."""
    if updates is None or updates.num_rows == 0:
        return ()
    ordered = updates.sort_by(TIME_COLUMN)
    return tuple(
        SubscribeUpdate(Timestamp(time), to_stream(rows)) for time, rows in _by_time(ordered)
    )


def _by_time(updates: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    times = updates.column(TIME_COLUMN).to_numpy()
    begins = [0, *(np.flatnonzero(np.diff(times)) + 1).tolist()]
    for begin, end in zip(begins, [*begins[1:], len(times)], strict=True):
        yield int(times[begin]), updates.slice(begin, end - begin)
