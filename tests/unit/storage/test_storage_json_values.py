"""What sinks write of values for which Python has no object, and what they are grouped by."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from slackwater.persist.consolidate import codes_of
from slackwater.repr.relation import EMPTY, arrow_type, stored_names
from slackwater.storage.json_lines import json_lines

DAY_US = 86_400_000_000
BEFORE, AFTER = -735_525, 2_932_897
"""-0044-03-15 and +10000-01-01, in days since 1970."""

NOT_UTF8 = pa.array([b"a\xffb"]).view(pa.string())


def nested(kind):
    """Types with values of `kind` inside."""
    return {
        "alone": (kind, lambda value: value),
        "list": (pa.list_(kind), lambda value: [value, None]),
        "struct": (pa.struct([("x", kind)]), lambda value: {"x": value}),
        "map": (pa.map_(pa.string(), pa.list_(kind)), lambda value: {"k": [value]}),
    }


def column(wrapped, values):
    """The values inside of a type."""
    one = pa.array([0], pa.int32())
    offsets = pa.array([0, 2], pa.int32())
    match wrapped:
        case "alone":
            return values
        case "list":
            return pa.ListArray.from_arrays(
                offsets, pa.concat_arrays([values, pa.nulls(1, values.type)])
            )
        case "struct":
            return pa.StructArray.from_arrays([values], names=["x"])
        case _:
            inner = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), values)
            return pa.MapArray.from_arrays(
                pa.concat_arrays([one, pa.array([1], pa.int32())]), ["k"], inner
            )


VALUES = {
    "before year 1": (pa.array([BEFORE], pa.int32()).view(pa.date32()), "-0044-03-15"),
    "after year 9999": (pa.array([AFTER], pa.int32()).view(pa.date32()), "+10000-01-01"),
    "year 0": (pa.array([-719_528], pa.int32()).view(pa.date32()), "0000-01-01"),
    "year 1": (pa.array([-719_162], pa.int32()).view(pa.date32()), "0001-01-01"),
    "usual": (pa.array([19_782], pa.int32()).view(pa.date32()), "2024-02-29"),
    "greatest": (pa.array([2**31 - 1], pa.int32()).view(pa.date32()), "+5881580-07-11"),
    "early time": (
        pa.array([BEFORE * DAY_US + 1], pa.int64()).view(pa.timestamp("us", "UTC")),
        f"{BEFORE * 86_400_000 + 1}"[:-1] + "9.999",
    ),
    "late time": (
        pa.array([AFTER * DAY_US], pa.int64()).view(pa.timestamp("us")),
        f"{AFTER * 86_400_000}",
    ),
    "no UTF-8": (NOT_UTF8, "a\ufffdb"),
}


@pytest.mark.parametrize("wrapped", ["alone", "list", "struct", "map"])
@pytest.mark.parametrize("name", VALUES)
def test_every_value_has_a_text(name, wrapped):
    values, text = VALUES[name]
    kind, form = nested(values.type)[wrapped]
    line = json_lines(pa.table({"v": column(wrapped, values)}))
    assert json.loads(line) == {"v": form(text)}, kind


def test_structs_that_arrow_does_not_have():
    fields = [
        {"name": name, "type": kind, "nullable": True}
        for name, kind in (("id", "integer"), ("ID", {"type": "struct", "fields": []}))
    ]
    kind = arrow_type({"type": "struct", "fields": fields})
    value = pa.array([{"id_1": 1, "ID_2": {EMPTY: None}}], kind)
    assert json_lines(pa.table({"v": value})) == b'{"v":{"id_1":1,"ID_2":{}}}\n'


def test_a_column_that_a_user_calls_as_we_call_no_field_is_written():
    rows = [{EMPTY: 1, "b": None}]
    whole = pa.array(rows, pa.struct([(EMPTY, pa.int64()), ("b", pa.string())]))
    assert json_lines(pa.table({"after": whole})) == b'{"after":{"__empty":1,"b":null}}\n'
    alone = pa.array([{EMPTY: True}], pa.struct([(EMPTY, pa.bool_())]))
    assert json_lines(pa.table({"after": alone})) == b'{"after":{"__empty":true}}\n'


@pytest.mark.parametrize(
    ("names", "stored"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", "a"], ["a_1", "a_2"]),
        (["a", "A", "a_1"], ["a_1", "A_2", "a_1_3"]),
        (["\u00c4", "\u00e4"], ["\u00c4_1", "\u00e4_2"]),
        (["__Empty"], ["__Empty_1"]),
        (["", " "], ["", " "]),
    ],
)
def test_names_of_fields_in_files(names, stored):
    assert list(stored_names(names)) == stored


def test_nested_values_are_the_same_or_not():
    kind = pa.list_(pa.date32())
    days = pa.array([BEFORE, AFTER, BEFORE], pa.int32()).view(pa.date32())
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), days)
    first, second, third = codes_of(pa.chunked_array([lists], kind)).to_pylist()
    assert first == third != second
    maps = pa.array(
        [[("a", 0.0), ("b", 1.0)], [("b", 1.0), ("a", -0.0)]], pa.map_("string", "double")
    )
    assert len(set(codes_of(pa.chunked_array([maps])).to_pylist())) == 1


@pytest.mark.parametrize("name", ["%s", "%", '"', "\\", "é", "a%d%%", "\n"])
def test_columns_of_any_name(name):
    table = pa.table({name: ["%s", None], "k": [1, 2]})
    lines = json_lines(table).decode().splitlines()
    assert [json.loads(line) for line in lines] == [{name: "%s", "k": 1}, {name: None, "k": 2}]
