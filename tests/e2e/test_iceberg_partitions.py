"""Sinks into partitioned tables of Iceberg, read by Iceberg's own reader and by our own source."""

from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.transforms import parse_transform
from tests.support.iceberg.java import Tables, a_target
from tests.support.iceberg.writing import an_origin

from slackwater.adapter.external.iceberg_catalogs import catalog_properties
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Frontier
from slackwater.storage.lake.table import LakeChanges, LakeProgress

pytestmark = pytest.mark.spark

UTC = timezone.utc
EPOCH = datetime(1970, 1, 1)
VALUES = {
    "number": (pa.int32(), [0, 1, -1, 34, -(2**31), 2**31 - 1, None]),
    "long": (pa.int64(), [0, 1, -1, -(2**63), 2**63 - 1, None]),
    "text": (pa.string(), ["", "a", "ü😀x", "iceberg", None]),
    "bytes": (pa.binary(), [b"", b"\x00\xff\x80", None]),
    "d": (pa.decimal128(9, 2), [Decimal("-1.28"), Decimal("14.20"), Decimal("-0.01"), None]),
    "day": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2017, 11, 16)]),
    "at": (
        pa.timestamp("us", "UTC"),
        [EPOCH.replace(tzinfo=UTC) + timedelta(microseconds=each) for each in (-1, 0, 1)],
    ),
    "local": (pa.timestamp("us"), [EPOCH - timedelta(days=366, hours=1), EPOCH, None]),
}
SPECS = [
    *((f"identity {name}",) for name in VALUES),
    *((f"bucket[7] {name}",) for name in VALUES),
    *((f"truncate[3] {name}",) for name in ("number", "long", "text", "bytes")),
    *((f"{each} {name}",) for each in ("year", "month", "day") for name in ("day", "at", "local")),
    *((f"hour {name}",) for name in ("at", "local")),
    ("void text", "day local", "bucket[2] row.x"),
]
INNER = pa.struct([pa.field("x", pa.int64())])
COLUMNS = pa.schema(
    [
        *(pa.field(name, kind) for name, (kind, _) in VALUES.items()),
        pa.field("row", INNER),
        pa.field("k", pa.int64()),
    ]
)


def partitioned(access, target, *spec):
    """The table of a target, with these partitions, as pyiceberg has it."""
    target.ensure()
    table = load_catalog("default", **catalog_properties(access, None)).load_table(
        target.rows.identifier
    )
    with table.update_spec() as update:
        for place, each in enumerate(spec):
            transform, column = each.split()
            update.add_field(column, parse_transform(transform), f"{column} {place}")
    return table


def listed(rows):
    return sorted(map(list, rows.items()), key=repr)


def at(frontier):
    return LakeProgress(Frontier(frontier), 0, 1)


@pytest.mark.parametrize("spec", SPECS, ids=" ".join)
@pytest.mark.sampled(4)
def test_rows_are_in_the_partitions_where_java_looks_for_them(tmp_path, iceberg_java, spec):
    """Its own transforms choose the files in which a row with a value may be.

    The files are those that a compaction has made of others.
    """
    access = Tables(tmp_path).access()
    target = a_target(access, COLUMNS, ("n", "t"))
    target = replace(target, rows=replace(target.rows, compact_every=2))
    table = partitioned(access, target, *spec)
    most = max(len(values) for _, values in VALUES.values())
    rows = [
        {name: values[place % len(values)] for name, (_, values) in VALUES.items()}
        | {"row": {"x": place} if place else None, "k": place}
        for place in range(most)
    ]
    sink = target.opened()
    sink.load()
    for time in (10, 20):
        sink.commit(LakeChanges(pa.Table.from_pylist(rows, COLUMNS)), at(time))
    partitions = len(table.refresh().inspect.partitions())
    sink.tidy()
    table = table.refresh()
    assert table.metadata.current_snapshot().summary.operation.value == "replace"
    assert len(list(table.scan().plan_files())) == partitions
    assert len(iceberg_java.rows(table.metadata_location)) == 2 * most
    assert sorted(table.scan().to_arrow().column("k").to_pylist()) == sorted(2 * [*range(most)])
    for each in spec:
        name = each.split()[1]
        if name not in VALUES:
            continue
        for value in VALUES[name][1]:
            found = iceberg_java.where(table.metadata_location, name, value)
            expected = sorted(2 * [row["k"] for row in rows if row[name] == value])
            assert sorted(row[-1] for row in found) == expected


def test_the_transforms_that_rows_do_not_have(tmp_path):
    access = Tables(tmp_path).access()
    columns = pa.schema(
        [pa.field("k", pa.int64()), pa.field("f", pa.float64()), COLUMNS.field("d")]
    )
    for name, spec, reason in (
        ("f", "identity f", "it is partitioned by f, which is double"),
        ("d", "truncate[10] d", r"it is partitioned by truncate\[10\] of d, a decimal"),
    ):
        target = a_target(access, columns, ("n", name))
        partitioned(access, target, spec)
        with pytest.raises(SlackwaterError, match=reason) as refused:
            target.ensure()
        assert refused.value.condition == "SLACKWATER_COLUMN_MISMATCH"


@pytest.mark.parametrize("catalog", ["sql", "rest"])
@pytest.mark.parametrize("spec", [("bucket[3] k",), ("identity v",)], ids=" ".join)
def test_a_row_moves_to_another_partition(tmp_path, iceberg_java, spec, catalog):
    """Also rows of a partition spec that the table had before; our own source agrees."""
    access = Tables(tmp_path).access() if catalog == "sql" else iceberg_java.access()
    columns = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])
    target = a_target(access, columns, key=["k"])
    table = partitioned(access, target, *spec)
    sink = target.opened()
    sink.load()

    def commit(frontier, rows):
        made = pa.Table.from_pylist([{"k": k, "v": v} for k, v in rows.items()], columns)
        deleted = pa.table({"k": pa.array(sorted(rows), pa.int64())})
        sink.commit(LakeChanges(made, deleted), at(frontier))

    commit(10, dict.fromkeys(range(20), "a"))
    commit(20, dict.fromkeys(range(5), "b") | {21: "c"})
    expected = {k: "b" if k < 5 else "a" for k in range(20)} | {21: "c"}
    table = table.refresh()
    assert iceberg_java.rows(table.metadata_location) == sorted(
        map(list, expected.items()), key=repr
    )
    added = [each.summary["added-equality-deletes"] for each in table.metadata.snapshots[1:]]
    assert added == ["6"]
    with table.update_spec() as update:
        update.add_field("v", parse_transform("truncate[1]"), "another")
    assert sink.load() == at(20)
    commit(30, {0: "d", 7: "d"})
    expected |= {0: "d", 7: "d"}
    table = table.refresh()
    assert iceberg_java.rows(table.metadata_location) == sorted(
        map(list, expected.items()), key=repr
    )
    place = target.rows.identifier
    if catalog == "sql":
        history = an_origin(access, place[1]).opened()
        found = pa.concat_tables(history.contents(history.newest()))
        assert dict(zip(*map(pa.ChunkedArray.to_pylist, found.columns), strict=True)) == expected
        history.close()
    sink.close()
