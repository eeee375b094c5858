"""Rows of a temporal filter whose times come while nobody runs, and after that."""

from __future__ import annotations

import pytest
from tests.support.applications.application import Application

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
        end = application.value("SELECT mz_now()") + 15_000
        application.sql(f"INSERT INTO t VALUES (1, {end}), (2, {end + 120_000}), (3, NULL)")
        assert application.value("SELECT count(*) FROM t") == 3
    with Application(location, master="local[2]") as application:
        application.sql("USE slackwater")
        for time, keys in ((end - 1, [[1], [2]]), (end, [[2]])):
            assert application.rows(f"SELECT k FROM valid AS OF {time}") == keys
        application.sql("DELETE FROM t WHERE k = 2")
        assert application.rows("SELECT k FROM valid") == []
        later = application.value("SELECT mz_now()") + 10_000
        application.sql(f"INSERT INTO t VALUES (4, {later})")
        application.sql(f"DECLARE c CURSOR FOR SUBSCRIBE valid AS OF {later - 1}")
        changes = [application.rows("FETCH 1 c") for _ in range(2)]
        assert changes == [[[later - 1, 1, 4]], [[later, -1, 4]]]
