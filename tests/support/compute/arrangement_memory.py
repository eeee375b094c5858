"""The memory of a driver's arrangements, of which a test may take nearly all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PAGE_BYTES = 4096
LIMIT_BYTES = 256 << 20
SETTINGS = {
    "spark.slackwater.arrangements.memory": f"{LIMIT_BYTES}b",
    "spark.slackwater.arrangements.disk": "0",
}
"""Of an application whose arrangements have no more than `LIMIT_BYTES`."""


class ArrangementMemory:
    """What all bridges of an application with `SETTINGS` share."""

    def __init__(self, jvm: Any) -> None:
        shim = jvm.org.apache.spark.sql.slackwater
        flows = shim.bridge.Bridge.under("{}", "", "", 1).dataflows()
        self._budget = flows.replica().arrangements().budget()
        self._allotment = shim.arrangements.Allotment(self._budget, "a test")

    def used_bytes(self) -> int:
        return int(self._budget.used())

    @contextmanager
    def all_but(self, pages: int) -> Iterator[None]:
        """While the block runs, arrangements have so many pages; none has any at its begin."""
        with self.all_left_but(pages):
            yield

    @contextmanager
    def all_left_but(self, pages: int) -> Iterator[None]:
        """While the block runs, arrangements may take so many pages more than they have now."""
        free = LIMIT_BYTES - self.used_bytes()
        block = self._allotment.allocate(free - pages * PAGE_BYTES)
        try:
            yield
        finally:
            self._allotment.free(block)
