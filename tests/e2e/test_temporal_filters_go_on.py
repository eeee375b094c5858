"""Rows of a temporal filter whose times come while nobody runs, and after that."""

from __future__ import annotations

import pytest
from tests.support.applications.application import Application
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark


def test_what_ended_while_nobody_ran_ended_at_its_time(tmp_path):
    location = tmp_path / "environment"
    keeping = "WITH (RETAIN HISTORY FOR '1 hour')"
    with Application(location, master="local[2]") as application:
        application.sql("USE slackwater")
        application.sql(f"CREATE TABLE t (k INT, e BIGINT) {keeping}")
        application.sql(
            f"CREATE MATERIALIZED VIEW valid {keeping} AS SELECT k FROM t WHERE mz_now() < e"
        )
        end = inserted(application, "(1, {end}), (2, {end} + 600000), (3, NULL)")
        assert application.value("SELECT count(*) FROM t") == 3
    with Application(location, master="local[2]") as application:
        application.sql("USE slackwater")
        for time, keys in ((end - 1, [[1], [2]]), (end, [[2]])):
            assert application.rows(f"SELECT k FROM valid AS OF {time}") == keys
        application.sql("DELETE FROM t WHERE k = 2")
        assert application.rows("SELECT k FROM valid") == []
        later = inserted(application, "(4, {end})")
        application.sql(f"DECLARE c CURSOR FOR SUBSCRIBE valid AS OF {later - 1}")
        changes = [application.rows("FETCH 1 c") for _ in range(2)]
        assert changes == [[[later - 1, 1, 4]], [[later, -1, 4]]]


def inserted(application, rows):
    """Inserts rows that have an `end`, before it; again with a later one if it took too long."""
    after_ms = 5_000

    def in_time():
        nonlocal after_ms
        after_ms *= 2
        end = application.value("SELECT mz_now()") + after_ms
        application.sql("INSERT INTO t VALUES " + rows.format(end=end))
        if application.value("SELECT mz_now() FROM t LIMIT 1") < end:
            return end
        application.sql("DELETE FROM t")
        return None

    return wait_until(in_time, what="a row that has not ended when it is inserted")
