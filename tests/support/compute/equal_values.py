"""Pairs of values that are the same to a collection, or are not though Spark takes them for equal.

What is the same goes when the other is taken away; what is not must not.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

from slackwater.repr.relation import Column, RelationDesc


@dataclass(frozen=True, slots=True)
class Pair:
    """`kind` is the type as Spark writes it in JSON; `collation` that of a text."""

    name: str
    kind: Any
    left: Any
    right: Any
    same: bool
    collation: str | None = None

    @property
    def desc(self) -> RelationDesc:
        metadata = {"__COLLATIONS": {"v": f"spark.{self.collation}"}} if self.collation else {}
        return RelationDesc((Column("v", json.dumps(self.kind), True, json.dumps(metadata)),))


def _double(bits: int) -> float:
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


def _map(values: str) -> dict[str, Any]:
    return {"type": "map", "keyType": "string", "valueType": values, "valueContainsNull": True}


def _array(elements: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": elements, "containsNull": True}


def _struct(**fields: Any) -> dict[str, Any]:
    listed = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in fields.items()
    ]
    return {"type": "struct", "fields": listed}


NAN, STRANGE_NAN = float("nan"), _double(0xFFF8000000000001)
TWINS = _struct(x="integer", X="double")
"""Its values have the names that its fields have in files."""

AB, BA = [("a", 1), ("b", 2)], [("b", 2), ("a", 1)]

PAIRS = (
    Pair("null", "integer", None, None, True),
    Pair("empty text", "string", "", None, False),
    Pair("text", "string", "a", "A", False),
    Pair("blank", "string", "a", "a ", False),
    Pair("binary", "binary", b"a", b"a\0", False),
    Pair("lower case", "string", "a", "A", False, "UTF8_LCASE"),
    Pair("without blanks", "string", "a", "a ", False, "UTF8_BINARY_RTRIM"),
    Pair("composed", "string", "\u00e9", "e\u0301", False, "UNICODE"),
    Pair("accents", "string", "e", "\u00e9", False, "UNICODE_CI_AI"),
    Pair("zero", "double", 0.0, -0.0, True),
    Pair("single zero", "float", -0.0, 0.0, True),
    Pair("not a number", "double", NAN, STRANGE_NAN, True),
    Pair("array of zeros", _array("double"), [0.0, None], [-0.0, None], True),
    Pair("array of NULL", _array("integer"), [None], [], False),
    Pair("array of none", _array("integer"), [], None, False),
    Pair("struct of a zero", _struct(x="float", y="string"), {"x": -0.0}, {"x": 0.0}, True),
    Pair("struct of NULL", _struct(x="integer"), {"x": None}, None, False),
    Pair("struct without fields", _struct(), {}, None, False),
    Pair("names in two cases", TWINS, {"x_1": 1, "X_2": 0.0}, {"x_1": 1, "X_2": -0.0}, True),
    Pair("other in one case", TWINS, {"x_1": 1, "X_2": 2.0}, {"x_1": 2, "X_2": 1.0}, False),
    Pair("map", _map("integer"), AB, BA, True),
    Pair("map of NULL", _map("integer"), [("a", None)], [("a", 0)], False),
    Pair("map of none", _map("integer"), [], None, False),
    Pair("map of zeros", _map("double"), [("a", -0.0)], [("a", 0.0)], True),
    Pair("map in an array", _array(_map("integer")), [AB, None], [BA, None], True),
    Pair("map in a struct", _struct(m=_map("integer")), {"m": BA}, {"m": AB}, True),
    Pair("map of maps", _map(_map("integer")), [("x", AB)], [("x", BA)], True),
    Pair(
        "map of maps, both turned",
        _map(_map("integer")),
        [("x", AB), ("y", []), ("z", None)],
        [("z", None), ("y", []), ("x", BA)],
        True,
    ),
    Pair(
        "map of maps with another value",
        _map(_map("integer")),
        [("x", AB), ("y", [])],
        [("y", []), ("x", [("a", 1), ("b", None)])],
        False,
    ),
    Pair(
        "map of lists of maps",
        _map(_array(_map("double"))),
        [("x", [[("a", 0.0), ("b", NAN)], None]), ("y", [])],
        [("y", []), ("x", [[("b", STRANGE_NAN), ("a", -0.0)], None])],
        True,
    ),
    Pair(
        "map of structs with maps",
        _map(_struct(m=_map("integer"), n="integer")),
        [("x", {"m": AB, "n": 1}), ("y", {"m": None, "n": 2})],
        [("y", {"m": None, "n": 2}), ("x", {"m": BA, "n": 1})],
        True,
    ),
    Pair("map of arrays", _map(_array("double")), [("x", [NAN])], [("x", [STRANGE_NAN])], True),
)
