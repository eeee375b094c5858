"""Sinks that write Delta tables, over a coordinator and Spark, read back by libraries alone."""

from __future__ import annotations

import shutil
from collections import Counter

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support.applications.application import SqlError, kill, only_coordinator
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

INTERVAL = "WITH (COMMIT INTERVAL '200 ms')"


def contents(path):
    """The rows of the table, read from the files that its log names."""
    files = [uri.removeprefix("file://") for uri in DeltaTable(str(path)).file_uris()]
    if not files:
        return []
    with duckdb.connect() as connection:
        return connection.execute("SELECT * FROM read_parquet(?)", [files]).fetchall()


def summed(path):
    """The rows that a table of MODE APPEND has now, and their times."""
    rows, times = Counter(), set()
    for *row, diff, time in contents(path):
        rows[tuple(row)] += diff
        times.add(time)
    assert all(count >= 0 for count in rows.values())
    return sorted(rows.elements(), key=str), times


def view(place, name):
    return sorted(map(tuple, place.rows(f"SELECT * FROM {name}")), key=str)


def follows(place, path, name):
    """Waits until the table has the view."""
    wait_until(
        lambda: sorted(contents(path), key=str) == view(place, name), what="the table has the view"
    )


def statuses(place, name):
    return place.rows(
        "SELECT status, error FROM slackwater.mz_internal.mz_sink_statuses s "
        f"JOIN slackwater.mz_catalog.mz_sinks k ON k.id = s.id WHERE k.name = '{name}'"
    )


def test_tables_follow_a_view_whatever_others_do(workplace):
    """Others compact, delete old files and append; the leader is killed."""
    place, one, all_of = workplace, workplace.folder / "one", workplace.folder / "all"
    place.sql("CREATE TABLE sales (item STRING, amount INT)")
    place.sql(
        "CREATE MATERIALIZED VIEW total AS "
        "SELECT item, sum(amount) AS amount FROM sales GROUP BY item"
    )
    place.sql("INSERT INTO sales VALUES ('a', 1), ('b', 2), (NULL, 3)")
    place.sql(
        f"CREATE SINK one FROM total INTO DELTA (PATH '{one}') KEY (item) MODE UPSERT {INTERVAL}"
    )
    place.sql(f"CREATE SINK all FROM total INTO DELTA (PATH '{all_of}') MODE APPEND {INTERVAL}")
    follows(place, one, "total")
    place.sql("INSERT INTO sales VALUES ('a', 10), ('c', 1), (NULL, 4)")
    place.sql("DELETE FROM sales WHERE item = 'b'")
    follows(place, one, "total")
    for path in (one, all_of):
        theirs = DeltaTable(str(path))
        theirs.optimize.compact()
        theirs.create_checkpoint()
        theirs.vacuum(0, enforce_retention_duration=False, dry_run=False)
    place.sql("INSERT INTO sales VALUES ('b', 7), ('a', 1)")
    follows(place, one, "total")
    kill(only_coordinator(place.application.location))
    place.sql("INSERT INTO sales VALUES ('d', 1), ('a', 1)")
    place.sql("UPDATE sales SET amount = 9 WHERE item = 'c'")
    follows(place, one, "total")
    wait_until(
        lambda: summed(all_of)[0] == view(place, "total"),
        what="the changes are those of the view",
    )
    assert len(summed(all_of)[1]) >= 4
    ((_, created),) = place.rows("SHOW CREATE SINK one")
    assert created.endswith(
        f"INTO DELTA (PATH '{one}') KEY (`item`) MODE UPSERT WITH (COMMIT INTERVAL '200 ms')"
    )
    shown = "SELECT type, envelope_type, format FROM slackwater.mz_catalog.mz_sinks WHERE name = "
    assert place.rows(f"{shown}'one'") == [["delta", "upsert", None]]
    assert place.rows(f"{shown}'all'") == [["delta", "append", None]]
    assert statuses(place, "one") == [["running", None]]


def test_a_statement_that_waits_for_a_sink_does_not_wait_for_its_interval(workplace):
    place, path = workplace, workplace.folder / "t"
    place.sql("CREATE TABLE t (k INT, v STRING)")
    place.sql("CREATE TABLE u (k INT, v STRING)")
    place.sql("INSERT INTO t VALUES (1, 'a')")
    place.sql(
        f"CREATE SINK s FROM t INTO DELTA (PATH '{path}') KEY (k) MODE UPSERT "
        "WITH (COMMIT INTERVAL '1 hour')"
    )
    wait_until(lambda: contents(path) == [(1, "a")], what="the snapshot is there")
    place.sql("INSERT INTO t VALUES (2, 'b')")
    place.sql("ALTER SINK s SET FROM u")
    assert sorted(contents(path)) == [(1, "a"), (2, "b")]
    place.sql("INSERT INTO u VALUES (2, 'c')")
    wait_until(lambda: sorted(contents(path)) == [(1, "a"), (2, "c")], what="the other one's row")
    place.sql("CREATE TABLE w (k INT, v STRING, more INT)")
    with pytest.raises(SqlError, match="SLACKWATER_COLUMN_MISMATCH"):
        place.sql("ALTER SINK s SET FROM w")
    place.sql("DROP SINK s")
    assert sorted(contents(path)) == [(1, "a"), (2, "c")]


def test_a_sink_whose_table_is_gone_writes_nothing(workplace):
    place, path = workplace, workplace.folder / "t"
    place.sql("CREATE TABLE t (k INT)")
    place.sql("INSERT INTO t VALUES (1)")
    place.sql(f"CREATE SINK s FROM t INTO DELTA (PATH '{path}') MODE APPEND {INTERVAL}")
    wait_until(lambda: len(contents(path)) == 1, what="the snapshot is there")
    shutil.rmtree(path)
    place.sql("INSERT INTO t VALUES (2)")

    def error():
        return [text for _, text in statuses(place, "s") if text and "PROGRESS_LOST" in text]

    (found,) = wait_until(error, what="the sink is stalled")
    assert f"the table {path} does not say where: it is gone" in found
    rows = pa.table({"k": pa.array([7], pa.int32())})
    write_deltalake(str(path), rows)
    wait_until(
        lambda: [each for each in error() if "it says nothing" in each],
        what="another table is noticed",
    )
    assert contents(path) == [(7,)]


def test_what_a_table_cannot_have_is_refused_when_the_sink_is_made(workplace):
    place, path = workplace, workplace.folder / "t"
    place.sql("CREATE TABLE t (k INT, f DOUBLE, `a b` INT, a ARRAY<INT>, _MZ_diff INT)")
    place.sql("CREATE VIEW fine AS SELECT k, f, a FROM t")

    def refused(text, rest, relation="t"):
        with pytest.raises(SqlError, match=text):
            place.sql(f"CREATE SINK s FROM {relation} INTO DELTA (PATH '{path}') {rest}")

    refused(r"SLACKWATER_COLUMN_MISMATCH.*'a b' is none", "KEY (k) MODE UPSERT")
    refused("SLACKWATER_DUPLICATE_COLUMN.*_MZ_diff", "MODE APPEND")
    refused("SLACKWATER_SINK_KEY.*f is DOUBLE", "KEY (f) MODE UPSERT")
    refused("SLACKWATER_SINK_KEY.*a is ARRAY", "KEY (k, a) MODE UPSERT")
    refused("SLACKWATER_SINK_KEY.*no column K", "KEY (`K`) MODE UPSERT")
    assert not path.exists()
    with pytest.raises(SqlError, match=r"SLACKWATER_UNSUPPORTED.*the scheme gs"):
        place.sql("CREATE SINK s FROM t INTO DELTA (PATH 'gs://b/t') MODE APPEND")
