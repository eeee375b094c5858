"""Jobs that ticks run are told apart from those of users, and none is left of what is over."""

from __future__ import annotations

import pytest
from tests.support.applications.application import Application, wait_until

pytestmark = pytest.mark.spark

JOBS = """
from py4j.protocol import Py4JJavaError
store = spark.sparkContext._jsc.sc().statusStore()
jobs = store.jobsList(spark._jvm.java.util.ArrayList()).iterator()
result = []
while jobs.hasNext():
    job = jobs.next()
    stages = job.stageIds().iterator()
    group = job.jobGroup().get() if job.jobGroup().isDefined() else None
    while stages.hasNext():
        try:
            pool = store.lastStageAttempt(stages.next()).schedulingPool()
        except Py4JJavaError:
            continue  # Spark keeps the last thousand stages.
        result.append([job.jobId(), group, pool])
"""

HOLDS = "SELECT count(*) FROM mz_internal.mz_read_holds WHERE kind = 'statement'"


def test_a_tick_reads_files_in_the_pool_of_views(workplace):
    workplace.sql("CREATE TABLE t (k BIGINT, s STRING)")
    workplace.sql(
        "CREATE MATERIALIZED VIEW v AS SELECT k % 5 AS r, count(*) AS n FROM t GROUP BY 1"
    )
    assert workplace.rows("SELECT * FROM v") == []
    before = max((job for job, _, _ in workplace.application.python(JOBS)), default=-1)
    workplace.sql("INSERT INTO t SELECT id, repeat('x', 100) FROM range(0, 60000, 1, 2)")
    assert workplace.value("SELECT sum(n) FROM v") == 60000
    ran = [(group, pool) for job, group, pool in workplace.application.python(JOBS) if job > before]
    of_ticks = {pool for group, pool in ran if group is not None and group.startswith("slackwater")}
    assert of_ticks == {"slackwater"}
    assert {pool for group, pool in ran if group is None} == {"default"}


def test_holds_end_though_spark_drops_the_events_of_executions(tmp_path):
    few = {"spark.scheduler.listenerbus.eventqueue.shared.capacity": "1"}
    with Application(tmp_path / "environment", master="local[2]", conf=few) as application:
        application.sql("USE slackwater")
        application.sql("CREATE TABLE t AS SELECT id AS k FROM range(0, 60000, 1, 4)")
        for _ in range(40):
            application.sql("SELECT count(*) FROM t WHERE k > 1")
        dropped = application.python(
            "context = spark.sparkContext._jsc.sc()\n"
            "found = context.listenerBus().metrics().metricRegistry().getCounters()\n"
            "result = found.get('queue.shared.numDroppedEvents').getCount()\n"
        )
        assert dropped > 0

        def none_left():
            application.python("spark._jvm.java.lang.System.gc()\nresult = None")
            return application.value(HOLDS) == 0

        wait_until(none_left)
