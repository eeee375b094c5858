"""What commits, concurrent appends and compacted snapshots cost.

On the embedded metastore, unless a figure names PostgreSQL.
"""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tests.bench.figure import Figure
from tests.support.persist.persistence import compacted, new_environment, own_shard, updates
from tests.support.persist.postgres import running_server

from slackwater.persist.blobs import file_part, inline_part
from slackwater.persist.client import Append
from slackwater.persist.compaction import CompactionSettings

SHARDS = 10
ROUNDS = 300
APPENDS = 200
SMALL_COMMITS = 10_000
READS = 15


@contextmanager
def leading(url, folder):
    environment = new_environment(url, folder)
    yield environment.lead()
    environment.engine.dispose()


def embedded(folder):
    return leading(f"sqlite:///{folder}/metastore.sqlite", folder)


def commits(folder):
    """compare-and-append of a small batch over several shards, in one transaction."""
    with embedded(folder) as client:
        yield _commits(client, "commit_p50", "SQLite", 5)
    with (
        running_server(fsync=True) as server,
        leading(server.new_database(), folder / "postgres") as client,
    ):
        yield _commits(client, "postgres_commit_p50", "PostgreSQL", 8)


def _commits(client, name, metastore, target_ms):
    shards = [own_shard(client) for _ in range(SHARDS)]
    took = []
    for number in range(ROUNDS):
        part = inline_part(updates(*((key, "value", number, 1) for key in range(5))))
        appends = [Append(shard, number, number + 1, (part,)) for shard in shards]
        began = time.perf_counter()
        client.commits.commit(appends)
        took.append((time.perf_counter() - began) * 1000)
    p50 = statistics.median(took[ROUNDS // 10 :])
    what = f"compare-and-append over {SHARDS} shards on {metastore}, p50"
    return Figure(name, what, "ms", target_ms, p50)


def appends(folder):
    """Many writers at once, each with a shard of its own."""
    with embedded(folder) as client:
        shards = [own_shard(client) for _ in range(APPENDS)]
        parts = [client.files.new_parts(shard, updates((shard, "value", 0, 1))) for shard in shards]

        def append(index):
            client.commits.commit([Append(shards[index], 0, 1, parts[index])])

        with ThreadPoolExecutor(APPENDS) as pool:
            began = time.perf_counter()
            list(pool.map(append, range(APPENDS)))
            took = time.perf_counter() - began
        yield Figure("appends", f"{APPENDS} concurrent appends to different shards", "s", 1, took)


def compaction(folder):
    """A snapshot after many small commits, against the same rows in one file."""
    with embedded(folder) as client:
        small, whole = own_shard(client), own_shard(client)
        settings = CompactionSettings()
        for number in range(SMALL_COMMITS):
            part = inline_part(updates((number, f"value {number}", number, 1)))
            client.commits.commit([Append(small, number, number + 1, (part,))])
            # As the maintenance thread does, between the commits.
            if number % 500 == 499:
                compacted(client, small, number, settings)
        rows = updates(*((key, f"value {key}", 0, 1) for key in range(SMALL_COMMITS)))
        part = file_part(client.blobs, rows, client.files.shard_directory(whole))
        client.commits.commit([Append(whole, 0, SMALL_COMMITS, (part,))])
        as_of = SMALL_COMMITS - 1
        assert (
            client.reads.snapshot(small, as_of).num_rows
            == client.reads.snapshot(whole, as_of).num_rows
        )
        ours, plain = [], []
        for _ in range(READS):
            ours.append(seconds(lambda: client.reads.snapshot(small, as_of)))
            plain.append(seconds(lambda: client.reads.snapshot(whole, as_of)))
        ratio = statistics.median(ours) / statistics.median(plain)
        yield Figure(
            "compacted_ratio",
            f"snapshot after {SMALL_COMMITS} small commits, against one file",
            "x",
            1.3,
            ratio,
        )


def seconds(call):
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
