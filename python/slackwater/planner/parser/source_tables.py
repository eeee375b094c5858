"""Tables of sources as values: CREATE TABLE ... FROM SOURCE, and what a source says that it has.

Source: surface 4; docs/decisions 0073.
"""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.planner.parser.kafka_source import Decoding
from slackwater.planner.parser.names import QualifiedName


@dataclass(frozen=True, slots=True)
class CreateTableFromSource:
    """A table that a source fills with what it calls `reference`; None: it has one alone.

    `columns` is the text between the parentheses of the declaration, for Spark's parser. `decoding`
    says how messages become rows, for sources that read messages. `text_columns` and
    `exclude_columns` are those of a table of PostgreSQL. `key` are the columns of the primary key
    of a table of a changefeed, `extras` its column for what has no other.
    """

    name: QualifiedName
    source: QualifiedName
    reference: QualifiedName | None = None
    columns: str | None = None
    decoding: Decoding | None = None
    if_not_exists: bool = False
    retain_history_ms: int | None = None
    text_columns: tuple[str, ...] = ()
    exclude_columns: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    extras: str | None = None


@dataclass(frozen=True, slots=True)
class ReferencedTable:
    """A table in FOR TABLES: what the source calls it, and its own name if that is another one."""

    reference: QualifiedName
    name: str | None = None


@dataclass(frozen=True, slots=True)
class RefreshReferences:
    """ALTER SOURCE ... REFRESH REFERENCES: the source is asked again what it has."""

    name: QualifiedName
    if_exists: bool = False
