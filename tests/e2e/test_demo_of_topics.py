"""The demo's tour of topics, as a user starts it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.support.applications.class_archive import options
from tests.support.kafka.broker import jars
from tests.support.waiting import PATIENCE

from slackwater.demo.broker import FOLDER

pytestmark = pytest.mark.spark


def test_every_check_holds_though_the_broker_is_killed():
    ended = subprocess.run(
        [sys.executable, "-m", "slackwater.cli", "demo", "--kafka", "--days", "3"],
        env={**os.environ, FOLDER: str(jars()), "SPARK_SUBMIT_OPTS": options()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=5 * PATIENCE,
        check=False,
    )
    assert "The broker is killed, and comes back." in ended.stdout
    assert "\n5 of 5 checks held" in ended.stdout, ended.stdout
    assert ended.returncode == 0
