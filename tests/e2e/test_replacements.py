"""A replacement takes the place of a view that is read, written below and followed meanwhile."""

from __future__ import annotations

import pytest
from tests.support.applications.application import Application

pytestmark = pytest.mark.spark

ROWS = 20_000
OLD = "SELECT n.g, count(*) AS c, sum(t.v) AS s FROM t JOIN names n ON t.k % 100 = n.k GROUP BY n.g"
NEW = OLD.replace("GROUP BY", "WHERE t.v >= 0 GROUP BY")
TICKS = (
    "SELECT r.rows_scanned FROM mz_internal.mz_recent_ticks r"
    " JOIN mz_catalog.mz_materialized_views v"
    " ON r.object_id = v.id WHERE v.name = 'v' AND r.lower >= {since} ORDER BY r.lower"
)


def test_nobody_waits_for_what_takes_long_and_nothing_is_read_again(tmp_path):
    with Application(tmp_path / "environment", master="local[2]") as application:
        application.sql("USE slackwater")
        application.sql("CREATE TABLE t (k INT, v INT) WITH (RETAIN HISTORY FOR '1 hour')")
        application.sql("CREATE TABLE names (k INT, g STRING)")
        application.sql("INSERT INTO names SELECT id, concat('g', id % 7) FROM range(100)")
        application.sql(f"INSERT INTO t SELECT id, id % 11 - 5 FROM range({ROWS})")
        application.sql(f"CREATE MATERIALIZED VIEW v WITH (RETAIN HISTORY FOR '1 hour') AS {OLD}")
        application.sql("CREATE MATERIALIZED VIEW above AS SELECT sum(c) AS c FROM v")
        application.sql(
            "CREATE REPLACEMENT MATERIALIZED VIEW r FOR v WITH (RETAIN HISTORY FOR '1 hour')"
            f" AS {NEW}"
        )
        application.sql("INSERT INTO t VALUES (1, 1)")
        before = application.rows("SELECT * FROM v ORDER BY g")
        assert before == application.rows(f"{OLD} ORDER BY n.g")
        since = application.value("SELECT mz_now() FROM t LIMIT 1")
        application.sql("ALTER MATERIALIZED VIEW v APPLY REPLACEMENT r")
        application.sql("INSERT INTO t VALUES (2, 2)")
        assert application.rows("SELECT * FROM v ORDER BY g") == application.rows(
            f"{NEW} ORDER BY n.g"
        )
        total = application.value("SELECT c FROM above")
        assert total == application.value("SELECT count(*) FROM t WHERE v >= 0")
        assert application.rows(f"SELECT * FROM v ORDER BY g AS OF {since}") == before
        scanned = [row[0] for row in application.rows(TICKS.format(since=since))]
        assert scanned
        assert max(scanned) < 100, "an input was read as a whole"
    with Application(tmp_path / "environment", master="local[2]") as application:
        application.sql("USE slackwater")
        application.sql("INSERT INTO t VALUES (3, 3)")
        assert application.rows("SELECT * FROM v ORDER BY g") == application.rows(
            f"{NEW} ORDER BY n.g"
        )
