"""The storage controller behind its lock: what it carries out, and what readers race against."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from slackwater.controller.holds import Holder, HoldKind
from slackwater.controller.protocol import AllowCompaction, ReplicaKey
from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier, Timestamp
from slackwater.repr.read_policy import LagWriteFrontier, ValidFrom
from slackwater.storage.controller.appends import CollectionAppend
from slackwater.storage.controller.core import StorageController
from slackwater.storage.controller.descriptions import (
    CollectionDescription,
    CollectionMetadata,
    DurableState,
    ExportDescription,
    OtherWriter,
    SinkAsOf,
)
from slackwater.storage.controller.effects import SendToReplica
from slackwater.storage.controller.errors import StorageError, Variant
from slackwater.storage.controller.protocol import AppendDone, AppendRefused, RunSink
from slackwater.storage.controller.shell import Storage

READER = Holder(HoldKind.STATEMENT, "app/1")
NAMES = ("u1", "u2", "u3")


def committed(effect):
    return AppendDone(effect.ticket)


def nothing():
    pass


@dataclass
class Outside:
    """Everything that the shell acts on."""

    now_ms: int = 100
    sinces: dict = field(default_factory=dict)
    dropped: list = field(default_factory=list)
    commands: list = field(default_factory=list)
    appends: list = field(default_factory=list)
    outcome: Callable = field(default=committed)
    reading: Callable = field(default=nothing)

    def set_since(self, sinces):
        self.sinces.update(sinces)

    def drop_shards(self, shards):
        self.dropped.extend(shards)

    def append(self, effect):
        self.appends.append(effect)
        return self.outcome(effect)

    def snapshot(self, shard_id, as_of):
        self.reading()
        return (shard_id, as_of)


@pytest.fixture
def outside():
    return Outside()


def opened(outside, durable=None):
    core = StorageController(durable or DurableState(), Frontier(0))
    core.placement.create_instance("i")
    return Storage(core, outside, lambda: outside.now_ms, outside.commands.append)


@pytest.fixture
def storage(outside):
    storage = opened(outside)
    storage.create(
        [
            (
                name,
                CollectionDescription(OtherWriter()),
                CollectionMetadata(number, Frontier(5), Frontier(20), error_shards=(number + 10,)),
            )
            for number, name in enumerate(NAMES, start=1)
        ],
        [(name, LagWriteFrontier(10)) for name in NAMES],
    )
    yield storage
    storage.validate()


def test_a_since_stops_at_a_hold_and_a_hold_at_a_since(storage):
    hold = storage.acquire(NAMES[:2], READER)
    assert hold.since == 10
    storage.report([("u1", Frontier(40))])
    assert storage.since("u1") == Frontier(10)
    assert storage.frontiers("u1") == (Frontier(10), Frontier(40))
    with pytest.raises(StorageError) as caught:
        storage.acquire(NAMES[:2], READER, Timestamp(9))
    assert (caught.value.variant, caught.value.ids) == (Variant.READ_BEFORE_SINCE, ("u1", "u2"))
    hold = storage.downgrade(hold, Timestamp(15))
    assert storage.since("u1") == Frontier(15)
    assert storage.release(hold)
    assert not storage.release(hold)
    assert storage.since("u1") == Frontier(30)


def test_a_shard_that_is_held_is_not_finalized(storage, outside):
    hold = storage.acquire(["u1"], READER)
    storage.drop(["u1", "u2"], [])
    assert storage.finalizable(10) == (2, 12)
    storage.finalized(2)
    assert storage.finalizable(10) == (12,)
    storage.release(hold)
    assert set(storage.finalizable(10)) == {1, 11, 12}
    with pytest.raises(StorageError):
        storage.acquire(["u1"], READER)
    assert outside.sinces == {}


def test_readers_know_since_when_they_may_use_files(storage, outside):
    first = storage.acquire(["u1", "u2"], READER)
    outside.now_ms = 200
    second = storage.acquire(["u2", "u3"], READER)
    view = storage.acquire(["u3"], Holder(HoldKind.VIEW, "u9"))
    assert storage.opened_ms() == {1: 100, 11: 100, 2: 100, 12: 100, 3: 200, 13: 200}
    outside.now_ms = 300
    first = storage.downgrade(first, Timestamp(11))
    assert storage.opened_ms() == {1: 300, 11: 300, 2: 200, 12: 200, 3: 200, 13: 200}
    storage.release(second)
    assert storage.opened_ms() == {1: 300, 11: 300, 2: 300, 12: 300}
    assert [hold.holder for hold in storage.holds()] == [READER, view.holder]
    assert storage.oldest_hold() == 10


def test_another_policy_keeps_durably_what_was_reached(storage, outside):
    storage.set_policy("u1", ValidFrom(Frontier(0)))
    assert outside.sinces == {1: 10, 11: 10}
    assert storage.since("u1") == Frontier(10)


def test_sinks_run_where_they_are_told_to(storage, outside):
    token = storage.do(lambda core: core.exports.prepare("u8", "u1"))
    given_up = storage.do(lambda core: core.exports.prepare("u9", "u1"))
    storage.do(lambda core: core.exports.cancel(given_up))
    description = ExportDescription("u1", "i", "files", Frontier(12))
    storage.create_export(token, description, [77])
    assert outside.commands == []
    storage.connect_replica("i", "r1")
    run = RunSink("u8", description, SinkAsOf(Frontier(12)))
    assert SendToReplica(ReplicaKey("i", "r1"), run) in outside.commands
    storage.report([("u8", Frontier(16))])
    storage.report([("u1", Frontier(90))])
    assert storage.since("u1") == Frontier(15)
    storage.drop([], ["u8"])
    assert outside.commands[-1].command == AllowCompaction("u8", EMPTY_FRONTIER)
    assert storage.since("u1") == Frontier(80)
    assert storage.finalizable(10) == (77,)


def test_an_append_is_reported_before_it_returns(storage, outside):
    storage.append(
        [CollectionAppend("u1", {1: "rows"}, Timestamp(24), Frontier(25))], extras="with it"
    )
    assert storage.upper("u1") == Frontier(25)
    (effect,) = outside.appends
    assert (effect.extras, [each.rows for each in effect.appends]) == ("with it", ["rows"])
    storage.append([], Frontier(9))
    assert storage.tables_upper() == Frontier(9)


def test_an_append_that_is_refused_or_fails_says_so(storage, outside):
    append = [CollectionAppend("u1", {}, None, Frontier(30))]
    outside.outcome = lambda effect: AppendRefused(effect.ticket, (("u1", Frontier(40)),))
    with pytest.raises(StorageError) as caught:
        storage.append(append)
    assert caught.value.variant is Variant.INVALID_UPPERS
    assert storage.upper("u1") == Frontier(40)

    def away(effect):
        raise ConnectionError("away")

    outside.outcome = away
    with pytest.raises(ConnectionError):
        storage.append([CollectionAppend("u1", {}, None, Frontier(50))])
    outside.outcome = committed
    storage.append([CollectionAppend("u1", {}, None, Frontier(60))])
    assert [(e.lower.value, e.upper.value) for a in outside.appends for e in a.appends] == [
        (20, 30),
        (40, 50),
        (40, 60),
    ]


def test_i34_a_snapshot_is_read_by_its_caller_once_it_is_complete(storage, outside):
    assert storage.snapshot("u2", Timestamp(12)) == (2, 12)
    threads, seen, begun = [], [], threading.Event()

    def reading():
        threads.append(threading.current_thread())
        seen.append((storage.since("u2"), storage.opened_ms()))

    outside.reading = reading

    def read():
        begun.set()
        seen.append(storage.snapshot("u2", Timestamp(30)))

    reader = threading.Thread(target=read)
    reader.start()
    begun.wait()
    while not storage.holds():
        threading.Event().wait(0.001)
    storage.report([("u2", Frontier(99))])
    reader.join()
    assert threads == [reader]
    assert seen == [(Frontier(30), {2: 100, 12: 100}), (2, 30)]
    assert (storage.holds(), storage.opened_ms()) == ((), {})
    assert storage.since("u2") == Frontier(89)


def test_a_snapshot_ends_with_its_collection(storage):
    with pytest.raises(StorageError, match="its history begins later"):
        storage.snapshot("u2", Timestamp(9))
    failed = []

    def read():
        try:
            storage.snapshot("u2", Timestamp(30))
        except StorageError as error:
            failed.append(error.variant)

    reader = threading.Thread(target=read)
    reader.start()
    while not storage.holds():
        threading.Event().wait(0.001)
    storage.drop(["u2"], [])
    reader.join()
    assert failed == [Variant.IDENTIFIER_MISSING]
    assert storage.holds() == ()


def test_shards_that_nobody_claims_are_dropped(outside):
    storage = opened(outside, DurableState(unclaimed=frozenset({7}), unfinalized=frozenset({8})))
    storage.do(lambda core: core.reconcile_state())
    storage.do(lambda core: core.reconcile_state())
    assert outside.dropped == [7]
    assert set(storage.finalizable(10)) == {7, 8}


def test_many_threads_leave_exact_counts(storage):
    def work():
        for _ in range(200):
            hold = storage.acquire(["u1", "u2"], READER)
            storage.report([("u1", Frontier(storage.upper("u1").value + 1))])
            storage.release(storage.downgrade(hold, Timestamp(max(hold.since, 12))))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert storage.holds() == ()
    assert storage.upper("u1").value <= 20 + 800
    assert storage.since("u1").value == storage.upper("u1").value - 10
    assert storage.since("u2") == Frontier(10)
