"""Statements that wait, or whose Spark jobs run, end when they are cancelled or time is up."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path

import pytest
from tests.support.applications.application import SqlError
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

SLOW = "reflect('java.lang.Thread', 'sleep', 600000L) IS NULL"
"""A condition that a task computes until it is interrupted."""


@pytest.fixture
def place(workplace):
    workplace.sql("CREATE TABLE t (k INT)")
    workplace.sql("INSERT INTO t VALUES (1)")
    for session in ("first", "second"):
        workplace.use(session)
    yield workplace
    # Of a test that has failed before it did so itself, so that the next ones do not fail for it.
    with contextlib.suppress(SqlError):
        workplace.sql("CLOSE c", session="first")
    for session in ("main", "first", "second"):
        workplace.sql("RESET statement_timeout", session=session)


def in_group(place, group, text, session):
    """Begins a statement whose thread has a job group of its own."""
    code = f"""
spark.sparkContext.setJobGroup({group!r}, 'test', True)
result = [list(row) for row in spark.sql({text!r}).collect()]
"""
    return place.application.begin_python(code, session=session)


def cancelled(place, pending, cancel):
    """Cancels until the statement ends, as it may not wait yet; the condition that it ends with."""

    def ended():
        place.application.python(f"sc = spark.sparkContext\n{cancel}")
        return pending.is_done

    wait_until(ended, what="the end of the statement")
    with pytest.raises(SqlError) as error:
        pending.result()
    return error.value.condition


def active_jobs(place):
    tracker = "spark.sparkContext._jsc.sc().statusTracker().getActiveJobIds()"
    return place.application.python(f"result = list({tracker})")


CANCELS = {
    "group": "sc.cancelJobGroup('one')",
    "all": "sc.cancelAllJobs()",
}


@pytest.mark.parametrize("cancel", CANCELS.values(), ids=CANCELS.keys())
def test_waiting_for_rows(place, cancel):
    place.sql("DECLARE c CURSOR FOR SUBSCRIBE t WITH (snapshot = false)", session="first")
    pending = in_group(place, "one", "FETCH ALL c", "first")
    assert cancelled(place, pending, cancel) == "SLACKWATER_CANCELED"
    place.sql("INSERT INTO t VALUES (2)")
    assert len(place.rows("FETCH ALL c", session="first")) == 1
    place.sql("CLOSE c", session="first")


def test_waiting_for_a_frontier_that_is_far_away(place):
    place.sql("SET statement_timeout = '0'", session="first")
    later = int(time.time() * 1000) + 3_600_000
    pending = in_group(place, "one", f"SELECT * FROM t AS OF {later}", "first")
    other = in_group(place, "two", "SELECT count(*) FROM t", "second")
    assert other.result().rows == [[[[1]]]]
    assert cancelled(place, pending, CANCELS["group"]) == "SLACKWATER_CANCELED"
    place.sql("SET statement_timeout = '2s'", session="second")
    with pytest.raises(SqlError, match="SLACKWATER_WAIT_TIMEOUT"):
        place.sql(f"SELECT * FROM t AS OF {later}", session="second")


def test_waiting_for_a_table_that_another_statement_reads_and_writes(place):
    place.sql("SET statement_timeout = '2s'")
    holder = in_group(place, "holder", f"INSERT INTO t SELECT k FROM t WHERE {SLOW}", "first")
    wait_until(lambda: active_jobs(place), what="the job of the statement that holds the table")
    with pytest.raises(SqlError, match="SLACKWATER_LOCK_TIMEOUT"):
        place.sql("INSERT INTO t VALUES (2)")
    waiting = in_group(place, "one", "INSERT INTO t VALUES (3)", "second")
    assert cancelled(place, waiting, CANCELS["group"]) == "SLACKWATER_CANCELED"
    place.sql("RESET statement_timeout")
    waiting = in_group(place, "one", "INSERT INTO t VALUES (4)", "second")
    cancelled(place, holder, "sc.cancelJobGroup('holder')")
    waiting.result()
    assert place.rows("SELECT k FROM t ORDER BY k") == [[1], [4]]


def test_a_spark_job_of_the_coordinators(place):
    declare = f"DECLARE c CURSOR FOR SELECT k FROM t WHERE {SLOW}"
    place.sql(declare, session="first")
    pending = in_group(place, "one", "FETCH ALL c", "first")
    wait_until(lambda: active_jobs(place), what="the job")
    assert cancelled(place, pending, CANCELS["group"]) == "SLACKWATER_CANCELED"
    wait_until(lambda: not active_jobs(place), what="the end of the job")
    place.sql("SET statement_timeout = '1s'", session="first")
    with pytest.raises(SqlError, match="SLACKWATER_STATEMENT_TIMEOUT"):
        place.sql("FETCH ALL c", session="first")
    wait_until(lambda: not active_jobs(place), what="the end of the job")
    place.sql("CLOSE c", session="first")


def test_waiting_for_another_change_of_the_catalog(place):
    """The one that has come first is under way, and goes on."""
    metastore = sqlite3.connect(
        Path(place.application.location) / "metastore.sqlite", isolation_level=None
    )
    metastore.execute("BEGIN IMMEDIATE")
    both = [
        in_group(place, "one", f"COMMENT ON TABLE t IS '{session}'", session)
        for session in ("first", "second")
    ]

    def one_has_ended():
        place.application.python(f"sc = spark.sparkContext\n{CANCELS['group']}")
        return any(each.is_done for each in both)

    wait_until(one_has_ended, what="the end of the one that waits")
    metastore.execute("ROLLBACK")
    metastore.close()
    outcomes = []
    for each in both:
        try:
            each.result()
            outcomes.append("done")
        except SqlError as error:
            outcomes.append(error.condition)
    assert sorted(outcomes) == ["SLACKWATER_CANCELED", "done"]
    named = ("first", "second")[outcomes.index("done")]
    assert f"COMMENT '{named}'" in str(place.rows("SHOW CREATE TABLE t"))


def test_what_has_ended_is_not_cancelled_later(place):
    place.application.python("spark.sparkContext.cancelJobGroup('one')")
    pending = in_group(place, "one", "SELECT k FROM t", "first")
    assert pending.result().rows == [[[[1]]]]
