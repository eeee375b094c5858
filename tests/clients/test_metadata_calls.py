"""JDBC's metadata calls of Spark's Thrift server show Slackwater's objects beside Spark's."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from tests.support.applications.application import CONF, coordinators
from tests.support.applications.metadata import connected
from tests.support.applications.shim import (
    JARS,
    Environment,
    canned_base,
    canned_env,
    canned_ours,
    canned_spark,
)
from tests.support.applications.spark_servers import beeline, server, spark_s_own_server
from tests.support.server.ingress import held_port
from tests.support.waiting import PATIENCE, wait_until

__all__ = ["canned_base", "canned_env", "canned_ours", "canned_spark"]

pytestmark = pytest.mark.spark

OURS = "org.apache.spark.sql.hive.thriftserver.slackwater.OperationManagers$"
TYPES = ["MATERIALIZED VIEW", "SOURCE", "SYSTEM TABLE", "TABLE", "VIEW"]
FIND = ("find_schemas", "find_relations", "find_columns")


def is_loaded(spark: SparkSession, name: str) -> bool:
    """Whether the JVM has loaded a class of our jar."""
    jvm = spark.sparkContext._jvm
    text = jvm.java.lang.Class.forName("java.lang.String")
    parameters = spark.sparkContext._gateway.new_array(jvm.java.lang.Class, 1)
    parameters[0] = text
    find = jvm.java.lang.Class.forName("java.lang.ClassLoader").getDeclaredMethod(
        "findLoadedClass", parameters
    )
    find.setAccessible(True)
    arguments = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 1)
    arguments[0] = name
    loader = spark._jsparkSession.sessionState().sqlParser().getClass().getClassLoader()
    return find.invoke(loader, arguments) is not None


@contextlib.contextmanager
def started(spark: SparkSession) -> Iterator[int]:
    """The port of a Thrift server that the application starts by itself."""
    thrift = spark.sparkContext._jvm.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    with held_port() as port:
        settings.set("hive.server2.thrift.port", str(port))
        settings.set("hive.server2.thrift.bind.host", "127.0.0.1")
        # A thread that has started one keeps its settings.
        with ThreadPoolExecutor(1) as thread:
            start = thread.submit(thrift.startWithSparkSession, spark._jsparkSession, False)
            running = start.result()
        try:
            yield port
        finally:
            running.stop()


def calls(env: Environment) -> list[str]:
    return [name for name in FIND for _ in env.calls(f"/v1/catalog/{name}")]


@contextlib.contextmanager
def unconfigured(spark: SparkSession) -> Iterator[None]:
    """The application as one that has the jar, and nothing else of ours."""
    conf = spark.sparkContext._jsc.sc().conf()
    found = {each._1(): each._2() for each in conf.getAllWithPrefix("spark.slackwater.")}
    for name in found:
        conf.remove(f"spark.slackwater.{name}")
    conf.set("spark.slackwater.implied", "true")
    try:
        yield
    finally:
        conf.remove("spark.slackwater.implied")
        for name, value in found.items():
            conf.set(f"spark.slackwater.{name}", value)


def test_what_nobody_uses_is_not_loaded(base):
    """Must come first in its JVM."""
    base.newSession().sql("USE default")
    assert is_loaded(base, "org.apache.spark.sql.slackwater.thrift.ThriftServer$")
    assert not is_loaded(base, OURS)


@pytest.fixture(scope="module")
def port(base):
    with started(base) as port:
        yield port


@pytest.fixture
def plain(base):
    """A table of Spark's own."""
    base.sql("CREATE TABLE spark_catalog.default.plain (p INT NOT NULL, q STRING) USING parquet")
    yield ("spark_catalog", "default", "plain", "TABLE", "")
    base.sql("DROP TABLE spark_catalog.default.plain")


@pytest.fixture
def table(ours):
    """A table of ours in the canned catalog."""
    ours.sql("CREATE TABLE t (k INT COMMENT 'the key', v DECIMAL(10, 2)) COMMENT 'ours'")
    return ("slackwater", "default", "t", "TABLE", "ours")


def test_both_catalogs_are_listed(port, ours, env, plain, table):
    with connected(ours, port) as metadata:
        assert metadata.catalogs() == ["slackwater", "spark_catalog"]
        assert metadata.types() == TYPES
        assert calls(env) == [], "neither needs a coordinator"
        mine = [("slackwater", "default"), ("slackwater", "mz_catalog")]
        sparks = [("spark_catalog", "default"), ("spark_catalog", "global_temp")]
        for both in (None, "", "%"):
            assert metadata.schemas(both) == [*mine, *sparks]
        assert metadata.schemas("slackwater") == mine
        assert metadata.schemas("spark_catalog") == sparks
        assert metadata.tables() == [table, plain]
        names = [(row[0], row[2], row[3], row[16]) for row in metadata.columns("")]
        assert names == [
            ("slackwater", "t", "k", 1),
            ("slackwater", "t", "v", 2),
            ("spark_catalog", "plain", "p", 1),
            ("spark_catalog", "plain", "q", 2),
        ]
        assert [row[3] for row in metadata.columns("slackwater")] == ["k", "v"]
        assert [row[3] for row in metadata.columns("spark_catalog")] == ["p", "q"]


def test_a_temporary_view_has_no_catalog(port, ours, table):
    with connected(ours, port) as metadata:
        metadata.sql("CREATE TEMPORARY VIEW temporary AS SELECT 1 AS one")
        assert ("", None, "temporary", "VIEW", "") in metadata.tables()
        assert [row[:4] for row in metadata.columns(None, None, "temporary")][-1] == (
            None,
            None,
            "temporary",
            "one",
        )


def test_patterns_and_types_go_to_the_coordinator_as_they_are(port, ours, env, table):
    with connected(ours, port) as metadata:
        metadata.tables(r"de\_f%", "T_", ["VIEW", "SOURCE"])
        metadata.columns("slackwater", "", "`t`", "K%")
        metadata.schemas("slackwater", "s")
    (asked,) = env.calls("/v1/catalog/find_relations")
    assert (asked["schemas"], asked["names"]) == (r"de\_f%", "T_")
    assert asked["types"] == ["VIEW", "SOURCE"]
    (asked,) = env.calls("/v1/catalog/find_columns")
    assert asked["schemas"] is None, "Spark finds all schemas for an empty text as well"
    assert (asked["names"], asked["columns"]) == ("`t`", "K%")
    assert env.calls("/v1/catalog/find_schemas")[0]["schemas"] == "s"
    assert asked["context"]["user"] == "anonymous"


def put_many(env: Environment, number: int, **columns: Any) -> None:
    """Tables in the canned catalog, before anybody has asked for it."""
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in columns.items()
    ]
    objects = {
        f"default.t{at}": {
            "id": f"u{at}",
            "kind": "table",
            "schema_name": "default",
            "name": f"t{at}",
            "schema": {"type": "struct", "fields": fields},
            "comment": None,
        }
        for at in range(number)
    }
    text = json.dumps({"objects": objects, "namespaces": ["default"]})
    (env.location / "catalog.json").write_text(text)


def test_many_objects_are_one_call(port, spark, env):
    put_many(env, 1000, k="integer", v="string")
    with connected(spark, port) as metadata:
        assert len(metadata.columns("slackwater", None, "%", "%")) == 2000
        assert calls(env) == ["find_columns"]
        assert len(metadata.tables("default", "t%", ["TABLE"])) == 1000
        assert calls(env) == ["find_relations", "find_columns"]
    assert env.calls("/v1/catalog/load") == []
    assert env.calls("/v1/catalog/list") == []


def test_a_type_that_this_spark_does_not_know_has_a_name(port, spark, env):
    put_many(env, 1, k="strange", s={"type": "odd", "of": "integer"}, v="long")
    with connected(spark, port) as metadata:
        shown = [row[3:7] for row in metadata.columns("slackwater")]
    assert shown == [("k", 1111, "STRANGE", None), ("s", 1111, "ODD", None), ("v", -5, "BIGINT", 8)]


def error_of(call, *arguments):
    with pytest.raises(Py4JJavaError) as refused:
        call(*arguments)
    return refused.value.java_exception


def test_an_error_of_the_coordinator_is_one_of_jdbc(port, ours, env, plain, table):
    with connected(ours, port) as metadata:
        for call, arguments in (
            (metadata.schemas, ("slackwater", "FAIL")),
            (metadata.schemas, (None, "FAIL")),
            (metadata.tables, ("FAIL",)),
            (metadata.columns, (None, "FAIL")),
        ):
            error = error_of(call, *arguments)
            assert error.getSQLState() == "58030"
            text = "[SLACKWATER_STORAGE] The metastore cannot be reached. SQLSTATE: 58030"
            assert error.getMessage() == text
        before = calls(env)
        assert metadata.catalogs() == ["slackwater", "spark_catalog"]
        assert metadata.types() == TYPES
        assert metadata.schemas("spark_catalog", "FAIL") == []
        assert [row[3] for row in metadata.columns("spark_catalog")] == ["p", "q"]
        assert calls(env) == before, "Spark's own catalog needs no coordinator"
        assert metadata.tables() == [table, plain], "the connection goes on"


def test_who_has_the_jar_alone_gets_sparks_answers(port, spark, env, plain):
    with unconfigured(spark), connected(spark, port) as metadata:
        assert metadata.catalogs() == []
        assert metadata.types() == ["TABLE", "VIEW"]
        assert metadata.schemas() == [("", "default"), ("", "global_temp")]
        assert metadata.tables() == [("", *plain[1:])]
        assert [row[:4] for row in metadata.columns()] == [
            (None, "default", "plain", "p"),
            (None, "default", "plain", "q"),
        ]
        assert metadata.schemas("elsewhere") == metadata.schemas()
    assert env.starts() == []


def test_a_session_with_slackwater_off_gets_sparks_answers(port, ours, env, plain):
    with connected(ours, port) as metadata:
        metadata.sql("SET spark.slackwater.enabled = false")
        assert metadata.catalogs() == []
        assert metadata.tables() == [("", *plain[1:])]
        assert metadata.schemas("slackwater") == [("", "default"), ("", "global_temp")]
    assert calls(env) == []


@pytest.mark.nightly
def test_spark_s_own_script(base, tmp_path):
    """It shows what Spark shows until a session has to do with Slackwater: then both."""
    location = tmp_path / "slackwater-environment"
    arguments = ["--jars", str(JARS[0]), "--conf", "spark.sql.catalogImplementation=in-memory"]
    for key, value in CONF.items():
        arguments += ["--conf", f"{key}={value}"]
    with spark_s_own_server(location, tmp_path, *arguments) as served:
        wait_until(lambda: opens(base, served.port), what="the server takes connections")
        with connected(base, served.port) as metadata:
            metadata.sql("CREATE TABLE plain (k INT) USING parquet")
            assert metadata.catalogs() == []
            assert metadata.tables() == [("", "default", "plain", "TABLE", "")]
            assert coordinators(location) == []
            assert ("slackwater", "mz_catalog") in metadata.schemas("slackwater")
            assert metadata.catalogs() == ["slackwater", "spark_catalog"]
            (mine, sparks) = metadata.tables("%", "%", ["TABLE", "SYSTEM TABLE"])[-2:]
            assert mine[0] == "slackwater"
            assert sparks == ("spark_catalog", "default", "plain", "TABLE", "")
        with connected(base, served.port) as another:
            assert another.tables() == [("", "default", "plain", "TABLE", "")]


def opens(spark: SparkSession, port: int) -> bool:
    """Whether the server opens a connection: it does a little after it has begun to listen."""
    try:
        with connected(spark, port):
            return True
    except Py4JJavaError:
        return False


def test_connections_that_are_opened_at_once(base, ours, table):
    """Whichever is first, none is left with the operations that were there before."""

    def tables(port):
        with connected(ours, port) as metadata:
            metadata.sql("SELECT 1")
            return metadata.tables()

    with started(base) as port, ThreadPoolExecutor(6) as threads:
        for found in threads.map(tables, [port] * 6):
            assert table in found


def test_connections_that_were_there_before(base, ours, table):
    """They see our objects from the next connection on, and what they were doing goes on."""
    thrift = base.sparkContext._jvm.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2
    with started(base) as port:
        listener = thrift.listener()
        getattr(thrift, "listener_$eq")(None)
        with connected(ours, port) as early:
            assert early.catalogs() == [], "a server that cannot be found shows what Spark shows"
            result = early.begin("SELECT explode(sequence(1, 3)) AS n ORDER BY n")
            getattr(thrift, "listener_$eq")(listener)
            with connected(ours, port) as late:
                assert table in late.tables()
            assert early.fetch(result) == [(1,), (2,), (3,)]
            assert table in early.tables()


def test_connections_that_share_a_session(base, ours, table):
    """No session begins with a connection: the USE of its schema tells of it."""
    conf = base._jsparkSession.sessionState().conf()
    conf.setConfString("spark.sql.hive.thriftServer.singleSession", "true")
    try:
        with started(base) as port, connected(ours, port) as metadata:
            assert table in metadata.tables()
    finally:
        conf.unsetConf("spark.sql.hive.thriftServer.singleSession")


DEFINITIONS = """
USE slackwater.default;
CREATE SCHEMA sales;
CREATE TABLE t (
  k INT NOT NULL COMMENT 'the key', d DECIMAL(10, 2), c CHAR(3), v VARCHAR(5),
  s STRUCT<a: INT NOT NULL, `b c`: ARRAY<STRING>>, m MAP<STRING, DOUBLE>,
  x STRING COLLATE UTF8_LCASE
) COMMENT 'a table';
CREATE TABLE t_1 (k INT);
CREATE TABLE tx1 (k INT);
CREATE TABLE sales.`Odd.na``me ü` (`Größe` TIMESTAMP);
CREATE VIEW vw AS SELECT k, INTERVAL '1' DAY AS i, parse_json('1') AS j FROM t;
CREATE MATERIALIZED VIEW mv AS SELECT k FROM t;
CREATE SOURCE src FROM LOAD GENERATOR COUNTER;
CREATE SECRET hidden AS 'x';
CREATE INDEX ix ON t (k);
CREATE TABLE spark_catalog.default.plain (p INT) USING parquet;
"""

OF_COLUMNS = [
    ("k", 4, "INT", 4, 0, "NO", "the key"),
    ("d", 3, "DECIMAL(10,2)", 10, 2, "YES", ""),
    ("c", 1, "CHAR(3)", 3, None, "YES", ""),
    ("v", 12, "VARCHAR(5)", 5, None, "YES", ""),
    ("s", 2002, "STRUCT<a: INT NOT NULL, `b c`: ARRAY<STRING>>", None, None, "YES", ""),
    ("m", 2000, "MAP<STRING, DOUBLE>", None, None, "YES", ""),
    ("x", 12, "STRING COLLATE UTF8_LCASE", None, None, "YES", ""),
]


def test_a_server_shows_what_there_is(base, tmp_path):
    with server("thriftserver", tmp_path / "environment", tmp_path) as served:
        script = tmp_path / "definitions.sql"
        script.write_text(DEFINITIONS)
        shell(served.port, tmp_path, "-f", str(script))
        with connected(base, served.port) as metadata:
            of_all_kinds(metadata)
            columns = metadata.columns("slackwater", "default", "t")
            shown = [(row[3], row[4], row[5], row[6], row[8], row[17], row[11]) for row in columns]
            assert shown == OF_COLUMNS
            assert [row[16] for row in columns] == [1, 2, 3, 4, 5, 6, 7]
            assert [row[10] for row in columns] == [0, 1, 1, 1, 1, 1, 1]
            of_a_view = [row[3:6] for row in metadata.columns(None, "DEFAULT", "Vw")]
            assert of_a_view == [
                ("k", 4, "INT"),
                ("i", 1111, "INTERVAL DAY"),
                ("j", 1111, "VARIANT"),
            ]
            (odd,) = metadata.columns(None, "sal_s", "odd.na`me %", "GRÖ%")
            assert odd[:4] == ("slackwater", "sales", "Odd.na`me ü", "Größe")
            by_pattern = {row[2] for row in metadata.tables("default", "t_1")}
            assert by_pattern == {"t_1", "tx1"}
            assert [row[2] for row in metadata.tables("default", r"t\_1")] == ["t_1"]
            views = {row[2] for row in metadata.tables("default", "%", ["VIEW", "SOURCE"])}
            assert views == {"vw", "src", "src_progress"}
            (system,) = metadata.tables(None, "mz_tables")
            assert system[:4] == ("slackwater", "mz_catalog", "mz_tables", "SYSTEM TABLE")
        listed = shell(served.port, tmp_path, "-e", "!tables")
        assert "slackwater\tdefault\tmv\tMATERIALIZED VIEW" in listed
        assert "spark_catalog\tdefault\tplain\tTABLE" in listed
        listed = shell(served.port, tmp_path, "-e", "!columns mv")
        assert "slackwater\tdefault\tmv\tk\t4\tINT" in listed


def of_all_kinds(metadata):
    assert metadata.catalogs() == ["slackwater", "spark_catalog"]
    assert ("slackwater", "sales") in metadata.schemas()
    found = metadata.tables("default")
    assert [row[:4] for row in found] == [
        ("slackwater", "default", "mv", "MATERIALIZED VIEW"),
        ("slackwater", "default", "src", "SOURCE"),
        ("slackwater", "default", "src_progress", "SOURCE"),
        ("slackwater", "default", "t", "TABLE"),
        ("slackwater", "default", "t_1", "TABLE"),
        ("slackwater", "default", "tx1", "TABLE"),
        ("spark_catalog", "default", "plain", "TABLE"),
        ("slackwater", "default", "vw", "VIEW"),
    ]
    assert found[3][4] == "a table"


def shell(port, folder, *arguments):
    process = beeline(port, folder, *arguments)
    try:
        return process.communicate(timeout=PATIENCE)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        raise
