"""A Spark session above a coordinator with canned answers, and what that one was asked."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.support.applications.plain_session import as_usual

FAKE = Path(__file__).parent / "fake_coordinator.py"
JARS = sorted(
    (Path(__file__).parents[3] / "python/slackwater/jars").glob("slackwater-spark_4.2_*.jar")
)


class Environment:
    """What the coordinator at a location was started with, and called."""

    def __init__(self, location: Path) -> None:
        self.location = location

    def starts(self) -> list[dict[str, Any]]:
        return _lines(self.location / "starts.jsonl")

    def calls(self, path: str) -> list[dict[str, Any]]:
        return [c["body"] for c in _lines(self.location / "calls.jsonl") if c["path"] == path]

    def planned(self) -> list[str]:
        return [body["text"] for body in self.calls("/v1/plan")]


@pytest.fixture(name="base", scope="module")
def canned_base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    assert JARS, "make jar builds it"
    folder = tmp_path_factory.mktemp("shim")
    session = (
        as_usual(SparkSession.builder)
        .master("local[1]")
        .config("spark.jars", str(JARS[0]))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.slackwater.python", str(_interpreter(folder)))
        .config("spark.slackwater.location", str(folder / "never"))
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(name="env")
def canned_env(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "environment")


@pytest.fixture(name="spark")
def canned_spark(base: SparkSession, env: Environment) -> SparkSession:
    """A session with an environment of its own, in Spark's own catalog."""
    session = base.newSession()
    configure(session, "spark.slackwater.location", str(env.location))
    for key in ("metastore", "metastore.password"):
        session.sparkContext._jsc.sc().conf().remove(f"spark.slackwater.{key}")
    env.location.mkdir()
    activate(session)
    return session


@pytest.fixture(name="ours")
def canned_ours(spark: SparkSession) -> SparkSession:
    """As `spark`, in the catalog of Slackwater."""
    spark.sql("USE slackwater")
    return spark


def configure(session: SparkSession, key: str, value: str) -> None:
    """Sets what the application has been configured with, as if it had been started so."""
    session.sparkContext._jsc.sc().conf().set(key, value)


def activate(session: SparkSession) -> None:
    """Python calls of one driver share a thread, and with it the active session."""
    jvm = session.sparkContext._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)


def _interpreter(folder: Path) -> Path:
    """What the shim runs instead of Python: the fake, whatever module it asks for."""
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
    script.chmod(0o755)
    return script


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
