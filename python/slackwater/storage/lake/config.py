"""The definition of a sink into a table of a lake, and the relations that suit it.

Source: surface 4, docs/decisions 0076.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import Column, RelationDesc
from slackwater.storage.lake.history import TableColumn
from slackwater.storage.sink_rows import SinkKey, refuse_added

LakeMode = Literal["APPEND", "UPSERT"]
DeletesBy = Literal["equality", "rewrite"]
"""Rows leave an Iceberg table by files with their keys, or by data files that are written anew."""

DIFF_NAME = "_mz_diff"
TIMESTAMP_NAME = "_mz_timestamp"
"""The columns that APPEND adds: how often the row comes or goes, and when, in milliseconds."""

DEFAULT_COMMIT_INTERVAL_MS = 10_000
DEFAULT_COMPACT_EVERY = 50

_INEXACT = ("float", "double")


@dataclass(frozen=True, slots=True)
class DeltaPlace:
    """A Delta table in a folder, whose path is absolute, or below ``s3://bucket/prefix``. `aws` is
    the connection to where it is, if one was named."""

    uri: str
    aws: GlobalId | None = None

    @property
    def shown(self) -> str:
        """The table as messages name it."""
        return f"the table {self.uri}"


@dataclass(frozen=True, slots=True)
class IcebergPlace:
    """An Iceberg table of the catalog to which the sink's connection leads. `aws` is the connection
    to where its files are, if one was named."""

    namespace: str
    table: str
    aws: GlobalId | None = None

    @property
    def shown(self) -> str:
        """The table as messages name it."""
        return f"the table {self.namespace}.{self.table}"


LakePlace = DeltaPlace | IcebergPlace


@dataclass(frozen=True, slots=True)
class LakeSourceConfig:
    """A source that reads a table of a lake. `columns` are those of the table at its creation.

    `start` is the number of the version whose contents are the first; None: of the last one.
    """

    place: LakePlace
    columns: tuple[TableColumn, ...]
    start: int | None = None


@dataclass(frozen=True, slots=True)
class LakeSinkConfig:
    """A sink into a table of a lake. `key` names the key columns of UPSERT.

    Not `is_enforced`: of several rows of a key the greatest counts. `snapshot` false leaves out
    what the relation held when the sink began. Commits with changes begin `commit_interval_ms`
    after each other, or later. For tables of Iceberg, `deletes` says how
    rows go, and after `compact_every` commits with changes small files are written anew; 0: never.
    """

    place: LakePlace
    mode: LakeMode
    key: tuple[str, ...] = ()
    is_enforced: bool = True
    snapshot: bool = True
    commit_interval_ms: int = DEFAULT_COMMIT_INTERVAL_MS
    deletes: DeletesBy = "equality"
    compact_every: int = DEFAULT_COMPACT_EVERY


def check_lake_sink(config: LakeSinkConfig, desc: RelationDesc, object_name: str) -> None:
    """Raises SLACKWATER_SINK_KEY when the key does not suit the mode or the relation.

    Raises SLACKWATER_DUPLICATE_COLUMN when a column of the relation has the name of one that APPEND
    adds, whatever its case is: so readers find columns.
    """
    key = SinkKey(config.key, object_name)
    if config.mode == "UPSERT" and not config.key:
        raise key.refused("MODE UPSERT needs KEY (columns)")
    if config.mode == "APPEND" and config.key:
        raise key.refused("MODE APPEND takes no key")
    key.check(desc)
    for column in desc.only(config.key).columns:
        if (reason := _no_key(column)) is not None:
            raise key.refused(f"{column.name} {reason}")
    if config.mode == "APPEND":
        refuse_added(desc, (DIFF_NAME, TIMESTAMP_NAME), f"the table of {object_name}")


def _no_key(column: Column) -> str | None:
    """The reason why rows cannot be found by the column: engines differ in what is equal."""
    kind = column.spark_type
    if not isinstance(kind, str) or kind in _INEXACT:
        return f"is {column.sql_type}, by which no rows of a table can be found"
    if "COLLAT" in (column.type_json + column.metadata_json).upper():
        return "has a collation, by which no rows of a table can be found"
    return None
