"""Schemas that get other names, and the definitions that name what is in them.

A definition goes on to mean the same objects: the text of its query and the namespace in which its
names are read get the new names. Other statements are shown with the names that objects have now.

Source: spec coordinator 4.4; docs/decisions 0104.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from slackwater.adapter.catalog.details import (
    Details,
    IndexDetails,
    MaterializedViewDetails,
    ViewDetails,
)
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, fold
from slackwater.adapter.catalog.ops import AlterItem, CatalogOp, RenameSchemas
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.canonical import to_sql
from slackwater.planner.parser.names import CATALOG
from slackwater.planner.parser.parse import parse
from slackwater.planner.parser.schema_names import NamedRelations, with_schemas


def renamed(state: CatalogState, names: Mapping[str, str]) -> list[CatalogOp]:
    """The change that gives schemas other names, by those of before."""
    new = _NewNames(state, {fold(before): after for before, after in names.items()})
    return [RenameSchemas(names), *new.definitions()]


def affected(state: CatalogState, names: Mapping[str, str]) -> list[CatalogItem]:
    """The views whose queries name what is in one of the schemas, or are read there."""
    places = set(map(fold, names))

    def is_there(item: CatalogItem) -> bool:
        match item.details:
            case ViewDetails(namespace=namespace) | MaterializedViewDetails(namespace=namespace):
                named = (state.items[each] for each in item.direct_dependencies)
                used = {*namespace, *(each.schema_name for each in named)}
                return any(fold(each) in places for each in used)
            case _:
                return False

    return [item for item in state.topological() if is_there(item)]


@dataclass(frozen=True, slots=True)
class _NewNames:
    """The names of schemas from now on, by the folded ones of `state`."""

    state: CatalogState
    names: Mapping[str, str]

    def definitions(self) -> Iterator[CatalogOp]:
        """The changes of definitions that name one of the schemas."""
        for item in self.state.items.values():
            after = self._details(item)
            if after is not None and after != item.details:
                yield AlterItem(item.id, details=after, create_sql=self._sql(item, after))

    def _details(self, item: CatalogItem) -> Details | None:
        match item.details:
            case ViewDetails() as view:
                query = self._text(item, view.catalog, view.query)
                return replace(view, query=query, namespace=self._place(view))
            case MaterializedViewDetails() as view:
                asserting = view.asserting
                return replace(
                    view,
                    query=self._text(item, view.catalog, view.query),
                    namespace=self._place(view),
                    asserting=asserting and self._text(item, view.catalog, asserting),
                )
            case IndexDetails() as index:
                keys = tuple(self._text(item, CATALOG, key) for key in index.keys)
                return replace(index, keys=keys)
            case _:
                return None

    def _place(self, view: ViewDetails | MaterializedViewDetails) -> tuple[str, ...]:
        """The namespace of the view's query, which may be one of another catalog."""
        if view.catalog != CATALOG:
            return view.namespace
        return tuple(self.names.get(fold(each), each) for each in view.namespace)

    def _text(self, item: CatalogItem, catalog: str, text: str) -> str:
        named = [self.state.items[each] for each in item.direct_dependencies]
        relations = {(fold(each.schema_name), fold(each.name)) for each in named}
        return with_schemas(text, NamedRelations(catalog, relations), self.names)

    def _sql(self, item: CatalogItem, details: Details) -> str:
        """The statement of the definition with the new text of the query, or of the keys."""
        match parse(item.create_sql), details:
            case (
                (st.CreateView() | st.CreateMaterializedView()) as made,
                ViewDetails(query=query) | MaterializedViewDetails(query=query),
            ):
                return to_sql(replace(made, query=st.TextSlice(query)))
            case st.CreateIndex(keys=tuple()) as made, IndexDetails(keys=keys):
                return to_sql(replace(made, keys=tuple(map(st.TextSlice, keys))))
            case _:
                return item.create_sql
