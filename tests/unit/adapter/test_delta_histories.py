"""Delta tables as sources read them: versions written by delta-rs, and by hand what it cannot."""

import datetime
import decimal
import json
import math
import shutil
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, QueryBuilder, write_deltalake
from pyroaring import BitMap64

from slackwater.adapter.external.delta_folder import DeltaFolder
from slackwater.adapter.external.delta_history import DeltaHistory
from slackwater.repr.errors import SlackwaterError
from slackwater.storage.lake.source_columns import added, difference, source_columns
from slackwater.storage.lake.step_rows import conformed


def rows_of(numbers, text="a"):
    values = [None if n is None else f"{text}{n % 3}" for n in numbers]
    return pa.table({"k": pa.array(numbers, pa.int64()), "p": pa.array(values, pa.string())})


def history(path):
    return DeltaHistory("s", DeltaFolder.at(str(path)))


def counted(pieces, columns, has_diff=False):
    """What pieces add up to, in the columns of a source of a table that has these."""
    desc = source_columns(columns, "s")
    found = Counter()
    for piece in pieces:
        *values, diffs = conformed(piece, desc, has_diff=has_diff).columns
        texts = zip(*(map(repr, each.to_pylist()) for each in values), strict=True)
        for row, diff in zip(texts, diffs.to_pylist(), strict=True):
            found[row] += diff
    return Counter({row: diff for row, diff in found.items() if diff})


def theirs(path, number, columns):
    """The rows of a version as delta-rs reads them."""
    table = DeltaTable(str(path), version=number)
    found = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())
    return counted([found], columns)


def check(path):
    """Each version is what delta-rs says, read as a whole or after the one before it."""
    source = history(path)
    version = source.at(0)
    columns = source.columns(version)
    rows = counted(source.contents(version), columns)
    seen = [version]
    for each in history(path).after(version):
        assert not list(each.deleted)
        rows.update(counted(each.rows, columns, has_diff=True))
        rows = Counter({row: diff for row, diff in rows.items() if diff})
        number = each.version.number
        assert rows == theirs(path, number, columns), f"version {number}"
        assert rows == counted(source.contents(source.at(number)), columns)
        known = source.known_rows(source.at(number))
        assert known is None or known >= rows.total()
        assert each.version == source.at(number)
        seen.append(each.version)
    assert source.newest() == seen[-1]
    assert not list(source.after(seen[-1]))
    return seen


@pytest.mark.parametrize("partition", [None, ["p"]])
@pytest.mark.parametrize("has_feed", [False, True])
def test_each_version_is_what_its_files_say(tmp_path, partition, has_feed):
    path = str(tmp_path / "a b")
    settings = {"delta.enableChangeDataFeed": str(has_feed).lower()}
    write_deltalake(path, rows_of([1, 2, None]), partition_by=partition, configuration=settings)
    write_deltalake(path, rows_of([2, 3, 4, 5], "b "), mode="append")
    table = DeltaTable(path)
    table.delete("k = 2")
    table.update(updates={"k": "k + 10"}, predicate="k > 3")
    table.optimize.compact()
    merged = (
        table.merge(rows_of([3, 7], "b "), "t.k = s.k", source_alias="s", target_alias="t")
        .when_matched_update_all()
        .when_not_matched_insert_all()
    )
    merged.execute()
    table.restore(1)
    write_deltalake(path, rows_of([8]), mode="append")
    table = DeltaTable(path)
    table.create_checkpoint()
    table.vacuum(retention_hours=1000, dry_run=False)
    write_deltalake(path, rows_of([9, None], "/%="), mode="overwrite")
    DeltaTable(path).delete()
    write_deltalake(path, rows_of([1, 1, 1]), mode="append")
    seen = check(path)
    assert len(seen) == 10
    assert len({each.version for each in seen}) == len(seen)
    assert len({each.table for each in seen}) == 1


def test_an_optimized_version_names_no_rows(tmp_path):
    for number in range(3):
        write_deltalake(tmp_path, rows_of([number]), mode="append")
    source = history(tmp_path)
    before = source.newest()
    DeltaTable(tmp_path).optimize.compact()
    (after,) = source.after(before)
    assert (after.version.number, list(after.rows), after.size_bytes) == (3, [], 0)


def test_partition_columns_of_each_type(tmp_path):
    moment = datetime.datetime(2020, 2, 3, 4, 5, 6, 789, tzinfo=datetime.timezone.utc)
    columns = {
        "i": pa.array([1, None], pa.int32()),
        "s": pa.array(["x y/%=", None], pa.string()),
        "d": pa.array([datetime.date(2020, 1, 2), None], pa.date32()),
        "t": pa.array([moment, None], pa.timestamp("us", tz="UTC")),
        "n": pa.array([moment.replace(tzinfo=None), None], pa.timestamp("us")),
        "f": pa.array([math.nan, -0.5], pa.float64()),
        "c": pa.array([decimal.Decimal("1.20"), None], pa.decimal128(10, 2)),
        "b": pa.array([True, None], pa.bool_()),
    }
    rows = pa.table({"k": pa.array([1, 2], pa.int64()), **columns})
    write_deltalake(tmp_path, rows.slice(0, 1), partition_by=list(columns))
    write_deltalake(tmp_path, rows, mode="append")
    DeltaTable(tmp_path).delete("i IS NULL")
    assert len(check(tmp_path)) == 3
    source = history(tmp_path)
    assert [source.known_rows(source.at(number)) for number in range(3)] == [1, 3, 2]
    (first,) = counted(source.contents(source.at(0)), source.columns(source.at(0)))
    values = ["'x y/%='", repr(datetime.date(2020, 1, 2)), "1", repr(decimal.Decimal("1.20"))]
    assert [first[place] for place in (2, 3, 1, 7)] == values


def test_nested_columns_and_columns_that_came_later(tmp_path):
    inner = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])
    old = pa.table({"s": pa.array([{"x": 1, "y": ["a", None]}, None], inner)})
    wider = pa.struct([*inner, pa.field("z", pa.date32())])
    new = pa.table(
        {
            "s": pa.array([{"x": 2, "y": None, "z": None}], wider),
            "m": pa.array(
                [[("k", {"v": 1})]], pa.map_(pa.string(), pa.struct([("v", pa.int64())]))
            ),
        }
    )
    write_deltalake(tmp_path, old)
    source = history(tmp_path)
    first = source.newest()
    columns = source.columns(first)
    write_deltalake(tmp_path, new, mode="append", schema_mode="merge")
    (after,) = source.after(first)
    assert added(columns, after.columns) == ("m",)
    found = difference(columns, after.columns)
    assert found is not None
    assert found.startswith("its column s is STRUCT<`x`: INT, `y`: ARRAY<STRING>, `z`: DATE> now")
    last = source.newest()
    wide = source.columns(last)
    assert counted(source.contents(last), wide) == theirs(tmp_path, 1, wide)


def test_a_column_that_goes_or_is_of_another_type(tmp_path):
    write_deltalake(tmp_path, pa.table({"k": [1], "v": ["a"]}))
    source = history(tmp_path)
    columns = source.columns(source.newest())
    for rows, reason in (
        (pa.table({"k": [1]}), "its column v is gone"),
        (pa.table({"k": ["1"], "v": ["a"]}), "its column k is STRING now"),
        (pa.table({"v": ["a"], "k": [1], "w": [2]}), None),
    ):
        before = source.newest()
        write_deltalake(tmp_path, rows, mode="overwrite", schema_mode="overwrite")
        (after,) = source.after(before)
        assert difference(columns, after.columns) == reason


Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def deletion_vector(rows):
    """Positions of rows that are deleted, as the log has them inline."""
    data = struct.pack("<I", 1681511377) + BitMap64(rows).serialize()
    padded = data + b"\0" * (-len(data) % 4)
    text = b""
    for start in range(0, len(padded), 4):
        (number,) = struct.unpack(">I", padded[start : start + 4])
        digits = [Z85[number // 85**place % 85] for place in (4, 3, 2, 1, 0)]
        text += bytes(digits)
    return {
        "storageType": "i",
        "pathOrInlineDv": text.decode(),
        "sizeInBytes": len(data),
        "cardinality": len(rows),
    }


def commit(path, *actions):
    """Writes the next entry of the log by hand."""
    log = Path(path) / "_delta_log"
    number = len(list(log.glob("*.json")))
    entry = "\n".join(map(json.dumps, actions))
    (log / f"{number:020}.json").write_text(entry)


def added_file(path, number=0):
    lines = (Path(path) / "_delta_log" / f"{number:020}.json").read_text().splitlines()
    return next(json.loads(line)["add"] for line in lines if '"add"' in line)


FEATURES = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }
}


@pytest.mark.parametrize("partition", [None, ["p"]])
def test_deletion_vectors(tmp_path, partition):
    path = tmp_path / "a #b"
    rows = pa.table({"k": list(range(70_000)), "p": ["x %"] * 70_000})
    write_deltalake(path, rows, partition_by=partition)
    whole = {key: each for key, each in added_file(path).items() if each is not None}
    gone = {
        "path": whole["path"],
        "partitionValues": whole["partitionValues"],
        "extendedFileMetadata": True,
        "size": whole["size"],
        "deletionTimestamp": 1,
        "dataChange": True,
    }
    some, more = deletion_vector([1, 3, 66_000]), deletion_vector([1, 4, 66_000, 69_999])
    commit(path, FEATURES, {"remove": gone}, {"add": {**whole, "deletionVector": some}})
    # Another one of the same file, by which a row comes back, and no other than those is read.
    commit(
        path,
        {"remove": {**gone, "deletionVector": some}},
        {"add": {**whole, "deletionVector": more}},
    )
    commit(path, {"remove": {**gone, "deletionVector": more}}, {"add": whole})
    commit(path, {"remove": gone})
    check(path)
    source = history(path)
    versions = list(source.after(source.at(0)))
    read = [sorted(counted(each.rows, each.columns, has_diff=True).values()) for each in versions]
    assert read[:3] == [[-1] * 3, [-1, -1, 1], [1] * 4]
    assert read[3] == [-1] * 70_000


def test_a_table_that_is_made_anew_is_another_one(tmp_path):
    path = tmp_path / "t"
    for number in range(3):
        write_deltalake(path, rows_of([number]), mode="append")
    source = history(path)
    last = source.newest()
    shutil.rmtree(path)
    with pytest.raises(SlackwaterError, match="SLACKWATER_SOURCE_TABLE_UNREADABLE"):
        list(source.after(last))
    for number in range(2):
        write_deltalake(path, rows_of([number]), mode="append")
        with pytest.raises(SlackwaterError, match="SLACKWATER_SOURCE_REPLACED") as caught:
            list(source.after(last))
        assert f"it was {last.table} at version 2" in str(caught.value)
    for number in range(3):
        write_deltalake(path, rows_of([number]), mode="append")
    with pytest.raises(SlackwaterError, match="SLACKWATER_SOURCE_REPLACED"):
        list(history(path).after(last))


def test_what_is_gone_is_history_lost(tmp_path):
    write_deltalake(tmp_path, rows_of([1, 2]))
    first = history(tmp_path).newest()
    write_deltalake(tmp_path, rows_of([3]), mode="overwrite")
    DeltaTable(tmp_path).vacuum(0, enforce_retention_duration=False, dry_run=False)
    (after, *_) = history(tmp_path).after(first)
    with pytest.raises(SlackwaterError, match="which version 1 needs, is gone"):
        list(after.rows)
    with pytest.raises(SlackwaterError, match="which version 0 needs, is gone"):
        list(history(tmp_path).contents(first))
    last = history(tmp_path).newest()
    assert counted(history(tmp_path).contents(last), history(tmp_path).columns(last))


def test_a_log_that_was_cleaned_up(tmp_path):
    past = {"delta.logRetentionDuration": "interval 0 days"}
    write_deltalake(tmp_path, rows_of([1]), configuration=past)
    first = history(tmp_path).newest()
    for number in range(3):
        write_deltalake(tmp_path, rows_of([number]), mode="append")
    DeltaTable(tmp_path).create_checkpoint()
    DeltaTable(tmp_path).cleanup_metadata()
    assert not (tmp_path / "_delta_log" / f"{1:020}.json").exists()
    with pytest.raises(SlackwaterError, match="version 1 of the table is not in its log any more"):
        list(history(tmp_path).after(first))
    with pytest.raises(SlackwaterError, match="SLACKWATER_SOURCE_HISTORY_LOST"):
        history(tmp_path).at(0)
    last = history(tmp_path).newest()
    columns = history(tmp_path).columns(last)
    assert counted(history(tmp_path).contents(last), columns) == theirs(tmp_path, 3, columns)
    write_deltalake(tmp_path, rows_of([9]), mode="append")
    (after,) = history(tmp_path).after(last)
    assert after.version.number == 4
    # The version that was read last is not needed where the next one is there.
    DeltaTable(tmp_path).create_checkpoint()
    (tmp_path / "_delta_log" / f"{3:020}.json").unlink()
    (after,) = history(tmp_path).after(last)
    assert counted(after.rows, after.columns, has_diff=True) == {("9", "'a0'"): 1}
    assert after.columns == columns


def test_an_entry_that_is_gone_behind_one_that_is_there_is_told(tmp_path):
    write_deltalake(tmp_path, rows_of([0]))
    source = history(tmp_path)
    first = source.newest()
    for number in (1, 2):
        write_deltalake(tmp_path, rows_of([number]), mode="append")
    DeltaTable(tmp_path).create_checkpoint()
    (tmp_path / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(SlackwaterError, match="version 1 of the table is not in its log any more"):
        list(source.after(first))


def test_what_cannot_be_read_is_refused(tmp_path):
    write_deltalake(tmp_path / "%", rows_of([1]))
    with pytest.raises(SlackwaterError, match="no folder with a % in its path"):
        history(tmp_path / "%")
    with pytest.raises(SlackwaterError, match="SLACKWATER_SOURCE_TABLE_UNREADABLE"):
        history(tmp_path / "nothing").newest()
    (tmp_path / "empty" / "_delta_log").mkdir(parents=True)
    with pytest.raises(SlackwaterError, match="it has no entries of a Delta table"):
        history(tmp_path / "empty").newest()
    binary = pa.table({"k": [1], "b": pa.array([b"\xff"])})
    write_deltalake(tmp_path / "binary", binary, partition_by=["b"])
    with pytest.raises(SlackwaterError, match="does not read b, a partition of BINARY"):
        history(tmp_path / "binary").newest()


def metadata(path, fields, **configuration):
    lines = (Path(path) / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    found = next(json.loads(line)["metaData"] for line in lines if '"metaData"' in line)
    schema = json.dumps({"type": "struct", "fields": fields})
    return {"metaData": {**found, "schemaString": schema, "configuration": configuration}}


K = {"name": "k", "type": "long", "nullable": True, "metadata": {}}


def asked(*features):
    found = {**FEATURES["protocol"], "readerFeatures": features, "writerFeatures": features}
    return {"protocol": found}


def test_features_that_come_later_are_refused_as_well(tmp_path):
    write_deltalake(tmp_path, rows_of([1]))
    source = history(tmp_path)
    first = source.newest()
    settings = {"delta.columnMapping.mode": "id"}
    commit(
        tmp_path,
        asked("columnMapping"),
        metadata(tmp_path, [mapped("k", "long", "k", 1)], **settings),
    )
    for read in (history(tmp_path).newest, lambda: list(source.after(first))):
        with pytest.raises(SlackwaterError, match="it has column mapping by id"):
            read()
    commit(tmp_path, asked("somethingNew"))
    with pytest.raises(SlackwaterError):
        history(tmp_path).newest()


def mapped(name, kind, stored, number):
    told = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": stored}
    return {"name": name, "type": kind, "nullable": True, "metadata": told}


def test_columns_whose_names_are_others_in_files(tmp_path):
    """The table gets column mapping after its first file; columns are renamed, and one comes."""
    inner = pa.struct([("x", pa.int32())])
    rows = pa.table(
        {
            "k": [1, 2],
            "s": pa.array([{"x": 5}, None], inner),
            "l": pa.array([[{"x": 6}], None], pa.list_(inner)),
            "p": ["z", "z"],
        }
    )
    write_deltalake(tmp_path, rows, partition_by=["p"])
    source = history(tmp_path)
    first = source.newest()
    settings = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"}

    def table(k, x, part, more=()):
        fields = [mapped(k, "long", "k", 1), mapped(part, "string", "p", 2)]
        for place, name in enumerate(("s", "l")):
            inside = [mapped(x, "integer", "x", 10 + place)]
            inside += [mapped(each, "string", f"col-{place}", 20 + place) for each in more]
            kind = {"type": "struct", "fields": inside}
            if name == "l":
                kind = {"type": "array", "elementType": kind, "containsNull": True}
            fields.append(mapped(name, kind, name, 3 + place))
        found = metadata(tmp_path, fields, **settings)
        found["metaData"]["partitionColumns"] = [part]
        return found

    commit(tmp_path, asked("columnMapping"), table("k", "x", "p"))
    (same,) = source.after(first)
    assert difference(source.columns(first), same.columns) is None
    commit(tmp_path, table("a key", "a field", "part", ["more"]))
    (after,) = source.after(same.version)
    reason = difference(source.columns(first)[:1], after.columns)
    assert reason == "its column k was renamed to a key"
    last = history(tmp_path).newest()
    columns = source.columns(last)
    found = counted(source.contents(last), columns)
    assert found == theirs(tmp_path, 2, columns)
    inside = "{'a field': 5, 'more': None}"
    assert ("1", "'z'", inside, "[{'a field': 6, 'more': None}]") in found


def test_columns_of_a_source(tmp_path):
    text = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)", "comment": "short", "delta.generated": "x"}
    fields = [
        {**K, "nullable": False},
        {"name": "v", "type": "string", "nullable": True, "metadata": text},
    ]
    write_deltalake(tmp_path, rows_of([1]))
    commit(tmp_path, metadata(tmp_path, fields))
    source = history(tmp_path)
    columns = source.columns(source.newest())
    first, v = source_columns(columns, "s").columns
    k = columns[0]
    assert (first.sql_type, first.nullable) == ("BIGINT", True)
    assert v.sql_type == "VARCHAR(3)"
    assert "delta" not in v.metadata_json
    for wrong, condition in (
        ([replace(k, type_json='"variant"')], "SLACKWATER_UNSUPPORTED_TYPE"),
        ([k, replace(k, name="K")], "SLACKWATER_DUPLICATE_COLUMN"),
        ([], "SLACKWATER_COLUMN_MISMATCH"),
        ([replace(k, name="__Diff")], "SLACKWATER_COLUMN_MISMATCH"),
    ):
        with pytest.raises(SlackwaterError, match=condition):
            source_columns(wrong, "s")


def test_when_a_version_was_committed(tmp_path):
    write_deltalake(tmp_path, rows_of([1]))
    write_deltalake(
        tmp_path,
        rows_of([2]),
        mode="append",
        commit_properties=CommitProperties(custom_metadata={"who": "me"}),
    )
    first, second = (history(tmp_path).at(number).committed_ms for number in (0, 1))
    assert 1_600_000_000_000 < first <= second


def test_times_as_old_writers_wrote_them(tmp_path):
    moment = datetime.datetime(1999, 12, 31, 23, 59, 59, 123456, tzinfo=datetime.timezone.utc)
    rows = pa.table({"t": pa.array([moment], pa.timestamp("us", tz="UTC"))})
    write_deltalake(tmp_path, rows)
    file = {key: each for key, each in added_file(tmp_path).items() if each is not None}
    pq.write_table(rows, tmp_path / "old.parquet", use_deprecated_int96_timestamps=True)
    size = (tmp_path / "old.parquet").stat().st_size
    commit(tmp_path, {"add": {**file, "path": "old.parquet", "size": size}})
    source = history(tmp_path)
    last = source.newest()
    columns = source.columns(last)
    assert counted(source.contents(last), columns) == theirs(tmp_path, 1, columns)
    assert len(counted(source.contents(last), columns)) == 1
