"""Statements over few rows that are in the driver run no job."""

from __future__ import annotations

import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import Row, SparkSession
from pyspark.sql.functions import sum as sum_of
from pyspark.sql.functions import udf
from tests.support.applications.parts_coordinator import PartsCoordinator
from tests.support.applications.parts_values import KV, bag, jobs, kv, of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*), sum(k), max(v) FROM {0}",
        "SELECT count(*) FROM {0} WHERE k > 7",
        "SELECT v, count(*), collect_list(k) FROM {0} GROUP BY v HAVING count(*) > 1",
        "SELECT DISTINCT v FROM {0}",
        "SELECT k FROM {0} ORDER BY v DESC, k",
        "SELECT k + 1 AS n FROM {0} ORDER BY v DESC, k LIMIT 2 OFFSET 1",
        "SELECT k FROM {0} ORDER BY k LIMIT 2",
        "SELECT k, row_number() OVER (PARTITION BY v ORDER BY k) FROM {0}",
        "SELECT k FROM {0} UNION ALL SELECT id FROM range(3)",
    ],
)
def test_few_rows_are_computed_without_a_job(
    spark: SparkSession, env: PartsCoordinator, query: str
) -> None:
    env.create("i", KV).put_inline(kv((1, "x"), (2, "y"), (3, "x"), (4, None), (2, "y")), 20)
    rows = [(1, "x"), (2, "y"), (3, "x"), (4, None), (2, "y")]
    spark.createDataFrame(rows, "k INT, v STRING").createOrReplaceTempView("plain")
    frame = spark.sql(query.format("i"))
    found: list[Row] = []
    assert jobs(spark, lambda: found.extend(frame.collect())) == 0
    expected = spark.sql(query.format("plain")).collect()
    if "ORDER BY" in query.rpartition("FROM")[2]:
        assert found == expected
    assert bag(found) == bag(expected)
    assert frame.count() == len(expected)
    assert frame.take(2) == found[:2]
    assert frame.tail(1) == found[-1:]


def test_adaptive_execution_does_not_run_few_rows(
    spark: SparkSession, env: PartsCoordinator
) -> None:
    """It would compile their plan, and wait for a thread that runs it."""
    env.create("i", KV).put_inline(kv((1, "x"), (2, "y"), (3, "x")), 20)
    frame = spark.sql("SELECT v, count(*), sum(k) FROM i GROUP BY v")
    assert bag(frame.collect()) == of(("x", 2, 4), ("y", 1, 2))
    assert "isFinalPlan=false" in frame._jdf.queryExecution().executedPlan().toString()
    inner = "(SELECT min(k) FROM i WHERE v <> (SELECT min(v) FROM i))"
    assert spark.sql(f"SELECT v, sum(k) FROM i WHERE k > {inner} GROUP BY v").collect() == [
        Row("x", 3)
    ]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT max(k), v FROM i GROUP BY v",
        "SELECT k, max(v) OVER (ORDER BY k) FROM i",
        "SELECT CAST(sum(id) AS INT), 'sum' FROM range(0, 5, 1, 1)",
    ],
)
def test_an_insert_of_few_rows_is_no_job(
    spark: SparkSession, env: PartsCoordinator, query: str
) -> None:
    env.create("i", KV).put_inline(kv((1, "x"), (2, "y"), (3, "x"), (4, None)), 20)
    env.create("t", KV)
    assert jobs(spark, lambda: spark.sql(f"INSERT INTO t {query}").collect()) == 0
    assert bag(spark.table("t").collect()) == bag(spark.sql(query).collect())


def test_a_function_of_the_user_is_a_job(spark: SparkSession, env: PartsCoordinator) -> None:
    """It may do anything, and can be cancelled there."""
    env.create("i", KV).put_inline(kv((1, "x"), (2, "y")), 20)
    twice = udf(lambda k: 2 * k, "int", useArrow=False)
    frame = spark.table("i").agg(sum_of(twice("k")))
    found: list[Row] = []
    assert jobs(spark, lambda: found.extend(frame.collect())) > 0
    assert found == [Row(6)]


def test_a_method_by_its_name_is_a_job(spark: SparkSession, env: PartsCoordinator) -> None:
    env.create("i", KV).put_inline(kv((-1, "x"), (2, "y")), 20)
    frame = spark.sql("SELECT v FROM i WHERE reflect('java.lang.Math', 'abs', k) = '1'")
    found: list[Row] = []
    assert jobs(spark, lambda: found.extend(frame.collect())) > 0
    assert found == [Row("x")]


def test_many_rows_are_a_job(spark: SparkSession, env: PartsCoordinator) -> None:
    env.create("i", KV).put_inline(kv(*((k, "x") for k in range(10_001))), 20)
    frame = spark.sql("SELECT sum(k) FROM i")
    found: list[Row] = []
    assert jobs(spark, lambda: found.extend(frame.collect())) > 0
    assert found == [Row(sum(range(10_001)))]


def test_an_error_is_the_one_of_a_job(spark: SparkSession, env: PartsCoordinator) -> None:
    env.create("i", KV).put_inline(kv((0, "x"), (2, "y")), 20)
    with pytest.raises(ArithmeticException) as refused:
        spark.sql("SELECT max(1 / k) FROM i").collect()
    assert refused.value.getCondition() == "DIVIDE_BY_ZERO"


def test_spark_learns_how_many_rows_there_were(spark: SparkSession, env: PartsCoordinator) -> None:
    env.create("i", KV).put_inline(kv((1, "x"), (2, "y"), (3, "x")), 20)
    frame = spark.sql("SELECT v, count(*) FROM i GROUP BY v")
    frame.collect()
    # Spark's listeners hear of an execution after its answer.
    wait_until(lambda: "3" in str(metrics_of_the_last(spark)), what="the number of rows")


def metrics_of_the_last(spark: SparkSession):
    store = spark._jsparkSession.sharedState().statusStore()
    return store.executionMetrics(store.executionsList().last().executionId())
