"""What the coordinator's process does before it does anything else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

from tests.support.applications.drivers import ROOT

LAUNCH = ROOT / "jvm_shim/src/main/scala/org/apache/spark/sql/slackwater/process" / "Launch.scala"

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
import gc, os, runpy, sys
leave = os._exit
def end(status):
    print(*{name.partition(".")[0] for name in sys.modules}, file=sys.stderr, flush=True)
    leave(status if gc.isenabled() else 3)
os._exit = end
runpy.run_module("slackwater.server", run_name="__main__")
"""
"""Its input has ended already, so it leads, closes all, names its packages and ends."""


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
    packages = ran.stderr.split()
    assert "pyarrow" in packages
    assert not {"pandas", "pyspark", "rich"} & set(packages)


SHADOWS = ("json", "logging", "slackwater", "types")
"""Modules that a user may have in his working folder."""


def test_what_is_around_the_process_does_not_matter(tmp_path):
    """As the shim starts it; the second finds the first, and they leave nothing elsewhere."""
    home = tmp_path / "home"
    home.mkdir(mode=0o555)
    place = tmp_path / "a b%20c?d#e+f'\"[x]{y,z}*\u00fc" / "environment"
    for name in SHADOWS:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the module of a user')")
    around = {
        "SLACKWATER_LOCATION": str(place),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path and path != str(tmp_path)),
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "LC_ALL": "C",
        "TZ": "Asia/Kolkata",
        "HOME": str(home),
        "TMPDIR": str(tmp_path / "no such folder"),
        "http_proxy": "http://127.0.0.1:9",
        "all_proxy": "http://127.0.0.1:9",
        # There is no driver, and none is to be started.
        "PYSPARK_GATEWAY_PORT": "9",
        "PYSPARK_GATEWAY_SECRET": "none",
    }
    start = [sys.executable, *_arguments_of_the_shim()]
    options = {"env": around, "cwd": tmp_path, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(start, stdin=subprocess.PIPE, **options) as leading:
        leader = json.loads(leading.stdout.readline())
        assert leader.get("role") == "leader", leader
        around["PYTHONPROFILEIMPORTTIME"] = "1"
        joining = subprocess.run(
            start, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True, **options
        )
        joined = json.loads(joining.stdout)
        assert (joined["role"], joined["address"]) == ("joined", leader["address"])
        # Of what only a leader needs it has imported nothing.
        assert "slackwater.persist.leadership" in joining.stderr
        assert not re.search(r"pyarrow|uvicorn|slackwater\.(adapter|spark|storage)", joining.stderr)
        assert (place / "metastore.sqlite").exists()
        leading.stdin.close()
    assert leading.returncode == 0
    made = {path.name for path in tmp_path.iterdir()} - {f"{name}.py" for name in SHADOWS}
    assert made == {"home", place.parent.name}
    assert not list(home.iterdir())


def _arguments_of_the_shim():
    """The arguments with which `Launch.scala` runs an interpreter."""
    text = LAUNCH.read_text(encoding="utf-8").partition("val arguments = Seq(")[2]
    joined = re.sub(r'"\s*\+\s*"', "", text.partition("\n  )")[0])
    return re.findall(r'"([^"]*)"', joined)
