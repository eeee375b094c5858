"""A fixed set of simulations. `make simulation` runs more of them."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

SEEDS = (1, 9)
"""In the last one replicas are at the other ends of wires, which are cut."""
KILL_STEPS = [200, pytest.param(100, marks=pytest.mark.nightly)]
_LINE = re.compile(r"^(SEED|KILL)=(\d+) (ok|FAILED) trace (\w+) ", re.MULTILINE)


def run(*arguments: object) -> list[tuple[str, str, str, str]]:
    """Which runs there were, how they ended, and their traces."""
    command = [sys.executable, "-m", "tests.simulation", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.fail(done.stdout + done.stderr, pytrace=False)
    return _LINE.findall(done.stdout)


@pytest.mark.nightly
def test_what_was_promised_holds_in_each_run_and_a_seed_says_how_it_goes():
    found = run(*SEEDS, SEEDS[0])
    assert [int(seed) for _, seed, _, _ in found] == [*SEEDS, SEEDS[0]]
    assert found[0] == found[-1]
    assert len({trace for *_, trace in found}) == len(SEEDS)


@pytest.mark.parametrize("step", KILL_STEPS)
def test_i26_i27_i51_a_leader_may_be_killed_at_any_boundary(step):
    killed = run("--kill-step", step)
    assert [int(number) for _, number, _, _ in killed[1:]] == list(
        range(1, 1 + step * (len(killed) - 1), step)
    )
    assert len(killed) > 5
