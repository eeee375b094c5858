"""Ctrl-C at commands that run Spark in their own process: all that they began ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

import pytest
from tests.support.applications.application import coordinators, descendants, kill
from tests.support.applications.class_archive import options
from tests.support.applications.spark_servers import (
    command,
    environment,
    hear_interrupts,
    jvm_below,
)
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.spark

ENDED = 128 + signal.SIGINT


@contextlib.contextmanager
def begun(program, folder, *arguments):
    """A command in a terminal of its own, whose output is in a file."""
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(
            command(program, folder / "environment", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**environment(), "SPARK_SUBMIT_OPTS": options(), "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
            preexec_fn=hear_interrupts,
        )
    try:
        yield process
    finally:
        for pid in [*descendants(process.pid), process.pid]:
            kill(pid)


def interrupted(process, folder):
    """Ctrl-C, as a terminal sends it: to all processes. Gives the status and what was said."""
    below = descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    status = process.wait(PATIENCE)
    try:
        wait_until(lambda: not any(map(is_alive, below)), what=f"the end of {below}")
        wait_until(lambda: not coordinators(folder / "environment"), what="the coordinator's end")
    finally:
        for pid in below:
            kill(pid)
    return status, (folder / "log").read_text()


def is_alive(pid):
    return os.path.exists(f"/proc/{pid}")


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("demo", ENDED),
        pytest.param("doctor", ENDED, marks=pytest.mark.nightly),
        pytest.param("serve", 0, marks=pytest.mark.nightly),
    ],
)
def test_while_spark_starts(tmp_path, program, expected):
    with begun(program, tmp_path) as process:
        wait_until(lambda: jvm_below(process), every_s=0.02, what="a JVM")
        status, said = interrupted(process, tmp_path)
    assert status == expected, said
    assert "Traceback" not in said, said
    assert "Error" not in said, said


def test_in_the_middle_of_a_statement(tmp_path):
    with begun("demo", tmp_path, "--days", "3") as process:
        wait_until(
            lambda: "sql> CREATE" in (tmp_path / "log").read_text(),
            what="the first statement of the tour",
        )
        status, said = interrupted(process, tmp_path)
    assert status == ENDED, said
    assert "Traceback" not in said, said
    assert "Error" not in said, said
