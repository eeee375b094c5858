"""Whole views that are read from the leader's index, by a file of rows where they are many."""

from __future__ import annotations

import pytest
from tests.support.applications.application import SqlError
from tests.support.applications.indexed import (
    COLUMNS_OF_KINDS,
    KINDS,
    LONGEST,
    RETAINED,
    ROWS_OF_KINDS,
    hydrated,
    leading_and_joined,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def applications(tmp_path_factory):
    """A place in the leading application, one that has joined, and the folder of files."""
    folder = tmp_path_factory.mktemp("peeks")
    with leading_and_joined(folder) as (place, joined):
        yield place, joined, folder / "environment" / "peeks"


def files(folder):
    return [path for path in folder.rglob("*.parquet") if not path.name.startswith(".")]


def is_empty(folder):
    """Whether nothing of any file is there, finished or not."""
    return not any(path.is_file() for path in folder.rglob("*"))


def explained(application, text):
    return str(application.rows(f"EXPLAIN EXTENDED {text}"))


def test_a_file_has_the_rows_of_the_query(applications):
    """Of every type, NULL, equal rows, names that files do not take, and at every time."""
    place, joined, folder = applications
    place.sql(f"CREATE TABLE t ({COLUMNS_OF_KINDS}, v INT) {RETAINED}")
    place.sql(f"CREATE TABLE many (n INT, text STRING) {RETAINED}")
    place.sql("INSERT INTO many SELECT id, repeat('x', 2000) FROM range(1200)")
    place.sql(f"INSERT INTO t VALUES {ROWS_OF_KINDS}")
    named = ", ".join(f"k_{kind}" for kind in KINDS)
    query = f"SELECT {named}, v AS __time, n % 600 AS n, text FROM t JOIN many ON n % 2 = v % 2"
    place.sql(f"CREATE VIEW w AS {query}")
    place.sql(f"CREATE INDEX i ON w (n) {RETAINED}")
    hydrated(place, "i")
    times = [place.value("SELECT mz_now()")]
    place.sql("UPDATE t SET v = v + 2 WHERE v % 2 = 0")
    times.append(place.value("SELECT mz_now()"))
    hashed = f"pmod(xxhash64({named}, __time, n, text), 1000003)"
    summed = f"SELECT count(*), count(DISTINCT n), sum({hashed})"
    for at in (*(f" AS OF {each}" for each in times), ""):
        found = joined.rows(f"{summed} FROM w{at}")
        assert found == place.rows(f"{summed} FROM ({query}){at}"), at
        assert found[0][0] == 600 * LONGEST
    assert "by index slackwater.place.i" in explained(joined, "SELECT * FROM w")
    filtered = "SELECT n, count(*) FROM w WHERE n < 3 AND __time > 0 GROUP BY n ORDER BY n"
    assert joined.rows(filtered) == place.rows(filtered)
    wait_until(lambda: not files(folder), what="the end of the files")


def long_texts(place, joined, table, view):
    """6 000 long texts in a view, which the other application reads by a file."""
    place.sql(f"CREATE TABLE {table} (k INT, text STRING)")
    place.sql(f"CREATE VIEW {view} AS SELECT k, max(text) AS text FROM {table} GROUP BY k")
    place.sql(f"CREATE INDEX ON {view} (k)")
    place.sql(f"INSERT INTO {table} SELECT id, repeat('y', 1000) FROM range(6000)")
    read = f"SELECT * FROM {view}"
    wait_until(lambda: "by index" in explained(joined, read), what="the index")


@pytest.mark.nightly
def test_a_file_is_there_while_somebody_reads_it(applications):
    place, joined, folder = applications
    long_texts(place, joined, "s", "texts")
    whole = "SELECT count(*), sum(length(text)) FROM texts"
    wait_until(lambda: not files(folder), what="the end of the files of EXPLAIN")
    # Python's RDD is lazy: its rows are read after the statement.
    count = "spark.kept.count()"
    assert joined.python(
        f"spark.kept = spark.sql('SELECT * FROM texts').rdd; result = {count}"
    ) == (6000)
    place.sql("DELETE FROM s WHERE k >= 10")
    assert len(files(folder)) == 1
    assert joined.rows(whole) == place.rows(whole) == [[10, 10000]]
    assert joined.python(f"result = {count}") == 6000
    joined.python("del spark.kept; result = None")
    collect = "import gc; gc.collect(); spark.sparkContext._jvm.System.gc(); result = None"

    def is_gone():
        joined.python(collect)
        return not files(folder)

    wait_until(is_gone, what="the end of the file of the RDD")


def test_the_limit_of_a_result_holds_for_a_file(applications):
    place, joined, folder = applications
    long_texts(place, joined, "r", "long")
    whole = "SELECT * FROM long"
    joined.sql("SET max_query_result_size = '1MB'")
    with pytest.raises(SqlError) as refused:
        joined.rows(whole)
    assert refused.value.condition == "SLACKWATER_RESULT_SIZE"
    joined.sql("RESET max_query_result_size")
    assert len(joined.rows(whole)) == 6000
    wait_until(lambda: not files(folder), what="the end of the files")


def pairs(place, many):
    """Lets the view have each pair of so many equal rows: one row in memory, all in a file."""
    place.sql("DELETE FROM equal")
    place.sql(f"INSERT INTO equal SELECT 1 FROM range({many})")


def in_group(application, text):
    """Begins a statement whose thread has the job group `one`."""
    code = f"""
spark.sparkContext.setJobGroup('one', 'test', True)
result = [list(row) for row in spark.sql({text!r}).collect()]
"""
    return application.begin_python(code, session="other")


def cancelled(application, pending):
    """Cancels the statement once; the condition that it ends with."""
    application.python("spark.sparkContext.cancelJobGroup('one')")
    with pytest.raises(SqlError) as ended:
        pending.result()
    return ended.value.condition


def test_the_end_of_who_wants_a_file_is_its_end(applications, gate, tmp_path):
    """Of a statement while the file is written and while it is read, and of an application.

    That is killed: so this is the last test of the file.
    """
    place, joined, folder = applications
    place.sql("CREATE TABLE equal (k INT)")
    place.sql("CREATE VIEW pairs AS SELECT a.k FROM equal a JOIN equal b ON a.k = b.k")
    place.sql("CREATE INDEX of_pairs ON pairs (k)")
    pairs(place, 4400)
    hydrated(place, "of_pairs")
    joined.sql("USE slackwater.place", session="other")
    wait_until(lambda: is_empty(folder), what="the end of the files before")
    whole = "SELECT count(*), sum(k) FROM pairs"
    pending = in_group(joined, whole)
    wait_until(lambda: not is_empty(folder), every_s=0.001, what="the file is begun")
    assert cancelled(joined, pending) == "SLACKWATER_CANCELED"
    wait_until(lambda: is_empty(folder), what="the end of the file that was begun")

    pairs(place, 500)
    wait_until(lambda: place.rows(whole) == [[250000, 250000]], what="the smaller view")
    assert joined.rows(whole, session="other") == [[250000, 250000]]
    wait_until(lambda: is_empty(folder), what="the end of a file that was read")
    slow = "SELECT sum(block(k)) FROM pairs"
    joined.python(gate.block(tmp_path / "first"), session="other")
    pending = in_group(joined, slow)
    wait_until((tmp_path / "first").exists, what="the statement reads")
    assert len(files(folder)) == 1
    cancelled(joined, pending)
    wait_until(lambda: is_empty(folder), what="the end of the cancelled statement's file")
    assert joined.rows(whole, session="other") == [[250000, 250000]]

    wait_until(lambda: is_empty(folder), what="the end of the next statement's file")
    joined.python(gate.block(tmp_path / "second"), session="other")
    in_group(joined, slow)
    wait_until((tmp_path / "second").exists, what="the statement reads")
    assert len(files(folder)) == 1
    sessions = "SELECT count(*) FROM slackwater.mz_internal.mz_sessions"
    before = place.value(sessions)
    joined.kill()
    wait_until(lambda: is_empty(folder), what="the end of the killed application's file")
    # Two were the test's.
    wait_until(lambda: place.value(sessions) <= before - 2, what="the end of its sessions")
    place.sql("INSERT INTO equal VALUES (2)")
    assert place.rows(whole) == [[250001, 250002]]
