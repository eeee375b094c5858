"""The compute controller: peeks, subscriptions, copies, and what views compute."""

from __future__ import annotations

import pytest
from tests.support.compute.controller_room import (
    CLUSTER,
    ComputeRoom,
    at,
    copy_to,
    done,
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
from slackwater.compute.controller.errors import Variant
from slackwater.controller.holds import Holder, HoldKind
from slackwater.controller.protocol import AllowCompaction, ReplicaKey
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import EMPTY_FRONTIER, Timestamp
from slackwater.repr.read_policy import ValidFrom

HOLDER = Holder(HoldKind.STATEMENT, "app/1")


# Peeks


def test_a_peek_is_answered_once_and_holds_its_time_until_then(room, core):
    _, name = indexed(room)
    room.replica("r1")
    room.replica("r2")
    asked = pr.Peek("p", name, Timestamp(7), b"k=1", pr.PeekLimits(3, 9))
    core.peek(CLUSTER, asked)
    effects = room.run()
    assert sent(effects, "r1") == sent(effects, "r2") == [asked]
    core.set_read_policy(CLUSTER, [(name, ValidFrom(at(9)))])
    room.maintain()
    assert core.collection(CLUSTER, name).since == at(7)
    rows = pr.PeekRows(b"\x00rows")
    effects = room.says("r2", pr.PeekAnswered("p", rows))
    # The answer, then no replica works for it, and only then may it be compacted (trap 14).
    assert effects == [
        ef.AnswerPeek("p", rows),
        *(ef.SendToReplica(ReplicaKey(CLUSTER, f"r{n}"), n, pr.CancelPeek("p")) for n in (1, 2)),
        *(
            ef.SendToReplica(ReplicaKey(CLUSTER, f"r{n}"), n, AllowCompaction(name, at(9)))
            for n in (1, 2)
        ),
    ]
    assert room.says("r1", pr.PeekAnswered("p", rows)) == []
    core.cancel_peek("p")
    assert not core.ready()


def test_peek_refuses_what_it_cannot_read(room, core):
    table, name = indexed(room)
    core.create_dataflow(CLUSTER, view("u60", room.target(), [table]))
    peek = core.peek
    asked = pr.Peek("p", name, Timestamp(7))
    assert refused(Variant.REPLICA_MISSING, peek, CLUSTER, asked, "r7") == (CLUSTER, "r7")
    for other in ("u77", "u60"):
        wrong = pr.Peek("p", other, Timestamp(7))
        assert refused(Variant.COLLECTION_MISSING, peek, CLUSTER, wrong) == (other,)
    early = pr.Peek("p", name, Timestamp(4))
    assert refused(Variant.SINCE_VIOLATION, peek, CLUSTER, early) == (name,)
    late = core.acquire_read_hold(CLUSTER, name, HOLDER, Timestamp(8))
    assert refused(Variant.READ_HOLD_INSUFFICIENT, peek, CLUSTER, asked, hold=late) == (name,)
    core.create_dataflow(CLUSTER, index("u51", [table]))
    other = core.acquire_read_hold(CLUSTER, "u51", HOLDER)
    assert refused(Variant.READ_HOLD_ID_MISMATCH, peek, CLUSTER, asked, hold=other) == ("u51",)
    core.release_read_hold(late)
    assert refused(Variant.READ_HOLD_MISSING, peek, CLUSTER, asked, hold=late) == (name,)
    hold = core.acquire_read_hold(CLUSTER, name, HOLDER)
    peek(CLUSTER, asked, hold=hold)
    assert not core.release_read_hold(hold)
    with pytest.raises(FatalError, match="under way"):
        peek(CLUSTER, asked)


def test_a_cancelled_peek_is_answered_at_once(room, core):
    _, name = indexed(room)
    room.replica("r1")
    for each in ("p", "q"):
        core.peek(CLUSTER, pr.Peek(each, name, Timestamp(7)))
    room.run()
    core.cancel_peeks(["p", "q", "x"])
    effects = room.run()
    assert of_kind(effects, ef.AnswerPeek) == [
        ef.AnswerPeek("p", pr.PeekCanceled()),
        ef.AnswerPeek("q", pr.PeekCanceled()),
    ]
    assert sent(effects, "r1") == [pr.CancelPeek("p"), pr.CancelPeek("q")]
    assert room.says("r1", pr.PeekAnswered("p", pr.PeekCanceled())) == []


def test_a_peek_that_nobody_cancelled_is_not_cancelled(room, core):
    _, name = indexed(room)
    room.replica("r1")
    core.peek(CLUSTER, pr.Peek("p", name, Timestamp(7)))
    effects = room.says("r1", pr.PeekAnswered("p", pr.PeekCanceled()))
    assert of_kind(effects, ef.ReportViolation) != []
    assert of_kind(effects, ef.AnswerPeek) == [ef.AnswerPeek("p", pr.PeekCanceled())]


def test_a_peek_is_asked_again_of_a_replica_that_comes_back(room, core):
    _, name = indexed(room)
    asked, cancelled = pr.Peek("p", name, Timestamp(7)), pr.Peek("q", name, Timestamp(7))
    core.peek(CLUSTER, asked)
    core.peek(CLUSTER, cancelled)
    core.cancel_peek("q")
    assert of_kind(room.replica("r1"), pr.Peek) == [asked]
    core.respond(pr.ReplicaFailed(ReplicaKey(CLUSTER, "r1"), 1))
    room.run()
    assert of_kind(sent(room.maintain(), "r1"), pr.Peek) == [asked]
    former, current = (pr.PeekStashed(uri, 1, 2, 3, "{}") for uri in ("former", "current"))
    effects = room.says("r1", pr.PeekAnswered("p", former), nonce=1)
    assert effects == [ef.DiscardStash("former")]
    effects = room.says("r1", pr.PeekAnswered("p", current))
    assert effects[0] == ef.AnswerPeek("p", current)


def test_a_file_that_comes_for_no_open_peek_is_discarded(room, core):
    _, name = indexed(room)
    room.replica("r1")
    room.replica("r2")
    for each in ("answered", "cancelled"):
        core.peek(CLUSTER, pr.Peek(each, name, Timestamp(7)), "r1")
    room.run()
    late = pr.PeekStashed("late", 1, 2, 3, "{}")
    # Another replica than the one that was asked.
    assert room.says("r2", pr.PeekAnswered("answered", late)) == [ef.DiscardStash("late")]
    first = pr.PeekStashed("first", 1, 2, 3, "{}")
    assert room.says("r1", pr.PeekAnswered("answered", first))[0] == ef.AnswerPeek(
        "answered", first
    )
    assert [each.peek_id for each in core.peeks(CLUSTER)] == ["cancelled"]
    core.cancel_peek("cancelled")
    assert core.peeks(CLUSTER) == []
    room.run()
    for each in ("answered", "cancelled", "unknown"):
        assert room.says("r1", pr.PeekAnswered(each, late)) == [ef.DiscardStash("late")]
    assert room.says("r1", pr.PeekAnswered("cancelled", pr.PeekRows(b""))) == []


def test_a_peek_for_one_replica_is_answered_by_it_or_fails_with_it(room, core):
    _, name = indexed(room)
    room.replica("r1")
    room.replica("r2")
    for each in ("p", "q"):
        core.peek(CLUSTER, pr.Peek(each, name, Timestamp(7)), "r1")
    effects = room.run()
    assert (len(sent(effects, "r1")), sent(effects, "r2")) == (2, [])
    assert of_kind(room.replica("r3"), pr.Peek) == []
    failed = pr.PeekFailed("division by zero")
    assert room.says("r2", pr.PeekAnswered("p", failed)) == []
    assert room.says("r1", pr.PeekAnswered("p", failed))[0] == ef.AnswerPeek("p", failed)
    core.drop_replica(CLUSTER, "r1")
    (answer,) = of_kind(room.run(), ef.AnswerPeek)
    assert answer.peek_id == "q"
    assert "failed or was dropped" in answer.answer.error


# Subscriptions and copies


def updates(*times):
    return tuple(pr.SubscribeUpdate(Timestamp(t), b"r") for t in times)


def batch(lower, upper, *times, error=None):
    return pr.SubscribeBatch("t7", at(lower), at(upper), updates(*times), error)


def delivered(effects):
    return [
        (e.lower, e.upper, [u.time for u in e.updates], e.error)
        for e in of_kind(effects, ef.DeliverSubscribe)
    ]


def test_i45_of_several_replicas_each_update_is_delivered_once(room, core):
    table = room.table()
    room.replica("r1")
    room.replica("r2")
    core.create_dataflow(CLUSTER, subscribe("t7", [table]))
    room.run()
    assert delivered(room.says("r1", batch(0, 7, 5, 6))) == [(at(0), at(7), [5, 6], None)]
    assert delivered(room.says("r2", batch(0, 6, 5))) == []
    assert delivered(room.says("r2", batch(6, 9, 6, 8))) == [(at(7), at(9), [8], None)]
    assert core.collection(CLUSTER, "t7").write_frontier == at(9)
    assert core.collection(CLUSTER, "t7").implied == at(8)
    assert delivered(room.says("r1", batch(7, None, 8, 9))) == [(at(9), EMPTY_FRONTIER, [9], None)]
    assert delivered(room.says("r2", batch(9, 12, 9))) == []
    assert of_kind(room.says("r1", batch(9, 12)), ef.ReportViolation) != []


def test_a_subscription_is_as_far_as_its_batches(room, core):
    """Else a replica that comes later could give a snapshot of what was delivered in part."""
    table = room.table()
    room.replica("r1")
    core.create_dataflow(CLUSTER, subscribe("t7", [table]))
    room.says("r1", batch(0, 7, 5), report("t7", write=9, read=9, output=9))
    assert core.collection(CLUSTER, "t7").write_frontier == at(7)
    room.maintain()
    (created,) = of_kind(room.replica("r2"), pr.CreateDataflow)
    assert created.dataflow.as_of == at(6)
    assert delivered(room.says("r2", batch(0, 7, 6))) == []
    assert delivered(room.says("r2", batch(7, 8, 7))) == [(at(7), at(8), [7], None)]


def test_a_batch_behind_a_gap_is_not_delivered(room, core):
    table = room.table()
    room.replica("r1")
    core.create_dataflow(CLUSTER, subscribe("t7", [table]))
    room.says("r1", batch(0, 7, 5))
    effects = room.says("r1", batch(8, 9, 8))
    assert (delivered(effects), len(of_kind(effects, ef.ReportViolation))) == ([], 1)
    assert core.collection(CLUSTER, "t7").write_frontier == at(7)
    assert delivered(room.says("r1", batch(7, 9, 7, 8))) == [(at(7), at(9), [7, 8], None)]


def test_nothing_is_delivered_at_or_after_until(room, core):
    table = room.table()
    room.replica("r1")
    core.create_dataflow(CLUSTER, subscribe("t7", [table], until=at(7)))
    assert delivered(room.says("r1", batch(0, 9, 5, 6, 7, 8))) == [(at(0), at(9), [5, 6], None)]


def test_an_error_ends_a_subscription(room, core):
    table = room.table()
    room.replica("r1")
    core.create_dataflow(CLUSTER, subscribe("t7", [table]))
    effects = room.says("r1", batch(0, 7, error="too large"), batch(7, 9, 8))
    assert delivered(effects) == [(at(0), at(7), [], "too large")]


def test_a_dropped_subscription_says_nothing_more(room, core):
    table = room.table()
    room.replica("r1")
    core.create_dataflow(CLUSTER, subscribe("t7", [table]))
    room.run()
    wrong = room.says("r1", pr.SubscribeDropped("t7", at(0)))
    assert of_kind(wrong, ef.ReportViolation) != []
    core.drop_collections(CLUSTER, ["t7"])
    room.run()
    room.says("r1", report("t7", read=None), pr.FrontierReport("t7", input=EMPTY_FRONTIER))
    assert list(room.stored.holds) == []
    core.create_dataflow(CLUSTER, subscribe("t7", [table], as_of=8))
    core.drop_collections(CLUSTER, ["t7"])
    assert delivered(room.says("r1", batch(0, 9, 8))) == []


def test_what_is_for_one_replica_ends_with_it(room, core):
    table = room.table()
    room.replica("r1")
    room.replica("r2")
    core.create_dataflow(CLUSTER, subscribe("t7", [table]), "r1")
    core.create_dataflow(CLUSTER, copy_to("t8", [table]), "r1")
    effects = room.run()
    assert len(of_kind(sent(effects, "r1"), pr.CreateDataflow)) == 2
    assert sent(effects, "r2") == []
    assert of_kind(room.replica("r3"), pr.CreateDataflow) == []
    assert room.says("r2", batch(0, 7, 5)) == []
    room.says("r1", batch(0, 7, 5))
    core.drop_replica(CLUSTER, "r1")
    effects = room.run()
    error = "the replica that it was for failed or was dropped"
    assert delivered(effects) == [(at(7), at(7), [], error)]
    assert of_kind(effects, ef.AnswerCopyTo) == [ef.AnswerCopyTo("t8", pr.CopyToFailed(error))]
    core.drop_collections(CLUSTER, ["t7", "t8"])
    room.run()
    assert list(room.stored.holds) == []


def test_a_copy_is_answered_by_the_first_replica(room, core):
    table = room.table()
    room.replica("r1")
    room.replica("r2")
    core.create_dataflow(CLUSTER, copy_to("t8", [table]))
    wrong = room.says("r1", pr.CopyToAnswered("t8", pr.CopyToDropped()))
    assert (of_kind(wrong, ef.ReportViolation), of_kind(wrong, ef.AnswerCopyTo)) != ([], [])
    answer = pr.CopyToAnswered("t8", pr.CopyToRows(3))
    effects = room.says("r2", answer)
    assert of_kind(effects, ef.AnswerCopyTo) == [ef.AnswerCopyTo("t8", pr.CopyToRows(3))]
    assert of_kind(room.says("r1", answer), ef.AnswerCopyTo) == []


# What views compute


def computed(lower, upper, rows=b"r"):
    return pr.Computed("u60", at(lower), at(upper), rows, b"")


@pytest.fixture
def maintained(room):
    """A view on two replicas that may write; its stored collection."""
    table, target = room.table(30), room.target()
    since = room.stored.frontiers(table).since.value
    room.replica("r1")
    room.replica("r2")
    room.core.create_dataflow(CLUSTER, view("u60", target, [table], as_of=since))
    room.core.allow_writes(CLUSTER, "u60")
    assert pr.AllowWrites("u60") in sent(room.run(), "r1")
    room.maintain()
    return target


def test_the_first_that_computes_an_interval_has_it_committed(room, core, maintained):
    room.commits = False
    (commit,) = of_kind(room.says("r1", computed(0, 10)), ef.CommitOutput)
    assert (commit.id, commit.target, commit.rows) == ("u60", maintained, b"r")
    assert room.says("r2", computed(0, 12)) == []
    # What follows need not wait for the commit before it.
    (second,) = of_kind(room.says("r2", computed(10, 29)), ef.CommitOutput)
    room.commits = True
    room.commit(commit)
    effects = room.run()
    advanced = pr.OutputAdvanced("u60", at(10))
    assert sent(effects, "r1") == sent(effects, "r2") == [advanced]
    room.commit(second)
    assert ef.ReportUpper("u60", at(29)) in room.run()
    assert core.collection(CLUSTER, "u60").since == at(28)
    core.respond(pr.OutputCommitted(second.ticket))
    assert room.run() == []
    late = room.says("r1", computed(10, 15))
    assert late == [
        ef.SendToReplica(ReplicaKey(CLUSTER, "r1"), 1, pr.OutputAdvanced("u60", at(29)))
    ]
    assert [(e.lower, e.upper) for e in room.committed[maintained]] == [
        (at(0), at(10)),
        (at(10), at(29)),
    ]


def test_a_refused_commit_is_computed_again_from_where_the_output_is(room, core, maintained):
    room.commits = False
    (first,) = of_kind(room.says("r1", computed(0, 10)), ef.CommitOutput)
    (second,) = of_kind(room.says("r1", computed(10, 20)), ef.CommitOutput)
    room.commits = True
    room.storage.write(maintained, at(5))
    room.commit(first)
    assert pr.OutputAdvanced("u60", at(5)) in sent(room.run(), "r2")
    assert room.says("r2", computed(5, 20)) == []
    room.commit(second)
    assert pr.OutputAdvanced("u60", at(5)) in sent(room.run(), "r2")
    assert of_kind(room.says("r2", computed(5, 20)), ef.CommitOutput) != []
    assert core.collection(CLUSTER, "u60").write_frontier == at(25)


def test_a_commit_with_an_unknown_outcome_is_looked_up(room, core, maintained):
    room.commits = False
    (commit,) = of_kind(room.says("r1", computed(0, 29)), ef.CommitOutput)
    room.storage.write(maintained, at(29))
    core.respond(pr.OutputFailed(commit.ticket))
    assert pr.OutputAdvanced("u60", at(29)) in sent(room.run(), "r1")
    (commit,) = of_kind(room.says("r1", computed(29, 40)), ef.CommitOutput)
    core.respond(pr.OutputFailed(commit.ticket))
    assert pr.OutputAdvanced("u60", at(29)) in sent(room.run(), "r1")
    assert of_kind(room.says("r2", computed(29, 40)), ef.CommitOutput) != []


def test_what_is_no_interval_is_a_violation(room, maintained):
    (violation,) = room.says("r1", computed(3, 3))
    assert isinstance(violation, ef.ReportViolation)


def test_nothing_is_committed_that_may_not_be_written(room, core):
    table, target = room.table(), room.target()
    room.replica("r1")
    core.create_dataflow(CLUSTER, view("u60", target, [table]))
    assert of_kind(room.says("r1", computed(0, 7)), ef.CommitOutput) == []
    core.allow_writes(CLUSTER, "u60")
    assert sent(room.run(), "r1") == [pr.AllowWrites("u60")]
    core.allow_writes(CLUSTER, "u60")
    assert room.run() == []
    assert pr.AllowWrites("u60") in room.replica("r2")
    core.drop_collections(CLUSTER, ["u60"])
    assert of_kind(room.says("r1", computed(0, 7)), ef.CommitOutput) == []


def test_a_read_only_controller_lets_nobody_write():
    room = ComputeRoom(read_only=True)
    table, target = room.table(), room.target()
    room.replica("r1")
    room.core.create_dataflow(CLUSTER, view("u60", target, [table]))
    room.core.allow_writes(CLUSTER, "u60")
    effects = room.says("r1", computed(0, 7))
    assert of_kind(sent(effects, "r1"), pr.AllowWrites) == []
    assert of_kind(effects, ef.CommitOutput) == []


def test_the_outcome_for_a_view_that_was_dropped_changes_nothing(room, core, maintained):
    room.commits = False
    (commit,) = of_kind(room.says("r1", computed(0, 10)), ef.CommitOutput)
    core.drop_collections(CLUSTER, ["u60"])
    room.run()
    core.respond(pr.OutputCommitted(commit.ticket))
    assert of_kind(room.run(), ef.SendToReplica) == []
    room.says("r1", done("u60"))
    room.says("r2", done("u60"))
    core.respond(pr.OutputRefused(commit.ticket, at(10)))
    assert room.run() == []
