"""A sink's process is stopped inside a range, another one takes over, the first goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from tests.support.persist.persistence import new_environment, updates

from slackwater.repr.frontier import Frontier
from slackwater.repr.relation import RelationDesc
from slackwater.storage.sink_files import FilesSink, SinkConfig
from slackwater.storage.sink_folder import Claim

_WRITER = """
import os, signal, sys
from pathlib import Path
from slackwater.persist.blobs import LocalBlobs
from slackwater.persist.client import PersistClient
from slackwater.persist.leadership import Fenced
from slackwater.persist.metastore import connect
from slackwater.storage.sink_files import LocalFileSystem
from tests.chaos.test_sink_stopped import opened, write

url, location, folder, operation, where = sys.argv[1:]

class Stopping:
    armed = False

    def __init__(self):
        self.inner = LocalFileSystem()

    def __getattr__(self, name):
        def call(*arguments):
            if self.armed and name == operation and where in str(arguments):
                self.armed = False
                os.kill(os.getpid(), signal.SIGSTOP)
            return getattr(self.inner, name)(*arguments)
        return call

files = Stopping()
client = PersistClient(connect(url), LocalBlobs(Path(location)), 1)
sink = opened(folder, client, files)
write(sink, 0, 3)
files.armed = True
try:
    write(sink, 3, 5)
    write(sink, 5, 9)
except Fenced as fenced:
    print(fenced)
"""

# Every other place: tests/property/test_storage_sinks.py.
PLACES = [
    ("link", "-0.jsonl"),
    ("link", "commits"),
    ("replace", "manifest.json"),
]


def opened(folder, client, files=None):
    return FilesSink(
        SinkConfig(str(folder), "JSON"),
        RelationDesc.of(k="integer", v="string"),
        Claim("u7", "s", client.transactions.epoch, client.transactions.confirm_leadership),
        clock=lambda: 0,
        files=files,
    )


def write(sink, lower, upper):
    rows = [updates(*((time, "x", time, 1) for time in range(12)))]
    sink.write(Frontier(lower), Frontier(upper), rows)


def followed(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    assert {each.name for each in folder.glob("*.jsonl")} == {f["path"] for f in manifest["files"]}
    lines = [
        json.loads(line)
        for file in manifest["files"]
        for line in (folder / file["path"]).read_text().splitlines()
    ]
    return manifest["frontier"], [line["k"] for line in lines]


@pytest.mark.parametrize(("operation", "where"), PLACES)
def test_a_writer_that_was_stopped_changes_nothing(tmp_path, operation, where):
    env = new_environment(f"sqlite:///{tmp_path}/metastore.db", tmp_path / "environment")
    folder = tmp_path / "out"
    env.lead()
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, env.url, env.location, str(folder), operation, where],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as writer:
        _, status = os.waitpid(writer.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        sink = opened(folder, env.lead(expected_epoch=1))
        write(sink, sink.frontier.value, 6)
        seen = followed(folder)
        assert seen == (6, list(range(6)))
        os.kill(writer.pid, signal.SIGCONT)
        said = writer.stdout.read()
    assert (writer.returncode, said) == (0, "epoch 1 is fenced by epoch 2\n")
    assert followed(folder) == seen
    write(sink, 6, 12)
    assert followed(folder) == (12, list(range(12)))
    env.engine.dispose()
