"""The resolution of names in statements to items of the catalog."""

from __future__ import annotations

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import IndexDetails
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind, fold
from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.statements import ObjectKind
from slackwater.repr.errors import user_error
from slackwater.repr.relation import quote_identifier


def find_item(state: CatalogState, name: QualifiedName, context: Context) -> CatalogItem:
    """The item that `name` means in `context`.

    Raises SLACKWATER_WRONG_CATALOG and SLACKWATER_UNKNOWN_RELATION.
    """
    schema, own = context.resolve(name)
    item = state.find(schema, own)
    if item is None:
        raise user_error("SLACKWATER_UNKNOWN_RELATION", objectName=f"{schema}.{own}")
    return item


def kind_of(kind: ObjectKind) -> ItemKind:
    """The kind of items that a statement names; schemas and columns are no items."""
    return ItemKind(kind.value.lower().replace(" ", "-"))


def expect_kind(item: CatalogItem, kind: ItemKind) -> None:
    """Raises SLACKWATER_WRONG_KIND unless the item is of `kind`."""
    if item.kind is not kind:
        raise item.wrong_kind(kind.display_name)


def columns_of_keys(index: CatalogItem, on: CatalogItem) -> list[str | None]:
    """For each key of the index the name of the column that it is; None: another expression."""
    columns = () if on.desc is None else on.desc.columns
    named = {fold(quote_identifier(c.name)): c.name for c in columns}
    named |= {fold(c.name): c.name for c in columns}
    return [named.get(fold(key)) for key in index.of(IndexDetails).keys]


def keys_as_stored(index: CatalogItem, on: CatalogItem) -> list[str | None]:
    """The same, but None for CHAR: a read has blanks behind what is stored."""
    columns = () if on.desc is None else on.desc.columns
    padded = {c.name for c in columns if c.sql_type.lower().startswith("char")}
    return [None if key in padded else key for key in columns_of_keys(index, on)]
