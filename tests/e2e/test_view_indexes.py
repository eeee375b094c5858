"""Indexes on plain views: a read by an index has the rows of the view's query, at every time."""

from __future__ import annotations

import time

import pytest
from tests.e2e.test_index_joins import EVERY, FORMS
from tests.support.applications.application import SqlError
from tests.support.applications.indexed import KINDS, both, hydrated, plan_of, uses
from tests.support.applications.many_relations import interpreted
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

RETAINED = "WITH (RETAIN HISTORY FOR '1 day')"


def viewed(place, columns, query, keys="k"):
    """Two tables with the same columns, and over each a view; that over the first has an index."""
    for name in ("a", "b"):
        place.sql(f"CREATE TABLE {name} ({columns}) {RETAINED}")
        place.sql(f"CREATE VIEW over_{name} AS {query.format(t=name)}")
    place.sql(f"CREATE INDEX i ON over_a ({keys}) {RETAINED}")


def same(place, text, times=(), session="main"):
    for at in ("", *(f" AS OF {each}" for each in times)):
        found = [
            # An index has the usual one of values that are the same to a collection.
            sorted(
                repr(row).replace("-0.0", "0.0")
                for row in place.rows(text.format(v=name) + at, session=session)
            )
            for name in ("over_a", "over_b")
        ]
        assert found[0] == found[1], (text, at)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sampled(4)
def test_a_look_up_has_the_rows_of_the_query(workplace, kind):
    declared, values = KINDS[kind]
    # Both sides give rows, which a change takes away from one of them alone.
    query = "SELECT k, v FROM {t} WHERE v < 100 UNION ALL SELECT k, v + 100 FROM {t}"
    viewed(workplace, f"k {declared}, v INT", query)
    rows = ", ".join(f"({value}, {number})" for number, value in enumerate(values))
    both(workplace, f"INSERT INTO {{}} VALUES {rows}")
    both(workplace, f"INSERT INTO {{}} VALUES {rows}, ({values[0]}, 7)")
    hydrated(workplace, "i")
    both(workplace, "DELETE FROM {} WHERE v = 1")
    both(workplace, f"INSERT INTO {{}} VALUES ({values[1]}, 1), ({values[0]}, 1)")
    session = interpreted(workplace)
    by_key = "SELECT * FROM {v} WHERE "
    wait_until(
        lambda: uses(workplace, by_key.format(v="over_a") + f"k <=> {values[0]}", "i", session),
        what="the index",
    )
    conditions = [f"k {sign} {value}" for value in values for sign in ("=", "<=>")]
    conditions += [f"k IN ({', '.join(values[:-1])})", "k IS NULL AND v > 1", "true"]
    same(
        workplace,
        " UNION ALL ".join(
            f"SELECT {number} AS asked, * FROM {{v}} WHERE {condition}"
            for number, condition in enumerate(conditions)
        ),
        session=session,
    )
    assert not uses(workplace, by_key.format(v="over_b") + f"k <=> {values[0]}", "i", session)


QUERIES = {
    "join": "SELECT x.k, y.v FROM {t} x JOIN {t} y ON x.v = y.v + 1",
    "outer": "SELECT x.k, y.v FROM {t} x LEFT JOIN {t} y ON x.v = y.v + 1",
    "grouped": "SELECT k, sum(v) AS v, count(*) AS n FROM {t} GROUP BY k HAVING count(*) > 1",
    "distinct": "SELECT DISTINCT k, v % 3 AS v FROM {t}",
    "not in": "SELECT k, v FROM {t} WHERE v NOT IN (SELECT k FROM {t} WHERE k IS NOT NULL)",
    "renamed": "SELECT v AS k, k AS v FROM {t}",
    "window": "SELECT k, v, sum(v) OVER (PARTITION BY k) AS s FROM {t}",
    "first": "SELECT k, v FROM {t} ORDER BY v DESC, k LIMIT 3",
}
CHANGES = (
    "INSERT INTO {} VALUES (1, 1), (1, 2), (2, 2), (NULL, 3)",
    "UPDATE {} SET v = v + 1 WHERE k = 1",
    "DELETE FROM {} WHERE v = 2",
    "INSERT INTO {} VALUES (1, 1), (3, 1), (3, 2), (2, 2)",
    "INSERT OVERWRITE {} VALUES (1, 2), (2, 1), (2, 3)",
)


@pytest.mark.nightly
def test_every_time_of_the_history_of_every_query(workplace):
    for name in ("a", "b"):
        workplace.sql(f"CREATE TABLE {name} (k INT, v INT) {RETAINED}")
        for number, query in enumerate(QUERIES.values()):
            workplace.sql(f"CREATE VIEW {name}{number} AS {query.format(t=name)}")
    both(workplace, "INSERT INTO {} VALUES (1, 1), (2, 2)")
    for number in range(len(QUERIES)):
        workplace.sql(f"CREATE INDEX i{number} ON a{number} (k) {RETAINED}")
    hydrated(workplace, *(f"i{number}" for number in range(len(QUERIES))))
    times = [workplace.value("SELECT mz_now()")]
    for change in CHANGES:
        both(workplace, change)
        times.append(workplace.value("SELECT mz_now()"))
    session = interpreted(workplace)
    for number in range(len(QUERIES)):
        asked = f"SELECT * FROM a{number} WHERE k = 2 AS OF {times[-1]}"
        wait_until(lambda n=number, q=asked: uses(workplace, q, f"i{n}", session), what="the index")

    def rows(name, at):
        parts = (
            f"SELECT {key} AS asked, {number} AS n, to_json(struct(*)) AS row "
            f"FROM {name}{number} WHERE k <=> {key}"
            for number in range(len(QUERIES))
            for key in ("1", "2", "3", "NULL")
        )
        text = f"{' UNION ALL '.join(parts)} AS OF {at}"
        return sorted(workplace.rows(text, session=session), key=repr)

    for time_ms in times:
        assert rows("a", time_ms) == rows("b", time_ms), time_ms
        assert rows("a", time_ms) or time_ms != times[-1]


def test_keys_may_be_expressions_over_the_columns_of_the_view(workplace):
    workplace.sql("CREATE TABLE t (x INT, y STRING)")
    # The names of the view's columns are those of other columns below.
    workplace.sql("CREATE VIEW v (y, x) AS SELECT x + 1 AS p, upper(y) AS q FROM t")
    workplace.sql("CREATE INDEX i ON v (y * 2, lower(x))")
    workplace.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (2, 'B')")
    hydrated(workplace, "i")
    query = "SELECT y, x FROM v WHERE y * 2 = 6 AND lower(x) = 'b'"
    wait_until(lambda: uses(workplace, query, "i"), what="the index")
    assert workplace.rows(query) == [[3, "B"], [3, "B"]]
    assert workplace.rows("SELECT y FROM v WHERE x = 'A' OR y = 9") == [[2]]
    joined = "SELECT v.x FROM VALUES (2), (3) AS s(y) JOIN v ON s.y = v.y WHERE v.y * 2 = 4"
    assert workplace.rows(joined) == [["A"]]


FEW_OF_MANY = {
    "a condition": "SELECT * FROM {v} WHERE s = 7",
    "several conditions": "SELECT k + 1 AS x FROM {v} WHERE s > 4 AND k % 1000 = 7 AND s < 9",
    "a condition on a column with another name": "SELECT * FROM (SELECT s + 1 AS z FROM {v})"
    " WHERE z = 8",
    "the first ones": "SELECT * FROM {v} ORDER BY s DESC, k LIMIT 7",
    "the last ones": "SELECT * FROM {v} ORDER BY s, k DESC LIMIT 7",
    "NULL first": "SELECT n, k FROM {v} ORDER BY n NULLS FIRST, k LIMIT 5",
    "NULL last": "SELECT n, k FROM {v} ORDER BY n DESC NULLS LAST, k LIMIT 5",
    "the first ones by what is left out": "SELECT n FROM {v} ORDER BY k DESC LIMIT 3",
    "the first ones by an expression": "SELECT k % 10 AS y, k FROM {v} ORDER BY y DESC, k LIMIT 4",
    "the first ones of some": "SELECT * FROM {v} WHERE k > 9 AND s <> 7 ORDER BY k LIMIT 3",
    "any": "SELECT s > -100 FROM {v} LIMIT 3",
    "no row": "SELECT * FROM {v} WHERE s < 0 LIMIT 3",
    "repeated rows": "SELECT s FROM {v} WHERE k IS NULL",
    "both of a union": "SELECT k FROM {v} WHERE s = 7 UNION ALL SELECT k FROM {v} WHERE s = 8",
    "an aggregate of few": "SELECT max(k), count(*) FROM {v} WHERE s = 7",
}


def test_few_of_many_rows_of_a_view_come_from_its_index(workplace):
    place = workplace
    columns = "k INT, v INT"
    query = (
        "SELECT k, sum(v) AS s, max(CASE WHEN k > 5 THEN v END) AS n FROM {t} GROUP BY k"
        " UNION ALL SELECT NULL, v, v FROM {t} WHERE k < 2"
    )
    viewed(place, columns, query)
    both(place, "INSERT INTO {} SELECT id, id % 1000 FROM range(3000)")
    hydrated(place, "i")
    before = place.value("SELECT mz_now()")
    both(place, "DELETE FROM {} WHERE k = 17")
    both(place, "INSERT INTO {} VALUES (1, 6), (3, 4), (30000, -5), (0, 3), (0, 3)")
    whole = "SELECT * FROM {v} WHERE s = 7"
    wait_until(lambda: uses(place, whole.format(v="over_a"), "i"), what="the index")
    for name, text in FEW_OF_MANY.items():
        same(place, text, [before])
        assert uses(place, f"{text.format(v='over_a')} AS OF {before}", "i"), name
    # All of it, and what only the statement itself can decide.
    for text in (
        "SELECT count(*), sum(s) FROM {v}",
        "SELECT * FROM {v} WHERE s = (SELECT max(s) - 1 FROM {v})",
        "SELECT k FROM {v} ORDER BY k LIMIT 400",
        "SELECT k FROM {v} WHERE s >= 0 ORDER BY k LIMIT 5 OFFSET 2",
    ):
        same(place, text)
    with pytest.raises(SqlError, match="DIVIDE_BY_ZERO"):
        place.sql("SELECT * FROM over_a WHERE 1 / (s - 7) > 1")


@pytest.mark.nightly
def test_a_view_is_read_as_a_whole_from_its_index(workplace):
    workplace.sql("CREATE TABLE t (k INT, v INT)")
    workplace.sql("CREATE VIEW v AS SELECT k, sum(v) AS s FROM t GROUP BY k")
    workplace.sql("CREATE VIEW above AS SELECT s FROM v WHERE k > 1")
    workplace.sql("CREATE DEFAULT INDEX ON v")
    workplace.sql("INSERT INTO t SELECT id % 3, 1 FROM range(3000)")
    wait_until(lambda: uses(workplace, "SELECT * FROM above", "v_primary_idx"), what="the index")
    assert workplace.rows("SELECT * FROM above") == [[1000]]
    assert workplace.value("SELECT sum(s) FROM v") == 3000
    workplace.sql("INSERT INTO t SELECT id, 1 FROM range(20000)")
    assert workplace.value("SELECT count(*) FROM v") == 20000
    asked = "SELECT s FROM v WHERE k = 2 AND s = 1001"
    wait_until(lambda: uses(workplace, asked, "v_primary_idx"), what="the index")
    assert workplace.rows(asked) == [[1001]]
    wait_until(lambda: uses(workplace, "SELECT * FROM v", "v_primary_idx"), what="the index")
    assert workplace.rows("SELECT count(*), sum(s) FROM v") == [[20000, 23000]]
    # Too many rows for the driver.
    workplace.sql("INSERT INTO t SELECT id, 1 FROM range(20000, 210000)")
    wait_until(lambda: uses(workplace, "SELECT * FROM v WHERE k = 2", "v_primary_idx"), what="it")
    assert not uses(workplace, "SELECT * FROM v", "v_primary_idx")
    assert uses(workplace, "SELECT * FROM v WHERE s > 1000", "v_primary_idx")
    assert workplace.rows("SELECT count(*), sum(s) FROM v") == [[210000, 213000]]


def test_an_index_on_the_relation_below_is_used_where_that_of_the_view_is_not(workplace):
    workplace.sql("CREATE TABLE t (k INT, v INT)")
    workplace.sql("CREATE INDEX by_k ON t (k)")
    workplace.sql("CREATE VIEW v AS SELECT k, v + 1 AS w FROM t")
    workplace.sql("CREATE VIEW above AS SELECT k, w * 2 AS d FROM v")
    workplace.sql("CREATE INDEX by_w ON v (w)")
    workplace.sql("CREATE INDEX by_d ON above (d)")
    workplace.sql("INSERT INTO t SELECT id, id FROM range(20000)")
    for condition, index in (("k = 7", "by_k"), ("w = 8", "by_w")):
        query = f"SELECT k FROM v WHERE {condition}"
        wait_until(lambda q=query, i=index: uses(workplace, q, i), what=index)
        assert workplace.rows(query) == [[7]]
    for condition, index in (("d = 16", "by_d"), ("k = 7", "by_k")):
        query = f"SELECT k FROM above WHERE {condition}"
        wait_until(lambda q=query, i=index: uses(workplace, q, i), what=index)
        assert workplace.rows(query) == [[7]]


def test_rows_come_and_go_as_time_passes(workplace):
    workplace.sql(f"CREATE TABLE t (k INT, begins BIGINT, ends BIGINT) {RETAINED}")
    workplace.sql(
        "CREATE VIEW v AS SELECT k, ends FROM t WHERE mz_now() >= begins AND mz_now() < ends"
    )
    workplace.sql(f"CREATE INDEX i ON v (k) {RETAINED}")
    hydrated(workplace, "i")
    now_ms = int(time.time() * 1000)
    workplace.sql(
        f"INSERT INTO t VALUES (1, 0, {now_ms + 4000}), (1, {now_ms + 2000}, {now_ms + 10**9}),"
        f" (2, 0, {now_ms + 10**9})"
    )
    before = workplace.value("SELECT mz_now()")
    query = "SELECT ends FROM v WHERE k = 1"

    def over():
        return workplace.rows(query) == [[now_ms + 10**9]]

    wait_until(over, what="a row goes")
    after = workplace.value("SELECT mz_now()")
    at = f"{query} AS OF {{}}"
    wait_until(lambda: uses(workplace, at.format(after), "i"), what="the index")
    assert uses(workplace, at.format(before), "i")
    for moment in range(before, after, 250):
        found = sorted(workplace.rows(at.format(moment)))
        begun = moment >= now_ms + 2000
        assert found == [
            *([[now_ms + 4000]] if moment < now_ms + 4000 else []),
            *([[now_ms + 10**9]] if begun else []),
        ], moment - now_ms


def test_while_the_query_of_the_view_fails_reads_decide(workplace):
    workplace.sql("CREATE TABLE t (k INT, v INT)")
    workplace.sql("CREATE VIEW v AS SELECT k, 10 / v AS q FROM t")
    workplace.sql("CREATE INDEX i ON v (k)")
    workplace.sql("INSERT INTO t VALUES (1, 5), (2, 2)")
    query = "SELECT k, q FROM v WHERE k = 1"
    wait_until(lambda: uses(workplace, query, "i"), what="the index")
    workplace.sql("INSERT INTO t VALUES (2, 0)")
    with pytest.raises(SqlError, match="DIVIDE_BY_ZERO"):
        workplace.rows("SELECT q FROM v WHERE k = 2")
    wait_until(lambda: not uses(workplace, query, "i"), what="the index is gone")
    assert workplace.rows(query) == [[1, "2.0"]]
    workplace.sql("DELETE FROM t WHERE v = 0")
    assert workplace.rows("SELECT q FROM v WHERE k = 2") == [["5.0"]]
    wait_until(lambda: uses(workplace, query, "i"), what="the index is back")


def test_the_view_changes_below_its_index(workplace):
    workplace.sql("CREATE TABLE t (k INT, v INT)")
    workplace.sql("CREATE VIEW v AS SELECT * FROM t")
    workplace.sql("CREATE INDEX i ON v (k)")
    workplace.sql("INSERT INTO t VALUES (1, 10)")
    wait_until(lambda: uses(workplace, "SELECT v FROM v WHERE k = 1", "i"), what="the index")
    workplace.sql("ALTER TABLE t ADD COLUMN w INT")
    workplace.sql("INSERT INTO t VALUES (1, 20, 5)")
    query = "SELECT * FROM v WHERE k = 1"
    assert sorted(workplace.rows(query)) == [[1, 10], [1, 20]]
    wait_until(lambda: uses(workplace, query, "i"), what="the index")
    assert sorted(workplace.rows(query)) == [[1, 10], [1, 20]]
    # The name comes to be that of another view.
    workplace.sql("ALTER VIEW v RENAME TO w")
    workplace.sql("CREATE VIEW v AS SELECT v AS k, k AS v FROM t")
    assert workplace.rows("SELECT v FROM v WHERE k = 10") == [[1]]
    assert sorted(workplace.rows("SELECT v FROM w WHERE k = 1")) == [[10], [20]]
    wait_until(lambda: uses(workplace, "SELECT v FROM w WHERE k = 1", "i"), what="the index")
    assert sorted(workplace.rows("SELECT v FROM w WHERE k = 1")) == [[10], [20]]
    [(_, shown)] = workplace.rows("SHOW CREATE INDEX i")
    assert f"ON `slackwater`.`{workplace.schema}`.`w` (k)" in shown
    workplace.sql("CREATE OR REPLACE VIEW w AS SELECT k, v + 1 AS v FROM t")
    assert workplace.rows("SHOW INDEXES") == []
    assert sorted(workplace.rows("SELECT v FROM w WHERE k = 1")) == [[11], [21]]


CACHED = """
spark.sql("USE slackwater.{schema}")
frame = spark.sql("SELECT v FROM v WHERE k = 1")
result = [[row.v for row in frame.collect()]]
frame.cache()
result.append([row.v for row in frame.collect()])
spark.sql("UPDATE t SET v = 'b' WHERE k = 1")
result.append([row.v for row in frame.collect()])
frame.unpersist()
result.append([row.v for row in frame.collect()])
found = spark.sql("SELECT v FROM v WHERE k = :k", args={{"k": 1}})
result.append([row.v for row in found.collect()])
found = spark.sql("SELECT (SELECT count(*) FROM v WHERE v.k = t.k) AS n FROM t")
result.append([row.n for row in found.collect()])
"""


def test_each_action_of_a_frame_reads_anew(workplace):
    workplace.sql("CREATE TABLE t (k INT, v STRING)")
    workplace.sql("CREATE VIEW v AS SELECT k, max(v) AS v FROM t GROUP BY k")
    workplace.sql("CREATE INDEX i ON v (k)")
    workplace.sql("INSERT INTO t VALUES (1, 'a'), (2, 'c')")
    wait_until(lambda: uses(workplace, "SELECT v FROM v WHERE k = 1", "i"), what="the index")
    found = workplace.application.python(CACHED.format(schema=workplace.schema))
    assert found[0] == found[1] == ["a"]
    assert found[3:] == [["b"], ["b"], [1, 1]]


def test_writes_take_their_rows_from_an_indexed_view(workplace):
    workplace.sql("CREATE TABLE t (k INT, v INT)")
    workplace.sql("CREATE TABLE made (k INT, v INT)")
    workplace.sql("CREATE VIEW v AS SELECT k, sum(v) AS v FROM t GROUP BY k")
    workplace.sql("CREATE INDEX i ON v (k)")
    workplace.sql("INSERT INTO t VALUES (1, 1), (1, 2), (2, 5)")
    wait_until(lambda: uses(workplace, "SELECT v FROM v WHERE k = 1", "i"), what="the index")
    workplace.sql("INSERT INTO made SELECT k, v FROM v WHERE k = 1")
    workplace.sql("UPDATE made SET v = v + 1 WHERE k IN (SELECT k FROM v WHERE k = 1)")
    workplace.sql(
        "MERGE INTO made USING (SELECT k, v FROM v) s ON made.k = s.k "
        "WHEN MATCHED THEN UPDATE SET v = made.v * 10 WHEN NOT MATCHED THEN INSERT *"
    )
    assert sorted(workplace.rows("SELECT * FROM made")) == [[1, 40], [2, 5]]


@pytest.mark.nightly
def test_joins_of_few_rows_look_up_in_the_view(workplace):
    viewed(workplace, "k INT, v INT", "SELECT k, CAST(sum(v) AS INT) AS v FROM {t} GROUP BY k")
    workplace.sql(f"CREATE TABLE p (k INT, n INT) {RETAINED}")
    workplace.sql("INSERT INTO p VALUES (1, 1), (2, 2), (3, 3), (NULL, 4), (1, 5)")
    both(workplace, "INSERT INTO {} VALUES (1, 1), (2, 2)")
    hydrated(workplace, "i")
    times = []
    for change in (
        "INSERT INTO {} VALUES (1, 3), (1, 3), (3, 4)",
        "DELETE FROM {} WHERE v = 4",
        "INSERT OVERWRITE {} VALUES (1, 7), (NULL, 8)",
    ):
        both(workplace, change)
        times.append(workplace.value("SELECT mz_now()"))
    text = FORMS["inner"].replace("{t}", "over_a")
    asked = f"{text} AS OF {times[-1]}"
    wait_until(lambda: "IndexLookupJoin" in plan_of(workplace, asked), what="the index")
    same(workplace, EVERY.replace("{t}", "{v}"), times)
    # How many rows a filter leaves is found out when it runs.
    many = "SELECT CAST(id AS INT) AS id FROM range(30000) WHERE id % 2 = 0"
    for how in ("", "LEFT", "LEFT SEMI", "LEFT ANTI"):
        query = f"SELECT p.id FROM ({many}) p {how} JOIN {{v}} t ON p.id = t.k"
        at = f" AS OF {times[0]}"
        assert "IndexLookupJoin" in plan_of(workplace, query.format(v="over_a") + at)
        same(workplace, f"SELECT count(*), sum(hash(id)) FROM ({query})", times)
