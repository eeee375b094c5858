"""``INTO DELTA`` and ``INTO ICEBERG`` as values: which table, and how rows become its contents.

Source: surface 4, docs/decisions 0076.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slackwater.planner.parser.lake_table import DeltaTable, IcebergTable

DeletesBy = Literal["equality", "rewrite"]


@dataclass(frozen=True, slots=True)
class DeltaSinkConnector:
    """A Delta table, which is made if it is not there.

    MODE UPSERT is the statement's envelope UPSERT with its key, MODE APPEND the envelope DIFF. Not
    `is_enforced`: of several rows of a key one counts.
    """

    table: DeltaTable
    is_enforced: bool = True
    commit_interval_ms: int | None = None


@dataclass(frozen=True, slots=True)
class IcebergSinkConnector:
    """An Iceberg table of a catalog; for the rest as `DeltaSinkConnector`.

    `deletes` says how rows go, and `compact_every` after how many commits files are written
    together; None: as it is usual.
    """

    table: IcebergTable
    is_enforced: bool = True
    commit_interval_ms: int | None = None
    deletes: DeletesBy | None = None
    compact_every: int | None = None


LakeSinkConnector = DeltaSinkConnector | IcebergSinkConnector
