"""The committer and the catalog on real shards, on both metastores."""

import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from tests.support.persist.persistence import DESC, table_shard
from tests.support.storage.tables import storage_of, tables_of
from tests.support.waiting import PATIENCE

from slackwater.adapter.catalog.durable import DurableCatalog
from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.adapter.catalog.ops import CreateItem
from slackwater.adapter.time.oracle import TimestampOracle
from slackwater.adapter.writing.group_commit import GroupCommitter, Write
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Timestamp


def now_ms():
    return time.time_ns() // 1_000_000


def rows(*keys):
    return pa.Table.from_pylist(
        [{"k": k, "v": f"v{k}", "__diff": 1} for k in keys],
        schema=DESC.arrow_schema().append(pa.field("__diff", pa.int64(), False)),
    )


def open_committer(client, *shards, **rest):
    log = tables_of(client, storage_of(client), *shards)
    oracle = TimestampOracle.recover(client.reads.tables_upper(), now_ms)
    committer = GroupCommitter(log, oracle, location="./env", clock_ms=now_ms, **rest)
    committer.start()
    return committer, oracle


def keys(client, shard, as_of):
    return sorted(client.reads.snapshot(shard, Timestamp(as_of))["k"].to_pylist())


def test_writes_are_readable_at_their_time_and_after_a_takeover(env):
    client = env.lead()
    shard, other = table_shard(client), table_shard(client)
    fatal = []
    committer, oracle = open_committer(client, shard, other, on_fatal=fatal.append)

    def write(n):
        result = committer.submit(Write(f"w{n}", {shard: rows(n), other: rows(n)}, 2)).result(
            PATIENCE
        )
        for each in (shard, other):
            assert n in keys(client, each, oracle.read_ts())
            assert n not in keys(client, each, result.timestamp - 1)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(12)))
    last_read = oracle.read_ts()

    successor = env.lead(expected_epoch=1)
    late = committer.submit(Write("late", {shard: rows(99)}, 1))
    assert late.exception(PATIENCE).condition == "SLACKWATER_FENCED"
    committer.stop()
    assert len(fatal) == 1

    again, oracle = open_committer(successor, shard, other)
    assert oracle.read_ts() >= last_read
    assert again.submit(Write("w3", {shard: rows(3)}, 2)).result(PATIENCE).timestamp <= last_read
    again.submit(Write("w12", {shard: rows(12)}, 1)).result(PATIENCE)
    assert keys(successor, shard, oracle.read_ts()) == list(range(13))
    again.stop()


def test_a_table_and_its_first_rows(env):
    client = env.lead()
    catalog = DurableCatalog.open(client.transactions, clock_ms=now_ms)
    (table_id,) = catalog.allocate_ids()

    def create(conn):
        shard = client.definitions.create_shard(conn, DESC, client.reads.tables_upper(), None)
        return [
            CreateItem(CatalogItem(table_id, ItemKind.TABLE, "default", "t", "CREATE", DESC, shard))
        ]

    state, _ = catalog.transact(create)
    shard = state.get("default", "T").shard_id
    assert (
        DurableCatalog.open(client.transactions, clock_ms=now_ms).state.item(table_id).shard_id
        == shard
    )
    good = table_shard(client)
    committer, oracle = open_committer(client, shard, good)
    committer.submit(Write("first", {shard: rows(1, 2)}, 2)).result(PATIENCE)
    assert keys(client, shard, oracle.read_ts()) == [1, 2]

    client.transactions.transact(lambda conn: client.definitions.drop_shard(conn, shard))
    gone = committer.submit(Write("gone", {shard: rows(3)}, 1))
    error = gone.exception(PATIENCE)
    assert isinstance(error, SlackwaterError)
    assert error.condition == "SLACKWATER_DEPENDENCY_DROPPED"
    assert committer.submit(Write("good", {good: rows(4)}, 1)).result(PATIENCE).inserted == 1
    committer.stop()
