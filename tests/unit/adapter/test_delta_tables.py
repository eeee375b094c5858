"""Delta tables of sinks, as delta-rs writes and reads them."""

import datetime
import decimal
import json
import math
import os
import shutil

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake

from slackwater.adapter.external import delta
from slackwater.adapter.external.delta import DeltaTarget
from slackwater.adapter.external.delta_folder import DeltaFolder
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Frontier
from slackwater.repr.relation import Column, RelationDesc
from slackwater.storage.lake.config import DeltaPlace, LakeSinkConfig
from slackwater.storage.lake.table import LakeChanges, LakeProgress, TableChanged

DESC = RelationDesc.of(k="long", v="string")


def target(path, desc=DESC, key=("k",), writer="w"):
    """The table in that folder of a sink that upserts by the key; without one, it appends."""
    uri = str(path)
    config = LakeSinkConfig(DeltaPlace(uri), "UPSERT" if key else "APPEND", key)
    return DeltaTarget(DeltaFolder.at(uri), "the_sink", writer, config, desc)


def made(path, **more):
    """The table, made and loaded."""
    found = target(path, **more)
    found.ensure()
    table = found.opened()
    assert table.load() is None
    return table


def at(frontier, version=0, epoch=1):
    return LakeProgress(Frontier(frontier), version, epoch)


def changes(inserted, deleted=()):
    rows = pa.table(
        {
            "k": pa.array([k for k, _ in inserted], pa.int64()),
            "v": pa.array([v for _, v in inserted], pa.string()),
        }
    )
    return LakeChanges(rows, pa.table({"k": pa.array(list(deleted), pa.int64())}))


def contents(path):
    found = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=str)


def test_changes_and_progress_are_one_commit(tmp_path):
    table = made(tmp_path / "t")
    table.commit(changes([(1, "a"), (None, "n"), (2, "b")]), at(5))
    table.commit(changes([(1, "A"), (3, "c")], [1, None]), at(7, 2, 3))
    assert contents(tmp_path / "t") == [(1, "A"), (2, "b"), (3, "c")]
    assert DeltaTable(str(tmp_path / "t")).version() == 2
    assert target(tmp_path / "t").opened().load() == at(7, 2, 3)
    assert target(tmp_path / "t", writer="other").opened().load() is None


def test_rows_are_told_of_as_delta_takes_them(tmp_path, monkeypatch):
    monkeypatch.setattr(delta, "_BATCH_ROWS", 2)
    told, table = [], made(tmp_path)
    table.commit(changes([(n, "a") for n in range(5)]), at(1), told.append)
    assert told == [2, 2, 1]
    assert contents(tmp_path) == [(n, "a") for n in range(5)]


def test_a_deletion_and_a_silence_are_commits(tmp_path):
    table = made(tmp_path)
    table.commit(changes([(1, "a")]), at(1))
    table.commit(changes([], [1, 9]), at(2))
    table.commit(changes([]), at(3))
    assert contents(tmp_path) == []
    assert target(tmp_path).opened().load() == at(3)
    table.commit(changes([(1, "b")], [1]), at(4))
    assert contents(tmp_path) == [(1, "b")]


@pytest.mark.parametrize("deleted", [[], [1]])
def test_a_commit_to_a_table_that_has_changed_does_nothing(tmp_path, deleted):
    table = made(tmp_path)
    table.commit(changes([(1, "a")]), at(1))
    second = target(tmp_path).opened()
    assert second.load() == at(1)
    write_deltalake(str(tmp_path), changes([(8, "theirs")]).inserted, mode="append")
    for each in (table, second):
        with pytest.raises(TableChanged):
            each.commit(changes([(1, "b")], deleted), at(2))
    assert contents(tmp_path) == [(1, "a"), (8, "theirs")]
    assert table.load() == second.load() == at(1)
    table.commit(changes([(1, "b")], [1]), at(2))
    with pytest.raises(TableChanged):
        second.commit(changes([(1, "b")], deleted), at(2))
    assert contents(tmp_path) == [(1, "b"), (8, "theirs")]


def test_progress_outlives_checkpoints_compactions_and_cleanups(tmp_path):
    table = made(tmp_path)
    for frontier in range(1, 6):
        table.commit(changes([(frontier, "a")]), at(frontier))
    theirs = DeltaTable(str(tmp_path))
    theirs.optimize.compact()
    theirs.create_checkpoint()
    theirs.vacuum(0, enforce_retention_duration=False, dry_run=False)
    for version in range(6):
        os.remove(tmp_path / "_delta_log" / f"{version:020}.json")
    with pytest.raises(SlackwaterError, match="SLACKWATER_SINK_UNREACHABLE"):
        table.commit(changes([(1, "b")], [1]), at(6))
    assert table.load() == at(5)
    table.commit(changes([(1, "b")], [1]), at(6))
    assert contents(tmp_path) == [(1, "b"), (2, "a"), (3, "a"), (4, "a"), (5, "a")]


def test_a_table_that_is_gone_is_told(tmp_path):
    table = made(tmp_path / "t")
    shutil.rmtree(tmp_path / "t")
    with pytest.raises(SlackwaterError, match="SLACKWATER_SINK_UNREACHABLE"):
        table.commit(changes([(1, "a")]), at(1))
    with pytest.raises(SlackwaterError, match=r"SLACKWATER_SINK_PROGRESS_LOST.*it is gone"):
        table.load()
    assert not (tmp_path / "t" / "_delta_log").exists()


STRUCT = {
    "type": "struct",
    "fields": [
        {"name": "x", "type": "integer", "nullable": False, "metadata": {}},
        {
            "name": "Y",
            "type": {"type": "array", "elementType": "timestamp_ntz", "containsNull": False},
            "nullable": True,
            "metadata": {"comment": "c"},
        },
    ],
}
UTC = datetime.timezone.utc
VALUES = {
    "boolean": True,
    "byte": -128,
    "short": 2,
    "integer": 3,
    "long": 2**62,
    "float": 1.5,
    "double": -0.0,
    "decimal(38,18)": decimal.Decimal("12345678901234567890.123456789012345678"),
    "decimal(5,0)": decimal.Decimal(99999),
    "string": "ä\x00",
    "binary": b"\x00y",
    "date": datetime.date(1, 1, 1),
    "timestamp": datetime.datetime(1600, 1, 1, tzinfo=UTC),
    "timestamp_ntz": datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
    "char(3)": "a  ",
    "varchar(3)": "a",
}
NESTED = [
    ({"type": "array", "elementType": "integer", "containsNull": True}, [1, None]),
    (
        {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
        [("a", 1), ("b", None)],
    ),
    (STRUCT, {"x": 1, "Y": [datetime.datetime(2020, 1, 1)]}),
]
KINDS = [*VALUES.items(), *NESTED]


def all_types():
    columns = [Column(f"c{n}", json.dumps(kind)) for n, (kind, _) in enumerate(KINDS)]
    return RelationDesc(tuple(columns))


def rows_of(desc, *rows):
    schema = desc.arrow_schema()
    arrays = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_each_type_is_there_as_it_was_and_is_found_by_its_key(tmp_path, number):
    if KINDS[number][0] in ("float", "double"):
        number = 0
    desc, key = all_types(), (f"c{number}",)
    full, none = [value for _, value in KINDS], [None] * len(KINDS)
    table = made(tmp_path, desc=desc, key=key)
    keys = rows_of(desc, full, none).select(list(key))
    table.commit(LakeChanges(rows_of(desc, full, none), keys), at(1))
    table.commit(LakeChanges(rows_of(desc, full, none), keys), at(2))
    found = DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist()
    assert sorted((list(row.values()) for row in found), key=lambda row: row[0] is None) == [
        full,
        none,
    ]
    (zero,) = (row["c6"] for row in found if row["c6"] is not None)
    assert math.copysign(1, zero) == -1


NAMES = ["select", "a.b", "`q`", '"d"', "Ünï", "gone", "GONE_", "_mz_diff", "a'b", "1", "%41", "t"]


def test_names_are_found_whatever_they_are(tmp_path):
    desc = RelationDesc(tuple(Column(name, '"long"') for name in NAMES))
    folder = tmp_path / "a b ü#?"
    table = made(folder, desc=desc, key=tuple(NAMES[:8]))
    rows = rows_of(desc, range(12), range(12, 24))
    table.commit(LakeChanges(rows, rows.select(NAMES[:8])), at(1))
    again = rows.slice(1)
    table.commit(LakeChanges(again, rows.select(NAMES[:8])), at(2))
    assert DeltaTable(str(folder)).to_pyarrow_table().to_pylist() == again.to_pylist()


@pytest.mark.parametrize("name", ["a b", "", "a,b", "a;b", "{", "}", "(", ")", "a\nb", "a\tb", "="])
def test_names_without_a_column_are_refused(tmp_path, name):
    desc = RelationDesc((Column("k", '"long"'), Column(name, '"long"')))
    with pytest.raises(SlackwaterError, match=r"SLACKWATER_COLUMN_MISMATCH.*none of a Delta"):
        target(tmp_path, desc=desc).ensure()
    inside = {"type": "array", "containsNull": True, "elementType": json.loads(desc.to_json())}
    desc = RelationDesc((Column("k", '"long"'), Column("v", json.dumps(inside))))
    with pytest.raises(SlackwaterError, match=r"SLACKWATER_COLUMN_MISMATCH.*none of a Delta"):
        target(tmp_path, desc=desc).ensure()
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("columns", "condition"),
    [
        ({"k": "long", "K": "long"}, "SLACKWATER_DUPLICATE_COLUMN"),
        ({"k": "long", "v": "variant"}, "SLACKWATER_UNSUPPORTED_TYPE"),
        ({"k": "long", "v": "interval day to second"}, "SLACKWATER_UNSUPPORTED_TYPE"),
        ({"k": "long", "v": "time(6)"}, "SLACKWATER_UNSUPPORTED_TYPE"),
        ({"k": "long", "v": {"type": "struct", "fields": []}}, "SLACKWATER_COLUMN_MISMATCH"),
    ],
)
def test_columns_that_no_table_has_are_refused(tmp_path, columns, condition):
    with pytest.raises(SlackwaterError, match=condition):
        target(tmp_path, desc=RelationDesc.of(**columns)).ensure()


def existing(path, configuration=None, partition_by=None, **changed):
    """A table of somebody else's with the columns k and v, others, or other ones."""
    fields = {"k": {"type": "long"}, "v": {"type": "string"}, **changed}
    full = [{"name": n, "nullable": True, "metadata": {}} | f for n, f in fields.items()]
    schema = Schema.from_json(json.dumps({"type": "struct", "fields": full}))
    return DeltaTable.create(
        str(path), schema, configuration=configuration, partition_by=partition_by
    )


def test_a_table_that_is_there_may_have_more_columns_and_partitions(tmp_path):
    existing(tmp_path, more={"type": "date"}, partition_by=["v"])
    table = made(tmp_path)
    table.commit(changes([(1, "a"), (2, "b")]), at(1))
    table.commit(changes([(1, "c")], [1]), at(2))
    assert sorted(row[:2] for row in contents(tmp_path)) == [(1, "c"), (2, "b")]
    assert len(DeltaTable(str(tmp_path)).partitions()) == 2


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"v": {"type": "long"}}, "v is long in the table, and string here"),
        ({"v": {"type": "string", "nullable": False}}, "v is NOT NULL in the table"),
        ({"more": {"type": "date", "nullable": False}}, "more is NOT NULL in the table"),
        ({"configuration": {"delta.appendOnly": "true"}}, "rows may only be appended"),
        ({"configuration": {"delta.enableChangeDataFeed": "true"}}, "for"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path, given, reason):
    existing(tmp_path, **given)
    with pytest.raises(SlackwaterError, match=reason):
        target(tmp_path).ensure()


def test_a_table_that_does_not_fit_any_more_is_told_when_it_is_loaded(tmp_path):
    table = made(tmp_path)
    table.commit(changes([(1, "a")]), at(1))
    constrained = DeltaTable(str(tmp_path))
    constrained.alter.add_constraint({"positive": "k > 0"})
    with pytest.raises(TableChanged):
        table.commit(changes([(2, "b")]), at(2))
    with pytest.raises(SlackwaterError, match="the table asks its writers for"):
        table.load()


def test_upserts_begin_with_a_table_without_rows(tmp_path):
    existing(tmp_path)
    target(tmp_path).ensure()
    write_deltalake(str(tmp_path), changes([(1, "a")]).inserted, mode="append")
    with pytest.raises(SlackwaterError, match="begins with a table without rows"):
        target(tmp_path).ensure()
    known = CommitProperties(app_transactions=[Transaction("w", 5)])
    write_deltalake(str(tmp_path), changes([]).inserted, mode="append", commit_properties=known)
    target(tmp_path).ensure()


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    with pytest.raises(SlackwaterError, match=r"SLACKWATER_INVALID_OPTION.*a % in its path"):
        target(tmp_path / "100%").ensure()
    (tmp_path / "file").write_text("x")
    with pytest.raises(SlackwaterError, match="SLACKWATER_SINK_UNREACHABLE"):
        target(tmp_path / "file" / "t").ensure()
