"""One row may change more than the driver can hold: no view is lost by it, and no other waits."""

from __future__ import annotations

import pytest
from tests.support.applications.application import Application

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


def changes(place, count):
    """The next rows of the cursor, without their time."""
    found = []
    while len(found) < count:
        found += place.rows(f"FETCH {count - len(found)} c WITH (timeout = '5 minutes')")
    return sorted(row[1:] for row in found)


@pytest.mark.nightly
def test_a_row_that_meets_all_others(place):
    joined = "SELECT name, sum(v) AS s, count(*) AS n FROM facts JOIN names USING (k) GROUP BY name"
    place.sql(f"CREATE MATERIALIZED VIEW joined AS {joined}")
    place.sql("UPDATE names SET name = 'a'")
    ((total, rows),) = place.rows("SELECT sum(v), count(*) FROM facts")
    place.sql(f"DECLARE c CURSOR FOR SUBSCRIBE ({joined})")
    assert changes(place, 1) == [[1, "a", total, rows]]
    place.sql("INSERT INTO facts VALUES (1, 0)")
    assert place.rows("SELECT * FROM joined") == [["a", total, rows + 1]]
    assert changes(place, 2) == [[-1, "a", total, rows], [1, "a", total, rows + 1]]
    place.sql("UPDATE names SET name = 'b'")
    assert place.rows("SELECT * FROM joined") == [["b", total, rows + 1]]
    assert changes(place, 2) == [[-1, "a", total, rows + 1], [1, "b", total, rows + 1]]
    steps = place.rows("EXPLAIN ANALYZE FOR MATERIALIZED VIEW joined")
    assert any("recompute" in str(step) for step in steps), steps
    place.sql("INSERT INTO facts VALUES (1, 1)")
    assert place.rows("SELECT * FROM joined") == [["b", total + 1, rows + 2]]
    assert changes(place, 2) == [[-1, "b", total, rows + 1], [1, "b", total + 1, rows + 2]]
    place.sql("CLOSE c")
    place.sql("DROP MATERIALIZED VIEW joined")


@pytest.mark.nightly
def test_a_view_with_a_temporal_filter_is_computed_as_a_whole_then(place):
    place.sql(
        "CREATE MATERIALIZED VIEW valid AS SELECT name, sum(v) AS s, count(*) AS n"
        " FROM facts JOIN names USING (k) WHERE mz_now() >= v GROUP BY name"
    )
    ((_, total, rows),) = place.rows("SELECT * FROM valid")
    place.sql("UPDATE names SET name = 'long'")
    assert place.rows("SELECT * FROM valid") == [["long", total, rows]]
    steps = place.rows("EXPLAIN ANALYZE FOR MATERIALIZED VIEW valid")
    assert any("recompute" in str(step) for step in steps), steps
    place.sql("INSERT INTO facts VALUES (1, 1)")
    assert place.rows("SELECT * FROM valid") == [["long", total + 1, rows + 1]]
    place.sql("DROP MATERIALIZED VIEW valid")
