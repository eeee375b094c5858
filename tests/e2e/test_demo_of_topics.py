"""The demo's tour of topics, with the console beside it, as a user starts them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
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


@pytest.mark.nightly
def test_every_check_holds_though_the_broker_is_killed():
    said = []
    demo = subprocess.Popen(
        [sys.executable, "-m", "slackwater.cli", "demo", "--kafka", "--days", "3", "--console"],
        env={
            **os.environ,
            FOLDER: str(jars()),
            "SPARK_SUBMIT_OPTS": options(),
            "PYTHONUNBUFFERED": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        for line in demo.stdout:
            said.append(line)
            if "Ctrl-C ends both" in line:
                break
        found = re.search(r"The console is at (http://127\.0\.0\.1:\d+/)", "".join(said))
        assert found is not None, "".join(said)
        wait_until(lambda: "demo.flights" in _page(found[1]), what="the console shows the demo")
        demo.send_signal(signal.SIGINT)
        said.append(demo.communicate(timeout=PATIENCE)[0])
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(demo.pid, signal.SIGKILL)
    log = "".join(said)
    assert "The broker is killed, and comes back." in log
    assert "\n5 of 5 checks held" in log, log
    assert demo.returncode == 0
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(found[1])
