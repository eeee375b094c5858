"""An Iceberg table as statements name it.

Source: surface 4, docs/decisions 0077, 0080.
"""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.planner.parser.names import QualifiedName


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """An Iceberg table of a catalog, to which `connection` leads.

    `namespace` has its parts separated by dots. `aws` leads to where the table's files are.
    """

    connection: QualifiedName
    namespace: str
    table: str
    aws: QualifiedName | None = None
