"""Views over more than the driver takes of a job: they are filled and followed nevertheless."""

import pytest
from tests.support.applications.application import Application, wait_until

pytestmark = pytest.mark.spark

ROWS = 15_000
STALLED = "SELECT message FROM mz_internal.mz_notices WHERE notice_type = 'stalled view'"
LIMITED = {"spark.driver.maxResultSize": "256k"}

VIEWS = {
    "joined": "SELECT a.k, a.s AS x, b.s AS y FROM t a JOIN t b ON a.k = b.k",
    "grouped": "SELECT s, count(*) AS n, max(k) AS k FROM t GROUP BY s",
    "different": "SELECT DISTINCT s FROM t",
    "numbered": "SELECT k, s, row_number() OVER (PARTITION BY g ORDER BY k) AS r FROM t",
    "first": f"SELECT k, s FROM t ORDER BY k DESC LIMIT {ROWS // 2}",
    "valid": "SELECT k, s FROM t WHERE mz_now() < 9000000000000 + k",
    "absent": "SELECT k, s FROM t"
    " WHERE NOT EXISTS (SELECT 1 FROM t b WHERE b.s = t.s AND b.k > t.k)",
    "recomputed": "SELECT k, s, ntile(7) OVER (ORDER BY k) AS n FROM t",
}
"""Each keeps, or computes, about three quarters of a megabyte that nothing makes smaller."""

MANY_OF_FEW = (
    "SELECT k, sha2(CAST(k * 1000 + i AS STRING), 256) AS s"
    " FROM few, LATERAL (SELECT explode(sequence(1, 75)) AS i)"
)


def of(relation):
    """What a relation comes to, as one row."""
    return f"SELECT count(*), sum(CAST(xxhash64(*) AS DECIMAL(38, 0))) FROM ({relation})"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    location = tmp_path_factory.mktemp("limited") / "environment"
    with Application(location, master="local[2]", conf=LIMITED) as application:
        application.sql("USE slackwater")
        # For the queries that views are compared with: Spark itself would not answer them.
        application.sql("SET spark.sql.autoBroadcastJoinThreshold = -1")
        yield application


@pytest.mark.nightly
def test_views_of_every_kind_over_more_than_a_job_may_tell(place):
    place.sql(
        "CREATE TABLE t AS SELECT id AS k, id % 1000 AS g, sha2(CAST(id AS STRING), 256) AS s"
        f" FROM range(0, {ROWS}, 1, 4)"
    )
    place.sql(
        "CREATE TABLE few AS SELECT id AS k FROM range(200)",
    )
    views = {**VIEWS, "unfolded": MANY_OF_FEW}
    for name, query in views.items():
        place.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    changes = (
        "UPDATE t SET s = 'other' WHERE k = 7",
        f"INSERT INTO t SELECT {ROWS} + id, id % 1000, sha2(CAST(-id AS STRING), 256)"
        " FROM range(0, 7500, 1, 4)",
    )
    for change in changes:
        place.sql(change)
        for name, query in views.items():
            assert place.rows(of(f"FROM {name}")) == place.rows(of(query)), (name, change)
        assert place.rows(STALLED) == []
    for name in views:
        place.sql(f"DROP MATERIALIZED VIEW {name}")


def test_a_view_names_the_limit_of_results(place):
    """Spark sends one side of this join to all tasks, through the driver, whatever is set."""
    place.sql(
        "CREATE TABLE sent AS SELECT id AS k, sha2(CAST(id AS STRING), 256) AS s"
        " FROM range(0, 15000, 1, 4)"
    )
    place.sql("CREATE TABLE one AS SELECT 'x' AS s")
    place.sql(
        "CREATE MATERIALIZED VIEW v AS SELECT b.s, ntile(2) OVER (ORDER BY b.s) AS n FROM one"
        " LEFT JOIN sent b ON b.s < one.s"
    )
    ((message,),) = wait_until(lambda: place.rows(STALLED))
    assert "[SLACKWATER_RESULT_TOO_LARGE]" in message
    assert "Raise spark.driver.maxResultSize" in message
    assert "slackwater.default.v does not go on" in message
