"""The columns of a Delta table that a sink writes, as its log has them.

Types in the log are Spark's, in Spark's own JSON. Source: docs/decisions 0076.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from slackwater.repr.errors import user_error
from slackwater.repr.relation import JsonType, RelationDesc, unclear_field
from slackwater.storage.lake.config import DIFF_NAME, TIMESTAMP_NAME, LakeSinkConfig

_FORBIDDEN = frozenset(" ,;{}()\n\t=")
"""The characters of which Spark has none in names of a Delta table without column mapping."""
_PROPERTY = "delta."
"""The prefix of settings that change how a column is written."""

Field = Mapping[str, Any]


def delta_fields(config: LakeSinkConfig, desc: RelationDesc, object_name: str) -> list[Field]:
    """The columns of the sink's table; all of them, and what is inside of them, may be NULL.

    Raises SLACKWATER_UNSUPPORTED_TYPE for types that a Delta table does not have,
    SLACKWATER_DUPLICATE_COLUMN for names that differ in their case alone, and
    SLACKWATER_COLUMN_MISMATCH for names that are none of a Delta table's.
    """
    desc.arrow_schema()
    known: set[str] = set()
    fields = []
    for column in desc.columns:
        name = column.name
        if name.lower() in known:
            raise user_error(
                "SLACKWATER_DUPLICATE_COLUMN",
                columnName=name,
                objectName=f"the table of {object_name}",
            )
        known.add(name.lower())
        if (unclear := unclear_field(name, column.spark_type)) is not None:
            raise _mismatch(object_name, f"{unclear} cannot be found by its name")
        kind = plain_type(column.spark_type)
        if '"fields": []' in json.dumps(kind):
            raise _mismatch(object_name, f"{name} has a STRUCT without fields")
        for each in (name, *_names(kind)):
            if not each or _FORBIDDEN & set(each):
                raise _mismatch(
                    object_name,
                    f"the name {each!r} is none of a Delta table's, where none is empty or has a "
                    "space, a tabulator, the end of a line, or one of ,;{}()=",
                )
        fields.append(_field(name, kind))
    if config.mode == "APPEND":
        fields += [_field(DIFF_NAME, "integer"), _field(TIMESTAMP_NAME, "long")]
    return fields


def check_fields(wanted: Sequence[Field], found: Sequence[Field], object_name: str) -> None:
    """Raises SLACKWATER_COLUMN_MISMATCH when a table with the columns `found` cannot have rows of
    the columns `wanted`: they have to be there, and others may be NULL."""
    table = {field["name"]: field for field in found}
    for field in wanted:
        name = field["name"]
        there = table.pop(name, None)
        if there is None:
            raise _mismatch(object_name, f"the table has no column {name}")
        if there["type"] != field["type"]:
            kinds = [json.dumps(each["type"]).strip('"') for each in (there, field)]
            raise _mismatch(object_name, f"{name} is {kinds[0]} in the table, and {kinds[1]} here")
        _check_free(there, object_name)
    for there in table.values():
        _check_free(there, object_name)


def _check_free(field: Field, object_name: str) -> None:
    if not field["nullable"]:
        raise _mismatch(object_name, f"{field['name']} is NOT NULL in the table")
    for key in field["metadata"]:
        if key.startswith(_PROPERTY):
            raise _mismatch(object_name, f"{field['name']} has {key} in the table")


def plain_type(kind: JsonType) -> JsonType:
    """The type without lengths and collations, in which everything may be NULL."""
    if isinstance(kind, str):
        is_text = kind.startswith(("string", "char", "varchar"))
        return "string" if is_text else kind
    match kind["type"]:
        case "array":
            return {**kind, "elementType": plain_type(kind["elementType"]), "containsNull": True}
        case "map":
            inner = {
                "keyType": plain_type(kind["keyType"]),
                "valueType": plain_type(kind["valueType"]),
            }
            return {**kind, **inner, "valueContainsNull": True}
        case _:
            fields = [_field(each["name"], plain_type(each["type"])) for each in kind["fields"]]
            return {"type": "struct", "fields": fields}


def _names(kind: JsonType) -> list[str]:
    """The names of fields inside of the type."""
    if isinstance(kind, str):
        return []
    inner = [kind[part] for part in ("elementType", "keyType", "valueType") if part in kind]
    fields = kind.get("fields", ())
    inner += [field["type"] for field in fields]
    return [field["name"] for field in fields] + [name for each in inner for name in _names(each)]


def _field(name: str, kind: JsonType) -> Field:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def _mismatch(object_name: str, details: str) -> Exception:
    return user_error("SLACKWATER_COLUMN_MISMATCH", objectName=object_name, details=details)
