"""Packages that the coordinator does without."""

from __future__ import annotations

import subprocess
import sys

LEFT_OUT = """
import pyarrow
from slackwater.server.left_out import UNUSED, leave_out
leave_out(*UNUSED)
import structlog
assert pyarrow.array([1, None]).to_pylist() == [1, None]
structlog.get_logger().info("said")
for name in ("pandas", "pandas.core", "rich"):
    try:
        __import__(name)
    except ModuleNotFoundError as error:
        assert error.name == name.partition(".")[0], error
    else:
        raise AssertionError(name)
import richer
"""


def test_libraries_do_without(tmp_path):
    (tmp_path / "richer.py").write_text("")
    subprocess.run([sys.executable, "-c", LEFT_OUT], cwd=tmp_path, check=True)
