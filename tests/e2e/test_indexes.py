"""Indexes: a read by an index has the rows of a read without one, at every time."""

from __future__ import annotations

import pytest
from tests.support.applications.indexed import KINDS, both, hydrated, pair, uses
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark


def same(place, condition, times=()):
    for at in ("", *(f" AS OF {time}" for time in times)):
        found = [
            sorted(place.rows(f"SELECT * FROM {name} WHERE {condition}{at}"), key=repr)
            for name in ("a", "b")
        ]
        assert found[0] == found[1], (condition, at)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sampled(4)
def test_a_look_up_has_the_rows_of_a_scan(workplace, kind):
    declared, values = KINDS[kind]
    pair(workplace, f"k {declared}, v INT")
    rows = ", ".join(f"({value}, {number})" for number, value in enumerate(values))
    both(workplace, f"INSERT INTO {{}} VALUES {rows}")
    both(workplace, f"INSERT INTO {{}} VALUES {rows}, ({values[0]}, 7)")
    hydrated(workplace, "by_k")
    both(workplace, "DELETE FROM {} WHERE v = 1")
    both(workplace, f"INSERT INTO {{}} VALUES ({values[1]}, 1), ({values[0]}, 1)")
    for value in values:
        same(workplace, f"k = {value}")
        same(workplace, f"k <=> {value}")
    same(workplace, f"k IN ({', '.join(values[:-1])})")
    same(workplace, "k IS NULL")
    assert uses(workplace, f"SELECT v FROM a WHERE k = {values[0]}", "by_k")
    assert not uses(workplace, f"SELECT v FROM b WHERE k = {values[0]}", "by_k")


def test_every_time_of_the_history(workplace):
    pair(workplace, "k INT, v STRING")
    both(workplace, "INSERT INTO {} VALUES (1, 'a'), (2, 'b')")
    hydrated(workplace, "by_k")
    times = []
    for change in (
        "INSERT INTO {} VALUES (1, 'c'), (1, 'c'), (3, 'd')",
        "UPDATE {} SET v = upper(v) WHERE k = 1",
        "DELETE FROM {} WHERE v = 'C'",
        "MERGE INTO {} USING (SELECT 3 AS k) s ON {0}.k = s.k WHEN MATCHED THEN UPDATE SET v = 'm'",
        "INSERT OVERWRITE {} VALUES (1, 'e')",
    ):
        both(workplace, change.replace("{}", "{0}"))
        times.append(workplace.value("SELECT mz_now()"))
    for key in (1, 2, 3, 4):
        same(workplace, f"k = {key}", times)
    assert uses(workplace, f"SELECT v FROM a WHERE k = 1 AS OF {times[2]}", "by_k")


def test_keys_may_be_expressions_and_several(workplace):
    workplace.sql("CREATE TABLE a (x INT, y STRING, v INT)")
    workplace.sql("CREATE INDEX i ON a (lower(y), x + 1)")
    workplace.sql("INSERT INTO a VALUES (1, 'A', 10), (1, 'b', 11), (2, 'a', 12), (NULL, 'a', 13)")
    hydrated(workplace, "i")
    query = "SELECT v FROM a WHERE lower(y) = 'a' AND x + 1 = 2 AND v > 0"
    assert workplace.rows(query) == [[10]]
    assert uses(workplace, query, "i")
    for other in ("lower(y) = 'a'", "x + 1 = 2", "upper(y) = 'A' AND x + 1 = 2", "y = 'a'"):
        assert not uses(workplace, f"SELECT v FROM a WHERE {other}", "i")
    several = "SELECT v FROM a WHERE lower(y) IN ('a', 'b') AND x + 1 IN (2, 3) ORDER BY v"
    assert workplace.rows(several) == [[10], [11], [12]]
    assert uses(workplace, several, "i")


def test_a_relation_changes_below_its_index(workplace):
    """A later column, another name: the index goes on, and finds what is there."""
    workplace.sql("CREATE TABLE a (k INT, v STRING)")
    workplace.sql("CREATE INDEX i ON a (k)")
    workplace.sql("INSERT INTO a VALUES (1, 'a')")
    hydrated(workplace, "i")
    workplace.sql("ALTER TABLE a ADD COLUMN w INT")
    workplace.sql("INSERT INTO a VALUES (1, 'b', 5)")
    hydrated(workplace, "i")
    assert workplace.rows("SELECT * FROM a WHERE k = 1 ORDER BY v") == [
        [1, "a", None],
        [1, "b", 5],
    ]
    wait_until(lambda: uses(workplace, "SELECT * FROM a WHERE k = 1", "i"), what="the index")
    workplace.sql("ALTER TABLE a RENAME TO c")
    assert workplace.rows("SELECT w FROM c WHERE k = 1 AND v = 'b'") == [[5]]
    [(_, shown)] = workplace.rows("SHOW CREATE INDEX i")
    assert f"ON `slackwater`.`{workplace.schema}`.`c` (k)" in shown
    workplace.sql("DROP INDEX i")
    workplace.sql(shown)
    hydrated(workplace, "i")
    assert uses(workplace, "SELECT w FROM c WHERE k = 1", "i")
    workplace.sql("DROP TABLE c")
    assert workplace.rows("SHOW INDEXES") == []


def test_an_index_on_a_view_that_is_maintained(workplace):
    workplace.sql("CREATE TABLE t (k INT, v INT)")
    workplace.sql("CREATE MATERIALIZED VIEW m AS SELECT k, sum(v) AS s FROM t GROUP BY k")
    workplace.sql("CREATE DEFAULT INDEX ON m")
    workplace.sql("CREATE INDEX ON m (k)")
    workplace.sql("INSERT INTO t VALUES (1, 1), (1, 2), (2, 5)")
    assert [row[0] for row in workplace.rows("SHOW INDEXES")] == ["m_k_idx", "m_primary_idx"]
    hydrated(workplace, "m_k_idx")
    assert workplace.rows("SELECT s FROM m WHERE k = 1") == [[3]]
    assert uses(workplace, "SELECT s FROM m WHERE k = 1", "m_k_idx")
    workplace.sql("INSERT INTO t VALUES (1, 10)")
    assert workplace.rows("SELECT s FROM m WHERE k = 1") == [[13]]


def test_too_many_rows_are_scanned(workplace):
    workplace.sql("CREATE TABLE a (k INT, v BIGINT)")
    workplace.sql("CREATE INDEX i ON a (k)")
    workplace.sql("INSERT INTO a SELECT 1, id FROM range(20000)")
    workplace.sql("INSERT INTO a SELECT 2, id FROM range(10)")
    hydrated(workplace, "i")
    assert not uses(workplace, "SELECT v FROM a WHERE k = 1", "i")
    assert workplace.value("SELECT count(*) FROM a WHERE k = 1") == 20000
    assert uses(workplace, "SELECT v FROM a WHERE k = 2", "i")
    assert workplace.value("SELECT count(*) FROM a WHERE k = 2") == 10


FRAME = """
spark.sql("USE slackwater.{schema}")
frame = spark.sql("SELECT v FROM t WHERE k = 1")
result = [[row.v for row in frame.collect()]]
spark.sql("UPDATE t SET v = 'b' WHERE k = 1")
result.append([row.v for row in frame.collect()])
result.append(frame.toPandas().v.tolist())
result.append([row.v for row in frame.take(1)])
result.append(frame.count())
for key in (1, 2):
    rows = spark.sql("SELECT v FROM t WHERE k = :key", args={{"key": key}}).collect()
    result.append([row.v for row in rows])
joined = spark.sql("SELECT t.v FROM t JOIN VALUES (1) AS s(k) ON t.k = s.k WHERE t.k = 1")
result.append([row.v for row in joined.collect()])
"""


def test_each_action_of_a_frame_reads_anew(workplace):
    workplace.sql("CREATE TABLE t (k INT, v STRING)")
    workplace.sql("CREATE INDEX i ON t (k)")
    workplace.sql("INSERT INTO t VALUES (1, 'a'), (2, 'c')")
    wait_until(lambda: uses(workplace, "SELECT v FROM t WHERE k = 1", "i"), what="the index")
    found = workplace.application.python(FRAME.format(schema=workplace.schema))
    assert found == [["a"], ["b"], ["b"], ["b"], 1, ["b"], ["c"], ["b"]]


def test_a_block_reads_at_its_own_time(workplace):
    workplace.sql("CREATE TABLE t (k INT, v STRING)")
    workplace.sql("CREATE INDEX i ON t (k) WITH (RETAIN HISTORY FOR '1 hour')")
    workplace.sql("INSERT INTO t VALUES (1, 'a')")
    query = "SELECT v FROM t WHERE k = 1"
    wait_until(lambda: uses(workplace, query, "i"), what="the index")
    workplace.use("other")
    workplace.sql("BEGIN")
    assert workplace.rows(query) == [["a"]]
    workplace.sql("UPDATE t SET v = 'b'", session="other")
    assert workplace.rows(query) == [["a"]]
    workplace.sql("COMMIT")
    assert workplace.rows(query) == [["b"]]
