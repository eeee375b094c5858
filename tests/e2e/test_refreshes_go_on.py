"""A view with a refresh schedule at each time, while applications end and begin."""

from __future__ import annotations

import pytest
from tests.support.applications.application import Application
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

EVERY_MS = 2_000
HISTORY = "RETAIN HISTORY FOR '1 hour'"
FRONTIERS = (
    "SELECT read_frontier, write_frontier FROM mz_internal.mz_frontiers f"
    " JOIN mz_catalog.mz_materialized_views v ON f.object_id = v.id WHERE v.name = 'v'"
)
REFRESHED = "SELECT v, count(*) AS n, mz_now() AS at FROM t GROUP BY v"


def test_at_each_time_a_view_is_its_query_at_the_last_refresh(tmp_path):
    location = tmp_path / "environment"
    with Application(location, master="local[2]") as application:
        application.sql("USE slackwater")
        application.sql(f"CREATE TABLE t (k INT, v STRING) WITH ({HISTORY})")
        application.sql("INSERT INTO t VALUES (1, 'a')")
        application.sql(
            f"CREATE MATERIALIZED VIEW v WITH ({HISTORY}, REFRESH AT CREATION,"
            f" REFRESH EVERY '{EVERY_MS} ms') AS {REFRESHED}"
        )
        first = application.value("SELECT at FROM v")
        for key in range(2, 6):
            application.sql(f"INSERT INTO t VALUES ({key}, 'b')")
        wait_until(lambda: upper(application) > first + 2 * EVERY_MS, what="two refreshes")
    with Application(location, master="local[2]") as application:
        application.sql("USE slackwater")
        application.sql("INSERT INTO t VALUES (7, 'c')")
        missed = application.value("SELECT mz_now() FROM t LIMIT 1")
        wait_until(lambda: upper(application) > missed + EVERY_MS, what="the next refreshes")
        last = upper(application) - EVERY_MS
        checked = 0
        for refresh in range(first, last + 1, EVERY_MS):
            expected = application.rows(
                f"SELECT v, count(*) AS n, {refresh} AS at FROM t GROUP BY v ORDER BY v"
                f" AS OF {refresh}"
            )
            for at in (refresh, refresh + 1, refresh + EVERY_MS - 1):
                found = application.rows(f"SELECT v, n, at FROM v ORDER BY v AS OF {at}")
                assert found == expected, (at, refresh)
                checked += 1
        assert checked >= 9


def upper(application):
    return application.rows(FRONTIERS)[0][1]
