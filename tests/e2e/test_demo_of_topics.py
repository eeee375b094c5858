"""The demo's tour of topics, with the console beside it, as a user starts them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

import pytest
from tests.support.applications.class_archive import options
from tests.support.kafka.broker import jars
from tests.support.waiting import PATIENCE, wait_until

from slackwater.demo.broker import FOLDER

pytestmark = pytest.mark.spark


def _page(address):
    with urllib.request.urlopen(address) as page:
        return page.read().decode()


def test_every_check_holds_though_the_broker_is_killed(tmp_path):
    log = tmp_path / "demo.log"
    with open(log, "w") as output:
        demo = subprocess.Popen(
            [sys.executable, "-m", "slackwater.cli", "demo", "--kafka", "--days", "3", "--console"],
            env={
                **os.environ,
                FOLDER: str(jars()),
                "SPARK_SUBMIT_OPTS": options(),
                "PYTHONUNBUFFERED": "1",
            },
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 5 * PATIENCE
        while "Ctrl-C ends both" not in log.read_text() and demo.poll() is None:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        found = re.search(r"The console is at (http://127\.0\.0\.1:\d+/)", log.read_text())
        wait_until(lambda: "demo.flights" in _page(found[1]), what="the console shows the demo")
        demo.send_signal(signal.SIGINT)
        status = demo.wait(PATIENCE)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(demo.pid, signal.SIGKILL)
    assert "The broker is killed, and comes back." in log.read_text()
    assert "\n5 of 5 checks held" in log.read_text(), log.read_text()
    assert status == 0
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(found[1])
