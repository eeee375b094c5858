"""The SQL that makes an object again, as the catalog has the object now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.canonical import quote_string, to_sql
from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.parse import parse
from slackwater.repr.relation import Column, JsonType, RelationDesc, quote_identifier, sql_type

_COLLATIONS = "__COLLATIONS"
# System relations show every definition at each read.
_parsed = lru_cache(maxsize=4096)(parse)


def current_sql(state: CatalogState, item: CatalogItem) -> str:
    """What makes the item again, as it is now; of a part of a source, what makes the source."""
    whole = None if item.parent is None else state.items.get(item.parent)
    return shown_sql(item if whole is None else whole)


def shown_sql(item: CatalogItem) -> str:
    """What SHOW CREATE prints: it recreates the item in the session's catalog and schema of then.

    A table of a source and a progress relation have the text of their source.
    """
    history = item.details.get("retain_history_ms")
    match item.kind:
        case ItemKind.TABLE:
            properties = item.details.get("properties") or {}
            return create_table_sql(item.full_name, item.desc, history, item.comment, properties)
        case ItemKind.VIEW:
            return _create_view_sql(item)
        case _ if item.parent is not None or not item.create_sql:
            return item.create_sql
    name = QualifiedName(("slackwater", item.schema_name, item.name))
    match _parsed(item.create_sql):
        case st.CreateMaterializedView() | st.CreateSource() as made:
            return to_sql(replace(made, name=name, retain_history_ms=history))
        case st.CreateSink() as made:
            return to_sql(replace(made, name=name))
        case _:
            return item.create_sql


def create_table_sql(
    full_name: str,
    desc: RelationDesc | None,
    retain_history_ms: int | None,
    comment: str | None,
    properties: Mapping[str, str],
) -> str:
    """A CREATE TABLE statement that makes the same table again."""
    columns = () if desc is None else desc.columns
    text = f"CREATE TABLE {_quoted(full_name)} ({', '.join(map(_column, columns))})"
    if comment:
        text += f" COMMENT {quote_string(comment)}"
    if not properties:
        history = f" WITH (RETAIN HISTORY FOR '{retain_history_ms} ms')"
        return text if retain_history_ms is None else text + history
    # Beside TBLPROPERTIES there is no WITH: it would become a second one.
    shown = dict(properties)
    if retain_history_ms is not None:
        shown["retain_history"] = f"{retain_history_ms} ms"
    pairs = (f"{quote_string(key)} = {quote_string(shown[key])}" for key in sorted(shown))
    return f"{text} TBLPROPERTIES ({', '.join(pairs)})"


def _create_view_sql(item: CatalogItem) -> str:
    names = []
    for column in () if item.desc is None else item.desc.columns:
        comment = json.loads(column.metadata_json).get("comment")
        ending = f" COMMENT {quote_string(comment)}" if comment else ""
        names.append(f"{quote_identifier(column.name)}{ending}")
    text = f"CREATE VIEW {_quoted(item.full_name)} ({', '.join(names)})"
    if item.comment:
        text += f" COMMENT {quote_string(item.comment)}"
    return f"{text} AS {item.details['query']}"


def _quoted(full_name: str) -> str:
    return ".".join(quote_identifier(part) for part in full_name.split(".", 2))


def _column(column: Column) -> str:
    metadata = json.loads(column.metadata_json)
    declared = column.spark_type
    if metadata.get("__CHAR_VARCHAR_TYPE_STRING"):
        kind = str(metadata["__CHAR_VARCHAR_TYPE_STRING"])
    else:
        kind = _type(declared, column.name, metadata.get(_COLLATIONS) or {})
    words = [quote_identifier(column.name), kind]
    if not column.nullable:
        words.append("NOT NULL")
    if column.default_sql is not None:
        words.append(f"DEFAULT {column.default_sql}")
    if metadata.get("comment"):
        words.append(f"COMMENT {quote_string(metadata['comment'])}")
    return " ".join(words)


def _type(kind: JsonType, path: str, collations: Mapping[str, str]) -> str:
    """The type as a column is declared with it; `collations` are by path inside the column."""
    if isinstance(kind, str):
        collation = collations.get(path)
        own = sql_type(kind)
        return own if collation is None else f"{own} COLLATE {collation.rpartition('.')[2]}"
    match kind["type"]:
        case "struct":
            return f"STRUCT<{', '.join(_struct_field(field) for field in kind['fields'])}>"
        case "array":
            return f"ARRAY<{_type(kind['elementType'], f'{path}.element', collations)}>"
        case "map":
            key = _type(kind["keyType"], f"{path}.key", collations)
            value = _type(kind["valueType"], f"{path}.value", collations)
            return f"MAP<{key}, {value}>"
        case _:
            return sql_type(kind)


def _struct_field(field: Mapping[str, Any]) -> str:
    metadata = field.get("metadata") or {}
    own = _type(field["type"], field["name"], metadata.get(_COLLATIONS) or {})
    words = [f"{quote_identifier(field['name'])}: {own}"]
    if not field["nullable"]:
        words.append("NOT NULL")
    if metadata.get("comment"):
        words.append(f"COMMENT {quote_string(metadata['comment'])}")
    return " ".join(words)
