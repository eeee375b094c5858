"""``FROM POSTGRES`` as values: which publication, and which of its tables.

Source: surface 4; docs/decisions 0072.
"""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.planner.parser.names import QualifiedName


@dataclass(frozen=True, slots=True)
class UpstreamTable:
    """A table of the upstream, and the name that it gets here; None: it keeps its own."""

    name: QualifiedName
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class PostgresSource:
    """A publication. `tables` and `schemas` choose of its tables; both empty: all of them, or none
    where it `is_bare`: then they come later, by CREATE TABLE.

    `text_columns` and `exclude_columns` name columns with their tables: ``t.c`` or ``a.t.c``.
    `snapshot_connections` is over how many connections one large table is copied; None: it does not
    say.
    """

    connection: QualifiedName
    publication: str
    tables: tuple[UpstreamTable, ...] = ()
    schemas: tuple[str, ...] = ()
    text_columns: tuple[QualifiedName, ...] = ()
    exclude_columns: tuple[QualifiedName, ...] = ()
    is_bare: bool = False
    snapshot_connections: int | None = None
