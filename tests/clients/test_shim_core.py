"""The shim in a real Spark session, above a coordinator with canned answers."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession
from tests.support.applications.shim import (
    JARS,
    Environment,
    activate,
    canned_base,
    canned_env,
    canned_ours,
    canned_spark,
)

__all__ = ["canned_base", "canned_env", "canned_ours", "canned_spark"]

pytestmark = pytest.mark.spark


def parser_of(session: SparkSession) -> Any:
    return session._jsparkSession.sessionState().sqlParser()


def class_name(value: Any) -> str:
    return value.getClass().getName()


def plan_of(session: SparkSession, text: str) -> str:
    return str(parser_of(session).parsePlan(text).toString())


# ---- activation ----------------------------------------------------------------------------


def test_service_file_activates_once(base: SparkSession) -> None:
    for session in (base, base.newSession()):
        parser = parser_of(session)
        assert class_name(parser) == "org.apache.spark.sql.slackwater.parser.SlackwaterParser"
        assert class_name(parser.delegate()).endswith("SparkSqlParser")
        assert session.conf.get("spark.sql.catalog.slackwater") == "io.slackwater.SlackwaterCatalog"


def test_extensions_are_installed_once_however_often_asked(base: SparkSession) -> None:
    jvm = base.sparkContext._jvm
    extensions = jvm.org.apache.spark.sql.SparkSessionExtensions()
    for name in ("SlackwaterExtensionsProvider", "SlackwaterExtensions"):
        getattr(jvm.io.slackwater, name)().apply(extensions)
    plain = parser_of(base).delegate()
    parser = extensions.buildParser(base._jsparkSession, plain)
    assert class_name(parser) == "org.apache.spark.sql.slackwater.parser.SlackwaterParser"
    assert class_name(parser.delegate()).endswith("SparkSqlParser")


def calls_of(class_file: bytes) -> set[tuple[str, str]]:
    """The methods that a class calls, as pairs of class and name, from its constants."""
    constants: list[Any] = [None]
    at = 10
    (count,) = struct.unpack(">H", class_file[8:at])
    while len(constants) < count:
        tag = class_file[at]
        if tag == 1:
            (length,) = struct.unpack(">H", class_file[at + 1 : at + 3])
            constants.append(class_file[at + 3 : at + 3 + length].decode(errors="replace"))
            at += 3 + length
            continue
        size = {15: 4, 3: 5, 4: 5, 5: 9, 6: 9, 7: 3, 8: 3, 16: 3, 19: 3, 20: 3}.get(tag, 5)
        width = {3: 1, 5: 2}.get(size)
        numbers = struct.unpack(f">{width}H", class_file[at + 1 : at + size]) if width else ()
        constants.append((tag, *numbers))
        if tag in (5, 6):
            constants.append(None)
        at += size
    references = [c for c in constants if isinstance(c, tuple) and c[0] in (10, 11)]
    return {
        (constants[constants[of][1]], constants[constants[name_and_type][1]])
        for _, of, name_and_type in references
    }


def inherited(class_file: bytes) -> set[str]:
    """The methods of Spark's parser interface that a class takes over as they are there.

    scalac gives a class a method for each, which calls the static one that has the body.
    """
    interface = "org/apache/spark/sql/catalyst/parser/ParserInterface"
    called = {name for of, name in calls_of(class_file) if of == interface}
    return {name.removesuffix("$") for name in called if name.endswith("$")} - {"$init"}


def test_every_method_of_the_parser_is_delegated(base: SparkSession) -> None:
    package = "org/apache/spark/sql/slackwater"
    with zipfile.ZipFile(JARS[0]) as jar:
        for name in ("parser/SlackwaterParser", "shims/DelegatingParser"):
            assert inherited(jar.read(f"{package}/{name}.class")) == set()
    # Spark's own parser has not overridden this one: so the check would see it.
    (spark_jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-catalyst_2.13*.jar")
    with zipfile.ZipFile(spark_jar) as jar:
        abstract = jar.read("org/apache/spark/sql/catalyst/parser/AbstractSqlParser.class")
    assert inherited(abstract) == {"parsePlanWithParameters"}


def test_disabled_leaves_everything_to_spark(spark: SparkSession, env: Environment) -> None:
    spark.conf.set("spark.slackwater.enabled", "false")
    with pytest.raises(ParseException):
        spark.sql("SHOW SOURCES")
    with pytest.raises(ParseException):
        spark.sql("SELECT 1 AS OF 5")
    assert not env.starts()


# ---- plain Spark ---------------------------------------------------------------------------

PLAIN = [
    "SELECT 1 AS of",
    "SELECT * FROM range(2) AS OF (n)",
    "CREATE TEMPORARY VIEW plain AS SELECT 1 AS a",
    "CREATE TABLE plain_t (a INT) USING parquet",
    "INSERT INTO plain_t VALUES (1), (2)",
    "SHOW TABLES",
    "SHOW CREATE TABLE plain_t",
    "SHOW VIEWS",
    "SET cluster = mine",
    "SET spark.slackwater.note = x",
    "SET",
    "RESET spark.slackwater.note",
    "ALTER TABLE plain_t SET TBLPROPERTIES ('a' = 'b')",
    "COMMENT ON TABLE plain_t IS 'x'",
    "DROP TABLE plain_t",
    "CREATE SCHEMA plain_s",
    "DROP SCHEMA plain_s CASCADE",
    "EXPLAIN SELECT 1",
    "EXPLAIN FORMATTED SELECT 1",
    "BEGIN SELECT 1; END",
    "DECLARE VARIABLE plain_v INT DEFAULT 3",
    "DECLARE cursor INT DEFAULT 1",
    "DECLARE OR REPLACE cursor INT DEFAULT 1",
    "SET TRANSACTION = x",
    "COMMIT",
    "ROLLBACK TRANSACTION;",
    "EXECUTE IMMEDIATE 'SELECT ? + 1' USING 2",
    "-- CREATE SOURCE s\nSELECT 'SUBSCRIBE x' /* SHOW /* SOURCES */ */",
    "WITH a AS (SELECT 1 AS of) SELECT of FROM a",
    "USE spark_catalog",
    "SHOW CATALOGS",
]


def test_plain_sql_never_starts_a_process(spark: SparkSession, env: Environment) -> None:
    for text in PLAIN:
        spark.sql(text).collect()
    assert spark.sql("SELECT :a + 1 AS x", args={"a": 4}).collect()[0].x == 5
    assert spark.sql("SELECT ? + 1 AS x", args=[4]).collect()[0].x == 5
    assert spark.sql("SELECT plain_v AS x").collect()[0].x == 3
    script = "BEGIN DECLARE x INT DEFAULT 1; SET x = x + 1; SELECT x; END"
    assert spark.sql(script).collect()[0][0] == 2
    assert not env.starts()


@pytest.mark.parametrize(
    "text",
    [
        "CREATE INDEX i ON t (a)",
        "DROP MATERIALIZED VIEW v",
        "ALTER TABLE t SWAP WITH u",
    ],
)
def test_elsewhere_these_are_sparks_errors(
    spark: SparkSession, env: Environment, text: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.sql(text)
    assert not (caught.value.getCondition() or "").startswith("SLACKWATER")
    assert not env.starts()


@pytest.mark.parametrize("name", ["v", "spark_catalog.default.v"])
def test_a_materialized_view_elsewhere_is_told_where_it_belongs(
    spark: SparkSession, env: Environment, name: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        spark.sql(f"CREATE MATERIALIZED VIEW {name} AS SELECT 1")
    assert caught.value.getCondition() == "SLACKWATER_WRONG_CATALOG"
    assert "Run USE slackwater first, or write slackwater.default.v." in str(caught.value)
    assert not env.starts()


def test_another_name_for_the_catalog_is_refused(spark: SparkSession, env: Environment) -> None:
    spark.conf.set("spark.sql.catalog.other", "io.slackwater.SlackwaterCatalog")
    for text in ("SELECT * FROM other.default.t", "USE other"):
        with pytest.raises(AnalysisException) as caught:
            spark.sql(text)
        assert caught.value.getCondition() == "SLACKWATER_UNSUPPORTED", text
        assert "spark.sql.catalog.slackwater" in str(caught.value)
    assert not env.starts()


def test_switched_off_the_catalog_answers_nothing(ours: SparkSession, env: Environment) -> None:
    ours.conf.set("spark.slackwater.enabled", "false")
    for text, condition in (
        ("SELECT mz_now()", "UNRESOLVED_ROUTINE"),
        ("SELECT * FROM slackwater.default.t", "SLACKWATER_UNSUPPORTED"),
    ):
        with pytest.raises(AnalysisException) as caught:
            ours.sql(text)
        assert caught.value.getCondition() == condition


# ---- claims --------------------------------------------------------------------------------

ANYWHERE = [
    "CREATE SOURCE s FROM LOAD GENERATOR COUNTER",
    "  -- first\n /* then /* nested */ */ create source if not exists s FROM LOAD GENERATOR CLOCK",
    "CREATE SINK s FROM t INTO FILES (PATH 'x', FORMAT PARQUET)",
    "CREATE DEFAULT INDEX ON slackwater.default.t",
    "CREATE INDEX i IN CLUSTER c ON slackwater.default.t (a)",
    "CREATE CLUSTER c (SIZE '1')",
    "CREATE CLUSTER REPLICA c.r (SIZE '1')",
    "CREATE OR REPLACE MATERIALIZED VIEW IF NOT EXISTS `slackwater`.default.v AS SELECT 1",
    "CREATE TABLE slackwater.default.t (a INT) WITH (RETAIN HISTORY FOR '1 hour')",
    "DROP SOURCE IF EXISTS a, b CASCADE",
    "DROP TABLE IF EXISTS slackwater.default.a, slackwater.default.b",
    "DROP INDEX slackwater.default.i",
    "ALTER SOURCE s RENAME TO u",
    "ALTER TABLE slackwater.default.t SET (RETAIN HISTORY FOR '1 day')",
    "ALTER TABLE slackwater.default.t SWAP WITH slackwater.default.u",
    "SUBSCRIBE TO slackwater.default.t",
    "SUBSCRIBE (SELECT 1) AS OF 5",
    "DECLARE c CURSOR FOR SUBSCRIBE TO slackwater.default.t",
    "CLOSE c;",
    "EXPLAIN TIMESTAMP FOR SELECT 1",
    "EXPLAIN INCREMENTAL FOR SELECT 1",
    "EXPLAIN OPTIMIZED PLAN FOR SELECT 1",
    "SET slackwater.cluster = 'x'",
    "RESET slackwater.cluster",
    "COMMENT ON SINK s IS 'x'",
    "COMMENT ON COLUMN slackwater.default.t.a IS 'x'",
    "CREATE FUNCTION slackwater.default.f AS 'x'",
    "BEGIN",
    "BEGIN TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "START TRANSACTION",
    "COMMIT;",
    "ROLLBACK WORK",
    "ABORT",
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "DECLARE cursor CURSOR FOR SELECT 1",
]

IN_SLACKWATER = [
    "CREATE MATERIALIZED VIEW v IN CLUSTER c AS SELECT 1",
    "CREATE INDEX ON t (a)",
    "CREATE TABLE t (a INT) WITH (RETAIN HISTORY FOR '1 hour')",
    "DROP MATERIALIZED VIEW v",
    "DROP TABLE t CASCADE",
    "DROP VIEW a, b",
    "ALTER MATERIALIZED VIEW v RENAME TO w",
    "SET cluster = c",
    "SET timezone = 'UTC'",
    "CREATE OR REPLACE FUNCTION f(x INT) RETURNS INT RETURN x",
    "COMMENT ON COLUMN `odd``name`.a IS 'x'",
    "SET transaction_isolation TO 'serializable'",
    "RESET statement_timeout",
    "COMMENT ON MATERIALIZED VIEW v IS 'x'",
]


def test_statements_that_are_ours_anywhere(spark: SparkSession, env: Environment) -> None:
    for text in ANYWHERE:
        assert spark.sql(text).collect() == []
    assert env.planned() == ANYWHERE
    assert len(env.starts()) == 1


def test_statements_that_are_ours_in_our_catalog(ours: SparkSession, env: Environment) -> None:
    for text in IN_SLACKWATER:
        assert ours.sql(text).collect() == []
    assert env.planned() == IN_SLACKWATER


def test_the_coordinator_may_hand_a_statement_back(ours: SparkSession, env: Environment) -> None:
    ours.sql("SET cluster = sparks")
    assert env.planned() == ["SET cluster = sparks"]
    assert env.calls("/v1/execute") == []
    assert ours.conf.get("cluster") == "sparks"


# ---- commands ------------------------------------------------------------------------------


def test_rows_of_a_command(spark: SparkSession, env: Environment) -> None:
    frame = spark.sql("SHOW SOURCES")
    assert frame.schema.simpleString() == "struct<name:string,size:bigint>"
    assert [tuple(row) for row in frame.collect()] == [("a", 1), (None, 2), ("ü", None)]
    assert frame.count() == 3
    assert len(env.calls("/v1/execute")) == 1
    body = env.calls("/v1/execute")[0]
    application, session = body["session"].split("/")
    assert application == spark.sparkContext.applicationId
    assert session == spark._jsparkSession.sessionUUID()
    assert body["context"]["catalog"] == "spark_catalog"
    assert body["context"]["namespace"] == ["default"]


def test_types_of_a_command(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    row = spark.sql("FETCH ALL c").collect()[0]
    assert row.mz_timestamp == 5
    assert row.price == Decimal("1.50")
    assert row.raw == b"\x00\x01"
    assert row.day.isoformat() == "1970-01-02"
    assert spark.sql("FETCH ALL c").selectExpr("unix_millis(at)").collect()[0][0] == 1000


def test_variables_are_substituted(spark: SparkSession, env: Environment) -> None:
    spark.conf.set("my.kind", "SOURCES")
    spark.sql("SHOW SOURCES LIKE '${my.kind}'")
    assert env.planned() == ["SHOW SOURCES LIKE 'SOURCES'"]


def test_parameters_of_a_command_are_refused(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException) as caught:
        spark.sql("SHOW SOURCES LIKE :p", args={"p": "x"})
    assert caught.value.getCondition() == "SLACKWATER_UNSUPPORTED"
    assert caught.value.getSqlState() == "0A000"


def test_a_command_in_execute_immediate(spark: SparkSession) -> None:
    assert spark.sql("EXECUTE IMMEDIATE 'SHOW SOURCES'").count() == 3


def test_a_plan_does_not_show_what_may_be_secret(spark: SparkSession) -> None:
    text = plan_of(spark, "CREATE SOURCE s FROM KAFKA (PASSWORD 'hush')")
    assert "hush" not in text
    assert "CREATE SOURCE" in text


# ---- errors --------------------------------------------------------------------------------


def test_error_of_execution(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException) as caught:
        spark.sql("DROP SOURCE fail")
    error = caught.value
    assert error.getCondition() == "SLACKWATER_DEPENDENT_OBJECTS"
    assert error.getSqlState() == "2BP01"
    assert error.getMessageParameters() == {"objectName": "x", "dependents": "y"}
    assert str(error).splitlines()[0] == (
        "[SLACKWATER_DEPENDENT_OBJECTS] Cannot drop x: other objects depend on it: y. "
        "SQLSTATE: 2BP01"
    )
    assert error._origin.getCause() is None


def test_error_with_a_position(spark: SparkSession) -> None:
    with pytest.raises(ParseException) as caught:
        spark.sql("CREATE SOURCE syntax")
    error = caught.value
    assert error.getCondition() == "SLACKWATER_SYNTAX_ERROR"
    assert error.getSqlState() == "42601"
    assert error.getMessageParameters() == {"found": "SYNTAX"}
    text = str(error)
    assert text.startswith("[SLACKWATER_SYNTAX_ERROR] Syntax error in CREATE SOURCE at or near")
    assert "(line 1, pos 14)" in text


def test_a_condition_of_sparks_stays(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException) as caught:
        spark.sql("CREATE SOURCE s FROM missing")
    assert caught.value.getCondition() == "TABLE_OR_VIEW_NOT_FOUND"
    assert caught.value.getSqlState() == "42P01"


# ---- catalog -------------------------------------------------------------------------------


def test_schemas(ours: SparkSession) -> None:
    ours.sql("CREATE SCHEMA s")
    ours.sql("CREATE SCHEMA IF NOT EXISTS s")
    with pytest.raises(AnalysisException) as caught:
        ours.sql("CREATE SCHEMA s")
    assert caught.value.getSqlState() == "42P06"
    assert [row[0] for row in ours.sql("SHOW SCHEMAS").collect()] == ["default", "mz_catalog", "s"]
    ours.sql("USE s")
    assert ours.catalog.currentDatabase() == "s"
    ours.sql("CREATE TABLE t (a INT)")
    with pytest.raises(AnalysisException) as caught:
        ours.sql("DROP SCHEMA s")
    assert caught.value.getSqlState() in ("2BP01", "42K0L")
    ours.sql("USE default")
    ours.sql("DROP SCHEMA s CASCADE")
    with pytest.raises(AnalysisException):
        ours.sql("USE s")


def test_tables(ours: SparkSession, env: Environment) -> None:
    ours.sql(
        "CREATE TABLE t (k INT NOT NULL COMMENT 'key', v STRING DEFAULT 'x', c VARCHAR(3)) "
        "COMMENT 'all' TBLPROPERTIES ('retain_history' = '1 hour')"
    )
    body = env.calls("/v1/catalog/create_table")[0]
    assert body["namespace"] == ["default"]
    assert body["comment"] == "all"
    assert body["properties"] == {"retain_history": "1 hour"}
    fields = {field["name"]: field for field in body["schema"]["fields"]}
    assert fields["k"]["nullable"] is False
    assert fields["k"]["metadata"]["comment"] == "key"
    assert fields["v"]["metadata"]["CURRENT_DEFAULT"] == "'x'"
    assert fields["c"]["type"] == "varchar(3)"
    assert [row.tableName for row in ours.sql("SHOW TABLES").collect()] == ["t"]
    described = {row.col_name: row.data_type for row in ours.sql("DESCRIBE t").collect()}
    assert described["k"] == "int"
    assert described["c"] == "varchar(3)"
    ours.sql("ALTER TABLE t ADD COLUMN extra BIGINT")
    assert "extra" in ours.table("slackwater.default.t").columns
    ours.sql("ALTER TABLE t RENAME TO u")
    with pytest.raises(AnalysisException) as caught:
        ours.sql("CREATE TABLE u (a INT)")
    assert caught.value.getSqlState() == "42P07"
    ours.sql("CREATE TABLE IF NOT EXISTS u (a INT)")
    ours.sql("DROP TABLE u")
    with pytest.raises(AnalysisException) as caught:
        ours.table("slackwater.default.u")
    assert caught.value.getSqlState() == "42P01"


def test_another_applications_change_is_seen(ours: SparkSession, env: Environment) -> None:
    ours.sql("CREATE TABLE t (a INT)")
    assert ours.table("slackwater.default.t").columns == ["a"]
    other = ours.newSession()
    activate(other)
    other.sql("ALTER TABLE slackwater.default.t ADD COLUMN b INT")
    activate(ours)
    assert ours.table("slackwater.default.t").columns == ["a", "b"]
    assert len(env.starts()) == 1


def test_what_is_known_of_the_catalog_is_asked_for_once(
    spark: SparkSession, env: Environment
) -> None:
    """Until something in it changes, whoever changes it."""
    (env.location / "marked").touch()
    spark.sql("USE slackwater")
    spark.sql("CREATE TABLE t (a INT)")

    def loads(action: Callable[[], Any]) -> int:
        before = len(env.calls("/v1/catalog/load"))
        action()
        return len(env.calls("/v1/catalog/load")) - before

    def columns() -> list[str]:
        return spark.table("slackwater.default.t").columns

    assert loads(lambda: [columns() for _ in range(3)]) == 1
    other = spark.newSession()
    activate(other)
    other.sql("ALTER TABLE slackwater.default.t ADD COLUMN b INT")
    activate(spark)
    assert columns() == ["a", "b"]
    assert loads(columns) == 0
    spark.sql("DROP TABLE t")
    for _ in range(2):
        # What is not there is asked for each time.
        with pytest.raises(AnalysisException):
            columns()
    spark.sql("CREATE TABLE t (c INT)")
    assert columns() == ["c"]
    assert not list(env.location.glob("mark-*"))


def test_what_a_collection_cannot_have_is_refused(ours: SparkSession) -> None:
    for text in (
        "CREATE TABLE t (a INT, b INT) PARTITIONED BY (b)",
        "CREATE TABLE t (a INT) LOCATION '/tmp/x'",
    ):
        with pytest.raises(AnalysisException) as caught:
            ours.sql(text)
        assert caught.value.getCondition() == "SLACKWATER_UNSUPPORTED"


def test_views_keep_where_they_were_created(ours: SparkSession, env: Environment) -> None:
    ours.sql("CREATE VIEW v (x) AS SELECT id + 1 AS y FROM range(3)")
    ours.sql("CREATE VIEW w AS SELECT * FROM v WHERE x > 1")
    assert env.calls("/v1/catalog/create_view")[1]["context"]["namespace"] == ["default"]
    ours.sql("CREATE SCHEMA elsewhere")
    ours.sql("USE elsewhere")
    assert sorted(row.x for row in ours.sql("SELECT * FROM default.w").collect()) == [2, 3]
    ours.sql("USE spark_catalog")
    assert ours.sql("SELECT max(x) FROM slackwater.default.w").collect()[0][0] == 3
    names = [row.viewName for row in ours.sql("SHOW VIEWS IN slackwater.default").collect()]
    assert names == ["v", "w"]
    ours.sql("CREATE OR REPLACE VIEW slackwater.default.v AS SELECT 7L AS x")
    assert [row.x for row in ours.sql("SELECT * FROM slackwater.default.w").collect()] == [7]
    ours.sql("DROP VIEW slackwater.default.w")
    with pytest.raises(AnalysisException):
        ours.sql("SELECT * FROM slackwater.default.w")


def test_time_travel_of_one_table(ours: SparkSession) -> None:
    ours.conf.set("spark.sql.session.timeZone", "UTC")
    ours.sql("CREATE TABLE t (a INT)")
    ours.sql("SELECT * FROM t TIMESTAMP AS OF '1970-01-01 00:00:05'")
    ours.sql("SELECT * FROM t VERSION AS OF 5000")
    with pytest.raises(AnalysisException) as caught:
        ours.sql("SELECT * FROM t VERSION AS OF 'main'")
    assert caught.value.getCondition() == "SLACKWATER_INVALID_AS_OF"


# ---- AS OF ---------------------------------------------------------------------------------

AS_OF = [
    ("SELECT 1 AS of", None),
    ("SELECT 1 AS `as of 5`", None),
    ("SELECT * FROM range(2) AS OF (n)", None),
    ("SELECT 'x AS OF 5'", None),
    ('SELECT "x AS OF 5"', None),
    ("SELECT r'\\' AS of", None),
    ("SELECT 1 -- AS OF 5", None),
    ("SELECT 1 /* AS OF 5 */", None),
    ("SELECT (SELECT 1 AS of) + 5", None),
    ("SELECT * FROM t TIMESTAMP AS OF '2024-01-01'", None),
    ("SELECT * FROM t VERSION AS OF 5", None),
    ("SELECT * FROM t FOR SYSTEM_TIME AS OF '2024-01-01'", None),
    ("SELECT a AS of FROM t", None),
    ("SELECT a AS of, b FROM t", None),
    ("SELECT 1 AS OF 5", "5"),
    ("SELECT * FROM t AS OF 5;", "5"),
    ("select * from t as of at least 5", "least 5"),
    ("SELECT * FROM t AS\nOF /* the time */ 5 -- end", "5"),
    ("SELECT * FROM t WHERE a = 'AS OF 1' AS OF (2 + 3)", "(2 + 3)"),
    ("SELECT * FROM t AS OF TIMESTAMP '2024-01-01 00:00:00'", "2024"),
    ("SELECT * FROM t AS OF now() - INTERVAL '1' HOUR", "now"),
    ("SELECT a AS of FROM t AS OF 7", "7"),
    ("SELECT * FROM t AS x JOIN u AS y ON x.a = y.a ORDER BY 1 LIMIT 3 AS OF 8", "8"),
    ("WITH c AS (SELECT * FROM t) SELECT * FROM c AS OF 9", "9"),
    ("(SELECT 1 UNION ALL SELECT 2) AS OF 6", "6"),
    ("SELECT r'\\' AS OF 5", "5"),
    ("EXPLAIN SELECT * FROM t AS OF 5", "5"),
    ("INSERT INTO u SELECT * FROM t AS OF 5", "5"),
    ("CREATE TABLE u AS SELECT * FROM t AS OF 5", "5"),
    ("CREATE OR REPLACE TEMP VIEW u AS SELECT * FROM t AS OF 5", "5"),
    ("CREATE VIEW u AS SELECT * FROM t AS OF 5", "5"),
    ("CACHE TABLE u AS SELECT * FROM t AS OF 5", "5"),
    ("VALUES (1) AS OF 5", "5"),
    ("TABLE t AS OF 5", "5"),
]


def as_of_nodes(plan: Any) -> list[Any]:
    found = [plan] if class_name(plan).endswith(".AsOf") else []
    children = plan.children()
    inner = [children.apply(i) for i in range(children.length())]
    if class_name(plan).endswith("ExplainCommand"):
        inner.append(plan.logicalPlan())
    if class_name(plan).endswith("CreateViewCommand"):
        inner = [plan.plan()]
    return found + [node for child in inner for node in as_of_nodes(child)]


@pytest.mark.parametrize(("text", "time_text"), AS_OF)
def test_as_of_is_found(spark: SparkSession, text: str, time_text: str | None) -> None:
    nodes = as_of_nodes(parser_of(spark).parsePlan(text))
    if time_text is None:
        assert nodes == []
    else:
        assert len(nodes) == 1
        assert nodes[0].atLeast() == time_text.startswith("least")
        assert time_text.removeprefix("least ").strip("()") in nodes[0].time().toString()


@pytest.mark.parametrize(
    "text",
    [
        "DROP TABLE t AS OF 5",
        "SELECT * FROM t t2 t3 AS OF 5",
        "SELECT a AS OF FROM t t2 t3",
        "DELETE FROM t WHERE a = 1 AS OF 5",
    ],
)
def test_as_of_without_a_query_is_a_syntax_error_of_sparks(
    spark: SparkSession, env: Environment, text: str
) -> None:
    with pytest.raises(ParseException) as caught:
        spark.sql(text)
    assert caught.value.getCondition() == "PARSE_SYNTAX_ERROR"
    assert not env.starts()


def test_as_of_with_something_that_is_no_expression(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException) as caught:
        spark.sql("SELECT 1 FROM range(1) AS OF 5 6")
    assert caught.value.getCondition() == "SLACKWATER_INVALID_AS_OF"
    assert caught.value.getSqlState() == "22023"


def test_as_of_with_parameters(spark: SparkSession) -> None:
    for text, args in (
        ("SELECT :x + id FROM range(2) AS OF :t", {"x": 1, "t": 5}),
        ("SELECT ? + id FROM range(2) AS OF ? + 5", [1, 0]),
    ):
        nodes = as_of_nodes(spark.sql(text, args=args)._jdf.queryExecution().logical())
        assert len(nodes) == 1
        assert nodes[0].time().eval(None) == 5


def test_stored_texts_keep_as_of(spark: SparkSession) -> None:
    view = parser_of(spark).parsePlan("CREATE TEMP VIEW u AS SELECT 1 AS a AS OF AT LEAST 5")
    stored = view.originalText().get()
    assert stored == "SELECT 1 AS a AS OF AT LEAST 5"
    again = parser_of(spark).parseQuery(stored)
    assert len(as_of_nodes(again)) == 1
