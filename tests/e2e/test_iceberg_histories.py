"""What sources read of real Iceberg tables: types, schemas, partitions, and histories that break.

Random histories are in `tests/property/test_iceberg_snapshots.py`.
"""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from tests.support.iceberg.java import Tables, a_target
from tests.support.iceberg.writing import an_origin, written_by_java

from slackwater.adapter.external.iceberg_catalogs import catalog_properties
from slackwater.adapter.external.iceberg_rows import KeptDeletes
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Frontier
from slackwater.storage.access import AwsAccess, IcebergAccess
from slackwater.storage.lake.table import LakeChanges, LakeProgress

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([("k", pa.int32()), ("v", pa.string())])


@pytest.fixture
def lake(tmp_path):
    return Lake(Tables(tmp_path).access())


class Lake:
    """A catalog with the namespace n, and what a source reads of its tables."""

    def __init__(self, access, aws=None):
        self.access, self.aws = access, aws
        self.catalog = load_catalog("default", **catalog_properties(access, aws))
        self.catalog.create_namespace_if_not_exists("n")

    def made(self, columns=COLUMNS, table="t", **options):
        return self.catalog.create_table(("n", table), columns, **options)

    def loaded(self, table="t"):
        return self.catalog.load_table(("n", table))

    def history(self, table="t"):
        return an_origin(self.access, table, self.aws).opened()

    def append(self, *rows, table="t"):
        columns = self.loaded(table).schema().as_arrow()
        named = [dict(zip(columns.names, row, strict=True)) for row in rows]
        self.loaded(table).append(pa.Table.from_pylist(named, columns))


def rows_of(pieces):
    """The rows of pieces, each as often as its diff says."""
    found = Counter()
    for piece in pieces:
        for row in piece.to_pylist():
            diff = row.pop("__diff", 1)
            found[repr(tuple(row.values()))] += diff
    return found


def rows(*them):
    return Counter(map(repr, them))


def all_of(history, version):
    return rows_of(history.contents(version))


def refused(condition, call):
    with pytest.raises(SlackwaterError) as told:
        call()
    assert told.value.condition == condition
    return told.value.message


def test_all_types(lake):
    schema = Schema(
        NestedField(1, "k", IntegerType(), required=True),
        NestedField(2, "t", TimeType()),
        NestedField(3, "u", UUIDType()),
        NestedField(4, "f", FixedType(3)),
        NestedField(5, "s", StructType(NestedField(6, "x", IntegerType()))),
        NestedField(7, "l", ListType(8, TimeType(), element_required=False)),
        NestedField(9, "m", MapType(10, StringType(), 11, LongType(), value_required=True)),
        NestedField(12, "d", DecimalType(9, 2)),
        NestedField(13, "at", TimestamptzType()),
        NestedField(14, "local", TimestampType()),
        NestedField(15, "r", FloatType()),
    )
    lake.made(schema)
    history = lake.history()
    empty = history.newest()
    assert [(each.type_json, each.nullable) for each in history.columns(empty)] == [
        ('"integer"', False),
        ('"string"', True),
        ('"string"', True),
        ('"binary"', True),
        (
            '{"fields": [{"metadata": {}, "name": "x", "nullable": true, "type": "integer"}], '
            '"type": "struct"}',
            True,
        ),
        ('{"containsNull": true, "elementType": "string", "type": "array"}', True),
        (
            '{"keyType": "string", "type": "map", "valueContainsNull": true, "valueType": "long"}',
            True,
        ),
        ('"decimal(9,2)"', True),
        ('"timestamp"', True),
        ('"timestamp_ntz"', True),
        ('"float"', True),
    ]
    number, at = uuid.uuid4(), datetime(1969, 12, 31, 23, 59, 59, 1)
    one = (1, time(1, 2, 3, 45), number.bytes, b"abc", {"x": None}, [time(0), None])
    one += ([("a", 1)], Decimal("-0.01"), at.replace(tzinfo=UTC), at, 1.5)
    lake.append(one, (2, *[None] * 10))
    (change,) = history.after(empty)
    (piece,) = change.rows
    first, second = piece.to_pylist()
    assert list(first.values()) == [
        1,
        "01:02:03.000045",
        str(number),
        b"abc",
        {"x": None},
        ["00:00:00.000000", None],
        [("a", 1)],
        Decimal("-0.01"),
        at.replace(tzinfo=UTC),
        at,
        1.5,
        1,
    ]
    assert list(second.values()) == [2, *[None] * 10, 1]
    assert change.size_bytes > 0
    history.close()


@pytest.mark.nightly
def test_versions_of_the_format(lake, iceberg_java):
    """Version 1 has no numbers of snapshots. It becomes 2 by a property, and the line goes on."""
    lake.made(properties={"format-version": "1"})
    lake.append((1, "a"))
    lake.append((2, "b"))
    told = refused("SLACKWATER_SOURCE_TABLE_UNREADABLE", lake.history().newest)
    assert "its format version is 1, and not 2" in told
    with lake.loaded().transaction() as change:
        change.upgrade_table_version(2)
    history = lake.history()
    upgraded = history.newest()
    assert upgraded.number == 0
    assert all_of(history, upgraded) == rows((1, "a"), (2, "b"))
    assert not list(history.after(upgraded))
    with written_by_java(iceberg_java, lake.access, ("n", "t")) as table:
        table.change([{"k": 3, "v": "c"}], [{"k": 1}], table.places()[:1])
    (change,) = history.after(upgraded)
    assert change.version.number == 1
    found = all_of(history, upgraded)
    found.update(rows_of(change.rows))
    assert +found == all_of(history, change.version)
    assert found[repr((1, "a"))] == 0
    with written_by_java(iceberg_java, lake.access, ("n", "t")) as table:
        table.table.updateProperties().set("format-version", "3").commit()
    told = refused("SLACKWATER_SOURCE_TABLE_UNREADABLE", history.newest)
    assert "its format version is 3, and not 2" in told


def test_other_files_than_those_of_parquet(lake, iceberg_java):
    lake.made()
    with written_by_java(iceberg_java, lake.access, ("n", "t")) as table:
        replace(table, file_format="AVRO").change([{"k": 1, "v": "a"}])
    history = lake.history()
    told = refused(
        "SLACKWATER_SOURCE_TABLE_UNREADABLE", lambda: list(history.contents(history.newest()))
    )
    assert "its format is AVRO, and not PARQUET" in told


def test_a_file_has_the_columns_that_the_table_had(lake):
    """Columns are found by their ids, whatever became of their names, types and places."""
    lake.made(
        Schema(
            NestedField(1, "k", IntegerType()),
            NestedField(2, "f", FloatType()),
            NestedField(3, "gone", StringType()),
            NestedField(4, "s", StructType(NestedField(5, "x", IntegerType()))),
            NestedField(6, "d", DecimalType(9, 2)),
        )
    )
    lake.append((1, 1.5, "gone", {"x": 7}, Decimal("1.00")), (2, None, None, None, None))
    history = lake.history()
    before = history.newest()
    with lake.loaded().update_schema() as schema:
        schema.update_column("k", LongType())
        schema.update_column("f", DoubleType())
        schema.update_column("d", DecimalType(20, 2))
        schema.delete_column("gone")
        schema.add_column("gone_", StringType())
        schema.add_column(("s", "y"), StringType())
        schema.rename_column(("s", "x"), "z")
        schema.rename_column("k", "key")
        schema.move_first("d")
    with lake.loaded().update_schema() as schema:
        schema.rename_column("gone_", "gone")
    # A schema counts from the next snapshot on.
    assert not list(history.after(before))
    assert [each.name for each in history.columns(before)] == ["k", "f", "gone", "s", "d"]
    lake.append((Decimal("2.00"), 3, 2.5, {"z": 8, "y": "y"}, "new"))
    (change,) = history.after(before)
    assert [(each.name, each.identity) for each in change.columns] == [
        ("d", "5"),
        ("key", "1"),
        ("f", "2"),
        ("s", "4"),
        ("gone", "7"),
    ]
    new = (Decimal("2.00"), 3, 2.5, {"z": 8, "y": "y"}, "new")
    assert rows_of(change.rows) == rows(new)
    assert all_of(history, change.version) == rows(
        (Decimal("1.00"), 1, 1.5, {"z": 7, "y": None}, None), (None, 2, None, None, None), new
    )
    assert all_of(history, before) == rows(
        (1, 1.5, "gone", {"x": 7}, Decimal("1.00")), (2, None, None, None, None)
    )


def test_a_file_without_any_of_the_columns_has_as_many_rows(lake, iceberg_java):
    lake.made()
    lake.append((1, "a"), (2, "b"), (3, "c"))
    with lake.loaded().update_schema() as schema:
        schema.add_column("new", StringType())
        schema.delete_column("k")
        schema.delete_column("v")
    with written_by_java(iceberg_java, lake.access, ("n", "t")) as table:
        table.change([{"new": "x"}], positions=table.places()[:1])
    history = lake.history()
    assert all_of(history, history.newest()) == rows((None,), (None,), ("x",))


def test_files_of_other_systems(lake, tmp_path):
    """Their columns have no ids, and those of partitions are not in them."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day"))
    schema = Schema(
        NestedField(1, "k", LongType()),
        NestedField(2, "day", StringType()),
        NestedField(3, "s", StructType(NestedField(4, "x", LongType()))),
    )
    lake.made(schema, partition_spec=spec)
    whole = pa.table({"k": [1], "day": ["mon"], "s": [{"x": 3}]})
    pq.write_table(whole, tmp_path / "theirs.parquet")
    lake.loaded().add_files([(tmp_path / "theirs.parquet").as_uri()])
    history = lake.history()
    assert all_of(history, history.newest()) == rows((1, "mon", {"x": 3}))
    # As Hive has it: the value is in the name of a folder.
    pq.write_table(whole.select(["s", "k"]), tmp_path / "theirs.parquet")
    assert all_of(history, history.newest()) == rows((1, "mon", {"x": 3}))


def test_deletes_of_a_column_that_is_gone(lake, iceberg_java):
    """Deletes by equality stay, with columns and types that the table had."""
    lake.made()
    lake.append((1, "a"), (2, "b"), (3, None))
    with written_by_java(iceberg_java, lake.access, ("n", "t")) as table:
        table.change([{"k": 4, "v": "a"}], [{"v": "a"}, {"v": None}])
    history = lake.history()
    first = history.newest()
    with lake.loaded().update_schema() as schema:
        schema.update_column("k", LongType())
        schema.delete_column("v")
    lake.append((5,))
    assert all_of(history, history.newest()) == rows((2,), (4,), (5,))
    (change,) = history.after(first)
    assert rows_of(change.rows) == rows((5,))
    fresh = lake.history()
    assert all_of(fresh, fresh.newest()) == rows((2,), (4,), (5,))


def test_deletes_by_fields_within_columns(lake, iceberg_java):
    """A struct that is NULL is not one whose fields are."""
    inner = StructType(NestedField(3, "x", IntegerType()), NestedField(4, "y", StringType()))
    lake.made(Schema(NestedField(1, "k", IntegerType()), NestedField(2, "s", inner)))
    lake.append((1, {"x": 1, "y": "a"}), (2, {"x": 1, "y": "b"}), (3, None), (4, {"x": None}))
    history = lake.history()
    first = history.newest()
    with written_by_java(iceberg_java, lake.access, ("n", "t")) as table:
        table.change([{"k": 5, "s": {"x": 1, "y": "b"}}], [{"s": {"x": 1, "y": "b"}}])
    (change,) = history.after(first)
    went, came = (2, {"x": 1, "y": "b"}), (5, {"x": 1, "y": "b"})
    assert rows_of(change.rows) == Counter({repr(went): -1, repr(came): 1})
    with written_by_java(iceberg_java, lake.access, ("n", "t")) as table:
        table.change(keys=[{"s": {"x": None}}])
    left = rows((1, {"x": 1, "y": "a"}), (3, None), came)
    assert all_of(history, history.newest()) == left
    found = iceberg_java.rows(lake.loaded().metadata_location)
    assert [row[0] for row in found] == [1, 3, 5]


def test_deletes_by_numbers_that_are_equal_in_some_eyes(lake, iceberg_java):
    lake.made(pa.schema([("k", pa.int32()), ("d", pa.float64())]))
    lake.append((1, 0.0), (2, -0.0), (3, None), (4, float("nan")), (5, 1.5))
    history = lake.history()
    for key, left in ((-0.0, [1, 3, 4, 5]), (None, [1, 4, 5]), (1.5, [1, 4]), (0.0, [4])):
        with written_by_java(iceberg_java, lake.access, ("n", "t")) as table:
            table.change(keys=[{"d": key}])
        found = [
            row["k"] for each in history.contents(history.newest()) for row in each.to_pylist()
        ]
        java = sorted(row[0] for row in iceberg_java.rows(lake.loaded().metadata_location))
        assert sorted(found) == java == left


def test_deletes_within_partitions(lake, iceberg_java):
    """They leave rows of other partitions alone, and those that were written without partitions."""
    lake.made()
    lake.append((1, "a"), (1, "b"))
    history = lake.history()
    columns = history.columns(history.newest())
    told = an_origin(lake.access, columns=columns).opened()

    def changes_of(*change):
        before = told.newest()
        with written_by_java(iceberg_java, lake.access, ("n", "t")) as table:
            table.change(*change)
        assert all_of(history, history.newest()) == rows(
            *map(tuple, iceberg_java.rows(lake.loaded().metadata_location))
        )
        (found,) = told.after(before)
        values = [row for each in found.deleted for row in each.to_pylist()]
        return values, rows_of(found.rows)

    everywhere = [{"k": 2, "v": "b"}]
    assert changes_of([], everywhere) == (everywhere, Counter())
    with lake.loaded().update_spec() as spec:
        spec.add_identity("v")
    lake.append((1, "a"), (2, "a"))
    # A row like one that goes is in a file without a partition: so the files tell.
    assert changes_of([], [{"k": 1, "v": "a"}]) == ([], Counter({repr((1, "a")): -1}))
    lake.loaded().overwrite(pa.Table.from_pylist([{"k": 3, "v": "a"}], COLUMNS))
    # All rows are in partitions, which a key has or does not have.
    assert changes_of([], [{"k": 9, "v": "a"}]) == ([{"k": 9, "v": "a"}], Counter())
    places = []
    with written_by_java(iceberg_java, lake.access, ("n", "t")) as table:
        places += table.places()
    assert changes_of([], [], places) == ([], Counter({repr((3, "a")): -1}))


def test_many_groups_of_rows(lake, iceberg_java, monkeypatch):
    """Positions count through a file; of deletes little is kept."""
    monkeypatch.setattr(KeptDeletes.__init__, "__defaults__", (1,))
    lake.made(properties={"write.parquet.row-group-limit": "10"})
    lake.append(*((number, str(number)) for number in range(35)))
    with written_by_java(iceberg_java, lake.access, ("n", "t")) as table:
        places = table.places()
        table.change(positions=[places[at] for at in (0, 9, 10, 34)])
        table.change(keys=[{"k": 9}, {"k": 20}])
        table.change(keys=[{"v": "21"}], positions=[places[20], places[11]])
    history = lake.history()
    newest = history.newest()
    left = [number for number in range(35) if number not in (0, 9, 10, 11, 20, 21, 34)]
    assert len(list(history.contents(newest))) == 4
    assert all_of(history, newest) == rows(*((number, str(number)) for number in left))
    second = history.at(2)
    changes = [rows_of(change.rows) for change in history.after(second)]
    assert changes == [
        Counter({repr((20, "20")): -1}),
        Counter({repr((number, str(number))): -1 for number in (11, 21)}),
    ]


def test_what_our_own_sink_writes(lake):
    columns = pa.schema([pa.field("k", pa.int64(), False), pa.field("v", pa.string())])
    target = a_target(lake.access, columns, ("n", "t"), key=["k"])
    target.ensure()
    sink = target.opened()
    history = lake.history()
    at = history.newest()

    def commit(frontier, come, keys):
        sink.load()
        inserted = pa.Table.from_pylist([{"k": k, "v": v} for k, v in come], columns)
        deleted = pa.table({"k": pa.array(keys, pa.int64())})
        sink.commit(LakeChanges(inserted, deleted), LakeProgress(Frontier(frontier), 0, 1))

    commit(10, [(1, "a"), (2, "b")], [1, 2])
    commit(20, [(1, "c")], [1])
    commit(30, [], [2, 3])
    changes = [rows_of(change.rows) for change in history.after(at)]
    assert changes == [
        rows((1, "a"), (2, "b")),
        Counter({repr((1, "a")): -1, repr((1, "c")): 1}),
        Counter({repr((2, "b")): -1}),
    ]
    assert all_of(history, history.newest()) == rows((1, "c"))
    # Where the columns of the source are known, keys are told and no data file is read.
    told = an_origin(lake.access, columns=history.columns(at)).opened()
    told_changes = [
        ([row for each in change.deleted for row in each.to_pylist()], rows_of(change.rows))
        for change in told.after(at)
    ]
    assert told_changes == [
        ([], rows((1, "a"), (2, "b"))),
        ([{"k": 1}], rows((1, "c"))),
        ([{"k": 2}, {"k": 3}], Counter()),
    ]


def test_histories_that_are_lost_and_that_are_others(lake):
    lake.made()
    history = lake.history()
    empty = history.newest()
    assert (empty.number, empty.version) == (0, "")
    assert history.at(0) == empty
    versions = []
    for number in range(4):
        lake.append((number, "x"))
        versions.append(history.newest())
    assert [each.number for each in versions] == [1, 2, 3, 4]
    assert [each.version for each in history.after(empty)] == versions
    table = lake.loaded()
    ids = [int(each.version) for each in versions]
    table.maintenance.expire_snapshots().by_ids(ids[:2]).commit()
    message = refused("SLACKWATER_SOURCE_HISTORY_LOST", lambda: history.after(versions[1]))
    assert "RESNAPSHOT" in message
    refused("SLACKWATER_SOURCE_HISTORY_LOST", lambda: list(history.contents(versions[0])))
    refused("SLACKWATER_SOURCE_HISTORY_LOST", lambda: history.columns(versions[0]))
    refused("SLACKWATER_SOURCE_HISTORY_LOST", lambda: history.at(1))
    assert [each.version for each in history.after(versions[2])] == versions[3:]
    # Of a table without snapshots nothing had to be there: the first that is there has all rows.
    first, second = history.after(empty)
    assert rows_of(first.rows) == rows((0, "x"), (1, "x"), (2, "x"))
    assert second.version == versions[3]
    # Set back, and on from there: the snapshot that was read is beside the line.
    lake.loaded().manage_snapshots().set_current_snapshot(snapshot_id=ids[2]).commit()
    refused("SLACKWATER_SOURCE_REPLACED", lambda: history.after(versions[3]))
    lake.append((9, "other"))
    refused("SLACKWATER_SOURCE_REPLACED", lambda: history.after(versions[3]))
    lake.loaded().maintenance.expire_snapshots().by_id(ids[3]).commit()
    refused("SLACKWATER_SOURCE_REPLACED", lambda: history.after(versions[3]))
    (other,) = history.after(versions[2])
    assert rows_of(other.rows) == rows((9, "other"))
    # Commits to other branches leave gaps.
    lake.loaded().manage_snapshots().create_branch(int(other.version.version), "b").commit()
    lake.loaded().append(pa.Table.from_pylist([{"k": 1, "v": "b"}], COLUMNS), branch="b")
    lake.append((10, "main"))
    (last,) = history.after(other.version)
    assert last.version.number == other.version.number + 2
    refused("SLACKWATER_SOURCE_HISTORY_LOST", lambda: history.at(other.version.number + 1))
    lake.catalog.drop_table(("n", "t"))
    refused("SLACKWATER_SOURCE_TABLE_UNREADABLE", history.newest)
    lake.made()
    message = refused("SLACKWATER_SOURCE_REPLACED", lambda: history.after(last.version))
    assert last.version.table in message
    assert history.newest().version == ""


def test_a_file_that_is_gone(lake):
    lake.made()
    history = lake.history()
    empty = history.newest()
    lake.append((1, "a"))
    (change,) = history.after(empty)
    (task,) = lake.loaded().scan().plan_files()
    lake.loaded().io.delete(task.file.file_path)
    refused("SLACKWATER_SOURCE_HISTORY_LOST", lambda: list(change.rows))
    refused("SLACKWATER_SOURCE_HISTORY_LOST", lambda: list(history.contents(change.version)))


def test_a_server_and_its_secrets(iceberg_java):
    access = iceberg_java.access()
    lake = Lake(access)
    table = f"t{uuid.uuid4().hex}"
    lake.made(table=table)
    lake.append((1, "a"), table=table)
    history = lake.history(table)
    assert all_of(history, history.newest()) == rows((1, "a"))
    history.close()
    away = IcebergAccess(
        "rest", "http://127.0.0.1:1", None, credential="a:hunter2", secrets=("hunter2",)
    )
    message = refused("SLACKWATER_SOURCE_UNREACHABLE", an_origin(away).opened().newest)
    assert "hunter2" not in message
    message = refused("SLACKWATER_SOURCE_TABLE_UNREADABLE", lake.history("none").newest)
    assert "the table n.none: there is no such table" in message


def test_tables_in_s3(tmp_path, s3):
    aws = AwsAccess("us-east-1", s3.endpoint, "access-of-the-tests", "secret-of-the-tests")
    warehouse = f"s3://{s3.new_bucket()}/w"
    lake = Lake(IcebergAccess("sql", f"sqlite:///{tmp_path}/catalog.db", warehouse), aws)
    lake.made()
    lake.append((1, "a"))
    history = lake.history()
    version = history.newest()
    assert all_of(history, version) == rows((1, "a"))
    (task,) = lake.loaded().scan().plan_files()
    lake.loaded().io.delete(task.file.file_path)
    refused("SLACKWATER_SOURCE_HISTORY_LOST", lambda: list(history.contents(version)))
    assert version.committed_ms > datetime(2020, 1, 1, tzinfo=UTC).timestamp() * 1000
    assert date.fromtimestamp(version.committed_ms / 1000) > date(2020, 1, 1)
