"""Rows of keys in memory, rows as bytes, and rows of steps in pieces."""

from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pytest

from slackwater.repr.dataflow_error import NullKeyError
from slackwater.repr.errors import FatalError, SlackwaterError
from slackwater.repr.relation import DIFF_COLUMN, RelationDesc, with_diff
from slackwater.storage.envelope import row_key
from slackwater.storage.keyed_rows import ENTRY_BYTES, RowsInMemory, add_rows
from slackwater.storage.pieces import Pieces, StagedRows
from slackwater.storage.row_bytes import RowBytes, plain_rows, row_keys

NESTED = (
    '{"type": "struct", "fields": [{"name": "s", "nullable": true, "metadata": {}, "type": '
    '{"type": "struct", "fields": [{"name": "d", "type": "decimal(38,18)", "nullable": true, '
    '"metadata": {}}, {"name": "m", "nullable": true, "metadata": {}, "type": {"type": "map", '
    '"keyType": "string", "valueType": {"type": "array", "elementType": "timestamp", '
    '"containsNull": true}, "valueContainsNull": true}}]}}]}'
)
MOMENT = datetime(2024, 2, 29, 1, 2, 3, 456789, timezone.utc)
TABLES = [
    (
        RelationDesc.of(
            a="boolean", b="byte", c="short", d="integer", e="long", f="float", g="double"
        ),
        [
            (True, 1, 2, 3, 2**63 - 1, 0.1, float("nan")),
            (None,) * 7,
            (False, -1, -2, -3, -(2**63), -0.0, 1e308),
        ],
    ),
    (
        RelationDesc.of(a="decimal(38,18)", b="string", c="binary", d="date", e="timestamp"),
        [
            (Decimal("12345678901234567890.123456789012345678"), "\u00fc\0", b"\xff", None, MOMENT),
            (Decimal("-1E-18"), "", b"", date(1, 1, 1), None),
        ],
    ),
    (
        RelationDesc.from_json(NESTED),
        [
            ({"d": Decimal("0.1"), "m": [("k", [MOMENT, None]), ("l", None)]},),
            ({"d": None, "m": []},),
            (None,),
        ],
    ),
]


@pytest.mark.parametrize(("desc", "rows"), TABLES)
def test_rows_come_back_from_their_bytes(desc, rows):
    table = desc.with_diffs((row, 1) for row in rows).drop_columns([DIFF_COLUMN])
    codec = RowBytes(desc)
    encoded = codec.encode(table)
    assert len(set(encoded)) == len(rows)
    again = codec.decode(encoded)
    assert repr(again.to_pylist()) == repr(table.to_pylist())
    assert again.schema == table.schema
    # Equal rows have equal bytes, whatever objects they are made of.
    assert codec.encode(pa.concat_tables([again, table])) == encoded + encoded
    assert codec.decode([]).schema == table.schema


@pytest.mark.parametrize(("desc", "rows"), TABLES)
def test_keys_of_many_rows_are_those_of_each(desc, rows):
    table = desc.with_diffs((row, 1) for row in rows).drop_columns([DIFF_COLUMN])
    keys = row_keys(table)
    assert keys == [row_key(row) for row in plain_rows(table)]
    assert len(set(keys)) == len(rows)


def test_keys_of_floats_are_equal_as_sql_groups_them():
    floats = pa.array([0.0, -0.0], pa.float32())
    lists = pa.array([[0.0, None], [-0.0, None]], pa.list_(pa.float64()))
    for column in (floats, lists):
        assert len(set(row_keys(pa.table({"k": column})))) == 1


def test_a_key_with_two_rows_is_refused():
    values = {}
    add_rows(values, pa.table({"k": ["a", None]}), [b"1", b"2"], "s")
    assert values == {row_key(["a"]): b"1", row_key([None]): b"2"}
    for again in (["b", "b"], ["b", "a"]):
        with pytest.raises(FatalError, match="a key of s has more than one row"):
            add_rows(dict(values), pa.table({"k": again}), [b"3", b"3"], "s")


def test_moments_that_python_has_no_date_for():
    desc = RelationDesc.of(t="timestamp", d="date")
    far = pa.table(
        {
            "t": pa.array([10**18, -(10**18)], pa.timestamp("us", tz="UTC")),
            "d": pa.array([10**8, -(10**8)], pa.date32()),
        }
    )
    codec = RowBytes(desc)
    assert codec.decode(codec.encode(far)).equals(far.cast(desc.arrow_schema()))


def test_rows_that_take_too_much_are_refused():
    rows = RowsInMemory({b"a": b"1" * 100}, 2 * ENTRY_BYTES + 100, "s")
    rows.check({b"a": b"2" * 100, b"b": None})
    rows.check({b"b": b""})
    with pytest.raises(SlackwaterError, match="s has 1 keys") as caught:
        rows.check({b"b": b"x"})
    assert caught.value.condition == "SLACKWATER_UPSERT_MEMORY"
    # What is there already may stay, and may become less.
    full = RowsInMemory({b"a": b"1" * 1000}, 100, "s")
    full.check({b"a": b"2" * 1000})
    full.check({b"a": None})


def test_the_size_is_that_of_what_is_there():
    rows = RowsInMemory({}, 10_000, "s")
    rows.replace({b"a": b"12", b"b": b"1", b"c": NullKeyError("x")})
    assert rows.size_bytes == 4 * ENTRY_BYTES + 3
    assert rows.errors == {b"c": NullKeyError("x")}
    rows.replace({b"a": b"1", b"b": None, b"c": None, b"d": None})
    assert rows.size_bytes == ENTRY_BYTES + 1
    assert rows.lookup([b"a", b"b", b"d"]) == {b"a": b"1"}
    assert len(rows) == 1


class Files:
    """Where rows go that are put away: each piece becomes a part that is its rows."""

    def __init__(self):
        self.fails = False

    def __call__(self, rows):
        if self.fails:
            raise OSError("no space")
        return StagedRows(lambda time: ((time, rows.to_pydict()["k"]),), rows.num_rows)


def numbers(*values):
    return with_diff(pa.table({"k": pa.array(values, pa.int64())}))


def test_few_rows_stay_in_memory_and_many_go_to_files_in_order():
    pieces = Pieces(Files(), piece_bytes=3 * 16)
    assert pieces.rows() is None
    pieces.add(numbers())
    pieces.add(numbers(1, 2))
    assert pieces.rows().column("k").to_pylist() == [1, 2]
    pieces.add(numbers(3))
    pieces.add(numbers(4))
    staged = pieces.rows()
    assert (staged.num_rows, staged.parts(7)) == (4, ((7, [1, 2, 3]), (7, [4])))


def test_rows_that_could_not_be_put_away_were_not_added():
    files = Files()
    pieces = Pieces(files, piece_bytes=2 * 16)
    pieces.add(numbers(1))
    files.fails = True
    with pytest.raises(OSError, match="no space"):
        pieces.add(numbers(2))
    files.fails = False
    pieces.add(numbers(2))
    assert pieces.rows().parts(7) == ((7, [1, 2]),)
