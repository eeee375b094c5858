"""Coordinators as forks: they are told apart, and end as processes of their own would."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest
from tests.support.applications.application import command_line
from tests.support.applications.fork_server import ForkServer
from tests.support.waiting import PATIENCE, wait_until


@pytest.fixture(scope="module")
def forks():
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture
def begin(forks, tmp_path):
    """Begins a coordinator of a location; returns the program, and the process that was forked."""
    began = []

    def begin(name):
        location = str(tmp_path / name)
        known = forked(forks, location)
        program = subprocess.Popen(
            [forks.python, "-c", "slackwater.server"],
            env={**os.environ, "SLACKWATER_LOCATION": location},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        began.append(program)
        said = json.loads(program.stdout.readline())
        return program, forked(forks, location) - known, said

    yield begin
    for program in began:
        with program:
            program.kill()


def forked(forks, location):
    return {int(pid) for pid in os.listdir("/proc") if forks.location(pid) == location}


def test_a_fork_leads_until_its_input_ends(begin):
    program, (leader,), said = begin("a b")
    assert said["role"] == "leader"
    assert "fork_server" in command_line(leader)
    joining, _, joined = begin("a b")
    assert joined["address"] == said["address"]
    assert joining.wait(PATIENCE) == 0
    program.stdin.close()
    assert program.wait(PATIENCE) == 0
    assert not command_line(leader)


@pytest.mark.parametrize("killed", ["process", "program"])
def test_both_are_killed_at_once(begin, killed):
    program, (leader,), _ = begin("killed")
    other, (another,), _ = begin("goes on")
    os.kill(leader if killed == "process" else program.pid, signal.SIGKILL)
    assert program.wait(PATIENCE) != 0
    wait_until(lambda: not command_line(leader), what="the end of the fork")
    other.stdin.close()
    assert other.wait(PATIENCE) == 0
    assert not command_line(another)
