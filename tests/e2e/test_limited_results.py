"""A view whose jobs tell the driver more than it takes says which setting stops it."""

import pytest
from tests.support.applications.application import Application, wait_until

pytestmark = pytest.mark.spark

STALLED = "SELECT message FROM mz_internal.mz_notices WHERE notice_type = 'stalled view'"


def test_a_view_names_the_limit_of_results(tmp_path):
    limited = {"spark.driver.maxResultSize": "200k"}
    with Application(tmp_path / "environment", master="local[2]", conf=limited) as application:
        application.sql("USE slackwater")
        application.sql("CREATE TABLE t AS SELECT id AS k, uuid() AS s FROM range(0, 60000, 1, 4)")
        application.sql(
            "CREATE MATERIALIZED VIEW v AS SELECT a.k, b.s FROM t a JOIN t b ON a.k = b.k"
        )
        ((message,),) = wait_until(lambda: application.rows(STALLED))
        assert "[SLACKWATER_RESULT_TOO_LARGE]" in message
        assert "Raise spark.driver.maxResultSize" in message
        assert "slackwater.default.v does not go on" in message
