"""The seam between a source and a table of a lake: its versions, and what each of them changed.

A version is whole or not there: what one commit of the table has done. A source takes versions one
after the other, so its contents are at each time what the table has in one of them.

Source: surface 4, docs/decisions 0079.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One version of one table.

    `number` grows from version to version. `table` identifies the table, `version` the version
    among all that ever had its number: a table made anew or rolled back has others.
    """

    number: int
    table: str
    version: str
    committed_ms: int


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table. `identity` stays when it is renamed, where tables have that.

    `type_json` is Spark's JSON for the type, `metadata_json` Spark's metadata of the column.
    """

    name: str
    type_json: str
    nullable: bool
    identity: str
    metadata_json: str = "{}"


@dataclass(frozen=True, slots=True)
class VersionChanges:
    """The changes of one version against the one before it.

    `rows` has rows with ``__diff``, piece by piece, read when they are asked for; those that go
    come first, if that is easy. `deleted` has values of some columns, and is asked before `rows`:
    each row of the version before that has such values goes, whether `rows` has it as one that goes
    or not. `size_bytes` is about how much is to be read. `columns` are those of the table from this
    version on.
    """

    version: TableVersion
    columns: Sequence[TableColumn]
    rows: Iterator[pa.Table]
    deleted: Iterator[pa.Table]
    size_bytes: int


class TableHistory(Protocol):
    """One table, for one reader. Not thread-safe.

    Rows have the table's columns by name, and maybe more, in the Arrow types of their Spark types
    or such that are cast to these without loss. A column that a file lacks is NULL.

    Each method raises SLACKWATER_SOURCE_UNREACHABLE when the way to the table fails,
    SLACKWATER_SOURCE_TABLE_UNREADABLE when the table or a file of it cannot be read, and
    SLACKWATER_SOURCE_HISTORY_LOST when a version or a file of it is there no more; so do the
    iterators that it gives.
    """

    def newest(self) -> TableVersion:
        """The last version that was committed."""
        ...

    def last_number(self) -> int:
        """The number of the last version, which costs less than to know the version itself."""
        ...

    def at(self, number: int) -> TableVersion:
        """The version with that number."""
        ...

    def columns(self, version: TableVersion) -> Sequence[TableColumn]:
        """The columns of the table in that version."""
        ...

    def known_rows(self, version: TableVersion) -> int | None:
        """About how many rows that version has, without reading them; None: nobody has counted."""
        ...

    def contents(self, version: TableVersion) -> Iterator[pa.Table]:
        """All rows of that version, piece by piece, deleted rows left out."""
        ...

    def after(self, version: TableVersion) -> Iterator[VersionChanges]:
        """The versions after that one, in their order; those that change no rows too.

        Raises SLACKWATER_SOURCE_REPLACED when `version` is not one of those that led to the newest.
        """
        ...

    def close(self) -> None:
        """Ends the clients."""
        ...
