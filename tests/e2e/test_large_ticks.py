"""One row may change more than the driver can hold: no view is lost by it, and no other waits."""

from __future__ import annotations

import pytest
from tests.support.applications.application import Application, SqlError
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

ROWS = 1_500_000


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    location = tmp_path_factory.mktemp("large") / "environment"
    with Application(location, master="local[2]") as application:
        application.sql("USE slackwater")
        application.sql(f"CREATE TABLE facts AS SELECT 1 AS k, id AS v FROM range({ROWS})")
        application.sql("CREATE TABLE names AS SELECT 1 AS k, 'a' AS name")
        yield application


def test_a_row_that_meets_all_others(place):
    joined = "SELECT name, sum(v) AS s, count(*) AS n FROM facts JOIN names USING (k) GROUP BY name"
    place.sql(f"CREATE MATERIALIZED VIEW joined AS {joined}")
    place.sql("UPDATE names SET name = 'a'")
    ((total, rows),) = place.rows("SELECT sum(v), count(*) FROM facts")
    place.sql("INSERT INTO facts VALUES (1, 0)")
    assert place.rows("SELECT * FROM joined") == [["a", total, rows + 1]]
    place.sql("UPDATE names SET name = 'b'")
    assert place.rows("SELECT * FROM joined") == [["b", total, rows + 1]]
    steps = place.rows("EXPLAIN ANALYZE FOR MATERIALIZED VIEW joined")
    assert any("recompute" in str(step) for step in steps), steps
    place.sql("INSERT INTO facts VALUES (1, 1)")
    assert place.rows("SELECT * FROM joined") == [["b", total + 1, rows + 2]]
    place.sql("DROP MATERIALIZED VIEW joined")


def test_what_only_a_program_can_follow_says_what_is_wrong(place):
    place.sql(
        "CREATE MATERIALIZED VIEW valid AS SELECT name, sum(v) AS s"
        " FROM facts JOIN names USING (k) WHERE mz_now() >= v GROUP BY name"
    )
    assert len(place.rows("SELECT * FROM valid")) == 1
    place.sql("UPDATE names SET name = name || 'c'")

    def told():
        (row,) = (row for row in place.rows("SHOW MATERIALIZED VIEWS") if row[0] == "valid")
        return "SLACKWATER_TICK_MEMORY" in str(row[-2])

    wait_until(told, what="the view tells what is wrong")
    place.sql("SET slackwater.statement_timeout = '5 seconds'")
    with pytest.raises(SqlError) as failed:
        place.rows("SELECT * FROM valid")
    assert "takes more of the driver's heap than a tick may have" in str(failed.value)
    place.sql("RESET slackwater.statement_timeout")
    place.sql("DROP MATERIALIZED VIEW valid")
