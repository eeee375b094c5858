"""Definitions keep the settings of Spark's that they were made with."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

QUERY = """
SELECT id, date(ts) AS day, CAST(ts AS STRING) AS shown, CAST(word AS INT) AS number,
       1 / (id - 1) AS quotient
FROM slackwater.{schema}.e
"""

DAYS = """
SELECT date(ts) AS day, count(*) AS n, max(CAST(word AS INT)) AS number
FROM slackwater.{schema}.e GROUP BY date(ts)
"""

RECOMPUTED = """
SELECT date(ts) AS day, CAST(word AS INT) AS number, row_number() OVER (ORDER BY id) AS place
FROM slackwater.{schema}.e
"""

CODE = """
lenient = spark.newSession()
lenient.conf.set('spark.sql.session.timeZone', 'America/New_York')
lenient.conf.set('spark.sql.ansi.enabled', 'false')
lenient.sql('USE spark_catalog')
lenient.sql('CREATE TABLE slackwater.{schema}.e (id INT, ts TIMESTAMP, word STRING)')
late = "TIMESTAMP'2024-03-01 23:30:00'"
insert = 'INSERT INTO slackwater.{schema}.e VALUES '
lenient.sql(insert + "(1, " + late + ", 'one'), (2, " + late + ", '2')")
queries = {queries!r}
for name, query in queries.items():
    lenient.sql('CREATE MATERIALIZED VIEW slackwater.{schema}.mv_' + name + ' AS ' + query)
    lenient.sql('CREATE VIEW slackwater.{schema}.v_' + name + ' AS ' + query)

def rows(session, text):
    return sorted([str(value) for value in row] for row in session.sql(text).collect())

def compared():
    found = []
    for name, query in queries.items():
        wanted = rows(lenient, query)
        for kind in ('mv_', 'v_'):
            for session in (lenient, spark):
                got = rows(session, 'SELECT * FROM slackwater.{schema}.' + kind + name)
                if got != wanted:
                    found.append([kind + name, got, wanted])
    return found

before = compared()
lenient.sql(insert + "(3, " + late + ", 'three'), (4, NULL, '4')")
lenient.sql("DELETE FROM slackwater.{schema}.e WHERE id = 2")
after = compared()

lenient.sql("DECLARE days CURSOR FOR SUBSCRIBE TO (" + queries['query'] + ")")
followed = sorted(
    [str(value) for value in row[2:]] for row in lenient.sql('FETCH ALL days').collect()
)
lenient.sql('CLOSE days')
wanted = rows(lenient, queries['query'])

try:
    spark.sql('CREATE MATERIALIZED VIEW slackwater.{schema}.other AS '
              'SELECT day FROM slackwater.{schema}.v_query')
    refused = []
except Exception as error:
    refused = [error.getCondition(), 'timeZone' in str(error) or 'ansi' in str(error)]
lenient.conf.set('spark.sql.ansi.doubleQuotedIdentifiers', 'true')
try:
    lenient.sql('CREATE MATERIALIZED VIEW slackwater.{schema}.quoted AS '
                'SELECT "id" FROM slackwater.{schema}.e')
except Exception as error:
    refused.append(error.getCondition())
lenient.conf.unset('spark.sql.ansi.doubleQuotedIdentifiers')
lenient.sql('CREATE MATERIALIZED VIEW slackwater.{schema}.same AS '
            'SELECT day, number FROM slackwater.{schema}.v_query')
above = [
    rows(spark, 'SELECT * FROM slackwater.{schema}.same'),
    rows(lenient, 'SELECT day, number FROM (' + queries['query'] + ')'),
]
shown = spark.sql('SHOW CREATE MATERIALIZED VIEW slackwater.{schema}.mv_query').collect()[0][1]
result = [before, after, followed == wanted, refused, above[0] == above[1], 'New_York' in shown]
"""


def test_views_mean_what_they_meant_to_the_session_that_made_them(workplace):
    queries = {
        name: " ".join(text.format(schema=workplace.schema).split())
        for name, text in (("query", QUERY), ("days", DAYS), ("recomputed", RECOMPUTED))
    }
    code = CODE.format(schema=workplace.schema, queries=queries)
    before, after, followed, refused, above, shown = workplace.application.python(code)
    assert before == []
    assert after == []
    assert followed
    assert refused == ["SLACKWATER_UNSUPPORTED", True, "SLACKWATER_UNSUPPORTED"]
    assert above
    assert shown


def test_a_cached_table_is_read_as_it_is(workplace):
    workplace.sql("CREATE TABLE t (k INT) WITH (RETAIN HISTORY FOR '1 hour')")
    workplace.sql("INSERT INTO t VALUES (1)")
    time = workplace.value("SELECT mz_now()")
    workplace.sql("CACHE TABLE t")
    workplace.sql(f"CACHE TABLE kept_past AS SELECT k FROM t AS OF {time}")
    workplace.sql("INSERT INTO t VALUES (2)")
    assert workplace.value("SELECT count(*) FROM t") == 2
    assert workplace.value("SELECT count(*) FROM kept_past") == 1
    ((plan,),) = workplace.rows("EXPLAIN SELECT k FROM kept_past")
    assert "InMemoryRelation" in plan
    workplace.sql("UNCACHE TABLE t")
    workplace.sql("UNCACHE TABLE kept_past")
    ((plan,),) = workplace.rows("EXPLAIN SELECT k FROM kept_past")
    assert "InMemoryRelation" not in plan
    assert workplace.value("SELECT count(*) FROM kept_past") == 1
    workplace.sql("DROP VIEW kept_past")
