"""What the coordinator's process does before it does anything else."""

from __future__ import annotations

import os
import subprocess
import sys

STARTED = """
import gc, os
from slackwater.server.__main__ import main
assert main() == 1
os._exit(0 if gc.get_freeze_count() > 10_000 else 3)
"""
"""It ends at once, as its lease is none; then what was imported is no longer looked at."""


def test_no_garbage_is_looked_for_in_what_was_imported(tmp_path):
    variables = {"SLACKWATER_LOCATION": str(tmp_path / "environment"), "SLACKWATER_LEASE": "no"}
    ran = subprocess.run(
        [sys.executable, "-c", STARTED],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert "SLACKWATER_INVALID_OPTION" in ran.stdout


LEADS = """
import gc, os, runpy
leave = os._exit
os._exit = lambda status: leave(status if gc.isenabled() else 3)
runpy.run_module("slackwater.server", run_name="__main__")
"""
"""Its input has ended already, so it leads, closes all and ends."""


def test_garbage_is_looked_for_by_a_process_that_leads(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", LEADS],
        env={**os.environ, "SLACKWATER_LOCATION": str(tmp_path / "environment")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert '"role": "leader"' in ran.stdout
