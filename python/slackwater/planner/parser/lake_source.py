"""``FROM DELTA`` and ``FROM ICEBERG`` as values: which table, and from which version on.

Source: surface 4, docs/decisions 0079.
"""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.planner.parser.lake_table import DeltaTable, IcebergTable


@dataclass(frozen=True, slots=True)
class DeltaSource:
    """A Delta table. `start_version` None: what it has when the source begins."""

    table: DeltaTable
    start_version: int | None = None


@dataclass(frozen=True, slots=True)
class IcebergSource:
    """An Iceberg table of a catalog, from its last version on."""

    table: IcebergTable


LakeSource = DeltaSource | IcebergSource
