"""The columns of an Iceberg table as a source has them: the types of Spark, and where fields are.

Iceberg's schema is the JSON of its specification. What it has inside of columns may be NULL here
in any case: an evolution from required to optional is no other type then.

Source: docs/decisions 0080.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from slackwater.repr.errors import user_error
from slackwater.repr.relation import Column, JsonType, RelationDesc, arrow_type
from slackwater.storage.iceberg.schema import DECIMAL, PLAIN, Json
from slackwater.storage.lake.history import TableColumn

_SPARK = {
    arrow_type(name): name
    for name in (
        "boolean",
        "integer",
        "long",
        "float",
        "double",
        "date",
        "timestamp",
        "timestamp_ntz",
        "string",
        "binary",
    )
}
_FIXED = "fixed["
_INEXACT = ("float", "double")
_AS_TEXT = frozenset({"time", "uuid"})
"""The types that Spark has as texts alone."""


def table_columns(schema: Json) -> tuple[TableColumn, ...]:
    """The columns of a table with that schema; fields are known by their ids.

    Raises SLACKWATER_UNSUPPORTED_TYPE.
    """
    return tuple(
        TableColumn(
            each["name"],
            json.dumps(_spark_type(each["type"]), sort_keys=True),
            not each["required"],
            str(each["id"]),
        )
        for each in schema["fields"]
    )


def arrow_fields(fields: Sequence[Json]) -> pa.Schema:
    """Arrow's fields for rows with these fields, which may be NULL, as files of ours have them.

    Raises SLACKWATER_UNSUPPORTED_TYPE.
    """
    columns = tuple(Column(each["name"], json.dumps(_spark_type(each["type"]))) for each in fields)
    return RelationDesc(columns).arrow_schema()


def comparable_ids(schema: Json, identities: Collection[str]) -> frozenset[int]:
    """The ids of those of the columns that are equal where their values here are."""
    return frozenset(
        each["id"]
        for each in schema["fields"]
        if str(each["id"]) in identities
        and isinstance(each["type"], str)
        and each["type"] not in _INEXACT
    )


def path_to(fields: Sequence[Json], field_id: int) -> tuple[Json, ...]:
    """The field with that id behind those that it is within; empty: no struct of them has it."""
    for each in fields:
        if each["id"] == field_id:
            return (each,)
        kind = each["type"]
        if isinstance(kind, Mapping) and kind["type"] == "struct":
            inner = path_to(kind["fields"], field_id)
            if inner:
                return (each, *inner)
    return ()


def _spark_type(kind: Json | str) -> JsonType:
    if isinstance(kind, str):
        return _plain(kind)
    match kind["type"]:
        case "struct":
            fields = [
                {
                    "name": each["name"],
                    "type": _spark_type(each["type"]),
                    "nullable": True,
                    "metadata": {},
                }
                for each in kind["fields"]
            ]
            return {"type": "struct", "fields": fields}
        case "list":
            element = _spark_type(kind["element"])
            return {"type": "array", "elementType": element, "containsNull": True}
        case "map":
            return {
                "type": "map",
                "keyType": _spark_type(kind["key"]),
                "valueType": _spark_type(kind["value"]),
                "valueContainsNull": True,
            }
        case other:
            raise user_error("SLACKWATER_UNSUPPORTED_TYPE", typeName=str(other).upper())


def _plain(kind: str) -> str:
    if kind in PLAIN:
        return _SPARK[PLAIN[kind]]
    if kind in _AS_TEXT:
        return "string"
    if kind.startswith(_FIXED):
        return "binary"
    if (decimal := DECIMAL.fullmatch(kind)) is not None:
        return f"decimal({decimal[1]},{decimal[2]})"
    raise user_error("SLACKWATER_UNSUPPORTED_TYPE", typeName=kind.upper())
