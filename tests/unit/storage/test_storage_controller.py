"""The storage controller: one operation after the other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.storage.storage_model import INSTANCE, Room

from slackwater.controller.holds import Holder, HoldKind, ReleasedHold
from slackwater.controller.protocol import (
    AllowCompaction,
    DroppedIds,
    Hello,
    InitializationComplete,
    ReplicaKey,
    StatusUpdate,
    UpdateConfiguration,
)
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier, Timestamp
from slackwater.repr.ids import user_id
from slackwater.repr.read_policy import DROPPED, STEP_BACK, LagWriteFrontier, ValidFrom
from slackwater.storage.controller import effects as ef
from slackwater.storage.controller.appends import CollectionAppend
from slackwater.storage.controller.core import StorageController
from slackwater.storage.controller.descriptions import (
    CollectionDescription,
    CollectionMetadata,
    DurableState,
    ExportDescription,
    IngestionDescription,
    IngestionExport,
    OtherWriter,
    SinkAsOf,
    Table,
)
from slackwater.storage.controller.errors import StorageError, Variant
from slackwater.storage.controller.placement import FINALIZATION_PARAMETER
from slackwater.storage.controller.protocol import (
    AppendDone,
    AppendFailed,
    AppendRefused,
    RunIngestion,
    RunSink,
    ShardFinalized,
    SnapshotRead,
)

HOLDER = Holder(HoldKind.STATEMENT, "app/1")
R1, R2 = ReplicaKey(INSTANCE, "r1"), ReplicaKey(INSTANCE, "r2")


def at(time):
    return Frontier(time)


@pytest.fixture
def room():
    made = Room()
    yield made
    made.core.validate()


def refused(variant, action, *arguments):
    with pytest.raises(StorageError) as caught:
        action(*arguments)
    assert caught.value.variant is variant
    return caught.value.ids


def written(room, kind="view", upper=10, **options):
    made = room.table(**options) if kind == "table" else room.view(**options)
    room.write(made, at(upper))
    return made


def statuses(effects):
    return [(e.id, e.status) for e in effects if isinstance(e, ef.WriteStatus)]


def sent(effects, to=None):
    return [e.command for e in effects if isinstance(e, ef.SendToReplica) and to in (None, e.to)]


# Collections


def test_a_collection_is_readable_from_its_since_and_follows_its_policy(room):
    view = written(room, policy=LagWriteFrontier(4, 2))
    state = room.core.capabilities.state(view)
    assert (state.since, state.implied, state.upper) == (at(6), at(6), at(10))
    room.write(view, at(11))
    assert room.core.capabilities.state(view).since == at(6)
    room.write(view, EMPTY_FRONTIER)
    assert room.core.capabilities.state(view).since == at(6)
    assert refused(Variant.IDENTIFIER_MISSING, room.core.capabilities.state, "u77") == ("u77",)


def test_tables_share_their_upper_and_a_tick_touches_no_collection(room):
    tables = [room.table() for _ in range(5)]
    room.core.capabilities.advance_tables(at(100))
    assert room.core.process() == ()
    assert [state.upper for state in room.core.capabilities.settled()] == [at(100)] * 5
    room.core.update_write_frontiers([(tables[0], at(200)), (tables[1], at(150))])
    assert {state.since for state in room.core.capabilities.settled()} == {at(198)}


def test_what_create_collections_refuses(room):
    table = room.table()
    create = room.core.create_collections
    other = CollectionDescription(OtherWriter())
    stored = CollectionMetadata(77, at(0), at(0))
    assert refused(Variant.COLLECTION_ID_REUSED, create, [(table, other)], {}) == (table,)
    create([(table, CollectionDescription(Table()))] * 2, {})
    double = [("u8", other), ("u8", CollectionDescription(Table()))]
    refused(Variant.COLLECTION_ID_REUSED, create, double, {"u8": stored})
    assert refused(Variant.IDENTIFIER_MISSING, create, [("u8", other)], {}) == ("u8",)
    refused(Variant.SHARD_ALREADY_IN_USE, create, [("u8", other)], {"u8": stored})
    lost = CollectionDescription(IngestionDescription("nowhere", "c"))
    refused(Variant.INGESTION_INSTANCE_MISSING, create, [("u8", lost)], {"u8": stored})
    lost = CollectionDescription(IngestionDescription(INSTANCE, "c", "u9"))
    assert refused(Variant.IDENTIFIER_MISSING, create, [("u8", lost)], {"u8": stored}) == ("u9",)
    lost = CollectionDescription(IngestionExport(table, "c"))
    assert refused(Variant.IDENTIFIER_INVALID, create, [("u8", lost)], {"u8": stored}) == (table,)
    assert list(room.core.capabilities.collections) == [table]


def test_a_shard_belongs_to_one_object(room):
    table, view = room.table(), room.view()
    shard = room.durable.metadata(table).shard_id
    hold = room.core.capabilities.acquire([table], HOLDER)
    room.core.shards.map([(table, shard)])
    assert refused(Variant.SHARD_ALREADY_IN_USE, room.core.shards.map, [(view, shard)]) == (view,)
    room.drop(table)
    refused(Variant.SHARD_ALREADY_IN_USE, room.core.shards.map, [(view, shard)])
    assert room.core.capabilities.holds.release(hold)


def test_a_dependency_that_is_compacted_beyond_the_writer_is_refused():
    controller = StorageController(DurableState({1: "u1", 2: "u2"}), at(0))
    controller.placement.create_instance(INSTANCE)
    descriptions = [
        ("u2", CollectionDescription(IngestionDescription(INSTANCE, "c", "u1"))),
        ("u1", CollectionDescription(OtherWriter())),
    ]
    stored = {
        "u1": CollectionMetadata(1, at(5), at(9)),
        "u2": CollectionMetadata(2, at(0), at(5)),
    }
    create = controller.create_collections
    assert refused(Variant.READ_BEFORE_SINCE, create, descriptions, stored) == ("u1",)
    assert list(controller.capabilities.collections) == []
    stored["u2"] = CollectionMetadata(2, at(0), at(6))
    create(descriptions, stored)
    assert controller.capabilities.state("u2").since == at(5)


def test_an_ingestion_runs_with_its_exports_and_goes_on_without_a_dropped_one(room):
    ingestion = room.ingestion()
    exports = [room.export_of(ingestion) for _ in range(2)]
    runs = [each for each in room.sent if isinstance(each, RunIngestion)]
    assert [each.exports for each in runs] == [(), (exports[0],), tuple(exports)]
    assert runs[-1].collections == (ingestion, *exports)
    room.drop(exports[0])
    assert room.sent[-1].exports == (exports[1],)
    room.drop(ingestion)
    assert room.sent[-1] == AllowCompaction(ingestion, EMPTY_FRONTIER)
    room.core.respond(DroppedIds(R1, (ingestion,)))
    assert room.core.process() == ()


def test_i52_exports_keep_the_remap_of_an_ingestion_that_is_its_own(room):
    ingestion = room.own_remap()
    export = room.export_of(ingestion)
    assert room.core.capabilities.state(ingestion).dependencies == ()
    assert room.core.capabilities.state(export).dependencies == (ingestion,)
    room.core.set_read_policy([(ingestion, ValidFrom(at(100))), (export, LagWriteFrontier(50, 1))])
    room.write(export, at(60))
    assert room.core.capabilities.state(ingestion).since == at(10)
    room.core.set_read_policy([(export, ValidFrom(at(100)))])
    assert room.core.capabilities.state(ingestion).since == at(59)
    assert (
        room.core.capabilities.state(ingestion).since < room.core.capabilities.state(export).upper
    )
    room.drop(ingestion)
    assert list(room.core.capabilities.collections) == []


def test_compaction_reaches_the_writer_of_an_export(room):
    ingestion = room.ingestion()
    export = room.export_of(ingestion)
    room.write(export, at(9))
    room.run(room.core.maintain(10))
    assert AllowCompaction(export, at(7)) in room.sent
    before = len(room.sent)
    room.run(room.core.maintain(10))
    assert len(room.sent) == before


def test_policies_of_one_call_accumulate_and_unknown_ids_stop_all(room):
    view = written(room, policy=ValidFrom(at(0)))
    with pytest.raises(FatalError):
        room.core.set_read_policy([(view, ValidFrom(at(5))), ("u77", STEP_BACK)])
    assert room.core.capabilities.state(view).since == at(0)
    room.core.set_read_policy([(view, ValidFrom(at(8))), (view, ValidFrom(at(3)))])
    assert room.core.capabilities.state(view).since == at(8)
    assert room.core.capabilities.state(view).policy == ValidFrom(at(3))


# Drops


def test_i21_dropping_twice_is_dropping_once(room):
    view = written(room)
    hold = room.core.capabilities.acquire([view], HOLDER)
    room.drop(view)
    before = dict(room.core.capabilities.state(view).capabilities.items())
    room.core.drop_sources([view])
    assert dict(room.core.capabilities.state(view).capabilities.items()) == before
    room.core.capabilities.holds.release(hold)
    room.run()
    assert list(room.core.capabilities.collections) == []
    room.core.drop_sources([view])
    assert room.core.process() == ()


def test_i24_a_hold_keeps_a_dropped_collection_readable(room):
    view = written(room)
    shard = room.durable.metadata(view).shard_id
    hold = room.core.capabilities.acquire([view], HOLDER)
    room.drop(view)
    for _ in range(3):
        room.run(room.core.maintain(10))
    assert room.core.capabilities.state(view).since == at(hold.since)
    assert not room.durable.shards[shard].finalized
    refused(Variant.IDENTIFIER_MISSING, room.core.capabilities.acquire, [view], HOLDER)
    room.core.capabilities.holds.release(hold)
    effects = room.core.process()
    assert ef.DowngradeSince(shard, EMPTY_FRONTIER) in effects
    room.run(effects)
    room.run(room.core.maintain(10))
    assert room.durable.shards[shard].finalized


def test_i28_finalizing_again_changes_nothing_and_can_be_switched_off(room):
    room.core.placement.update_configuration({FINALIZATION_PARAMETER: "off"})
    view = room.view(shards=2)
    shards = sorted(room.durable.mappings)
    room.drop(view)
    assert room.core.maintain(10) == ()
    room.core.placement.update_configuration({FINALIZATION_PARAMETER: "on"})
    effects = [e for e in room.core.maintain(10) if isinstance(e, ef.FinalizeShard)]
    assert effects == [ef.FinalizeShard(shard) for shard in shards]
    # The shell failed: it is asked again. Then both are done, twice.
    room.run(room.core.maintain(10))
    tombstones = {shard: room.durable.shards[shard] for shard in shards}
    room.run(effects)
    assert {shard: room.durable.shards[shard] for shard in shards} == tombstones
    assert room.core.maintain(10) == ()
    assert room.durable.unfinalized == set()


# Holds


def test_holds_say_who_holds_what(room):
    tables = [written(room, "table", upper=5 + n) for n in range(2)]
    hold = room.core.capabilities.acquire(tables, HOLDER, Timestamp(5))
    view = room.core.capabilities.acquire([tables[0]], Holder(HoldKind.VIEW, "u9"))
    rows = [(each.ids, each.since, str(each.holder)) for each in room.core.capabilities.holds]
    assert rows == [({*tables}, 5, "statement app/1"), ({tables[0]}, 4, "view u9")]
    assert room.core.capabilities.holds.oldest() == 4
    room.core.capabilities.holds.release(view)
    assert list(room.core.capabilities.holds) == [hold]
    room.core.capabilities.holds.release(hold)
    assert room.core.capabilities.holds.oldest() is None
    with pytest.raises(ReleasedHold):
        room.core.capabilities.holds.downgrade(hold, at(9))


# Exports


def test_i22_preparing_and_cancelling_restores_the_multiset(room):
    view = written(room)
    before = dict(room.core.capabilities.state(view).capabilities.items())
    token = room.core.exports.prepare("u50", view)
    other = room.core.exports.prepare("u51", view)
    assert token.acquired_since == at(8)
    room.core.exports.cancel(token)
    room.core.exports.cancel(token)
    assert dict(room.core.capabilities.state(view).capabilities.items()) != before
    room.core.exports.cancel(other)
    assert dict(room.core.capabilities.state(view).capabilities.items()) == before


def test_i23_a_created_export_holds_its_input_once_where_it_was_prepared(room):
    view = written(room)
    sink = room.sink(view)
    assert dict(room.core.capabilities.state(view).capabilities.items()) == {8: 2}
    room.write(view, at(90))
    assert room.core.capabilities.state(view).since == at(8)
    room.core.update_write_frontiers([(sink, at(31)), (sink, at(20))])
    assert room.core.exports.get(sink).write_frontier == at(31)
    assert room.core.capabilities.state(view).since == at(30)
    room.core.set_read_policy([(sink, LagWriteFrontier(9, 1))])
    assert room.core.exports.get(sink).read_frontier == at(30)
    room.core.set_read_policy([(sink, DROPPED)])
    assert room.core.capabilities.state(view).since == at(88)
    assert list(room.core.exports.states) == []


def test_what_exports_refuse(room):
    view, table = written(room), room.table()
    sink = room.sink(view)
    assert refused(Variant.SINK_ID_REUSED, room.core.exports.prepare, sink, view) == (sink,)
    assert refused(Variant.IDENTIFIER_MISSING, room.core.exports.prepare, "u50", "u9") == ("u9",)
    assert refused(Variant.IDENTIFIER_MISSING, room.core.exports.get, "u50") == ("u50",)
    token = room.core.exports.prepare("u50", view)
    fine = ExportDescription(view, INSTANCE, "files", at(9))
    create = room.core.create_exports
    wrong = ExportDescription(table, INSTANCE, "files", at(9))
    refused(Variant.INVALID_USAGE, create, [(token, wrong)])
    wrong = ExportDescription(view, "nowhere", "files", at(9))
    refused(Variant.EXPORT_INSTANCE_MISSING, create, [(token, wrong)])
    refused(Variant.SINK_ID_REUSED, create, [(token, fine), (token, fine)])
    refused(Variant.INVALID_USAGE, room.core.alter_export, sink, wrong)
    create([(token, fine)])
    refused(Variant.SINK_ID_REUSED, create, [(token, fine)])
    room.core.drop_sinks(["u50"])
    refused(Variant.INVALID_USAGE, create, [(token, fine)])


def test_a_new_sink_keeps_its_snapshot_and_a_late_one_begins_after_the_since(room):
    as_of = SinkAsOf(at(8))
    assert as_of.downgraded(at(8)) == as_of
    assert as_of.downgraded(at(9)) == SinkAsOf(at(9), strict=True)
    view = written(room)
    sink = room.sink(view, as_of=at(9))
    assert room.core.exports.get(sink).as_of == SinkAsOf(at(9))
    assert room.sent[-1] == RunSink(sink, room.durable.sinks[sink], SinkAsOf(at(9)))
    room.restart()
    assert room.core.exports.get(sink).as_of == SinkAsOf(at(9))
    room.durable.shards[room.durable.metadata(view).shard_id].since = at(20)
    room.restart()
    assert room.core.exports.get(sink).as_of == SinkAsOf(at(20), strict=True)


def test_an_altered_sink_goes_on_where_it_is(room):
    view, other = written(room, upper=20), written(room, upper=30, policy=LagWriteFrontier(15, 1))
    sink = room.sink(view)
    altered = ExportDescription(other, INSTANCE, "files", at(0))
    assert refused(Variant.READ_BEFORE_SINCE, room.core.alter_export, sink, altered) == (other,)
    room.core.update_write_frontiers([(sink, at(20))])
    room.core.alter_export(sink, altered)
    room.run()
    assert room.sent[-1] == RunSink(sink, altered, SinkAsOf(at(19), strict=True))
    assert dict(room.core.capabilities.state(other).capabilities.items()) == {15: 1, 19: 1}
    assert dict(room.core.capabilities.state(view).capabilities.items()) == {18: 1}


# Data


def test_an_append_is_one_commit_and_later_ones_expect_its_end(room):
    table, other, view = room.table(), room.table(), room.view()
    first = room.core.append(
        [
            CollectionAppend(table, {own(room, table): "rows"}, Timestamp(4), at(5)),
            CollectionAppend(other, {}, None, at(5)),
            CollectionAppend(view, {own(room, view): "rows"}, Timestamp(6), at(7)),
        ],
        extras="a step",
    )
    second = room.core.append(
        [CollectionAppend(view, {own(room, view): "more"}, Timestamp(7), at(8))]
    )
    effects = room.core.process()
    assert [(e.tables, e.extras) for e in effects] == [((at(0), at(5)), "a step"), (None, None)]
    assert [[a.rows for a in e.appends] for e in effects] == [["rows", None, "rows"], ["more"]]
    assert [(e.ticket, [(a.lower, a.upper) for a in e.appends]) for e in effects] == [
        (first, [(at(0), at(5)), (at(0), at(5)), (at(0), at(7))]),
        (second, [(at(7), at(8))]),
    ]
    room.run(effects)
    assert room.answers == {first: None, second: None}
    assert room.core.capabilities.state(view).upper == at(8)
    assert room.core.capabilities.state(other).upper == at(5)


def own(room, global_id):
    return room.durable.metadata(global_id).shard_id


def test_the_shared_upper_moves_without_rows_and_comes_back_from_a_refusal(room):
    table = room.table()
    ticket = room.core.append([], at(6))
    behind = room.core.append([CollectionAppend(table, {}, None, at(9))])
    (first, second) = room.core.process()
    assert (first.appends, first.tables, second.tables) == ((), (at(0), at(6)), (at(6), at(9)))
    room.core.respond(AppendDone(ticket))
    room.core.respond(AppendDone(ticket))
    assert room.core.process() == (ef.AnswerAppend(ticket),)
    assert room.core.capabilities.state(table).upper == at(6)
    room.core.respond(AppendRefused(behind, (), at(8)))
    (answer,) = room.core.process()
    assert answer.error.variant is Variant.INVALID_UPPERS
    assert room.core.capabilities.state(table).upper == at(8)
    assert refused(Variant.INVALID_UPPERS, room.core.append, [], at(7)) == ()


def test_after_a_failed_append_nothing_is_expected_of_it(room):
    view = written(room, upper=5)
    ticket = room.core.append([CollectionAppend(view, {}, None, at(6))])
    room.core.process()
    room.core.respond(AppendFailed(ticket))
    room.core.respond(AppendFailed(ticket))
    assert room.core.process() == ()
    room.core.append([CollectionAppend(view, {}, None, at(7))])
    assert room.core.process()[0].appends[0].lower == at(5)


def test_what_an_append_refuses(room):
    table, other, view = room.table(), room.table(), written(room, upper=5)
    append = room.core.append
    beyond = [CollectionAppend(view, {}, Timestamp(6), at(6))]
    assert refused(Variant.UPDATE_BEYOND_UPPER, append, beyond) == (view,)
    assert refused(
        Variant.IDENTIFIER_MISSING, append, [CollectionAppend("u9", {}, None, at(6))]
    ) == ("u9",)
    assert refused(Variant.INVALID_UPPERS, append, [CollectionAppend(view, {}, None, at(4))]) == (
        view,
    )
    twice = [CollectionAppend(view, {}, None, at(6))] * 2
    refused(Variant.INVALID_USAGE, append, twice)
    apart = [CollectionAppend(table, {}, None, at(6)), CollectionAppend(other, {}, None, at(7))]
    refused(Variant.INVALID_USAGE, append, apart)
    refused(Variant.INVALID_USAGE, append, apart[:1], at(8))
    elsewhere = [CollectionAppend(view, {own(room, table): ""}, None, at(6))]
    assert refused(Variant.INVALID_USAGE, append, elsewhere) == (view,)
    assert room.core.process() == ()
    ticket = append([CollectionAppend(view, {}, None, at(6))])
    room.core.process()
    room.core.respond(AppendRefused(ticket, ((view, at(9)), (table, at(1)))))
    (answer,) = room.core.process()
    assert (answer.ticket, answer.error.variant) == (ticket, Variant.INVALID_UPPERS)
    assert answer.error.ids == (view,)
    append([CollectionAppend(view, {}, None, at(12))])
    assert room.core.process()[0].appends[0].lower == at(9)
    room.core.respond(AppendRefused(ticket, ()))
    assert room.core.process() == ()


def test_i34_a_snapshot_waits_until_it_is_complete_and_holds_its_collection(room):
    view = written(room)
    assert refused(Variant.READ_BEFORE_SINCE, room.core.snapshot, view, Timestamp(7)) == (view,)
    assert refused(Variant.IDENTIFIER_MISSING, room.core.snapshot, "u9", Timestamp(7)) == ("u9",)
    ticket = room.core.snapshot(view, Timestamp(10))
    assert room.core.process() == ()
    room.core.update_write_frontiers([(view, at(50))])
    shard = room.durable.metadata(view).shard_id
    (hold,) = room.core.capabilities.holds
    assert room.core.process() == (ef.ReadSnapshot(ticket, view, shard, Timestamp(10), hold),)
    assert room.core.capabilities.state(view).since == at(10)
    room.core.respond(SnapshotRead(ticket))
    room.core.respond(SnapshotRead(ticket))
    room.core.process()
    assert room.core.capabilities.state(view).since == at(48)


def test_a_snapshot_that_never_comes_is_answered(room):
    view = written(room)
    ticket = room.core.snapshot(view, Timestamp(100))
    room.drop(view)
    assert room.answers[ticket].variant is Variant.IDENTIFIER_MISSING
    assert list(room.core.capabilities.collections) == []


# Instances and replicas


def test_a_replica_is_told_everything_in_order(room):
    room.core.placement.update_configuration({"a": "1"})
    room.core.placement.update_configuration({"b": "2", "a": "3"})
    ingestion = room.ingestion()
    sink = room.sink(written(room))
    room.core.process()
    room.core.placement.connect_replica(INSTANCE, "r1", "elsewhere")
    effects = room.core.process()
    assert effects[:2] == (ef.DisconnectReplica(R1), ef.ConnectReplica(R1, "elsewhere"))
    told = sent(effects)
    assert [type(each) for each in told] == [
        Hello,
        UpdateConfiguration,
        RunIngestion,
        RunSink,
        InitializationComplete,
    ]
    assert told[1].parameters == (("a", "3"), ("b", "2"))
    assert (told[2].id, told[3].id) == (ingestion, sink)


def test_sinks_run_on_the_lowest_replica_and_move_only_when_it_goes(room):
    sink = room.sink(written(room))
    room.core.placement.connect_replica(INSTANCE, "r2", "there")
    effects = room.core.process()
    assert [type(each) for each in sent(effects, R2)] == [Hello, InitializationComplete]
    room.core.placement.connect_replica(INSTANCE, "r0", "there")
    room.core.process()
    room.core.placement.drop_replica(INSTANCE, "r1")
    assert [e.id for e in sent(room.core.process()) if isinstance(e, RunSink)] == [sink]
    room.core.placement.drop_replica(INSTANCE, "r2")
    assert sent(room.core.process()) == []
    room.core.placement.drop_replica(INSTANCE, "r0")
    assert statuses(room.core.process()) == [(sink, "paused")]
    with pytest.raises(FatalError):
        room.core.placement.drop_replica(INSTANCE, "r0")


def test_instances(room):
    with pytest.raises(FatalError):
        room.core.placement.create_instance(INSTANCE)
    room.core.placement.update_configuration({"a": "1"})
    room.core.placement.create_instance("other")
    room.core.process()
    room.core.placement.connect_replica("other", "r1", "there")
    told = [type(each) for each in sent(room.core.process())]
    assert told == [Hello, UpdateConfiguration, InitializationComplete]
    room.core.placement.drop_instance("other")
    assert room.core.process() == (ef.DisconnectReplica(ReplicaKey("other", "r1")),)
    for action in (
        room.core.placement.drop_instance,
        lambda i: room.core.placement.connect_replica(i, "r", "l"),
    ):
        with pytest.raises(FatalError):
            action("other")


def test_what_moves_ends_on_one_instance_before_it_begins_on_the_other(room):
    ingestion, sink = room.ingestion(), room.sink(written(room))
    room.core.placement.create_instance("other")
    room.core.placement.connect_replica("other", "r1", "there")
    room.core.process()
    before = room.core.exports.get(sink)
    room.core.move_ingestion(ingestion, "other")
    room.core.move_export(sink, "other")
    told = [(e.to, e.command) for e in room.core.process() if isinstance(e, ef.SendToReplica)]
    there = ReplicaKey("other", "r1")
    assert [(to, type(command), command.id) for to, command in told] == [
        (R1, AllowCompaction, ingestion),
        (there, RunIngestion, ingestion),
        (R1, AllowCompaction, sink),
        (there, RunSink, sink),
    ]
    assert (told[1][1].ingestion.instance, told[3][1].as_of) == ("other", before.as_of)
    # Again, nothing.
    room.core.move_ingestion(ingestion, "other")
    room.core.move_export(sink, "other")
    assert sent(room.core.process()) == []
    for move, each, variant in (
        (room.core.move_ingestion, ingestion, Variant.INGESTION_INSTANCE_MISSING),
        (room.core.move_export, sink, Variant.EXPORT_INSTANCE_MISSING),
    ):
        with pytest.raises(StorageError, match=variant.value):
            move(each, "nowhere")
    with pytest.raises(StorageError, match=Variant.IDENTIFIER_MISSING.value):
        room.core.move_ingestion(written(room), "other")


def test_nothing_follows_a_drop_in_the_status(room):
    view = written(room)
    sink = room.sink(view)
    room.core.respond(StatusUpdate(sink, "running"))
    room.core.respond(StatusUpdate(sink, "stalled", "disk full"))
    room.core.respond(StatusUpdate("u77", "running"))
    assert statuses(room.core.process()) == [(sink, "running"), (sink, "stalled")]
    room.core.drop_sinks([sink])
    room.core.respond(StatusUpdate(sink, "running"))
    room.core.drop_sources([view])
    assert statuses(room.core.process()) == [(sink, "dropped"), (view, "dropped")]


def test_late_reports_of_dropped_objects_are_ignored(room):
    view = written(room)
    sink = room.sink(view)
    room.drop(view)
    room.core.update_write_frontiers([(view, at(99)), (sink, at(99)), (user_id(77), at(1))])
    assert list(room.core.capabilities.collections) == []


def test_reconciliation_registers_what_nobody_claims(room):
    room.view()
    lost, registered = (room.durable.new_shard(False, at(0)) for _ in range(2))
    room.durable.unfinalized.add(registered)
    core = StorageController(room.durable.state(), at(0))
    core.reconcile_state()
    assert core.process() == (ef.RegisterFinalization((lost,)),)
    core.reconcile_state()
    assert core.process() == ()
    assert core.maintain(5) == (ef.FinalizeShard(lost), ef.FinalizeShard(registered))


def test_a_shard_that_an_object_has_is_not_finalized(room):
    room.view()
    (shard,) = room.durable.mappings
    room.durable.unfinalized.add(shard)
    core = StorageController(room.durable.state(), at(0))
    assert core.migrate_collections() == frozenset()
    assert core.process() == (ef.ReclaimShards((shard,)),)
    core.reconcile_state()
    assert (core.process(), core.maintain(5)) == ((), ())
    core.validate()


def test_an_object_that_has_lost_a_shard_keeps_the_others(room):
    view = room.view(shards=2)
    gone, kept = sorted(room.durable.mappings)
    room.durable.unfinalized.update([gone, kept])
    core = StorageController(replace(room.durable.state(), lost=frozenset({gone})), at(0))
    assert core.migrate_collections() == {view}
    assert core.process() == (ef.ReclaimShards((kept,)),)
    assert core.shards.owners_of([gone, kept]) == {kept: view}
    core.reconcile_state()
    assert core.maintain(5) == (ef.FinalizeShard(gone),)
    core.respond(ShardFinalized(gone))
    assert core.process() == ()
    core.shards.give_up([view])
    assert core.maintain(5) == (ef.FinalizeShard(kept),)
    core.validate()
