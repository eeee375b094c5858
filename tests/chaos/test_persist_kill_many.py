"""A leader with eight writers, compaction and garbage collection is killed, again and again.

Nothing that was acknowledged is lost, nothing is doubled, and every file that is named is there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest
from sqlalchemy import select
from tests.support.persist.persistence import own_shard, table_shard

from slackwater.persist.parts import FileBody
from slackwater.persist.tables import garbage
from slackwater.persist.uris import local_path

WRITERS = 8

_LEADER = """
import os, sys, threading
from slackwater.persist import garbage
from slackwater.persist.blobs import LocalBlobs, file_part, inline_part
from slackwater.persist.client import Append, PersistClient, UpperMismatch, WriteResult
from slackwater.persist.compaction import Compactor, choose
from slackwater.persist.metastore import connect
from pathlib import Path
from tests.support.persist.persistence import EAGER, updates

url, location, epoch, first, *shards = sys.argv[1:]
shards = [int(shard) for shard in shards]
client = PersistClient(connect(url), LocalBlobs(Path(location)), int(epoch))
lock = threading.Lock()

def say(text):
    with lock:
        os.write(1, (text + "\\n").encode())

def write(writer):
    # Neighbours share half of their shards.
    mine = [shards[(writer + n) % len(shards)] for n in range(4)]
    number = int(first)
    while True:
        write_id = f"{writer}-{number}"
        key = writer * 1_000_000 + number
        while True:
            uppers = {shard: client.reads.state(shard).upper for shard in mine}
            appends = []
            for shard, upper in uppers.items():
                rows = updates((key, "x" * 40, upper, 1), (key, "t", upper, 1))
                again = updates((key, "t", upper + 1, -1))
                part = inline_part(rows)
                if number % 3 == 0:
                    part = file_part(client.blobs, rows, client.files.shard_directory(shard))
                appends.append(Append(shard, upper, upper + 2, (part, inline_part(again))))
            try:
                client.commits.commit(appends, write_ids={write_id: WriteResult(key, 1, 0)})
                break
            except UpperMismatch:
                continue
        say(write_id)
        number += 1

def maintain():
    while True:
        for shard in shards:
            since = max(0, client.reads.state(shard).upper - 3)
            merge = choose(client.reads.parts(shard), since, EAGER)
            if merge is not None:
                Compactor(client, EAGER).compact(shard, merge, since)
            client.transactions.transact(
                lambda conn: garbage.mark_for_deletion(conn, shard, 2**62, 5)
            )
        for uri in client.transactions.query(lambda conn: garbage.marked_for_deletion(conn, 5)):
            client.blobs.delete(uri)
            client.transactions.transact(lambda conn: garbage.forget(conn, [uri]))

threads = [threading.Thread(target=write, args=(n,), daemon=True) for n in range(8)]
threads.append(threading.Thread(target=maintain, daemon=True))
for thread in threads:
    thread.start()
threads[0].join()
"""


@pytest.mark.parametrize("rounds", [4])
@pytest.mark.nightly
def test_eight_writers_over_shared_shards_survive_kills(env, rounds):
    client = env.lead()
    shards = [own_shard(client) for _ in range(WRITERS)]
    idle = table_shard(client)
    acknowledged: set[str] = set()
    for number in range(rounds):
        acknowledged |= killed(env, number + 1, number * 10_000, shards, 40 + 30 * number)
        client = env.lead(expected_epoch=number + 1)
        check(env, client, shards, acknowledged)
    assert client.reads.parts(idle) == ()


def killed(env, epoch, first, shards, lines) -> set[str]:
    """Runs a leader until it has said so many lines, and kills it; what it acknowledged."""
    arguments = [env.url, env.location, str(epoch), str(first), *map(str, shards)]
    said: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-c", _LEADER, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as leader:
        for line in leader.stdout:
            said.append(line)
            if len(said) == lines:
                leader.kill()
    assert len(said) >= lines
    return {line.strip() for line in said if line.endswith("\n")}


def check(env, client, shards, acknowledged):
    found = {
        shard: Counter(
            client.reads.snapshot(shard, client.reads.state(shard).upper - 1)["k"].to_pylist()
        )
        for shard in shards
    }
    keys = set().union(*found.values())
    for write_id in acknowledged | {f"{k // 1_000_000}-{k % 1_000_000}" for k in keys}:
        writer, number = map(int, write_id.split("-"))
        key = writer * 1_000_000 + number
        assert client.commits.written(write_id).timestamp == key
        # Once in each of its shards, and in no other.
        mine = {shards[(writer + n) % WRITERS] for n in range(4)}
        assert {shard: found[shard][key] for shard in shards} == {
            shard: int(shard in mine) for shard in shards
        }, write_id
    for shard in shards:
        for part in client.reads.parts(shard):
            if isinstance(part.body, FileBody):
                assert local_path(part.body.uri).exists()
    with env.engine.begin() as conn:
        condemned = conn.scalars(select(garbage.c.uri).where(garbage.c.condemned)).all()
    named = {
        part.body.uri
        for shard in shards
        for part in client.reads.parts(shard)
        if isinstance(part.body, FileBody)
    }
    assert not named & set(condemned)
