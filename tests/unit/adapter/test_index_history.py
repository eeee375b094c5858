"""How much history indexes keep: their own RETAIN HISTORY, else the parameter's."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from slackwater.adapter.catalog.model import ItemKind
from slackwater.adapter.controllers.dataflows import Dataflows
from slackwater.compute.controller.errors import ComputeError, Variant
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.read_policy import LagWriteFrontier

PLAIN, OWN, VIEW, GONE = (GlobalId(f"u{number}") for number in range(1, 5))


class Compute:
    """Has all but `GONE`, which is dropped when its policy is set."""

    def __init__(self):
        self.policies = {}
        self.there = [PLAIN, OWN, VIEW, GONE]

    def look(self, action):
        states = [SimpleNamespace(id=each) for each in self.there]
        return action(SimpleNamespace(instances=["c"], collections=lambda _: states))

    def set_policy(self, instance, global_id, policy):
        if global_id == GONE:
            raise ComputeError(Variant.COLLECTION_MISSING, [GONE])
        self.policies[global_id] = policy


def item(global_id, kind=ItemKind.INDEX, retain_history_ms=None):
    return SimpleNamespace(
        id=global_id, kind=kind, retain_history_ms=retain_history_ms, cluster="c", full_name="i"
    )


@pytest.fixture
def dataflows():
    found = [item(GONE), item(PLAIN), item(OWN, retain_history_ms=5), item(VIEW, ItemKind.VIEW)]
    items = {each.id: each for each in found}
    return Dataflows(
        Compute(), lambda: SimpleNamespace(items=items), lambda: Timestamp(1), lambda _: None
    )


def test_indexes_without_history_of_their_own_go_by_the_parameter(dataflows):
    dataflows.configure({"default_retain_history": "3600000 ms"})
    assert dataflows.compute.policies == {PLAIN: LagWriteFrontier(3_600_001)}


def test_another_parameter_changes_nothing(dataflows):
    dataflows.configure({"persist_blob_target_size": "1 MB"})
    assert dataflows.compute.policies == {}


def test_what_is_not_there_yet_goes_by_it_later(dataflows):
    dataflows.compute.there = []
    dataflows.configure({"default_retain_history": "2000 ms"})
    assert dataflows.compute.policies == {}
    dataflows.retain(item(PLAIN))
    dataflows.retain(item(OWN, retain_history_ms=7))
    assert dataflows.compute.policies == {PLAIN: LagWriteFrontier(2001), OWN: LagWriteFrontier(8)}
