"""Ctrl-C at commands that run Spark in their own process: all that they began ends."""

from __future__ import annotations

import os
import signal

import pytest
from tests.support.applications.application import coordinators, descendants, is_alive, kill
from tests.support.applications.spark_servers import command, in_foreground, jvm_below
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.spark

ENDED = 128 + signal.SIGINT


def begun(program, folder, *arguments):
    return in_foreground(command(program, folder / "environment", *arguments), folder, log(folder))


def log(folder):
    return folder / "log"


def ends_at_ctrl_c(process, folder, expected):
    """All of it, with the status, and without a trace; a terminal sends Ctrl-C to all processes."""
    below = descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    status = process.wait(PATIENCE)
    try:
        wait_until(lambda: not any(map(is_alive, below)), what=f"the end of {below}")
        wait_until(lambda: not coordinators(folder / "environment"), what="the coordinator's end")
    finally:
        for pid in below:
            kill(pid)
    said = log(folder).read_text()
    assert status == expected, said
    assert "Traceback" not in said, said
    assert "Error" not in said, said


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
        ends_at_ctrl_c(process, tmp_path, expected)


def test_in_the_middle_of_a_statement(tmp_path):
    with begun("demo", tmp_path, "--days", "3") as process:
        wait_until(
            lambda: "sql> CREATE" in log(tmp_path).read_text(),
            what="the first statement of the tour",
        )
        ends_at_ctrl_c(process, tmp_path, ENDED)
