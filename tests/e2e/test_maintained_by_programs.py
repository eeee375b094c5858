"""Views that programs maintain hold their queries' rows, also after restarts and errors."""

from __future__ import annotations

import pytest
from tests.support.applications.application import SqlError, kill, only_coordinator
from tests.support.applications.many_relations import interpret, read_at_once

pytestmark = pytest.mark.spark

READER = "reader"
VIEWS = {
    "kept": "SELECT k, v + 1 AS x FROM t WHERE v > 1",
    "joined": "SELECT t.k, v, w FROM t JOIN u ON t.k = u.k",
    "left_side": "SELECT t.k, v, w FROM t LEFT JOIN u ON t.k = u.k",
    "both_sides": "SELECT t.k AS tk, u.k AS uk, v, w FROM t FULL JOIN u ON t.k = u.k AND v > 1",
    "found": "SELECT * FROM t WHERE k IN (SELECT k FROM u)",
    "missing": "SELECT * FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.w < 'm')",
    "grouped": "SELECT k, count(*) n, sum(v) s, avg(v) a, sum(CAST(v AS DOUBLE) / 3) d FROM t"
    " GROUP BY k HAVING count(*) > 1",
    "total": "SELECT count(*) n, sum(v) s FROM t",
    "chained": "SELECT a.k, a.v, b.v AS bv, w FROM t a JOIN t b ON a.k = b.k JOIN u ON u.k = b.k"
    " WHERE a.v <= b.v",
    "above": "SELECT k, v FROM t WHERE v > (SELECT avg(v) FROM t)",
    "counted": "SELECT k, v, (SELECT count(*) FROM u WHERE u.k = t.k) c FROM t",
    "extremes": "SELECT k, min(v) a, max(v) b, count(DISTINCT v) c, sum(v) s FROM t GROUP BY k",
    "numbered": "SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) n, sum(v) OVER () s"
    " FROM t",
    "listed": "SELECT k, array_sort(collect_list(v)) a, sort_array(collect_set(v), false) s,"
    " max_by(v, k) m FROM t GROUP BY k",
    "first_three": "SELECT k, v FROM t ORDER BY v DESC, k LIMIT 3",
    "first_of_each": "SELECT k, v FROM t QUALIFY row_number() OVER (PARTITION BY k ORDER BY v) = 1",
    "extreme": "SELECT max(v) b, count(*) c FROM t",
    "beside": "SELECT count(*) c, (SELECT max(k) FROM u) m FROM t",
    "united": "SELECT DISTINCT v FROM t UNION ALL SELECT k FROM u",
    "on_views": "SELECT j.k, count(*) n, max(e.b) b FROM joined j LEFT JOIN extremes e ON j.k = e.k"
    " GROUP BY j.k",
}
FIRST = "INSERT INTO t VALUES (1, 1), (1, 2), (2, 3), (NULL, 4)"
STEPS = (
    "INSERT INTO u VALUES (1, 'a'), (1, 'z'), (3, 'c'), (NULL, 'n')",
    "DELETE FROM t WHERE v = 2",
    "UPDATE t SET v = v + 1 WHERE k = 1",
    "INSERT INTO u VALUES (2, 'b')",
    "DELETE FROM u WHERE k = 1",
    "INSERT INTO t SELECT k, v + 10 FROM t",
    "DELETE FROM t",
    "INSERT INTO t VALUES (1, 5), (2, 6)",
)


@pytest.fixture(scope="module")
def place(workplace_of_file):
    place = workplace_of_file
    place.sql("CREATE TABLE t (k INT, v INT)")
    place.sql("CREATE TABLE u (k INT, w STRING)")
    place.sql(FIRST)
    place.use(READER)
    interpret(place, READER)
    for name, query in VIEWS.items():
        place.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    return place


def differing(place):
    """The views whose rows are not those of their queries, all read at one time."""
    asked = {f"{name} view": f"SELECT * FROM {name}" for name in VIEWS}
    asked |= {f"{name} query": query for name, query in VIEWS.items()}
    found = read_at_once(place, asked, session=READER)
    return [name for name in VIEWS if found[f"{name} view"] != found[f"{name} query"]]


def test_each_view_has_a_program(place):
    for name, query in VIEWS.items():
        rows = place.rows(f"EXPLAIN INCREMENTAL FOR MATERIALIZED VIEW {name}")
        assert all(row[3] != "recompute" for row in rows), query
    joined = place.rows("EXPLAIN INCREMENTAL FOR MATERIALIZED VIEW chained")
    assert [row[2] for row in joined if row[2].startswith("Join")] == ["Join of 3"]


def test_views_follow_each_change_and_go_on_after_a_restart(place):
    assert differing(place) == []
    for step in STEPS[:4]:
        place.sql(step)
        assert differing(place) == [], step
    leader = only_coordinator(place.application.location)
    kill(leader)
    for step in STEPS[4:]:
        place.sql(step)
        assert differing(place) == [], step


ROW_OF_QUOTIENTS = "the row (k = 3, v = 0) makes the query of slackwater.{}.quotients fail"


def test_a_row_that_fails_is_an_error_until_it_is_gone(place):
    place.sql("CREATE TABLE n (k INT, v INT)")
    place.sql("INSERT INTO n VALUES (1, 2), (2, 4)")
    place.sql(
        "CREATE MATERIALIZED VIEW quotients WITH (RETAIN HISTORY FOR '1 hour')"
        " AS SELECT k, 8 / v AS q FROM n"
    )
    place.sql("CREATE MATERIALIZED VIEW largest AS SELECT max(q) AS q FROM quotients")
    before = place.value("SELECT mz_now() FROM largest")
    place.sql("INSERT INTO n VALUES (3, 0)")
    for name in ("quotients", "largest"):
        with pytest.raises(SqlError) as failed:
            place.rows(f"SELECT * FROM {name}")
        said = str(failed.value)
        assert failed.value.condition == "SLACKWATER_DATA_ERROR"
        assert "[DIVIDE_BY_ZERO]" in said
        assert f"slackwater.{place.schema}.{name} cannot be read" in said
        assert ROW_OF_QUOTIENTS.format(place.schema) in said
        assert f"row in slackwater.{place.schema}.n," in said
        assert failed.value.sqlstate == "22012"
    shown = {row[0]: row for row in place.rows("SHOW MATERIALIZED VIEWS")}
    assert shown["quotients"][2] == shown["largest"][2] == "stalled"
    within = place.value("SELECT mz_now() FROM n LIMIT 1")
    place.sql("DELETE FROM n WHERE v = 0")
    assert sorted(place.rows("SELECT k, q FROM quotients")) == [[1, "4.0"], [2, "2.0"]]
    assert place.rows("SELECT * FROM largest") == [["4.0"]]
    shown = {row[0]: row for row in place.rows("SHOW MATERIALIZED VIEWS")}
    assert shown["quotients"][2] == shown["largest"][2] == "hydrated"
    assert len(place.rows(f"SELECT * FROM quotients VERSION AS OF {before}")) == 2
    with pytest.raises(SqlError) as failed:
        place.rows(f"SELECT * FROM quotients VERSION AS OF {within}")
    assert failed.value.sqlstate == "22012"
    assert ROW_OF_QUOTIENTS.format(place.schema) in str(failed.value)
    with pytest.raises(SqlError) as failed:
        place.rows(f"SUBSCRIBE quotients AS OF {before} UP TO {within + 1}")
    assert failed.value.sqlstate == "22012"
    assert ROW_OF_QUOTIENTS.format(place.schema) in str(failed.value)
    for query in ("SELECT * FROM quotients", "SELECT count(*) AS n FROM quotients"):
        for ends in (within + 1, place.value("SELECT mz_now() FROM n LIMIT 1")):
            with pytest.raises(SqlError) as failed:
                place.rows(f"SUBSCRIBE ({query}) AS OF {before} UP TO {ends}")
            assert failed.value.sqlstate == "22012"
            assert ROW_OF_QUOTIENTS.format(place.schema) in str(failed.value)
    seen = place.rows(f"SUBSCRIBE quotients AS OF {before} UP TO {before + 1}")
    assert sorted(row[1:] for row in seen) == [[1, 1, "4.0"], [1, 2, "2.0"]]
    place.sql("INSERT INTO n VALUES (4, 1)")
    assert sorted(place.rows("SELECT k, q FROM quotients")) == [
        [1, "4.0"],
        [2, "2.0"],
        [4, "8.0"],
    ]


def test_a_null_in_an_asserted_column_is_an_error_until_it_is_gone(place):
    place.sql("CREATE TABLE people (id INT, name STRING)")
    place.sql("INSERT INTO people VALUES (1, 'Ada')")
    with pytest.raises(SqlError) as failed:
        place.sql("CREATE MATERIALIZED VIEW m WITH (ASSERT NOT NULL nam) AS SELECT * FROM people")
    assert failed.value.condition == "SLACKWATER_UNKNOWN_COLUMN"
    place.sql(
        "CREATE MATERIALIZED VIEW named (`key`, Name) WITH (RETAIN HISTORY FOR '1 hour',"
        " ASSERT NOT NULL `KEY`, ASSERT NOT NULL name)"
        " AS WITH p AS (SELECT id, name FROM people) SELECT id, name FROM p -- all of them"
    )
    place.sql("CREATE MATERIALIZED VIEW sizes AS SELECT count(*) AS n FROM named")
    assert place.rows("DESCRIBE named")[1][:2] == ["Name", "string"]
    named = f"spark.table('slackwater.{place.schema}.named')"
    nullable = f"result = [f.nullable for f in {named}.schema]"
    assert place.python(nullable) == [False, False]
    place.sql("INSERT INTO people VALUES (2, NULL)")
    for name in ("named", "sizes"):
        with pytest.raises(SqlError) as failed:
            place.rows(f"SELECT * FROM {name}")
        assert (failed.value.condition, failed.value.sqlstate) == ("SLACKWATER_DATA_ERROR", "23502")
        assert "[SLACKWATER_NULL_ASSERTED] NULL in the column Name" in str(failed.value)
        assert "the row (id = 2, name = NULL) makes" in str(failed.value)
    place.sql("UPDATE people SET name = 'Bob' WHERE id = 2")
    assert place.rows("SELECT n FROM sizes") == [[2]]
    place.sql("INSERT INTO people VALUES (3, 'Eve')")
    assert sorted(place.rows("SELECT * FROM named")) == [[1, "Ada"], [2, "Bob"], [3, "Eve"]]
    assert place.rows("EXPLAIN INCREMENTAL FOR MATERIALIZED VIEW named")[0][3] != "recompute"
    shown = place.rows("SHOW CREATE MATERIALIZED VIEW named")[0][-1]
    assert "ASSERT NOT NULL `KEY`, ASSERT NOT NULL `name`" in shown


def test_what_java_says_of_values_is_an_error_of_theirs(place):
    """Spark lets `java.util.IllegalFormatException` through, which has no condition."""
    place.sql("CREATE TABLE formats (f STRING, n INT)")
    place.sql("INSERT INTO formats VALUES ('%d', 1)")
    place.sql("CREATE MATERIALIZED VIEW formatted AS SELECT format_string(f, n) AS s FROM formats")
    place.sql("CREATE MATERIALIZED VIEW constant AS SELECT format_string('%q', 1) s FROM formats")
    place.sql("INSERT INTO formats VALUES ('%z', 2)")
    rows = {"formatted": "the row (f = %z, n = 2)", "constant": "the row (f = %d, n = 1)"}
    for name, text in (("formatted", "'z'"), ("constant", "'q'")):
        with pytest.raises(SqlError) as failed:
            place.rows(f"SELECT * FROM {name}")
        assert (failed.value.condition, failed.value.sqlstate) == ("SLACKWATER_DATA_ERROR", "22023")
        assert "[SLACKWATER_FUNCTION_FAILED]" in str(failed.value)
        assert f"UnknownFormatConversionException: Conversion = {text}" in str(failed.value)
        assert f"{rows[name]} makes" in str(failed.value)
    place.sql("DELETE FROM formats WHERE n = 2")
    assert place.rows("SELECT s FROM formatted") == [["1"]]
    place.sql("DELETE FROM formats")
    assert place.rows("SELECT s FROM constant") == []


def test_whatever_a_function_throws_is_an_error_of_the_row(place):
    """Exceptions without a condition, with one that has no state, and with a state of syntax."""
    place.sql("CREATE TABLE odd (k INT, n INT, s STRING)")
    place.sql("INSERT INTO odd VALUES (1, 2, '3')")
    queries = {
        "stepped": "SELECT k, explode(sequence(1, n, 1)) AS x FROM odd",
        "paired": "SELECT k, map_from_arrays(array_repeat(1, n - 1), array(1)) AS x FROM odd",
        "read": "SELECT k, to_number(s, '999') AS x FROM odd",
        "longest": "SELECT max(cardinality(sequence(1, n, 1))) AS x FROM odd",
    }
    for name, query in queries.items():
        place.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    contents = {name: sorted(place.rows(f"SELECT * FROM {name}")) for name in queries}
    assert contents["stepped"] == [[1, 1], [1, 2]]
    assert contents["longest"] == [[2]]
    place.sql("INSERT INTO odd VALUES (7, 0, '((')")
    for name in queries:
        with pytest.raises(SqlError) as failed:
            place.rows(f"SELECT * FROM {name}")
        assert failed.value.condition == "SLACKWATER_DATA_ERROR"
        assert "the row (k = 7, n = 0, s = ((" in str(failed.value)
    place.sql("DELETE FROM odd WHERE k = 7")
    assert {name: sorted(place.rows(f"SELECT * FROM {name}")) for name in queries} == contents


def test_a_time_without_a_date_is_no_timestamp(place):
    """Spark takes the date of the day on which it looks: tomorrow it would be another row."""
    place.sql("CREATE TABLE said (k INT, s STRING)")
    place.sql("INSERT INTO said VALUES (1, ' 2024-01-02 03:04:05'), (2, '2024'), (3, NULL)")
    place.sql("CREATE MATERIALIZED VIEW moments AS SELECT k, CAST(s AS TIMESTAMP) AS at FROM said")
    place.sql(
        "CREATE MATERIALIZED VIEW tried AS SELECT k, hour(try_cast(s AS TIMESTAMP)) FROM said"
    )
    moments = [[1, "2024-01-02T03:04:05"], [2, "2024-01-01T00:00:00"], [3, None]]
    assert sorted(place.rows("SELECT * FROM moments")) == moments
    for text in ("10:00", " T11:30:00", "\t9:5"):
        place.sql(f"INSERT INTO said VALUES (4, '{text}')")
        with pytest.raises(SqlError) as failed:
            place.rows("SELECT * FROM moments")
        assert failed.value.sqlstate == "22018"
        assert "'no date: " in str(failed.value)
        assert sorted(place.rows("SELECT * FROM tried")) == [[1, 3], [2, 0], [3, None], [4, None]]
        place.sql("DELETE FROM said WHERE k = 4")
        assert sorted(place.rows("SELECT * FROM moments")) == moments


def test_equal_rows_are_followed_at_once(place):
    place.sql("CREATE TABLE same (k INT, v INT)")
    place.sql(
        "CREATE MATERIALIZED VIEW pairs AS"
        " SELECT a.k, count(*) AS n FROM same a JOIN same b ON a.k = b.k GROUP BY a.k"
    )
    place.sql("INSERT INTO same VALUES (1, 2)")
    assert place.rows("SELECT * FROM pairs") == [[1, 1]]
    place.sql("INSERT INTO same SELECT 1, 2 FROM range(5000)")
    assert place.rows("SELECT * FROM pairs") == [[1, 5001 * 5001]]
    tick = place.rows("EXPLAIN ANALYZE FOR MATERIALIZED VIEW pairs")[0]
    (_, _, kind, scanned, looked_up, *_) = tick
    assert (kind, scanned) == ("tick", 5000)
    assert looked_up < 10
    place.sql("DELETE FROM same")
    assert place.rows("SELECT * FROM pairs") == []


def test_what_is_read_is_not_replaced(place):
    place.sql("CREATE MATERIALIZED VIEW lower_one AS SELECT 1 AS x")
    place.sql("CREATE MATERIALIZED VIEW upper_one AS SELECT * FROM lower_one")
    with pytest.raises(SqlError) as failed:
        place.sql("CREATE OR REPLACE MATERIALIZED VIEW lower_one AS SELECT 2 AS x")
    assert failed.value.sqlstate == "2BP01"
    assert f"Cannot replace slackwater.{place.schema}.lower_one" in str(failed.value)


def test_an_element_that_is_not_there_is_an_error(place):
    """Spark's optimizer makes it NULL, in a column that is NOT NULL: 0, in generated code."""
    place.sql("CREATE TABLE few (n INT)")
    place.sql("CREATE MATERIALIZED VIEW third AS SELECT array(n, 2)[2] AS x FROM few")
    place.sql("INSERT INTO few VALUES (1)")
    with pytest.raises(SqlError) as failed:
        place.rows("SELECT * FROM third")
    assert (failed.value.condition, failed.value.sqlstate) == ("SLACKWATER_DATA_ERROR", "22003")
    place.sql("DELETE FROM few")
    assert place.rows("SELECT x FROM third") == []


def test_a_tick_touches_what_its_change_concerns_at_any_size(place):
    """One row that changes in a join of two tables, with 200 and with 5 000 rows."""
    touched = []
    for rows in (200, 5_000):
        schema = f"size_{rows}"
        place.sql(f"CREATE SCHEMA slackwater.{schema}")
        place.sql(f"CREATE TABLE {schema}.a AS SELECT id AS k, id AS v FROM range({rows})")
        place.sql(f"CREATE TABLE {schema}.b AS SELECT id AS k, id AS w FROM range({rows})")
        place.sql(
            f"CREATE MATERIALIZED VIEW {schema}.c AS SELECT a.k % 50 AS g, count(*) AS n,"
            f" sum(v + w) AS s FROM {schema}.a JOIN {schema}.b ON a.k = b.k GROUP BY a.k % 50"
        )
        wanted = f"SELECT s FROM {schema}.c WHERE g = 7"
        for value in (0, 1):
            # The first tick reads all rows, as it fills what the others look up.
            place.sql(f"UPDATE {schema}.a SET v = {value} WHERE k = 7")
            place.value(wanted)
        assert place.value(wanted) == sum(i for i in range(rows) if i % 50 == 7) * 2 - 6
        explained = place.rows(f"EXPLAIN ANALYZE FOR MATERIALIZED VIEW {schema}.c")
        whole = next(row for row in explained if row[2] == "tick")
        assert {"delta", "lookup", "reduce"} <= {row[2] for row in explained}
        touched.append(sum(whole[3:6]))
        place.sql(f"DROP SCHEMA slackwater.{schema} CASCADE")
    assert touched[0] == touched[1] <= 12


def test_a_scalar_subquery_with_several_rows_is_an_error_until_it_has_one(place):
    place.sql("CREATE TABLE several (k INT, v INT)")
    place.sql("INSERT INTO several VALUES (1, 5)")
    place.sql(
        "CREATE MATERIALIZED VIEW asked AS SELECT k, (SELECT v FROM several WHERE k = 1) AS w"
        " FROM several"
    )
    assert place.rows("EXPLAIN INCREMENTAL FOR MATERIALIZED VIEW asked")[0][3] != "recompute"
    place.sql("INSERT INTO several VALUES (2, 6)")
    assert sorted(place.rows("SELECT * FROM asked")) == [[1, 5], [2, 5]]
    place.sql("INSERT INTO several VALUES (1, 7)")
    with pytest.raises(SqlError) as failed:
        place.rows("SELECT * FROM asked")
    assert "SLACKWATER_DATA_ERROR" in str(failed.value)
    assert "SCALAR_SUBQUERY_TOO_MANY_ROWS" in str(failed.value)
    assert f"a row makes the query of slackwater.{place.schema}.asked fail" in str(failed.value)
    place.sql("DELETE FROM several WHERE v = 5")
    assert sorted(place.rows("SELECT * FROM asked")) == [[1, 7], [2, 7]]
    place.sql("DELETE FROM several WHERE k = 1")
    assert place.rows("SELECT * FROM asked") == [[2, None]]


HALVES = "SELECT k % 2 AS h, min(v) AS low, max(v) AS high, sum(v) AS s FROM {} GROUP BY k % 2"


@pytest.mark.parametrize(
    "query",
    ["SELECT k, v FROM {} ORDER BY v DESC LIMIT 10", HALVES],
    ids=["the first ten", "extremes of halves"],
)
def test_the_greatest_row_that_goes_costs_buckets_and_not_the_input(place, query):
    rows = 20_000
    schema = "buckets_of_halves" if query is HALVES else "buckets_of_ten"
    place.sql(f"CREATE SCHEMA slackwater.{schema}")
    place.sql(f"CREATE TABLE {schema}.a AS SELECT id AS k, id AS v FROM range({rows})")
    asked = query.format(f"{schema}.a")
    place.sql(f"CREATE MATERIALIZED VIEW {schema}.c AS {asked}")
    for greatest in (rows - 1, rows - 2):
        # The first tick reads all rows, as it fills what the others look up.
        place.sql(f"DELETE FROM {schema}.a WHERE v = {greatest}")
        place.value(f"SELECT count(*) FROM {schema}.c")
    assert sorted(place.rows(f"SELECT * FROM {schema}.c")) == sorted(place.rows(asked))
    explained = place.rows(f"EXPLAIN ANALYZE FOR MATERIALIZED VIEW {schema}.c")
    whole = next(row for row in explained if row[2] == "tick")
    assert sum(whole[3:6]) < rows / 10
    place.sql(f"DROP SCHEMA slackwater.{schema} CASCADE")


def test_a_view_can_be_dropped_and_made_again(place):
    place.sql("CREATE MATERIALIZED VIEW brief (a, b) AS SELECT k, sum(v) FROM t GROUP BY k")
    place.sql("DROP MATERIALIZED VIEW brief")
    place.sql("CREATE MATERIALIZED VIEW brief (a, b) AS SELECT k, count(v) FROM t GROUP BY k")
    place.sql("INSERT INTO t VALUES (7, 1)")
    wanted = place.rows("SELECT k AS a, count(v) AS b FROM t GROUP BY k")
    assert sorted(place.rows("SELECT a, b FROM brief"), key=repr) == sorted(wanted, key=repr)
