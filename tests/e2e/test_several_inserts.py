"""`FROM .. INSERT INTO a .. INSERT INTO b ..`: one time for what is read, one commit or nothing."""

from __future__ import annotations

import pytest
from tests.support.applications.application import SqlError

pytestmark = pytest.mark.spark


@pytest.fixture
def place(workplace):
    for name, rows in (("x", "(1), (2)"), ("y", "(10)"), ("z", "(20)")):
        workplace.sql(f"CREATE TABLE {name} (a INT)")
        workplace.sql(f"INSERT INTO {name} VALUES {rows}")
    return workplace


def numbers(place, name):
    return sorted(a for (a,) in place.rows(f"SELECT a FROM {name}"))


def test_a_branch_that_fails_leaves_nothing_of_the_others(place):
    with pytest.raises(SqlError):
        place.sql(
            "FROM x INSERT INTO y SELECT a + 10 INSERT INTO z SELECT CAST(raise_error('no') AS INT)"
        )
    assert (numbers(place, "y"), numbers(place, "z")) == ([10], [20])
    place.sql("CREATE TABLE n (a INT NOT NULL)")
    with pytest.raises(SqlError) as refused:
        place.sql("FROM x INSERT INTO y SELECT a INSERT INTO n SELECT nullif(a, 2)")
    assert refused.value.condition == "SLACKWATER_NOT_NULL_VIOLATION"
    assert (numbers(place, "y"), numbers(place, "n")) == ([10], [])
    place.sql("FROM x INSERT INTO y SELECT a INSERT INTO z SELECT a")
    assert (numbers(place, "y"), numbers(place, "z")) == ([1, 2, 10], [1, 2, 20])


def test_all_branches_read_what_was_there_before(place):
    place.sql("FROM y INSERT INTO y SELECT a + 1 INSERT INTO z SELECT a")
    assert (numbers(place, "y"), numbers(place, "z")) == ([10, 11], [10, 20])
    place.sql("FROM y INSERT OVERWRITE y SELECT a + 1 INSERT OVERWRITE z SELECT a")
    assert (numbers(place, "y"), numbers(place, "z")) == ([11, 12], [10, 11])
    place.sql("FROM y INSERT OVERWRITE y SELECT 0 WHERE false INSERT INTO z SELECT count(*)")
    assert (numbers(place, "y"), numbers(place, "z")) == ([], [2, 10, 11])


def test_a_table_may_be_written_twice(place):
    place.sql("FROM x INSERT INTO y SELECT a INSERT INTO y SELECT a + 2")
    assert numbers(place, "y") == [1, 2, 3, 4, 10]
    for statement in (
        "FROM x INSERT INTO y SELECT a INSERT OVERWRITE y SELECT a",
        "FROM x INSERT OVERWRITE y SELECT a INSERT OVERWRITE y SELECT a",
    ):
        with pytest.raises(SqlError) as refused:
            place.sql(statement)
        assert refused.value.condition == "SLACKWATER_UNSUPPORTED"
    assert numbers(place, "y") == [1, 2, 3, 4, 10]


LARGE = "(SELECT x.a FROM x, range(0, 30000, 1, 4)) s"


@pytest.mark.parametrize("source", ["x", "(SELECT x.a FROM x JOIN y ON x.a < y.a) s", LARGE])
def test_both_are_written_at_one_time(place, source):
    place.sql(
        "CREATE MATERIALIZED VIEW sizes WITH (RETAIN HISTORY FOR '1h') AS "
        "SELECT (SELECT count(*) FROM y) - (SELECT count(*) FROM z) AS difference"
    )
    since = place.value("SELECT mz_now() FROM sizes")
    place.sql(f"FROM {source} INSERT INTO y SELECT a INSERT INTO z SELECT a")
    assert len(numbers(place, "y")) == len(numbers(place, "z")) > 2
    now = place.value("SELECT mz_now() FROM sizes")
    place.sql("BEGIN")
    place.sql(f"DECLARE c CURSOR FOR SUBSCRIBE TO sizes AS OF {since} UP TO {now + 1}")
    changes = place.rows("FETCH ALL c")
    place.sql("COMMIT")
    assert [row[-1] for row in changes] == [0], changes


def test_what_has_no_rows_of_tables_needs_no_lock_and_goes_into_blocks(place):
    statement = "FROM VALUES (1), (2) AS t(a) INSERT INTO y SELECT a INSERT INTO z SELECT a + 1"
    place.sql("BEGIN")
    place.sql(statement)
    place.sql("ROLLBACK")
    assert (numbers(place, "y"), numbers(place, "z")) == ([10], [20])
    place.sql("BEGIN")
    place.sql(statement)
    place.sql("COMMIT")
    assert (numbers(place, "y"), numbers(place, "z")) == ([1, 2, 10], [2, 3, 20])
    place.sql("BEGIN")
    with pytest.raises(SqlError) as refused:
        place.sql("FROM x INSERT INTO y SELECT a INSERT INTO z SELECT a")
    assert refused.value.condition == "SLACKWATER_TRANSACTION_STATEMENT"


def test_with_and_explain(place):
    place.sql(
        "WITH c AS (SELECT a + 1 AS a FROM x) FROM c INSERT INTO y SELECT a INSERT INTO z SELECT a"
    )
    assert (numbers(place, "y"), numbers(place, "z")) == ([2, 3, 10], [2, 3, 20])
    plan = place.value("EXPLAIN FROM x INSERT INTO y SELECT a INSERT INTO z SELECT a")
    assert plan.count("SlackwaterInserts") == 1
    assert (numbers(place, "y"), numbers(place, "z")) == ([2, 3, 10], [2, 3, 20])


@pytest.mark.parametrize(
    "other", ["INTO spark_catalog.default.several_other", "OVERWRITE DIRECTORY"]
)
def test_other_places_beside_ours_are_refused(place, tmp_path, other):
    where = f"USING parquet LOCATION '{tmp_path}/t'"
    place.sql("DROP TABLE IF EXISTS spark_catalog.default.several_other")
    place.sql(f"CREATE TABLE spark_catalog.default.several_other (a INT) {where}")
    if "DIRECTORY" in other:
        other = f"OVERWRITE DIRECTORY '{tmp_path}/d' USING parquet"
    with pytest.raises(SqlError) as refused:
        place.sql(f"FROM x INSERT {other} SELECT a INSERT INTO y SELECT a")
    assert refused.value.condition == "SLACKWATER_UNSUPPORTED"
    assert numbers(place, "y") == [10]
    assert place.rows("SELECT * FROM spark_catalog.default.several_other") == []
    place.sql(
        "FROM x INSERT INTO spark_catalog.default.several_other SELECT a "
        "INSERT INTO spark_catalog.default.several_other SELECT a + 2"
    )
    assert numbers(place, "spark_catalog.default.several_other") == [1, 2, 3, 4]
    place.sql("DROP TABLE spark_catalog.default.several_other")


def test_what_cannot_be_written_is_refused_with_all(place):
    place.sql("CREATE MATERIALIZED VIEW m AS SELECT a FROM x")
    with pytest.raises(SqlError) as refused:
        place.sql("FROM x INSERT INTO y SELECT a INSERT INTO m SELECT a")
    assert refused.value.condition == "SLACKWATER_READ_ONLY_RELATION"
    assert numbers(place, "y") == [10]
