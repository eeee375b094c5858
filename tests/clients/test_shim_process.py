"""The coordinator's process as the shim sees it: started, called, lost, ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from tests.support.applications.application import is_alive
from tests.support.applications.shim import (
    JARS,
    Environment,
    canned_base,
    canned_env,
    canned_ours,
    canned_spark,
    configure,
)
from tests.support.waiting import PATIENCE, wait_until

__all__ = ["canned_base", "canned_env", "canned_ours", "canned_spark"]

pytestmark = pytest.mark.spark


def test_what_the_process_is_given(spark: SparkSession, env: Environment) -> None:
    configure(spark, "spark.slackwater.metastore", "postgresql://someone@h/d")
    configure(spark, "spark.slackwater.metastore.password", "opensesame")
    spark.sql("SHOW SOURCES")
    start = env.starts()[0]
    assert start["SLACKWATER_METASTORE_PASSWORD"] == "opensesame"
    assert "slackwater.server" in start["arguments"][-1]
    assert start["SLACKWATER_APPLICATION"] == spark.sparkContext.applicationId
    assert start["SLACKWATER_METASTORE"] == "postgresql://someone@h/d"
    assert int(start["PYSPARK_GATEWAY_PORT"]) > 0
    assert os.getpgid(start["pid"]) == start["pid"]


@pytest.mark.parametrize("key", ["python", "location", "metastore"])
def test_what_a_session_sets_names_no_program_and_no_place(
    spark: SparkSession, env: Environment, tmp_path: Path, key: str
) -> None:
    """Who may only run SQL, over JDBC say, must not choose what runs in the driver's name."""
    spark.sql(f"SET spark.slackwater.{key} = {tmp_path}/chosen")
    spark.sql("SHOW SOURCES")
    (start,) = env.starts()
    assert start.get("SLACKWATER_METASTORE") is None
    assert not (tmp_path / "chosen").exists()


def test_spark_hides_the_metastores_password(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    pairs = jvm.java.util.ArrayList()
    for key in ("password", "passwordFile"):
        pairs.add(jvm.scala.Tuple2(f"spark.slackwater.metastore.{key}", "opensesame"))
    scala_pairs = jvm.scala.jdk.javaapi.CollectionConverters.asScala(pairs).toSeq()
    conf = spark.sparkContext._jsc.sc().conf()
    shown = jvm.org.apache.spark.util.Utils.redact(conf, scala_pairs).mkString(",")
    assert "metastore.password" in shown
    assert "opensesame" not in shown


def test_a_killed_coordinator_is_started_again(ours: SparkSession, env: Environment) -> None:
    ours.sql("CREATE TABLE t (a INT)")
    first = env.starts()[0]["pid"]
    os.kill(first, signal.SIGKILL)
    assert ours.table("slackwater.default.t").columns == ["a"]
    assert ours.sql("SHOW SOURCES").count() == 3
    assert len(env.starts()) == 2


def test_a_cancel_that_comes_before_the_coordinator_knows_the_statement_is_repeated(
    spark: SparkSession, env: Environment
) -> None:
    spark.sql("SHOW SOURCES")

    def run() -> str | None:
        spark.sparkContext.setJobGroup("deaf", "test")
        with pytest.raises(AnalysisException) as caught:
            spark.sql("CREATE SOURCE deaf")
        return caught.value.getCondition()

    with ThreadPoolExecutor(1) as pool:
        statement = pool.submit(run)
        wait_until(
            lambda: "CREATE SOURCE deaf" in [b.get("text") for b in env.calls("/v1/execute")]
        )
        spark.sparkContext.cancelJobGroup("deaf")
        assert statement.result(PATIENCE) == "SLACKWATER_CANCELED"
    assert len(env.calls("/v1/cancel")) == 2


def test_a_statement_whose_coordinator_dies_is_not_repeated(
    spark: SparkSession, env: Environment
) -> None:
    with pytest.raises(AnalysisException) as caught:
        spark.sql("CREATE SOURCE die")
    assert caught.value.getCondition() == "SLACKWATER_STATEMENT_INTERRUPTED"
    assert caught.value.getSqlState() == "57P02"
    assert len(env.calls("/v1/execute")) == 1
    assert spark.sql("SHOW SOURCES").count() == 3
    assert len(env.starts()) == 2


def test_a_commit_without_an_answer_is_asked_for_again(
    ours: SparkSession, env: Environment
) -> None:
    ours.sql("BEGIN")
    ours.sql("COMMIT WORK")
    _, first, again = env.calls("/v1/execute")
    assert first["write_id"] == again["write_id"]
    assert len(env.starts()) == 2
    ours.sql("COMMIT")
    assert env.calls("/v1/execute")[-1]["write_id"] != first["write_id"]


def test_a_commit_that_nobody_can_answer_is_unknown(ours: SparkSession, env: Environment) -> None:
    (env.location / "asked").unlink(missing_ok=True)
    ours.sql("SHOW SOURCES")
    (env.location / "refuse-start").touch()
    with pytest.raises(AnalysisException) as caught:
        ours.sql("COMMIT WORK")
    assert caught.value.getCondition() == "SLACKWATER_STATEMENT_INTERRUPTED"
    (env.location / "refuse-start").unlink()
    assert ours.sql("SHOW SOURCES").count() == 3


def test_a_coordinator_that_nobody_reaches(spark: SparkSession, env: Environment) -> None:
    (env.location / "nobody-listens").touch()
    with pytest.raises(AnalysisException) as caught:
        spark.sql("SHOW SOURCES")
    assert caught.value.getCondition() == "SLACKWATER_COORDINATOR_UNAVAILABLE"
    assert caught.value.getSqlState() == "08006"
    (env.location / "nobody-listens").unlink()
    assert spark.sql("SHOW SOURCES").count() == 3


def test_a_coordinator_that_cannot_start(spark: SparkSession, env: Environment) -> None:
    (env.location / "refuse-start").touch()
    with pytest.raises(AnalysisException) as caught:
        spark.sql("SHOW SOURCES")
    assert caught.value.getCondition() == "SLACKWATER_COORDINATOR_START"
    assert caught.value.getSqlState() == "08001"
    assert "ValueError: no good reason" in str(caught.value)
    assert "Traceback" not in str(caught.value)
    (env.location / "refuse-start").unlink()
    assert spark.sql("SHOW SOURCES").count() == 3


def test_a_driver_of_its_own_starts_one_process_that_ends_with_it(
    base: SparkSession, env: Environment
) -> None:
    program = """
import sys, threading
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]")
for pair in sys.argv[1:]:
    builder = builder.config(*pair.split("=", 1))
spark = builder.getOrCreate()
counts = []
def run():
    counts.append(spark.newSession().sql("SHOW SOURCES").count())
threads = [threading.Thread(target=run) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
assert counts == [3] * 4, counts
print("JVM", spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid(), flush=True)
parser = spark._jsparkSession.sessionState().sqlParser()
print("PARSER", parser.delegate().getClass().getSimpleName(), flush=True)
sys.stdin.read()
"""
    env.location.mkdir()
    settings = {
        "spark.jars": str(JARS[0]),
        "spark.ui.enabled": "false",
        "spark.sql.extensions": "io.slackwater.SlackwaterExtensions",
        "spark.sql.catalog.slackwater": "io.slackwater.SlackwaterCatalog",
        "spark.slackwater.python": base.conf.get("spark.slackwater.python"),
        "spark.slackwater.location": str(env.location),
    }
    command = [sys.executable, "-c", program, *(f"{k}={v}" for k, v in settings.items())]
    clean = {
        name: value
        for name, value in os.environ.items()
        if name == "SPARK_SUBMIT_OPTS" or not name.startswith(("PYSPARK_", "_PYSPARK_", "SPARK_"))
    }
    driver = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean
    )
    try:
        assert driver.stdout is not None
        said = dict([driver.stdout.readline().split(), driver.stdout.readline().split()])
        assert said["PARSER"] == "SparkSqlParser"
        starts = env.starts()
        assert len(starts) == 1
        coordinator = starts[0]["pid"]
        assert is_alive(coordinator)
        os.kill(int(said["JVM"]), signal.SIGKILL)
        wait_until(lambda: not is_alive(coordinator), what="the end of the coordinator")
    finally:
        driver.kill()
        driver.wait()


def test_the_end_of_a_session_is_told(spark: SparkSession, env: Environment) -> None:
    hooks = spark.sparkContext._jvm.org.apache.spark.sql.slackwater.process
    handle = hooks.SparkSessions.coordinator(spark._jsparkSession)
    handle.closeSession("nobody")
    assert not env.starts()
    spark.sql("SHOW SOURCES")
    name = env.calls("/v1/execute")[0]["session"]
    handle.closeSession(name)
    assert env.calls("/v1/session/close") == [{"session": name}]
