"""The coordinator's log: JSON lines in files that do not grow for ever."""

from __future__ import annotations

import json
import subprocess
import sys

LINE_BYTES = 2000
WRITER = """
import sys, pathlib, structlog
from slackwater.server import __main__ as process
process.LOG_BYTES = 100_000
process._log_to(pathlib.Path(sys.argv[1]))
log = structlog.get_logger(sys.argv[2])
for line in sys.stdin:
    for number in map(int, line.split()):
        log.info("said", writer=sys.argv[2], number=number, text="x" * 2000)
    print("written", flush=True)
"""


def writer(path, name):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def say(process, numbers):
    process.stdin.write(" ".join(map(str, numbers)) + "\n")
    process.stdin.flush()
    assert process.stdout.readline() == "written\n"


def lines(folder):
    """Who said which number, over all files."""
    return sorted(
        (entry["writer"], entry["number"])
        for file in folder.iterdir()
        for entry in map(json.loads, file.read_text().splitlines())
    )


def test_log_files_rotate(tmp_path):
    path = tmp_path / "log" / "coordinator.jsonl"
    with writer(path, "leader") as leader:
        say(leader, range(1000))
        leader.stdin.close()
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == [
        "coordinator.jsonl",
        *(f"coordinator.jsonl.{i}" for i in range(1, 6)),
    ]
    assert all(file.stat().st_size <= 100_000 + LINE_BYTES for file in files)
    kept = lines(path.parent)
    assert kept == [("leader", number) for number in range(1000 - len(kept), 1000)]


def test_a_second_process_in_the_same_log_loses_nothing(tmp_path):
    path = tmp_path / "log" / "coordinator.jsonl"
    with writer(path, "fenced") as fenced, writer(path, "leader") as leader:
        say(fenced, range(30))
        # The file moves away below the one that is fenced ...
        say(leader, range(40))
        # ... which says its last words, full or not, and the leader goes on.
        say(fenced, range(30, 40))
        say(leader, range(40, 60))
        for process in (fenced, leader):
            process.stdin.close()
    assert lines(path.parent) == [
        *(("fenced", number) for number in range(40)),
        *(("leader", number) for number in range(60)),
    ]
