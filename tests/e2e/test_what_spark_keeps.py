"""What the coordinator has Spark do belongs to no statement of a user."""

from __future__ import annotations

import pytest
from tests.support.applications.application import Application
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

POOLS = """
context = spark._jsc.sc()
numbers = spark._jvm.java.util.ArrayList()
doubles = spark._sc._gateway.new_array(spark._jvm.double, 0)
stages = context.statusStore().stageList(None, False, False, doubles, numbers)
ran = {stages.apply(i).schedulingPool() for i in range(stages.size())}
result = [context.getSchedulingMode().toString(), sorted(ran)]
"""
KEPT = "result = spark._jsc.sc().dagScheduler().activeQueryToJobs().size()"


def test_jobs_of_ticks_are_not_kept_with_the_statement_that_came_first(tmp_path):
    """Spark keeps the jobs of an execution until it ends: the first one had all jobs of ticks.

    They have a pool of their own, so that no query waits for all of them.
    """
    with Application(tmp_path / "environment") as application:
        application.sql("USE slackwater.default")
        application.sql("CREATE TABLE t AS SELECT id AS k FROM range(10)")
        application.sql(
            "CREATE MATERIALIZED VIEW recomputed AS WITH RECURSIVE r AS (SELECT min(k) AS n FROM t"
            " UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT max(n) AS n FROM r"
        )
        assert application.value("SELECT n FROM recomputed") == 5
        application.sql("DELETE FROM t WHERE k < 7")
        assert application.value("SELECT n FROM recomputed") == 7
        assert application.value("SELECT count(*) FROM range(10)") == 10
        assert application.python(POOLS) == ["FAIR", ["default", "slackwater u1.u1 (100)"]]
        wait_until(lambda: application.python(KEPT) == 0, what="the end of all executions")
