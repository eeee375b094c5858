"""Advice for queries that read far more rows than they keep: an index would find those alone."""

from __future__ import annotations

from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.adapter.catalog.naming import columns_of_keys
from slackwater.adapter.protocol import Scan
from slackwater.adapter.sessions.sessions import Advice, Session
from slackwater.planner.parser.names import QualifiedName
from slackwater.repr.relation import quote_identifier

INDEXABLE = frozenset({ItemKind.TABLE, ItemKind.SOURCE, ItemKind.MATERIALIZED_VIEW})


def tell_of_index(session: Session, state: CatalogState, scan: Scan) -> None:
    """Gives the session a notice with the index that a scan lacks, once for its columns.

    There is none for what cannot have an index, nor where one has keys that are among the columns:
    the query had a reason not to take it.
    """
    item = state.items.get(scan.relation)
    if item is None or item.kind not in INDEXABLE or item.desc is None:
        return
    wanted = {name.casefold() for name in scan.columns}
    # The case is that of the definition.
    columns = tuple(c.name for c in item.desc.columns if c.name.casefold() in wanted)
    if len(columns) < len(wanted) or has_index(state, item, columns):
        return
    if session.is_news((item.id, columns)):
        keys = ", ".join(map(quote_identifier, columns))
        name = QualifiedName((item.schema_name, item.name))
        action = f"CREATE INDEX ON {name.sql} ({keys})"
        session.notify(
            f"The query has read {scan.rows_read:,} rows of {item.full_name} to find"
            f" {scan.rows_kept:,}.",
            advice=Advice(f"With an index it reads those alone: {action}.", action, item.id),
        )


def has_index(state: CatalogState, item: CatalogItem, columns: tuple[str, ...]) -> bool:
    """Whether the values of `columns` are enough to look rows up in an index on the item."""
    indexes = (each for each in state.items.values() if each.kind is ItemKind.INDEX)
    keys = (columns_of_keys(each, item) for each in indexes if item.id in each.depends_on)
    return any(all(key in columns for key in own) for own in keys)
