"""Sources that read Delta tables, over a coordinator and Spark; tables are written by delta-rs."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support.applications.application import SqlError, kill, only_coordinator
from tests.support.waiting import wait_until

from slackwater.adapter.external.delta_folder import DeltaFolder

pytestmark = pytest.mark.spark

INTERVAL = "WITH (TIMESTAMP INTERVAL '100 ms')"


def rows_of(items, amounts):
    return pa.table({"item": pa.array(items, pa.string()), "amount": pa.array(amounts, pa.int64())})


def has(place, name, wanted):
    """Waits until a relation has these rows."""
    wait_until(
        lambda: (
            sorted(map(tuple, place.rows(f"SELECT * FROM {name}")), key=str)
            == sorted(wanted, key=str)
        ),
        what=f"{name} has the rows",
    )


def status(place, name):
    ((found, error),) = place.rows(
        "SELECT status, error FROM slackwater.mz_internal.mz_source_statuses t "
        f"JOIN slackwater.mz_catalog.mz_sources s ON s.id = t.id WHERE s.name = '{name}'"
    )
    return found, error


def stalls(place, name, *words):
    """Waits until a source is stalled by an error with these words."""
    wait_until(
        lambda: (
            status(place, name)[0] == "stalled"
            and all(each in status(place, name)[1] for each in words)
        ),
        what=f"{name} says {words}",
    )


def test_a_view_follows_a_table_whatever_is_done_to_it(workplace):
    """Rows come, go and are written anew; the leader is killed; a sink writes another table."""
    place, path, copy = workplace, workplace.folder / "sales", workplace.folder / "copy"
    all_of = workplace.folder / "all"
    write_deltalake(str(path), rows_of(["a", "b", None], [1, 2, 3]))
    place.sql(
        f"CREATE SOURCE sales FROM DELTA (PATH '{path}') EXPOSE PROGRESS AS read_so_far {INTERVAL}"
    )
    assert len(place.rows("SELECT * FROM sales")) == 3
    place.sql(
        "CREATE MATERIALIZED VIEW total AS "
        "SELECT item, sum(amount) AS amount FROM sales GROUP BY item"
    )
    write_deltalake(str(path), rows_of(["a", "c"], [10, 1]), mode="append")
    has(place, "total", [("a", 11), ("b", 2), ("c", 1), (None, 3)])
    table = DeltaTable(str(path))
    table.delete("item = 'b'")
    table.update(updates={"amount": "amount + 1"}, predicate="item = 'a'")
    has(place, "total", [("a", 13), ("c", 1), (None, 3)])
    # What a sink of ours writes a source of ours reads.
    place.sql(
        f"CREATE SINK s FROM total INTO DELTA (PATH '{copy}') KEY (item) MODE UPSERT "
        "WITH (COMMIT INTERVAL '100 ms')"
    )
    place.sql(
        f"CREATE SINK t FROM total INTO DELTA (PATH '{all_of}') MODE APPEND "
        "WITH (COMMIT INTERVAL '100 ms')"
    )
    place.sql(f"CREATE SOURCE copied FROM DELTA (PATH '{copy}') {INTERVAL}")
    place.sql(f"CREATE SOURCE changes FROM DELTA (PATH '{all_of}') {INTERVAL}")
    place.sql(
        "CREATE VIEW present AS SELECT item, amount FROM changes "
        "GROUP BY item, amount HAVING sum(_mz_diff) > 0"
    )
    has(place, "copied", [("a", 13), ("c", 1), (None, 3)])
    kill(only_coordinator(place.application.location))
    table = DeltaTable(str(path))
    table.optimize.compact()
    write_deltalake(str(path), rows_of(["b", "c"], [7, 1]), mode="append")
    DeltaTable(str(path)).delete("item IS NULL")
    wanted = [("a", 13), ("b", 7), ("c", 2)]
    has(place, "total", wanted)
    has(place, "copied", wanted)
    has(place, "present", wanted)
    write_deltalake(str(path), rows_of(["z"], [1]), mode="overwrite")
    has(place, "copied", [("z", 1)])
    last = DeltaTable(str(path)).version()
    assert place.rows("SELECT * FROM read_so_far") == [[last + 1]]
    ((_, created),) = place.rows("SHOW CREATE SOURCE sales")
    progress = f"`slackwater`.`{place.schema}`.`read_so_far`"
    assert f"FROM DELTA (PATH '{path}') EXPOSE PROGRESS AS {progress}" in created
    assert place.rows(
        "SELECT type, connection_id FROM slackwater.mz_catalog.mz_sources WHERE name = 'sales'"
    ) == [["delta", None]]
    ((known, done, rows),) = place.rows(
        "SELECT offset_known, offset_committed, updates_committed "
        "FROM slackwater.mz_internal.mz_source_statistics t "
        "JOIN slackwater.mz_catalog.mz_sources s ON s.id = t.id WHERE s.name = 'sales'"
    )
    assert (known, done) == (last + 1, last + 1)
    assert rows >= 8
    assert status(place, "sales") == ("running", None)


def test_a_source_begins_where_it_is_told_and_goes_on_after_resnapshot(workplace):
    place, path = workplace, workplace.folder / "t"
    for number in range(3):
        write_deltalake(str(path), rows_of([str(number)], [number]), mode="append")
    place.sql(f"CREATE SOURCE s FROM DELTA (PATH '{path}', START VERSION 1) {INTERVAL}")
    place.sql("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM s")
    has(place, "v", [(3,)])
    place.sql(f"CREATE SOURCE wide FROM DELTA (PATH '{path}') {INTERVAL}")
    # A column that comes is left out, and told.
    more = rows_of(["3"], [3]).append_column("more", pa.array(["x"]))
    write_deltalake(str(path), more, mode="append", schema_mode="merge")
    has(place, "v", [(4,)])
    ((told,),) = place.rows(
        "SELECT details FROM slackwater.mz_internal.mz_source_statuses WHERE name = 's'"
    )
    assert "more" in told
    place.sql("ALTER SOURCE wide REFRESH SCHEMA")
    assert sorted(map(tuple, place.rows("SELECT * FROM wide"))) == [
        ("0", 0, None),
        ("1", 1, None),
        ("2", 2, None),
        ("3", 3, "x"),
    ]
    place.sql("ALTER SOURCE wide REFRESH SCHEMA")
    with pytest.raises(SqlError, match="SLACKWATER_DEPENDENT_OBJECTS"):
        place.sql("ALTER SOURCE s REFRESH SCHEMA")
    with pytest.raises(SqlError, match="SLACKWATER_UNSUPPORTED"):
        place.sql("ALTER SOURCE s REFRESH SCHEMA TABLES (s)")
    # One that goes is an error of what is read.
    other = pa.table({"item": ["x"]})
    write_deltalake(str(path), other, mode="overwrite", schema_mode="overwrite")
    stalls(place, "s", "SLACKWATER_SOURCE_TABLE_CHANGED", "its column amount is gone")
    with pytest.raises(SqlError, match=r"SLACKWATER_COLUMN_MISMATCH.*its column amount is gone"):
        place.sql("ALTER SOURCE wide REFRESH SCHEMA")
    place.sql("DROP SOURCE wide")
    with pytest.raises(SqlError, match="SLACKWATER_SOURCE_ERROR"):
        place.sql("SELECT * FROM s")
    place.sql("ALTER SOURCE s RESNAPSHOT")
    stalls(place, "s", "SLACKWATER_SOURCE_TABLE_CHANGED", "its column amount is gone")
    write_deltalake(
        str(path), rows_of(["a", "b"], [1, 2]), mode="overwrite", schema_mode="overwrite"
    )
    place.sql("ALTER SOURCE s RESNAPSHOT")
    has(place, "s", [("a", 1), ("b", 2)])
    has(place, "v", [(2,)])
    assert status(place, "s") == ("running", None)
    # Another table takes its place.
    shutil.rmtree(path)
    write_deltalake(str(path), rows_of(["n"], [9]))
    stalls(place, "s", "SLACKWATER_SOURCE_REPLACED", "RESNAPSHOT")
    has(place, "s", [("a", 1), ("b", 2)])
    place.sql("ALTER SOURCE s RESNAPSHOT")
    has(place, "s", [("n", 9)])
    write_deltalake(str(path), rows_of(["m"], [8]), mode="append")
    has(place, "s", [("m", 8), ("n", 9)])
    with pytest.raises(SqlError, match="SLACKWATER_UNSUPPORTED"):
        place.sql("ALTER SOURCE s RESNAPSHOT TABLES (s)")
    place.sql("DROP SOURCE s CASCADE")
    DeltaTable(str(path)).create_checkpoint()
    (path / "_delta_log" / f"{0:020}.json").unlink()
    for number, reason in (
        (99, "the last version of the table is 1"),
        (0, "the table does not have that version any more"),
    ):
        with pytest.raises(SqlError, match=reason):
            place.sql(f"CREATE SOURCE s FROM DELTA (PATH '{path}', START VERSION {number})")
    with pytest.raises(SqlError, match="SLACKWATER_SOURCE_TABLE_UNREADABLE"):
        place.sql(f"CREATE SOURCE s FROM DELTA (PATH '{path}/nothing')")


@pytest.mark.nightly
def test_a_table_that_is_larger_than_what_is_in_memory(workplace):
    """Its rows go through files; of files that are written anew only what differs counts."""
    place, path, rows = workplace, workplace.folder / "large", 700_000
    text = pa.array(["x" * 100] * rows)
    table = pa.table({"k": pa.array(range(rows)), "v": pa.array([1] * rows), "t": text})
    write_deltalake(str(path), table)
    place.sql(f"CREATE SOURCE large FROM DELTA (PATH '{path}') {INTERVAL}")
    place.sql("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n, sum(v) AS v FROM large")
    has(place, "n", [(rows, rows)])
    DeltaTable(str(path)).update(updates={"v": "5"}, predicate="k = 7")
    has(place, "n", [(rows, rows + 4)])
    ((staged,),) = place.rows(
        "SELECT updates_committed FROM slackwater.mz_internal.mz_source_statistics t "
        "JOIN slackwater.mz_catalog.mz_sources s ON s.id = t.id WHERE s.name = 'large'"
    )
    assert rows < staged < rows + rows // 2


def test_tables_in_s3_by_a_connection(workplace, s3):
    """A sink writes what a source reads; the connection is renamed, and the leader is killed."""
    place, uri = workplace, f"s3://{s3.new_bucket()}/lake/sales"
    place.sql(f"CREATE SECRET key AS '{s3.access.secret_access_key}'")
    place.sql(
        f"CREATE CONNECTION store TO AWS (REGION 'us-east-1', ENDPOINT '{s3.endpoint}',"
        f" ACCESS KEY ID '{s3.access.access_key_id}', SECRET ACCESS KEY SECRET key,"
        " ASSUME ROLE ARN 'arn:aws:iam::123456789012:role/lake')"
    )
    place.sql("CREATE TABLE sales (item STRING, amount BIGINT)")
    place.sql("INSERT INTO sales VALUES ('a', 1), ('b', 2)")
    place.sql(
        f"CREATE SINK kept FROM sales INTO DELTA (PATH '{uri}', AWS CONNECTION store)"
        " KEY (item) MODE UPSERT WITH (COMMIT INTERVAL '100 ms')"
    )
    place.sql(f"CREATE SOURCE read_back FROM DELTA (AWS CONNECTION store, PATH '{uri}') {INTERVAL}")
    has(place, "read_back", [("a", 1), ("b", 2)])
    with pytest.raises(SqlError, match="SLACKWATER_DEPENDENT_OBJECTS"):
        place.sql("DROP CONNECTION store")
    place.sql("ALTER CONNECTION store RENAME TO shop")
    for kind, name in (("SINK", "kept"), ("SOURCE", "read_back")):
        ((_, created),) = place.rows(f"SHOW CREATE {kind} {name}")
        named = f"`slackwater`.`{place.schema}`.`shop`"
        assert f"DELTA (PATH '{uri}', AWS CONNECTION {named})" in created
    kill(only_coordinator(place.application.location))
    place.sql("UPDATE sales SET amount = 3 WHERE item = 'b'")
    place.sql("INSERT INTO sales VALUES ('c', 4)")
    has(place, "read_back", [("a", 1), ("b", 3), ("c", 4)])
    table = DeltaTable(uri, storage_options=dict(DeltaFolder.at(uri, s3.access).options))
    table.delete("item = 'a'")
    has(place, "read_back", [("b", 3), ("c", 4)])
    assert status(place, "read_back") == ("running", None)
    for path in ("s3://bucket", "gs://bucket/t", place.folder / "t"):
        with pytest.raises(SqlError, match="SLACKWATER_INVALID_OPTION"):
            place.sql(f"CREATE SOURCE s FROM DELTA (PATH '{path}', AWS CONNECTION shop)")
    place.sql("DROP CONNECTION shop CASCADE")
    assert place.rows("SHOW SINKS") == []
