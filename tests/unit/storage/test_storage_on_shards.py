"""The storage controller on real shards, on both metastores."""

import pytest
from tests.support.persist.metastore_faults import Outage
from tests.support.persist.persistence import contents, own_shard, table_shard, updates

from slackwater.adapter.controllers.persist_shards import PersistShardStore
from slackwater.adapter.controllers.storage_log import CommitExtras
from slackwater.controller.holds import Holder, HoldKind
from slackwater.persist.client import Append, WriteResult
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.read_policy import LagWriteFrontier, ValidFrom
from slackwater.storage.controller.appends import CollectionAppend
from slackwater.storage.controller.core import StorageController
from slackwater.storage.controller.descriptions import (
    CollectionDescription,
    CollectionMetadata,
    DurableState,
    OtherWriter,
    Table,
)
from slackwater.storage.controller.errors import StorageError, Variant
from slackwater.storage.controller.shell import Storage

READER = Holder(HoldKind.STATEMENT, "app/1")


class World:
    """Two tables ``u1``, ``u2`` and a view ``u3``, whatever leader opens them."""

    def __init__(self, env):
        self.env = env
        self.outage = Outage(env.engine)
        self.shards = ()
        self.epoch = None
        self.open()

    def open(self):
        self.client = self.env.lead(self.epoch, retry_policy=self.outage.retry_policy())
        self.epoch = 1 if self.epoch is None else self.epoch + 1
        if not self.shards:
            tables = [table_shard(self.client) for _ in range(2)]
            self.shards = (*tables, own_shard(self.client))
        mappings = {shard: f"u{number}" for number, shard in enumerate(self.shards, start=1)}
        durable = DurableState(
            mappings,
            unfinalized=frozenset(self.client.reads.unfinalized()),
            unclaimed=frozenset(self.client.reads.shard_ids()) - mappings.keys(),
        )
        core = StorageController(durable, Frontier(self.client.reads.tables_upper()))
        self.storage = Storage(
            core, PersistShardStore(self.client), lambda: 0, lambda command: None
        )
        found = {shard: self.client.reads.state(shard) for shard in self.shards}
        self.storage.create(
            [
                (
                    mappings[shard],
                    CollectionDescription(Table() if state.shares_tables_upper else OtherWriter()),
                    CollectionMetadata(
                        shard,
                        Frontier(state.since),
                        Frontier(state.upper),
                        state.shares_tables_upper,
                    ),
                )
                for shard, state in found.items()
            ],
            [(name, LagWriteFrontier(5)) for name in mappings.values()],
        )
        self.storage.do(lambda core: core.reconcile_state())

    def append(self, name, shard, key, time, upper):
        parts = self.client.files.new_parts(shard, updates((key, "v", time, 1)))
        return CollectionAppend(name, {shard: parts}, Timestamp(time), Frontier(upper))


@pytest.fixture
def world(env):
    return World(env)


def test_i29_one_append_reaches_all_collections_at_once(world):
    one, two, view = world.shards
    done = []
    world.storage.append(
        [world.append("u1", one, 1, 7, 8), world.append("u3", view, 3, 4, 6)],
        extras=CommitExtras(
            (lambda conn: done.append(conn),), {"w": WriteResult(Timestamp(7), 2, 0)}
        ),
    )
    assert [world.storage.upper(name).value for name in ("u1", "u2", "u3")] == [8, 8, 6]
    assert (len(done), world.client.commits.written("w").inserted) == (1, 2)
    assert (contents(world.client, one, 7), contents(world.client, view, 5)) == (
        [(1, "v")],
        [(3, "v")],
    )
    assert contents(world.client, two, 7) == []
    found = world.storage.snapshot("u1", Timestamp(7))
    assert found.to_pylist() == [{"k": 1, "v": "v", "__time": 7, "__diff": 1}]
    world.open()
    assert [world.storage.upper(name).value for name in ("u1", "u2", "u3")] == [8, 8, 6]


def test_i6_an_append_behind_somebody_else_is_told_the_upper(world):
    one, _, view = world.shards
    world.client.commits.commit([Append(view, Timestamp(0), Timestamp(9), ())])
    with pytest.raises(StorageError) as caught:
        world.storage.append([world.append("u3", view, 1, 3, 4), world.append("u1", one, 1, 3, 4)])
    assert (caught.value.variant, caught.value.ids) == (Variant.INVALID_UPPERS, ("u3",))
    assert [world.storage.upper(name).value for name in ("u1", "u3")] == [0, 9]
    world.storage.append([world.append("u3", view, 1, 9, 10)])
    assert contents(world.client, view, 9) == [(1, "v")]


@pytest.mark.parametrize("landed", [True, False])
def test_i8_after_an_append_of_unknown_outcome_the_next_one_is_told_the_truth(world, landed):
    one = world.shards[0]
    world.storage.append([], Frontier(3))
    world.outage.strike(landed=landed)
    with pytest.raises(SlackwaterError) as caught:
        world.storage.append([world.append("u1", one, 1, 4, 5)])
    assert caught.value.condition == "SLACKWATER_METASTORE_UNAVAILABLE"
    assert world.storage.upper("u1") == Frontier(3)
    if landed:
        with pytest.raises(StorageError) as refused:
            world.storage.append([world.append("u1", one, 2, 8, 9)])
        assert refused.value.variant is Variant.INVALID_UPPERS
        assert world.storage.upper("u2") == Frontier(5)
    world.storage.append([world.append("u1", one, 2, 8, 9)])
    assert contents(world.client, one, 8) == [(1, "v")] * landed + [(2, "v")]


def test_i17_i18_what_was_reached_is_durable_when_the_policy_changes(world):
    view = world.shards[2]
    world.storage.append([world.append("u3", view, 1, 19, 20)])
    hold = world.storage.acquire(["u3"], READER, Timestamp(17))
    assert world.storage.since("u3") == Frontier(15)
    world.storage.set_policy("u3", ValidFrom(Frontier(0)))
    assert world.client.reads.state(view).since == 15
    world.storage.release(hold)
    world.open()
    assert world.storage.since("u3") == Frontier(15)


def test_i26_i27_a_shard_that_nothing_has_is_finalized(world):
    leaked = own_shard(world.client)
    world.open()
    assert world.client.reads.unfinalized() == (leaked,)
    assert world.storage.finalizable(10) == (leaked,)
    assert world.client.maintenance.finalize(leaked)
    world.storage.finalized(leaked)
    world.open()
    assert (world.client.reads.unfinalized(), world.storage.finalizable(10)) == ((), ())
