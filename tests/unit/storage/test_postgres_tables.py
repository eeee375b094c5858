"""Texts of PostgreSQL as values, and what happens to one table alone."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.support.storage.fake_postgres import (
    INT4,
    LARGE,
    NUMBER,
    NUMERIC,
    TEXT,
    UNSENT,
    FakeTable,
    insert,
    relation,
    source_table,
    update,
)

from slackwater.repr.errors import SlackwaterError
from slackwater.repr.relation import sql_type
from slackwater.storage.postgres.changes import TableChanges, TableState
from slackwater.storage.postgres.pgoutput import decoded
from slackwater.storage.postgres.tables import PostgresColumn, PostgresTable
from slackwater.storage.postgres.types import RowReader, spark_type

UTC = datetime.timezone.utc
VALUES = [
    ("bool", False, "t", True),
    ("int2", False, "-32768", -32768),
    ("int8", False, "9223372036854775807", 2**63 - 1),
    ("oid", False, "4294967295", 2**32 - 1),
    ("float4", False, "1.5", 1.5),
    ("float8", False, "-Infinity", float("-inf")),
    ("numeric", False, "1.50", Decimal("1.5")),
    ("text", False, "", ""),
    ("bpchar", False, "a  ", "a  "),
    ("bytea", False, "\\x00ff", b"\x00\xff"),
    ("date", False, "0001-01-01", datetime.date(1, 1, 1)),
    ("timestamp", False, "2020-01-02 03:04:05.6", datetime.datetime(2020, 1, 2, 3, 4, 5, 600000)),
    (
        "timestamptz",
        False,
        "2020-01-02 03:04:05+00",
        datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC),
    ),
    ("uuid", False, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("interval", False, "1 day 02:00:00", "1 day 02:00:00"),
    ("int4", True, "{1,NULL,3}", [1, None, 3]),
    ("int4", True, "{}", []),
    ("text", True, '{a,"b,c","NULL",NULL,"\\"\\\\",""}', ["a", "b,c", "NULL", None, '"\\', ""]),
    ("bool", True, "{t,f}", [True, False]),
]
NO_VALUES = [
    ("int2", False, "32768"),
    ("numeric", False, "NaN"),
    ("numeric", False, "0.1234567890123456789"),
    ("numeric", False, "123456789012345678901"),
    ("date", False, "infinity"),
    ("date", False, "0044-03-15 BC"),
    ("timestamp", False, "294276-01-01 00:00:00"),
    ("timestamptz", False, "-infinity"),
    ("int4", True, "{{1},{2}}"),
    ("int4", True, "[0:1]={1,2}"),
    ("date", True, "{2020-01-01,infinity}"),
]


def table_of(base, is_array=False, modifier=-1, text_columns=()):
    column = PostgresColumn("c", 1, 1, base, modifier, is_array)
    return PostgresTable("t", "s", "t", 1, (column,), text_columns)


@pytest.mark.parametrize(("base", "is_array", "text", "value"), VALUES)
def test_values_are_what_the_server_has(base, is_array, text, value):
    table = table_of(base, is_array)
    found = RowReader(table).rows([pa.array([None, text, None], pa.string())])
    assert (found.bad, found.table["c"].to_pylist()) == ({}, [None, value, None])
    texts = RowReader(table_of(base, is_array, text_columns=("c",)))
    found = texts.rows([pa.array([text], pa.string())])
    assert (found.bad, found.table["c"].to_pylist()) == ({}, [text])


@pytest.mark.parametrize(("base", "is_array", "text"), NO_VALUES)
def test_what_does_not_fit_is_told_alone(base, is_array, text):
    found = RowReader(table_of(base, is_array)).rows([pa.array([None, text], pa.string())])
    assert found.table["c"].to_pylist() == [None, None]
    assert list(found.bad) == [1]
    assert found.bad[1].startswith(f"the column c has the value '{text}', which is no ")


@pytest.mark.parametrize(
    ("modifier", "expected"),
    [
        (-1, "DECIMAL(38,18)"),
        (((10 << 16) | 2) + 4, "DECIMAL(10,2)"),
        (((3 << 16) | (0x800 - 2)) + 4, "DECIMAL(5,0)"),
        (((2 << 16) | 5) + 4, "DECIMAL(5,5)"),
        (((100 << 16) | 50) + 4, "DECIMAL(38,38)"),
    ],
)
def test_precision_and_scale_of_numbers(modifier, expected):
    table = table_of("numeric", modifier=modifier)
    assert sql_type(spark_type(table.columns[0], table)) == expected


class Nothing:
    """A collection without contents."""

    def __init__(self, name):
        self._schema = RowReader(source_table(name)).desc.arrow_schema()

    def rows(self):
        return self._schema.empty_table()

    def errors(self):
        return []


def followed(name, *columns, identity=None):
    """A table whose changes come with these columns; None: with those that it has."""
    now = FakeTable(name, list(source_table(name).columns)).now()
    changes = TableChanges(source_table(name), Nothing(name), None, TableState())
    assert changes.begin_snapshot(now, True)
    changes.changes()
    changes.committed()
    own = [(c.name, c.type_oid, not now.key or c.name in now.key) for c in now.columns]
    changes.relation(
        decoded(relation(now.oid, "public", name, identity or now.identity, columns or own))
    )
    return changes, now


K, N, L = ("k", INT4, True), (NUMBER, NUMERIC, False), (LARGE, TEXT, False)


@pytest.mark.parametrize(
    ("columns", "identity", "reason"),
    [
        ((K, N, (LARGE, INT4, False)), "d", f"the type of its column {LARGE} was changed"),
        ((N, L), "d", "its column k is gone"),
        ((K, N, ("other", TEXT, False)), "d", f"its column {LARGE} was renamed, or replaced"),
        ((K, (NUMBER, NUMERIC, True), L), "i", "its replica identity has changed"),
        ((("k", INT4, False), N, L), "n", "its replica identity has changed"),
    ],
)
def test_a_table_with_other_columns_has_an_error(columns, identity, reason):
    changes, _ = followed("keyed", *columns, identity=identity)
    assert reason in changes.state.broken
    found = changes.changes()
    assert [diff for _, diff in found.errors] == [1]
    assert changes.error().startswith("table public.keyed: ")
    changes.committed()
    assert changes.changes().errors == []


@pytest.mark.parametrize(
    ("name", "messages", "reason"),
    [
        ("keyed", [update(10, [UNSENT, "1", "x"])], "large value of its key"),
        ("keyed", [update(10, ["1", "1", "x"])], "a row was changed that is not there"),
        ("keyed", [insert(10, ["1", "1", "x"])] * 2, "its key is not unique"),
        ("keyed", [insert(10, [None, "1", "x"])], "its column k, which was NOT NULL, has a NULL"),
        ("whole", [update(20, ["1", "x"])], "it needs REPLICA IDENTITY FULL or a key"),
    ],
)
def test_changes_that_contradict_what_is_there_are_an_error(name, messages, reason):
    changes, _ = followed(name)
    for message in messages:
        changes.take(message)
    found = changes.changes()
    assert reason in changes.state.broken
    assert found.rows is None
    assert len(found.errors) == 1


def test_large_changes_do_not_wait_for_many(monkeypatch):
    monkeypatch.setattr("slackwater.storage.postgres.changes.BATCH_BYTES", 1000)
    changes, _ = followed("keyed")
    for number in range(20):
        changes.take(insert(10, ["1", "1", "x" * number]))
        assert changes.state.broken is None
    changes.take(insert(10, ["2", "1", "x" * 500]))
    assert changes.state.broken == "its key is not unique"


def test_a_table_that_has_left_the_publication_has_an_error():
    for now, reason in ((None, "it is not in the publication"), (7, "and came back")):
        changes, found = followed("keyed")
        changes.look(found)
        assert changes.state.broken is None
        table = FakeTable("keyed", list(found.columns), member=now)
        changes.look(None if now is None else table.now())
        assert reason in changes.state.broken


def test_a_column_of_the_same_name_is_another_one():
    changes, now = followed("whole")
    columns = [now.columns[0], PostgresColumn(LARGE, 5, TEXT, "text")]
    changes.look(FakeTable("whole", columns).now())
    assert "is another one of the same name" in changes.state.broken


def test_rows_of_keys_that_take_too_much_are_refused(monkeypatch):
    monkeypatch.setattr("slackwater.storage.postgres.changes.KEYED_BYTES", 1000)
    changes, _ = followed("keyed")
    for number in range(5):
        changes.take(insert(10, [str(number), "1", "x"]))
    with pytest.raises(SlackwaterError, match="SLACKWATER_UPSERT_MEMORY"):
        changes.changes()
    changes.forget()
    assert changes.changes().rows is None
