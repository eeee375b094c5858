"""Commits of sinks to Iceberg tables, read by Iceberg's own reader.

Two catalogs: pyiceberg's in a database, and Iceberg's own server.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog import load_catalog
from tests.chaos.test_delta_sink_killed import DESC, UPDATES, write
from tests.support.iceberg.java import Tables, a_target

from slackwater.adapter.external import iceberg_files
from slackwater.adapter.external.iceberg import IcebergSinkTable, IcebergTarget
from slackwater.adapter.external.iceberg_catalogs import catalog_properties
from slackwater.adapter.external.iceberg_files import CommitFiles
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Frontier
from slackwater.storage.access import AwsAccess, IcebergAccess
from slackwater.storage.iceberg.schema import sink_columns
from slackwater.storage.lake.changes import LakeRows
from slackwater.storage.lake.config import IcebergPlace, LakeSinkConfig
from slackwater.storage.lake.sink import LakeSink, SinkTable
from slackwater.storage.lake.table import LakeChanges, LakeProgress, LakeTable, TableChanged
from slackwater.storage.sink_folder import Claim

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([pa.field("k", pa.int64(), False), pa.field("v", pa.string())])
ALL = pa.schema(
    [
        pa.field("k", pa.int64(), False),
        pa.field("K", pa.float32()),
        pa.field("a.b é", pa.string()),
        pa.field("`", pa.bool_()),
        pa.field("tiny", pa.int8()),
        pa.field("small", pa.int16()),
        pa.field("2i", pa.int32()),
        pa.field("double", pa.float64()),
        pa.field("bytes", pa.binary()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("d9", pa.decimal128(9, 2)),
        pa.field("d38", pa.decimal128(38, 18)),
        pa.field("list", pa.list_(pa.field("element", pa.int16()))),
        pa.field("map", pa.map_(pa.string(), pa.field("value", pa.date32()))),
        pa.field("row", pa.struct([pa.field("x y", pa.int8()), pa.field("X Y", pa.string())])),
    ]
)


@pytest.fixture(params=["sql", "rest"])
def access(request, tmp_path):
    if request.param == "sql":
        return Tables(tmp_path).access()
    return request.getfixturevalue("iceberg_java").access()


def at(frontier, version=0, epoch=1):
    return LakeProgress(Frontier(frontier), version, epoch)


def inserted(*rows, columns=COLUMNS):
    return pa.Table.from_pylist(
        [dict(zip(columns.names, row, strict=True)) for row in rows], columns
    )


def changes(rows, keys=None):
    """The rows that come, and the keys of those that go."""
    deleted = None if keys is None else pa.table({"k": pa.array(keys, pa.int64())})
    return LakeChanges(inserted(*rows), deleted)


def made(access, columns=COLUMNS, key=(), aws=None):
    """A new table, loaded."""
    target = a_target(access, columns, key=key, aws=aws)
    target.ensure()
    table = target.opened()
    assert table.load() is None
    return Loaded(target, table)


@dataclass(frozen=True)
class Loaded:
    target: IcebergTarget
    table: LakeTable

    @property
    def identifier(self):
        return self.target.rows.identifier

    def __getattr__(self, name):
        return getattr(self.table, name)


def by_library(access, table, aws=None):
    """The table as pyiceberg alone has it."""
    catalog = load_catalog("default", **catalog_properties(access, aws))
    target = table if isinstance(table, IcebergTarget) else table.target
    return catalog.load_table(target.rows.identifier)


def location(access, table):
    return by_library(access, table).metadata_location


def test_java_reads_all_types(access, iceberg_java):
    """Values at the ends of their ranges, and names of any characters."""
    table = made(access, ALL, ["k"])
    most, least = 2**63 - 1, -(2**63)
    first = [1, 1.5, "ü", True, -128, -(2**15), -(2**31), 0.1, b"\x00\xff", -(2**24), most, least]
    first += [Decimal("-9999999.99"), Decimal(10) ** 19, [1, None], [("a", 0)], {"x y": 1}]
    second = [2, float("nan"), "", False, 127, 2**15 - 1, 2**31 - 1, float("-inf"), b"", 0]
    second += [least, most, Decimal("9999999.99"), -(Decimal(10) ** 19), [], [], {"X Y": "x" * 40}]
    rows = [first, second, [3] + [None] * 16]
    columns = [
        pa.array([row[position] for row in rows], _plain(kind)).cast(kind)
        for position, kind in enumerate(ALL.types)
    ]
    table.commit(LakeChanges(pa.Table.from_arrays(columns, schema=ALL)), at(10))
    found = iceberg_java.rows(location(access, table))
    assert found[2] == [3] + [None] * 16
    first, second = found[:2]
    assert first[:9] == [1, 1.5, "ü", True, -128, -(2**15), -(2**31), 0.1, first[8]]
    assert first[9:] == [
        "-43965-07-18",
        "+294247-01-10T04:00:54.775807Z",
        "-290308-12-21T19:59:05.224192",
        Decimal("-9999999.99"),
        Decimal(10) ** 19,
        "[1, null]",
        "{a=1970-01-01}",
        "Record(1, null)",
    ]
    assert second[1] != second[1]
    assert second[7] == float("-inf")
    assert second[16] == f"Record(null, {'x' * 40})"
    table.close()


def _plain(kind):
    """A type whose values Python can write: dates and times beyond its own are numbers."""
    if pa.types.is_date(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def test_deletes_by_keys_of_all_kinds(access, iceberg_java):
    """Random histories of a key of several columns, which may be NULL: as Java reads them."""
    columns = pa.schema(
        [
            pa.field("text", pa.string()),
            pa.field("d", pa.decimal128(30, 2)),
            pa.field("bytes", pa.binary()),
            pa.field("day", pa.date32()),
            pa.field("small", pa.int8()),
            pa.field("is", pa.bool_()),
            pa.field("at", pa.timestamp("us", tz="UTC")),
            pa.field("v", pa.int64()),
        ]
    )
    key = columns.names[:-1]
    table = made(access, columns, key)
    chosen = random.Random(1)
    many = [
        ("", "a", "ab" * 20, None),
        (Decimal("-0.01"), Decimal("1.00"), None),
        (b"", b"\xff" * 20, None),
        (date(1969, 12, 31), None),
        (-1, None),
        (True, False, None),
        (None,),
    ]
    contents: dict[tuple, int] = {}
    for time in range(1, 9):
        keys = {tuple(map(chosen.choice, many)) for _ in range(12)}
        keys |= set(chosen.sample(sorted(contents, key=repr), min(6, len(contents))))
        gone = {each for each in keys if chosen.random() < 0.5}
        come = dict.fromkeys(keys - gone, time)
        rows = inserted(*((*each, v) for each, v in come.items()), columns=columns)
        deleted = inserted(*((*each, 0) for each in sorted(keys, key=repr)), columns=columns)
        table.commit(LakeChanges(rows, deleted.select(key)), at(time))
        contents = {each: v for each, v in contents.items() if each not in gone} | come
    found = iceberg_java.rows(location(access, table))
    assert _texts([row[7], *row[:2], *row[4:6]] for row in found) == _texts(
        [v, *each[:2], *each[4:6]] for each, v in contents.items()
    )
    assert table.load() == at(8)


def _texts(rows):
    return sorted(map(repr, rows))


def test_rows_are_told_of_as_they_are_written(access, iceberg_java, monkeypatch):
    monkeypatch.setattr(iceberg_files, "_GROUP_ROWS", 2)
    told, table = [], made(access, key=["k"])
    table.commit(changes([(n, "a") for n in range(5)]), at(10), told.append)
    table.commit(changes([(7, "b")], [0, 1, 2, 3, 4]), at(20), told.append)
    assert told == [2, 2, 1, 1], "rows that are deleted are none of them"
    assert iceberg_java.rows(location(access, table)) == [[7, "b"]]


def test_who_is_late_changes_nothing(access, iceberg_java):
    """Of two that have loaded the same, the second is told, and leaves no file."""
    one = made(access, key=["k"])
    other = one.target.opened()
    assert other.load() is None
    one.commit(changes([(1, "a"), (2, "b")], []), at(10))
    files = _files(access, one)
    with pytest.raises(TableChanged):
        other.commit(changes([(1, "late")], [1]), at(5, epoch=2))
    assert _files(access, one) == files
    assert other.load() == at(10)
    other.commit(changes([(1, "new")], [1, 2]), at(20, epoch=2))
    with pytest.raises(TableChanged):
        one.commit(changes([(3, "late")], []), at(30))
    assert one.load() == at(20, epoch=2)
    assert iceberg_java.rows(location(access, one)) == [[1, "new"]]


def _files(access, table):
    """The files of the table but the versions of its metadata, which the catalog writes."""
    root = by_library(access, table).metadata.location.removeprefix("file:")
    return sorted(
        path
        for path in Path(root).rglob("*")
        if path.is_file() and not path.name.endswith(".json") and not path.name.startswith(".")
    )


def test_other_writers_are_passed_over(access, iceberg_java):
    """Others append, delete and expire snapshots; what the sink has done stays known."""
    table = made(access)
    table.commit(changes([(1, "a")]), at(10))
    by_library(access, table).append(inserted((100, "theirs"), columns=COLUMNS))
    with pytest.raises(TableChanged):
        table.commit(changes([(2, "b")]), at(20))
    assert table.load() == at(10)
    table.commit(changes([(2, "b")]), at(20))
    theirs = by_library(access, table)
    theirs.delete("k = 1")
    assert table.load() == at(20)
    theirs = by_library(access, table)
    current = theirs.metadata.current_snapshot_id
    for snapshot in theirs.metadata.snapshots:
        if snapshot.snapshot_id != current:
            theirs.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    assert len(by_library(access, table).metadata.snapshots) == 1
    # No snapshot of the sink is left: the properties know.
    assert table.load() == at(20)
    table.commit(changes([(3, "c")]), at(30))
    rows = [[100, "theirs"], [2, "b"], [3, "c"]]
    assert iceberg_java.rows(location(access, table)) == rows
    found = by_library(access, table).scan().to_arrow().to_pylist()
    assert sorted([each["k"], each["v"]] for each in found) == sorted(rows)


def test_commits_to_another_branch(access, iceberg_java):
    """They take numbers of the same sequence."""
    table = made(access)
    table.commit(changes([(1, "a")]), at(10))
    theirs = by_library(access, table)
    current = theirs.metadata.current_snapshot_id
    theirs.manage_snapshots().create_branch(current, "theirs").commit()
    assert table.load() == at(10)
    by_library(access, table).append(inserted((2, "theirs")), branch="theirs")
    with pytest.raises(TableChanged):
        table.commit(changes([(3, "b")]), at(20))
    assert table.load() == at(10)
    table.commit(changes([(3, "b")]), at(20))
    assert iceberg_java.rows(location(access, table)) == [[1, "a"], [3, "b"]]


def test_tables_that_rows_do_not_fit(access):
    table = made(access)
    catalog = load_catalog("default", **catalog_properties(access, None))
    required = ("n", f"{table.identifier[1]}r")
    catalog.create_table(required, pa.schema([each.with_nullable(False) for each in COLUMNS]))
    other = pa.schema([pa.field("k", pa.string()), pa.field("v", pa.string())])
    unclear = pa.schema(
        [pa.field("a.b", pa.int32()), pa.field("a", pa.struct([pa.field("b", pa.int32())]))]
    )
    for named, columns, reason in (
        (required, COLUMNS, "its column v is required, and may be NULL here"),
        (table.identifier, other, "its column k has the type long, and is string here"),
        (("n", f"{table.identifier[1]}u"), unclear, "two of its columns have the path a.b"),
    ):
        with pytest.raises(SlackwaterError, match=reason) as refused:
            a_target(access, columns, named).ensure()
        assert refused.value.condition == "SLACKWATER_COLUMN_MISMATCH"


@pytest.mark.parametrize("partitions", [(), ("identity v",)], ids=" ".join)
def test_tables_of_format_version_1(access, iceberg_java, partitions):
    """Rows are added to them, and files written together; deletes they do not have."""
    schema = by_library(access, made(access)).schema()
    named = ("n", f"old{uuid.uuid4().hex}")
    theirs = load_catalog("default", **catalog_properties(access, None)).create_table(
        named, schema, properties={"format-version": "1"}
    )
    with theirs.update_spec() as spec:
        for each in partitions:
            spec.add_field(each.split()[1], each.split()[0], "p")
    theirs.append(inserted((100, "theirs")))
    target = a_target(access, COLUMNS, named)
    target = replace(target, rows=replace(target.rows, compact_every=3))
    target.ensure()
    table = target.opened()
    table.load()
    for time in (1, 2):
        table.commit(changes([(time, "a")]), at(time))
        table.tidy()
    assert target.opened().load() == at(2)
    theirs.refresh().delete("k = 100")
    assert table.load() == at(2)
    table.commit(changes([(3, "a")]), at(3))
    table.tidy()
    found = theirs.refresh().metadata
    assert found.format_version == 1
    assert found.current_snapshot().summary.operation.value == "replace"
    assert found.current_snapshot().summary["total-data-files"] == "1"
    table.commit(changes([(4, "b")]), at(4))
    assert target.opened().load() == at(4)
    rows = [[1, "a"], [2, "a"], [3, "a"], [4, "b"]]
    assert iceberg_java.rows(theirs.refresh().metadata_location) == rows
    assert sorted(map(list, map(dict.values, theirs.scan().to_arrow().to_pylist()))) == rows
    upserting = a_target(access, COLUMNS, named, key=["k"])
    with pytest.raises(SlackwaterError, match="is 1, and MODE UPSERT needs 2") as refused:
        upserting.ensure()
    assert refused.value.condition == "SLACKWATER_COLUMN_MISMATCH"


def test_a_table_that_was_set_back_does_not_tell(access):
    table = made(access)
    table.commit(changes([(1, "a")]), at(10))
    first = by_library(access, table).metadata.current_snapshot_id
    table.commit(changes([(2, "b")]), at(20))
    theirs = by_library(access, table)
    theirs.manage_snapshots().set_current_snapshot(snapshot_id=first).commit()
    with pytest.raises(SlackwaterError, match="it was set back") as refused:
        table.load()
    assert refused.value.condition == "SLACKWATER_SINK_PROGRESS_LOST"


def test_a_table_that_is_gone(access):
    table = made(access)
    table.commit(changes([(1, "a")]), at(10))
    catalog = load_catalog("default", **catalog_properties(access, None))
    catalog.drop_table(table.identifier)
    with pytest.raises((TableChanged, SlackwaterError)):
        table.commit(changes([(2, "b")]), at(20))
    loaded = table.target.opened()
    with pytest.raises(SlackwaterError, match="it is gone") as refused:
        loaded.load()
    assert refused.value.condition == "SLACKWATER_SINK_PROGRESS_LOST"
    table.target.ensure()
    # Another one of the same name is no table that was loaded.
    with pytest.raises(TableChanged):
        table.commit(changes([(2, "b")]), at(20))
    assert table.load() is None


def test_a_table_has_one_sink(access):
    table = made(access)
    table.commit(changes([(1, "a")]), at(10))
    other = a_target(access, COLUMNS, table.identifier, sink="sink-2")
    for fails in (other.ensure, other.opened().load):
        with pytest.raises(SlackwaterError) as refused:
            fails()
        assert refused.value.condition == "SLACKWATER_SINK_LOCATION_IN_USE"
    # The sink itself may look again.
    table.target.ensure()


def test_a_table_of_a_dropped_sink_is_free_once_it_has_no_rows(access):
    table = made(access)
    table.commit(changes([(1, "a")]), at(10))
    plain = a_target(access, COLUMNS, table.identifier, sink="sink-2")
    heir = replace(plain, was_dropped=lambda owner: owner == table.target.writer)
    for fails in (heir.ensure, heir.opened().load):
        with pytest.raises(SlackwaterError, match="which was dropped and has left rows") as refused:
            fails()
        assert refused.value.condition == "SLACKWATER_SINK_LOCATION_IN_USE"
    catalog = load_catalog("default", **catalog_properties(access, None))
    catalog.load_table(table.identifier).delete()
    with pytest.raises(SlackwaterError, match="LOCATION_IN_USE"):
        plain.ensure()
    heir.ensure()
    opened = heir.opened()
    assert opened.load() is None
    # A commit of the dropped sink that comes late is not overlooked.
    assert table.load() is not None
    table.commit(changes([(2, "late")]), at(20))
    with pytest.raises(TableChanged):
        opened.commit(changes([(3, "b")]), at(5))
    with pytest.raises(SlackwaterError, match="has left rows"):
        opened.load()
    catalog.load_table(table.identifier).delete()
    assert opened.load() is None
    opened.commit(changes([(3, "b")]), at(5))
    assert heir.opened().load() == at(5)
    with pytest.raises(SlackwaterError, match="LOCATION_IN_USE"):
        table.load()


def test_an_answer_that_got_lost(access, monkeypatch):
    """It is not known whether the commit is there; the table tells."""
    table = made(access)
    commit = table.table._catalog.commit_table

    def lost(*arguments):
        commit(*arguments)
        raise OSError("the connection broke")

    monkeypatch.setattr(table.table._catalog, "commit_table", lost)
    with pytest.raises(SlackwaterError, match="the connection broke") as refused:
        table.commit(changes([(1, "a")]), at(10))
    assert refused.value.condition == "SLACKWATER_SINK_UNREACHABLE"
    assert table.load() == at(10)
    found = by_library(access, table).scan().to_arrow().to_pylist()
    assert found == [{"k": 1, "v": "a"}]


def test_a_table_that_does_not_fit_any_more(access):
    table = made(access)
    table.commit(changes([(1, "a")]), at(10))
    with by_library(access, table).update_schema() as theirs:
        theirs.delete_column("v")
    for fails in (table.load, table.target.ensure):
        with pytest.raises(SlackwaterError, match="it has no column v") as refused:
            fails()
        assert refused.value.condition == "SLACKWATER_COLUMN_MISMATCH"


WIDER = pa.schema([*COLUMNS, pa.field("é", pa.list_(pa.field("element", pa.int32())), False)])


def test_columns_that_the_relation_gets_are_added(access, iceberg_java, monkeypatch):
    """Also when the sink ends behind it, and when another writer is faster."""
    table = made(access, key=["k"])
    table.commit(changes([(1, "a")], [1]), at(10))
    target = replace(table.target, rows=replace(table.target.rows, schema=WIDER))
    target.ensure()
    assert by_library(access, table).schema().column_names == ["k", "v"]
    wider = target.opened()
    assert wider.load() == at(10)
    by_library(access, table).append(inserted((100, "theirs")))
    more = LakeChanges(inserted((2, "b", [7]), columns=WIDER), pa.table({"k": pa.array([2])}))
    with pytest.raises(TableChanged):
        wider.commit(more, at(20, version=1))
    assert by_library(access, table).schema().column_names == ["k", "v"]
    assert wider.load() == at(10)
    with monkeypatch.context() as patched:
        dies(patched, "data", 1)
        with pytest.raises(Killed):
            wider.commit(more, at(20, version=1))
    found = by_library(access, table).schema()
    assert [str(each) for each in found.fields] == [
        "1: k: required long",
        "2: v: optional string",
        "3: é: optional list<int>",
    ]
    late = target.opened()
    assert late.load() == at(10)
    late.commit(more, at(20, version=1))
    # The one without the columns may still commit to what it has loaded: nothing is lost by it.
    assert table.load() == at(20, version=1)
    table.commit(changes([(3, "c")], [3]), at(30, version=1))
    rows = [[1, "a", None], [100, "theirs", None], [2, "b", "[7]"], [3, "c", None]]
    assert iceberg_java.rows(location(access, table)) == rows
    with by_library(access, table).update_schema() as theirs:
        theirs.delete_column("é")
    for fails in (late.load, target.ensure):
        with pytest.raises(SlackwaterError, match="it has no column é any more") as refused:
            fails()
        assert refused.value.condition == "SLACKWATER_COLUMN_MISMATCH"


def test_a_new_sink_adds_no_columns_to_a_table_of_others(access):
    table = made(access)
    with pytest.raises(SlackwaterError, match="it has no column é"):
        a_target(access, WIDER, table.identifier).ensure()
    # A relation may get columns before the sink has committed anything.
    wider = a_target(access, WIDER, table.identifier).opened()
    assert wider.load() is None
    wider.commit(LakeChanges(inserted((2, "b", [7]), columns=WIDER)), at(20))
    assert by_library(access, table).scan().to_arrow().to_pylist() == [{"k": 2, "v": "b", "é": [7]}]


def test_the_first_contents_delete_nothing(access):
    table = made(access, key=["k"])
    table.commit(changes([], []), at(10))
    table.commit(changes([(1, "a")], [1]), at(20))
    table.commit(changes([(1, "b")], [1]), at(30))
    summaries = [each.summary for each in by_library(access, table).metadata.snapshots]
    assert [each["total-equality-deletes"] for each in summaries] == ["0", "0", "1"]


class Killed(BaseException):
    """The process is gone."""


STEPS = ("data", "deletes", "manifests", "manifest_list", "sync", "_exchange", "_exchange done")


def dies(monkeypatch, step, number):
    """The process ends before that step of that commit, or after it."""
    kind = IcebergSinkTable if step.startswith("_") else CommitFiles
    name, _, done = step.partition(" ")
    does, left = getattr(kind, name), [number]

    def step_of_it(*arguments):
        left[0] -= 1
        if not left[0] and not done:
            raise Killed
        answer = does(*arguments)
        if not left[0]:
            raise Killed
        return answer

    monkeypatch.setattr(kind, name, step_of_it)


@pytest.mark.parametrize("mode", ["APPEND", "UPSERT"])
@pytest.mark.parametrize("step", STEPS)
def test_what_a_killed_sink_has_not_committed_is_there_once(
    tmp_path, iceberg_java, monkeypatch, mode, step
):
    config = LakeSinkConfig(IcebergPlace("n", "t"), mode, ("k",) if mode == "UPSERT" else ())
    access = Tables(tmp_path).access()
    target = IcebergTarget(access, None, "it", "s", sink_columns(config, DESC))

    def opened(epoch):
        return LakeSink(
            LakeRows(config, DESC, "s"),
            SinkTable("it"),
            Claim("u1", "s", epoch, lambda: None),
            target.opened(),
            clock=lambda: 0,
            is_stopped=lambda: False,
        )

    target.ensure()
    if (mode, step) != ("APPEND", "deletes"):
        with monkeypatch.context() as patched:
            dies(patched, step, 1 if step == "deletes" else 3 if step == "sync" else 2)
            with pytest.raises(Killed):
                write(opened(1))
    write(opened(2))
    found = iceberg_java.rows(by_library(access, target).metadata_location)
    if mode == "APPEND":
        assert found == sorted(([k, v, diff, time] for k, v, time, diff in UPDATES), key=repr)
        return
    rows = Counter()
    for k, v, _, diff in UPDATES:
        rows[k, v] += diff
    assert found == sorted(map(list, +rows), key=repr)


def test_upserts_begin_without_rows(access):
    named = made(access).identifier
    by_others = load_catalog("default", **catalog_properties(access, None)).load_table(named)
    by_others.append(inserted((1, "theirs")))
    target = a_target(access, COLUMNS, named, key=["k"])
    with pytest.raises(SlackwaterError, match="begins with a table without rows") as refused:
        target.ensure()
    assert refused.value.condition == "SLACKWATER_COLUMN_MISMATCH"
    a_target(access, COLUMNS, named).ensure()
    by_others.delete("k = 1")
    target.ensure()
    target.ensure()


def test_a_commit_that_something_between_has_asked_for_twice(access, monkeypatch):
    """The second answer is that the table has changed; the files are the table's."""
    table = made(access)
    commit = table.table._catalog.commit_table

    def twice(*arguments):
        commit(*arguments)
        return commit(*arguments)

    monkeypatch.setattr(table.table._catalog, "commit_table", twice)
    with pytest.raises(TableChanged):
        table.commit(changes([(1, "a")]), at(10))
    assert table.load() == at(10)
    assert by_library(access, table).scan().to_arrow().to_pylist() == [{"k": 1, "v": "a"}]


def test_silence_is_told(access, iceberg_java):
    """A commit without rows, the table's first one too."""
    table = made(access, key=["k"])
    table.commit(changes([], []), at(10))
    assert table.load() == at(10)
    table.commit(changes([(1, "a")], [1]), at(20))
    table.commit(changes([], []), at(30))
    assert table.load() == at(30)
    assert iceberg_java.rows(location(access, table)) == [[1, "a"]]


def test_java_finds_the_tables_of_a_database(tmp_path, iceberg_java):
    """Its own catalog over the same database loads a table, and commits to it."""
    access = Tables(tmp_path).access()
    table = made(access)
    table.commit(changes([(1, "a")]), at(10))
    named = (f"{tmp_path}/catalog.db", access.warehouse, table)
    with iceberg_java.table_of_database(*named) as theirs:
        theirs.updateProperties().set("theirs", "1").commit()
    table.commit(changes([(2, "b")]), at(20))
    with iceberg_java.table_of_database(*named) as theirs:
        assert theirs.currentSnapshot().summary().get("slackwater.frontier") == "20"
        assert theirs.properties().get("theirs") == "1"


def test_a_server_that_wants_a_token(iceberg_java, monkeypatch):
    """The credential buys it; variables of the process say nothing."""
    monkeypatch.setenv("PYICEBERG_CATALOG__DEFAULT__CREDENTIAL", "other:credential")
    monkeypatch.setenv("PYICEBERG_CATALOG__DEFAULT__WAREHOUSE", "s3://elsewhere")
    access = replace(iceberg_java.access(), credential="client:hunter2", scope="catalog")
    table = made(access)
    table.commit(changes([(1, "a")]), at(10))
    assert table.load() == at(10)
    session = table.table._catalog._session
    asked = session.prepare_request(requests.Request("GET", access.url))
    assert asked.headers["Authorization"].startswith("Bearer ")
    assert "hunter2" not in asked.headers["Authorization"]
    with pytest.raises(SlackwaterError, match="SLACKWATER_SINK_UNREACHABLE") as refused:
        a_target(replace(access, url="http://127.0.0.1:1", secrets=("hunter2",)), COLUMNS).ensure()
    assert "hunter2" not in refused.value.message


@pytest.mark.postgres
def test_a_catalog_in_postgresql(tmp_path, postgres):
    access = IcebergAccess("sql", postgres.new_database(), tmp_path.as_uri(), "theirs")
    table = made(access, key=["k"])
    table.commit(changes([(1, "a")], []), at(10))
    late = table.target.opened()
    assert late.load() == at(10)
    table.commit(changes([(1, "b")], [1]), at(20))
    with pytest.raises(TableChanged):
        late.commit(changes([(1, "c")], [1]), at(20))
    assert late.load() == at(20)


def test_tables_in_s3(tmp_path, s3):
    aws = AwsAccess("us-east-1", s3.endpoint, "access-of-the-tests", "secret-of-the-tests")
    warehouse = f"s3://{s3.new_bucket()}/w"
    access = IcebergAccess("sql", f"sqlite:///{tmp_path}/catalog.db", warehouse)
    table = made(access, key=["k"], aws=aws)
    table.commit(changes([(1, "a")], [1]), at(10))
    assert table.load() == at(10)
    found = by_library(access, table, aws).metadata
    assert found.current_snapshot().manifest_list.startswith(warehouse)


def test_tables_in_s3_in_a_role(tmp_path, s3, port):
    own = AwsAccess("us-east-1", s3.endpoint, "access-of-the-tests", "secret-of-the-tests")
    aws = replace(own, role="arn:aws:iam::123456789012:role/r")
    warehouse = f"s3://{s3.new_bucket()}/w"
    access = IcebergAccess("sql", f"sqlite:///{tmp_path}/catalog.db", warehouse)
    table = made(access, key=["k"], aws=aws)
    table.commit(changes([(1, "a")], [1]), at(10))
    assert table.load() == at(10)
    # Files are written with temporary keys, and each opening asks for new ones.
    properties = table.table._table.io.properties
    assert properties["s3.access-key-id"].startswith("ASIA")
    assert "s3.role-arn" not in properties
    again = table.target.opened()
    assert again.load() == at(10)
    assert again._table.io.properties["s3.access-key-id"] != properties["s3.access-key-id"]
    elsewhere = replace(aws, endpoint=f"http://127.0.0.1:{port}")
    with pytest.raises(SlackwaterError, match="role/r is not given") as refused:
        a_target(access, COLUMNS, aws=elsewhere).ensure()
    assert refused.value.condition == "SLACKWATER_SINK_UNREACHABLE"
