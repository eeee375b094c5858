"""The tables of lakes that sources and sinks name, as their definitions keep them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import ConnectionDetails
from slackwater.adapter.catalog.model import CatalogState
from slackwater.adapter.catalog.render import name_of
from slackwater.adapter.ddl.planned_schemas import connection_named
from slackwater.persist.s3 import BUCKET
from slackwater.planner.parser.lake_table import DeltaTable, IcebergTable
from slackwater.repr.errors import invalid_option
from slackwater.repr.ids import GlobalId
from slackwater.storage.discovery import local_path
from slackwater.storage.lake.config import DeltaPlace, IcebergPlace

_FLAT = ("hive", "glue", "s3tablesrest")
"""Types of catalogs that have no namespaces in namespaces."""
_S3 = re.compile(r"s3a?://", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NamedTable:
    """An Iceberg table, the name that means it everywhere, and the connection to its catalog."""

    place: IcebergPlace
    table: IcebergTable
    connection: GlobalId


def delta_table(
    state: CatalogState, context: Context, table: DeltaTable, statement: str
) -> tuple[DeltaPlace, DeltaTable]:
    """The place of a Delta table, and the table with the name that means its connection anywhere.

    Raises SLACKWATER_INVALID_OPTION, what `local_path` raises, and what `connection_named` raises.
    """
    uri = _s3(table.path, statement) if _S3.match(table.path) else None
    if table.aws is None:
        return DeltaPlace(local_path(table.path, os.getcwd) if uri is None else uri), table
    files = connection_named(state, context, table.aws, "AWS", statement)
    if uri is None:
        reason = f"the table {table.path} is in no bucket of S3"
        raise invalid_option("AWS CONNECTION", statement, files.full_name, reason)
    return DeltaPlace(uri, files.id), replace(table, aws=name_of(files))


def _s3(path: str, statement: str) -> str:
    """``s3://bucket/prefix`` of that or of the form with ``s3a:``."""
    bucket, _, prefix = _S3.sub("", path).rstrip("/").partition("/")
    if BUCKET.fullmatch(bucket) is None or not all(prefix.split("/")):
        # The text may hold credentials (s3://key:secret@bucket), so it is not shown.
        reason = "it is not s3://bucket/prefix"
        raise invalid_option("PATH", statement, "(hidden)", reason)
    return f"s3://{bucket}/{prefix}"


def named_table(
    state: CatalogState, context: Context, table: IcebergTable, statement: str
) -> NamedTable:
    """The Iceberg table that a statement names.

    Raises SLACKWATER_INVALID_OPTION, and what `connection_named` raises.
    """
    catalog = connection_named(state, context, table.connection, "ICEBERG CATALOG", statement)
    kind = catalog.of(ConnectionDetails).texts("CATALOG TYPE")[0]
    if kind in _FLAT and "." in table.namespace:
        reason = f"namespaces of a catalog of the type {kind} have one part"
        raise invalid_option("NAMESPACE", statement, table.namespace, reason)
    named, aws = replace(table, connection=name_of(catalog)), None
    if table.aws is not None:
        files = connection_named(state, context, table.aws, "AWS", statement)
        aws, named = files.id, replace(named, aws=name_of(files))
    return NamedTable(IcebergPlace(table.namespace, table.table, aws), named, catalog.id)
