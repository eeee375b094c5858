"""The resolution of names in statements to items of the catalog."""

from __future__ import annotations

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.planner.parser.names import QualifiedName, resolve
from slackwater.repr.errors import user_error


def find_item(state: CatalogState, name: QualifiedName, context: Context) -> CatalogItem:
    """The item that `name` means in `context`.

    Raises SLACKWATER_WRONG_CATALOG and SLACKWATER_UNKNOWN_RELATION.
    """
    schema, own = resolve(name, context.catalog, context.namespace)
    item = state.find(schema, own)
    if item is None:
        raise user_error("SLACKWATER_UNKNOWN_RELATION", objectName=f"{schema}.{own}")
    return item


def expect_kind(item: CatalogItem, kind: ItemKind) -> None:
    """Raises SLACKWATER_WRONG_KIND unless the item is of `kind`."""
    if item.kind is not kind:
        raise user_error(
            "SLACKWATER_WRONG_KIND",
            objectName=item.full_name,
            actualKind=item.kind.value.replace("-", " "),
            expectedKind=kind.value.replace("-", " "),
        )
