"""In which order files of tests run: tests/support/order.py."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.applications.application import ROOT
from tests.support.order import FOLDERS
from tests.support.waiting import PATIENCE


def test_each_folder_with_tests_has_its_place():
    folders = {
        path.relative_to(ROOT / "tests").parts[0] for path in ROOT.glob("tests/**/test_*.py")
    }
    assert folders == set(FOLDERS)


def test_what_takes_long_begins_early():
    files = ["tests/unit/commands/test_order.py", "tests/soak", "tests/e2e/test_backup.py"]
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "--quiet", *files],
        cwd=ROOT,
        # What this run was given must not change how the other one lists.
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    ).stdout
    names = [line.split("/")[1] for line in listed.splitlines() if "::" in line]
    assert names == sorted(names, key=FOLDERS.index)
    assert set(names) == {"e2e", "soak", "unit"}
