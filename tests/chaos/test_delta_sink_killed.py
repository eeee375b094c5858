"""A sink's process is killed, or stopped, around a commit to a Delta table; another goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from slackwater.adapter.external.delta import DeltaTarget
from slackwater.adapter.external.delta_folder import DeltaFolder
from slackwater.repr.frontier import Frontier
from slackwater.repr.relation import RelationDesc
from slackwater.storage.lake.changes import LakeRows
from slackwater.storage.lake.config import DeltaPlace, LakeSinkConfig
from slackwater.storage.lake.sink import LakeSink, SinkTable
from slackwater.storage.sink_folder import Claim

DESC = RelationDesc.of(k="long", v="string")
RANGES = [(0, 3), (3, 5), (5, 6)]

_WRITER = """
import os, signal, sys
from slackwater.persist.leadership import Fenced
from tests.chaos.test_delta_sink_killed import opened, write

path, mode, call, number, how = sys.argv[1:]
left = int(number)

def confirm():
    if os.path.exists(path + "/next"):
        raise Fenced(1, 2)

class Ending:
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        def act(*arguments):
            global left
            left -= name == call
            if left == 0:
                left = -1
                os.kill(os.getpid(), getattr(signal, how))
            answer = getattr(self.inner, name)(*arguments)
            left -= name + " done" == call
            if left == 0:
                left = -1
                os.kill(os.getpid(), getattr(signal, how))
            return answer
        return act

try:
    write(opened(path, mode, 1, confirm, Ending))
except Fenced as fenced:
    print(fenced)
"""


def opened(path, mode, epoch, confirm=lambda: None, around=lambda table: table):
    place = DeltaPlace(str(path))
    config = LakeSinkConfig(place, mode, ("k",) if mode == "UPSERT" else ())
    target = DeltaTarget(DeltaFolder.at(place.uri), "s", "tests-s", config, DESC)
    target.ensure()
    return LakeSink(
        LakeRows(config, DESC, "s"),
        SinkTable(place.shown),
        Claim("u1", "s", epoch, confirm),
        around(target.opened()),
        clock=lambda: 0,
        is_stopped=lambda: False,
    )


UPDATES = [
    *((k, "a", 0, 1) for k in range(50)),
    *((k, "a", 3, -1) for k in range(20)),
    *((k, "b", 4, 1) for k in range(10)),
    (49, "a", 5, -1),
    (50, "c", 5, 1),
]


def write(sink):
    schema = DESC.update_schema()
    columns = zip(*UPDATES, strict=True)
    rows = pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)
    for lower, upper in RANGES:
        if sink.frontier is None or sink.frontier < Frontier(upper):
            sink.write(Frontier(lower), Frontier(upper), [rows])
    assert sink.frontier == Frontier(6)


def check(path, mode):
    """The table has the rows of the relation, or each update once."""
    found = Counter(tuple(r.values()) for r in DeltaTable(str(path)).to_pyarrow_table().to_pylist())
    if mode == "APPEND":
        assert found == Counter((k, v, diff, time) for k, v, time, diff in UPDATES)
        return
    rows = Counter()
    for k, v, _, diff in UPDATES:
        rows[k, v] += diff
    assert found == +rows


def start(path, mode, call, number, how):
    return subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path), mode, call, str(number), how],
        stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "call", "number"),
    [
        ("APPEND", "commit", 1),
        ("APPEND", "commit done", 1),
        ("UPSERT", "commit", 2),
        ("UPSERT", "commit done", 2),
        ("UPSERT", "commit done", 3),
    ],
)
@pytest.mark.sampled(3)
def test_what_a_killed_sink_has_not_committed_is_there_once(tmp_path, mode, call, number):
    with start(tmp_path, mode, call, number, "SIGKILL") as process:
        assert process.wait(60) == -signal.SIGKILL
    write(opened(tmp_path, mode, 2))
    check(tmp_path, mode)


@pytest.mark.parametrize(("mode", "number"), [("APPEND", 2), ("UPSERT", 2), ("UPSERT", 3)])
@pytest.mark.sampled(3)
def test_a_sink_that_was_stopped_before_its_commit_writes_nothing_any_more(tmp_path, mode, number):
    with start(tmp_path, mode, "commit", number, "SIGSTOP") as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        (tmp_path / "next").mkdir()
        write(opened(tmp_path, mode, 2))
        os.kill(process.pid, signal.SIGCONT)
        said, _ = process.communicate(timeout=60)
        assert "2" in said
        assert process.returncode == 0
    check(tmp_path, mode)
