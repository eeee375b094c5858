"""Maintained views that call functions of SQL and of Python, also when those are gone."""

from __future__ import annotations

import pytest
from tests.support.applications.application import (
    ROOT,
    Application,
    SqlError,
    coordinators,
    kill,
    only_coordinator,
)
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.spark

F = "spark_catalog.default"
DEFINER = "definer"
"""A session whose current catalog is Spark's."""
PYTHONS = "pythons"
"""The schema of the views that call functions of Python."""

SQL_FUNCTIONS = (
    "CREATE FUNCTION doubled(x INT) RETURNS INT RETURN x * 2",
    "CREATE FUNCTION quadrupled(x INT) RETURNS INT RETURN doubled(doubled(x))",
    "CREATE FUNCTION up_to(n INT) RETURNS TABLE (i INT) RETURN SELECT explode(sequence(1, n))",
)
SQL_VIEWS = {
    # Spark resolves what a function calls in the catalog of its caller.
    "scaled": f"SELECT k, quadrupled(v) AS x FROM slackwater.default.t WHERE {F}.doubled(v) > 2",
    "summed": "SELECT k, sum(doubled(v)) AS s, doubled(max(v)) AS m FROM slackwater.default.t"
    " GROUP BY k",
    "spread": f"SELECT k, i FROM slackwater.default.t, LATERAL {F}.up_to(v)",
    "over_a_view": "SELECT x, count(*) AS n FROM slackwater.default.named GROUP BY x",
}

PYTHON_FUNCTIONS = """
from pyspark.sql.functions import udf
import pyspark.sql.types as types

offset = 100

def shifted(v):
    return None if v is None else v + offset

def inverse(v):
    return 60 // v

spark.udf.register("shifted", shifted, types.IntegerType())
spark.udf.register("inverse", udf(inverse, "int"))
spark.udf.register("plain_inverse", udf(inverse, "int", useArrow=False))
spark.udf.register("plain_shifted", udf(shifted, "int", useArrow=False))
spark.udf.register("luck", udf(lambda v: v, "int").asNondeterministic())
result = None
"""
SAID = (
    "A function of Python failed: ZeroDivisionError: integer division or modulo by zero"
    " (line 11 of <string>, in inverse)"
)
PYTHON_VIEWS = {
    "moved": "SELECT k, shifted(v) + plain_shifted(v) AS x FROM t",
    "chosen": "SELECT k, v FROM t WHERE shifted(v) > 101 AND v < 9",
    "grouped": "SELECT shifted(k) AS g, sum(shifted(v)) AS s, shifted(max(v)) AS m FROM t"
    " GROUP BY shifted(k)",
    "joined": "SELECT a.k, b.v FROM t a JOIN t b ON shifted(a.k) = shifted(b.v)",
    "ranked": "SELECT k, v, rank() OVER (PARTITION BY shifted(k) ORDER BY shifted(v)) AS r FROM t",
}


@pytest.fixture
def location(tmp_path):
    path = tmp_path / "environment"
    yield path
    wait_until(lambda: not coordinators(path), what="the end of all coordinators")


def rows(place, view):
    return sorted(place.rows(f"SELECT * FROM {view}"), key=repr)


def shown(place, view):
    """What a listing says of a view."""
    (row,) = (row for row in place.rows("SHOW MATERIALIZED VIEWS") if row[0] == view)
    return [str(cell) for cell in row]


def define(place, views, schema, session="main"):
    for name, query in views.items():
        view = f"slackwater.{schema}.{name}"
        place.sql(f"CREATE MATERIALIZED VIEW {view} AS {query}", session=session)
        explained = place.rows(f"EXPLAIN INCREMENTAL FOR MATERIALIZED VIEW {name}")
        assert all(row[3] != "recompute" for row in explained), explained


def check_sql_views(place, contents):
    """`contents` are those of the table."""
    assert rows(place, "scaled") == sorted([[k, 4 * v] for k, v in contents if v > 1], key=repr)
    keys = {k for k, _ in contents}
    groups = {k: [v for key, v in contents if key == k] for k in keys}
    wanted = [[k, 2 * sum(vs), 2 * max(vs)] for k, vs in groups.items()]
    assert rows(place, "summed") == sorted(wanted, key=repr)
    spread = [[k, i] for k, v in contents for i in range(1, v + 1)]
    assert rows(place, "spread") == sorted(spread, key=repr)
    doubled = [2 * v for _, v in contents]
    wanted = [[x, doubled.count(x)] for x in set(doubled)]
    assert rows(place, "over_a_view") == sorted(wanted, key=repr)


def sql_views_made(place):
    """A new definition is the one of views that are made from then on."""
    place.sql("CREATE TABLE t (k INT, v INT)")
    place.sql("INSERT INTO t VALUES (1, 1), (1, 2), (2, 3)")
    for function in SQL_FUNCTIONS:
        place.sql(function, session=DEFINER)
    place.sql(f"CREATE VIEW named AS SELECT {F}.doubled(v) AS x FROM t")
    define(place, SQL_VIEWS, "default", session=DEFINER)
    check_sql_views(place, [(1, 1), (1, 2), (2, 3)])
    place.sql("INSERT INTO t VALUES (2, 2)")
    check_sql_views(place, [(1, 1), (1, 2), (2, 3), (2, 2)])
    place.sql(
        "CREATE OR REPLACE FUNCTION doubled(x INT) RETURNS INT RETURN x * 20", session=DEFINER
    )
    place.sql("DROP FUNCTION up_to", session=DEFINER)
    place.sql(f"CREATE MATERIALIZED VIEW later AS SELECT {F}.doubled(v) AS x FROM t")
    assert rows(place, "later") == [[20], [40], [40], [60]]
    leader = only_coordinator(place.location)
    kill(leader)
    place.sql("DELETE FROM t WHERE v = 1")
    check_sql_views(place, [(1, 2), (2, 3), (2, 2)])
    assert rows(place, "later") == [[40], [40], [60]]


def sql_views_go_on(place):
    place.sql("INSERT INTO t VALUES (3, 1)")
    check_sql_views(place, [(1, 2), (2, 3), (2, 2), (3, 1)])
    assert rows(place, "later") == [[20], [40], [40], [60]]


def check_python_views(place, contents):
    assert rows(place, "moved") == sorted([[k, 2 * v + 200] for k, v in contents], key=repr)
    chosen = [[k, v] for k, v in contents if 1 < v < 9]
    assert rows(place, "chosen") == sorted(chosen, key=repr)
    groups = {k: [v for key, v in contents if key == k] for k, _ in contents}
    wanted = [[k + 100, sum(v + 100 for v in vs), max(vs) + 100] for k, vs in groups.items()]
    assert rows(place, "grouped") == sorted(wanted, key=repr)
    wanted = [[k, v] for k, _ in contents for _, v in contents if k == v]
    assert rows(place, "joined") == sorted(wanted, key=repr)
    wanted = [[k, v, 1 + sum(v > other for other in groups[k])] for k, v in contents]
    assert rows(place, "ranked") == sorted(wanted, key=repr)


def python_views_made(place):
    place.sql("CREATE TABLE t (k INT, v INT)")
    place.sql("INSERT INTO t VALUES (1, 1), (1, 2), (2, 3)")
    place.python(PYTHON_FUNCTIONS)
    define(place, PYTHON_VIEWS, PYTHONS)
    check_python_views(place, [(1, 1), (1, 2), (2, 3)])
    place.sql("INSERT INTO t VALUES (2, 2), (3, 9)")
    check_python_views(place, [(1, 1), (1, 2), (2, 3), (2, 2), (3, 9)])
    place.sql("CREATE MATERIALIZED VIEW inverted AS SELECT v, inverse(v) AS q FROM t")
    place.sql(
        "CREATE MATERIALIZED VIEW twice AS SELECT v, sum(inverse(plain_inverse(v))) AS q"
        " FROM t WHERE v <> 0 GROUP BY v"
    )
    place.sql("INSERT INTO t VALUES (4, 0), (5, 61)")
    place.sql(f"SET statement_timeout = '{int(PATIENCE)} seconds'")
    for name, row in (("inverted", "(k = 4, v = 0)"), ("twice", "(k = 5, v = 61)")):
        with pytest.raises(SqlError) as failed:
            place.rows(f"SELECT * FROM {name}")
        assert failed.value.condition == "SLACKWATER_DATA_ERROR"
        assert f"the row {row} makes the query of slackwater.{PYTHONS}.{name}" in str(failed.value)
        assert SAID in str(failed.value)
        assert "Traceback" not in str(failed.value)
    place.sql("DELETE FROM t WHERE v IN (0, 61)")
    assert rows(place, "twice") == [[1, 1], [2, 4], [3, 3], [9, 10]]
    assert rows(place, "inverted") == [[1, 60], [2, 30], [2, 30], [3, 20], [9, 6]]


def python_views_go_on(place):
    place.sql("DELETE FROM t WHERE v = 1")
    check_python_views(place, [(1, 2), (2, 3), (2, 2), (3, 9)])
    place.sql("INSERT INTO t VALUES (2, 2)")
    check_python_views(place, [(1, 2), (2, 3), (2, 2), (3, 9), (2, 2)])
    assert rows(place, "inverted") == [[2, 30], [2, 30], [2, 30], [3, 20], [9, 6]]


@pytest.mark.nightly
def test_functions_mean_what_they_meant_when_the_view_was_made(location):
    """Those of SQL and of Python, also under another coordinator, and in another application."""
    with Application(location) as first:
        first.sql("USE slackwater")
        sql_views_made(first)
        first.sql(f"CREATE SCHEMA {PYTHONS}")
        first.sql(f"USE {PYTHONS}")
        python_views_made(first)
    with Application(location) as second:
        second.sql("USE slackwater")
        sql_views_go_on(second)
        second.sql(f"USE {PYTHONS}")
        python_views_go_on(second)


OF_A_MODULE = """
def scaled(v):
    import tides
    return v * tides.FACTOR

spark.udf.register("scaled", scaled, "int")
result = None
"""


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    """A folder for modules that the executors of `place` may load."""
    return tmp_path_factory.mktemp("modules")


@pytest.fixture(scope="module")
def place(tmp_path_factory, modules):
    paths = {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT}:{modules}"}
    location = tmp_path_factory.mktemp("functions") / "environment"
    with Application(location, variables=paths) as application:
        application.sql("USE slackwater")
        yield application


@pytest.mark.nightly
def test_a_module_that_executors_lack_is_no_error_of_the_rows(place, modules):
    """The view waits for it, says so, and goes on by itself."""
    place.sql("CREATE TABLE levels (v INT)")
    place.python(OF_A_MODULE)
    place.sql("CREATE MATERIALIZED VIEW tide AS SELECT scaled(v) AS x FROM levels")
    place.sql("INSERT INTO levels VALUES (1), (2)")
    wait_until(
        lambda: "SLACKWATER_PYTHON_UNAVAILABLE" in shown(place, "tide")[-2],
        what="the view tells what it lacks",
    )
    place.sql("SET slackwater.statement_timeout = '5 seconds'")
    with pytest.raises(SqlError) as failed:
        place.rows("SELECT * FROM tide")
    assert failed.value.condition != "SLACKWATER_DATA_ERROR"
    assert "ModuleNotFoundError: No module named 'tides'" in str(failed.value)
    assert "Traceback" not in str(failed.value)
    place.sql("RESET slackwater.statement_timeout")
    (modules / "tides.py").write_text("FACTOR = 10")
    assert rows(place, "tide") == [[10], [20]]


REFUSED = {
    f"SELECT k, {F}.dice() AS d FROM t": ("SLACKWATER_UNMATERIALIZABLE_FUNCTION", "dice"),
    f"SELECT k, i FROM t, LATERAL {F}.dices(k)": ("SLACKWATER_UNMATERIALIZABLE_FUNCTION", "dices"),
    "SELECT luck(k) AS l FROM t": ("SLACKWATER_UNMATERIALIZABLE_FUNCTION", "luck"),
    "SELECT of_session(k) AS x FROM t": ("SLACKWATER_TEMPORARY_FUNCTION", "of_session"),
    "SELECT i FROM t, LATERAL rows_of_session(k)": (
        "SLACKWATER_TEMPORARY_FUNCTION",
        "rows_of_session",
    ),
    "SELECT broadcasting(k) AS x FROM t": ("SLACKWATER_TEMPORARY_FUNCTION", "broadcasting"),
    "SELECT nowhere(k) AS x FROM t": ("UNRESOLVED_ROUTINE", "nowhere"),
}
BROADCASTING = """
known = spark.sparkContext.broadcast({1: 2})
spark.udf.register("broadcasting", lambda k: known.value.get(k), "int")
result = None
"""


def test_a_function_that_a_view_cannot_keep_is_refused_by_its_name(place):
    place.sql("CREATE TABLE t (k INT)")
    place.sql("CREATE FUNCTION dice() RETURNS INT NOT DETERMINISTIC RETURN 4", session=DEFINER)
    place.sql(
        "CREATE FUNCTION dices(n INT) RETURNS TABLE (i INT) NOT DETERMINISTIC"
        " RETURN SELECT explode(sequence(1, n))",
        session=DEFINER,
    )
    place.sql("CREATE TEMPORARY FUNCTION of_session(x INT) RETURNS INT RETURN x + 1")
    place.sql(
        "CREATE TEMPORARY FUNCTION rows_of_session(n INT) RETURNS TABLE (i INT)"
        " RETURN SELECT explode(sequence(1, n))"
    )
    place.python(PYTHON_FUNCTIONS)
    place.python(BROADCASTING)
    for query, (condition, name) in REFUSED.items():
        with pytest.raises(SqlError) as refused:
            place.sql(f"CREATE MATERIALIZED VIEW m AS {query}")
        assert refused.value.condition == condition, query
        assert name in str(refused.value)
    with pytest.raises(SqlError) as refused:
        place.sql("CREATE VIEW m AS SELECT of_session(k) AS x FROM t")
    assert refused.value.condition == "INVALID_TEMP_OBJ_REFERENCE"
    assert "of_session" in str(refused.value)
