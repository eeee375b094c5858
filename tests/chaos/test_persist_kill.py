"""A leader is killed in the middle of its commits; another one opens the environment."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.support.persist.persistence import contents, own_shard, table_shard

_WRITER = """
import sys
from pathlib import Path
from slackwater.persist.blobs import LocalBlobs, file_part
from slackwater.persist.client import Append, PersistClient, TablesAppend, WriteResult
from slackwater.persist.metastore import connect
from tests.support.persist.persistence import compacted, updates
url, location, epoch, own, table = sys.argv[1:]
own, table = int(own), int(table)
client = PersistClient(connect(url), LocalBlobs(Path(location)), int(epoch))
time = client.reads.tables_upper()
while True:
    rows = updates((time, "x", time, 1))
    part = file_part(client.blobs, rows, client.files.shard_directory(own))
    client.commits.commit(
        [Append(own, time, time + 1, (part,))],
        tables=TablesAppend(time, time + 1, {table: client.files.new_parts(table, rows)}),
        write_ids={f"w{time}": WriteResult(time, 1, 0)},
    )
    compacted(client, table, 0)
    time += 1
    print(time, flush=True)
"""


@pytest.mark.parametrize("commits", [pytest.param(1, marks=pytest.mark.nightly), 70])
def test_nothing_acknowledged_is_lost_and_nothing_is_half_done(env, commits):
    client = env.lead()
    own, table = own_shard(client), table_shard(client)
    for epoch in (1, 2):
        arguments = [env.url, env.location, str(epoch), str(own), str(table)]
        with subprocess.Popen(
            [sys.executable, "-c", _WRITER, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        ) as writer:
            for _ in range(commits):
                acknowledged = int(writer.stdout.readline())
            writer.kill()
            # What was printed before the kill was acknowledged as well.
            for line in writer.stdout:
                if line.endswith("\n"):
                    acknowledged = int(line)
        client = env.lead(expected_epoch=epoch)
        upper = client.reads.tables_upper()
        assert acknowledged <= upper <= acknowledged + 1
        assert client.reads.state(own).upper == upper
        expected = sorted([(n, "x") for n in range(upper)], key=repr)
        assert contents(client, own, upper) == expected
        assert contents(client, table, upper) == expected
        assert client.commits.written(f"w{upper - 1}").timestamp == upper - 1
        assert client.commits.written(f"w{upper}") is None
