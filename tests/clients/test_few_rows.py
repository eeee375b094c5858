"""Statements over few rows that are in the driver run no job."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import sum as sum_of
from pyspark.sql.functions import udf
from tests.support.applications.parts_coordinator import PartsCoordinator
from tests.support.applications.parts_values import KV, bag, jobs, kv, of, schema
from tests.support.applications.settings import under
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


@pytest.mark.parametrize(
    "query",
    [
        "SELECT min(c), max(c), count(*) FROM {0}",
        "SELECT v, min(c), max(c) FROM {0} GROUP BY v",
        "SELECT min(c), max(c), percentile(k, 0.5) FROM {0}",
        "SELECT v, min(c), collect_list(c) FROM {0} GROUP BY v",
        "SELECT v, min(c), count(DISTINCT k) FROM {0} GROUP BY v",
        "SELECT min(c), count(DISTINCT k), count(DISTINCT v) FROM {0}",
        "SELECT max_by(c, k), min_by(c, k), max(struct(c, k)) FROM {0}",
        "SELECT any_value(c), count(DISTINCT c) FROM {0} GROUP BY c",
        "SELECT k, min(c) OVER w, first_value(c) OVER w, lag(c) OVER w FROM {0} "
        "WINDOW w AS (PARTITION BY v ORDER BY k)",
        "SELECT k, nth_value(c, 2) OVER (ORDER BY k), max(c) OVER (ORDER BY k) FROM {0}",
        "SELECT max(CASE WHEN k = 1 THEN c END), max(CASE WHEN k = 2 THEN c END) FROM {0}",
    ],
)
@pytest.mark.parametrize("collation", ["UTF8_LCASE", "UNICODE"])
def test_aggregates_keep_texts_with_a_collation(
    spark: SparkSession, env: PartsCoordinator, query: str, collation: str
) -> None:
    """Spark's interpreted projections do not copy them out of a row that is used again."""
    rows = [(n, "xyz"[n % 3], f"{'xY'[n % 2]}{n}") for n in (5, 3, 8, 1, 9, 2, 7, 4, 6)]
    columns = schema(k="integer", v="string", c="string")
    columns["fields"][2]["metadata"] = {"__COLLATIONS": {"c": f"spark.{collation}"}}
    named = [dict(zip("kvc", row, strict=True)) for row in rows]
    arrow = kv().schema.append(pa.field("c", pa.string()))
    env.create("i", columns).put_inline(pa.Table.from_pylist(named, arrow), 20)
    typed = f"k INT, v STRING, c STRING COLLATE {collation}"
    spark.createDataFrame(rows, typed).createOrReplaceTempView("plain")
    some = "(SELECT v, c, k FROM {0} WHERE k > 0)"
    found, expected = (
        spark.sql(query.format(some).format(table)).collect() for table in ("i", "plain")
    )
    assert bag(found) == bag(expected)


FEW = ((1, "x"), (2, "y"), (3, "x"), (4, None), (2, "y"))
OTHERS = ((2, "b"), (3, "c"), (3, "d"), (5, "e"), (None, "f"))


def collected(frame: DataFrame, found: list[Row]) -> None:
    found.extend(frame.collect())


def joined_by(spark: SparkSession, adaptive: str, broadcast: str) -> AbstractContextManager[None]:
    names = ("spark.sql.adaptive.enabled", "spark.sql.autoBroadcastJoinThreshold")
    return under(spark, dict(zip(names, (adaptive, broadcast), strict=True)))


JOINED_BY = [("true", "10MB"), ("false", "-1")]
"""Adaptive execution, or none; the broadcast of a side, or a merge of both."""


@pytest.mark.parametrize(
    "query",
    [
        "SELECT i.k, i.v, j.v FROM {0} i JOIN {1} j ON i.k = j.k",
        "SELECT i.v, j.v FROM {0} i LEFT JOIN {1} j ON i.k = j.k AND i.v < j.v",
        "SELECT i.v, j.v FROM {0} i RIGHT JOIN {1} j ON i.k = j.k",
        "SELECT i.k, j.k FROM {0} i FULL JOIN {1} j ON i.k = j.k",
        "SELECT k, v FROM {0} WHERE k IN (SELECT k FROM {1})",
        "SELECT k, v FROM {0} i WHERE NOT EXISTS (SELECT 1 FROM {1} j WHERE i.k = j.k)",
        "SELECT k, EXISTS (SELECT 1 FROM {1} j WHERE i.k = j.k) AS found FROM {0} i",
        "SELECT /*+ SHUFFLE_HASH(j) */ i.k, j.v FROM {0} i FULL JOIN {1} j ON i.k = j.k",
        "SELECT /*+ SHUFFLE_REPLICATE_NL(j) */ i.k, j.v FROM {0} i JOIN {1} j ON i.k = j.k",
        "SELECT /*+ BROADCAST(i) */ i.k, j.v FROM {0} i JOIN {1} j ON i.k < j.k",
        "SELECT i.k, j.v FROM {0} i JOIN {1} j ON i.k < j.k",
        "SELECT i.k, j.v FROM {0} i CROSS JOIN {1} j",
        "SELECT a.k, c.v FROM {0} a JOIN {1} b ON a.k = b.k JOIN {1} c ON b.v <= c.v",
        "SELECT a.k, count(*) FROM {0} a JOIN {0} b ON a.k = b.k GROUP BY a.k",
        "SELECT i.k, j.v FROM {0} i JOIN {1} j ON i.k = j.k ORDER BY j.v DESC LIMIT 2",
        "SELECT i.k, j.v FROM {0} i JOIN {1} j USING (k) ORDER BY j.v LIMIT 2 OFFSET 1",
        "SELECT i.k FROM {0} i JOIN {1} j ON i.k = j.k UNION ALL SELECT id FROM range(3)",
        "SELECT id, count(v) FROM range(0, 6, 1, 3) LEFT JOIN {0} ON id = k GROUP BY id",
        "SELECT k, v FROM {0} EXCEPT ALL SELECT i.k, i.v FROM {0} i JOIN {1} j ON i.k = j.k",
        "SELECT i.k, i.v FROM {0} i JOIN {0} j USING (k) INTERSECT ALL SELECT k, v FROM {0}",
        "SELECT k, v FROM {0} UNION SELECT i.k, j.v FROM {0} i JOIN {1} j ON i.k = j.k",
        "SELECT k, count(*) FROM (SELECT k FROM {0} UNION ALL SELECT id FROM range(3) "
        "UNION ALL SELECT i.k FROM {0} i JOIN {1} j ON i.k = j.k) GROUP BY k",
        "SELECT a.k, a.v, b.n FROM (SELECT k, v FROM {0} UNION ALL SELECT k, v FROM {1}) a "
        "JOIN (SELECT k, count(*) AS n FROM {1} GROUP BY k UNION ALL SELECT 9, 9) b USING (k)",
        "SELECT k, sum(k) OVER (PARTITION BY v) FROM (SELECT * FROM {0} UNION ALL TABLE {1})",
        "SELECT DISTINCT id FROM range(0, 6, 1, 3) JOIN {0} ON id = k",
        "SELECT count(*) FROM (SELECT * FROM {0} UNION ALL TABLE {1}) WHERE k > 100",
        "SELECT k, v, count(*) FROM {0} GROUP BY GROUPING SETS ((k), (v), ())",
        "SELECT g.k, g.n, j.v FROM (SELECT k, v, count(*) AS n FROM {0} GROUP BY CUBE (k, v)) g "
        "JOIN {1} j ON g.k = j.k UNION ALL SELECT k, k, v FROM {0}",
        "SELECT a.x, b.k FROM (SELECT i.k AS x, j.k AS y FROM {0} i CROSS JOIN {1} j) a "
        "JOIN {1} b ON a.y = b.k UNION ALL SELECT k, k FROM {0}",
        "SELECT a.x, b.k FROM (SELECT i.k AS x, j.k AS y FROM {0} i FULL JOIN {1} j USING (k)) a "
        "JOIN {1} b ON a.y = b.k JOIN (SELECT explode(array(k, 2)) AS e FROM {0}) c ON c.e = b.k",
        "SELECT k, each FROM {0} LATERAL VIEW explode(array(v, 'z')) AS each",
        "SELECT k, v FROM (SELECT *, rank() OVER (PARTITION BY v ORDER BY k) AS n FROM {0}) "
        "WHERE n = 1",
    ],
)
def test_what_few_rows_are_joined_with_is_no_job(
    spark: SparkSession, env: PartsCoordinator, query: str
) -> None:
    for name, rows in (("i", FEW), ("j", OTHERS)):
        env.create(name, KV).put_inline(kv(*rows), 20)
        spark.createDataFrame(rows, "k INT, v STRING").createOrReplaceTempView(f"plain_{name}")
    expected = spark.sql(query.format("plain_i", "plain_j")).collect()
    for adaptive, broadcast in JOINED_BY:
        with joined_by(spark, adaptive, broadcast):
            frame = spark.sql(query.format("i", "j"))
            found: list[Row] = []
            assert jobs(spark, partial(collected, frame, found)) == 0
            if "ORDER BY j" in query:
                assert found == expected
            assert bag(found) == bag(expected)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a.k FROM {0} a JOIN {0} b ON a.v = b.v",
        "SELECT a.k FROM {0} a JOIN {0} b ON a.v = b.v JOIN {0} c ON c.v = b.v AND a.k = c.k",
        "SELECT a.k FROM {0} a FULL JOIN {0} b ON a.v = b.v",
        "SELECT k FROM {0} LATERAL VIEW explode(sequence(1, 100)) AS each",
    ],
)
def test_many_rows_of_few_are_a_job(spark: SparkSession, env: PartsCoordinator, query: str) -> None:
    """A part of them was computed before that was known."""
    env.create("i", KV).put_inline(kv(*((k, "x") for k in range(101))), 20)
    for adaptive, broadcast in JOINED_BY:
        with joined_by(spark, adaptive, broadcast):
            frame = spark.sql(query.format("i"))
            found: list[Row] = []
            assert jobs(spark, partial(collected, frame, found)) > 0
            assert len(found) == (101 * 100 if "explode" in query else 101 * 101)
            assert len(frame.tail(10_050)) == 10_050


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM {0} a JOIN {0} b ON a.v = b.v AND a.k > b.k + 2000",
        "SELECT count(*) FROM {0} a JOIN {0} b ON a.k > b.k + 2000",
    ],
)
def test_many_pairs_of_few_rows_are_a_job(
    spark: SparkSession, env: PartsCoordinator, query: str
) -> None:
    """Their conditions are computed where they can be cancelled, though no pair is a row."""
    env.create("i", KV).put_inline(kv(*((k, "x") for k in range(1001))), 20)
    frame = spark.sql(query.format("i"))
    found: list[Row] = []
    assert jobs(spark, lambda: found.extend(frame.collect())) > 0
    assert found == [Row(0)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k FROM i WHERE k NOT IN (SELECT k FROM j WHERE k IS NOT NULL OR k = 7)",
        "SELECT i.k FROM i LEFT JOIN j ON i.k < j.k WHERE j.k IS NULL",
        "SELECT k FROM i WHERE (SELECT v FROM j WHERE j.k = i.k) IS NULL",
    ],
)
def test_joins_that_need_a_broadcast_are_jobs(
    spark: SparkSession, env: PartsCoordinator, query: str
) -> None:
    env.create("i", KV).put_inline(kv((1, "x"), (7, "y")), 20)
    env.create("j", KV).put_inline(kv((1, "b"), (2, "c")), 20)
    found: list[Row] = []
    assert jobs(spark, lambda: found.extend(spark.sql(query).collect())) > 0
    assert found == [Row(7)]


CHANGES = [
    "DELETE FROM t WHERE k > 1",
    "UPDATE t SET v = concat(v, '!') WHERE k < 3",
    "DELETE FROM t WHERE EXISTS (SELECT 1 FROM j WHERE j.k = t.k)",
    "MERGE INTO t USING j ON t.k = j.k AND j.v <> 'c' WHEN MATCHED THEN UPDATE SET v = j.v "
    "WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE",
    "MERGE INTO t USING j ON t.k = j.k WHEN MATCHED THEN DELETE",
    "MERGE INTO t USING j ON t.k = j.k WHEN NOT MATCHED THEN INSERT *",
    "INSERT INTO t SELECT i.k, j.v FROM t i JOIN j ON i.k = j.k",
]


@pytest.mark.parametrize("statement", CHANGES)
def test_a_change_of_few_rows_is_no_job(
    spark: SparkSession, env: PartsCoordinator, statement: str, tmp_path: Path
) -> None:
    """It writes what it would write for rows in a file, which is a job."""
    env.create("j", KV).put_inline(kv(*OTHERS), 20)
    env.create("t", KV).put_inline(kv(*FEW), 20)
    assert jobs(spark, lambda: spark.sql(statement).collect()) == 0
    of_few = bag(spark.table("t").collect())
    env.create("f", KV).put_file(tmp_path / "f.parquet", kv(*FEW), 10, 1)
    of_file = re.sub(r"\bt\b", "f", statement)
    assert jobs(spark, lambda: spark.sql(of_file).collect()) > 0
    assert of_few == bag(spark.table("f").collect())


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
