"""Dataflows that a replica was told of: they are planned in time, or again."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from tests.support.waiting import wait_until

from slackwater.compute.controller.descriptions import (
    DataflowDescription,
    IndexExport,
    MaterializedViewExport,
    ObjectToBuild,
    SourceImport,
)
from slackwater.compute.dataflow import Input
from slackwater.compute.definitions import Definition, PlanVersion, StoredShards
from slackwater.compute.engine import KeptPlan, ViewPlan
from slackwater.compute.planned_dataflows import PlanListeners, PlannedDataflows
from slackwater.planner.delta.program import VERSION
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Frontier
from slackwater.repr.relation import RelationDesc

AWAY = SlackwaterError("SLACKWATER_SPARK_UNAVAILABLE", "58030", "no Spark", {})
DESC = RelationDesc.of(k="integer")
SHARDS = StoredShards("default.t", 4, DESC.to_json())


def described(name="u7", made_by=None, **options):
    exports = {
        "sink_exports": (
            MaterializedViewExport(name, name, name, StoredShards("v", 5, DESC.to_json(), 6).text),
        )
    }
    definition = Definition("SELECT 1", "slackwater", ("default",), made_by=made_by)
    return DataflowDescription(
        name="default.v",
        objects_to_build=(ObjectToBuild(name, definition.text),),
        source_imports=(SourceImport("u1", SHARDS.text), SourceImport("u2", SHARDS.text)),
        initial_storage_as_of=Frontier(3),
        **{**exports, **options},
    )


class Planner:
    """Plans at once, or raises what `errors` has for it."""

    def __init__(self):
        self.errors, self.left, self.given_back = [], {}, []
        self.asked = 0
        self.go_on = threading.Event()
        self.go_on.set()

    def take(self, global_id, definition):
        return self.left.pop(global_id, None)

    def plan(self, name, definition, settings):
        self.asked += 1
        assert self.go_on.wait(60)
        if self.errors:
            raise self.errors.pop(0)
        analyzed = SimpleNamespace(collections=("u1",), fingerprint="f", depends_on_time=False)
        return ViewPlan(KeptPlan(f"p{self.asked}", analyzed), None)

    def give_back(self, plan, settings):
        self.given_back.append(plan.kept.plan_id)


class Clock:
    seconds = 0.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def plans():
    planner, found, failures, clock = Planner(), [], [], Clock()
    made = PlannedDataflows(
        planner,
        PlanListeners(
            lambda of, flow: found.append(flow), lambda name, why: failures.append((name, why))
        ),
        "test",
        clock,
    )
    made.start()
    yield SimpleNamespace(made=made, planner=planner, found=found, failures=failures, clock=clock)
    made.stop()
    made._thread.join(60)
    assert not made._thread.is_alive()


def test_a_dataflow_reads_what_its_plan_reads(plans):
    plans.made.add(described(settings=(("a", "b"),)))
    wait_until(lambda: plans.found)
    (flow,) = plans.found
    assert flow.inputs == {"u1": Input(4, DESC, None, "default.t")}
    assert (flow.as_of, flow.settings) == (3, {"a": "b"})
    assert (flow.view.shard_id, flow.view.errors_shard) == (5, 6)


@pytest.mark.parametrize(("made_by", "changed"), [(None, True), (PlanVersion(VERSION, "f"), False)])
def test_a_view_of_another_plan_is_compared(plans, made_by, changed):
    plans.made.add(described(made_by=made_by, settings=None))
    wait_until(lambda: plans.found)
    assert plans.found[0].view.plan_changed == changed
    assert plans.found[0].settings is None


def test_a_plan_that_was_left_is_taken(plans):
    left = plans.planner.plan("v", None, None)
    plans.planner.left["u7"] = left
    plans.made.add(described())
    wait_until(lambda: plans.found)
    assert plans.found[0].plan is left
    assert plans.planner.asked == 1


@pytest.mark.parametrize("error", [AWAY, RuntimeError("a defect")])
def test_a_plan_that_fails_is_made_again_after_a_pause(plans, error):
    plans.planner.errors = [error, AWAY]
    plans.made.add(described())
    wait_until(lambda: plans.failures)
    name, failure = plans.failures[0]
    assert (name, failure.attempts) == ("u7", 1)
    assert failure.error.sqlstate == ("58030" if error is AWAY else "XX000")
    assert plans.found == []
    plans.clock.seconds = failure.retry_at_ms / 1000
    plans.made.add(described("u8"))
    wait_until(lambda: plans.found)
    plans.clock.seconds = 60.0
    plans.made.remove("u9")
    plans.made.add(described("u9"))
    wait_until(lambda: len(plans.found) == 3)
    assert {flow.global_id for flow in plans.found} == {"u7", "u8", "u9"}


def test_the_plan_of_what_was_dropped_meanwhile_is_given_back(plans):
    plans.planner.go_on.clear()
    plans.made.add(described())
    wait_until(lambda: plans.planner.asked)
    plans.made.remove("u7")
    plans.planner.go_on.set()
    wait_until(lambda: plans.planner.given_back)
    assert plans.planner.given_back == ["p1"]
    assert plans.found == plans.failures == []


def test_a_dataflow_that_no_replica_can_maintain_is_a_defect(plans):
    two = (IndexExport("u7", "u1", ("k",)), IndexExport("u8", "u1", ("k",)))
    plans.made.add(described(index_exports=two, sink_exports=()))
    wait_until(lambda: plans.failures)
    assert "maintains one" in str(plans.failures[0][1].error)
