"""Tick programs in the driver, compared at every time with DuckDB.

The catalog of a real environment gives the queries their meaning; the collections are shards of
the test's own, whose histories and tick boundaries it chooses.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from pyspark.sql import SparkSession
from tests.property.histories import histories
from tests.support.incremental import Bench
from tests.support.program_cases import HISTORIES, QUERIES
from tests.support.view_histories import LAST, TABLES, Case, cases_in_order, recomputed

from slackwater.compute.dataflow import Dataflow, Input
from slackwater.compute.engine import ViewProgram
from slackwater.planner.delta.lowering import NotMaintained, program_of
from slackwater.planner.plan.nodes import Collection, ViewPlan
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.spark.bridge import Driver, SparkBridge
from slackwater.spark.session import configure

pytestmark = pytest.mark.spark

RELATIONS = (*TABLES, "v0", "v1", "v2")


@pytest.fixture(scope="module")
def ids(tmp_path_factory, monkeypatch_module):
    folder = str(tmp_path_factory.mktemp("environment"))
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = configure(builder, location=folder).getOrCreate()
    for name in RELATIONS:
        session.sql(f"CREATE TABLE slackwater.default.{name} (k INT, v BIGINT, d DECIMAL(10, 2))")
    gateway = session.sparkContext._gateway.gateway_parameters
    monkeypatch_module.setenv("PYSPARK_GATEWAY_PORT", str(gateway.port))
    monkeypatch_module.setenv("PYSPARK_GATEWAY_SECRET", gateway.auth_token)
    engine = SparkBridge().under({})
    found_ids = {}
    for name in RELATIONS:
        found = engine.analyze(f"SELECT * FROM {name}", "slackwater", ("default",))
        found_ids[name] = GlobalId(found.relations[0])
    yield found_ids
    session.stop()


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


class ProgramBench(Bench):
    """Its views are maintained by programs; those that none is made for are left out."""

    def __init__(self, directory: Path, ids: dict[str, GlobalId]) -> None:
        # The driver keeps rows by the ids of parts, which begin anew in each environment.
        self._ids = ids
        super().__init__(directory, SparkBridge(Driver(str(directory))).under({}))

    def _create(self, name, desc, upper, grouped):
        shard = super()._create(name, desc, upper, grouped)
        self.relations[name] = (self._ids.get(name, GlobalId(name)), shard, desc)
        return shard

    def program(self, name: str, query: str, as_of: int) -> None:
        kept = self.engine.plan(query, "slackwater", ("default",))
        try:
            view = ViewProgram(kept, program_of(kept.plan))
        except NotMaintained:
            self.engine.forget_plan(kept.plan_id)
            return
        by_id = {g: Input(shard, desc) for g, shard, desc in self.relations.values()}
        read = dict.fromkeys(
            GlobalId(node.collection) for node in kept.plan.nodes if hasattr(node, "collection")
        )
        output = self._create(name, kept.plan.schema, as_of, False)
        plan = ViewPlan(
            Collection(self.relations[name][0], kept.plan.schema.names, kept.plan.schema),
            kept.plan.schema,
        )
        flow = Dataflow(
            global_id=self.relations[name][0],
            name=name,
            plan=plan,
            inputs={g: by_id[g] for g in read},
            output_shard=output,
            state_shards=(),
            as_of=Timestamp(as_of),
            settings={},
            program=view,
        )
        self.flows[name] = flow
        self.worker.add(flow)


def like_a_table(desc):
    """The catalog's description of what stands for a view is that of a table."""
    return [c.type_json for c in desc.columns] == [c.type_json for c in TABLES["r"].columns]


def maintained(ids, case, boundaries):
    """The contents of each view, and of a view on it, at every time."""
    with tempfile.TemporaryDirectory() as directory:
        bench = ProgramBench(Path(directory), ids)
        try:
            for name, desc in TABLES.items():
                bench.table(name, desc)
            for i, query in enumerate(case.views):
                bench.program(f"v{i}", query, case.as_of)
            if "v0" in bench.flows and like_a_table(bench.relations["v0"][2]):
                bench.program(
                    "top", "SELECT k, count(*) AS n, sum(v) AS v FROM v0 GROUP BY k", case.as_of
                )
            for upper in boundaries:
                lower = bench.client.tables_upper()
                bench.commit(
                    upper,
                    {n: [u for u in h if lower <= u[1] < upper] for n, h in case.histories.items()},
                )
                if upper > case.as_of:
                    for name in bench.flows:
                        bench.wait(name, upper - 1)
            times = range(case.as_of, LAST + 1)
            return {name: [bench.rows(name, time) for time in times] for name in bench.flows}
        finally:
            bench.close()
            assert bench.fatal == []


@histories(suppress_health_check=list(HealthCheck))
@given(cases_in_order)
def test_programs_equal_a_recomputation_at_every_time(ids, case):
    expected = recomputed(case)
    for boundaries in {case.boundaries, case.others}:
        for name, found in maintained(ids, case, boundaries).items():
            assert found == expected[name], name


@pytest.mark.parametrize("boundaries", [(LAST + 1,), (2, 4, 7, LAST + 1)])
@pytest.mark.parametrize("operator", QUERIES)
def test_worked_cases_of_operators(ids, operator, boundaries):
    queries = QUERIES[operator]
    case = Case(HISTORIES, queries, boundaries, boundaries, 0)
    expected = recomputed(case)
    found = maintained(ids, case, boundaries)
    for i, query in enumerate(queries):
        assert found[f"v{i}"] == expected[f"v{i}"], query
