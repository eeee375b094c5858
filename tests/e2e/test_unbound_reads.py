"""Reads by an index without a bind: nobody is asked, and nothing is missed."""

from __future__ import annotations

import re

import pytest
from tests.support.applications.application import SqlError, kill, only_coordinator
from tests.support.applications.indexed import hydrated, leading_and_joined, plan_of
from tests.support.applications.stopped import stopped
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

READ = "SELECT v FROM t WHERE k = 1"


def filled(place):
    place.sql("CREATE TABLE t (k INT NOT NULL, v INT)")
    place.sql("CREATE INDEX by_k ON t (k)")
    place.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
    hydrated(place, "by_k")
    assert place.rows(READ) == [[1]]


def read_while_stopped(place, coordinator, query):
    """The rows that the query finds while the coordinator stands still; None: it needs one."""
    place.rows(query)
    with stopped([coordinator]):
        asked = place.application.start(query)
        try:
            return asked.result(2).rows
        except TimeoutError:
            return None


def test_nobody_is_asked_and_a_leader_elsewhere_is_seen(tmp_path):
    with leading_and_joined(tmp_path) as (first, second):
        filled(first)
        coordinator = only_coordinator(tmp_path / "environment")
        for query, rows in (
            (READ, [[1]]),
            ("SELECT count(*) FROM t a WHERE a.k IN (1, 2) AND a.v > 0", [[2]]),
            ("SELECT n, v FROM VALUES (1, 'x') AS p(k, n) JOIN t ON t.k = p.k", [["x", 1]]),
            ("SELECT v FROM t WHERE k = 7 UNION ALL SELECT v FROM t WHERE k = 2", [[2]]),
        ):
            found = wait_until(lambda query=query: read_while_stopped(first, coordinator, query))
            assert found == rows, query
        # What was acknowledged is seen, whoever wrote it.
        for value in range(10, 18):
            (second if value % 2 else first).sql(f"UPDATE t SET v = {value} WHERE k = 1")
            assert first.rows(READ) == [[value]] == second.rows(READ)
        kill(coordinator)
        second.sql("UPDATE t SET v = 99 WHERE k = 1")
        assert first.rows(READ) == [[99]]


PROBES = "VALUES (1, 5), (7, 6), (1, 8), (NULL, 9) AS p(k, n)"
RANGE = "(SELECT CAST(id AS INT) + 1 AS k, id AS n FROM range(3))"
JOINS = (
    f"SELECT n, v FROM {PROBES} JOIN t ON p.k = t.k",
    f"SELECT n, v FROM {PROBES} LEFT JOIN t ON p.k = t.k AND t.v > p.n - 5",
    f"SELECT n, v FROM t RIGHT JOIN {PROBES} ON p.k <=> t.k",
    f"SELECT n FROM {PROBES} LEFT SEMI JOIN t ON p.k = t.k",
    f"SELECT n FROM {PROBES} LEFT ANTI JOIN t ON p.k = t.k",
    f"SELECT sum(v), count(*) FROM {RANGE} p, t WHERE p.k = t.k AND v > 0 AND n < 2",
    f"SELECT n, w FROM {RANGE} p JOIN (SELECT k, v + 1 AS w FROM t WHERE v <> 9) t USING (k)",
    "SELECT u.s, t.v FROM u JOIN t ON u.k = t.k WHERE u.s IN ('a', 'b')",
    f"SELECT u.s FROM {PROBES} JOIN t ON p.k = t.k JOIN u ON u.s = 'a' AND u.k = t.v",
)


LOOKED_UP = "InlineRows IndexLookupJoin"
"""In a plan: the rows of a join were found when the query was bound."""


def test_joins_of_rows_that_are_there_ask_nobody(workplace):
    filled(workplace)
    workplace.sql("CREATE TABLE u (s STRING, k INT)")
    workplace.sql("CREATE INDEX by_s ON u (s)")
    workplace.sql("INSERT INTO u VALUES ('a', 1), ('b', 2), ('b', 3)")
    workplace.sql("CREATE TABLE plain_t AS SELECT * FROM t")
    workplace.sql("CREATE TABLE plain_u AS SELECT * FROM u")
    hydrated(workplace, "by_s")
    for query in JOINS:
        wanted = sorted(workplace.rows(without_indexes(query)), key=repr)
        assert wanted

        def found(query=query):
            rows = sorted(workplace.rows(query), key=repr)
            return rows if LOOKED_UP in plan_of(workplace, query) else None

        assert wait_until(found, what=f"{query} asks nobody") == wanted
        assert sorted(workplace.rows(query), key=repr) == wanted
    for value in range(20, 24):
        workplace.sql(f"UPDATE t SET v = {value} WHERE k = 1")
        assert workplace.rows(JOINS[0]) == [[5, value], [8, value]]


def without_indexes(query):
    """The query over tables with the same rows and no index."""
    return re.sub(r"(FROM|JOIN|,) (t|u)\b(?!\.)", r"\1 plain_\2 AS \2", query)


def test_joins_that_would_fail_or_are_of_the_moment_are_bound(workplace):
    workplace.sql("CREATE TABLE days (d DATE, v INT)")
    workplace.sql("CREATE INDEX by_d ON days (d)")
    workplace.sql("INSERT INTO days VALUES (current_date(), 1), (DATE '1999-01-01', 0)")
    hydrated(workplace, "by_d")
    for day in ("current_date()", "CAST('today' AS DATE)"):
        query = f"SELECT v FROM (SELECT {day} AS d FROM range(1)) p JOIN days ON p.d = days.d"
        for _ in range(3):
            assert workplace.rows(query) == [[1]], day
    days = "(SELECT explode(array(DATE '1999-01-01')) AS d) p"
    failing = f"SELECT v FROM {days} JOIN days ON p.d = days.d AND 1 DIV days.v = 1"
    fixed = failing.replace(days, "VALUES (DATE '1999-01-01') AS p(d)")
    for query in (failing, fixed):
        for _ in range(3):
            with pytest.raises(SqlError, match="DIVIDE_BY_ZERO"):
                workplace.rows(query)
            assert workplace.rows(f"SELECT * FROM ({query}) WHERE false") == []


def test_a_join_of_many_rows_is_bound(workplace):
    filled(workplace)
    workplace.sql("INSERT INTO t SELECT 3, id FROM range(200)")
    query = "SELECT count(*) FROM (SELECT 3 AS k, id FROM range(100)) p JOIN t ON p.k = t.k"
    for _ in range(3):
        assert workplace.rows(query) == [[20000]]


def test_errors_of_a_view_are_seen_as_soon_as_they_are_there(workplace):
    workplace.sql("CREATE TABLE t (k INT, v INT)")
    workplace.sql("INSERT INTO t VALUES (1, 1), (2, 1)")
    workplace.sql("CREATE MATERIALIZED VIEW q AS SELECT k, 12 DIV v AS v FROM t")
    workplace.sql("CREATE INDEX by_k ON q (k)")
    hydrated(workplace, "by_k")
    for divisor in range(1, 6):
        for _ in range(3):
            assert workplace.rows("SELECT k FROM q WHERE k = 1") == [[1]]
        workplace.sql("UPDATE t SET v = 0 WHERE k = 2")
        for _ in range(3):
            with pytest.raises(SqlError, match="SLACKWATER_DATA_ERROR"):
                workplace.rows("SELECT k FROM q WHERE k = 1")
        workplace.sql(f"UPDATE t SET v = {divisor} WHERE k = 2")


def test_what_a_session_has_set_counts_at_once(workplace):
    filled(workplace)
    other = "other"
    workplace.use(other)
    workplace.sql("BEGIN")
    try:
        assert workplace.rows(READ) == [[1]]
        workplace.sql("UPDATE t SET v = 5 WHERE k = 1", session=other)
        assert [workplace.rows(READ) for _ in range(3)] == [[[1]]] * 3
    finally:
        workplace.sql("COMMIT")
    assert [workplace.rows(READ) for _ in range(3)] == [[[5]]] * 3
    workplace.sql("SET max_query_result_size = '1B'")
    try:
        with pytest.raises(SqlError, match="SLACKWATER_RESULT_SIZE"):
            workplace.rows(READ)
    finally:
        workplace.sql("RESET max_query_result_size")
    assert workplace.rows(READ) == [[5]]
    workplace.sql("ALTER TABLE t RENAME TO u", session=other)
    with pytest.raises(SqlError, match="TABLE_OR_VIEW_NOT_FOUND"):
        workplace.rows(READ)
    read = "SELECT v FROM u WHERE k = 1"
    assert workplace.rows(read) == [[5]]
    workplace.sql("DROP INDEX by_k", session=other)
    assert workplace.rows(read) == [[5]]


def test_values_that_are_of_the_moment_are_of_the_query(workplace):
    workplace.sql("CREATE TABLE days (d DATE, s STRING)")
    workplace.sql("CREATE INDEX by_d ON days (d)")
    workplace.sql("INSERT INTO days VALUES (current_date(), 'now'), (DATE '1999-01-01', 'then')")
    hydrated(workplace, "by_d")
    for condition in ("current_date()", "CAST('today' AS DATE)", "DATE 'today'", "'today'"):
        for _ in range(2):
            found = workplace.rows(f"SELECT s FROM days WHERE d = {condition}")
            assert found == [["now"]], condition


def test_the_history_has_them(workplace):
    filled(workplace)
    text = "SELECT v AS told FROM t WHERE k IN (1, 2)"
    for _ in range(20):
        workplace.sql(text)
    log = (
        "SELECT statement_type, finished_status, rows_returned, execution_timestamp IS NOT NULL,"
        f" count(*) FROM mz_internal.mz_recent_activity_log WHERE sql = '{text}'"
        f" AND search_path = array('{workplace.schema}') GROUP BY ALL"
    )
    wanted = [["select", "success", 2, True, 20]]
    wait_until(lambda: workplace.rows(log) == wanted, what="the history")
