"""Searches of the catalog by patterns of names, for JDBC's metadata calls.

A pattern has ``%`` for any characters and ``_`` for one; a backslash before either, or before
another one, takes it for itself. None finds all names. Names compare without case, as everywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any

from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind, SchemaEntry, fold
from slackwater.repr.relation import Column

TABLE_TYPES: Mapping[ItemKind, str] = {
    ItemKind.TABLE: "TABLE",
    ItemKind.VIEW: "VIEW",
    ItemKind.MATERIALIZED_VIEW: "MATERIALIZED VIEW",
    ItemKind.SOURCE: "SOURCE",
    ItemKind.SYSTEM_TABLE: "SYSTEM TABLE",
}
"""The type of a table in JDBC by the kind of the object; what has none has no rows."""

_PIECE = re.compile(r"\\([%_\\])|([%_])|(.)", re.DOTALL)
_WILDCARDS = {"%": ".*", "_": "."}
_COMMENT = "comment"


def matching(pattern: str | None) -> Callable[[str], bool]:
    """Whether a name matches `pattern`."""
    if pattern is None or pattern == "%":
        return lambda _: True
    pieces = _PIECE.findall(pattern)

    def compiled(form: Callable[[str], str]) -> re.Pattern[str]:
        parts = [
            _WILDCARDS[wildcard] if wildcard else re.escape(form(escaped or plain))
            for escaped, wildcard, plain in pieces
        ]
        return re.compile("".join(parts), re.DOTALL | re.IGNORECASE)

    # Folding may make two letters of one, which is still one to a wildcard.
    as_written, folded = compiled(str), compiled(fold)
    return lambda name: bool(as_written.fullmatch(name) or folded.fullmatch(fold(name)))


def found_schemas(state: CatalogState, schemas: str | None) -> list[SchemaEntry]:
    """The schemas that match, by name."""
    matches = matching(schemas)
    found = [schema for schema in state.schemas.values() if matches(schema.name)]
    return sorted(found, key=lambda schema: schema.name)


def found_relations(
    state: CatalogState, schemas: str | None, names: str | None
) -> Iterator[CatalogItem]:
    """The objects that can be read and match, by schema and name."""
    in_schema = {schema.name for schema in found_schemas(state, schemas)}
    matches = matching(names)
    found = [
        item
        for item in state.items.values()
        if item.kind in TABLE_TYPES and item.schema_name in in_schema and matches(item.name)
    ]
    yield from sorted(found, key=lambda item: (item.schema_name, item.name))


def of_types(types: Collection[str]) -> Callable[[CatalogItem], bool]:
    """Whether an object is of one of these types of JDBC; without types, of any."""
    return lambda item: not types or TABLE_TYPES[item.kind] in types


def found_columns(item: CatalogItem, matches: Callable[[str], bool]) -> list[Mapping[str, Any]]:
    """The columns of a relation whose names match, in order, as the protocol has them."""
    columns = () if item.desc is None else item.desc.columns
    return [
        _column_json(position, column)
        for position, column in enumerate(columns, start=1)
        if matches(column.name)
    ]


def _column_json(position: int, column: Column) -> Mapping[str, Any]:
    kind = _kind_of(column.type_json, column.metadata_json)
    return {"position": position, "name": column.name, "nullable": column.nullable, **kind}


@lru_cache(maxsize=4096)
def _kind_of(type_json: str, metadata_json: str) -> Mapping[str, Any]:
    """A column's type and comment. What is left of its metadata belongs to the type.

    Columns are of few kinds, and reading the JSON of each would take most of a search.
    """
    metadata = json.loads(metadata_json)
    comment = metadata.pop(_COMMENT, None)
    return {"type": json.loads(type_json), "comment": comment, "metadata": metadata}
