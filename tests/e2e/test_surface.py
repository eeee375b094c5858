"""What users type and what comes back, where a file of SQL cases cannot say it."""

from __future__ import annotations

import pytest
from tests.support.applications.application import SqlError

pytestmark = pytest.mark.spark


def error_of(workplace, text, **options):
    with pytest.raises(SqlError) as caught:
        workplace.sql(text, **options)
    return caught.value


def test_null_in_a_frame_names_table_and_column(workplace):
    workplace.sql("CREATE TABLE t (k INT NOT NULL, s STRUCT<a: INT NOT NULL>)")
    table = f"slackwater.{workplace.schema}.t"
    good = "[(1, (None,))]"
    for rows, column in (("[(None, (1,))]", "k"), (good, "s.a")):
        frame = f"spark.createDataFrame({rows}, 'k int, s struct<a: int>')"
        for write in (
            f"writeTo('{table}').append()",
            f"write.insertInto('{table}')",
            f"write.mode('append').saveAsTable('{table}')",
        ):
            with pytest.raises(SqlError) as caught:
                workplace.application.python(f"{frame}.{write}")
            error = caught.value
            assert (error.condition, error.sqlstate) == ("SLACKWATER_NOT_NULL_VIOLATION", "23502")
            assert f"the column {column} of {table}" in error.message
            assert "Scala" not in error.message
    assert workplace.rows("SELECT * FROM t") == []


EVERY_TYPE = r"""CREATE TABLE `every ``type` (
  k INT NOT NULL COMMENT 'it''s "the" \\ key', s STRING DEFAULT 'a''b', c CHAR(3), b BOOLEAN,
  vc VARCHAR(5) NOT NULL COMMENT 'short', d DECIMAL(10,2) DEFAULT 1.50, t TINYINT, sm SMALLINT,
  l BIGINT DEFAULT 1 + 1, f FLOAT, db DOUBLE, bin BINARY, day DATE DEFAULT current_date(),
  at TIMESTAMP, ntz TIMESTAMP_NTZ, folded STRING COLLATE UTF8_LCASE,
  m MAP<STRING, ARRAY<STRUCT<x: INT NOT NULL COMMENT 'in', z: CHAR(2)>>>,
  st STRUCT<`a b`: STRING COLLATE UTF8_LCASE, l: ARRAY<STRING COLLATE UNICODE_CI>>
) COMMENT 'the ''table''' TBLPROPERTIES ('retain_history' = '1 hour', 'mine' = 'x''y')"""


def described(workplace, name):
    """What users see of a relation, without what differs between two of the same definition."""
    rows = workplace.rows(f"DESCRIBE EXTENDED {name}")
    return [row for row in rows if row[0] not in ("Statistics", "Created Time", "Owner")]


def test_show_create_makes_an_identical_object(workplace):
    folder = workplace.folder
    objects = {
        "`every ``type`": ("TABLE", EVERY_TYPE),
        "v": (
            "VIEW",
            "CREATE VIEW v (a COMMENT 'the a', b) COMMENT 'it''s' AS "
            "SELECT k, s || 'a''b' AS x FROM `every ``type`",
        ),
        "mv": (
            "MATERIALIZED VIEW",
            "CREATE MATERIALIZED VIEW mv (a, b) WITH (RETAIN HISTORY FOR '2 hours') AS "
            "SELECT a, b FROM v",
        ),
        "out": (
            "SINK",
            f"CREATE SINK out FROM mv INTO FILES (PATH '{folder}/out', FORMAT JSON) "
            "ENVELOPE UPSERT KEY (a)",
        ),
        "auction": (
            "SOURCE",
            "CREATE SOURCE auction FROM LOAD GENERATOR AUCTION (TICK INTERVAL '1 hour', SEED 4) "
            "FOR ALL TABLES",
        ),
        "pairs": (
            "SOURCE",
            "CREATE SOURCE pairs FROM LOAD GENERATOR KEY VALUE (KEYS 16, PARTITIONS 4, "
            "SNAPSHOT ROUNDS 1, VALUE SIZE 10, BATCH SIZE 4, SEED 1) ENVELOPE NONE "
            "EXPOSE PROGRESS AS how_far WITH (RETAIN HISTORY FOR '3 hours')",
        ),
        "csv": (
            "SOURCE",
            f"CREATE SOURCE csv (k INT, `a b` STRING) FROM FILES (PATH '{folder}/in', FORMAT CSV, "
            "HEADER true, DELIMITER ';', NULL 'NA', ON ERROR SKIP) "
            "WITH (TIMESTAMP INTERVAL '2s')",
        ),
    }
    (folder / "in").mkdir()
    for _, text in objects.values():
        workplace.sql(text)
    workplace.sql("ALTER MATERIALIZED VIEW mv SET (RETAIN HISTORY FOR '5 hours')")
    workplace.sql("ALTER TABLE `every ``type` SET TBLPROPERTIES ('more' = 'yes')")
    workplace.sql("COMMENT ON COLUMN `every ``type`.t IS 'tiny'")

    def shown():
        return {
            name: workplace.rows(f"SHOW CREATE {kind} {name}")[0][-1]
            for name, (kind, _) in objects.items()
        }

    before = shown()
    assert not any("UTF8_BINARY" in text for text in before.values())
    assert "'5 hours'" in before["mv"]
    relations = [name for name, (kind, _) in objects.items() if kind not in ("SINK", "SOURCE")]
    seen = [described(workplace, name) for name in relations]
    for name, (kind, _) in reversed(objects.items()):
        workplace.sql(f"DROP {kind} {name}")
    (folder / "out").rename(folder / "was")
    for text in before.values():
        workplace.sql(text)
    assert shown() == before
    assert [described(workplace, name) for name in relations] == seen


def test_dependencies_are_what_the_definition_names(workplace):
    workplace.sql("CREATE TABLE t (k INT)")
    workplace.sql("CREATE VIEW v AS SELECT k FROM t")
    workplace.sql("CREATE VIEW both AS SELECT v.k FROM v JOIN t ON v.k = t.k")
    workplace.sql("CREATE VIEW top AS SELECT k FROM both WHERE k IN (SELECT k FROM v)")
    found = workplace.rows(
        "SELECT d.name, r.name FROM mz_internal.mz_object_dependencies x "
        "JOIN mz_catalog.mz_objects d ON x.object_id = d.id "
        "JOIN mz_catalog.mz_objects r ON x.referenced_object_id = r.id "
        "JOIN mz_catalog.mz_schemas s ON d.schema_id = s.id "
        f"WHERE s.name = '{workplace.schema}' ORDER BY ALL"
    )
    assert found == [["both", "t"], ["both", "v"], ["top", "both"], ["top", "v"], ["v", "t"]]


def test_functions_are_found_beside_the_catalog(workplace):
    for text in ("SELECT nosuch(1)", "SELECT default.nosuch(1)", "SELECT slackwater.x.nosuch(1)"):
        error = error_of(workplace, text)
        assert (error.condition, error.sqlstate) == ("UNRESOLVED_ROUTINE", "42883"), text
    assert f"`slackwater`.`{workplace.schema}`" in error_of(workplace, "SELECT nosuch(1)").message
    assert ["abs"] in workplace.rows("SHOW FUNCTIONS LIKE 'abs'")
    error = error_of(workplace, "CREATE FUNCTION f(x INT) RETURNS INT RETURN x + 1")
    assert error.condition == "SLACKWATER_UNSUPPORTED"
    assert "spark_catalog.default.f" in error.message
    workplace.sql("CREATE FUNCTION spark_catalog.default.plus1(x INT) RETURNS INT RETURN x + 1")
    try:
        assert workplace.value("SELECT spark_catalog.default.plus1(2)") == 3
    finally:
        workplace.sql("DROP FUNCTION spark_catalog.default.plus1")


def test_a_block_begins_and_ends_in_any_catalog(workplace):
    table = f"slackwater.{workplace.schema}.t"
    workplace.sql("CREATE TABLE t (k INT)")
    for text in ("BEGIN", f"INSERT INTO {table} VALUES (1)", "ROLLBACK", "BEGIN TRANSACTION"):
        workplace.sql(text, session="elsewhere")
    for text in (f"INSERT INTO {table} VALUES (2)", f"INSERT INTO {table} VALUES (3)"):
        workplace.sql(text, session="elsewhere")
    assert workplace.rows("SELECT * FROM t") == []
    workplace.sql("COMMIT", session="elsewhere")
    assert workplace.rows("SELECT * FROM t ORDER BY k") == [[2], [3]]
    assert workplace.rows("SELECT current_catalog()", session="elsewhere") == [["spark_catalog"]]
    script = "BEGIN DECLARE x INT DEFAULT 1; SET x = x + 1; SELECT x; END"
    assert workplace.rows(script, session="elsewhere") == [[2]]


def test_the_isolation_level_of_a_session_in_the_words_of_the_standard(workplace):
    words = "TRANSACTION ISOLATION LEVEL"
    workplace.sql(f"SET SESSION CHARACTERISTICS AS {words} SERIALIZABLE", session="level")
    assert workplace.rows(f"SHOW {words}", session="level") == [["serializable"]]
    error = error_of(workplace, f"SET {words} SERIALIZABLE", session="level")
    assert error.condition == "SLACKWATER_UNSUPPORTED"
    assert "SET LOCAL" not in error.message
    assert "SET SESSION CHARACTERISTICS" in error.message


def test_comments_are_shown_where_spark_shows_them(workplace):
    for statement in (
        "CREATE TABLE t (k INT) COMMENT 'a table' TBLPROPERTIES ('mine' = 'x')",
        "CREATE SOURCE s FROM LOAD GENERATOR COUNTER (MAX CARDINALITY 1)",
        "CREATE MATERIALIZED VIEW mv AS SELECT k FROM t",
        "CREATE VIEW v COMMENT 'a view' TBLPROPERTIES ('mine' = 'x') AS SELECT k FROM t",
        "COMMENT ON SOURCE s IS 'a source'",
        "COMMENT ON MATERIALIZED VIEW mv IS 'kept up to date'",
    ):
        workplace.sql(statement)
    comments = {"t": "a table", "s": "a source", "mv": "kept up to date", "v": "a view"}
    for name, comment in comments.items():
        described = {row[0]: row[1] for row in workplace.rows(f"DESCRIBE EXTENDED {name}")}
        assert described["Comment"] == comment, name
        ((_, _, _, shown),) = workplace.rows(f"SHOW TABLE EXTENDED LIKE '{name}'")
        assert f"\nComment: {comment}\n" in shown, shown
        assert "comment=" not in shown, shown
        properties = dict(workplace.rows(f"SHOW TBLPROPERTIES {name}"))
        assert properties == ({"mine": "x"} if name in ("t", "v") else {}), name
    found = workplace.python(
        "result = [[each.name, each.description]"
        f" for each in spark.catalog.listTables('slackwater.{workplace.schema}')]"
    )
    assert dict(found) == {**comments, "s_progress": None}
    workplace.sql("COMMENT ON TABLE t IS NULL")
    assert "Comment" not in [row[0] for row in workplace.rows("DESCRIBE EXTENDED t")]


def test_the_catalog_of_a_session_gives_the_statements_that_make_objects(workplace):
    workplace.sql("CREATE TABLE `a ``t` (k INT)")
    workplace.sql("CREATE SOURCE s FROM LOAD GENERATOR COUNTER (MAX CARDINALITY 1)")
    workplace.sql("CREATE MATERIALIZED VIEW mv AS SELECT k FROM `a ``t`")
    workplace.sql("CREATE VIEW v AS SELECT k FROM mv")
    for name in ("`a ``t`", "s", "mv", "v"):
        full = f"slackwater.{workplace.schema}.{name}"
        text = workplace.python(f"result = spark.catalog.getCreateTableString({full!r})")
        assert text == workplace.value(f"SHOW CREATE TABLE {name}")


OVER_TEMPORARY_VIEWS = """
CREATE MATERIALIZED VIEW mv AS SELECT k FROM shadow
CREATE MATERIALIZED VIEW mv AS SELECT k FROM brief
CREATE MATERIALIZED VIEW mv AS SELECT k FROM Brief AS t
CREATE MATERIALIZED VIEW mv AS SELECT k FROM global_temp.everywhere
CREATE MATERIALIZED VIEW mv AS WITH c AS (SELECT k FROM brief) SELECT k FROM c
CREATE MATERIALIZED VIEW mv AS SELECT k FROM t WHERE k IN (SELECT k FROM brief)
CREATE MATERIALIZED VIEW mv AS SELECT k FROM t JOIN LATERAL (SELECT k AS l FROM brief WHERE t.k = k)
CREATE MATERIALIZED VIEW mv AS TABLE brief
CREATE OR REPLACE MATERIALIZED VIEW mv AS SELECT k FROM brief
CREATE REPLACEMENT MATERIALIZED VIEW r FOR kept AS SELECT k FROM brief
EXPLAIN INCREMENTAL FOR SELECT k FROM brief
EXPLAIN OPTIMIZED PLAN FOR SELECT k FROM brief
EXPLAIN TIMESTAMP FOR SELECT k FROM brief
SUBSCRIBE TO (SELECT k FROM brief) UP TO 0
SUBSCRIBE TO shadow UP TO 0
CREATE INDEX ON shadow (k)
CREATE SINK s FROM shadow INTO FILES (PATH '/nowhere', FORMAT JSON)
DECLARE c CURSOR FOR SUBSCRIBE TO global_temp.everywhere
DECLARE c CURSOR FOR SUBSCRIBE TO (SELECT k FROM brief)
DECLARE c CURSOR FOR SELECT k FROM brief
""".strip().splitlines()


def test_what_outlives_a_session_reads_none_of_its_views(workplace):
    """A view of the session would win in it, and be unknown to all that comes later."""
    for statement in (
        "CREATE TABLE t (k INT)",
        "CREATE VIEW shadow AS SELECT k FROM t",
        "CREATE MATERIALIZED VIEW kept AS SELECT k FROM t",
        "CREATE TEMPORARY VIEW shadow AS SELECT 7 AS k",
        "CREATE TEMPORARY VIEW brief AS SELECT 7 AS k",
        "CREATE GLOBAL TEMPORARY VIEW everywhere AS SELECT 7 AS k",
    ):
        workplace.sql(statement)
    try:
        for statement in OVER_TEMPORARY_VIEWS:
            error = error_of(workplace, statement)
            expected = ("SLACKWATER_TEMPORARY_VIEW", "42K0F")
            assert (error.condition, error.sqlstate) == expected, statement
        error = error_of(workplace, "CREATE VIEW v AS SELECT k FROM brief")
        assert (error.condition, error.sqlstate) == ("INVALID_TEMP_OBJ_REFERENCE", "42K0F")
        workplace.sql(
            "CREATE MATERIALIZED VIEW mv AS WITH brief AS (SELECT k FROM t), s AS (TABLE brief)"
            f" SELECT s.k FROM s JOIN {workplace.schema}.shadow AS brief ON s.k = brief.k"
        )
        assert workplace.rows("SELECT k FROM mv") == []
    finally:
        for name in ("shadow", "brief", "global_temp.everywhere"):
            workplace.sql(f"DROP VIEW {name}")


def test_in_a_script_our_statements_are_executed_immediately(workplace):
    workplace.sql("CREATE TABLE t (k INT)")
    for name, statement in (
        ("mv", "CREATE MATERIALIZED VIEW mv AS SELECT k + 1 AS k FROM t"),
        ("i", "CREATE INDEX i ON t (k)"),
    ):
        error = error_of(workplace, f"BEGIN {statement}; END")
        assert (error.condition, error.sqlstate) == ("SLACKWATER_UNSUPPORTED", "0A000")
        kind = statement.split(f" {name} ")[0]
        assert f"EXECUTE IMMEDIATE '{kind} ..' runs it there" in error.message
        workplace.sql(f"BEGIN INSERT INTO t VALUES (1); EXECUTE IMMEDIATE '{statement}'; END")
    assert workplace.rows("SELECT k FROM mv") == [[2], [2]]
    assert [row[0] for row in workplace.rows("SHOW INDEXES ON t")] == ["i"]
