"""Follows a view by SUBSCRIBE, so that the demo knows when a change is visible."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from slackwater.spark.subscribe import subscribe

KEPT = 40
DEADLINE_S = 120.0

Update = dict[str, Any]


class TooSlowError(Exception):
    """A change was not visible within the deadline."""


class Watch:
    """The sum of one column of a relation, kept from its updates."""

    def __init__(self, spark: Any, relation: str, column: str) -> None:
        self._column = column
        self._batches = subscribe(spark, relation, progress=True, timeout_ms=1000)
        self.total = 0
        self.recent: deque[Update] = deque(maxlen=KEPT)

    def wait_for(self, total: int) -> None:
        """Returns once the column's sum is `total`. Raises TooSlowError."""
        deadline = time.monotonic() + DEADLINE_S
        while self.total != total:
            if time.monotonic() > deadline:
                raise TooSlowError(
                    f"{self._column} is {self.total} after {DEADLINE_S} s, not {total}"
                )
            self._take()

    def wait_for_row(self, column: str, value: Any) -> list[Update]:
        """Waits for an inserted row with this value; returns the updates of its time."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            for update in self.recent:
                if update["mz_diff"] > 0 and update[column] == value:
                    return [u for u in self.recent if u["mz_timestamp"] == update["mz_timestamp"]]
            if time.monotonic() > deadline:
                raise TooSlowError(f"no row with {column} = {value} after {DEADLINE_S} s")
            self._take()

    def close(self) -> None:
        batches: Iterator[Any] = self._batches
        close = getattr(batches, "close", None)
        if close is not None:
            close()

    def _take(self) -> None:
        for row in next(self._batches).to_pylist():
            if row.pop("mz_progressed"):
                continue
            self.total += row["mz_diff"] * row[self._column]
            self.recent.append(row)
