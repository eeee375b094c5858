"""The compute controller's `validate` finds what must not be, whichever part it is in."""

from __future__ import annotations

import pytest
from tests.support.compute.controller_room import CLUSTER, ComputeRoom, at, index, subscribe, view
from tests.support.compute.installed_objects import InstalledObjects

from slackwater.compute.controller import protocol as pr
from slackwater.compute.controller.history import ReplicaState, replayed
from slackwater.compute.controller.hydration import Phase
from slackwater.compute.controller.reconciliation import Reconciled, reconcile
from slackwater.controller.protocol import AllowCompaction
from slackwater.repr.change_batch import ChangeBatch
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import EMPTY_FRONTIER, Timestamp


@pytest.fixture
def room():
    made = ComputeRoom(commits=False)
    table, target = made.table(), made.target()
    made.replica("r1")
    made.core.update_configuration({"compute_hydration_concurrency": "1"})
    made.core.create_dataflow(CLUSTER, index("u50", [table]))
    made.core.create_dataflow(CLUSTER, index("u51", [table]))
    made.core.create_dataflow(CLUSTER, index("u52", [], ["u50"]))
    made.core.create_dataflow(CLUSTER, view("u60", target, [table]))
    made.core.create_dataflow(CLUSTER, subscribe("t7", [table]))
    made.core.allow_writes(CLUSTER, "u60")
    made.core.peek(CLUSTER, pr.Peek("p", "u50", Timestamp(7)))
    made.says("r1", pr.Computed("u60", at(0), at(7)), pr.Computed("u60", at(7), at(9)))
    made.core.validate()
    return made


def states(core):
    return core._collections.states


def replica(core):
    return core.replicas(CLUSTER)["r1"]


def a_capability_that_nobody_owns(core, stored):
    core._collections.apply({"u50": ChangeBatch([(Timestamp(9), 1)])})


def an_input_that_does_not_know_its_dependents(core, stored):
    states(core)["u50"].dependents.clear()


def a_stored_input_that_is_not_held(core, stored):
    (hold,) = states(core)["u50"].stored_inputs.values()
    stored.holds.release(hold)


def a_stored_input_that_was_forgotten(core, stored):
    states(core)["u50"].stored_inputs.clear()


def a_stored_input_that_is_held_elsewhere(core, stored):
    state = states(core)["u50"]
    ((name, hold),) = state.stored_inputs.items()
    state.stored_inputs[name] = stored.holds.downgrade(hold, at(8))


def a_view_that_is_not_one_step_behind(core, stored):
    states(core)["u60"].write_frontier = at(9)


def a_collection_that_can_be_read_too_early(core, stored):
    states(core)["u50"].as_of = at(6)


def a_replica_with_what_does_not_exist(core, stored):
    hosted = replica(core).collections
    hosted["u77"] = hosted["u50"]


def a_replica_whose_inputs_are_not_held(core, stored):
    (hold,) = replica(core).collections["u50"].input_holds.values()
    stored.holds.release(hold)


def a_replica_whose_holds_were_forgotten(core, stored):
    replica(core).collections["u50"].input_holds.clear()


def a_replica_that_holds_elsewhere(core, stored):
    (hold,) = replica(core).collections["u50"].input_holds.values()
    stored.holds.downgrade(hold, at(9))


def a_long_history(core, stored):
    history = core._placement.instance(CLUSTER).history
    history.commands += [pr.CancelPeek("q")] * 100


def too_many_that_hydrate(core, stored):
    hydration = replica(core).hydration
    hydration._tracked["u51"].phase = Phase.HYDRATING
    hydration._hydrating.add("u51")


def one_that_waits_without_reason(core, stored):
    hydration = replica(core).hydration
    hydration._tracked["u50"].phase = Phase.CREATED
    hydration._hydrating.clear()


def a_peek_with_another_hold(core, stored):
    hold = core._peeks.get("p").hold
    core._collections.holds.downgrade(hold, at(8))


def a_peek_without_its_hold(core, stored):
    core.release_read_hold(core._peeks.get("p").hold)


def a_subscription_that_has_ended(core, stored):
    core._subscribes._frontiers["t7"] = EMPTY_FRONTIER


def commits_that_overlap(core, stored):
    core._outputs._under_way["u60"].reverse()


FAULTS = [
    a_capability_that_nobody_owns,
    an_input_that_does_not_know_its_dependents,
    a_stored_input_that_is_not_held,
    a_stored_input_that_was_forgotten,
    a_stored_input_that_is_held_elsewhere,
    a_view_that_is_not_one_step_behind,
    a_collection_that_can_be_read_too_early,
    a_replica_with_what_does_not_exist,
    a_replica_whose_inputs_are_not_held,
    a_replica_whose_holds_were_forgotten,
    a_replica_that_holds_elsewhere,
    a_long_history,
    too_many_that_hydrate,
    one_that_waits_without_reason,
    a_peek_with_another_hold,
    a_peek_without_its_hold,
    a_subscription_that_has_ended,
    commits_that_overlap,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_found(room, fault):
    fault(room.core, room.stored)
    with pytest.raises(FatalError):
        room.core.validate()


def test_a_replica_of_another_instance_ends():
    old = replayed([pr.CreateInstance((("size", "small"),))])
    with pytest.raises(FatalError, match="not as"):
        reconcile(old, [pr.CreateInstance((("size", "large"),))])


def test_actions_that_cannot_be_carried_out_are_found():
    wanted = index("u50", as_of=5)
    state = replayed([pr.CreateDataflow(wanted)])
    objects = InstalledObjects.of(replayed([pr.CreateDataflow(index("u50", as_of=9))]))
    back = Reconciled((), (), (AllowCompaction("u50", at(5)),), (), state)
    with pytest.raises(FatalError, match="forgotten"):
        objects.carry_out(back)
    twice = Reconciled((), (), (), (wanted,), state)
    with pytest.raises(FatalError, match="second time"):
        objects.carry_out(twice)


def test_a_replica_knows_nothing_before_its_first_command():
    assert reconcile(ReplicaState(), []) == Reconciled((), (), (), (), ReplicaState())
