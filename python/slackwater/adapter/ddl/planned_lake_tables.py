"""The tables of lakes that sources and sinks name, as their definitions keep them."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.model import CatalogState
from slackwater.adapter.catalog.render import name_of
from slackwater.adapter.ddl.planned_schemas import connection_named
from slackwater.planner.parser.lake_table import IcebergTable
from slackwater.repr.ids import GlobalId
from slackwater.storage.discovery import local_path
from slackwater.storage.lake.config import DeltaPlace, IcebergPlace


@dataclass(frozen=True, slots=True)
class NamedTable:
    """An Iceberg table, the name that means it everywhere, and the connection to its catalog."""

    place: IcebergPlace
    table: IcebergTable
    connection: GlobalId


def delta_place(path: str) -> DeltaPlace:
    """The Delta table in a folder. Raises what `local_path` raises."""
    return DeltaPlace(local_path(path, os.getcwd()))


def named_table(
    state: CatalogState, context: Context, table: IcebergTable, statement: str
) -> NamedTable:
    """The Iceberg table that a statement names. Raises what `connection_named` raises."""
    catalog = connection_named(state, context, table.connection, "ICEBERG CATALOG", statement)
    named, aws = replace(table, connection=name_of(catalog)), None
    if table.aws is not None:
        files = connection_named(state, context, table.aws, "AWS", statement)
        aws, named = files.id, replace(named, aws=name_of(files))
    return NamedTable(IcebergPlace(table.namespace, table.table, aws), named, catalog.id)
