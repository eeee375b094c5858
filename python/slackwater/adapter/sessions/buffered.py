"""A write whose rows are known and whose time is not yet."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from slackwater.persist.parts import RowsOrParts
from slackwater.repr.ids import GlobalId


@dataclass(frozen=True, slots=True)
class BufferedWrite:
    """The write of one statement to one table. `name` is qualified, for messages."""

    table: GlobalId
    name: str
    rows: RowsOrParts
    inserted: int
    deleted: int

    @property
    def size_bytes(self) -> int:
        """The bytes that it takes in memory; rows in files take none."""
        return self.rows.nbytes if isinstance(self.rows, pa.Table) else 0
