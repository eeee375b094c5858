"""The whole product over PostgreSQL as its metastore."""

from __future__ import annotations

import pytest
from tests.support.applications.application import Application

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.nightly]

VIEW = "SELECT v, count(*) AS n, sum(k) AS total FROM t GROUP BY v"


def test_views_and_blocks_live_through_a_restart(postgres, tmp_path):
    url = postgres.new_database()
    where = {"location": tmp_path / "environment", "metastore": url}
    with Application(**where) as application:
        application.sql("USE slackwater")
        application.sql("CREATE TABLE t (k INT, v STRING)")
        application.sql("CREATE TABLE log (entry STRING)")
        application.sql(f"CREATE MATERIALIZED VIEW m AS {VIEW}")
        application.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        application.sql("BEGIN")
        application.sql("INSERT INTO t VALUES (3, 'a')")
        application.sql("INSERT INTO log VALUES ('three')")
        application.sql("COMMIT")
        assert sorted(application.rows("SELECT * FROM m")) == [["a", 2, 4], ["b", 1, 2]]
    with Application(**where) as application:
        application.sql("USE slackwater")
        application.sql("UPDATE t SET v = 'b' WHERE k = 1")
        assert sorted(application.rows("SELECT * FROM m")) == sorted(application.rows(VIEW))
        assert application.value("SELECT count(*) FROM log") == 1
