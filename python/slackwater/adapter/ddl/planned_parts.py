"""Parts of sources and of their tables, which live and die with them, as items of the catalog."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import replace

from slackwater.adapter.catalog.details import ProgressDetails, SubsourceDetails
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.adapter.sources.descriptions import partitions
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc
from slackwater.storage.progress import HYBRID_TIME, ONE_PARTITION, PARTITIONED


def part_of(
    whole: CatalogItem,
    item_id: GlobalId,
    name: str,
    desc: RelationDesc,
    details: ProgressDetails | SubsourceDetails,
) -> CatalogItem:
    """A relation that is a part of a source, or of a table of one."""
    return CatalogItem(
        id=item_id,
        kind=ItemKind.SOURCE,
        schema_name=whole.schema_name,
        name=name,
        create_sql=whole.create_sql,
        desc=desc,
        owner=whole.owner,
        created_ms=whole.created_ms,
        details=details,
        cluster=whole.cluster,
    )


def progress_item(item_id: GlobalId, source: CatalogItem, schema: str, name: str) -> CatalogItem:
    """The progress relation of a source, which keeps as much history as the source."""
    details = ProgressDetails(source.id, source.retain_history_ms)
    made = part_of(source, item_id, name, _progress_columns(source), details)
    return replace(made, schema_name=schema)


def _progress_columns(source: CatalogItem) -> RelationDesc:
    if source.is_changefeed:
        return HYBRID_TIME
    return ONE_PARTITION if partitions(source) == 1 else PARTITIONED


def free_name(state: CatalogState, schema: str, wanted: str, taken: Collection[str] = ()) -> str:
    """`wanted`, or the first of ``wanted_1``, ``wanted_2``, ... that nothing has.

    Names in `taken`, in folded case, are about to exist.
    """
    names = itertools.chain([wanted], (f"{wanted}_{number}" for number in itertools.count(1)))
    return next(
        name for name in names if state.find(schema, name) is None and name.casefold() not in taken
    )


def free_letters_name(state: CatalogState, whole: CatalogItem) -> str:
    """A name for the dead letters of a source, or of a table of one."""
    return free_name(state, whole.schema_name, f"{whole.name}_dead_letters")
