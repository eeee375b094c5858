"""Transaction blocks over the whole product."""

from __future__ import annotations

import pytest
from tests.support.applications.application import SqlError, coordinators, kill
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

RETENTION_MS = 1000


def test_a_block_reads_one_time_however_long_it_is_open(workplace):
    workplace.sql("CREATE TABLE a (k INT)")
    workplace.sql("CREATE TABLE b (k INT)")
    workplace.sql("INSERT INTO a VALUES (1)")
    workplace.sql("BEGIN")
    ((read_at, count),) = workplace.rows("SELECT mz_now(), count(*) FROM a")
    assert count == 1
    workplace.use("other")
    workplace.sql("INSERT INTO a VALUES (2)", session="other")
    workplace.sql("INSERT INTO b VALUES (2)", session="other")
    wait_until(
        lambda: workplace.value("SELECT mz_now()", session="other") > read_at + 2 * RETENTION_MS,
        what="the history of the tables to be over",
    )
    assert workplace.rows("SELECT mz_now(), count(*) FROM a") == [[read_at, 1]]
    assert workplace.rows("SELECT mz_now(), count(*) FROM b") == [[read_at, 0]]
    assert workplace.value("SELECT mz_now()") == read_at
    workplace.sql("COMMIT")
    assert workplace.value("SELECT count(*) FROM a") == 2
    with pytest.raises(SqlError) as refused:
        workplace.rows(f"SELECT * FROM a VERSION AS OF {read_at}")
    assert refused.value.condition == "SLACKWATER_NO_VALID_TIMESTAMP"


def test_a_block_ends_with_the_coordinator(workplace):
    """Whatever connections it broke, and whatever the first statement is that comes after it."""

    def open_block_and_kill():
        others = [
            workplace.application.start("SELECT 1", session=f"other {number}")
            for number in range(20)
        ]
        for other in others:
            other.result()
        workplace.sql("BEGIN")
        workplace.sql("INSERT INTO a VALUES (1)")
        for pid in coordinators(workplace.application.location):
            kill(pid)

    workplace.sql("CREATE TABLE a (k INT)")
    open_block_and_kill()
    workplace.sql("ROLLBACK")
    workplace.sql("INSERT INTO a VALUES (2)")
    assert workplace.rows("SELECT k FROM a") == [[2]]
    open_block_and_kill()
    for statement, condition in (
        ("COMMIT", "SLACKWATER_TRANSACTION_LOST"),
        ("INSERT INTO a VALUES (3)", None),
    ):
        assert outcome(workplace, statement) == condition
    assert workplace.value("SELECT sum(k) FROM a") == 5
    open_block_and_kill()
    for statement, condition in (
        ("INSERT INTO a VALUES (4)", "SLACKWATER_TRANSACTION_LOST"),
        ("INSERT INTO a VALUES (4)", "SLACKWATER_FAILED_TRANSACTION"),
        ("COMMIT", None),
    ):
        assert outcome(workplace, statement) == condition
    assert workplace.value("SELECT sum(k) FROM a") == 5


def test_a_commit_says_what_became_of_it_also_when_the_coordinator_is_killed(workplace):
    workplace.sql("CREATE TABLE a (k INT)")
    rows = 0
    for _ in range(2):
        workplace.sql("BEGIN")
        workplace.sql("INSERT INTO a VALUES (1)")
        pending = workplace.application.start("COMMIT")
        for pid in coordinators(workplace.application.location):
            kill(pid)
        told = condition_of(pending.result)
        assert told in (None, "SLACKWATER_TRANSACTION_LOST")
        rows += told is None
        assert workplace.value("SELECT count(*) FROM a") == rows


IN_SQL = (
    "CREATE TABLE u (k INT)",
    "CREATE TABLE IF NOT EXISTS u (k INT)",
    "CREATE TABLE u (k INT) WITH (RETAIN HISTORY FOR '1 hour')",
    "CREATE TABLE u AS SELECT * FROM a",
    "CREATE OR REPLACE TABLE a (k INT)",
    "REPLACE TABLE a AS SELECT 1 AS k",
    "ALTER TABLE a ADD COLUMN v STRING",
    "ALTER TABLE a SET TBLPROPERTIES ('retain_history' = '1 hour')",
    "ALTER TABLE a RENAME TO u",
    "COMMENT ON TABLE a IS 'other'",
    "COMMENT ON COLUMN a.k IS 'other'",
    "DROP TABLE a",
    "DROP TABLE IF EXISTS a",
    "DROP TABLE a CASCADE",
    "TRUNCATE TABLE a",
    "CREATE VIEW w AS SELECT * FROM a",
    "CREATE OR REPLACE VIEW v AS SELECT 1 AS one",
    "ALTER VIEW v AS SELECT 2 AS two",
    "ALTER VIEW v RENAME TO w",
    "DROP VIEW v",
    "CREATE MATERIALIZED VIEW w AS SELECT * FROM a",
    "CREATE SOURCE s FROM LOAD GENERATOR COUNTER (TICK INTERVAL '1 h')",
    "CREATE SCHEMA slackwater.made_in_a_block",
    "COMMENT ON SCHEMA slackwater.default IS 'other'",
    "DROP SCHEMA slackwater.empty_one",
)
IN_PYTHON = (
    "spark.range(1).write.saveAsTable('u')",
    "spark.range(1).writeTo('u').create()",
    "spark.range(1).writeTo('a').createOrReplace()",
    "spark.catalog.createTable('u', schema=spark.range(1).schema)",
)


def test_definitions_are_refused_in_a_block_and_change_nothing(workplace):
    def there_is():
        shown = ("SHOW TABLES", "SHOW VIEWS", "SHOW SCHEMAS", "DESCRIBE EXTENDED a")
        return [
            *map(workplace.rows, shown),
            workplace.rows("SELECT * FROM a"),
            workplace.rows("SELECT * FROM v"),
            workplace.rows("SELECT id, name FROM mz_catalog.mz_objects ORDER BY id"),
        ]

    workplace.sql("CREATE TABLE a (k INT)")
    workplace.sql("INSERT INTO a VALUES (1)")
    workplace.sql("CREATE VIEW v AS SELECT k FROM a")
    workplace.sql("CREATE SCHEMA slackwater.empty_one")
    before = there_is()
    refused = ("SLACKWATER_TRANSACTION_STATEMENT", "25001")
    for define, text in (
        *((workplace.sql, text) for text in IN_SQL),
        *((workplace.application.python, code) for code in IN_PYTHON),
    ):
        workplace.sql("BEGIN")
        with pytest.raises(SqlError) as told:
            define(text)
        assert (told.value.condition, told.value.sqlstate) == refused, text
        assert outcome(workplace, "SELECT 1 FROM a") == "SLACKWATER_FAILED_TRANSACTION", text
        workplace.sql("COMMIT")
    # None of them undoes what another one has done.
    assert there_is() == before
    workplace.sql("DROP SCHEMA slackwater.empty_one")


def outcome(workplace, statement):
    """The condition that the statement fails with, None when it succeeds."""
    return condition_of(lambda: workplace.sql(statement))


def condition_of(action):
    try:
        action()
    except SqlError as error:
        return error.condition
    return None
