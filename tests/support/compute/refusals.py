"""Operations that the compute controller refuses, whatever state it is in (spec 4.13).

`REFUSALS` gives, by name, functions from a `Refused` to an operation and the reason that it must be
refused for, or to None where the present state has nothing that the operation could be asked of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.support.compute.controller_room import CLUSTER, copy_to, index, subscribe, view

from slackwater.compute.controller import protocol as pr
from slackwater.compute.controller.core import ComputeController
from slackwater.compute.controller.errors import Variant
from slackwater.controller.holds import Holder, HoldKind
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier, Timestamp
from slackwater.repr.read_policy import ValidFrom

NOWHERE = "nowhere"
NOBODY = "r9"
NOTHING = "u9001"
HOLDER = Holder(HoldKind.STATEMENT, "refused")
ALWAYS = ValidFrom(Frontier(0))

Reason = Variant | type[Exception]
Found = tuple[Callable[[], object], Reason] | None


@dataclass
class Refused:
    """What there is at the moment. `live` and `dropped` are ids of collections, by their kinds."""

    core: ComputeController
    table: str
    indexes: list[str]
    written: list[str]
    dropped: list[str]
    replicas: list[str]
    peeks: list[pr.Peek]

    def since(self, name):
        return self.core.collection(CLUSTER, name).since

    def good(self, name="u9002"):
        """A dataflow that could be created."""
        return index(name, [self.table], as_of=self.late)

    @property
    def late(self):
        """A time at which the table can be read."""
        return self.core._storage.frontiers(self.table).since.value

    def give_back(self):
        """Ends the holds that were taken to be wrong ones."""
        for hold in self.core._collections.holds:
            if hold.holder == HOLDER:
                self.core.release_read_hold(hold)

    def creates(self, *dataflows, target=None):
        return lambda: self.core.create_dataflows(CLUSTER, list(dataflows), target)


def no_instance(refused: Refused, number: int) -> Found:
    core, peek = refused.core, pr.Peek("x", NOTHING, Timestamp(5))
    asked = (
        lambda: core.create_dataflow(NOWHERE, refused.good()),
        lambda: core.create_dataflow(NOWHERE, index("u9002", [NOTHING], as_of=None), NOBODY),
        lambda: core.restore([(NOWHERE, refused.good())], {}, Timestamp(5)),
        lambda: core.add_replica_to_instance(NOWHERE, NOBODY, "here"),
        lambda: core.drop_replica(NOWHERE, NOBODY),
        lambda: core.peek(NOWHERE, peek, NOBODY),
        lambda: core.set_read_policy(NOWHERE, []),
        lambda: core.drop_collections(NOWHERE, []),
        lambda: core.acquire_read_hold(NOWHERE, NOTHING, HOLDER),
        lambda: core.allow_writes(NOWHERE, NOTHING),
        lambda: core.are_hydrated(NOWHERE, [NOBODY]),
        lambda: core.replicas(NOWHERE),
    )
    return asked[number % len(asked)], Variant.INSTANCE_MISSING


def instance_again(refused: Refused, number: int) -> Found:
    return lambda: refused.core.create_instance(CLUSTER), Variant.INSTANCE_EXISTS


def reused_log(refused: Refused, number: int) -> Found:
    known = [*refused.indexes, *refused.written]
    logs = [known[number % len(known)]] if known and number % 2 else ["si8", "si8"]
    return lambda: refused.core.create_instance("d", logs=logs), Variant.COLLECTION_ID_REUSED


def no_replica(refused: Refused, number: int) -> Found:
    flow = subscribe("t9004", [NOTHING], as_of=None)
    asked = [
        lambda: refused.core.drop_replica(CLUSTER, NOBODY),
        refused.creates(flow, target=NOBODY),
        lambda: refused.core.peek(CLUSTER, pr.Peek("x", NOTHING, Timestamp(0)), NOBODY),
    ]
    return asked[number % len(asked)], Variant.REPLICA_MISSING


def replica_again(refused: Refused, number: int) -> Found:
    if not refused.replicas:
        return None
    name = refused.replicas[number % len(refused.replicas)]
    add = refused.core.add_replica_to_instance
    return lambda: add(CLUSTER, name, "elsewhere"), Variant.REPLICA_EXISTS


def no_replica_that_is_hydrated(refused: Refused, number: int) -> Found:
    if not refused.replicas:
        return None
    asked = [NOBODY] if number % 2 else []
    are_hydrated = refused.core.are_hydrated
    return lambda: are_hydrated(CLUSTER, asked), Variant.HYDRATION_CHECK_BAD_TARGET


def reused_id(refused: Refused, number: int) -> Found:
    known = [*refused.indexes, *refused.written]
    if not known or number % 3 == 0:
        return refused.creates(refused.good(), refused.good()), Variant.COLLECTION_ID_REUSED
    flow = index(known[number % len(known)], [NOTHING], as_of=None)
    return refused.creates(refused.good(), flow), Variant.COLLECTION_ID_REUSED


def no_as_of(refused: Refused, number: int) -> Found:
    flow = index("u9003", [NOTHING], as_of=None)
    return refused.creates(refused.good(), flow), Variant.MISSING_AS_OF


def nothing_to_give(refused: Refused, number: int) -> Found:
    if number % 2:
        flow = subscribe("t9004", [NOTHING], as_of=EMPTY_FRONTIER)
        return refused.creates(refused.good(), flow), Variant.EMPTY_AS_OF_FOR_SUBSCRIBE
    flow = copy_to("t9004", [NOTHING], as_of=EMPTY_FRONTIER)
    return refused.creates(refused.good(), flow), Variant.EMPTY_AS_OF_FOR_COPY_TO


def no_import(refused: Refused, number: int) -> Found:
    late = 10**6
    unread = [NOTHING, *refused.written, *refused.dropped]
    flows = [
        index("u9003", [NOTHING], as_of=late),
        index("u9003", [refused.table], [unread[number % len(unread)]], as_of=late),
        view("u9003", NOTHING, [refused.table], as_of=late),
    ]
    return (
        refused.creates(refused.good(), flows[number % len(flows)]),
        Variant.COLLECTION_MISSING,
    )


def no_collection(refused: Refused, number: int) -> Found:
    core, gone = refused.core, [NOTHING, *refused.dropped]
    name = gone[number % len(gone)]
    live = [*refused.indexes, *refused.written]
    given = [(each, ALWAYS) for each in refused.indexes]
    unread = [name, *refused.written]
    peek = pr.Peek("x", unread[number % len(unread)], Timestamp(10**6))
    asked = [
        lambda: core.drop_collections(CLUSTER, [*live, name]),
        lambda: core.set_read_policy(CLUSTER, [*given, (name, ALWAYS)]),
        lambda: core.acquire_read_hold(CLUSTER, name, HOLDER),
        lambda: core.allow_writes(CLUSTER, name),
        lambda: core.collection(CLUSTER, name),
        lambda: core.is_hydrated(CLUSTER, name),
        lambda: core.peek(CLUSTER, peek),
    ]
    return asked[number % len(asked)], Variant.COLLECTION_MISSING


def only_written(refused: Refused, number: int) -> Found:
    if not refused.written:
        return None
    name = refused.written[number % len(refused.written)]
    given = [*((each, ALWAYS) for each in refused.indexes), (name, ALWAYS)]
    return lambda: refused.core.set_read_policy(CLUSTER, given), Variant.WRITE_ONLY_COLLECTION


def too_early(refused: Refused, number: int) -> Found:
    known = [each for each in refused.indexes if refused.since(each).value > 0]
    if not known or number % 4 == 0:
        if not refused.late:
            return None
        flow = index("u9003", [refused.table], as_of=refused.late - 1)
        return refused.creates(refused.good(), flow), Variant.SINCE_VIOLATION
    name = known[number % len(known)]
    at = Timestamp(min(refused.since(name).value - 1, 10**6))
    core = refused.core
    asked = [
        refused.creates(refused.good(), index("u9003", [], [name], as_of=at)),
        lambda: core.acquire_read_hold(CLUSTER, name, HOLDER, at),
        lambda: core.peek(CLUSTER, pr.Peek("x", name, at)),
    ]
    return asked[number % len(asked)], Variant.SINCE_VIOLATION


def wrong_hold(refused: Refused, number: int) -> Found:
    readable = [each for each in refused.indexes if not refused.since(each).is_empty]
    if not readable:
        return None
    core, name = refused.core, readable[number % len(readable)]
    at = Timestamp(refused.since(name).value + 3)
    hold = core.acquire_read_hold(CLUSTER, name, HOLDER, Timestamp(at + number % 2))
    other = readable[(number + 1) % len(readable)]
    # What was taken is given back by whoever has asked.
    match number % 3:
        case 0:
            core.release_read_hold(hold)
            asked, reason = pr.Peek("x", name, at), Variant.READ_HOLD_MISSING
        case 1 if other != name:
            asked, reason = pr.Peek("x", other, at), Variant.READ_HOLD_ID_MISMATCH
        case _:
            before = Timestamp(hold.since - 1)
            asked, reason = pr.Peek("x", name, before), Variant.READ_HOLD_INSUFFICIENT
    return lambda: core.peek(CLUSTER, asked, None, hold), reason


def one_replica_s_index(refused: Refused, number: int) -> Found:
    if not refused.replicas:
        return None
    name = refused.replicas[number % len(refused.replicas)]
    return refused.creates(refused.good(), target=name), FatalError


def peek_again(refused: Refused, number: int) -> Found:
    under_way = [each for each in refused.peeks if each.id in refused.indexes]
    if not under_way:
        return None
    peek = under_way[number % len(under_way)]
    return lambda: refused.core.peek(CLUSTER, peek), FatalError


def no_number(refused: Refused, number: int) -> Found:
    wrong = {"a": "b", "compute_hydration_concurrency": ("0", "", "many", "-1")[number % 4]}
    return lambda: refused.core.update_configuration(wrong), ValueError


REFUSALS = {
    each.__name__: each
    for each in (
        no_instance,
        instance_again,
        reused_log,
        no_replica,
        replica_again,
        no_replica_that_is_hydrated,
        reused_id,
        no_as_of,
        nothing_to_give,
        no_import,
        no_collection,
        only_written,
        too_early,
        wrong_hold,
        one_replica_s_index,
        peek_again,
        no_number,
    )
}


def fingerprint(core: ComputeController, stored) -> dict[str, str]:
    """All that the controller knows and is about to do, and what it holds."""
    placement, collections = core._placement, core._collections
    found = {
        f"collection {name}": (state, sorted(state.capabilities.items()))
        for name, state in collections.states.items()
    }
    for name, each in placement._instances.items():
        found |= {
            f"{name}'s history": each.history.commands,
            f"{name}'s replicas": each.replicas,
            f"{name}'s targets": (each.targets, each.peek_targets),
        }
    found |= {
        "holds": list(collections.holds),
        "stored holds": list(stored.holds),
        "compaction": list(collections.compacted),
        "parameters": placement.parameters,
        "waiting": (list(placement._unscheduled), list(placement._leaving)),
        "peeks": core._peeks,
        "subscriptions": core._subscribes,
        "outputs": core._outputs,
        "effects": core._effects,
        "responses": core._responses,
    }
    return {name: repr(each) for name, each in found.items()}
