"""Files of Iceberg tables that sinks write anew, read by all that read Iceberg."""

from datetime import date, datetime
from decimal import Decimal
from functools import partial

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.types import IntegerType, ListType, TimeType, UUIDType
from tests.support.iceberg.java import Tables, a_target
from tests.support.iceberg.writing import an_origin, written_by_java

from slackwater.adapter.external.iceberg import catalog_properties
from slackwater.repr.frontier import Frontier
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


def test_a_source_reads_what_has_changed_alone(tmp_path):
    access = Tables(tmp_path).access()
    target = rewriting(access, COLUMNS, ("n", "t"), key=["k"])
    sink = opened(target)
    sink.commit(changed([], k1="a", k2="a", k3="a"), at(10))
    history = an_origin(access).opened()
    version = history.newest()
    sink.commit(changed([2, 3], k2="b"), at(20))
    (changes,) = history.after(version)
    totals = {}
    for rows in changes.rows:
        for k, v, diff in zip(*map(pa.ChunkedArray.to_pylist, rows.columns), strict=True):
            totals[k, v] = totals.get((k, v), 0) + diff
    assert {key: diff for key, diff in totals.items() if diff} == {
        (2, "a"): -1,
        (2, "b"): 1,
        (3, "a"): -1,
    }
    history.close()
