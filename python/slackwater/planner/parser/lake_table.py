"""Tables of lakes as statements name them.

Source: surface 4, docs/decisions 0076, 0077, 0079, 0080.
"""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.planner.parser.names import QualifiedName


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """A Delta table in a folder, or below a prefix of S3, to which `aws` leads; None: the SDK finds
    the way itself."""

    path: str
    aws: QualifiedName | None = None


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """An Iceberg table of a catalog, to which `connection` leads.

    `namespace` has its parts separated by dots. `aws` leads to where the table's files are.
    """

    connection: QualifiedName
    namespace: str
    table: str
    aws: QualifiedName | None = None
