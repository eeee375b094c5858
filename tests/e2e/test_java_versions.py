"""The product runs on the newest Java that Spark supports and this machine has.

Other tests run on the Java of the command, which is often an older one. What differs between them
is where threads look for classes, what may touch memory outside the heap, and what Spark starts a
JVM with: each is needed by something here.
"""

from __future__ import annotations

import pytest
from tests.support.applications.application import Application, kill, only_coordinator
from tests.support.applications.class_archive import SHORT_LIVED
from tests.support.applications.java import newest
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

JOINED = "SELECT t.k, upper(n.name) AS name, twice(t.v) AS v FROM t JOIN n ON t.g = n.g"
GROUPED = "SELECT name, count(*) AS n, max(v) AS m FROM j GROUP BY name"
ROWS = 20_000


@pytest.fixture
def application(tmp_path):
    java = newest()
    variables = {"JAVA_HOME": str(java.home), "SPARK_SUBMIT_OPTS": SHORT_LIVED}
    with Application(tmp_path / "environment", variables=variables) as started:
        version = "spark._jvm.System.getProperty('java.specification.version')"
        assert started.python(f"result = {version}") == str(java.major)
        yield started


@pytest.mark.nightly
def test_the_newest_java_serves_everything_that_calls_into_the_jvm(application, tmp_path):
    """Views with joins, functions of Python, rows in memory outside the heap and in Parquet,
    look-ups by an index, sinks, sources, and a coordinator that is killed."""
    sql, rows = application.sql, application.rows
    sql("USE slackwater.default")
    sql("CREATE TABLE t (k INT, g INT, v INT)")
    sql("CREATE TABLE n (g INT, name STRING)")
    sql("INSERT INTO n VALUES (0, 'a'), (1, 'b')")
    application.python("spark.udf.register('twice', lambda v: v * 2, 'int')")
    sql(f"INSERT INTO t SELECT id, id % 3, id FROM range({ROWS})")
    sql(f"CREATE MATERIALIZED VIEW j AS {JOINED}")
    sql(
        "CREATE MATERIALIZED VIEW c AS SELECT name, count(*) AS n, max(v) AS m FROM j GROUP BY name"
    )
    sql("CREATE INDEX of_k ON t (k)")
    sql(f"CREATE SINK s FROM c INTO FILES (PATH '{tmp_path}/out', FORMAT JSON)")
    a, b = len(range(0, ROWS, 3)), len(range(1, ROWS, 3))
    assert rows("SELECT name, n FROM c ORDER BY name") == [["A", a], ["B", b]]

    sql("UPDATE t SET v = 100000 WHERE k = 3")
    sql("DELETE FROM t WHERE k = 1")
    assert rows("SELECT * FROM c ORDER BY name")[0] == ["A", a, 200000]
    assert rows("SELECT v FROM t WHERE k = 3") == [[100000]]

    kill(only_coordinator(application.location))
    sql("INSERT INTO t VALUES (-1, 1, 5)")
    assert rows("SELECT n FROM c ORDER BY name") == [[a], [b]]
    assert rows("SELECT v FROM t WHERE k = -1") == [[5]]
    sql(
        "CREATE SOURCE back (mz_diff BIGINT, name STRING, n BIGINT)"
        f" FROM FILES (PATH '{tmp_path}/out', FORMAT JSON, PATTERN '*.jsonl')"
    )
    written = "SELECT name, sum(n * mz_diff) FROM back GROUP BY name ORDER BY name"
    wait_until(
        lambda: rows(written) == [["A", a], ["B", b]] or None,
        what="the sink has written what the view is",
    )
