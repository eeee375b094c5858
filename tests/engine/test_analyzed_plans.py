"""The plans that the driver exports: what they are, that they are stable, that they lose nothing.

``--write-plans`` writes the files in ``plans`` anew.
"""

from __future__ import annotations

import json
from collections import Counter
from importlib import resources
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession
from tests.support.applications.driver import plain
from tests.support.applications.slt import sql_text
from tests.support.planner import lineage_forms
from tests.support.planner.plan_forms import FORMS, LOAD, TABLES, VIEWS

from slackwater.planner.plan import column_lineage as lineage
from slackwater.planner.plan.column_lineage import column_lineage
from slackwater.planner.plan.text import plan_text
from slackwater.repr.errors import SlackwaterError
from slackwater.spark.bridge import SparkBridge
from slackwater.spark.session import configure

pytestmark = pytest.mark.spark

PLANS = Path(__file__).parent / "plans"
TPCH = sorted(Path(str(resources.files("slackwater"))).glob("sql/bench/tpch/*.sql"))
SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.join.preferSortMergeJoin": "false",
    "spark.sql.session.timeZone": "UTC",
}


TUNING = {
    "spark.sql.optimizer.excludedRules": ",".join(
        f"org.apache.spark.sql.catalyst.optimizer.{rule}"
        for rule in ("ColumnPruning", "PushDownPredicates", "EliminateOuterJoin")
    ),
    "spark.sql.optimizer.nestedSchemaPruning.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.cbo.enabled": "true",
    "spark.sql.cbo.joinReorder.enabled": "true",
    "spark.sql.cbo.starSchemaDetection": "true",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.debug.maxToStringFields": "1",
}
"""What changes how queries are planned, and not what they answer."""


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("environment"))
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = configure(builder, location=folder).getOrCreate()
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    session.sql("CREATE SCHEMA slackwater.forms")
    session.sql("USE slackwater.forms")
    for name, columns in TABLES.items():
        session.sql(f"CREATE TABLE {name} ({columns})")
    for name, query in VIEWS.items():
        session.sql(f"CREATE VIEW {name} AS {query}")
    for statement in LOAD:
        session.sql(statement)
    session.sql("CREATE SCHEMA slackwater.lineage")
    session.sql("USE slackwater.lineage")
    for name, columns in lineage_forms.TABLES.items():
        session.sql(f"CREATE TABLE {name} ({columns})")
    session.sql(lineage_forms.VIEW)
    session.sql("CREATE SCHEMA slackwater.tpch")
    session.sql("USE slackwater.tpch")
    session.sql("CREATE SOURCE shop FROM LOAD GENERATOR TPCH (SCALE FACTOR 0.001) FOR ALL TABLES")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def bridge(spark):
    parameters = spark.sparkContext._gateway.gateway_parameters
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_GATEWAY_PORT", str(parameters.port))
        patch.setenv("PYSPARK_GATEWAY_SECRET", parameters.auth_token)
        made = SparkBridge()
        made.warm()
        yield made


class Schema:
    """A schema of the environment, and the plans of queries in it."""

    def __init__(self, spark, bridge, name, tables):
        self.name = name
        self._spark = spark
        self._bridge = bridge
        self._first = {}
        spark.sql(f"USE slackwater.{name}")
        self.collections = {}
        for table in tables:
            (collection,) = bridge.analyze(f"SELECT * FROM {table}", "slackwater", [name]).relations
            self.collections[collection] = table

    def plan(self, query, bridge=None):
        return (bridge or self._bridge).plan(query, "slackwater", [self.name])

    def first(self, query):
        """The plan of the first analysis, which the driver keeps."""
        if query not in self._first:
            self._first[query] = self.plan(query)
        return self._first[query]

    def rows(self, query):
        return _rows(self._spark.sql(query))

    def computed(self, kept, node=None):
        """The rows of a node, or the root, from the operators that the driver keeps."""
        jvm = self._spark._jvm
        inputs = {
            collection: self._spark.table(table)._jdf.queryExecution().analyzed()
            for collection, table in self.collections.items()
        }
        view = self._bridge._bridge().planned(kept.plan_id)
        python = jvm.org.apache.spark.api.python.PythonUtils
        number = kept.plan.root if node is None else node
        plan = view.snapshot(number, python.toScalaMap(inputs))
        frame = jvm.org.apache.spark.sql.classic.Dataset.ofRows(self._spark._jsparkSession, plan)
        return _rows(DataFrame(frame, self._spark))


def _rows(frame):
    return Counter(json.dumps([plain(value) for value in row]) for row in frame.collect())


def _cases():
    tpch = {path.stem: sql_text(path) for path in TPCH}
    return {"tpch": ("tpch", tpch)} | {group: ("forms", each) for group, each in FORMS.items()}


CASES = _cases()
COMPUTED = {"tpch": {"q01", "q04", "q07", "q13", "q15", "q17"}}
"""Of a large group, the queries whose rows are compared: each form is in a group of its own, and
test_tpch_views.py compares the rows of all views."""
EMPTY = {"constants": {"nothing"}}
"""Queries that have no rows here, so that there is less to compare."""

TPCH_TABLES = (
    *("region", "nation", "supplier", "part"),
    *("partsupp", "customer", "orders", "lineitem"),
)


@pytest.fixture(scope="module")
def schemas(spark, bridge):
    return {
        "forms": Schema(spark, bridge, "forms", TABLES),
        "lineage": Schema(spark, bridge, "lineage", lineage_forms.TABLES),
        "tpch": Schema(spark, bridge, "tpch", TPCH_TABLES),
    }


NIGHTLY = {"tpch"}


@pytest.fixture(
    params=[pytest.param(name, marks=[pytest.mark.nightly] * (name in NIGHTLY)) for name in CASES]
)
def group(request, spark, schemas):
    """The name of a group, its schema, and its queries by name."""
    schema, queries = CASES[request.param]
    spark.sql(f"USE slackwater.{schema}")
    return request.param, schemas[schema], queries


def test_the_plans_are_those_that_are_written_down(group, request):
    name, schema, queries = group
    found = "\n\n".join(
        f"-- {query}: {text}\n{plan_text(schema.first(text).plan, schema.collections)}"
        for query, text in queries.items()
    )
    path = PLANS / f"{name}.txt"
    if request.config.getoption("--write-plans"):
        path.write_text(found + "\n")
    assert path.read_text() == found + "\n"


def test_a_second_analysis_gives_the_same_plan(group):
    _, schema, queries = group
    for text in queries.values():
        first, second = schema.first(text), schema.plan(text)
        assert first.plan_id != second.plan_id
        assert first.plan == second.plan, text


@pytest.mark.sampled(3)
def test_the_plans_compute_the_rows_of_their_queries(group):
    name, schema, queries = group
    empty = set()
    for query in COMPUTED.get(name, queries):
        text = queries[query]
        rows = schema.rows(text)
        assert schema.computed(schema.first(text)) == rows, text
        if not rows:
            empty.add(query)
    assert empty == EMPTY.get(name, set())


def test_how_spark_is_tuned_changes_no_plan(bridge, schemas):
    meaning = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"}
    tuned = bridge.under({**meaning, **TUNING})
    for schema, queries in (CASES["tpch"], CASES["subqueries"], CASES["joins"]):
        for text in queries.values():
            found = schemas[schema].plan(text, tuned).plan
            assert found == schemas[schema].first(text).plan, text


@pytest.mark.parametrize(
    ("setting", "value", "query"),
    [
        ("spark.sql.session.timeZone", "America/New_York", "SELECT hour(ts) AS h FROM t"),
        ("spark.sql.ansi.enabled", "false", "SELECT a + b AS s FROM t"),
    ],
)
def test_what_settings_mean_is_in_the_plan(bridge, schemas, setting, value, query):
    forms = schemas["forms"]
    defaults = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"}
    one = forms.plan(query, bridge.under(defaults)).plan
    other = forms.plan(query, bridge.under({**defaults, setting: value})).plan
    assert one.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT a + 1 AS c FROM t", "SELECT a + 2 AS c FROM t"),
        ("SELECT a AS c FROM t", "SELECT b AS c FROM t"),
        (
            "SELECT transform(arr, (y, i) -> y - i) AS c FROM t",
            "SELECT transform(arr, (y, i) -> i - y) AS c FROM t",
        ),
        ("SELECT * FROM VALUES (1), (2) AS v(c)", "SELECT * FROM VALUES (1), (3) AS v(c)"),
        ("SELECT id AS c FROM range(3)", "SELECT id + 0 AS c FROM range(1, 4)"),
        ("SELECT s = 'a' AS c FROM t", "SELECT s COLLATE UTF8_LCASE = 'a' AS c FROM t"),
    ],
)
def test_queries_that_compute_something_else_have_other_fingerprints(schemas, one, other):
    forms = schemas["forms"]
    assert forms.plan(one).plan.fingerprint != forms.plan(other).plan.fingerprint


def test_names_that_nobody_sees_are_not_in_the_fingerprint(schemas):
    forms = schemas["forms"]
    one = forms.plan("SELECT q.k + 1 AS c FROM (SELECT a + b AS k FROM t GROUP BY 1) q").plan
    other = forms.plan("SELECT l + 1 AS c FROM (SELECT a + b AS l FROM t GROUP BY 1)").plan
    assert one.fingerprint == other.fingerprint


def test_every_node_can_be_computed(schemas):
    forms = schemas["forms"]
    kept = forms.plan(FORMS["ctes"]["same_twice"])
    rows = [forms.computed(kept, number) for number in range(len(kept.plan.nodes))]
    table = forms.rows("SELECT a, b FROM t")
    groups = forms.rows("SELECT a, sum(b) FROM t GROUP BY a")
    assert [table, groups] == rows[:2]
    # The second reader of the groups has them under other columns.
    assert rows[2] == groups
    assert rows[kept.plan.root] == forms.rows(FORMS["ctes"]["same_twice"])


def test_what_cannot_be_analyzed_is_an_error_of_spark(schemas):
    with pytest.raises(SlackwaterError) as caught:
        schemas["forms"].plan("SELECT nothing FROM t")
    assert caught.value.condition == "UNRESOLVED_COLUMN.WITH_SUGGESTION"


@pytest.mark.parametrize(
    ("expression", "raises"),
    [
        ("a", False),
        ("a + b", True),
        ("x + 1", False),
        ("try_add(a, b)", False),
        ("a = b AND s LIKE 'a%'", False),
        ("CAST(a AS BIGINT)", False),
        ("CAST(s AS INT)", True),
        ("TRY_CAST(s AS INT)", False),
        ("arr[1]", True),
        ("coalesce(st.g.h, a DIV b)", True),
        ("transform(arr, y -> y * 2)", True),
        ("transform(arr, y -> y IS NULL)", False),
        ("raise_error(s)", True),
    ],
)
def test_a_handle_says_whether_it_may_raise(schemas, expression, raises):
    plan = schemas["forms"].plan(f"SELECT {expression} AS c FROM t").plan
    assert plan.handles[plan.nodes[plan.root].exprs[0]].throws == raises


def test_a_plan_is_kept_until_it_is_forgotten(bridge, schemas):
    kept = schemas["forms"].plan("SELECT a FROM t")
    driver = bridge._bridge()
    assert driver.planned(kept.plan_id).nodes().length() == len(kept.plan.nodes)
    bridge.forget_plan(kept.plan_id)
    bridge.forget_plan(kept.plan_id)
    with pytest.raises(Py4JJavaError, match=kept.plan_id):
        driver.planned(kept.plan_id)


def test_a_snapshot_needs_its_inputs_as_they_were(spark, schemas):
    forms = schemas["forms"]
    kept = forms.plan("SELECT a FROM t")
    complete = forms.collections
    try:
        forms.collections = {}
        with pytest.raises(IllegalArgumentException, match="no input for the collection"):
            forms.computed(kept)
        forms.collections = dict.fromkeys(complete, "w")
        with pytest.raises(IllegalArgumentException, match="no column a of the type INT"):
            forms.computed(kept)
    finally:
        forms.collections = complete


def _shown(reads, schema):
    """The reads by the names of collections, whose ids say nothing."""
    names = schema.collections
    return sorted(f"{names[each.collection]}.{each.column} {each.becomes}" for each in reads)


@pytest.mark.parametrize("query", lineage_forms.COLUMNS)
def test_columns_are_made_of_columns(schemas, query):
    schema = schemas["lineage"]
    found = column_lineage(schema.first(query).plan)
    made = tuple(_shown(each, schema) for each in found.columns)
    assert made == lineage_forms.COLUMNS[query]
    if query in lineage_forms.ROWS:
        assert set(_shown(found.rows, schema)) == lineage_forms.ROWS[query]


def test_what_has_no_form_or_is_too_much_has_no_lineage(schemas, monkeypatch):
    schema = schemas["lineage"]
    sample = schema.first("SELECT k FROM t TABLESAMPLE (50 PERCENT)").plan
    assert column_lineage(sample) is None
    two = schema.first("SELECT k, v FROM t").plan
    assert column_lineage(two) is not None
    monkeypatch.setattr(lineage, "MOST", 1)
    assert column_lineage(two) is None
