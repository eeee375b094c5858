"""The types that random tables have: as Spark, Arrow and DuckDB know them, and some values."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from slackwater.repr.relation import Column, RelationDesc

NAN = float("nan")
COLLATIONS = "__COLLATIONS"


@dataclass(frozen=True, slots=True)
class Kind:
    """`ordered`: both engines sort such values alike."""

    spark: Any
    duck: str
    values: tuple
    ordered: bool = True
    collation: str = ""


def _decimals(*quarters: int) -> tuple:
    return tuple(Decimal(each) / 4 for each in quarters)


_DAYS = tuple(datetime.date(2024, 2, 27) + datetime.timedelta(days=each) for each in (0, 1, 2, 4))
_MOMENTS = (
    datetime.datetime(2024, 2, 28, 23, 30),
    datetime.datetime(2024, 2, 29, 0, 0),
    datetime.datetime(2024, 2, 29, 12, 0, 0, 250_000),
)
_FIELDS = [
    {"name": "a", "type": "integer", "nullable": True, "metadata": {}},
    {"name": "b", "type": "string", "nullable": True, "metadata": {}},
]
_ARRAY = {"type": "array", "elementType": "integer", "containsNull": True}
_MAP = {
    "type": "map",
    "keyType": "string",
    "valueType": "integer",
    "valueContainsNull": True,
}
_CASED = ("a", "A", "b", "Ab", "aB", *(each * n for n in (24, 25, 31, 32) for each in "xX"))
"""At some lengths a row fills the buffer in which it is made."""

_TWINS = [
    {"name": name, "type": kind, "nullable": True, "metadata": {}}
    for name, kind in (("a", "integer"), ("A", "string"), ("a.b", "integer"))
]
_SAME = [{**each, "name": "id"} for each in _FIELDS]
_MAPS = {**_MAP, "valueType": _MAP}
_NOTHING = {"type": "struct", "fields": []}
_XY, _YX = (("x", 1), ("y", None)), (("y", None), ("x", 1))

KINDS: Mapping[str, Kind] = {
    "integer": Kind("integer", "INTEGER", (-1, 0, 1, 2, 3)),
    "long": Kind("long", "BIGINT", (-2, 0, 1, 2, 1 << 40)),
    "decimal": Kind("decimal(10,2)", "DECIMAL(10, 2)", _decimals(-6, 0, 1, 4, 5)),
    # Sums of few of these are exact in any order.
    "double": Kind("double", "DOUBLE", (-1.5, -0.0, 0.0, 0.25, 2.0, 2.0, NAN, float("inf"))),
    "string": Kind("string", "VARCHAR", ("", "a", "ab", "B", "2", "é")),
    "lcase": Kind("string", "VARCHAR", _CASED, collation="UTF8_LCASE"),
    # Both engines sort these alike; equal are only those that are the same.
    "unicode": Kind("string", "VARCHAR", ("", "a", "ab", "b", "c", "ca"), collation="UNICODE"),
    "date": Kind("date", "DATE", _DAYS),
    "timestamp": Kind("timestamp", "TIMESTAMP", _MOMENTS),
    "ntz": Kind("timestamp_ntz", "TIMESTAMP", _MOMENTS),
    "boolean": Kind("boolean", "BOOLEAN", (True, False)),
    "struct": Kind(
        {"type": "struct", "fields": _FIELDS},
        "STRUCT(a INTEGER, b VARCHAR)",
        ((("a", 1), ("b", "x")), (("a", None), ("b", "x")), (("a", 2), ("b", None))),
        ordered=False,
    ),
    "array": Kind(_ARRAY, "INTEGER[]", ((), (1,), (1, None), (2, 1)), ordered=False),
    "map": Kind(
        _MAP,
        "MAP(VARCHAR, INTEGER)",
        ((), (("x", 1),), (("x", None), ("y", 2)), (("y", 2), ("x", None))),
        ordered=False,
    ),
    # DuckDB has neither of these structs: there they are as they are stored.
    "twins": Kind(
        {"type": "struct", "fields": _TWINS},
        'STRUCT(a_1 INTEGER, "A_2" VARCHAR, "a.b_3" INTEGER)',
        (
            (("a_1", 1), ("A_2", "x"), ("a.b_3", None)),
            (("a_1", None), ("A_2", "x"), ("a.b_3", 2)),
            (("a_1", 1), ("A_2", None), ("a.b_3", 1)),
        ),
        ordered=False,
    ),
    "nothing": Kind(_NOTHING, "STRUCT(__empty BOOLEAN)", ((("__empty", None),),), ordered=False),
    "maps": Kind(
        _MAPS,
        "MAP(VARCHAR, MAP(VARCHAR, INTEGER))",
        (
            (),
            (("x", _XY), ("y", ())),
            (("y", ()), ("x", _YX)),
            (("x", None), ("y", _XY)),
            (("y", _YX), ("x", None)),
        ),
        ordered=False,
    ),
    # No table has it: only queries make it.
    "same": Kind(
        {"type": "struct", "fields": _SAME}, "STRUCT(id_1 INTEGER, id_2 VARCHAR)", (), ordered=False
    ),
    "char": Kind("char(3)", "VARCHAR", ("   ", "a  ", "ab ", "é  ")),
    "varchar": Kind("varchar(3)", "VARCHAR", ("", "a", "ab ", "aé")),
}
"""A value of a struct or a map is a tuple of pairs, of an array a tuple."""


def described(columns: Mapping[str, str]) -> RelationDesc:
    """The relation whose columns have these kinds."""
    return RelationDesc(tuple(_column(name, KINDS[kind]) for name, kind in columns.items()))


def _column(name: str, kind: Kind) -> Column:
    collations = {COLLATIONS: {name: f"spark.{kind.collation}"}} if kind.collation else {}
    return Column(name, json.dumps(kind.spark, sort_keys=True), True, json.dumps(collations))


def as_arrow(kind: str, value: Any) -> Any:
    """The value as Arrow takes it."""
    if value is None:
        return None
    match kind:
        case "struct" | "twins" | "nothing":
            return dict(value)
        case "maps":
            return [(key, None if inner is None else list(inner)) for key, inner in value]
        case "array" | "map":
            return list(value)
        case _:
            return value


def as_spark(kind: str, value: Any) -> Any:
    """The value as a row of Spark takes it."""
    if value is None:
        return None
    match kind:
        case "nothing":
            return ()
        case "struct" | "twins":
            return tuple(each for _, each in value)
        case "map":
            return dict(value)
        case "maps":
            return {key: None if inner is None else dict(inner) for key, inner in value}
        case "timestamp":
            return value.replace(tzinfo=datetime.timezone.utc)
        case _:
            return as_arrow(kind, value)


def as_duck(kind: str, value: Any) -> Any:
    """The value in DuckDB, as one for all that are equal in Spark.

    The lower case stands for what a collation has equal; a map has its entries in one order.
    """
    if value is None:
        return None
    match kind:
        case "lcase":
            return value.lower()
        case "map":
            return sorted(value)
        case "maps":
            return sorted((key, None if inner is None else sorted(inner)) for key, inner in value)
        case _:
            return as_arrow(kind, value)


def is_map(kind: str) -> bool:
    """Whether Spark has no `=` for such values."""
    return kind in ("map", "maps")


def is_collated(column: Column) -> bool:
    return column.name in json.loads(column.metadata_json).get(COLLATIONS, {})


def compared(value: Any, kind: pa.DataType, collated: bool = False) -> Any:
    """The value, hashable, so that values are equal that both engines have equal."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return tuple((field.name, compared(value[field.name], field.type)) for field in kind)
    if pa.types.is_map(kind):
        entries = value.items() if isinstance(value, dict) else value
        return frozenset((key, compared(each, kind.item_type)) for key, each in entries)
    if pa.types.is_list(kind):
        return tuple(compared(each, kind.value_type) for each in value)
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    return value.lower() if collated else value
