"""Nested values in the types that a relation has now, whoever wrote them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from slackwater.persist.consolidate import consolidate
from slackwater.persist.nested import as_type, with_leaves
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


def needed(*fields):
    """A struct whose fields are never NULL."""
    return pa.struct([pa.field(name, kind, False) for name, kind in fields])


INNER = needed(("a", pa.date32()))


@pytest.mark.parametrize(
    "kind",
    [
        INNER,
        needed(("s", INNER)),
        pa.list_(pa.field("element", INNER)),
        pa.map_(pa.string(), pa.field("value", INNER)),
        needed(("m", pa.map_(INNER, pa.field("value", INNER, False)))),
    ],
)
def test_values_of_maps_may_be_null_where_their_fields_are_not(kind):
    """Below a NULL struct Spark and Arrow have NULLs in its fields."""
    target = pa.map_(pa.string(), pa.field("value", kind))
    plain = with_leaves(target, lambda each: pa.int32() if pa.types.is_date(each) else each)
    leaf = _one(plain.item_type)
    rows = [[("x", None), ("y", leaf)], None, [], [("z", leaf), ("x", None)]]
    values = as_type(pa.array(rows, plain), target)
    for found in (as_type(values, plain), as_type(values.slice(1), plain)):
        assert found.to_pylist() == rows[len(rows) - len(found) :]
    table = pa.table({"m": values, "__time": [1] * 4, "__diff": [1] * 4})
    assert len(consolidate(pa.concat_tables([table, table]))) == 4


def _one(kind):
    """A value of the type."""
    if pa.types.is_struct(kind):
        return {field.name: _one(field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(_one(kind.key_type), _one(kind.item_type))]
    return [_one(kind.value_type)] if pa.types.is_list(kind) else "k" if kind == pa.string() else 7


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
