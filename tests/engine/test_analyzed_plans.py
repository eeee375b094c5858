"""The plans that the driver exports: what they are, that they are stable, that they lose nothing.

``--write-plans`` writes the files in ``plans`` anew.
"""

from __future__ import annotations

import json
from collections import Counter
from importlib import resources
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.support.driver import plain
from tests.support.plan_forms import FORMS, LOAD, TABLES, VIEWS
from tests.support.plan_text import plan_text
from tests.support.slt import sql_text

from slackwater.spark.bridge import SparkBridge
from slackwater.spark.session import configure

pytestmark = pytest.mark.spark

PLANS = Path(__file__).parent / "plans"
TPCH = sorted(Path(str(resources.files("slackwater"))).glob("sql/bench/tpch/*.sql"))
SETTINGS = {
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
}


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
        spark.sql(f"USE slackwater.{name}")
        self.collections = {}
        for table in tables:
            (collection,) = bridge.analyze(f"SELECT * FROM {table}", "slackwater", [name]).relations
            self.collections[collection] = table

    def plan(self, query, bridge=None):
        return (bridge or self._bridge).plan(query, "slackwater", [self.name])

    def rows(self, query):
        return _rows(self._spark.sql(query))

    def computed(self, kept):
        """The rows of a plan's root, computed from the operators that the driver keeps."""
        jvm = self._spark._jvm
        inputs = {
            collection: self._spark.table(table)._jdf.queryExecution().analyzed()
            for collection, table in self.collections.items()
        }
        view = self._bridge._bridge().planned(kept.plan_id)
        python = jvm.org.apache.spark.api.python.PythonUtils
        plan = view.snapshot(kept.plan.root, python.toScalaMap(inputs))
        frame = jvm.org.apache.spark.sql.classic.Dataset.ofRows(self._spark._jsparkSession, plan)
        return _rows(DataFrame(frame, self._spark))


def _rows(frame):
    return Counter(json.dumps([plain(value) for value in row]) for row in frame.collect())


def _cases():
    tpch = {path.stem: sql_text(path) for path in TPCH}
    return {"tpch": ("tpch", tpch)} | {group: ("forms", each) for group, each in FORMS.items()}


CASES = _cases()
TPCH_TABLES = (
    *("region", "nation", "supplier", "part"),
    *("partsupp", "customer", "orders", "lineitem"),
)


@pytest.fixture(scope="module")
def schemas(spark, bridge):
    return {
        "forms": Schema(spark, bridge, "forms", TABLES),
        "tpch": Schema(spark, bridge, "tpch", TPCH_TABLES),
    }


@pytest.fixture(params=CASES)
def group(request, spark, schemas):
    """The name of a group, its schema, and its queries by name."""
    schema, queries = CASES[request.param]
    spark.sql(f"USE slackwater.{schema}")
    return request.param, schemas[schema], queries


def test_the_plans_are_those_that_are_written_down(group, request):
    name, schema, queries = group
    found = "\n\n".join(
        f"-- {query}: {text}\n{plan_text(schema.plan(text).plan, schema.collections)}"
        for query, text in queries.items()
    )
    path = PLANS / f"{name}.txt"
    if request.config.getoption("--write-plans"):
        path.write_text(found + "\n")
    assert path.read_text() == found + "\n"


def test_a_second_analysis_gives_the_same_plan(group, bridge):
    _, schema, queries = group
    for text in queries.values():
        asked = (text, "slackwater", bridge._names([schema.name]), "stability")
        first, second = (json.loads(bridge._bridge().plan(*asked)) for _ in range(2))
        assert first.pop("plan") != second.pop("plan")
        assert json.dumps(first) == json.dumps(second), text


def test_the_plans_compute_the_rows_of_their_queries(group):
    name, schema, queries = group
    empty = []
    for text in queries.values():
        rows = schema.rows(text)
        assert schema.computed(schema.plan(text)) == rows, text
        if not rows:
            empty.append(text)
    print(name, len(queries), "empty:", len(empty))
