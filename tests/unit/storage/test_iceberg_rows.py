"""Rows of Iceberg's files as its tables have them: projections, deletes, differences of files."""

import math
import uuid
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.repr.errors import SlackwaterError
from slackwater.storage.iceberg.columns import comparable_ids, path_to, table_columns
from slackwater.storage.iceberg.equality import matches
from slackwater.storage.iceberg.live_files import (
    EVERYWHERE,
    DataFile,
    DeleteFile,
    FileChange,
    LiveFiles,
    by_value_alone,
    differences,
)
from slackwater.storage.iceberg.projection import Projection, Unreadable, with_ids
from slackwater.storage.iceberg.schema import FIELD_ID

WHOLE = (0, ())


def field(number, name, kind, required=False):
    return {"id": number, "name": name, "type": kind, "required": required}


def struct(*fields):
    return {"type": "struct", "fields": list(fields)}


def list_of(number, kind):
    return {"type": "list", "element-id": number, "element": kind, "element-required": False}


def map_of(number, key, value):
    return {
        "type": "map",
        "key-id": number,
        "key": key,
        "value-id": number + 1,
        "value": value,
        "value-required": True,
    }


def stored(number, name, kind, nullable=True):
    return pa.field(name, kind, nullable, metadata={FIELD_ID: str(number).encode()})


def projected(fields, file, rows, constants=None):
    """Rows of a file as dictionaries."""
    projection = Projection(fields, file, constants or {})
    found = pa.Table.from_pylist(rows, file).select(projection.names)
    return projection.rows(found).to_pylist()


def test_fields_are_found_by_ids_at_any_depth():
    inner = pa.struct([stored(3, "old", pa.int32()), stored(9, "gone", pa.string())])
    file = pa.schema(
        [
            stored(8, "dropped", pa.int32()),
            stored(1, "l", pa.list_(stored(2, "element", inner))),
            stored(
                4, "m", pa.map_(stored(5, "key", pa.string(), False), stored(6, "value", inner))
            ),
        ]
    )
    kind = struct(field(7, "added", "string"), field(3, "new", "long"))
    fields = [field(4, "M", map_of(5, "string", kind)), field(1, "L", list_of(2, kind))]
    fields.append(field(10, "later", list_of(11, "int")))
    value, wanted = {"old": 1, "gone": "x"}, {"added": None, "new": 1}
    rows = [
        {"dropped": 1, "l": [value, None], "m": [("a", value), ("b", None)]},
        {"dropped": 1, "l": None, "m": None},
        {"dropped": 1, "l": [], "m": []},
        {"dropped": 1, "l": [{"old": None}], "m": [("c", value)]},
    ]
    expected = [
        {"M": [("a", wanted), ("b", None)], "L": [wanted, None]},
        {"M": None, "L": None},
        {"M": [], "L": []},
        {"M": [("c", wanted)], "L": [{"added": None, "new": None}]},
    ]
    expected = [{**each, "later": None} for each in expected]
    assert projected(fields, file, rows) == expected
    projection = Projection(fields, file, {})
    assert projection.names == ["l", "m"]
    whole = pa.Table.from_pylist(rows, file).select(projection.names)
    assert projection.rows(whole.slice(1, 3)).to_pylist() == expected[1:]
    assert projection.rows(whole.slice(0, 0)).to_pylist() == []
    joined = pa.concat_tables([whole.slice(3), whole.slice(0, 1)])
    assert projection.rows(joined).to_pylist() == [expected[3], expected[0]]


def test_values_of_all_kinds():
    number = uuid.UUID(int=7)
    file = pa.schema(
        [
            stored(1, "u", pa.binary(16)),
            stored(2, "t", pa.time32("ms")),
            stored(3, "at", pa.timestamp("ns")),
            stored(4, "z", pa.timestamp("ms")),
            stored(5, "d", pa.decimal128(4, 1)),
            stored(6, "f", pa.float32()),
            stored(7, "b", pa.binary(2)),
            stored(8, "s", pa.large_string()),
            stored(9, "e", pa.struct([stored(20, "gone", pa.int32())])),
        ]
    )
    kinds = ["uuid", "time", "timestamp", "timestamptz", "decimal(10, 1)", "double", "fixed[2]"]
    names = ["u", "t", "at", "z", "d", "f", "b", "s", "e"]
    fields = [
        field(place, name, kind)
        for place, (name, kind) in enumerate(
            zip(names, [*kinds, "string", struct()], strict=True), 1
        )
    ]
    columns = [
        pa.array([number.bytes, None], pa.binary(16)),
        pa.array([1, None], pa.time32("ms")),
        pa.array([1_001, None], pa.timestamp("ns")),
        pa.array([1, None], pa.timestamp("ms")),
        pa.array([Decimal("1.5"), None], pa.decimal128(4, 1)),
        pa.array([1.5, None], pa.float32()),
        pa.array([b"ab", None], pa.binary(2)),
        pa.array(["x", None], pa.large_string()),
        pa.array([{"gone": 1}, None], file.field("e").type),
    ]
    found = Projection(fields, file, {}).rows(pa.Table.from_arrays(columns, schema=file))
    assert found.column("at").cast(pa.int64()).to_pylist() == [1, None]
    assert found.column("z").type == pa.timestamp("us", tz="UTC")
    assert found.column("z").cast(pa.int64()).to_pylist() == [1_000, None]
    assert found.select(["u", "t", "d", "f", "b", "s"]).to_pylist() == [
        {
            "u": str(number),
            "t": "00:00:00.001000",
            "d": Decimal("1.5"),
            "f": 1.5,
            "b": b"ab",
            "s": "x",
        },
        dict.fromkeys(["u", "t", "d", "f", "b", "s"]),
    ]
    assert found.column("e").is_null().to_pylist() == [False, True]


def test_what_a_file_does_not_have_is_null_or_the_value_of_its_partition():
    number = uuid.UUID(int=7)
    values = {
        "int": (5, 5),
        "string": ("x", "x"),
        "date": (1, "1970-01-02"),
        "timestamptz": (1, "1970-01-01 00:00:00.000001+00:00"),
        "time": (1, "00:00:00.000001"),
        "uuid": (number, str(number)),
        "decimal(5, 2)": (Decimal("1.50"), "1.50"),
        "fixed[2]": (b"ab", b"ab"),
        "boolean": (False, False),
    }
    file = pa.schema([stored(99, "k", pa.int32())])
    for kind, (constant, expected) in values.items():
        fields = [field(99, "k", "int"), field(1, "p", kind, required=True)]
        (found,) = projected(fields, file, [{"k": 1}], {1: constant})
        assert str(found["p"]) == str(expected)
    assert projected([field(1, "p", "int")], file, [{"k": 1}]) == [{"p": None}]
    with pytest.raises(Unreadable, match="the required column p"):
        projected([field(1, "p", "int", required=True)], file, [{"k": 1}])


def test_ids_of_a_file_without_them_come_from_a_name_mapping():
    inner = pa.struct([("x", pa.int32()), ("other", pa.int32())])
    file = pa.schema(
        [
            ("a", pa.int32()),
            ("s", inner),
            ("l", pa.list_(pa.field("element", inner))),
            ("m", pa.map_(pa.string(), inner)),
            ("unknown", pa.int32()),
        ]
    )
    parts = [{"field-id": 3, "names": ["y", "x"]}]
    mapping = [
        {"field-id": 1, "names": ["a", "b"]},
        {"field-id": 2, "names": ["s"], "fields": parts},
        {
            "field-id": 4,
            "names": ["l"],
            "fields": [{"field-id": 5, "names": ["element"], "fields": parts}],
        },
        {
            "field-id": 6,
            "names": ["m"],
            "fields": [
                {"field-id": 7, "names": ["key"]},
                {"field-id": 8, "names": ["value"], "fields": parts},
            ],
        },
    ]
    kind = struct(field(3, "z", "int"))
    fields = [
        field(1, "a", "int"),
        field(2, "s", kind),
        field(4, "l", list_of(5, kind)),
        field(6, "m", map_of(7, "string", kind)),
    ]
    value = {"x": 1, "other": 2}
    row = {"a": 1, "s": value, "l": [value], "m": [("k", value)], "unknown": 1}
    (found,) = projected(fields, with_ids(file, mapping), [row])
    assert found == {"a": 1, "s": {"z": 1}, "l": [{"z": 1}], "m": [("k", {"z": 1})]}
    with pytest.raises(Unreadable, match="no ids"):
        with_ids(file, None)
    known = pa.schema([stored(1, "a", pa.int32())])
    assert with_ids(known, None) is known


def test_types_that_spark_does_not_have_are_refused():
    for kind in ("timestamp_ns", "variant", "geometry(srid:4326)", "unknown"):
        with pytest.raises(SlackwaterError) as refused:
            table_columns(struct(field(1, "c", list_of(2, kind))))
        assert refused.value.condition == "SLACKWATER_UNSUPPORTED_TYPE"
    with pytest.raises(SlackwaterError):
        table_columns(struct(field(1, "c", {"type": "other"})))


def test_fields_are_known_by_their_ids_in_structs_alone():
    x, y = field(3, "x", "int"), field(5, "y", "int")
    s = field(2, "s", struct(field(4, "t", struct(x))))
    fields = [field(1, "l", list_of(6, struct(y))), s]
    assert [each["name"] for each in path_to(fields, 3)] == ["s", "t", "x"]
    assert path_to(fields, 2) == (s,)
    assert path_to(fields, 5) == ()


VALUES = (
    (pa.int32(), st.none() | st.integers(0, 3)),
    (pa.float64(), st.none() | st.sampled_from([0.0, -0.0, math.nan, -math.nan, 1.5])),
    (pa.float32(), st.none() | st.sampled_from([0.0, -0.0, math.nan, 1.5])),
    (
        pa.decimal128(38, 2),
        st.none() | st.sampled_from([Decimal("0.00"), Decimal("-1.25"), Decimal(10) ** 35]),
    ),
    (pa.string(), st.none() | st.sampled_from(["", "a", "ä"])),
    (pa.binary(), st.none() | st.sampled_from([b"", b"\0"])),
    (pa.bool_(), st.none() | st.booleans()),
    (pa.timestamp("us", tz="UTC"), st.none() | st.sampled_from([-(2**62), 0])),
)


@given(st.data(), st.lists(st.sampled_from(VALUES), min_size=1, max_size=4))
def test_rows_match_keys_of_which_they_have_all_values(data, columns):
    several = [
        data.draw(st.lists(st.tuples(*(values for _, values in columns)), max_size=12))
        for _ in range(2)
    ]
    rows, keys = (
        pa.Table.from_arrays(
            [
                pa.chunked_array(
                    [pa.array([row[place] for row in part], kind) for part in (them[:5], them[5:])]
                )
                for place, (kind, _) in enumerate(columns)
            ],
            [str(place) for place in range(len(columns))],
        )
        for them in several
    )
    known = {tuple(map(repr, key)) for key in several[1]}
    # -nan is nan.
    known = {tuple(each.replace("-nan", "nan") for each in key) for key in known}
    expected = [
        tuple(repr(value).replace("-nan", "nan") for value in row) in known for row in several[0]
    ]
    assert matches(rows, keys).tolist() == expected


def test_which_deletes_apply_to_which_files():
    file = DataFile("f", 5, (1, ("a",)), 10)
    here, other = (1, ("a",)), (1, ("b",))
    equal, positions = (7,), ()
    for within, sequence, ids, applies in (
        (here, 6, equal, True),
        # Rows of the same snapshot stay: they came after.
        (here, 5, equal, False),
        (EVERYWHERE, 6, equal, True),
        (other, 6, equal, False),
        ((2, ("a",)), 6, equal, False),
        (here, 5, positions, True),
        (here, 4, positions, False),
        (other, 6, positions, False),
        ("f", 5, positions, True),
        ("g", 5, positions, False),
    ):
        delete = DeleteFile("d", sequence, within, 1, ids)
        assert delete.applies_to(file) is applies, delete
        found = LiveFiles.of([file, delete]).applying(file)
        assert found == ((delete,) if applies else ())


def test_differences_are_files_and_the_deletes_that_apply_to_them():
    old, gone, new = (DataFile(name, at, WHOLE, 10) for name, at in (("a", 1), ("b", 2), ("c", 3)))
    other = DataFile("o", 1, (1, ("x",)), 10)
    known = DeleteFile("d", 2, EVERYWHERE, 1, (1,))
    later = DeleteFile("e", 3, WHOLE, 2)
    before = LiveFiles.of([old, gone, other, known])
    after = LiveFiles.of([old, new, other, known, later])
    changes = list(differences(before, after))
    assert changes == [
        FileChange(gone, (), None),
        FileChange(old, (known,), (later, known)),
        FileChange(new, None, (later,)),
    ]
    assert [each.size_bytes for each in changes] == [10, 13, 12]
    assert list(after.contents()) == [
        FileChange(old, None, (later, known)),
        FileChange(other, None, (known,)),
        FileChange(new, None, (later,)),
    ]
    assert not list(differences(after, after))
    # A delete that is there no more brings rows back.
    assert list(differences(after, LiveFiles.of([old, new, other, known]))) == [
        FileChange(old, (later, known), (known,)),
        FileChange(new, (later,), ()),
    ]


def test_deletes_that_the_values_of_rows_tell():
    parted = (1, ("x",))
    old, new = DataFile("a", 1, WHOLE, 1), DataFile("c", 3, WHOLE, 1)
    apart = DataFile("p", 1, parted, 1)
    partitioning = {0: set(), 1: {1}}

    def told(delete, before=(old,), came=(new,), ids=(1, 2)):
        after = LiveFiles.of([*before, *came, delete])
        return by_value_alone(LiveFiles.of(before), after, ids, partitioning) == [delete]

    whole = DeleteFile("d", 3, EVERYWHERE, 1, (1, 2))
    assert told(whole)
    assert told(whole, before=(old, apart))
    # By positions, by a column that the source does not have, and by one that it does.
    assert not told(DeleteFile("d", 3, WHOLE, 1))
    assert not told(whole, ids=(1,))
    assert told(DeleteFile("d", 3, EVERYWHERE, 1, (2,)), ids=(2,))
    # Not all rows of before, or also rows that come.
    assert not told(replace(whole, sequence=1))
    assert not told(whole, came=(DataFile("c", 2, WHOLE, 1),))
    # Of a partition, which the values tell or do not tell; and beside other partitions.
    within = DeleteFile("d", 3, parted, 1, (1, 2))
    assert told(within, before=(apart,))
    assert not told(replace(within, equality_ids=(2,)), before=(apart,))
    assert not told(within, before=(apart, old))
    # It was there already.
    known = LiveFiles.of([old, whole])
    assert by_value_alone(known, known, (1, 2), partitioning) == []
    assert not known.without([whole]).deletes


def test_columns_that_are_equal_where_their_values_are():
    schema = struct(
        field(1, "a", "int"),
        field(2, "b", "double"),
        field(3, "s", struct()),
        field(4, "d", "date"),
    )
    assert comparable_ids(schema, ["1", "2", "3"]) == {1}
