"""The records and files of an environment, read for those who verify it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Connection, Table, select

from slackwater.adapter.catalog.clusters import ClusterEntry
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, SchemaEntry
from slackwater.adapter.system.relations import system_items, system_schemas
from slackwater.check.files import Found
from slackwater.check.objects import StoredCatalog
from slackwater.persist import garbage, inspection
from slackwater.persist.blobs import Blobs
from slackwater.persist.inspection import EnvironmentRecord, ShardOutline
from slackwater.persist.tables import (
    catalog_clusters,
    catalog_counters,
    catalog_items,
    catalog_schemas,
    secrets,
)
from slackwater.repr.errors import SlackwaterError, first_line
from slackwater.repr.ids import GlobalId, is_user

T = TypeVar("T", CatalogItem, ClusterEntry)


@dataclass(frozen=True, slots=True)
class Overview:
    """All but the parts, as of one moment.

    `parts` says how many each shard has, `file_names` are those of all files on record, and
    `in_deletion` the files that parts name although they are being deleted.
    """

    environment: EnvironmentRecord
    catalog: StoredCatalog
    shards: Mapping[int, ShardOutline]
    parts: Mapping[int, int]
    file_names: frozenset[str]
    in_deletion: tuple[str, ...]


def overview(conn: Connection) -> Overview:
    """Reads all but the parts."""
    return Overview(
        inspection.environment_record(conn),
        _catalog(conn),
        inspection.outlines(conn),
        inspection.parts_of_shards(conn),
        garbage.names_on_record(conn),
        inspection.files_in_deletion(conn),
    )


def _catalog(conn: Connection) -> StoredCatalog:
    broken: list[str] = []
    schemas = [SchemaEntry(*row) for row in conn.execute(select(catalog_schemas))]
    clusters = _decoded(conn, catalog_clusters, ClusterEntry.from_json, broken)
    items = _decoded(conn, catalog_items, CatalogItem.from_json, broken)
    for global_id in [*items, *clusters, *(schema.id for schema in schemas)]:
        if not (is_user(GlobalId(global_id)) and global_id[1:].isdecimal()):
            broken.append(f"{global_id} is no id of an object")
            items.pop(global_id, None)
    counters = conn.execute(select(catalog_counters)).one_or_none()
    state = CatalogState.of(
        [*system_schemas(), *schemas],
        [*system_items(), *items.values()],
        clusters=clusters.values(),
    )
    return StoredCatalog(
        state,
        tuple(broken),
        # Before anybody has led there is no catalog.
        0 if counters is None else counters.next_id,
        frozenset(conn.scalars(select(secrets.c.secret_id))),
    )


def _decoded(
    conn: Connection, table: Table, decode: Callable[[str], T], broken: list[str]
) -> dict[str, T]:
    """The entries of a table by id; those that do not decode are told to `broken`."""
    found = {}
    for row in conn.execute(select(table.c.id, table.c.body)):
        try:
            entry = decode(row.body)
            if entry.id != row.id:
                raise ValueError(f"it has the id {entry.id}")
            found[row.id] = entry
        except Exception as error:
            # Text that is no JSON, or of another shape: whatever decoding stumbles over.
            reason = f"{type(error).__name__}: {first_line(str(error))}"
            broken.append(f"{row.id} of {table.name} does not decode: {reason}")
    return found


def look(blobs: Blobs, uri: str) -> Found:
    """Looks at one file. Raises SLACKWATER_STORAGE_UNREADABLE when its store does not answer."""
    try:
        with blobs.open(uri) as file:
            return int(file.size())
    except FileNotFoundError:
        return None
    except SlackwaterError as error:
        # A URI that leads elsewhere than files of this environment do.
        return first_line(error.message)
    except OSError as error:
        outage = blobs.outage(uri, error)
        if outage is not None:
            raise outage from None
        return error.strerror or first_line(str(error))
