"""Files of Iceberg tables that sinks write anew, read by all that read Iceberg."""

from collections import Counter
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import partial

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.types import IntegerType, ListType, TimeType, UUIDType
from tests.e2e.test_iceberg_tables import ALL, Killed, dies
from tests.support.iceberg.java import Tables, a_target
from tests.support.iceberg.writing import an_origin, written_by_java

from slackwater.adapter.external.iceberg_catalogs import catalog_properties
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Frontier
from slackwater.storage.iceberg.compaction import CompactionBounds
from slackwater.storage.lake.table import LakeChanges, LakeProgress, TableChanged

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([pa.field("k", pa.int32()), pa.field("v", pa.string())])
rewriting = partial(a_target, deletes="rewrite")


def rows_of(columns=COLUMNS, **values):
    """Rows by their keys: the names are those of the keys, behind a letter."""
    made = [dict(zip(columns.names, [int(k[1:]), v], strict=True)) for k, v in values.items()]
    return pa.Table.from_pylist(made, columns)


def changed(gone, **values):
    return LakeChanges(rows_of(**values), pa.table({"k": pa.array(gone, pa.int32())}))


def at(frontier):
    return LakeProgress(Frontier(frontier), 0, 1)


def loaded(access, target):
    return load_catalog("default", **catalog_properties(access, None)).load_table(
        target.rows.identifier
    )


def opened(target):
    target.ensure()
    table = target.opened()
    table.load()
    return table


def paths(table):
    return {each.file.file_path for each in table.refresh().scan().plan_files()}


def test_files_without_these_keys_stay(tmp_path, iceberg_java):
    """Of three files the one that has a key is written anew; no deletes are written."""
    access = Tables(tmp_path).access()
    target = rewriting(access, COLUMNS, ("n", "t"), key=["k"])
    sink = opened(target)
    table = loaded(access, target)
    written = []
    for start in (0, 10, 20):
        sink.commit(changed([], **{f"k{start + k}": "a" for k in range(10)}), at(start + 1))
        written.append(paths(table).difference(*written))
    sink.commit(changed([15, 99], k15="b"), at(30))
    assert written[0] | written[2] < paths(table)
    assert not written[1] & paths(table)
    expected = sorted([k, "b" if k == 15 else "a"] for k in range(30))
    assert sorted(iceberg_java.rows(table.metadata_location)) == expected
    found = table.scan().to_arrow().to_pylist()
    assert sorted(map(list, map(dict.values, found))) == expected
    summary = table.metadata.current_snapshot().summary
    assert summary.operation.value == "overwrite"
    told = summary.additional_properties
    assert (told["deleted-records"], told["added-records"]) == ("10", "10")
    assert (told["total-records"], told["total-delete-files"]) == ("30", "0")
    sink.commit(changed(list(range(10))), at(40))
    assert not written[0] & paths(table)
    assert table.metadata.current_snapshot().summary.operation.value == "delete"
    assert sink.load() == at(40)
    # Nothing of a key is nothing to do.
    before = paths(table)
    sink.commit(changed([99]), at(50))
    assert paths(table) == before


KEYS = pa.schema(
    [
        pa.field("text", pa.string()),
        pa.field("d", pa.decimal128(30, 2)),
        pa.field("bytes", pa.binary()),
        pa.field("day", pa.date32()),
        pa.field("small", pa.int8()),
        pa.field("is", pa.bool_()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("local", pa.timestamp("us")),
    ]
)
VALUES = {
    "text": ["", "x" * 16, "x" * 17, "x" * 16 + "😀", None],
    "d": [Decimal("-1.28"), Decimal("0.00"), Decimal(10) ** 27, None],
    "bytes": [b"", b"\xff" * 16, b"\xff" * 20, None],
    "day": [date(1, 1, 1), date(1969, 12, 31), None],
    "small": [-128, 0, 127, None],
    "is": [True, False, None],
    "at": [None],
    "local": [datetime(1969, 12, 31, 23), datetime(2030, 1, 1), None],
}


@pytest.mark.parametrize("column", VALUES)
def test_keys_of_all_kinds_are_found_by_bounds(tmp_path, iceberg_java, column):
    """Each value is in a file of its own; then each goes, and no other one."""
    access = Tables(tmp_path).access()
    columns = pa.schema([KEYS.field(column), pa.field("n", pa.int64())])
    target = rewriting(access, columns, ("n", "t"), key=[column])
    sink = opened(target)
    values = VALUES[column]

    def of(chosen):
        return pa.table({column: pa.array(chosen, columns.field(column).type)})

    for place, value in enumerate(values):
        row = of([value]).append_column("n", pa.array([place])).cast(columns)
        sink.commit(LakeChanges(row, of([])), at(place + 1))
    for place, value in enumerate(values):
        sink.commit(LakeChanges(columns.empty_table(), of([value])), at(place + 10))
        found = iceberg_java.rows(loaded(access, target).metadata_location)
        assert sorted(row[1] for row in found) == list(range(place + 1, len(values)))


def test_columns_of_which_the_sink_knows_nothing_stay(tmp_path, iceberg_java):
    """Rows of others, with types that no relation has, and with deletes by position."""
    access = Tables(tmp_path).access()
    target = rewriting(access, COLUMNS, ("n", "t"), key=["k"])
    sink = opened(target)
    sink.commit(changed([], k1="a"), at(10))
    table = loaded(access, target)
    with table.update_schema() as schema:
        schema.add_column("id", UUIDType())
        schema.add_column("hour", TimeType())
        schema.add_column("list", ListType(100, IntegerType(), element_required=False))
    with written_by_java(iceberg_java, access, target.rows.identifier) as theirs:
        uuid = iceberg_java.gateway.jvm.java.util.UUID.fromString(
            "00000000-0000-0000-0000-00000000000f"
        )
        hour = iceberg_java.gateway.jvm.java.time.LocalTime.of(23, 59)
        theirs.change([{"k": k, "v": "theirs", "id": uuid, "hour": hour} for k in (50, 51, 52)])
        place = max(theirs.places(), key=lambda each: each[1])
        theirs.change(positions=[place])
    assert sink.load() == at(10)
    before = iceberg_java.rows(table.refresh().metadata_location)
    assert len(before) == 3
    sink.commit(changed([1, 50], k50="ours"), at(20))
    found = iceberg_java.rows(table.refresh().metadata_location)
    assert found == sorted([before[2], [50, "ours", None, None, None]], key=repr)
    assert before[2][1:4] == ["theirs", "00000000-0000-0000-0000-00000000000f", "23:59"]
    # The deletes by position applied to a file that is there no more.
    told = table.metadata.current_snapshot().summary.additional_properties
    assert told["total-delete-files"] == "0"


def test_who_is_late_rewrites_what_is_there_then(tmp_path, iceberg_java):
    access = Tables(tmp_path).access()
    target = rewriting(access, COLUMNS, ("n", "t"), key=["k"])
    sink = opened(target)
    sink.commit(changed([], k1="a", k2="a"), at(10))
    with written_by_java(iceberg_java, access, target.rows.identifier) as theirs:
        theirs.compact()
    files = stored(tmp_path)
    with pytest.raises(TableChanged):
        sink.commit(changed([1], k1="b"), at(20))
    assert stored(tmp_path) == files
    assert sink.load() == at(10)
    sink.commit(changed([1], k1="b"), at(20))
    rows = iceberg_java.rows(loaded(access, target).metadata_location)
    assert rows == [[1, "b"], [2, "a"]]


def stored(folder):
    return sorted(each for each in folder.rglob("*") if each.suffix in (".parquet", ".avro"))


def totals(pieces):
    """The rows that come and go, and how often."""
    found = Counter()
    for rows in pieces:
        for k, v, diff in zip(*map(pa.ChunkedArray.to_pylist, rows.columns), strict=True):
            found[k, v] += diff
    return {row: diff for row, diff in found.items() if diff}


def test_a_source_reads_what_has_changed_alone(tmp_path):
    access = Tables(tmp_path).access()
    target = rewriting(access, COLUMNS, ("n", "t"), key=["k"])
    sink = opened(target)
    sink.commit(changed([], k1="a", k2="a", k3="a"), at(10))
    history = an_origin(access).opened()
    version = history.newest()
    sink.commit(changed([2, 3], k2="b"), at(20))
    (changes,) = history.after(version)
    assert totals(changes.rows) == {(2, "a"): -1, (2, "b"): 1, (3, "a"): -1}
    history.close()


def compacting(access, every, **more):
    """The table of a sink that is compacted after so many commits, and it as pyiceberg has it."""
    target = a_target(access, COLUMNS, **more)
    target = replace(target, rows=replace(target.rows, compact_every=every))
    sink = opened(target)
    return target, sink, loaded(access, target)


def operations(table):
    return [each.summary.operation.value for each in table.refresh().metadata.snapshots]


@pytest.mark.parametrize("catalog", ["sql", "rest"])
def test_small_files_become_one(tmp_path, iceberg_java, catalog):
    """And the deletes that apply to them go; sources see nothing of it, and sinks go on."""
    access = Tables(tmp_path).access() if catalog == "sql" else iceberg_java.access()
    target, sink, table = compacting(access, 5, key=["k"])
    history = an_origin(access, target.rows.identifier[1]).opened()
    for time in range(1, 5):
        sink.commit(changed([1, time], **{"k1": f"a{time}", f"k{time + 1}": "b"}), at(time))
        sink.tidy()
    assert "replace" not in operations(table)
    sink.commit(changed([4]), at(5))
    version = history.newest()
    sink.tidy()
    assert operations(table)[-1] == "replace"
    told = table.metadata.current_snapshot().summary.additional_properties
    assert (told["total-data-files"], told["total-delete-files"]) == ("1", "0")
    assert told["total-records"] == told["added-records"] == "2"
    rows = [[1, "a4"], [5, "b"]]
    assert iceberg_java.rows(table.metadata_location) == rows
    assert sorted(map(list, map(dict.values, table.scan().to_arrow().to_pylist()))) == rows
    (changes,) = history.after(version)
    assert not list(changes.rows)
    assert not list(changes.deleted)
    # Others look for the progress behind it, also when older snapshots are gone.
    assert target.opened().load() == at(5)
    theirs = loaded(access, target)
    old = [each.snapshot_id for each in theirs.metadata.snapshots[:-1]]
    theirs.maintenance.expire_snapshots().by_ids(old).commit()
    assert sink.load() == at(5)
    version = history.newest()
    sink.commit(changed([5], k9="c"), at(6))
    table = table.refresh()
    assert iceberg_java.rows(table.metadata_location) == [[1, "a4"], [9, "c"]]
    (changes,) = history.after(version)
    assert totals(changes.rows) == {(5, "b"): -1, (9, "c"): 1}
    history.close()


def test_a_sink_that_begins_again_goes_on_counting(tmp_path):
    access = Tables(tmp_path).access()
    target, sink, table = compacting(access, 3)
    for time in (1, 2):
        sink.commit(LakeChanges(rows_of(k1="a")), at(time))
        # What has no changes does not count.
        sink.commit(LakeChanges(rows_of()), at(time))
    sink = target.opened()
    sink.load()
    sink.tidy()
    assert "replace" not in operations(table)
    sink.commit(LakeChanges(rows_of(k1="a")), at(3))
    sink.tidy()
    assert operations(table)[-1] == "replace"
    assert len(paths(table)) == 1
    sink.commit(LakeChanges(rows_of(k1="a")), at(4))
    sink.tidy()
    assert operations(table)[-1] == "append"


def test_a_compaction_gives_way_to_another_writer(tmp_path, iceberg_java):
    access = Tables(tmp_path).access()
    _, sink, table = compacting(access, 2, key=["k"])
    for time in (1, 2):
        sink.commit(changed([1], k1=f"a{time}"), at(time))
    loaded(access, sink._target).append(rows_of(k100="theirs"))
    files = stored(tmp_path)
    sink.tidy()
    assert stored(tmp_path) == files
    with pytest.raises(TableChanged):
        sink.commit(changed([1], k1="a3"), at(3))
    assert sink.load() == at(2)
    sink.commit(changed([1], k1="a3"), at(3))
    sink.tidy()
    assert operations(table)[-1] == "replace"
    rows = [[1, "a3"], [100, "theirs"]]
    assert iceberg_java.rows(table.refresh().metadata_location) == rows


@pytest.mark.parametrize(
    "step", ["rewritten", "without", "manifests", "manifest_list", "sync", "_exchange"]
)
def test_a_compaction_that_is_killed_changes_nothing(tmp_path, iceberg_java, monkeypatch, step):
    access = Tables(tmp_path).access()
    target, sink, table = compacting(access, 2, key=["k"])
    for time in (1, 2, 3):
        sink.commit(changed([1], k1=f"a{time}"), at(time))
    before = operations(table)
    with monkeypatch.context() as patched:
        dies(patched, step, 1)
        with pytest.raises(Killed):
            sink.tidy()
    assert operations(table) == before
    sink = target.opened()
    assert sink.load() == at(3)
    sink.commit(changed([1], k1="a4"), at(4))
    sink.tidy()
    assert operations(table) == [*before, "overwrite", "replace"]
    assert iceberg_java.rows(table.metadata_location) == [[1, "a4"]]


@pytest.mark.parametrize("deletes", ["equality", "rewrite"])
def test_values_of_all_types_are_written_anew(tmp_path, iceberg_java, deletes):
    """Within lists, maps and rows too: fields keep their ids."""
    access = Tables(tmp_path).access()
    target = a_target(access, ALL, key=["k"], deletes=deletes)
    sink = replace(target, rows=replace(target.rows, compact_every=2))
    target.ensure()
    table = sink.opened()
    table.load()
    values = [1.5, "ü", True, 1, 2, 3, float("nan"), b"\xff", date(1900, 1, 1)]
    values += [datetime(2000, 1, 1, tzinfo=timezone.utc), datetime(1, 1, 1)]
    values += [Decimal("-1.28"), Decimal(10) ** 19, [1, None], [("a", None)], {"X Y": "x" * 40}]

    def rows(*keys):
        made = [[key, *values] for key in keys] + [[key + 1] + [None] * 16 for key in keys]
        return pa.Table.from_pylist([dict(zip(ALL.names, row, strict=True)) for row in made], ALL)

    table.commit(LakeChanges(rows(10, 20)), at(1))
    deleted = pa.table({"k": pa.array([20, 31], pa.int64())})
    table.commit(LakeChanges(rows(30).slice(0, 1), deleted), at(2))
    before = iceberg_java.rows(loaded(access, target).metadata_location)
    assert [row[0] for row in before] == [10, 11, 21, 30]
    table.tidy()
    assert operations(loaded(access, target))[-1] == "replace"
    found = iceberg_java.rows(loaded(access, target).metadata_location)
    assert repr(found) == repr(before)
    assert found[0][14:] == ["[1, null]", "{a=null}", f"Record(null, {'x' * 40})"]


def test_files_that_cannot_be_compacted_stay(tmp_path, iceberg_java):
    """Those of another format: the sink goes on beside them."""
    access = Tables(tmp_path).access()
    target, sink, table = compacting(access, 1)
    with written_by_java(iceberg_java, access, target.rows.identifier) as theirs:
        replace(theirs, file_format="AVRO").change([{"k": 50, "v": "theirs"}])
    sink.load()
    for time in (1, 2):
        sink.commit(LakeChanges(rows_of(k1="a")), at(time))
        sink.tidy()
    assert operations(table)[1:] == ["append", "append"]
    assert len(iceberg_java.rows(table.metadata_location)) == 3
    rewriting = replace(target, rows=replace(target.rows, key=("k",), deletes="rewrite"))
    other = rewriting.opened()
    other.load()
    with pytest.raises(SlackwaterError, match="its format is AVRO, and not PARQUET") as refused:
        other.commit(changed([1]), at(9))
    assert refused.value.condition == "SLACKWATER_COLUMN_MISMATCH"


def test_deletes_of_large_files_become_one(tmp_path, iceberg_java):
    """Data files stay; what others have written between two deletes is not deleted."""
    access = Tables(tmp_path).access()
    bounds = CompactionBounds(small_bytes=0, share=0)
    target, _, table = compacting(access, 4, key=["k"])
    sink = replace(target, bounds=bounds, rows=replace(target.rows, compact_every=4)).opened()
    sink.load()
    sink.commit(changed([], **{f"k{k}": "a" for k in range(100)}), at(1))
    for time in (2, 3):
        sink.commit(changed([time, 7]), at(time))
    loaded(access, target).append(rows_of(k7="theirs"))
    assert sink.load() == at(3)
    files = paths_of(table)
    for time in (4, 5):
        sink.commit(changed([time, 8]), at(time))
    sink.tidy()
    assert operations(table)[-1] == "replace"
    assert files == paths_of(table)
    told = table.metadata.current_snapshot().summary.additional_properties
    assert (told["removed-delete-files"], told["added-delete-files"]) == ("4", "2")
    assert told["total-equality-deletes"] == "6"
    expected = [[k, "a"] for k in range(100) if k not in (2, 3, 4, 5, 7, 8)] + [[7, "theirs"]]
    assert sorted(iceberg_java.rows(table.metadata_location)) == sorted(expected)


def paths_of(table):
    """The data files of a table which pyiceberg does not scan."""
    files = table.refresh().inspect.data_files()
    return set(files.column("file_path").to_pylist())
