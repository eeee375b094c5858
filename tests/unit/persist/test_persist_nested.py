"""Nested values in the types that a relation has now, whoever wrote them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from slackwater.persist.nested import as_type
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.relation import EMPTY, Column, RelationDesc, arrow_type, unclear_field


def struct(*fields):
    listed = [{"name": name, "type": kind, "nullable": True} for name, kind in fields]
    return {"type": "struct", "fields": listed}


def test_fields_go_by_their_places():
    target = arrow_type(struct(("x", "integer"), ("X", "string")))
    values = pa.array(
        [{"x": 1, "X": "a"}, None], pa.struct([("x", pa.int32()), ("X", pa.string())])
    )
    assert as_type(values, target).to_pylist() == [{"x_1": 1, "X_2": "a"}, None]


def test_a_struct_without_fields_of_before():
    target = arrow_type(struct(("e", struct()), ("n", "integer")))
    before = pa.struct([("e", pa.struct([])), ("n", pa.int32())])
    values = pa.array([{"e": {}, "n": 1}, {"e": None, "n": 2}, None], before)
    wanted = [{"e": {EMPTY: None}, "n": 1}, {"e": None, "n": 2}, None]
    assert as_type(values, target).to_pylist() == wanted


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("integer", None),
        (struct(("a", "integer"), ("b", "string")), None),
        (struct(("a", "integer"), ("A", "string")), "c.a"),
        ({"type": "array", "elementType": struct(("x", "date"), ("x", "date"))}, "c.element.x"),
        (
            {
                "type": "map",
                "keyType": "string",
                "valueType": struct(("s", struct(("y", "long"), ("Y", "long")))),
            },
            "c.value.s.y",
        ),
        (struct(("__EMPTY", "boolean")), "c.__EMPTY"),
    ],
)
def test_fields_that_no_name_finds(kind, path):
    assert unclear_field("c", kind) == path


def test_texts_of_fixed_length_have_no_collation():
    metadata = '{"__COLLATIONS": {"c": "spark.UTF8_LCASE"}}'
    RelationDesc((Column("c", '"string"', True, metadata),)).arrow_schema()
    RelationDesc((Column("c", '"char(5)"', True, "{}"),)).arrow_schema()
    with pytest.raises(SlackwaterError, match=r"CHAR\(5\) COLLATE UTF8_LCASE"):
        RelationDesc((Column("c", '"char(5)"', True, metadata),)).arrow_schema()
