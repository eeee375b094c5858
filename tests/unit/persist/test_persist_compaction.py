"""Compaction: what is merged, what it costs, and that reads stay the same."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import select
from tests.support.persist.persistence import (
    DESC,
    EAGER,
    compacted,
    contents,
    own_shard,
    table_shard,
    updates,
)

from slackwater.compute.compaction import rewriting_query
from slackwater.persist import blobs
from slackwater.persist.client import Append, TablesAppend
from slackwater.persist.compaction import (
    UNIT_LIMIT,
    CompactionSettings,
    Compactor,
    choose,
    is_large,
    merged,
    part_bytes,
)
from slackwater.persist.leadership import Fenced, current_leader
from slackwater.persist.parts import FileBody, InlineBody, NewPart, Part, Uniform
from slackwater.persist.tables import garbage
from slackwater.repr.relation import RelationDesc

SETTINGS = CompactionSettings()


def append(client, shard, lower, upper, *rows):
    client.commits.commit(
        [Append(shard, lower, upper, client.files.new_parts(shard, updates(*rows)))]
    )


def reopened(env, client):
    return env.lead(expected_epoch=current_leader(env.engine).epoch)


def listed(env):
    with env.engine.begin() as conn:
        return set(conn.scalars(select(garbage.c.uri)))


def spark_part(client, shard, time, keys, name) -> NewPart:
    folder = blobs.local_path(client.files.staging_directory(shard, name))
    folder.mkdir(parents=True)
    path = folder / f"{name}.parquet"
    pq.write_table(pa.table({"k": pa.array(keys, pa.int32()), "v": ["s"] * len(keys)}), path)
    body = FileBody(path.as_uri(), path.stat().st_size, 0, Uniform(time, 1))
    return NewPart(body, len(keys), time, time, False)


def test_i3_reads_at_and_after_the_since_stay_the_same(env):
    client = env.lead()
    shard = own_shard(client)
    for time in range(40):
        rows = [(time, "x", time, 1), (7, "y", time, 1)]
        if time % 3 == 2:
            rows.append((time - 1, "x", time, -1))
        append(client, shard, time, time + 1, *rows)
    expected = [contents(client, shard, time) for time in range(40)]
    held = client.reads.parts_at(shard, 39)
    assert compacted(client, shard, 30) > 0
    for reader in (client, None):
        reader = reader or reopened(env, client)
        assert reader.reads.state(shard).since == 30
        assert [contents(reader, shard, time) for time in range(30, 40)] == expected[30:]
        # Who reads on from a frontier after the since finds the same changes.
        for time in range(31, 40):
            found = reader.reads.read(
                reader.reads.parts_between(shard, time, time + 1), DESC, lower=time, upper=time + 1
            )
            assert set(found["k"].to_pylist()) >= {time, 7}
        assert len(reader.reads.parts(shard)) < 12
    # What a reader had got before stays readable.
    assert client.reads.read(held, DESC).num_rows == 93


def test_rows_without_retractions_stay_rows_of_their_own(env):
    client = env.lead()
    shard = own_shard(client)
    for time in range(10):
        append(client, shard, time, time + 1, (1, "a", time, 1))
    compacted(client, shard, 9)
    (part,) = client.reads.parts_at(shard, 9)
    assert (part.rows, part.has_retractions) == (10, False)


def test_what_was_taken_back_is_gone_and_few_copies_need_no_summing():
    rows = updates(
        (1, "a", 1, 1),
        (1, "a", 2, -1),
        (2, "b", 1, 3),
        (3, "c", 1, UNIT_LIMIT + 1),
        (0, "z", 5, 1),
    )
    part = NewPart(InlineBody(b""), 5, 1, 5, True)
    result = merged(rows, [part], 4).to_pylist()
    counts = [(row["k"], row["__time"], row["__diff"]) for row in result]
    assert counts == [(2, 4, 1), (2, 4, 1), (2, 4, 1), (3, 4, UNIT_LIMIT + 1), (0, 5, 1)]


def test_rows_are_sorted_and_files_have_statistics(env):
    client = env.lead()
    shard = own_shard(client)
    for time in range(8):
        append(client, shard, time, time + 1, *((k, "x" * 50, time, 1) for k in range(30 - time)))
    compacted(client, shard, 8)
    (part,) = client.reads.parts(shard)
    assert isinstance(part.body, FileBody)
    with pq.ParquetFile(blobs.local_path(part.body.uri)) as file:
        keys = file.read()["k"].to_pylist()
        assert keys == sorted(keys)
        statistics = file.metadata.row_group(0).column(0).statistics
        assert (statistics.min, statistics.max) == (0, 29)


def test_a_uniform_part_and_its_negation_go_unread_and_their_file_becomes_garbage(env):
    client = env.lead()
    shard = own_shard(client)
    client.commits.commit([Append(shard, 0, 2, (spark_part(client, shard, 1, [1, 2], "s"),))])
    client.commits.commit([Append(shard, 2, 6, client.reads.negation(shard, 5).at(5))])
    (first, second) = client.reads.parts(shard)
    path = blobs.local_path(first.body.uri)
    path.unlink()
    assert choose([first, second], 4, SETTINGS) is None
    merge = choose([first, second], 5, SETTINGS)
    assert (merge.removed, merge.read) == ((first, second), ())
    assert Compactor(client, SETTINGS).compact(shard, merge, 5)
    assert client.reads.parts(shard) == ()
    assert contents(client, shard, 5) == []
    assert listed(env) == {first.body.uri}


def test_a_file_that_a_later_negation_names_stays(env):
    client = env.lead()
    shard = own_shard(client)
    for number in range(3):
        part = spark_part(client, shard, number, [number], f"s{number}")
        client.commits.commit([Append(shard, number, number + 1, (part,))])
    negation = client.reads.negation(shard, 5).at(5)
    compacted(client, shard, 3)
    assert len(listed(env)) == 3
    client.commits.commit([Append(shard, 3, 6, negation)])
    assert listed(env) == set()
    for reader in (client, None):
        reader = reader or reopened(env, client)
        assert contents(reader, shard, 4) == [(0, "s"), (1, "s"), (2, "s")]
        assert contents(reader, shard, 5) == []


def test_a_merge_whose_parts_are_gone_is_thrown_away(env):
    client = env.lead()
    shard = own_shard(client)
    for time in range(5):
        append(client, shard, time, time + 1, *((k, "x" * 99, time, 1) for k in range(9)))
    merge = choose(client.reads.parts(shard), 5, EAGER)
    assert Compactor(client, EAGER).compact(shard, merge, 5)
    folder = blobs.local_path(client.files.shard_directory(shard))
    files = set(folder.iterdir())
    assert not Compactor(client, EAGER).compact(shard, merge, 9)
    assert set(folder.iterdir()) == files
    assert client.reads.state(shard).since == 5
    assert len(contents(client, shard, 5)) == 45


def test_a_fenced_leader_replaces_nothing(env):
    client = env.lead()
    shard = own_shard(client)
    for time in range(5):
        append(client, shard, time, time + 1, (time, "x", time, 1))
    merge = choose(client.reads.parts(shard), 5, EAGER)
    later = reopened(env, client)
    with pytest.raises(Fenced):
        Compactor(client, EAGER).compact(shard, merge, 5)
    assert len(later.reads.parts(shard)) == 5
    assert later.reads.state(shard).since == 0


def test_a_dropped_shard_is_not_merged(env):
    client = env.lead()
    shard = own_shard(client)
    for time in range(5):
        append(client, shard, time, time + 1, (time, "x", time, 1))
    merge = choose(client.reads.parts(shard), 5, EAGER)
    client.transactions.transact(lambda conn: client.definitions.drop_shard(conn, shard))
    assert not Compactor(client, EAGER).compact(shard, merge, 5)


def test_merging_while_others_append(env):
    client = env.lead()
    shard = own_shard(client)
    appended = threading.Semaphore(0)

    def merge():
        done = 0
        for _ in range(200):
            appended.acquire()
            chosen = choose(client.reads.parts(shard), 0, EAGER)
            done += bool(chosen) and Compactor(client, EAGER).compact(shard, chosen, 0)
        return done

    with ThreadPoolExecutor(1) as pool:
        merging = pool.submit(merge)
        for time in range(200):
            append(client, shard, time, time + 1, (time, "x", time, 1))
            appended.release()
        assert merging.result() >= 10
    expected = sorted([(n, "x") for n in range(200)], key=repr)
    for reader in (client, None):
        reader = reader or reopened(env, client)
        assert contents(reader, shard, 200) == expected


def test_parts_from_before_a_new_column_are_merged_with_null(env):
    client = env.lead()
    shard = table_shard(client)
    for time in range(4):
        parts = client.files.new_parts(shard, updates((time, "x", time, 1)))
        client.commits.commit([], tables=TablesAppend(time, time + 1, {shard: parts}))
    wider = RelationDesc((*DESC.columns, *RelationDesc.of(w="double").columns))
    client.transactions.transact(lambda conn: client.definitions.set_desc(conn, shard, wider, DESC))
    assert compacted(client, shard, 3) > 0
    assert contents(client, shard, 3) == [(n, "x", None) for n in range(4)]


# The choice alone


def part(number, size, time, *, rows=None, retractions=False, inline=False, uniform=None):
    body = InlineBody(b"x" * size) if inline else FileBody(f"f{number}", size, 0, uniform)
    low, high = time if isinstance(time, tuple) else (time, time)
    return Part(number, 1, low, high + 1, body, rows or size, low, high, retractions)


KIB, MIB = 1024, 1024 * 1024


def test_nothing_is_merged_below_the_fan_in():
    few = [part(n, 100, n, inline=True) for n in range(63)]
    assert choose(few, 100, SETTINGS) is None
    assert choose([*few, part(63, 100, 63, inline=True)], 100, SETTINGS) is not None
    files = [part(n, KIB, n) for n in range(7)]
    assert choose(files, 100, SETTINGS) is None
    assert choose([*files, part(7, KIB, 7)], 100, SETTINGS) is not None


@pytest.mark.parametrize("since", [0, 10**9])
@pytest.mark.parametrize("size", [60 * KIB, 300 * KIB, 1900 * KIB])
def test_readers_are_never_sent_many_bytes_in_inline_parts(since, size):
    parts, most = [], 0
    for number in range(300):
        parts.append(part(number, size, number, inline=True))
        while (merge := choose(parts, since, SETTINGS)) is not None:
            removed = {p.part_id for p in merge.removed}
            low = min(p.min_time for p in merge.removed)
            high = max(p.max_time for p in merge.removed)
            parts = [p for p in parts if p.part_id not in removed]
            parts.append(part(10**6 + number, merge.bytes, (low, high)))
        inline = [p for p in parts if isinstance(p.body, InlineBody)]
        most = max(most, sum(part_bytes(p) for p in inline))
    assert most <= SETTINGS.inline_level_bytes + blobs.INLINE_LIMIT_BYTES


def test_parts_of_the_target_size_are_left_alone():
    large = [part(n, 100 * MIB, n) for n in range(50)]
    assert choose(large, 100, SETTINGS) is None
    small = [part(100 + n, 100, n) for n in range(8)]
    assert {p.part_id for p in choose([*large, *small], 100, SETTINGS).removed} == {
        p.part_id for p in small
    }


def test_a_merge_that_fills_the_next_level_takes_it_along():
    middle = [part(n, 400 * KIB, 0) for n in range(7)]
    small = [part(10 + n, 40 * KIB, 0) for n in range(8)]
    assert len(choose([*middle, *small], 5, SETTINGS).removed) == 15


def test_unsettled_parts_are_merged_with_neighbours_only():
    early = [part(n, KIB, n) for n in range(5)]
    wall = part(5, 100 * MIB, 5)
    late = [part(n, KIB, n) for n in range(6, 11)]
    assert choose([*early, wall, *late], 0, SETTINGS) is None
    late += [part(n, KIB, n) for n in range(11, 15)]
    chosen = choose([*early, wall, *late], 0, SETTINGS)
    assert {p.part_id for p in chosen.removed} == {p.part_id for p in late}
    # Once they are settled nothing keeps them apart.
    assert len(choose([*early, wall, *late], 20, SETTINGS).removed) == 14


def test_many_retractions_are_worth_reading_everything():
    base = part(0, 90 * MIB, 0, rows=1_000_000)
    few = part(1, MIB, 1, rows=10_000, retractions=True)
    assert choose([base, few], 5, SETTINGS) is None
    many = part(1, 40 * MIB, 1, rows=400_000, retractions=True)
    assert len(choose([base, many], 5, SETTINGS).removed) == 2
    assert choose([base, many], 0, SETTINGS) is None
    deleted = part(1, 90 * MIB, 1, rows=900_000, retractions=True, uniform=Uniform(1, -1))
    assert len(choose([base, deleted], 5, SETTINGS).removed) == 2
    # The result of such a merge is not merged again and again.
    copies = [replace(base, part_id=n, has_retractions=True) for n in range(2)]
    assert choose(copies, 5, SETTINGS) is None


def test_what_is_large_is_left_to_a_rewriter():
    small = [part(n, 7 * MIB, 0, rows=10) for n in range(8)]
    assert not is_large(choose(small, 1, SETTINGS), SETTINGS)
    large = [part(n, 9 * MIB, 0, rows=10) for n in range(8)]
    assert is_large(choose(large, 1, SETTINGS), SETTINGS)
    long = [part(n, MIB, 0, rows=300_000) for n in range(8)]
    assert is_large(choose(long, 1, SETTINGS), SETTINGS)


@pytest.mark.parametrize("since", [0, 10**9])
def test_write_amplification_and_the_number_of_parts_are_logarithmic(since):
    parts, written, appended, most = [], 0, 0, 0
    for number in range(4_000):
        parts.append(part(number, 500, number, inline=True))
        appended += 500
        while (merge := choose(parts, since, SETTINGS)) is not None:
            removed = {p.part_id for p in merge.removed}
            size = sum(part_bytes(p) for p in merge.read)
            written += size
            low = min(p.min_time for p in merge.removed)
            high = max(p.max_time for p in merge.removed)
            parts = [p for p in parts if p.part_id not in removed]
            parts.append(
                part(10**6 + number, size, (low, high), inline=size < SETTINGS.inline_bytes)
            )
        most = max(most, len(parts))
    assert most <= SETTINGS.inline_fan_in + 5 * SETTINGS.fan_in
    assert written / appended <= 5


def test_the_query_of_a_large_merge():
    desc = RelationDesc.from_json(
        '{"type":"struct","fields":['
        '{"name":"a b","type":"integer","nullable":true,"metadata":{}},'
        '{"name":"m","type":{"type":"map","keyType":"string","valueType":"long",'
        '"valueContainsNull":true},"nullable":true,"metadata":{}}]}'
    )
    plain = rewriting_query(desc, "v", False, 3)
    assert plain == (
        "SELECT /*+ REPARTITION_BY_RANGE(3, `a b`) */ `a b`, `m`, __time, __diff FROM "
        "(SELECT `a b`, `m`, __time, __diff FROM v) SORT BY `a b`, __time"
    )
    assert rewriting_query(desc, "v", True, 3) == (
        "SELECT /*+ REPARTITION_BY_RANGE(3, `a b`) */ `a b`, `m`, __time, __diff FROM "
        "(SELECT `a b`, `m`, __time, EXPLODE(IF(__diff BETWEEN 2 AND "
        f"{UNIT_LIMIT}, array_repeat(1L, CAST(__diff AS INT)), array(__diff))) AS __diff "
        "FROM v) SORT BY `a b`, __time"
    )
