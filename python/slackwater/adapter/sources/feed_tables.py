"""The tables of sources of changefeeds: those that were made with a source, and later ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slackwater.adapter.catalog.details import (
    ChangefeedDetails,
    FeedTableSettings,
    SourceTableDetails,
)
from slackwater.adapter.catalog.model import CatalogItem, CatalogState
from slackwater.repr.ids import GlobalId


@dataclass(frozen=True, slots=True)
class FedTable:
    """A table that a source of changefeeds fills: its declaration, whose name is that in the
    upstream, the object, and the name of its export."""

    settings: FeedTableSettings
    item: GlobalId
    export: str
    is_later: bool = False


def fed_tables(state: CatalogState, source: CatalogItem) -> Sequence[FedTable]:
    """The tables of a source that there are."""
    details = source.of(ChangefeedDetails)
    declared = ((each, details.exports[each.name]) for each in details.config.tables)
    made = [
        FedTable(settings, item, settings.name)
        for settings, item in declared
        if item in state.items
    ]
    for export, table in state.tables_of(source.id).items():
        settings = table.of(SourceTableDetails).feed
        if settings is not None:
            made.append(FedTable(settings, table.id, export, is_later=True))
    return made


def feed_keys(state: CatalogState, source: CatalogItem) -> Mapping[str, Sequence[str]]:
    """The columns of the primary keys of the tables, by their names in the upstream."""
    return {each.settings.name: each.settings.key for each in fed_tables(state, source)}
