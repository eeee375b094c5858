"""Tables of an upstream PostgreSQL: what a source keeps of them, and what they are now.

Source: docs/decisions 0072.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class PostgresColumn:
    """A column that a source reads. `number` is its own for the life of its table.

    `base` is the name of its type in pg_type, that of the elements for an array, and what a domain
    is based on. `modifier` is that of the type, -1 without one. One that `is_added` came to a table
    that was read already: the contents have it from the copy on that took it.
    """

    name: str
    number: int
    type_oid: int
    base: str
    modifier: int = -1
    is_array: bool = False
    not_null: bool = False
    is_added: bool = False


@dataclass(frozen=True, slots=True)
class PostgresTable:
    """A table of the upstream as a source reads it. `export` is the name of its collection."""

    export: str
    schema: str
    name: str
    oid: int
    columns: tuple[PostgresColumn, ...]
    text_columns: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """The name that the table had at the creation of its source, for messages."""
        return f"{self.schema}.{self.name}"

    @property
    def added(self) -> tuple[str, ...]:
        """The names of the columns that came to the table when it was read already."""
        return tuple(each.name for each in self.columns if each.is_added)

    def with_added(self, taken: Collection[str]) -> PostgresTable:
        """The table without those columns that were added and that the contents do not have yet."""
        kept = (each for each in self.columns if not each.is_added or each.name in taken)
        return replace(self, columns=tuple(kept))


@dataclass(frozen=True, slots=True)
class TableNow:
    """A table as the upstream has it.

    `member` is the id of its membership in the publication: another one, once it has left and come
    back. `key` are the columns of its replica identity; None: FULL or NOTHING. `columns` are those
    that the publication has, `hidden` the names of those that it leaves out. `row_filter` is a
    condition of the publication, as SQL.
    """

    oid: int
    schema: str
    name: str
    member: int
    identity: str
    key: tuple[str, ...] | None
    columns: tuple[PostgresColumn, ...]
    hidden: tuple[str, ...] = ()
    row_filter: str | None = None

    def column(self, name: str) -> PostgresColumn | None:
        """The column of that name."""
        return next((each for each in self.columns if each.name == name), None)


Tables = Mapping[int, TableNow]
"""The tables of a publication, by their oids."""


def difference(table: PostgresTable, now: TableNow) -> str | None:
    """Why a table cannot be read as its source was created; None: it can.

    A column that may be NULL may be gone.
    """
    for column in table.columns:
        found = now.column(column.name)
        if found is None:
            if column.not_null:
                return f"its column {column.name} is gone"
        elif found.number != column.number:
            return f"its column {column.name} is another one of the same name"
        elif found.type_oid != column.type_oid:
            return f"the type of its column {column.name} was changed"
    return None


def widened(table: PostgresTable, now: TableNow, left_out: Collection[str]) -> PostgresTable:
    """The table with the columns that the upstream has by now besides, but for those `left_out`.

    They may be NULL here, as they are until a copy takes them.
    """
    own = {column.name for column in table.columns}
    added = (
        replace(each, not_null=False, is_added=True)
        for each in now.columns
        if each.name not in own and each.name.casefold() not in left_out
    )
    return replace(table, columns=(*table.columns, *added))
