"""Eight writers on overlapping sets of shards while processes are killed and the server restarts.

Nothing acknowledged is lost, nothing is doubled, and no commit is half there. Longer, or the same
again: `SLACKWATER_CHAOS_ROUNDS` and `SLACKWATER_CHAOS_SEED`.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections import Counter, defaultdict

import pytest
from tests.support.persist.persistence import (
    DESC,
    contents,
    new_environment,
    own_shard,
    table_shard,
)
from tests.support.waiting import PATIENCE, wait_until

from slackwater.repr.frontier import TIMESTAMP_MAX
from slackwater.repr.relation import TIME_COLUMN

ROUNDS = int(os.environ.get("SLACKWATER_CHAOS_ROUNDS", "3"))
SEED = os.environ.get("SLACKWATER_CHAOS_SEED", "20130101")


class Writers:
    """The process of the writers, and what it said."""

    def __init__(self, env, epoch):
        self.tried: dict[int, list[int]] = {}
        self.acknowledged: set[int] = set()
        self.errors: list[str] = []
        arguments = [env.url, env.location, str(epoch), SEED]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.shard_writers", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self):
        for line in self.process.stdout:
            match line.split():
                case ["try", row, shards] if line.endswith("\n"):
                    self.tried[int(row)] = [int(shard) for shard in shards.split(",")]
                case ["ack", row] if line.endswith("\n"):
                    self.acknowledged.add(int(row))
                case ["error", _, condition]:
                    self.errors.append(condition)

    def wait_for(self, more):
        """Until so many further commits were acknowledged."""
        wanted = len(self.acknowledged) + more

        def reached():
            assert self.process.poll() is None, "the writers ended"
            return len(self.acknowledged) >= wanted

        wait_until(reached, what=f"{wanted} acknowledged commits")

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE)
        self._listener.join(PATIENCE)


def check(client, tried, acknowledged):
    """Every commit is in all of its shards exactly once, or in none of them."""
    found = defaultdict(set)
    for shard in client.reads.shard_ids():
        rows = Counter(row for row, _ in contents(client, shard, TIMESTAMP_MAX))
        assert set(rows.values()) <= {1}
        # Each append begins at the upper that the one before has left: so no two share a time.
        updates = client.reads.read(client.reads.parts_between(shard, 0, TIMESTAMP_MAX), DESC)
        assert len(set(updates.column(TIME_COLUMN).to_pylist())) == updates.num_rows == len(rows)
        for row in rows:
            found[row].add(shard)
    assert acknowledged <= set(found)
    for row, shards in found.items():
        assert shards == set(tried[row])
    for row in tried:
        assert (client.commits.written(f"w{row}") is not None) == (row in found)


def shards_of(client):
    for _ in range(4):
        own_shard(client)
        table_shard(client)


@pytest.mark.nightly
def test_i07_i29_killed_in_a_loop(env):
    client = env.lead()
    shards_of(client)
    pick = random.Random(SEED)
    tried, acknowledged = {}, set()
    for epoch in range(2, 2 + ROUNDS):
        env.lead(expected_epoch=epoch - 1)
        writers = Writers(env, epoch)
        try:
            writers.wait_for(pick.randint(20, 120))
        finally:
            writers.kill()
        tried |= writers.tried
        acknowledged |= writers.acknowledged
        assert writers.errors == []
    check(env.lead(expected_epoch=1 + ROUNDS), tried, acknowledged)


@pytest.mark.postgres
@pytest.mark.nightly
def test_i07_i08_i29_the_server_restarts_under_load(postgres, tmp_path):
    env = new_environment(postgres.new_database(), tmp_path)
    shards_of(env.lead())
    writers = Writers(env, 1)
    pick = random.Random(SEED)
    try:
        for _ in range(ROUNDS):
            writers.wait_for(pick.randint(20, 120))
            postgres.restart()
        writers.wait_for(50)
    finally:
        writers.kill()
    assert writers.errors == []
    check(env.lead(expected_epoch=1), writers.tried, writers.acknowledged)
    env.engine.dispose()
