"""Plans of definitions: each is asked for once, with all that the definition says."""

from __future__ import annotations

import pytest

from slackwater.compute.definitions import Definition
from slackwater.compute.engine import Indexed, IndexQuery, KeptPlan, Known
from slackwater.compute.planning import Planner
from slackwater.planner.plan.algebra import AnalyzedPlan, Constant, PlanColumn, SparkType
from slackwater.repr.relation import RelationDesc

DESC = RelationDesc.of(k="integer")
RELATIONS = ({"id": "u1", "kind": "table", "schema_name": "default", "name": "t"},)


class Engine:
    """Notes what it is asked; each plan is that of one row."""

    def __init__(self):
        self.asked, self.forgotten = [], []

    def under(self, settings):
        return self

    def plan(self, *arguments):
        self.asked.append(arguments)
        columns = (PlanColumn("k", SparkType("integer"), True),)
        nodes = (Constant(1, "d", (0,)),)
        plan = AnalyzedPlan(nodes, 0, columns, (), (), ("k",), DESC, "of the rows")
        return KeptPlan("plan-1", plan)

    def forget_plan(self, plan_id):
        self.forgotten.append(plan_id)


OF_T = IndexQuery("SELECT *, (k) AS key0 FROM t", ("default",), 1, "slackwater.default.i")


@pytest.mark.parametrize(
    "indexed", [Indexed(), Indexed(views=("u8", "u9")), Indexed(views=("u8",), indexes=(OF_T,))]
)
def test_a_definition_is_planned_once_whatever_is_indexed(indexed):
    engine = Engine()
    functions = ({"kind": "catalog", "name": "f"},)
    definition = Definition(
        "SELECT k FROM t",
        "slackwater",
        ("default",),
        functions,
        whole=indexed.views,
        relations=RELATIONS,
        indexes=indexed.indexes,
    )
    kept = Planner(engine).plan("slackwater.default.v", definition, {}).kept
    known = Known(functions, RELATIONS)
    assert engine.asked == [("SELECT k FROM t", "slackwater", ("default",), known, indexed)]
    assert kept.plan.fingerprint == "of the rows"
    assert engine.forgotten == []
