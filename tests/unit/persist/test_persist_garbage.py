"""Garbage, tombstones, and what holds protect."""

from __future__ import annotations

import os

import pytest
from sqlalchemy import func, select
from tests.support.persist.persistence import compacted, contents, own_shard, table_shard, updates

from slackwater.persist import blobs, garbage
from slackwater.persist.blobs import file_part, inline_part
from slackwater.persist.client import Append, TablesAppend, UnknownShard, UpperMismatch
from slackwater.persist.compaction import CompactionSettings
from slackwater.persist.garbage import LEASE_MS, STAMP_MARGIN_MS, GarbageFile, deletable_until
from slackwater.persist.holds import SteadyClock
from slackwater.persist.leadership import Fenced, current_leader
from slackwater.persist.parts import FileBody
from slackwater.persist.tables import garbage as garbage_table
from slackwater.persist.tables import parts as parts_table
from slackwater.persist.tables import shards as shards_table
from slackwater.persist.usage import ShardUsage, usage
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import TIMESTAMP_MAX

NOW_MS = 1_000_000_000


def reopened(env, client):
    return env.lead(expected_epoch=current_leader(env.engine).epoch)


def file_append(client, shard, time):
    part = file_part(
        client.blobs, updates((time, "x", time, 1)), client.files.shard_directory(shard)
    )
    client.commits.commit([Append(shard, time, time + 1, (part,))])
    return part.body.uri


def listed(env):
    with env.engine.begin() as conn:
        rows = conn.execute(select(garbage_table).order_by(garbage_table.c.uri)).all()
    return [(row.uri, row.condemned) for row in rows]


def transacted(client, step):
    found = []
    client.transactions.transact(lambda conn: found.append(step(conn)))
    return found[-1]


def drop(client, shard):
    client.transactions.transact(lambda conn: client.definitions.drop_shard(conn, shard))


def path_of(uri):
    return blobs.local_path(uri)


def test_replaced_files_wait_are_marked_and_deleted(env):
    client = env.lead(clock=lambda: NOW_MS)
    shard = own_shard(client)
    uris = sorted(file_append(client, shard, time) for time in range(2))
    assert compacted(client, shard, 2) == 1
    assert listed(env) == [(uri, False) for uri in uris]
    assert client.transactions.query(garbage.waiting) == ((shard, NOW_MS),)

    def mark(until_ms, limit=10):
        return transacted(
            client, lambda conn: garbage.mark_for_deletion(conn, shard, until_ms, limit)
        )

    assert mark(NOW_MS - 1) == 0
    assert mark(NOW_MS, limit=1) == 1
    assert mark(NOW_MS) == 1
    assert mark(NOW_MS) == 0
    assert listed(env) == [(uri, True) for uri in uris]
    assert all(path_of(uri).exists() for uri in uris)
    # Deleting and forgetting may be done twice, also by another leader after a crash in between.
    client = reopened(env, client)
    for _ in range(2):
        for uri in uris:
            client.blobs.delete(uri)
        client.transactions.transact(lambda conn: garbage.forget(conn, uris))
    assert listed(env) == []
    assert contents(client, shard, 2) == [(0, "x"), (1, "x")]


def test_a_file_that_is_named_again_is_not_marked_for_deletion(env):
    client = env.lead()
    shard = own_shard(client)
    uri = file_append(client, shard, 0)
    client.transactions.transact(lambda conn: garbage.add(conn, [GarbageFile(uri, shard, 1, 0)]))
    assert transacted(client, lambda conn: garbage.mark_for_deletion(conn, shard, NOW_MS, 9)) == 1
    assert listed(env) == []
    assert path_of(uri).exists()


def test_a_file_that_another_shard_names_is_not_marked_for_deletion(env):
    """Two shards name one file; it goes when neither does."""
    client = env.lead()
    first, second = own_shard(client), own_shard(client)
    part = file_part(client.blobs, updates((0, "x", 0, 1)), client.files.shard_directory(first))
    client.commits.commit([Append(first, 0, 1, (part,)), Append(second, 0, 1, (part,))])
    uri = part.body.uri
    for shard in (first, second):
        drop(client, shard)
        assert client.maintenance.finalize(shard)
        assert listed(env) == [(uri, False)]
        transacted(client, lambda conn: garbage.mark_for_deletion(conn, first, 2**62, 9))
        transacted(client, lambda conn: garbage.mark_for_deletion(conn, second, 2**62, 9))
        if shard == first:
            assert listed(env) == []
            assert contents(client, second, 0) == [(0, "x")]
    assert listed(env) == [(uri, True)]


def test_a_file_below_another_shard_is_no_orphan(env):
    client = env.lead()
    first, second = own_shard(client), own_shard(client)
    part = file_part(
        client.blobs, updates((0, "x", 0, 1)), client.files.staging_directory(first, "w")
    )
    client.commits.commit([Append(second, 0, 1, (part,))])
    drop(client, first)
    assert client.maintenance.finalize(first)
    files = [GarbageFile(part.body.uri.replace("file:///", "file:/"), first, 1, 0)]
    client.transactions.transact(lambda conn: garbage.adopt_orphans(conn, files, NOW_MS))
    assert listed(env) == []


def test_a_marked_file_cannot_be_named(env):
    client = env.lead()
    shard = own_shard(client)
    part = file_part(client.blobs, updates((1, "x", 0, 1)), client.files.shard_directory(shard))
    client.transactions.transact(
        lambda conn: garbage.add(conn, [GarbageFile(part.body.uri, shard, 1, 0)])
    )
    transacted(client, lambda conn: garbage.mark_for_deletion(conn, shard, NOW_MS, 9))
    with pytest.raises(FatalError, match="being deleted"):
        client.commits.commit([Append(shard, 0, 1, (part,))])
    assert client.reads.state(shard).upper == 0
    assert contents(reopened(env, client), shard, 0) == []


def test_a_replacement_that_took_long_is_stamped_when_it_was_seen(env):
    times = iter([0, STAMP_MARGIN_MS + 1])
    client = env.lead(clock=lambda: next(times, STAMP_MARGIN_MS + 1))
    shard = own_shard(client)
    for time in range(2):
        file_append(client, shard, time)
    compacted(client, shard, 2)
    assert client.transactions.query(garbage.waiting) == ((shard, STAMP_MARGIN_MS + 1),)


@pytest.mark.parametrize(
    ("opened_ms", "foreign", "expected"),
    [
        (None, False, NOW_MS - LEASE_MS),
        (NOW_MS, False, NOW_MS - LEASE_MS),
        (NOW_MS - 2 * LEASE_MS, False, NOW_MS - 2 * LEASE_MS - STAMP_MARGIN_MS - 1),
        (None, True, None),
    ],
)
def test_what_leases_and_holds_protect(opened_ms, foreign, expected):
    assert deletable_until(NOW_MS, opened_ms, foreign) == expected


def test_orphans_are_what_neither_parts_nor_the_list_name(env):
    client = env.lead()
    shard = own_shard(client)
    named = file_append(client, shard, 0)
    waiting = file_part(
        client.blobs, updates((1, "x", 0, 1)), client.files.shard_directory(shard)
    ).body.uri
    staged = client.files.staging_directory(shard, "crashed")
    orphan = file_part(client.blobs, updates((1, "x", 0, 1)), staged).body.uri
    client.transactions.transact(
        lambda conn: garbage.add(conn, [GarbageFile(waiting, shard, 1, 5)])
    )
    files = [GarbageFile(uri, shard, 7, 0) for uri in (named, waiting, orphan)]
    for _ in range(2):
        client.transactions.transact(lambda conn: garbage.adopt_orphans(conn, files, NOW_MS))
        with env.engine.begin() as conn:
            rows = conn.execute(select(garbage_table.c.uri, garbage_table.c.replaced_ms)).all()
        assert dict(map(tuple, rows)) == {waiting: 5, orphan: NOW_MS}


def test_a_name_is_recognised_however_its_directory_is_written(env):
    client = env.lead()
    shard = own_shard(client)
    named = file_append(client, shard, 0)
    other = named.replace("file:///", "file:/").replace("shards", "%73hards")
    client.transactions.transact(
        lambda conn: garbage.adopt_orphans(conn, [GarbageFile(other, shard, 1, 0)], NOW_MS)
    )
    assert listed(env) == []


def test_usage_counts_each_file_once(env):
    client = env.lead()
    shard, dropped, empty = own_shard(client), own_shard(client), own_shard(client)
    for time in range(3):
        file_append(client, shard, time)
    file_append(client, dropped, 0)
    replaced = [part.body.size_bytes for part in client.reads.parts(shard)]
    compacted(client, shard, 3, CompactionSettings(fan_in=3, inline_bytes=0))
    (part,) = client.reads.parts(shard)
    inline = inline_part(updates((1, "x", 3, 1)))
    client.commits.commit([Append(shard, 3, 4, (inline,))])
    drop(client, dropped)
    found = {each.shard_id: each for each in client.transactions.query(usage)}
    assert found[shard] == ShardUsage(
        shard,
        dropped=False,
        finalized=False,
        parts=2,
        rows=4,
        size_bytes=part.body.size_bytes + len(inline.body.ipc),
        garbage_bytes=sum(replaced),
    )
    assert (found[dropped].dropped, found[dropped].finalized) == (True, False)
    assert found[empty].parts == found[empty].size_bytes == 0
    client.maintenance.finalize(dropped)
    (gone,) = [each for each in client.transactions.query(usage) if each.shard_id == dropped]
    assert (gone.finalized, gone.parts, gone.size_bytes) == (True, 0, 0)
    assert gone.garbage_bytes == found[dropped].size_bytes


@pytest.mark.parametrize(
    ("uri", "directory"),
    [
        ("file:///e/shards/7/a.parquet", None),
        ("file:///e/shards/7/write-x/a.parquet", "file:///e/shards/7/write-x"),
        ("file:/e/shards/8/a.parquet", "file:/e/shards/8"),
        ("file:///e/shards/8/write-x/a.parquet", "file:///e/shards/8"),
        ("file:///e/shards/seven/a.parquet", None),
    ],
)
def test_directories_that_nobody_writes_to(uri, directory):
    assert garbage.abandoned(uri, lambda shard_id: shard_id == 8) == directory


def test_a_checksum_goes_with_its_file(env):
    client = env.lead()
    shard = own_shard(client)
    uri = file_append(client, shard, 0)
    path = path_of(uri)
    checksum = path.with_name(f".{path.name}.crc")
    checksum.write_bytes(b"crc")
    left = path.with_name(".other.parquet.crc")
    files = [GarbageFile(each.as_uri(), shard, 3, 0) for each in (path, checksum, left)]
    client.transactions.transact(lambda conn: garbage.adopt_orphans(conn, files, NOW_MS))
    assert listed(env) == [(left.as_uri(), False)]
    for _ in range(2):
        client.blobs.delete(uri)
    assert not path.exists()
    assert not checksum.exists()


# Tombstones


def test_i26_only_a_dropped_shard_is_finalized(env):
    client = env.lead()
    shard = own_shard(client)
    file_append(client, shard, 0)
    with pytest.raises(ValueError, match="in use"):
        client.maintenance.finalize(shard)
    with pytest.raises(UnknownShard):
        client.maintenance.finalize(shard + 1)
    assert contents(client, shard, 0) == [(0, "x")]


@pytest.mark.parametrize("shares_tables_upper", [False, True])
def test_i28_finalizing_is_idempotent_and_goes_on_after_a_crash(env, shares_tables_upper):
    client = env.lead()
    shard, other = (
        (table_shard(client) if shares_tables_upper else own_shard(client)),
        own_shard(client),
    )
    uris = set()
    for time in range(5):
        part = file_part(
            client.blobs, updates((time, "x", time, 1)), client.files.shard_directory(shard)
        )
        uris.add(part.body.uri)
        if shares_tables_upper:
            client.commits.commit([], tables=TablesAppend(time, time + 1, {shard: (part,)}))
        else:
            client.commits.commit([Append(shard, time, time + 1, (part,))])
    assert client.reads.unfinalized() == ()
    drop(client, shard)
    drop(client, shard)
    client = reopened(env, client)
    assert client.reads.unfinalized() == (shard,)
    assert contents(client, shard, 4) == [(n, "x") for n in range(5)]
    assert not client.maintenance.finalize(shard, limit=2)
    client = reopened(env, client)
    assert client.reads.unfinalized() == (shard,)
    assert not client.maintenance.finalize(shard, limit=2)
    for _ in range(2):
        assert client.maintenance.finalize(shard, limit=2)
        client = reopened(env, client)
        assert client.reads.unfinalized() == ()
        state = client.reads.state(shard)
        assert (state.since, state.upper) == (TIMESTAMP_MAX, TIMESTAMP_MAX)
        assert client.reads.parts(shard) == ()
        drop(client, shard)
        assert client.reads.unfinalized() == ()
    assert {uri for uri, _ in listed(env)} == uris
    with env.engine.begin() as conn:
        assert conn.scalar(select(func.count()).select_from(parts_table)) == 0
        assert conn.scalar(select(func.count()).select_from(shards_table)) == 2
    assert shard not in client.reads.shard_ids()
    with pytest.raises(UnknownShard):
        client.commits.commit([Append(shard, TIMESTAMP_MAX, TIMESTAMP_MAX, ())])
    assert other in client.reads.shard_ids()


def test_dropping_an_unknown_shard_is_refused(env):
    client = env.lead()
    with pytest.raises(UnknownShard):
        client.transactions.transact(lambda conn: client.definitions.drop_shard(conn, 7))


# Fencing (decision 0007: the environment's epoch is the token of every critical reader)


def test_i19_an_older_epoch_downgrades_no_since(env):
    old = env.lead()
    shard = own_shard(old)
    for time in range(4):
        file_append(old, shard, time)
    new = reopened(env, old)
    for attempt in (
        lambda: old.maintenance.set_since({shard: 3}),
        lambda: compacted(old, shard, 3),
    ):
        with pytest.raises(Fenced):
            attempt()
    assert new.reads.state(shard).since == 0
    assert reopened(env, new).reads.state(shard).since == 0


def test_i20_a_since_that_is_not_forward_changes_nothing(env):
    client = env.lead()
    shard = own_shard(client)
    client.maintenance.set_since({shard: 5})
    client.maintenance.set_since({shard: 3})
    for time in range(4):
        file_append(client, shard, time)
    assert compacted(client, shard, 2) > 0
    assert client.reads.state(shard).since == 5
    assert reopened(env, client).reads.state(shard).since == 5


def test_i6_and_i7_of_many_appends_with_one_expectation_one_succeeds(env):
    client = env.lead()
    shard = own_shard(client)
    part = inline_part(updates((1, "a", 3, 1)))
    outcomes = []
    for lower in (1, 0, 0, 5):
        try:
            client.commits.commit([Append(shard, lower, lower + 5, (part,) if lower < 4 else ())])
            outcomes.append(lower)
        except UpperMismatch as mismatch:
            outcomes.append(mismatch.actual)
    assert outcomes == [0, 0, 5, 5]
    assert contents(client, shard, 9) == [(1, "a")]


# The clock


def test_a_steady_clock_does_not_go_back():
    times = iter([5, 9, 3, 10])
    clock = SteadyClock(lambda: next(times))
    assert [clock() for _ in range(4)] == [5, 9, 9, 10]


def test_discarded_files_are_deleted(env):
    client = env.lead()
    shard = own_shard(client)
    part = file_part(client.blobs, updates((1, "x", 0, 1)), client.files.shard_directory(shard))
    client.files.discard([part, inline_part(updates((1, "x", 0, 1)))])
    assert isinstance(part.body, FileBody)
    assert not os.path.exists(path_of(part.body.uri))
