"""The controller's `validate` finds what must not be, whichever part it is in."""

from __future__ import annotations

import pytest
from tests.support.storage.storage_model import INSTANCE, Room

from slackwater.controller.holds import Holder, HoldKind
from slackwater.repr.change_batch import ChangeBatch
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import Frontier, Timestamp


@pytest.fixture
def room():
    made = Room()
    view = made.view()
    made.write(view, Frontier(10))
    made.export_of(made.ingestion())
    made.sink(view)
    made.core.capabilities.acquire([view], Holder(HoldKind.STATEMENT, "s"))
    made.core.validate()
    return made


def a_capability_that_nobody_owns(core):
    core.capabilities._propagation.apply({"u1": ChangeBatch([(Timestamp(9), 1)])})


def a_hold_that_is_not_counted(core):
    hold = next(iter(core.capabilities.holds))
    core.capabilities._propagation.apply(dict.fromkeys(hold.ids, ChangeBatch([(hold.since, -1)])))


def an_input_that_does_not_know_its_dependents(core):
    state = next(s for s in core.capabilities.settled() if s.dependencies)
    core.capabilities.collections[state.dependencies[0]].dependents.clear()


def an_export_without_its_hold(core):
    (state,) = core.exports.states.values()
    core.capabilities.holds.release(state.hold)


def a_shard_in_two_states(core):
    core.shards._unfinalized.add(next(iter(core.shards._owners)))


def a_shard_in_use_of_no_collection(core):
    core.shards._in_use.add(77)


def a_shard_that_waits_too_early(core):
    core.shards._waiting[next(iter(core.shards._in_use))] = None


def an_active_replica_that_is_gone(core):
    core.placement._instances[INSTANCE].replicas.clear()


def a_history_that_is_not_reduced(core):
    history = core.placement._instances[INSTANCE].history
    history.commands = history.commands * 3


@pytest.mark.parametrize(
    "damage",
    [
        a_capability_that_nobody_owns,
        a_hold_that_is_not_counted,
        an_input_that_does_not_know_its_dependents,
        an_export_without_its_hold,
        a_shard_in_two_states,
        a_shard_in_use_of_no_collection,
        a_shard_that_waits_too_early,
        an_active_replica_that_is_gone,
        a_history_that_is_not_reduced,
    ],
)
def test_damage_is_found(room, damage):
    damage(room.core)
    with pytest.raises(FatalError):
        room.core.validate()
