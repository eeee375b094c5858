"""The compute controller: the life of instances, replicas and dataflows."""

from __future__ import annotations

import pytest
from tests.support.compute.controller_room import (
    CLUSTER,
    ComputeRoom,
    at,
    copy_to,
    dataflow,
    done,
    holds_of,
    index,
    indexed,
    of_kind,
    refused,
    report,
    sent,
    subscribe,
    view,
)

from slackwater.compute.controller import effects as ef
from slackwater.compute.controller import protocol as pr
from slackwater.compute.controller.core import ComputeController
from slackwater.compute.controller.descriptions import IndexExport, SubscribeExport
from slackwater.compute.controller.errors import Variant
from slackwater.compute.controller.hydration import Phase
from slackwater.controller.holds import Holder, HoldKind, ReleasedHold
from slackwater.controller.protocol import (
    AllowCompaction,
    Hello,
    InitializationComplete,
    ReplicaKey,
    UpdateConfiguration,
)
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import EMPTY_FRONTIER, Timestamp
from slackwater.repr.read_policy import DROPPED, LagWriteFrontier, ValidFrom

HOLDER = Holder(HoldKind.STATEMENT, "app/1")


# Instances


def test_instances_are_made_once_and_known_by_name(core):
    assert refused(Variant.INSTANCE_EXISTS, core.create_instance, CLUSTER) == (CLUSTER,)
    for action, arguments in (
        (core.add_replica_to_instance, ("r1", "here")),
        (core.drop_replica, ("r1",)),
        (core.create_dataflow, (index("u50"),)),
        (core.drop_collections, (["u50"],)),
        (core.set_read_policy, ([],)),
        (core.acquire_read_hold, ("u50", HOLDER)),
        (core.allow_writes, ("u50",)),
        (core.peek, (pr.Peek("p", "u50", 3),)),
        (core.collection, ("u50",)),
        (core.collections, ()),
        (core.replicas, ()),
        (core.replica_frontiers, ("u50",)),
        (core.statuses, ("u50",)),
        (core.dependencies, ("u50",)),
        (core.is_hydrated, ("u50",)),
        (core.hydration, ("u50",)),
        (core.are_hydrated, ()),
    ):
        assert refused(Variant.INSTANCE_MISSING, action, "d", *arguments) == ("d",)
    assert refused(Variant.INSTANCE_MISSING, core.restore, [("d", index("u50"))], {}, 9) == ("d",)
    core.drop_instance("d")
    assert core.process() == ()


def test_a_new_replica_is_told_everything(room, core):
    core.update_configuration({"b": "2"})
    core.initialization_complete()
    table, name = indexed(room)
    core.create_instance("d", (("size", "small"),), ("si1",))
    core.add_replica_to_instance("d", "r1", "there")
    effects = room.run()
    assert effects[0] == ef.ConnectReplica(ReplicaKey("d", "r1"), "there", 1)
    assert sent(effects, "r1") == [
        Hello(1),
        pr.CreateInstance((("size", "small"),), ("si1",)),
        UpdateConfiguration((("b", "2"),)),
        InitializationComplete(),
    ]
    commands = room.replica("r1")
    assert commands[:3] == [Hello(2), pr.CreateInstance(), UpdateConfiguration((("b", "2"),))]
    (created,) = of_kind(commands, pr.CreateDataflow)
    assert [(each.id, each.upper) for each in created.dataflow.source_imports] == [(table, at(10))]
    assert commands[4:] == [pr.Schedule(name), InitializationComplete()]


def test_a_replica_that_comes_later_hears_how_far_the_inputs_are_now(room):
    indexed(room)
    room.tick(30)
    (created,) = of_kind(room.replica("r1"), pr.CreateDataflow)
    assert created.dataflow.source_imports[0].upper == at(30)


def test_replicas_are_made_once_and_known_by_name(room, core):
    room.replica("r1")
    add = core.add_replica_to_instance
    assert refused(Variant.REPLICA_EXISTS, add, CLUSTER, "r1", "x") == (CLUSTER, "r1")
    assert refused(Variant.REPLICA_MISSING, core.drop_replica, CLUSTER, "r2") == (CLUSTER, "r2")
    core.drop_replica(CLUSTER, "r1")
    assert room.run() == [ef.DisconnectReplica(ReplicaKey(CLUSTER, "r1"), 1)]
    assert core.replicas(CLUSTER) == {}


def test_the_parameters_reach_present_and_later_replicas(room, core):
    room.replica("r1")
    core.update_configuration({"a": "1"})
    assert sent(room.run(), "r1") == [UpdateConfiguration((("a", "1"),))]
    assert UpdateConfiguration((("a", "1"),)) in room.replica("r2")
    with pytest.raises(ValueError, match="from 1 on"):
        core.update_configuration({"compute_hydration_concurrency": "none"})
    assert not core.ready()


def test_logs_can_be_read_from_the_beginning_on(room, core):
    core.create_instance("d", logs=("si1", "si2"))
    assert refused(Variant.COLLECTION_ID_REUSED, core.create_instance, "e", (), ["si1"]) == ("si1",)
    refused(Variant.COLLECTION_ID_REUSED, core.create_instance, "e", (), ["si7", "si7"])
    assert core.collection("d", "si1").since == at(0)
    core.set_read_policy("d", [("si1", LagWriteFrontier(2))])
    core.add_replica_to_instance("d", "r1", "here")
    room.run()
    core.respond(pr.FromReplica(ReplicaKey("d", "r1"), 1, report("si1", write=9)))
    room.maintain()
    assert core.collection("d", "si1").since == at(7)
    core.add_replica_to_instance("d", "r2", "here")
    core.respond(pr.FromReplica(ReplicaKey("d", "r2"), 2, report("si1", write=3)))
    assert of_kind(room.run(), ef.ReportViolation) == []


def test_dropping_an_instance_ends_everything_on_it(room, core):
    table, name = indexed(room)
    room.replica("r1")
    core.create_dataflow(CLUSTER, subscribe("t7", [table]))
    core.create_dataflow(CLUSTER, copy_to("t8", [table]))
    core.peek(CLUSTER, pr.Peek("p", name, 7))
    hold = core.acquire_read_hold(CLUSTER, name, HOLDER)
    room.run()
    core.drop_instance(CLUSTER)
    effects = room.run()
    error = "the instance was dropped"
    assert ef.AnswerPeek("p", pr.PeekFailed(error)) in effects
    assert ef.DeliverSubscribe("t7", at(0), at(0), error=error) in effects
    assert ef.AnswerCopyTo("t8", pr.CopyToFailed(error)) in effects
    assert ef.DisconnectReplica(ReplicaKey(CLUSTER, "r1"), 1) in effects
    assert list(room.stored.holds) == []
    assert not core.release_read_hold(hold)
    core.create_instance(CLUSTER)
    core.create_dataflow(CLUSTER, index(name, [table], as_of=8))


# Dataflows


def test_create_dataflow_refuses_what_cannot_run(room, core):
    table, name = indexed(room)
    room.replica("r1")
    create = core.create_dataflow
    missing = index("u60", [table])
    assert refused(Variant.REPLICA_MISSING, create, CLUSTER, missing, "r7") == (CLUSTER, "r7")
    with pytest.raises(FatalError, match="alone"):
        create(CLUSTER, missing, "r1")
    assert refused(Variant.COLLECTION_ID_REUSED, create, CLUSTER, index(name, [table])) == (name,)
    assert refused(Variant.MISSING_AS_OF, create, CLUSTER, index("u60", as_of=None)) == ("u60",)
    empty = EMPTY_FRONTIER
    refused(Variant.EMPTY_AS_OF_FOR_SUBSCRIBE, create, CLUSTER, subscribe("t7", as_of=empty))
    refused(Variant.EMPTY_AS_OF_FOR_COPY_TO, create, CLUSTER, copy_to("t7", as_of=empty))
    for wrong in (index("u60", ["u77"]), index("u60", [], ["u77"]), view("u60", "u77", [table])):
        assert refused(Variant.COLLECTION_MISSING, create, CLUSTER, wrong) == ("u77",)
    since = room.stored.frontiers(table).since.value
    assert since == 5
    late = index("u60", [table], as_of=since - 1)
    assert refused(Variant.SINCE_VIOLATION, create, CLUSTER, late) == (table,)
    late = index("u60", [], [name], as_of=4)
    assert refused(Variant.SINCE_VIOLATION, create, CLUSTER, late) == (name,)
    core.create_instance("d")
    assert refused(Variant.COLLECTION_MISSING, create, "d", index("u60", [], [name])) == (name,)
    assert not [e for e in room.run() if not isinstance(e, ef.SendToReplica)]
    assert [state.id for state in core.collections(CLUSTER)] == [name]


def test_only_indexes_can_be_imported(room, core):
    table, target = room.table(), room.target()
    core.create_dataflow(CLUSTER, view("u60", target, [table]))
    create = core.create_dataflow
    assert refused(Variant.COLLECTION_MISSING, create, CLUSTER, index("u61", [], ["u60"]))
    both = [subscribe("t7", [table]), index("u61", [], ["t7"])]
    assert refused(Variant.COLLECTION_MISSING, core.create_dataflows, CLUSTER, both) == ("t7",)


def test_dropped_collections_cannot_be_imported(room, core):
    table, name = indexed(room)
    core.drop_collections(CLUSTER, [name])
    room.stored.acquire([table], HOLDER)
    room.storage.drop(table)
    create = core.create_dataflow
    assert refused(Variant.COLLECTION_MISSING, create, CLUSTER, index("u60", [table])) == (table,)
    wrong = index("u60", [], [name])
    assert refused(Variant.COLLECTION_MISSING, create, CLUSTER, wrong) == (name,)


def test_several_dataflows_are_created_or_none(room, core):
    table = room.table()
    both = [index("u50", [table]), index("u51", [], ["u50"], as_of=6)]
    bad = index("u52", [], ["u51"], as_of=5)
    names = refused(Variant.SINCE_VIOLATION, core.create_dataflows, CLUSTER, [*both, bad])
    assert names == ("u51",)
    again = [*both, both[0]]
    assert refused(Variant.COLLECTION_ID_REUSED, core.create_dataflows, CLUSTER, again) == ("u50",)
    assert not core.collections(CLUSTER)
    core.create_dataflows(CLUSTER, both)
    room.run()
    assert core.dependencies(CLUSTER, "u50") == ((table,), ())
    assert core.dependencies(CLUSTER, "u51") == ((), ("u50",))


def test_a_description_has_exports_each_once():
    with pytest.raises(ValueError, match="at least one"):
        dataflow([])
    with pytest.raises(ValueError, match="once"):
        dataflow([IndexExport("u1", "t1", ()), SubscribeExport("u1", "t1")])


def test_i41_an_input_is_held_where_the_output_can_be_read(room, core):
    table, name = indexed(room)
    state = core.collection(CLUSTER, name)
    assert (state.since, state.write_frontier) == (at(5), at(5))
    assert holds_of(room, table, HoldKind.INDEX) == [5]
    room.replica("r1")
    core.set_read_policy(CLUSTER, [(name, LagWriteFrontier(2))])
    room.tick(30)
    room.maintain()
    effects = room.says("r1", report(name, write=20, output=20))
    assert ef.ReportUpper(name, at(20)) in effects
    assert sent(effects, "r1") == [AllowCompaction(name, at(18))]
    assert holds_of(room, table, HoldKind.INDEX) == [18]
    assert room.stored.frontiers(table).since <= state.since == at(18)


def test_the_warmup_capability_stays_behind_the_inputs(room, core):
    _table, name = indexed(room)
    room.replica("r1")
    core.set_read_policy(CLUSTER, [(name, LagWriteFrontier(0))])
    room.says("r1", report(name, write=40, output=40))
    state = core.collection(CLUSTER, name)
    assert (state.implied, state.warmup, state.since) == (at(40), at(5), at(5))
    room.tick(20)
    room.maintain()
    assert (state.warmup, state.since) == (at(19), at(19))


def test_a_constant_waits_for_no_input(room, core):
    core.create_dataflow(CLUSTER, index("u50", as_of=0))
    room.maintain()
    state = core.collection(CLUSTER, "u50")
    assert (state.warmup, state.since, state.is_scheduled) == (EMPTY_FRONTIER, at(0), True)


def test_i42_a_view_holds_its_inputs_one_step_behind_what_is_stored(room, core):
    table, target = room.table(), room.target()
    core.create_dataflow(CLUSTER, view("u60", target, [table]))
    room.run()
    state = core.collection(CLUSTER, "u60")
    assert (state.since, state.implied, state.write_frontier) == (at(5), at(5), at(5))
    room.tick(30)
    room.maintain()
    room.storage.write(target, at(25))
    effects = room.maintain()
    assert ef.ReportUpper("u60", at(25)) in effects
    assert (state.since, state.write_frontier) == (at(24), at(25))
    assert holds_of(room, table, HoldKind.VIEW) == [24]


def test_a_view_that_is_stored_further_begins_there(room, core):
    table = room.table(30)
    target = room.target(upper=28)
    core.create_dataflow(CLUSTER, view("u60", target, [table], as_of=27))
    assert core.collection(CLUSTER, "u60").write_frontier == at(28)
    assert core.collection(CLUSTER, "u60").implied == at(27)
    commands = room.replica("r1")
    assert pr.OutputAdvanced("u60", at(28)) in commands


def test_a_view_whose_frontier_jumps_ahead_is_held_by_its_inputs(room, core):
    """A refresh schedule: the output is complete long before its inputs are."""
    table, target = room.table(), room.target()
    core.create_dataflow(CLUSTER, view("u60", target, [table]))
    room.storage.write(target, at(1000))
    room.maintain()
    state = core.collection(CLUSTER, "u60")
    assert (state.implied, state.since) == (at(999), at(9))
    room.storage.write(target, EMPTY_FRONTIER)
    room.maintain()
    assert state.since.is_empty
    assert holds_of(room, table, HoldKind.VIEW) == []


def test_an_empty_as_of_leaves_nothing_to_do(room, core):
    table, target = room.table(), room.target()
    room.replica("r1")
    core.create_dataflow(CLUSTER, view("u60", target, [table], as_of=EMPTY_FRONTIER))
    assert room.run() == []
    state = core.collection(CLUSTER, "u60")
    assert state.since.is_empty
    assert core.is_hydrated(CLUSTER, "u60")
    assert core.are_hydrated(CLUSTER)
    core.allow_writes(CLUSTER, "u60")
    core.drop_collections(CLUSTER, ["u60"])
    assert room.run() == []
    core.create_dataflow(CLUSTER, view("u60", target, [table]))


def test_i40_imports_stay_readable_until_the_output_moves(room, core):
    table, name = indexed(room)
    core.create_dataflow(CLUSTER, index("u51", [], [name], as_of=6))
    room.replica("r1")
    core.set_read_policy(CLUSTER, [(name, LagWriteFrontier(1))])
    room.tick(30)
    room.maintain()
    room.says("r1", report(name, write=20, output=20))
    assert core.collection(CLUSTER, name).since == at(6)
    core.set_read_policy(CLUSTER, [("u51", ValidFrom(at(12)))])
    room.maintain()
    assert core.collection(CLUSTER, name).since == at(12)
    assert holds_of(room, table, HoldKind.INDEX) == [12]


def test_the_schedule_waits_for_the_inputs(room, core):
    table = room.table(5)
    room.replica("r1")
    chain = [index("u50", [table], as_of=5), index("u51", [], ["u50"], as_of=5)]
    core.create_dataflows(CLUSTER, [*chain, index("t7", [table], as_of=5)])
    scheduled = of_kind(sent(room.run(), "r1"), pr.Schedule)
    assert scheduled == [pr.Schedule("t7")]
    room.tick(7)
    assert of_kind(sent(room.maintain(), "r1"), pr.Schedule) == [pr.Schedule("u50")]
    effects = room.says("r1", report("u50", write=6, output=6))
    assert of_kind(sent(effects, "r1"), pr.Schedule) == [pr.Schedule("u51")]
    room.maintain()
    assert of_kind(sent(room.run(), "r1"), pr.Schedule) == []


def test_a_replica_that_comes_back_hydrates_inputs_first_whatever_their_ids(room, core):
    """The order of ids is none of dependencies: else the one would wait for the other for ever."""
    core.update_configuration({"compute_hydration_concurrency": "1"})
    table = room.table()
    core.create_dataflows(CLUSTER, [index("u90", [table]), index("u10", [], ["u90"])])
    room.replica("r1")
    room.says("r1", report("u90", write=8, output=8))
    commands = room.replica("r2")
    assert of_kind(commands, pr.Schedule) == [pr.Schedule("u90")]
    effects = room.says("r2", report("u90", output=8))
    assert sent(effects, "r2") == [pr.Schedule("u10")]


def test_a_replica_holds_what_it_still_reads(room, core):
    table = room.table(20)
    room.replica("r1")
    core.create_dataflow(CLUSTER, view("u60", room.target(), [table], as_of=19))
    since = room.stored.frontiers(table).since.value
    assert holds_of(room, table, HoldKind.REPLICA) == [since]
    room.says("r1", report("u60", output=19))
    assert holds_of(room, table, HoldKind.REPLICA) == [since]
    room.says("r1", report("u60", read=25))
    assert holds_of(room, table, HoldKind.REPLICA) == [25]
    room.replica("r2")
    assert holds_of(room, table, HoldKind.REPLICA) == [25, 19]
    core.drop_replica(CLUSTER, "r1")
    core.drop_replica(CLUSTER, "r2")
    assert holds_of(room, table, HoldKind.REPLICA) == []


def test_without_replicas_indexes_follow_their_stored_inputs(room, core):
    _table, name = indexed(room)
    core.create_dataflow(CLUSTER, index("u51", [], [name], as_of=6))
    core.set_read_policy(CLUSTER, [(name, LagWriteFrontier(2)), ("u51", LagWriteFrontier(3))])
    room.tick(30)
    room.maintain()
    room.maintain()
    # The second one reads the first, which no replica makes complete.
    assert core.collection(CLUSTER, "u51").implied == at(27)
    assert core.collection(CLUSTER, "u51").since == core.collection(CLUSTER, "u51").warmup
    assert core.collection(CLUSTER, name).implied == at(28)
    (first, _) = of_kind(room.replica("r1"), pr.CreateDataflow)
    assert first.dataflow.as_of == core.collection(CLUSTER, name).since


def test_a_replica_that_comes_begins_where_the_collection_can_be_read(room, core):
    _table, name = indexed(room)
    room.replica("r1")
    core.set_read_policy(CLUSTER, [(name, LagWriteFrontier(2))])
    room.tick(30)
    core.maintain()
    room.core.respond(
        pr.FromReplica(ReplicaKey(CLUSTER, "r1"), room.nonce("r1"), report(name, write=20))
    )
    core.process()
    core.set_read_policy(CLUSTER, [(name, ValidFrom(at(25)))])
    commands = room.replica("r2")
    (created,) = of_kind(commands, pr.CreateDataflow)
    assert created.dataflow.as_of == at(25) == core.replicas(CLUSTER)["r2"].collections[name].as_of
    assert of_kind(commands, AllowCompaction) == []


# Dropping


def test_a_dropped_collection_goes_when_replicas_are_done(room, core):
    table, name = indexed(room)
    room.replica("r1")
    room.replica("r2")
    assert refused(Variant.COLLECTION_MISSING, core.drop_collections, CLUSTER, [name, "u77"])
    core.drop_collections(CLUSTER, [name, name])
    effects = room.run()
    for each in ("r1", "r2"):
        assert sent(effects, each) == [AllowCompaction(name, EMPTY_FRONTIER)]
    for action, arguments in (
        (core.collection, (name,)),
        (core.drop_collections, ([name],)),
        (core.acquire_read_hold, (name, HOLDER)),
        (core.set_read_policy, ([(name, ValidFrom(at(9)))],)),
        (core.allow_writes, (name,)),
        (core.is_hydrated, (name,)),
    ):
        assert refused(Variant.COLLECTION_MISSING, action, CLUSTER, *arguments) == (name,)
    assert refused(Variant.COLLECTION_MISSING, core.peek, CLUSTER, pr.Peek("p", name, 9)) == (name,)
    assert holds_of(room, table, HoldKind.REPLICA) == [5, 5]
    room.says("r1", done(name))
    assert holds_of(room, table, HoldKind.REPLICA) == [5]
    core.drop_replica(CLUSTER, "r2")
    room.run()
    assert list(room.stored.holds) == []


def test_the_id_of_a_dropped_index_is_used_again_before_replicas_are_done(room, core):
    table, name = indexed(room)
    room.replica("r1")
    core.peek(CLUSTER, pr.Peek("p", name, 9))
    hold = core.acquire_read_hold(CLUSTER, name, HOLDER)
    room.says("r1", report(name, write=8, read=8, output=8), pr.IndexOpened(name, "former"))
    core.drop_collections(CLUSTER, [name])
    again = index(name, [table], as_of=9)
    core.create_dataflow(CLUSTER, again)
    effects = room.run()
    # Nobody holds the former one any more.
    (answer,) = of_kind(effects, ef.AnswerPeek)
    assert isinstance(answer.answer, pr.PeekFailed)
    assert not core.release_read_hold(hold)
    cancelled, ended, created, scheduled = sent(effects, "r1")
    assert (cancelled, ended) == (pr.CancelPeek("p"), AllowCompaction(name, EMPTY_FRONTIER))
    assert created.dataflow.as_of == at(9)
    assert scheduled == pr.Schedule(name)
    # A replica speaks of the former one until it has said that it is over.
    room.says("r1", report(name, write=20, read=20, output=20), pr.IndexOpened(name, "former"))
    room.says("r1", pr.DataflowStatus(name, pr.Problem("X", "58030", "no"), is_stalled=True))
    assert not core.is_hydrated(CLUSTER, name)
    room.says("r1", done(name))
    assert core.collection(CLUSTER, name).write_frontier == at(9)
    (hosted,) = core.replica_frontiers(CLUSTER, name).values()
    assert (hosted.write, hosted.input, hosted.output) == (at(9), at(9), at(9))
    assert core.statuses(CLUSTER, name) == {}
    assert core.replicas(CLUSTER)["r1"].programs == {}
    assert holds_of(room, table, HoldKind.REPLICA) == [5]
    room.says("r1", report(name, write=11, read=11, output=11), pr.IndexOpened(name, "new"))
    assert core.is_hydrated(CLUSTER, name)
    assert core.replicas(CLUSTER)["r1"].programs == {name: "new"}
    core.drop_collections(CLUSTER, [name])
    room.run()
    room.says("r1", done(name))
    assert list(room.stored.holds) == []


def test_what_was_computed_for_a_former_view_is_not_committed(room, core):
    table, target = room.table(), room.target(5)
    made = view("u50", target, [table])
    core.create_dataflow(CLUSTER, made)
    core.allow_writes(CLUSTER, "u50")
    room.replica("r1")
    for _ in range(2):
        core.drop_collections(CLUSTER, ["u50"])
        core.create_dataflow(CLUSTER, made)
        core.allow_writes(CLUSTER, "u50")
    room.run()
    offer = pr.Computed("u50", at(5), at(7), b"rows")
    for said in (offer, done("u50"), offer, done("u50")):
        assert of_kind(room.says("r1", said), ef.CommitOutput) == []
    assert of_kind(room.says("r1", offer), ef.CommitOutput) != []


def test_the_id_of_a_dropped_index_is_that_of_what_others_read(room, core):
    table, name = indexed(room)
    core.create_dataflow(CLUSTER, index("u51", [], [name]))
    core.drop_collections(CLUSTER, [name])
    again = index(name, [table], as_of=9)
    assert refused(Variant.COLLECTION_ID_REUSED, core.create_dataflow, CLUSTER, again) == (name,)
    core.drop_collections(CLUSTER, ["u51"])
    core.create_dataflow(CLUSTER, again)


def test_what_reads_an_index_is_dropped_before_it(room, core):
    """On a replica that has not come to it, nothing begins that has lost its input."""
    core.update_configuration({"compute_hydration_concurrency": "1"})
    table = room.table()
    room.replica("r1")
    room.replica("r2")
    core.create_dataflows(
        CLUSTER,
        [
            index("u50", [table]),
            index("u51", [], ["u50"], as_of=6),
            index("u52", [], ["u50"]),
            index("u53", [], ["u51", "u52"], as_of=6),
        ],
    )
    room.says("r2", report("u50", write=8, output=8))
    core.drop_collections(CLUSTER, ["u50", "u51", "u52", "u53"])
    dropped = [AllowCompaction(each, EMPTY_FRONTIER) for each in ("u53", "u52", "u51", "u50")]
    assert sent(room.run(), "r1") == dropped


def test_a_hold_keeps_a_dropped_collection_and_its_inputs(room, core):
    table, name = indexed(room)
    hold = core.acquire_read_hold(CLUSTER, name, HOLDER)
    core.drop_collections(CLUSTER, [name])
    room.storage.drop(table)
    room.maintain()
    assert holds_of(room, table, HoldKind.INDEX) == [5]
    assert of_kind(room.replica("r1"), pr.CreateDataflow) != []
    hold = core.downgrade_read_hold(hold, at(8))
    assert holds_of(room, table, HoldKind.INDEX) == [8]
    assert core.release_read_hold(hold)
    assert not core.release_read_hold(hold)
    assert holds_of(room, table, HoldKind.INDEX) == []
    assert sent(room.run(), "r1") == [
        AllowCompaction(name, EMPTY_FRONTIER),
    ]
    with pytest.raises(ReleasedHold):
        core.downgrade_read_hold(hold, at(9))


def test_a_dropped_index_that_others_read_is_scheduled_nevertheless(room, core):
    table = room.table(5)
    room.replica("r1")
    core.create_dataflows(CLUSTER, [index("u50", [table]), index("u51", [], ["u50"])])
    core.drop_collections(CLUSTER, ["u50"])
    room.run()
    room.tick(9)
    assert pr.Schedule("u50") in sent(room.maintain(), "r1")
    effects = room.says("r1", report("u50", write=8, output=8))
    assert pr.Schedule("u51") in sent(effects, "r1")


def test_what_was_dropped_is_not_told_to_later_replicas(room, core):
    _, name = indexed(room)
    core.drop_collections(CLUSTER, [name])
    assert of_kind(room.replica("r1"), pr.CreateDataflow) == []


# Policies and holds


def test_set_read_policy_is_checked_as_a_whole(room, core):
    table, name = indexed(room)
    core.create_dataflow(CLUSTER, view("u60", room.target(), [table]))
    later = (name, ValidFrom(at(8)))
    policies = [later, ("u60", ValidFrom(at(8)))]
    assert refused(Variant.WRITE_ONLY_COLLECTION, core.set_read_policy, CLUSTER, policies)
    policies = [later, ("u77", ValidFrom(at(8)))]
    assert refused(Variant.COLLECTION_MISSING, core.set_read_policy, CLUSTER, policies) == ("u77",)
    assert core.collection(CLUSTER, name).implied == at(5)
    core.set_read_policy(CLUSTER, [later, (name, ValidFrom(at(7)))])
    assert core.collection(CLUSTER, name).implied == at(8)


def test_a_policy_that_asks_for_nothing_drops(room, core):
    _, name = indexed(room)
    core.set_read_policy(CLUSTER, [(name, DROPPED)])
    room.run()
    assert core.collections(CLUSTER) == []


def test_a_read_hold_is_taken_where_the_collection_can_first_be_read(room, core):
    _, name = indexed(room)
    early = Timestamp(4)
    acquire = core.acquire_read_hold
    assert refused(Variant.SINCE_VIOLATION, acquire, CLUSTER, name, HOLDER, early) == (name,)
    hold = acquire(CLUSTER, name, HOLDER)
    assert (hold.since, hold.ids) == (5, {name})
    assert acquire(CLUSTER, name, HOLDER, Timestamp(9)).since == 9
    core.create_dataflow(CLUSTER, view("u60", room.target(), as_of=EMPTY_FRONTIER))
    assert refused(Variant.SINCE_VIOLATION, acquire, CLUSTER, "u60", HOLDER) == ("u60",)


# Reports


def test_i47_frontiers_of_a_replica_do_not_go_back_and_end_once(room, core):
    _, name = indexed(room)
    room.replica("r1")
    room.says("r1", report(name, write=9, read=8, output=9))
    effects = room.says("r1", report(name, write=7, read=12))
    (violation,) = of_kind(effects, ef.ReportViolation)
    assert violation.replica == ReplicaKey(CLUSTER, "r1")
    hosted = core.replica_frontiers(CLUSTER, name)["r1"]
    assert (hosted.write, hosted.input, hosted.output) == (at(9), at(12), at(9))
    room.says("r1", done(name))
    assert of_kind(room.says("r1", done(name)), ef.ReportViolation) != []
    assert room.says("r1", report("u77", write=3)) == []


def test_the_first_replica_that_is_complete_counts(room, core):
    _, name = indexed(room)
    room.replica("r1")
    room.replica("r2")
    room.says("r1", report(name, write=9))
    assert of_kind(room.says("r2", report(name, write=8)), ef.ReportUpper) == []
    assert core.collection(CLUSTER, name).write_frontier == at(9)
    assert room.says("r2", report(name, write=11))[0] == ef.ReportUpper(name, at(11))


def test_a_dataflow_is_hydrated_when_a_replica_is_beyond_its_as_of(room, core):
    _, name = indexed(room)
    assert core.is_hydrated(CLUSTER, name)
    assert core.are_hydrated(CLUSTER, ["r7"])
    room.replica("r1")
    assert not core.is_hydrated(CLUSTER, name)
    assert not core.are_hydrated(CLUSTER)
    assert core.are_hydrated(CLUSTER, exclude=frozenset({name}))
    room.says("r1", report(name, write=5, output=6))
    assert core.is_hydrated(CLUSTER, name)
    assert core.are_hydrated(CLUSTER)
    room.replica("r2")
    assert core.are_hydrated(CLUSTER, ["r1", "r7"])
    assert not core.are_hydrated(CLUSTER, ["r2"])
    bad = refused(Variant.HYDRATION_CHECK_BAD_TARGET, core.are_hydrated, CLUSTER, ["r7"])
    assert bad == ("r7",)


def test_statuses_are_those_of_each_replica(room, core):
    _, name = indexed(room)
    room.replica("r1")
    told = pr.DataflowStatus(name, pr.Problem("NO_MEMORY", "53200", "no memory"), is_stalled=True)
    key = ReplicaKey(CLUSTER, "r1")
    said = room.says("r1", told, pr.DataflowStatus("u77"))
    assert said == [ef.ReportStatus(key, pr.DataflowStatus(name), told)]
    assert core.statuses(CLUSTER, name) == {"r1": told}


def test_a_failed_replica_is_connected_again_and_its_old_connection_says_nothing(room, core):
    _, name = indexed(room)
    room.replica("r1")
    core.respond(pr.ReplicaFailed(ReplicaKey(CLUSTER, "r1"), 7))
    assert core.maintain() == ()
    core.respond(pr.ReplicaFailed(ReplicaKey(CLUSTER, "r1"), 1))
    core.respond(pr.ReplicaFailed(ReplicaKey("d", "r1"), 1))
    assert room.run() == []
    core.set_read_policy(CLUSTER, [(name, ValidFrom(at(7)))])
    assert room.says("r1", report(name, write=9)) == []
    effects = room.maintain()
    key = ReplicaKey(CLUSTER, "r1")
    assert of_kind(effects, ef.DisconnectReplica) == [ef.DisconnectReplica(key, 1)]
    assert of_kind(effects, ef.ConnectReplica) == [ef.ConnectReplica(key, "here", 2)]
    (created,) = of_kind(sent(effects, "r1"), pr.CreateDataflow)
    assert created.dataflow.as_of == at(7)
    assert room.says("r1", report(name, write=20), nonce=1) == []
    assert core.collection(CLUSTER, name).write_frontier == at(5)
    room.says("r1", report(name, write=20))
    assert core.collection(CLUSTER, name).write_frontier == at(20)


def test_few_dataflows_hydrate_at_once(room, core):
    core.update_configuration({"compute_hydration_concurrency": "1"})
    table = room.table()
    room.replica("r1")
    core.create_dataflows(CLUSTER, [index(f"u{n}", [table]) for n in range(50, 54)])
    core.create_dataflow(CLUSTER, index("t1", [table]))
    scheduled = of_kind(sent(room.run(), "r1"), pr.Schedule)
    assert scheduled == [pr.Schedule("u50"), pr.Schedule("t1")]
    phases = [core.hydration(CLUSTER, each)["r1"].value for each in ("u50", "u51", "t1")]
    assert phases == ["hydrating", "queued", "hydrating"]
    effects = room.says("r1", report("u50", output=6))
    assert sent(effects, "r1") == [pr.Schedule("u51")]
    assert core.hydration(CLUSTER, "u50") == {"r1": Phase.HYDRATED}
    # One that is there before its turn is told nevertheless, and one that is dropped is not.
    assert sent(room.says("r1", report("u53", output=6)), "r1") == [pr.Schedule("u53")]
    core.drop_collections(CLUSTER, ["u51"])
    assert sent(room.run(), "r1") == [AllowCompaction("u51", EMPTY_FRONTIER), pr.Schedule("u52")]
    core.create_dataflows(CLUSTER, [index(f"u{n}", [table]) for n in range(60, 63)])
    assert of_kind(sent(room.run(), "r1"), pr.Schedule) == []
    core.update_configuration({"compute_hydration_concurrency": "3"})
    scheduled = of_kind(sent(room.run(), "r1"), pr.Schedule)
    assert scheduled == [pr.Schedule("u60"), pr.Schedule("u61")]
    core.update_configuration({"compute_hydration_concurrency": "1"})
    for each in ("u52", "u60"):
        assert of_kind(sent(room.says("r1", report(each, output=6)), "r1"), pr.Schedule) == []
    effects = room.says("r1", report("u61", output=6))
    assert of_kind(sent(effects, "r1"), pr.Schedule) == [pr.Schedule("u62")]


# The start


def test_a_start_creates_all_dataflows_in_the_order_of_their_inputs(room, core):
    table = room.table(10)
    kept = room.stored.acquire([table], HOLDER)
    room.tick(40)
    target = room.target(upper=39)
    flows = [
        (CLUSTER, view("u60", target, indexes=["u51"], as_of=None)),
        (CLUSTER, index("u51", indexes=["u50"], as_of=None)),
        (CLUSTER, index("u50", [table], as_of=None)),
    ]
    policies = {"u50": LagWriteFrontier(5), "u51": LagWriteFrontier(5)}
    found = core.restore(flows, policies, Timestamp(100))
    assert found.as_ofs == {"u60": at(38), "u51": at(30), "u50": at(30)}
    assert (found.refused, found.failed) == ({}, ())
    room.run()
    for name, as_of in found.as_ofs.items():
        assert core.collection(CLUSTER, name).as_of == as_of
    assert core.collection(CLUSTER, "u50").policy == LagWriteFrontier(5)
    room.stored.holds.release(kept)
    assert {h.holder.kind for h in room.stored.holds} == {HoldKind.INDEX}


def test_a_dataflow_that_cannot_start_leaves_the_others(room, core):
    table, other = room.table(10), room.table(10)
    room.stored.acquire([other], HOLDER)
    room.storage.drop(other)
    flows = [
        (CLUSTER, index("u50", [other], as_of=None)),
        (CLUSTER, index("u51", indexes=["u50"], as_of=None)),
        (CLUSTER, index("u52", [table], as_of=None)),
    ]
    found = core.restore(flows, {}, Timestamp(100))
    assert {i: error.variant for i, error in found.refused.items()} == {
        "u50": Variant.COLLECTION_MISSING,
        "u51": Variant.COLLECTION_MISSING,
    }
    assert [state.id for state in core.collections(CLUSTER)] == ["u52"]


def test_an_as_of_that_cannot_be_is_reported_and_the_start_goes_on(room, core):
    """The table can be read from 5 on, and the view has to go on at 3."""
    table, target = room.table(10), room.target(upper=4)
    flows = [
        (CLUSTER, view("u60", target, [table], as_of=None)),
        (CLUSTER, index("u50", [table], as_of=None)),
    ]
    found = core.restore(flows, {}, Timestamp(100))
    (failed,) = found.failed
    assert (failed.exports, failed.frontier) == (("u60",), at(3))
    assert found.as_ofs == {"u60": at(5), "u50": at(9)}
    assert found.refused == {}
    late = view("u61", target, [table], as_of=3)
    found = core.restore([(CLUSTER, late)], {}, Timestamp(100))
    assert found.refused["u61"].variant is Variant.SINCE_VIOLATION


def test_a_view_that_is_complete_is_not_computed(room, core):
    table, target = room.table(), room.target()
    room.storage.write(target, EMPTY_FRONTIER)
    found = core.restore([(CLUSTER, view("u60", target, [table], as_of=None))], {}, Timestamp(9))
    assert found.as_ofs == {"u60": EMPTY_FRONTIER}
    assert of_kind(room.replica("r1"), pr.CreateDataflow) == []


def test_a_controller_needs_no_instance():
    core = ComputeController(ComputeRoom().stored)
    assert (core.process(), core.maintain()) == ((), ())
    core.validate()
