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


POOLS = """
root = spark.sparkContext._jsc.sc().getPoolForName('slackwater').get()
pools = root.schedulableQueue().iterator()
result = []
while pools.hasNext():
    pool = pools.next()
    result.append([pool.name(), pool.weight()])
"""


@pytest.mark.nightly
def test_each_replica_has_a_pool_with_its_weight(workplace, cluster):
    workplace.sql("CREATE TABLE t (k BIGINT)")
    workplace.sql("INSERT INTO t SELECT id FROM range(0, 60000, 1, 2)")
    before = max(job for job, _, _ in workplace.application.python(JOBS))
    workplace.sql(
        f"CREATE MATERIALIZED VIEW v IN CLUSTER {cluster} AS"
        " SELECT k % 5 AS r, sum(k) FROM t GROUP BY 1"
    )
    assert len(workplace.rows("SELECT * FROM v")) == 5
    (mine,) = workplace.rows(
        "SELECT r.cluster_id, r.id FROM mz_catalog.mz_cluster_replicas r"
        f" JOIN mz_catalog.mz_clusters c ON c.id = r.cluster_id WHERE c.name = '{cluster}'"
    )
    replica = f"slackwater {mine[0]}.{mine[1]}"
    pool = f"{replica} (25)"
    ran = {each for job, _, each in workplace.application.python(JOBS) if job > before}
    assert ran - {"default"} == {pool}
    assert [pool, 25] in workplace.application.python(POOLS)
    workplace.sql(f"ALTER CLUSTER {cluster} SET (SIZE = '400cc')")
    workplace.sql("INSERT INTO t SELECT id FROM range(0, 60000, 1, 2)")
    assert workplace.value("SELECT count(*) FROM v") == 5
    assert [f"{replica} (400)", 400] in workplace.application.python(POOLS)


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
    assert of_ticks == {"slackwater u1.u1 (100)"}
    assert {pool for group, pool in ran if group is None} == {"default"}


def test_views_over_few_rows_are_filled_and_followed_without_a_job(workplace):
    workplace.sql("CREATE TABLE t (k BIGINT, v INT)")
    workplace.sql("INSERT INTO t SELECT id, id % 7 FROM range(500)")
    before = max((job for job, _, _ in workplace.application.python(JOBS)), default=-1)
    views = {
        "filtered": ("SELECT k + v AS n FROM t WHERE v > 2 AND k % 2 = 0", 142),
        "grouped": ("SELECT v, count(*) AS n, sum(k) AS k FROM t GROUP BY v", 7),
        "different": ("SELECT DISTINCT v FROM t", 7),
    }
    for name, (query, rows) in views.items():
        workplace.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        assert workplace.value(f"SELECT count(*) FROM {name}") == rows
    workplace.sql("INSERT INTO t VALUES (500, 0)")
    assert workplace.value("SELECT n FROM grouped WHERE v = 0") == 73
    assert max((job for job, _, _ in workplace.application.python(JOBS)), default=-1) == before


@pytest.mark.nightly
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
            application.python("import gc; gc.collect(); spark._jvm.System.gc(); result = None")
            return application.value(HOLDS) == 0

        wait_until(none_left)
